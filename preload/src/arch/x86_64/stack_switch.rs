//! The stack switch: a call that runs on another stack.

use std::arch::naked_asm;
use std::ffi::c_void;

/// Calls `work` with `data` on the stack that ends at `top`.
///
/// # Safety
/// `top` is aligned to 16 bytes, and the memory below it suffices for `work`. `work` may be called
/// with `data`, and it returns.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on(
    top: *mut u8,
    work: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
