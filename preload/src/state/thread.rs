//! The thread's own words, in initial-exec thread-local storage.
//!
//! Danger: hand-made TLS. Stable Rust has no initial-exec thread-locals; the general-dynamic model
//! calls `__tls_get_addr`, which is slow inside malloc and may itself allocate. So a block of zero
//! bytes is declared in assembly and reached through its offset from the thread pointer: one load
//! from the GOT and one addition. Initial-exec is legal because we are loaded with the program, not
//! by dlopen.
//!
//! Law 5: nothing here has a destructor or a constructor. All zero is the valid initial state, so a
//! thread's first malloc works before anything of ours has run in it.

use std::arch::{asm, global_asm};
use std::cell::{Cell, UnsafeCell};

use heapprof_core::{Sampler, bytes_on_the_line};

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

/// Where `Thread` begins in our thread-local block. Until the loader has relocated us, the GOT says that the block
/// begins at the thread pointer itself, where glibc's thread descriptor is. Its bytes 128 to 640 have been unused
/// since 2.26 (`__glibc_unused2` of `tcbhead_t`) and are zero: a `Thread` as good as any (`hooks/early_heap.rs`).
const OFFSET: usize = 128;

global_asm!(
    ".pushsection .tbss.heapprof_thread,\"awT\",@nobits",
    ".balign 64",
    ".globl heapprof_thread",
    ".hidden heapprof_thread",
    ".type heapprof_thread, @object",
    ".size heapprof_thread, {size}",
    "heapprof_thread:",
    ".zero {size}",
    ".popsection",
    // The one word that is not zero at first: see `is_ready`. It is the first of our thread-local block.
    ".pushsection .tdata.heapprof_ready,\"awT\",@progbits",
    ".balign 8",
    ".globl heapprof_ready",
    ".hidden heapprof_ready",
    ".type heapprof_ready, @object",
    ".size heapprof_ready, 8",
    "heapprof_ready:",
    ".quad 1",
    ".popsection",
    size = const OFFSET + SIZE,
);

/// The stack pointer of the function that this is inlined into.
#[inline(always)]
pub(crate) fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Where `heapprof_thread` is in this thread.
#[inline(always)]
pub(crate) fn block() -> *const u8 {
    let block: *const u8;
    // SAFETY: reads the GOT entry that the static linker made for our own initial-exec symbol and
    // the thread pointer at fs:0, both valid in every thread that can run compiled code.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + heapprof_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) block,
            options(pure, nomem, nostack),
        );
    }
    block
}

/// This thread's words.
#[inline(always)]
pub(crate) fn current() -> &'static Thread {
    // SAFETY: the block has room for a Thread at OFFSET, aligned (asserted above), is zero at first, which is a valid Thread
    // (integers, and a Sampler documented to be valid when zero), and lives as long as the thread;
    // the reference is never stored or sent, so 'static stands for "until this hook returns".
    unsafe { &*block().byte_add(OFFSET).cast() }
}

/// Offset of the sampler's count from `heapprof_thread`.
pub(crate) const LEFT: usize = OFFSET + std::mem::offset_of!(Thread, sampler) + Sampler::LEFT;

/// Whether the loader is through with us. It relocates us first, then the program, and only then copies the initial
/// values of thread-local words to the main thread; IFUNC resolvers run before and between. Until then jemalloc, whose
/// thread-local state is not zero at first, takes itself for initialised.
#[inline(always)]
pub(crate) fn is_ready() -> bool {
    let distance: u64;
    // SAFETY: reads our own GOT. Not `pure`: what it reads changes once.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + heapprof_ready@GOTTPOFF]",
            out(reg) distance,
            options(nostack, readonly, preserves_flags),
        );
    }
    if distance == 0 {
        return false; // not relocated: glibc puts all such words below the thread pointer
    }
    let ready: u64;
    // SAFETY: relocated, so that is where our word is, in every thread.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[{1}]",
            out(reg) ready, in(reg) distance,
            options(nostack, readonly, preserves_flags),
        );
    }
    ready != 0
}

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
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + heapprof_thread@GOTTPOFF]",
            "sub qword ptr fs:[{offset} + {left}], {bytes}",
            "js {marked}",
            offset = out(reg) _,
            bytes = in(reg) bytes,
            left = const LEFT,
            marked = label { return false },
            options(nostack),
        );
    }
    true
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
