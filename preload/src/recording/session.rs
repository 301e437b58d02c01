//! A session: the road from the hooks of one process to its writer.
//!
//! ```text
//!         ┌─ samples and frees (a lane for each seat) ──────────────┐
//!         ├─ stacks that were not known (another) ──────────────────┤
//!  hooks ─┼─ threads, notes (bounded, crossbeam-channel) ───────────┼─> inlet ─> writer
//!         └─ frees that found no room (unbounded, crossbeam-channel)┘
//! ```
//!
//! Samples and frees are what there are millions of; docs/lab-notes/lanes-and-writer.md has what lanes are worth beside one
//! channel for all. Stacks are few, but long: in a lane a hook takes no memory for them. An allocator has locks, which a
//! writer that is put off its processor may hold, and takes more of the stack than a thread may have left.
//!
//! A hook only ever tries to send. When there is no room it wakes the writer and tries for a moment
//! ([`PATIENCE_NS`]); when everything is to be recorded, for as long as the writer gets on
//! ([`PATIENCE_EXACT_NS`]). Then an allocation is dropped and counted. A free is never dropped (Law 4): it goes the other
//! way, which has no bound of its own but cannot hold more than there are samples in the table.
//!
//! A forked child makes a session of its own and never touches its parent's (Law 7).

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use heapprof_core::{By, Ended, Freed, LANES, Lane, Memo, Sampled, StackLane, StackSet};
use heapprof_format::{ControlPage, WalkEnd};

use crate::arch::memory::prefetch_to_write;
use crate::os::backoff::Patience;
use crate::os::clock::{self, Ticks};
use crate::os::sys;
use crate::recording::mapped_levels::Mapped;
use crate::recording::requests::{Ask, Request};
use crate::recording::seats::{self, Seat};
use crate::recording::{pending_frees, request_word};
use crate::state::thread::Thread;
use crate::state::{counters, interval, process, shutdown, wakeup};
use crate::unwind::walker::{MAX_FRAMES, Walked};

/// What the hooks tell the writer seldom.
pub(crate) enum Rare {
    Thread {
        number: u32,
        tid: u32,
        /// Its name now, for the case that it has ended when the writer comes to ask.
        name: [u8; 16],
    },
    Note(Box<Note>),
}

/// What is no allocation and no free, and belongs among them in the log.
pub(crate) struct Note {
    pub(crate) at: Ticks,
    pub(crate) what: Noted,
}

pub(crate) enum Noted {
    /// A moment with that name.
    Marker(String),
    /// Another interval is in force from here on, in bytes; 0: recording is stopped.
    Regime(u64),
}

/// The end of a sampled block.
#[derive(Clone, Copy)]
pub(crate) struct FreeEvent {
    pub(crate) at: Ticks,
    pub(crate) id: u64,
    pub(crate) thread: u32,
}

const _: () = assert!(size_of::<Rare>() <= 32);
const _: () = assert!(seats::MOST <= LANES);

/// Words of a lane when few blocks are sampled: some 1,000 samples with their frees, 256 MiB or more allocated by one thread
/// between two looks of the writer, which is woken at half of that. To wake it takes tens of microseconds of two processors where they are virtual.
const LANE_SPARSE: usize = 8192;
/// And when many are, or everything: half a millisecond of the program's work and less of the writer's, so that
/// little is left to do when the program ends. Twice as much saves little more, and takes 32 MiB with 64 seats in use.
const LANE: usize = 32_768;
/// Words of a lane for stacks: some 190 of 40 frames, or three of the largest depth.
const STACK_LANE: usize = 8192;
const _: () = assert!(STACK_LANE > 2 * StackLane::words_of(MAX_FRAMES + 1));
/// Bytes before the lanes' words, for what else they keep: a page.
const LANE_HEADER: usize = 4096;
/// From this interval on few are.
const SPARSE_INTERVAL: u64 = 256 << 10;
/// Rare events on their way. All of that memory is touched when it is made.
const RARE: usize = 512;

