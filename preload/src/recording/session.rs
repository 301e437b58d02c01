//! Session: the connection between the hooks of one process and its writer.
//!
//! Glossary: session.
//!
//! ```text
//!         ┌─ samples and frees (one lane for each seat) ────────────┐
//!         ├─ stacks that are new (another lane for each seat) ──────┤
//!  hooks ─┼─ threads, notes (bounded, crossbeam-channel) ───────────┼─> event source ─> writer
//!         ├─ changes of mappings (bounded, crossbeam-channel) ──────┤
//!         └─ frees that found no room (unbounded, crossbeam-channel)┘
//! ```
//!
//! Samples and frees come by the million; docs/lab-notes/lanes-and-writer.md compares lanes with
//! one channel for all seats. Stacks are few, but long. A lane for stacks spares the hook an
//! allocation. An allocator takes locks, which a preempted writer may hold, and it may need more
//! stack than the thread has left.
//!
//! A hook sends without a lock. If there is no room, it wakes the writer and tries again until a
//! timeout ([`SEND_TIMEOUT_NS`]). If everything is recorded, the timeout begins anew whenever the
//! writer makes progress ([`SEND_TIMEOUT_EXACT_NS`]). After the timeout, an allocation is dropped
//! and counted. A free is never dropped (Law 4): it goes into the overflow queue, which is
//! unbounded but cannot hold more frees than there are samples in the table. If a hook has timed
//! out and the writer has taken nothing since, no other hook waits. So a stuck disk delays a thread
//! once at most. The announcement of a thread never waits: a thread whose announcement is lost has
//! no name in the log.
//!
//! A forked child makes its own session and never touches its parent's (Law 7).

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use heapprof_core::{EndedSample, Freed, Lane, Memo, Origin, Sampled, StackLane, StackSet};
use heapprof_format::{ControlPage, WalkEnd};

use crate::arch::memory::prefetch_to_write;
use crate::os::backoff::Backoff;
use crate::os::sys;
use crate::recording::events::{FreeEvent, MappingEvent, NewStack, SideEvent};
use crate::recording::mapped_levels::MappedLevels;
use crate::recording::requests::{Request, RequestKind};
use crate::recording::seat_lanes::{LanesBySeat, SeatLanes};
use crate::recording::seats::{self, Seat};
use crate::recording::{pending_frees, pending_mappings, request_word};
use crate::state::thread::Thread;
use crate::state::{counters, interval, process, shutdown, wakeup};

/// The capacity of the queue of side events. All of its memory is touched when it is made.
const SIDE_EVENTS: usize = 512;
/// The capacity of the queue of mappings, whose memory is touched, too. A queue that is half full
/// wakes the writer.
const MAPPINGS: usize = 256;

/// How long a hook tries to send before it drops the record: as long as a woken writer may wait for
/// a processor that many threads want.
const SEND_TIMEOUT_NS: u64 = 100_000_000;
/// If everything is recorded: how long a hook waits for a writer that makes no progress, as with a
/// stuck disk.
const SEND_TIMEOUT_EXACT_NS: u64 = 2_000_000_000;

/// States of the writer, in `Session::writer`.
pub(crate) use crate::state::wakeup::AWAKE;
pub(crate) const DOZING: u32 = 1;
pub(crate) const ASLEEP: u32 = 2;

/// The connection. See the module's text. Made once in each process and never freed.
pub(crate) struct Session {
    /// Distinguishes sessions: the child's number differs from the parent's.
    pub(crate) number: u32,
    lanes: LanesBySeat,
    side_events: (Sender<SideEvent>, Receiver<SideEvent>),
    mappings: (Sender<MappingEvent>, Receiver<MappingEvent>),
    overflow: (Sender<FreeEvent>, Receiver<FreeEvent>),
    /// The stacks whose frames are in a lane or already with the writer.
    pub(crate) stacks: StackSet<MappedLevels>,
    /// The next thread's number.
    next_thread: AtomicU32,
    /// [`AWAKE`], [`DOZING`] (the writer wakes by itself) or [`ASLEEP`]. The writer stores the
    /// latter two before it waits on this word, and a waker stores the first. The word lies on the
    /// page, because another process may be the waker.
    pub(crate) writer: &'static AtomicU32,
    /// The page where another process may leave a command.
    pub(crate) page: &'static ControlPage,
    /// Requests from threads of the program, which wait for the answer.
    pub(crate) requests: (Sender<Request>, Receiver<Request>),
    /// How many events the writer has taken: tells a waiting hook that the writer makes progress.
    pub(crate) taken: AtomicU64,
    /// The value of `taken` when a hook timed out. While `taken` has this value, no hook waits
    /// again.
    timed_out_at: AtomicU64,
    /// Set by the writer when it has finished.
    pub(crate) finished: AtomicU32,
}

