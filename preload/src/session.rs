//! A session: the road from the hooks of one process to its writer.
//!
//! ```text
//!  hooks ── events (bounded, crossbeam-channel) ──> writer
//!        └─ frees that found it full (unbounded) ─┘
//! ```
//!
//! A hook only ever tries to send. When the queue is full it wakes the writer and tries for a moment
//! ([`PATIENCE_NS`]); when everything is to be recorded, for as long as the writer gets on
//! ([`PATIENCE_EXACT_NS`]). Then an allocation is dropped and counted. A free is never dropped (Law 4): it goes the other way, which has no bound of its own
//! but cannot hold more than there are samples in the table.
//!
//! A forked child makes a session of its own and never touches its parent's (Law 7).

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use heapprof_core::StackSet;
use heapprof_format::{ControlPage, WRITER_AWAKE, WalkEnd};

use crate::clock::Ticks;
use crate::counters;
use crate::desk::Request;
use crate::fork;
use crate::levels::Mapped;
use crate::signal;
use crate::sys;
use crate::tls::Thread;

/// What the hooks tell the writer.
pub(crate) enum Event {
    Alloc {
        at: Ticks,
        id: u64,
        stack: u64,
        size: u64,
        slack: u32,
        thread: u32,
        interval: u64,
        /// By the allocator's count, what this thread allocated since its last sample; see `health.rs`.
        counted: u64,
    },
    Free(FreeEvent),
    Stack(Box<NewStack>),
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

/// A stack that was not known, with its frames.
pub(crate) struct NewStack {
    pub(crate) hash: u64,
    pub(crate) end: WalkEnd,
    pub(crate) frames: Box<[u64]>,
    pub(crate) interrupted: Box<[u32]>,
}

const _: () = assert!(size_of::<Event>() <= 64);

/// Events on their way when few blocks are sampled. All of the queue's memory is touched when it is made: at this size
/// that is 40 page faults, with [`CAPACITY`] 150.
const CAPACITY_SPARSE: usize = 2048;
/// And when many are, or everything: about a millisecond of the writer's work, so that little is left to
/// do when the program ends.
const CAPACITY: usize = 8192;
/// From this interval on few are: a full small queue is 512 MiB or more allocated between two looks of the writer, which
/// is woken at half of that.
const SPARSE_INTERVAL: u64 = 256 << 10;

/// How long a hook tries to send before it drops the record: as long as a writer that was woken may have to wait for a
/// processor where ten others want it.
const PATIENCE_NS: u64 = 100_000_000;
/// When everything is to be recorded: how long a hook waits for a writer that does not get on at all (a
/// stuck disk).
const PATIENCE_EXACT_NS: u64 = 2_000_000_000;

/// States of the writer, in `Session::writer`.
pub(crate) const AWAKE: u32 = WRITER_AWAKE;
pub(crate) const DOZING: u32 = 1;
pub(crate) const ASLEEP: u32 = 2;

/// See the module's text. Made once for each process and never freed.
pub(crate) struct Session {
    /// Tells sessions apart: the parent's number is not the child's.
    pub(crate) number: u32,
    /// Whether everything is to be recorded, so that hooks wait for room. Moved with the interval in force.
    pub(crate) exact: AtomicBool,
    /// Half of what the queue holds.
    half: usize,
    events: (Sender<Event>, Receiver<Event>),
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
    /// Set once when the process ends: the writer is to finish. See `exit.rs`.
    pub(crate) finish: AtomicU32,
    /// Set by the writer when it has finished.
    pub(crate) finished: AtomicU32,
    /// Set when everything so far is to be written at once, because the process may become another program.
    pub(crate) flush_asked: AtomicU32,
    /// How often that was done.
    pub(crate) flushed: AtomicU32,
    /// Dumps that a signal asked for.
    pub(crate) dumps_asked: AtomicU32,
}

/// The process's session, once it has one.
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// Next sample id; ids are given to threads in blocks, and never again, also across a fork.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// The first id that can be of this process and not of the one that it was forked from.
static FIRST_OWN_ID: AtomicU64 = AtomicU64::new(0);
/// Ids in a block.
const ID_BLOCK: u64 = 4096;

/// Frees of inherited blocks before a forked child's session has begun, newest first. A child that only
/// frees never begins one, and leaves no file; one that does must not lose them (Law 4).
static EARLY: AtomicPtr<Early> = AtomicPtr::new(std::ptr::null_mut());

struct Early {
    at: Ticks,
    id: u64,
    older: *mut Early,
}

/// Keeps a free until there is a session.
#[cold]
pub(crate) fn keep_early_free(at: Ticks, id: u64) {
    let node = Box::into_raw(Box::new(Early {
        at,
        id,
        older: EARLY.load(Ordering::Relaxed),
    }));
    loop {
        // SAFETY: made above, and not yet in the list.
        let older = unsafe { (*node).older };
        match EARLY.compare_exchange_weak(older, node, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            // SAFETY: as above.
            Err(now) => unsafe { (*node).older = now },
        }
    }
}

/// The session, if there is one.
#[inline]
pub(crate) fn current() -> Option<&'static Session> {
    // SAFETY: null or a leaked session.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Puts a new session in place of none, or of the parent's.
pub(crate) fn install(interval: u64, page: &'static ControlPage) -> &'static Session {
    let exact = interval == 1;
    let capacity = if interval >= SPARSE_INTERVAL {
        CAPACITY_SPARSE
    } else {
        CAPACITY
    };
    let session = Box::leak(Box::new(Session {
        number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        exact: AtomicBool::new(exact),
        half: capacity / 2,
        events: bounded(capacity),
        overflow: unbounded(),
        stacks: StackSet::new(Mapped::new()),
        next_thread: AtomicU32::new(0),
        writer: &page.writer,
        page,
        requests: unbounded(),
        taken: AtomicU64::new(0),
        finish: AtomicU32::new(0),
        finished: AtomicU32::new(0),
        flush_asked: AtomicU32::new(0),
        flushed: AtomicU32::new(0),
        dumps_asked: AtomicU32::new(0),
    }));
    CURRENT.store(session, Ordering::Release);
    // Only now: a signal that comes meanwhile finds either this session or the count that is taken here.
    let early = signal::asked_early();
    session.dumps_asked.fetch_add(early, Ordering::AcqRel);
    session
}

/// In a forked child: forget the parent's. It is leaked: its queue may be in any state.
pub(crate) fn abandon() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
}

/// In a forked child, whose one thread begins a block of ids of its own.
pub(crate) fn after_fork(thread: &Thread) {
    FIRST_OWN_ID.store(NEXT_ID.load(Ordering::Relaxed), Ordering::Relaxed);
    thread.ids_end.set(0);
    thread.next_id.set(0);
    thread.session.set(0);
}

/// See [`FIRST_OWN_ID`].
pub(crate) fn first_own_id() -> u64 {
    FIRST_OWN_ID.load(Ordering::Relaxed)
}

impl Session {
    /// Gives a thread that is new here its number, and tells the writer.
    pub(crate) fn welcome(&self, thread: &Thread) {
        let number = self.next_thread.fetch_add(1, Ordering::Relaxed);
        thread.number.set(number);
        thread.session.set(self.number);
        // A thread without this record is shown by its number.
        let _ = self.try_send(Event::Thread {
            number,
            tid: sys::gettid(),
            name: sys::thread_name(),
        });
    }

