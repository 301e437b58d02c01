//! The thread's own words, in initial-exec thread-local storage.
//!
//! Law 5: nothing here has a destructor or a constructor. All zero is the valid initial state, so a
//! thread's first malloc works before anything of ours has run in it.

use std::cell::{Cell, UnsafeCell};

use heapprof_core::{Sampler, bytes_on_the_line};

use crate::arch::thread_block::{
    RECORD_AT, declare_thread_block, subtract_in_thread_block, thread_block,
};

/// What a thread keeps. Only its own thread reads or writes it; a signal handler of that thread may
/// do so between any two instructions, which is why there are no references into it that outlive
/// a statement.
#[repr(C, align(64))]
pub(crate) struct Thread {
    sampler: UnsafeCell<Sampler>,
    /// Whether this thread runs our code: allocations then pass through unseen (Law 1).
    pub(crate) inside: Cell<Inside>,
    /// The stack pointer with which it came there; see `recording/abandoned_hook.rs`.
    pub(crate) entered_at: Cell<u64>,
    /// Seat that this thread had last: its walker's rule cache is warm.
    pub(crate) seat_hint: Cell<u8>,
    /// How often in a row it had that one; see `recording/seats/lease.rs`.
    pub(crate) alone: Cell<u8>,
    /// Whether this thread is between our fork handlers.
    pub(crate) forking: Cell<bool>,
    /// Whether it was given a cache of jemalloc's, or ends; see `allocator/tcache_policy.rs`.
    pub(crate) cache_is_settled: Cell<bool>,
    /// How often the program has asked that this thread be left out, and not taken it back.
    pub(crate) pauses: Cell<u16>,
    /// The session in which `number` was given; another value means that it must be given anew.
    pub(crate) session: Cell<u32>,
    /// The process (`process::generation`) in which the sampler's line was begun. Not the session: a thread may free a
    /// sampled block before it ever allocates, and may allocate for long before it is sampled.
    pub(crate) line: Cell<u32>,
    /// When this thread last began to fork, by the monotonic clock: what was in use then, the child has.
    pub(crate) forking_ns: Cell<u64>,
    /// Number of this thread in the session's log.
    pub(crate) number: Cell<u32>,
    /// About when jemalloc last looked through this thread's cache; see `allocator/fast_path.rs`.
    pub(crate) looked_through_at: Cell<u32>,
    /// The part of this thread's own stack that is known to be readable; see `unwind/stack_bounds.rs`.
    pub(crate) stack_low: Cell<u64>,
    pub(crate) stack_high: Cell<u64>,
    /// A page above foreign stacks that could not be read.
    pub(crate) stack_hole: Cell<u64>,
    /// Of the bytes on the sampler's line, those that the writer has been told of. See `recording/byte_count.rs`.
    pub(crate) told_bytes: Cell<u64>,
    /// Those that it was still to be told of when this thread last stopped recording.
    pub(crate) untold_bytes: Cell<u64>,
    /// The session whose writer has been told of some.
    pub(crate) told_session: Cell<u32>,
    /// The seat that this thread keeps, or null. Typed accessors: `recording/seats/lease.rs`.
    pub(crate) lease: Cell<*const ()>,
    /// Lower half of the address whose rule a walk wants next; see `unwind/eh_frame.rs`.
    pub(crate) sought: Cell<u32>,
    /// What framehop is given to find it by.
    pub(crate) header: Cell<[u32; 5]>,
    /// Where the sampler's line was when it was last asked whether jemalloc is to look again.
    pub(crate) strode_at: Cell<u64>,
    /// What jemalloc itself had counted of this thread's allocations when it last looked.
    pub(crate) counted_then: Cell<u64>,
}

/// Whose code a thread is running.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Inside {
    /// The program's.
    No = 0,
    /// A hook's. What is allocated now comes from a signal handler that interrupted it: the program's,
    /// and lost.
    Hook = 1,
    /// Ours, calling libc, which may allocate: not the program's.
    Ours = 2,
}

const SIZE: usize = 192;
const _: () = assert!(size_of::<Thread>() == SIZE && align_of::<Thread>() == 64);
const _: () = assert!(!std::mem::needs_drop::<Thread>());

declare_thread_block!(RECORD_AT + SIZE);

/// This thread's words.
#[inline(always)]
pub(crate) fn current() -> &'static Thread {
    // SAFETY: the block has room for a Thread at RECORD_AT, aligned (asserted above), is zero at first, which is a valid Thread
    // (integers, and a Sampler documented to be valid when zero), and lives as long as the thread;
    // the reference is never stored or sent, so 'static stands for "until this hook returns".
    unsafe { &*thread_block().byte_add(RECORD_AT).cast() }
}

/// Offset of the sampler's count from `heapprof_thread`.
pub(crate) const LEFT: usize = RECORD_AT + std::mem::offset_of!(Thread, sampler) + Sampler::LEFT;

/// Lays `size` bytes on this thread's line; true when no mark fell on them, nor a stride or a piece ended in them: [`Sampler::goes_on`] is still to
/// be asked ([`Sampler::LEFT`]).
#[inline(always)]
pub(crate) fn passes(size: usize) -> bool {
    passes_some((bytes_on_the_line(size as u64) as isize).max(0) as usize)
}

/// The same of at most `isize::MAX` bytes, and not of an empty block: in one subtraction from thread-local memory, which a compiler that must
/// first have the address makes two loads and an addition longer.
#[inline(always)]
pub(crate) fn passes_some(bytes: usize) -> bool {
    // SAFETY: as in `current`; the eight bytes are the sampler's count, to which no reference is held now (those of
    // `with_sampler` end with it). A signal handler that interrupts us and allocates finds a count that is one block
    // old or new: a block more or less on the line, which the process, having no memory, forgives.
    unsafe { subtract_in_thread_block!(LEFT, bytes) }
}

impl Thread {
    /// Runs `change` on the sampler.
    pub(crate) fn with_sampler<R>(&self, change: impl FnOnce(&mut Sampler) -> R) -> R {
        // SAFETY: as in `passes`; `change` is arithmetic that neither allocates nor calls back here.
        change(unsafe { &mut *self.sampler.get() })
    }

    /// Makes this thread one of ours for good: nothing it allocates is ever sampled.
    pub(crate) fn enter_for_life(&self) {
        self.inside.set(Inside::Ours);
        self.with_sampler(Sampler::stop);
    }
}

/// Proof that this thread is inside our code: what may allocate from our own arena, walk or
/// queue a record asks for it.
pub(crate) struct Entered {
    pub(crate) thread: &'static Thread,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.thread.inside.set(Inside::No);
    }
}