/// How long a hook tries to send before it drops the record: as long as a writer that was woken may have to wait for a
/// processor where ten others want it.
const PATIENCE_NS: u64 = 100_000_000;
/// When everything is to be recorded: how long a hook waits for a writer that does not get on at all (a
/// stuck disk).
const PATIENCE_EXACT_NS: u64 = 2_000_000_000;

/// States of the writer, in `Session::writer`.
pub(crate) use crate::state::wakeup::AWAKE;
pub(crate) const DOZING: u32 = 1;
pub(crate) const ASLEEP: u32 = 2;

/// Of one seat.
pub(crate) struct SeatLanes {
    /// Samples and frees.
    pub(crate) events: Lane,
    /// Stacks that were not known.
    pub(crate) stacks: StackLane,
}

/// See the module's text. Made once for each process and never freed.
pub(crate) struct Session {
    /// Tells sessions apart: the parent's number is not the child's.
    pub(crate) number: u32,
    /// By the number of the seat, made by the first who has the seat and something to say; never freed.
    lanes: [AtomicPtr<SeatLanes>; seats::MOST],
    /// Words of each for samples and frees.
    lane_words: usize,
    rare: (Sender<Rare>, Receiver<Rare>),
    overflow: (Sender<FreeEvent>, Receiver<FreeEvent>),
    /// Stacks whose frames are in the queue or beyond.
    pub(crate) stacks: StackSet<Mapped>,
    /// Next thread number.
    next_thread: AtomicU32,
    /// [`AWAKE`], [`DOZING`] (comes back by itself) or [`ASLEEP`]. Moved to the latter two by the
    /// writer before it waits on it, to the first by whoever wakes it: also another process, so it lies on
    /// the page.
    pub(crate) writer: &'static AtomicU32,
    /// Where another process may leave a command.
    pub(crate) page: &'static ControlPage,
    /// What threads of the program have asked for and wait for.
    pub(crate) requests: (Sender<Request>, Receiver<Request>),
    /// Events taken out so far: tells a waiting hook whether the writer gets on.
    pub(crate) taken: AtomicU64,
    /// What `taken` was when somebody's patience with the writer ended: until it is another number, nobody waits for the writer again.
    given_up_at: AtomicU64,
    /// Set by the writer when it has finished.
    pub(crate) finished: AtomicU32,
}

/// The process's session, once it has one.
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// Ids of samples up to here are not of this process but of the one that it was forked from: they are never given again.
static FOREIGN_IDS: AtomicU64 = AtomicU64::new(0);
/// More ids than other threads of the parent can have given while the copy was made: its pages are not of one moment.
const GIVEN_MEANWHILE: u64 = 1 << 32;

/// The session, if there is one.
#[inline]
pub(crate) fn current() -> Option<&'static Session> {
    // SAFETY: null or a leaked session.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Puts a new session in place of none, or of the parent's. `None`: there is no memory for it.