    /// Sends the frees that came before there was a session, in their order.
    pub(crate) fn send_early_frees(&self, thread: u32) {
        let mut early = Vec::new();
        let mut next = EARLY.swap(std::ptr::null_mut(), Ordering::AcqRel);
        while !next.is_null() {
            // SAFETY: made by `keep_early_free`; the swap made the list ours.
            let node = unsafe { Box::from_raw(next) };
            next = node.older;
            early.push(FreeEvent {
                at: node.at,
                id: node.id,
                thread,
            });
        }
        for free in early.into_iter().rev() {
            self.send_free(free);
        }
    }

    /// A new sample id.
    #[inline]
    pub(crate) fn new_id(thread: &Thread) -> u64 {
        let id = thread.next_id.get();
        if id < thread.ids_end.get() {
            thread.next_id.set(id + 1);
            return id;
        }
        let first = NEXT_ID.fetch_add(ID_BLOCK, Ordering::Relaxed);
        thread.next_id.set(first + 1);
        thread.ids_end.set(first + ID_BLOCK);
        first
    }

    /// Sends a record that may be lost. False: it was, for want of room; the caller counts.
    #[inline]
    pub(crate) fn send(&self, event: Event) -> bool {
        match self.try_send(event) {
            Ok(()) => true,
            Err(event) => self.wait_and_send(event),
        }
    }

