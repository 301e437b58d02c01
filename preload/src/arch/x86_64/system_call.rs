//! System calls, and functions under libc's names that only this library's own calls reach.

use std::arch::asm;

/// Makes the system call of that number. Returns what the kernel does: a value, or a negative errno.
///
/// # Safety
/// The arguments are what the call of that number expects: pointers valid for what it reads and writes.
#[inline(always)]
pub(crate) unsafe fn system_call(number: i64, args: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: the caller's promise; rcx and r11 are what the instruction clobbers, and memory is not
    // declared untouched.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Defines hidden functions under these names, each with its assembly.
macro_rules! hidden_functions {
    ($($name:literal: $($line:expr),* $(=> $($operand:ident = $kind:ident $value:expr),*)?;)*) => {
        $(std::arch::global_asm!(
            ".pushsection .text.heapprof_hidden, \"ax\", @progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            $($line,)*
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            $($($operand = $kind $value,)*)?
        );)*
    };
}

/// Defines a hidden function that jumps to another: the linker leads calls of what it wraps here.
macro_rules! hidden_jump {
    ($name:literal => $function:path) => {
        std::arch::global_asm!(
            ".pushsection .text.heapprof_hidden, \"ax\", @progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "jmp {function}",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            function = sym $function,
        );
    };
}

/// The end of a function that made a system call as libc does: -1 and errno, if the kernel refused.
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

/// The end of a function that made a system call for a caller that does not ask for errno: -1 if the
/// kernel refused.
macro_rules! return_without_errno {
    () => {
        "cmp rax, -4095
        jae 9f
        ret
        9:
        mov rax, -1
        ret"
    };
}

/// Defines hidden functions that make the system call of that number with their own arguments.
/// `sets_errno`: as libc's; `keeps_errno`: -1 without errno.
macro_rules! hidden_system_calls {
    (sets_errno: $($name:literal = $number:expr;)*) => {
        $crate::arch::system_call::hidden_functions! {
            $($name: "mov r10, rcx", "mov eax, {number}", "syscall",
                $crate::arch::system_call::return_as_libc!() => number = const $number;)*
        }
    };
    (keeps_errno: $($name:literal = $number:expr;)*) => {
        $crate::arch::system_call::hidden_functions! {
            $($name: "mov r10, rcx", "mov eax, {number}", "syscall",
                $crate::arch::system_call::return_without_errno!() => number = const $number;)*
        }
    };
}

/// Defines `mmap` as a hidden function: the flags are reduced to `$flags`, and what the kernel refuses is
/// asked of `$refused`, which takes the six arguments with the negative errno in the last one's place.
macro_rules! hidden_mmap {
    (flags = $flags:expr, refused = $refused:path) => {
        $crate::arch::system_call::hidden_functions! {
            "mmap":
                "mov r10, rcx",
                "and r10d, {flags}",
                "mov eax, {number}",
                "syscall",
                "cmp rax, -4095",
                "jae 2f",
                "ret",
                "2:",
                "mov rcx, r10",
                "mov r9, rax",
                "jmp {refused}"
                => number = const libc::SYS_mmap, flags = const $flags, refused = sym $refused;
        }
    };
}

pub(crate) use {
    hidden_functions, hidden_jump, hidden_mmap, hidden_system_calls, return_as_libc,
    return_without_errno,
};
