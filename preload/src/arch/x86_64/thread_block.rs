//! The thread block: a block of initial-exec thread-local storage.
//!
//! Stable Rust has no initial-exec thread-locals. The general-dynamic model calls `__tls_get_addr`,
//! which is slow inside malloc and may itself allocate. So assembly declares a block of zero bytes.
//! Code reaches it through its offset from the thread pointer, by one load from the GOT and one
//! addition. Initial-exec is legal because this library is loaded with the program, not by dlopen.

use std::arch::asm;

/// Declares `heapprof_thread`, a block of `$size` zero bytes for each thread, aligned to 64 bytes.
/// Also declares `heapprof_ready`, the one word whose initial value is not zero (see [`is_ready`]).
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

/// Offset of a record in the thread block. Until the loader has relocated this library, the GOT
/// says that the block begins at the thread pointer itself, where glibc's thread descriptor is.
/// From glibc 2.26 on, the descriptor's bytes 128 to 640 are zero and unused (`__glibc_unused2` of
/// `tcbhead_t`).
#[cfg(not(feature = "attach"))]
pub(crate) const RECORD_AT: usize = 128;
/// Offset of a record in the thread block. The loader relocates this library before it runs, so the
/// block needs no other room. Static thread-local memory is scarce in a running process.
#[cfg(feature = "attach")]
pub(crate) const RECORD_AT: usize = 0;

/// Returns the address of this thread's block.
#[inline(always)]
pub(crate) fn thread_block() -> *const u8 {
    let block: *const u8;
    // SAFETY: reads the thread pointer at fs:0, and the GOT entry that the static linker makes for
    // our own initial-exec symbol. Both are valid in every thread that can run compiled code.
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

/// Returns the thread pointer.
pub(crate) fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: the ABI's word at the thread pointer, which is the pointer itself.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(pure, nomem, nostack));
    }
    pointer
}

/// Returns true once the loader has copied the initial values of our thread-local block to this
/// thread. Before that, the loader relocates this library and the program, and calls IFUNC
/// resolvers in between.
#[inline(always)]
pub(crate) fn is_ready() -> bool {
    let distance: u64;
    // SAFETY: reads our own GOT. The block is not `pure`, because the value changes once.
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
    // SAFETY: the GOT entry is relocated, so our word is at this distance in every thread.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[{1}]",
            out(reg) ready, in(reg) distance,
            options(nostack, readonly, preserves_flags),
        );
    }
    ready != 0
}

/// Subtracts `$bytes` from the word at `$at` of the thread block, in one instruction. Returns true
/// if the result is not negative. Compiled code would need two loads and an addition more, because
/// it computes the address first.
///
/// # Safety
/// The word lies within the block, and no reference to it exists.
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