    /// Sends a free, which is never lost.
    #[inline]
    pub(crate) fn send_free(&self, free: FreeEvent) {
        if let Err(event) = self.try_send(Event::Free(free)) {
            if self.wait_and_send(event) {
                return;
            }
            counters::FREES_OVERFLOWED.add(1);
            if self.overflow.0.try_send(free).is_err() {
                counters::LOST_FREES.add(1);
            }
            self.wake();
        }
    }

    #[inline]
    fn try_send(&self, event: Event) -> Result<(), Event> {
        match self.events.0.try_send(event) {
            Ok(()) => {
                // Sequentially consistent, as is the channel's own step before it: either we see
                // that the writer went to sleep, or it sees our event before it does.
                match self.writer.load(Ordering::SeqCst) {
                    ASLEEP => self.wake(),
                    // It comes back by itself, but for a burst perhaps too late. While it dozes nobody
                    // else moves the queue's head, so looking at it is cheap.
                    DOZING if self.events.0.len() > self.half => self.wake(),
                    _ => {}
                }
                Ok(())
            }
            Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) => Err(event),
        }
    }

    /// Wakes the writer, if it sleeps.
    #[cold]
    pub(crate) fn wake(&self) {
        if self.writer.swap(AWAKE, Ordering::SeqCst) != AWAKE {
            sys::futex_wake_shared(self.writer);
        }
    }

    #[cold]
    fn wait_and_send(&self, mut event: Event) -> bool {
        if !fork::is_own_process() {
            // A copy of the process that was made past the fork handlers (`_Fork`, the bare system call)
            // has a copy of the queue, and nobody empties it.
            return false;
        }
        counters::QUEUE_WAITS.add(1);
        let exact = self.exact.load(Ordering::Relaxed);
        let patience = if exact {
            PATIENCE_EXACT_NS
        } else {
            PATIENCE_NS
        };
        let mut seen = self.taken.load(Ordering::Relaxed);
        let mut since = crate::clock::now_ns();
        let mut tries = 0u32;
        loop {
            self.wake();
            tries += 1;
            if tries < 20 {
                sys::yield_now();
            } else {
                sys::sleep_ns(50_000);
            }
            match self.try_send(event) {
                Ok(()) => return true,
                Err(back) => event = back,
            }
            let taken = self.taken.load(Ordering::Relaxed);
            let now = crate::clock::now_ns();
            if exact && taken != seen {
                (seen, since) = (taken, now);
            } else if now.saturating_sub(since) > patience
                || self.finished.load(Ordering::Relaxed) != 0
            {
                return false;
            }
        }
    }

    /// For the writer: how many events wait.
    pub(crate) fn waiting(&self) -> usize {
        self.events.1.len()
    }

    /// For the writer: the next event.
    pub(crate) fn next(&self) -> Option<Event> {
        self.events.1.try_recv().ok()
    }

    /// For the writer: the next free that found the queue full.
    pub(crate) fn next_overflowed(&self) -> Option<FreeEvent> {
        self.overflow.1.try_recv().ok()
    }

    /// For the writer: whether nothing waits anywhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.1.is_empty() && self.overflow.1.is_empty()
    }
}