pub(crate) fn install(interval: u64, page: &'static ControlPage) -> Option<&'static Session> {
    let session = Box::leak(Box::new(Session {
        number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        lanes: [const { AtomicPtr::new(std::ptr::null_mut()) }; seats::MOST],
        lane_words: if interval >= SPARSE_INTERVAL {
            LANE_SPARSE
        } else {
            LANE
        },
        rare: bounded(RARE),
        overflow: unbounded(),
        stacks: StackSet::new(Mapped::new()),
        next_thread: AtomicU32::new(0),
        writer: &page.writer,
        page,
        requests: unbounded(),
        taken: AtomicU64::new(0),
        given_up_at: AtomicU64::new(u64::MAX),
        finished: AtomicU32::new(0),
    }));
    if !session.make_first_lane() {
        return None;
    }
    wakeup::install(session.writer);
    CURRENT.store(session, Ordering::Release);
    Some(session)
}

/// In a forked child: forget the parent's. It is leaked: its lanes may be in any state.
pub(crate) fn abandon() {
    wakeup::after_fork();
    let parent = CURRENT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null or a leaked session. Looked at is one number in each lane, which is whole whoever was about to change it.
    if let Some(parent) = unsafe { parent.as_ref() } {
        let above = parent.lanes().map(|(_, lanes)| lanes.events.above()).max();
        let above = above.map_or(0, |above| above + GIVEN_MEANWHILE);
        FOREIGN_IDS.fetch_max(above, Ordering::Relaxed);
    }
}

/// In a forked child.
pub(crate) fn after_fork(thread: &Thread) {
    thread.session.set(0);
}

/// See [`FOREIGN_IDS`].
pub(crate) fn foreign_ids() -> u64 {
    FOREIGN_IDS.load(Ordering::Relaxed)
}

/// Asks for the line of the cache behind that of an event that was put into a lane (at the lane's end: behind the lane). It will be written soon, and is
/// the writer's, who read it a round ago: the store to come would wait for it, and with that whatever locked instruction of the program's comes next.
#[inline(always)]
fn fetch_behind(event: &AtomicU64) {
    const LINE: usize = 64;
    prefetch_to_write(std::ptr::from_ref(event).wrapping_byte_add(LINE).cast());
}

impl Session {
    /// Gives a thread that is new here its number, and tells the writer.
    pub(crate) fn welcome(&self, thread: &Thread) {
        let number = self.next_thread.fetch_add(1, Ordering::Relaxed);
        thread.number.set(number);
        thread.session.set(self.number);
        // A thread without this record is shown by its number.
        let _ = self.try_send(Rare::Thread {
            number,
            tid: sys::gettid(),
            name: sys::thread_name(),
        });
    }

    /// Makes that thread known here, if it is not, and sends what was freed before there was a session, in its order.
    #[cold]
    pub(crate) fn take_in(&self, thread: &Thread) {
        if thread.session.get() != self.number {
            self.welcome(thread);
        }
        for free in pending_frees::take() {
            self.send_free(
                thread,
                FreeEvent {
                    at: free.at,
                    id: free.id,
                    thread: thread.number.get(),
                },
            );
        }
    }

    /// Whether there is memory for a first lane. Before anybody else knows this session.
    fn make_first_lane(&self) -> bool {
        self.make_lanes(0, &self.lanes[0]).is_some()
    }

    /// The lanes of a seat, made if need be: by a system call, whatever the thread was interrupted in. `None`: there is no
    /// memory for them.
    #[inline]
    pub(crate) fn lanes_of(&self, seat: &Seat) -> Option<&'static SeatLanes> {
        let place = self.lanes.get(seat.number())?;
        // SAFETY: null or made by `make_lanes`.
        let lanes = unsafe { place.load(Ordering::Acquire).as_ref() };
        lanes.or_else(|| self.make_lanes(seat.number(), place))
    }

    #[cold]
    fn make_lanes(
        &self,
        number: usize,
        place: &AtomicPtr<SeatLanes>,
    ) -> Option<&'static SeatLanes> {
        let words = self.lane_words + STACK_LANE;
        let memory = sys::map_zeroed(LANE_HEADER + words * size_of::<AtomicU64>())?;
        const { assert!(size_of::<SeatLanes>() <= LANE_HEADER) };
        // SAFETY: a zeroed mapping of a page and that many words, page-aligned, never unmapped: the words are reached through
        // atomics only, and the page before them has room for what is written there (asserted above). This thread has the seat,
        // so nobody else is here with the same place.
        unsafe {
            let words = std::slice::from_raw_parts(memory.byte_add(LANE_HEADER).cast(), words);
            let (of_events, of_stacks) = words.split_at(self.lane_words);
            let lanes = memory.cast::<SeatLanes>();
            lanes.write(SeatLanes {
                events: Lane::new(of_events, number, foreign_ids()),
                stacks: StackLane::new(of_stacks),
            });
            place.store(lanes, Ordering::Release);
            lanes.as_ref()
        }
    }

    /// For the writer: the lanes that there are, with their numbers.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (usize, &'static SeatLanes)> {
        let lanes = self.lanes.iter().enumerate();
        // SAFETY: as in `lanes_of`.
        lanes.filter_map(|(n, lanes)| Some((n, unsafe { lanes.load(Ordering::Acquire).as_ref()? })))
    }

    /// Sends the frames of a stack that is not known, of which a sample will tell. False: there was no room.
    #[cold]
    pub(crate) fn send_stack(
        &self,
        lane: &StackLane,
        walked: &Walked,
        entry: u64,
        memo: &Memo<WalkEnd>,
    ) -> bool {
        let callers = memo.innermost_first();
        let callers = callers.map(|frame| (frame.address, !frame.returns));
        let put = || lane.put(walked.hash, walked.end as u8, entry, callers.clone());
        let sent = put() || self.wait_and_send(put);
        // The sample wakes a writer that sleeps; one that comes back by itself may come too late for more of these.
        if lane.is_half_full() {
            self.wake();
        }
        sent
    }

    /// Sends a sample, and with it the end of another. False: the sample was lost, for want of room, and the end was not sent; the caller
    /// counts.
    #[inline(always)]
    pub(crate) fn send_sampled(
        &self,
        lane: &Lane,
        by: By,
        sampled: &Sampled,
        ended: Ended,
    ) -> bool {
        let sent = lane.put_sampled(by, sampled, ended, fetch_behind)
            || self.wait_and_send_sampled(lane, by, *sampled, ended);
        self.has_put(lane);
        sent
    }

    #[cold]
    #[inline(never)]
    fn wait_and_send_sampled(&self, lane: &Lane, by: By, sampled: Sampled, ended: Ended) -> bool {
        self.wait_and_send(|| lane.put_sampled(by, &sampled, ended, |_| {}))
    }

    /// Sends a free, which is never lost.
    fn send_free(&self, thread: &Thread, free: FreeEvent) {
        if let Some(seat) = seats::take(thread)
            && let Some(lanes) = self.lanes_of(&seat)
        {
            return self.send_free_in(&lanes.events, free);
        }
        self.send_around(free);
    }

    /// The same in a lane whose seat this thread has.
    #[inline(always)]
    pub(crate) fn send_free_in(&self, lane: &Lane, free: FreeEvent) {
        let FreeEvent { at, id, thread } = free;
        let at = at.raw();
        if lane.put_freed(thread, &Freed { at, id }, fetch_behind)
            || self.wait_and_send_free(lane, free)
        {
            self.has_put(lane);
        }
    }

    /// False: it went the other way.
    #[cold]
    #[inline(never)]
    fn wait_and_send_free(&self, lane: &Lane, free: FreeEvent) -> bool {
        let freed = Freed {
            at: free.at.raw(),
            id: free.id,
        };
        let sent = self.wait_and_send(|| lane.put_freed(free.thread, &freed, |_| {}));
        if !sent {
            self.send_around(free);
        }
        sent
    }

    /// The other way.
    #[cold]
    pub(crate) fn send_around(&self, free: FreeEvent) {
        counters::FREES_OVERFLOWED.add(1);
        if self.overflow.0.try_send(free).is_err() {
            counters::LOST_FREES.add(1);
        }
        self.wake();
    }

    /// Wakes the writer if it must know of what was put into this lane.
    #[inline]
    fn has_put(&self, lane: &Lane) {
        match self.writer.load(Ordering::Relaxed) {
            AWAKE => {}
            // It may have looked into the lane just before, and we at its state: see `Writer::rest`.
            ASLEEP => self.wake(),
            // It comes back by itself, but for a burst perhaps too late.
            _ if lane.is_half_full() => self.wake(),
            _ => {}
        }
    }

    /// Sends what comes seldom. False: it was lost, for want of room; the caller counts.
    #[cold]
    pub(crate) fn send(&self, event: Rare) -> bool {
        let mut event = Some(event);
        let mut send = || {
            if let Some(it) = event.take() {
                event = self.try_send(it).err();
            }
            event.is_none()
        };
        send() || self.wait_and_send(send)
    }

    fn try_send(&self, event: Rare) -> Result<(), Rare> {
        match self.rare.0.try_send(event) {
            Ok(()) => {
                match self.writer.load(Ordering::SeqCst) {
                    ASLEEP => self.wake(),
                    DOZING if self.is_half_full() => self.wake(),
                    _ => {}
                }
                Ok(())
            }
            Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) => Err(event),
        }
    }

    /// Asks the writer and waits for its answer, in a thread that is inside our code.
    ///
    /// # Errors
    /// With the words of the refusal, also when it does not come.
    pub(crate) fn ask(&self, ask: Ask) -> Result<String, String> {
        let (request, answer) = Request::new(ask);
        if self.requests.0.try_send(request).is_err() {
            return Err("the writer is gone".into());
        }
        request_word::post(request_word::QUESTION);
        answer.wait(|| self.finished.load(Ordering::Acquire) == 0)
    }

    /// Wakes the writer, if it sleeps.
    #[cold]
    pub(crate) fn wake(&self) {
        wakeup::wake(self.writer);
    }

    /// The writer has finished.
    pub(crate) fn tell_finished(&self) {
        self.finished.store(1, Ordering::Release);
        sys::futex_wake(&self.finished);
    }

    /// Waits until the writer has finished, or that time by the monotonic clock.
    pub(crate) fn wait_until_finished(&self, deadline_ns: u64) {
        while self.finished.load(Ordering::Acquire) == 0 {
            let now = clock::now_ns();
            if now >= deadline_ns {
                break;
            }
            sys::futex_wait(&self.finished, 0, Some(deadline_ns - now));
        }
    }

    /// Has the writer make room until `send` finds some, or for as long as there is patience.
    #[cold]
    fn wait_and_send(&self, mut send: impl FnMut() -> bool) -> bool {
        if !process::is_own() {
            // A copy of the process that was made past the fork handlers (`_Fork`, the bare system call)
            // has a copy of the queue, and nobody empties it.
            return false;
        }
        counters::QUEUE_WAITS.add(1);
        let exact = interval::is_exact();
        let patience = if exact {
            PATIENCE_EXACT_NS
        } else {
            PATIENCE_NS
        };
        let mut seen = self.taken.load(Ordering::Relaxed);
        if seen == self.given_up_at.load(Ordering::Relaxed) {
            self.wake();
            return false; // a stuck disk stalls each thread once, and not each malloc
        }
        let mut patience = Patience::of(patience);
        loop {
            self.wake();
            let goes_on = patience.pause();
            if send() {
                return true;
            }
            let taken = self.taken.load(Ordering::Relaxed);
            if exact && taken != seen {
                seen = taken;
                patience.renew();
            } else if self.finished.load(Ordering::Relaxed) != 0 {
                shutdown::wait();
                return false;
            } else if !goes_on {
                if taken == seen {
                    self.given_up_at.store(seen, Ordering::Relaxed);
                }
                return false;
            }
        }
    }

    /// For the writer: the next that came seldom.
    pub(crate) fn next_rare(&self) -> Option<Rare> {
        self.rare.1.try_recv().ok()
    }

    /// For the writer: the next free that found no room.
    pub(crate) fn next_overflowed(&self) -> Option<FreeEvent> {
        self.overflow.1.try_recv().ok()
    }

    /// For the writer: whether much waits there.
    pub(crate) fn is_half_full(&self) -> bool {
        self.rare.1.len() > RARE / 2 || self.lanes().any(|(_, lanes)| lanes.stacks.is_half_full())
    }

    /// For the writer: whether nothing waits there. The lanes of events are the inlet's to ask.
    pub(crate) fn is_empty(&self) -> bool {
        let has_stacks = self.lanes().any(|(_, lanes)| !lanes.stacks.is_empty());
        !has_stacks && self.rare.1.is_empty() && self.overflow.1.is_empty()
    }
}
