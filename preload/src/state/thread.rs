//! The thread record: this library's words of each thread, in initial-exec thread-local storage.
//!
//! A signal handler that interrupts a hook finds [`RunningCode::Hook`] in the record. Its malloc is
//! served, not sampled and counted (`LOST_REENTRANT`). Its free of a sampled block is recorded.
//!
//! Law 5: no field has a destructor or a constructor. All zero is the valid initial state, so a
//! thread's first malloc works before any of our code has run in it.

use std::cell::{Cell, UnsafeCell};

use heapprof_core::{Sampler, counted_bytes};

use crate::arch::thread_block::{
    RECORD_AT, declare_thread_block, subtract_in_thread_block, thread_block,
};

/// The record of one thread. Only its own thread accesses it, and a signal handler of that thread
/// may do so between any two instructions. So no reference into it outlives a statement.
#[repr(C, align(64))]
pub(crate) struct Thread {
    sampler: UnsafeCell<Sampler>,
    /// The code that this thread runs. While it is ours, allocations pass through unrecorded (Law
    /// 1).
    pub(crate) running_code: Cell<RunningCode>,
    /// Stack pointer at the entry into our code, by which an abandoned hook is recognized.
    pub(crate) entered_at: Cell<u64>,
    /// The seat that this thread used last; its walker's rule cache is warm.
    pub(crate) seat_hint: Cell<u8>,
    /// Number of consecutive uses of that seat, after which the thread gets a lease.
    pub(crate) seat_streak: Cell<u8>,
    /// True while this thread is between our fork handlers.
    pub(crate) is_forking: Cell<bool>,
    /// True if this thread needs no decision about a jemalloc cache any more: it has got one, or it
    /// ends.
    pub(crate) is_cache_settled: Cell<bool>,
    /// Number of the program's requests to leave this thread out, minus those that it has taken
    /// back.
    pub(crate) pauses: Cell<u16>,
    /// Number of labels that this thread has got after `labels`, and that are not recorded.
    pub(crate) labels_beyond: Cell<u16>,
    /// The session in which `number` is valid. In another session the thread needs a new number.
    pub(crate) session: Cell<u32>,
    /// The process (`process::generation`) to which the sampler's axis belongs. The session does
    /// not suffice for this. A thread may free a sampled block before it ever allocates, and may
    /// allocate for a long time before it is sampled.
    pub(crate) axis_generation: Cell<u32>,
    /// Time of this thread's last fork, by the monotonic clock. The child inherits the blocks in
    /// use at that time.
    pub(crate) forking_ns: Cell<u64>,
    /// Number of this thread in the session's log.
    pub(crate) number: Cell<u32>,
    /// Coarse time of the last garbage collection of this thread's jemalloc cache.
    pub(crate) cache_gc_time: Cell<u32>,
    /// The part of this thread's own stack that is known to be readable.
    pub(crate) stack_low: Cell<u64>,
    pub(crate) stack_high: Cell<u64>,
    /// A page above foreign stacks that is not readable.
    pub(crate) stack_hole: Cell<u64>,
    /// Bytes of the sampler's axis that the writer has been told about.
    pub(crate) reported_bytes: Cell<u64>,
    /// Bytes not yet reported to the writer when this thread last stopped recording.
    pub(crate) unreported_bytes: Cell<u64>,
    /// The session to whose writer this thread has reported bytes.
    pub(crate) reported_session: Cell<u32>,
    /// Number of this thread's label set; 0: none.
    pub(crate) labels: Cell<u32>,
    /// The seat that this thread has a lease of, or null. The seats have typed accessors.
    pub(crate) lease: Cell<*const ()>,
    /// Lower half of the address whose unwind rule a walk needs next.
    pub(crate) rule_wanted_for: Cell<u32>,
    /// The header of an unwind table that framehop gets for that address.
    pub(crate) unwind_header: Cell<[u32; 5]>,
    /// Position of the sampler's axis at the last check for a garbage collection.
    pub(crate) cache_gc_check_at: Cell<u64>,
    /// jemalloc's own count of this thread's allocated bytes at its last garbage collection.
    pub(crate) count_at_cache_gc: Cell<u64>,
}

/// The code that a thread runs.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RunningCode {
    /// The program's.
    Program = 0,
    /// A hook. An allocation now comes from a signal handler that interrupted the hook. It belongs
    /// to the program, and it is lost.
    Hook = 1,
    /// Ours, in a call of libc that may allocate. Such an allocation is not the program's.
    Ours = 2,
}

const SIZE: usize = 192;
const _: () = assert!(size_of::<Thread>() == SIZE && align_of::<Thread>() == 64);
const _: () = assert!(!std::mem::needs_drop::<Thread>());

declare_thread_block!(RECORD_AT + SIZE);

/// Returns this thread's record.
#[inline(always)]
pub(crate) fn current() -> &'static Thread {
    // SAFETY: the block has room for a Thread at RECORD_AT, aligned (asserted above), and lives as
    // long as the thread. It is zero at first, which is a valid Thread: integers, and a Sampler
    // that is documented to be valid when zero. The reference is never stored or sent, so 'static
    // stands for "until this hook returns".
    unsafe { &*thread_block().byte_add(RECORD_AT).cast() }
}

/// Offset of the sampler's countdown from `heapprof_thread`.
pub(crate) const LEFT: usize = RECORD_AT + std::mem::offset_of!(Thread, sampler) + Sampler::LEFT;

/// Lays `size` bytes on this thread's allocation axis. Returns true if no mark fell on them, and no
/// stride or piece ended in them. If false, the caller must ask [`Sampler::continue_countdown`]
/// (see [`Sampler::LEFT`]).
#[inline(always)]
pub(crate) fn passes(size: usize) -> bool {
    passes_nonzero((counted_bytes(size as u64) as isize).max(0) as usize)
}

/// Advances the axis like [`passes`] by 1 to `isize::MAX` bytes, by one subtraction in thread-local
/// memory. Compiled code would need two loads and an addition more, because it computes the address
/// first.
#[inline(always)]
pub(crate) fn passes_nonzero(bytes: usize) -> bool {
    // SAFETY: the argument of `current`. The eight bytes are the sampler's countdown, and no
    // reference to it exists now (references of `with_sampler` end with it). A signal handler that
    // interrupts this and allocates finds the countdown before or after this block. An error of one
    // block on the axis is harmless, because the Poisson process has no memory.
    unsafe { subtract_in_thread_block!(LEFT, bytes) }
}

impl Thread {
    /// Runs `change` on the sampler.
    pub(crate) fn with_sampler<R>(&self, change: impl FnOnce(&mut Sampler) -> R) -> R {
        // SAFETY: the argument of `passes`; `change` is arithmetic that neither allocates nor calls
        // back here.
        change(unsafe { &mut *self.sampler.get() })
    }

    /// Makes this thread ours permanently: its allocations are never sampled.
    pub(crate) fn enter_permanently(&self) {
        self.running_code.set(RunningCode::Ours);
        self.with_sampler(Sampler::stop);
    }
}

/// Proof that this thread is inside our code. Functions that allocate from our own arena, walk, or
/// queue a record take it as an argument.
pub(crate) struct Entered {
    pub(crate) thread: &'static Thread,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.thread.running_code.set(RunningCode::Program);
    }
}
