//! System calls, and functions with libc's names that only calls from this library reach.

use std::arch::asm;

/// Makes the system call `number`. Returns the kernel's result: a value, or a negative errno.
///
/// # Safety
/// The arguments are valid for this system call: pointers are valid for its reads and writes.
#[inline(always)]
pub(crate) unsafe fn system_call(number: i64, args: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: the caller's promise covers the call. The instruction clobbers rcx and r11, which are
    // declared, and memory is not declared untouched.
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

/// Defines a hidden function that jumps to another. The linker redirects calls of a wrapped
/// function here.
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

/// The end of a function that makes a system call in the way of libc: returns -1 and sets errno if
/// the kernel refused.
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

/// The body of `syscall`: moves the arguments from the registers of a function call to those of a
/// system call, and makes the call.
macro_rules! system_call_by_number {
    () => {
        "mov rax, rdi
        mov rdi, rsi
        mov rsi, rdx
        mov rdx, rcx
        mov r10, r8
        mov r8, r9
        mov r9, qword ptr [rsp + 8]
        syscall"
    };
}

/// Defines hidden functions, each of which makes the system call of its number with its own
/// arguments, and reports errors as libc does.
macro_rules! hidden_system_calls {
    ($($name:literal = $number:expr;)*) => {
        $crate::arch::system_call::hidden_functions! {
            $($name: "mov r10, rcx", "mov eax, {number}", "syscall",
                $crate::arch::system_call::return_as_libc!() => number = const $number;)*
        }
    };
}

pub(crate) use {
    hidden_functions, hidden_jump, hidden_system_calls, return_as_libc, system_call_by_number,
};
