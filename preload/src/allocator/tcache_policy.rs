//! When a thread has a cache of jemalloc's: from some kilobytes on, until it ends.
//!
//! Danger: variables and functions of another library, which does not promise any. jemalloc makes a thread's cache at its first
//! allocation, 28 KiB that are zeroed, and empties it at its end, with two locks for each of three dozen classes. A thread of a hundred blocks
//! is done sooner without. So jemalloc is told at boot that threads have none (`opt.tcache`; the main thread has its own by then), and a
//! thread comes here when jemalloc is to allocate or free for it what a cache would have (`allocator/fast_path.rs`: its bins are empty and full at once; its limits are 0). When it has
//! allocated and freed [`ENOUGH`], it is given one (`allocator/private_symbols.rs`).
//!
//! At its end, to which the linker leads jemalloc through us (`--wrap`, build.rs), it is through with caches: one that came later,
//! for what other destructors free, would never be given back. And jemalloc need not look at bins that nothing was taken from: it is told, by
//! a function of its own, that their classes are not cached.

use std::arch::global_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::allocator::{fast_path, private_symbols};
use crate::os::errno;
use crate::state::thread;

/// Usable bytes: of small blocks some 250 calls, which is about where a cache has earned what it costs (docs/lab-notes/threads.md).
pub(crate) const ENOUGH: u32 = 20 << 10;

/// In assembly, at label 9: whether it is time for a cache, and then on with that label, where jemalloc is called. `rcx` has jemalloc's words of the thread; `rax` is changed.
/// Both limits are 0 or neither (`te_next_event_fast_set_non_nominal`).
macro_rules! unless_cached_asm {
    ($jemalloc:literal) => {
        concat!(
            "9:
            cmp qword ptr [rcx + {allocated_limit}], 0
            jne ",
            $jemalloc,
            "
            mov rax, qword ptr [rcx + {allocated}]
            add rax, qword ptr [rcx + {freed}]
            cmp rax, {enough}
            jb ",
            $jemalloc,
            "
            push rdi
            .cfi_adjust_cfa_offset 8
            call {comes_without}
            pop rdi
            .cfi_adjust_cfa_offset -8
            jmp ",
            $jemalloc,
        )
    };
}
pub(crate) use unless_cached_asm;

/// Whether threads come here without one.
static COMES_LATE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// `bool opt_tcache`: whether a thread has a cache from its first allocation on.
    #[link_name = "_rjem_je_opt_tcache"]
    static FROM_THE_START: AtomicBool;

    /// jemalloc's own, by the linker's name for what it wraps.
    #[link_name = "__real__rjem_je_tcache_cleanup"]
    fn empty_bins(thread: *mut c_void);

    /// Makes a bin one of a class that is not cached.
    fn _rjem_je_cache_bin_init_disabled(bin: *mut c_void, most: u16);
}

global_asm!(
    ".pushsection .text.heapprof_leaves, \"ax\", @progbits",
    ".globl __wrap__rjem_je_tcache_cleanup",
    ".hidden __wrap__rjem_je_tcache_cleanup",
    ".type __wrap__rjem_je_tcache_cleanup, @function",
    "__wrap__rjem_je_tcache_cleanup:",
    ".cfi_startproc",
    "jmp {ours}",
    ".cfi_endproc",
    ".size __wrap__rjem_je_tcache_cleanup, . - __wrap__rjem_je_tcache_cleanup",
    ".popsection",
    ours = sym leaves,
);

/// At boot, once it is known where a thread's limits are: from now on, caches come late. Unless the program's user wants none
/// at all (`tcache:false` in `_RJEM_MALLOC_CONF`).
pub(crate) fn prepare() {
    // SAFETY: a C bool, which is a byte, 0 or 1. jemalloc writes it while it reads its options, which is done, and reads it in each thread's
    // first allocation.
    let from_the_start = unsafe { &FROM_THE_START };
    if fast_path::is_known() && from_the_start.swap(false, Ordering::Relaxed) {
        COMES_LATE.store(true, Ordering::Relaxed);
    }
}

/// For assembly: before a thread without a cache allocates or frees more than enough. errno is left alone.
pub(crate) extern "C" fn comes_without() {
    if !COMES_LATE.load(Ordering::Relaxed) {
        return;
    }
    let thread = thread::current();
    // Before it is given: jemalloc, or a signal's handler meanwhile, may come here again.
    if !thread.cache_is_settled.replace(true) {
        errno::left_alone(private_symbols::give_cache);
    }
}

/// In jemalloc, in a thread that ends: gives back what its bins hold.
extern "C" fn leaves(thread: *mut c_void) {
    thread::current().cache_is_settled.set(true);
    for bin in fast_path::unused_bins(thread.cast()) {
        // SAFETY: a bin of this thread's, in which there is nothing, and of which there is nothing to be added up. Another thread may be reading it, to
        // add up what caches hold (`tcache_bytes` of an arena's, which we never ask for); jemalloc has it read bins that change, too.
        unsafe { _rjem_je_cache_bin_init_disabled(bin, 0) };
    }
    // SAFETY: jemalloc's own argument, handed on.
    unsafe { empty_bins(thread) }
}
