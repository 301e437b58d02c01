//! `syscall` and `prctl`: what the program asks of the kernel past the functions of libc's that we export for the same.
//!
//! Danger: assembly on the way of any system call. libseccomp puts up filters so, and some programs end so; of everything else nothing is
//! looked at but the number, and libc's own function is jumped to with registers and stack as they came. It must be that one, and there must be no
//! frame: a thread that `clone` makes returns on a stack of its own, and a program may have all system calls caught but those of libc's code
//! (`PR_SET_SYSCALL_USER_DISPATCH`).

use std::arch::naked_asm;
use std::ffi::{c_int, c_long};

use crate::host::{exit, main_thread, seccomp_filters};
use crate::os::errno;
use crate::os::next_symbol::Next;

/// libc's own; null before boot.
static SYSCALL: Next = Next::new(c"syscall");
/// libc's own; null before boot.
static PRCTL: Next = Next::new(c"prctl");

/// At boot: finds libc's functions.
pub(crate) fn prepare() {
    for function in [&SYSCALL, &PRCTL] {
        let _ = function.address();
    }
}

/// As syscall(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        ".cfi_startproc",
        "cmp edi, {seccomp}",
        "je 2f",
        "cmp edi, {prctl}",
        "je 2f",
        "cmp edi, {exit}",
        "je 2f",
        "cmp edi, {exit_group}",
        "je 2f",
        "3:",
        "mov r11, qword ptr [rip + {real}]",
        "test r11, r11",
        "jz 4f",
        "jmp r11",
        // Seven pushes align the stack for the call.
        "2:",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        ".cfi_adjust_cfa_offset 56",
        "call {before}",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp 3b",
        // Before boot: what libc's does.
        "4:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        errno::return_as_libc!(),
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        exit = const libc::SYS_exit,
        exit_group = const libc::SYS_exit_group,
        real = sym SYSCALL,
        before = sym before_syscall,
    )
}

/// As prctl(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn prctl(option: c_int) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        "cmp edi, {set_seccomp}",
        "je 2f",
        "cmp edi, {set_tsc}",
        "je 2f",
        "3:",
        "mov r11, qword ptr [rip + {real}]",
        "test r11, r11",
        "jz 4f",
        "jmp r11",
        "2:",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        ".cfi_adjust_cfa_offset 56",
        "call {before}",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp 3b",
        // Before boot: as a system call of that number.
        "4:",
        "mov r9, r8",
        "mov r8, rcx",
        "mov rcx, rdx",
        "mov rdx, rsi",
        "movsxd rsi, edi",
        "mov edi, {prctl}",
        "jmp {syscall}",
        ".cfi_endproc",
        set_seccomp = const libc::PR_SET_SECCOMP,
        set_tsc = const libc::PR_SET_TSC,
        prctl = const libc::SYS_prctl,
        real = sym PRCTL,
        before = sym before_prctl,
        syscall = sym syscall,
    )
}

/// Before a system call of one of those numbers. errno is left alone.
extern "C" fn before_syscall(number: c_int, a: u64, b: u64, c: u64) {
    match number.into() {
        // The kernel takes the strict mode with nothing else said only. libseccomp asks with a flag whether there is one.
        libc::SYS_seccomp => match a as u32 {
            libc::SECCOMP_SET_MODE_STRICT if b as u32 == 0 && c == 0 => {
                seccomp_filters::before_filter(libc::SECCOMP_MODE_STRICT.into(), 0);
            }
            libc::SECCOMP_SET_MODE_FILTER => {
                seccomp_filters::before_filter(libc::SECCOMP_MODE_FILTER.into(), c)
            }
            _ => {}
        },
        libc::SYS_prctl => before_prctl(a as c_int, b, c),
        libc::SYS_exit => main_thread::ends_past_libc(),
        libc::SYS_exit_group => exit::finish_last(),
        _ => {}
    }
}

/// Before a prctl. errno is left alone.
extern "C" fn before_prctl(option: c_int, a: u64, b: u64) {
    match option {
        libc::PR_SET_SECCOMP => seccomp_filters::before_filter(a, b),
        libc::PR_SET_TSC if a as c_int == libc::PR_TSC_SIGSEGV => {
            seccomp_filters::before_loss_of_counter()
        }
        _ => {}
    }
}