/// The session of the process, if it has one.
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// Ids up to this one belong to samples of the parent, and are never given again.
static INHERITED_IDS: AtomicU64 = AtomicU64::new(0);
/// More ids than other threads of the parent can give while the kernel copies its pages, which are
/// not copied at one moment.
const MOST_GIVEN_DURING_FORK: u64 = 1 << 32;

/// Returns the session, if there is one.
#[inline]
pub(crate) fn current() -> Option<&'static Session> {
    // SAFETY: null or a leaked session.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Installs a new session in place of none, or of the parent's. `None`: there is no memory for it.
pub(crate) fn install(interval: u64, page: &'static ControlPage) -> Option<&'static Session> {
    let session = Box::leak(Box::new(Session {
        number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        lanes: LanesBySeat::new(interval, inherited_ids()),
        side_events: bounded(SIDE_EVENTS),
        mappings: bounded(MAPPINGS),
        overflow: unbounded(),
        stacks: StackSet::new(MappedLevels::new()),
        next_thread: AtomicU32::new(0),
        writer: &page.writer,
        page,
        requests: unbounded(),
        taken: AtomicU64::new(0),
        timed_out_at: AtomicU64::new(u64::MAX),
        finished: AtomicU32::new(0),
    }));
    if !session.lanes.make_first() {
        return None;
    }
    wakeup::install(session.writer);
    CURRENT.store(session, Ordering::Release);
    Some(session)
}

/// Forgets the parent's session in a forked child. It is leaked, because its lanes may be in any
/// state.
pub(crate) fn abandon() {
    wakeup::after_fork();
    let parent = CURRENT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null or a leaked session. Only one word of each lane is read, an atomic that is valid
    // in every state of the lane.
    if let Some(parent) = unsafe { parent.as_ref() } {
        let above = parent
            .lanes
            .existing()
            .map(|(_, lanes)| lanes.events.above())
            .max();
        let above = above.map_or(0, |above| above + MOST_GIVEN_DURING_FORK);
        INHERITED_IDS.fetch_max(above, Ordering::Relaxed);
    }
}

/// Before another recording in this process: frees the session of the last one. No hook runs, and
/// the writer's thread has ended.
#[cfg(feature = "attach")]
pub(crate) fn renew() {
    wakeup::after_fork();
    let session = CURRENT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if session.is_null() {
        return;
    }
    // SAFETY: leaked by `install`, and by the caller's promise no other code has it.
    let session = unsafe { Box::from_raw(session) };
    session.release();
}

/// Makes the thread of a forked child new to the next session.
pub(crate) fn after_fork(thread: &Thread) {
    thread.session.set(0);
}

/// Returns the largest id that may belong to a sample of the parent.
pub(crate) fn inherited_ids() -> u64 {
    INHERITED_IDS.load(Ordering::Relaxed)
}

/// Prefetches for writing the cache line behind the event just stored (at the lane's end: behind
/// the lane). The writer's core read that cache line last, so the next store would miss, and the
/// program's next locked instruction would wait for that store.
#[inline(always)]
fn prefetch_next_cache_line(event: &AtomicU64) {
    const CACHE_LINE: usize = 64;
    let next = std::ptr::from_ref(event).wrapping_byte_add(CACHE_LINE);
    prefetch_to_write(next.cast());
}

impl Session {
    /// Returns the lanes of a seat. `None`: there is no memory for them.
    #[inline]
    pub(crate) fn lanes_of(&self, seat: &Seat) -> Option<&'static SeatLanes> {
        self.lanes.of(seat)
    }

    /// Returns the lanes that exist, with their numbers. For the writer.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (usize, &'static SeatLanes)> {
        self.lanes.existing()
    }

    /// After a recording: unmaps the lanes and the set of stacks. No hook runs, and the writer has
    /// taken all events. The rest stays, because the end of the process may look at it.
    #[cfg(feature = "attach")]
    pub(crate) fn release(&self) {
        self.lanes.release();
        self.stacks.levels().clear();
    }

    /// Gives a thread that is new to this session its number, and announces it to the writer.
    pub(crate) fn register_thread(&self, thread: &Thread) {
        let number = self.next_thread.fetch_add(1, Ordering::Relaxed);
        thread.number.set(number);
        thread.session.set(self.number);
        // If this is lost, the thread is shown by its number.
        let _ = self.try_send(SideEvent::Thread {
            number,
            tid: sys::gettid(),
            name: sys::thread_name(),
        });
    }

    /// Registers the thread if it is new, and sends the frees from before the session, in their
    /// order.
    #[cold]
    pub(crate) fn register_and_replay_frees(&self, thread: &Thread) {
        if thread.session.get() != self.number {
            self.register_thread(thread);
        }
        for free in pending_frees::take_all() {
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

    /// Sends the changes of mappings from before the session, in their order.
    #[cold]
    pub(crate) fn replay_mappings(&self, thread: &Thread) {
        if thread.session.get() != self.number {
            self.register_thread(thread);
        }
        for pending in pending_mappings::take_all() {
            let is_sent = match pending.frames.split_first() {
                None => true,
                Some(_) if self.stacks.contains(pending.hash) => true,
                Some((&(entry, _), callers)) => self.send_pending_stack(
                    thread,
                    (pending.hash, pending.end, entry),
                    callers.iter().copied(),
                ),
            };
            let sent = self.send_mapping(MappingEvent {
                at: pending.at,
                start: pending.start,
                len: pending.len,
                stack: if is_sent { pending.hash } else { 0 },
                thread: thread.number.get(),
            });
            if !is_sent || !sent {
                counters::LOST_MAPPINGS.add(1);
            }
        }
    }

    /// Sends the frames of a stack that waited. False: there was no room.
    fn send_pending_stack(
        &self,
        thread: &Thread,
        (hash, end, entry): (u64, u8, u64),
        callers: impl ExactSizeIterator<Item = (u64, bool)> + Clone,
    ) -> bool {
        let Some(seat) = seats::take(thread) else {
            return false;
        };
        let Some(lanes) = self.lanes_of(&seat) else {
            return false;
        };
        let put = || lanes.stacks.put(hash, end, entry, callers.clone(), &[]);
        let is_sent = put() || self.wait_and_send(put);
        if is_sent {
            self.stacks.insert(hash);
        }
        is_sent
    }

    /// Sends the frames of a new stack, which a sample will name. False: there was no room.
    #[cold]
    pub(crate) fn send_stack(
        &self,
        lane: &StackLane,
        stack: &NewStack<'_>,
        memo: &Memo<WalkEnd>,
    ) -> bool {
        let callers = memo.innermost_first();
        let callers = callers.map(|frame| (frame.address, !frame.returns));
        self.send_frames(lane, stack, callers)
    }

    /// Sends a new stack with these frames, each with "it is no return address", behind the
    /// allocation function's. False: there was no room.
    pub(crate) fn send_frames(
        &self,
        lane: &StackLane,
        stack: &NewStack<'_>,
        callers: impl ExactSizeIterator<Item = (u64, bool)> + Clone,
    ) -> bool {
        let NewStack {
            hash,
            end,
            entry,
            labels,
        } = *stack;
        self.send_in(lane, || {
            lane.put(hash, end as u8, entry, callers.clone(), labels)
        })
    }

    /// Sends what a code object says of itself, before a stack that names it by that hash. False:
    /// there was no room.
    pub(crate) fn send_code(&self, lane: &StackLane, hash: u64, words: &[u64]) -> bool {
        self.send_in(lane, || lane.put_code(hash, words))
    }

    fn send_in(&self, lane: &StackLane, put: impl Fn() -> bool) -> bool {
        let sent = put() || self.wait_and_send(&put);
        // A sleeping writer is woken by the sample. A dozing writer may wake too late for more
        // stacks.
        if lane.is_half_full() {
            self.wake();
        }
        sent
    }

    /// Sends a sample, and with it the end of another. False: there was no room, the sample is lost
    /// and the end is not sent; the caller counts the loss.
    #[inline(always)]
    pub(crate) fn send_sampled(
        &self,
        lane: &Lane,
        by: Origin,
        sampled: &Sampled,
        ended: EndedSample,
    ) -> bool {
        let sent = lane.put_sampled(by, sampled, ended, prefetch_next_cache_line)
            || self.wait_and_send_sampled(lane, by, *sampled, ended);
        self.wake_after_put(lane);
        sent
    }

    #[cold]
    #[inline(never)]
    fn wait_and_send_sampled(
        &self,
        lane: &Lane,
        by: Origin,
        sampled: Sampled,
        ended: EndedSample,
    ) -> bool {
        self.wait_and_send(|| lane.put_sampled(by, &sampled, ended, |_| {}))
    }

    /// Sends a free, which is never lost.
    fn send_free(&self, thread: &Thread, free: FreeEvent) {
        if let Some(seat) = seats::take(thread)
            && let Some(lanes) = self.lanes_of(&seat)
        {
            return self.send_free_in(&lanes.events, free);
        }
        self.send_through_overflow(free);
    }

    /// Sends a free through a lane whose seat this thread has.
    #[inline(always)]
    pub(crate) fn send_free_in(&self, lane: &Lane, free: FreeEvent) {
        let FreeEvent { at, id, thread } = free;
        let at = at.raw();
        if lane.put_freed(thread, &Freed { at, id }, prefetch_next_cache_line)
            || self.wait_and_send_free(lane, free)
        {
            self.wake_after_put(lane);
        }
    }

    /// Returns false if the free went into the overflow queue.
    #[cold]
    #[inline(never)]
    fn wait_and_send_free(&self, lane: &Lane, free: FreeEvent) -> bool {
        let freed = Freed {
            at: free.at.raw(),
            id: free.id,
        };
        let sent = self.wait_and_send(|| lane.put_freed(free.thread, &freed, |_| {}));
        if !sent {
            self.send_through_overflow(free);
        }
        sent
    }

    /// Sends a free through the overflow queue.
    #[cold]
    pub(crate) fn send_through_overflow(&self, free: FreeEvent) {
        counters::FREES_OVERFLOWED.add(1);
        if self.overflow.0.try_send(free).is_err() {
            counters::LOST_FREES.add(1);
        }
        self.wake();
    }

    /// Wakes the writer if it must look into this lane now.
    #[inline]
    fn wake_after_put(&self, lane: &Lane) {
        match self.writer.load(Ordering::Relaxed) {
            AWAKE => {}
            // The writer may have looked into the lane just before it stored this state: see
            // `Writer::wait`.
            ASLEEP => self.wake(),
            // The writer wakes by itself, but perhaps too late for a burst.
            _ if lane.is_half_full() => self.wake(),
            _ => {}
        }
    }

    /// Sends a side event. False: there was no room; the caller counts the loss.
    #[cold]
    pub(crate) fn send(&self, event: SideEvent) -> bool {
        let mut event = Some(event);
        let mut send = || {
            if let Some(it) = event.take() {
                event = self.try_send(it).err();
            }
            event.is_none()
        };
        send() || self.wait_and_send(send)
    }

    fn try_send(&self, event: SideEvent) -> Result<(), SideEvent> {
        match self.side_events.0.try_send(event) {
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

    /// Sends a change of the mappings. False: there was no room; the caller counts the loss.
    #[cold]
    pub(crate) fn send_mapping(&self, event: MappingEvent) -> bool {
        let send = || self.mappings.0.try_send(event).is_ok();
        let sent = send() || self.wait_and_send(send);
        match self.writer.load(Ordering::SeqCst) {
            ASLEEP => self.wake(),
            DOZING if self.mappings.1.len() > MAPPINGS / 2 => self.wake(),
            _ => {}
        }
        sent
    }

    /// Sends a request to the writer and waits for its answer, in a thread that is inside our code.
    ///
    /// # Errors
    /// The text of the refusal, or that there was no answer.
    pub(crate) fn request(&self, kind: RequestKind) -> Result<String, String> {
        let (request, answer) = Request::new(kind);
        if self.requests.0.try_send(request).is_err() {
            return Err("the writer is gone".into());
        }
        request_word::post(request_word::QUEUED_REQUEST);
        answer.wait(|| self.finished.load(Ordering::Acquire) == 0)
    }

    /// Wakes the writer, if it sleeps.
    #[cold]
    pub(crate) fn wake(&self) {
        wakeup::wake(self.writer);
    }

    /// Announces that the writer has finished.
    pub(crate) fn tell_finished(&self) {
        self.finished.store(1, Ordering::Release);
        sys::futex_wake(&self.finished);
    }

    /// Waits until the writer has finished, at most until that time of the monotonic clock. Returns
    /// true if the writer has finished.
    pub(crate) fn wait_until_finished(&self, deadline_ns: u64) -> bool {
        sys::wait_for_change(&self.finished, 0, deadline_ns)
    }

    /// Wakes the writer until `send` succeeds or the timeout is over.
    #[cold]
    fn wait_and_send(&self, mut send: impl FnMut() -> bool) -> bool {
        if !process::is_own() {
            // A copy of the process that bypassed the fork handlers (`_Fork`, the bare system call)
            // has a copy of the queue, and no writer.
            return false;
        }
        counters::QUEUE_WAITS.add(1);
        let exact = interval::is_exact();
        let patience = if exact {
            SEND_TIMEOUT_EXACT_NS
        } else {
            SEND_TIMEOUT_NS
        };
        let mut seen = self.taken.load(Ordering::Relaxed);
        if seen == self.timed_out_at.load(Ordering::Relaxed) {
            self.wake();
            // A stuck disk must stall each thread once, and not each malloc.
            return false;
        }
        let mut patience = Backoff::with_limit(patience);
        loop {
            self.wake();
            let may_wait = patience.pause();
            if send() {
                return true;
            }
            let taken = self.taken.load(Ordering::Relaxed);
            if exact && taken != seen {
                seen = taken;
                patience.restart();
            } else if self.finished.load(Ordering::Relaxed) != 0 {
                shutdown::wait();
                return false;
            } else if !may_wait {
                if taken == seen {
                    self.timed_out_at.store(seen, Ordering::Relaxed);
                }
                return false;
            }
        }
    }

    /// Takes the next side event. For the writer.
    pub(crate) fn next_side_event(&self) -> Option<SideEvent> {
        self.side_events.1.try_recv().ok()
    }

    /// Takes the next change of the mappings. For the writer.
    pub(crate) fn next_mapping(&self) -> Option<MappingEvent> {
        self.mappings.1.try_recv().ok()
    }

    /// Takes the next free from the overflow queue. For the writer.
    pub(crate) fn next_overflowed(&self) -> Option<FreeEvent> {
        self.overflow.1.try_recv().ok()
    }

    /// Returns true if much waits in the queues of side events and mappings, or in a lane of
    /// stacks. For the writer.
    pub(crate) fn is_half_full(&self) -> bool {
        self.side_events.1.len() > SIDE_EVENTS / 2
            || self.mappings.1.len() > MAPPINGS / 2
            || self.lanes().any(|(_, lanes)| lanes.stacks.is_half_full())
    }

    /// Returns true if nothing waits in the queues and the lanes of stacks. For the writer, which
    /// asks the event source about the lanes of events.
    pub(crate) fn is_empty(&self) -> bool {
        let has_stacks = self.lanes().any(|(_, lanes)| !lanes.stacks.is_empty());
        let has_mappings = !self.mappings.1.is_empty();
        !has_stacks && !has_mappings && self.side_events.1.is_empty() && self.overflow.1.is_empty()
    }
}
