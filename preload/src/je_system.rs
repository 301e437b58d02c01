//! jemalloc's way to the kernel, past whatever the program exports.
//!
//! Danger: assembly under libc's names. jemalloc calls `mmap`, `munmap` and `madvise` while it holds its locks.
//! A program that exports functions of those names (to count them, to log them) would be called there, and
//! one that allocates would find jemalloc inside itself. So the names are defined here as plain system calls,
//! hidden: only this library's own calls reach them, and nothing is exported.

use std::arch::global_asm;

/// A hidden function that makes the system call of that number with its own arguments, and returns -1 with
/// errno set as libc's does.
macro_rules! system_calls {
    ($($name:literal = $number:literal;)*) => {
        $(global_asm!(
            ".pushsection .text.heapprof_system, \"ax\", @progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "mov r10, rcx",
            concat!("mov eax, ", $number),
            "syscall",
            "cmp rax, -4095",
            "jae 2f",
            "ret",
            "2:",
            "neg eax",
            "push rax",
            ".cfi_adjust_cfa_offset 8",
            "call __errno_location@PLT",
            "pop rcx",
            ".cfi_adjust_cfa_offset -8",
            "mov dword ptr [rax], ecx",
            "mov rax, -1",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        );)*
    };
}

system_calls! {
    "mmap" = 9;
    "mprotect" = 10;
    "munmap" = 11;
    "madvise" = 28;
}
