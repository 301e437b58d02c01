//! errno: how the functions that we export fail, and what all else that we do for the program leaves alone.
//!
//! It is a word of libc's for each thread, reached by a call that only computes its address.

use std::ffi::c_int;

/// This thread's.
pub(crate) fn get() -> c_int {
    // SAFETY: a word of this thread's, which lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's.
pub(crate) fn set(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Does something, and has errno be what it was before.
pub(crate) fn left_alone<R>(work: impl FnOnce() -> R) -> R {
    let before = get();
    let done = work();
    set(before);
    done
}

/// In place of a function that this libc does not have.
pub(crate) extern "C" fn no_function() -> c_int {
    set(libc::ENOSYS);
    -1
}

/// In assembly, behind a system call at whose beginning the stack was as a function finds it: returns what the kernel answered as
/// libc does, with errno set and -1 where that is an error. The label 9 is taken.
macro_rules! return_as_libc {
    () => {
        "cmp rax, -4095
        jae 9f
        ret
        9:
        neg eax
        push rax
        .cfi_adjust_cfa_offset 8
        call __errno_location@PLT
        pop rcx
        .cfi_adjust_cfa_offset -8
        mov dword ptr [rax], ecx
        mov rax, -1
        ret"
    };
}
pub(crate) use return_as_libc;

/// The same for those who do not ask for errno: it stays what it is.
macro_rules! left_as_it_was {
    () => {
        "cmp rax, -4095
        jae 9f
        ret
        9:
        mov rax, -1
        ret"
    };
}
pub(crate) use left_as_it_was;
