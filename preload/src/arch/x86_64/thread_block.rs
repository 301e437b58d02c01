//! The thread block: a piece of initial-exec thread-local storage.
//!
//! Stable Rust has no initial-exec thread-locals; the general-dynamic model calls `__tls_get_addr`,
//! which is slow inside malloc and may itself allocate. So a block of zero bytes is declared in assembly
//! and reached through its offset from the thread pointer: one load from the GOT and one addition.
//! Initial-exec is legal because we are loaded with the program, not by dlopen.

use std::arch::asm;

/// Declares `heapprof_thread`, a block of `$size` zero bytes for each thread, aligned to 64; and
/// `heapprof_ready`, the one word that is not zero at first (see [`is_ready`]).
macro_rules! declare_thread_block {
    ($size:expr) => {
        std::arch::global_asm!(
            ".pushsection .tbss.heapprof_thread,\"awT\",@nobits",
            ".balign 64",
            ".globl heapprof_thread",
            ".hidden heapprof_thread",
            ".type heapprof_thread, @object",
            ".size heapprof_thread, {size}",
            "heapprof_thread:",
            ".zero {size}",
            ".popsection",
            ".pushsection .tdata.heapprof_ready,\"awT\",@progbits",
            ".balign 8",
            ".globl heapprof_ready",
            ".hidden heapprof_ready",
            ".type heapprof_ready, @object",
            ".size heapprof_ready, 8",
            "heapprof_ready:",
            ".quad 1",
            ".popsection",
            size = const $size,
        );
    };
}
pub(crate) use declare_thread_block;

/// Where a record in the thread block begins. Until the loader has relocated us, the GOT says that the
/// block begins at the thread pointer itself, where glibc's thread descriptor is. The descriptor's bytes
/// 128 to 640 are unused from glibc 2.26 on (`__glibc_unused2` of `tcbhead_t`) and zero.
pub(crate) const RECORD_AT: usize = 128;

/// Returns where the block is in this thread.
#[inline(always)]
pub(crate) fn thread_block() -> *const u8 {
    let block: *const u8;
    // SAFETY: reads the GOT entry that the static linker made for our own initial-exec symbol and the
    // thread pointer at fs:0, both valid in every thread that can run compiled code.
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

/// Returns true once the loader has copied the initial values of our thread-local block to this thread.
/// Before that it relocates us and the program, and calls resolvers of IFUNCs in between.
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

/// Subtracts `$bytes` from the word at `$at` of the thread block, in one instruction; true if the result
/// is not negative. A compiler that must first have the address makes it two loads and an addition longer.
///
/// # Safety
/// Within the block, a word to which no reference is held.
macro_rules! subtract_in_thread_block {
    ($at:expr, $bytes:expr) => {
        'subtracted: {
            std::arch::asm!(
                "mov {offset}, qword ptr [rip + heapprof_thread@GOTTPOFF]",
                "sub qword ptr fs:[{offset} + {at}], {bytes}",
                "js {negative}",
                offset = out(reg) _,
                bytes = in(reg) $bytes,
                at = const $at,
                negative = label { break 'subtracted false },
                options(nostack),
            );
            true
        }
    };
}
pub(crate) use subtract_in_thread_block;
