//! Entry stubs: the first instructions of functions that the program calls.
//!
//! A stub passes on where the program called it, or keeps all arguments while something is done before
//! the call goes on. Unwind tables (`.cfi_…`) say where the caller is at each instruction: a signal may
//! come at any of them, and its handler walk on.

/// Defines a function whose first half passes on, in the two registers behind its arguments, the stack and
/// frame pointers at its entry. So a walk begins at the program's frame, and not some of ours before it;
/// and where this is the sampled way of a function, the frequent way reaches it by a jump.
macro_rules! with_caller {
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;
     $sp:literal, $bp:literal => $second:ident) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {second}",
                ".cfi_endproc",
                second = sym $second,
            )
        }
    };
    // And a number in the register behind those.
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;
     $sp:literal, $bp:literal, $register:literal = $number:literal => $second:ident) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                concat!("mov ", $register, ", ", $number),
                "jmp {second}",
                ".cfi_endproc",
                second = sym $second,
            )
        }
    };
}

/// Defines a function whose last argument is flags: asks `$real` where libc's
/// function is, takes all but `$kept` from the flags, and jumps there, so that the caller stays the
/// program.
macro_rules! jump_with_flags {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; two: $real:path, $kept:expr) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "sub rsp, 8", // three words align the stack for the call
                // What is called may allocate, and be sampled: a walk must find its way through here.
                ".cfi_adjust_cfa_offset 24",
                "call {real}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "and esi, {kept}",
                "jmp rax",
                ".cfi_endproc",
                real = sym $real,
                kept = const $kept,
            )
        }
    };
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; three: $real:path, $kept:expr) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "call {real}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "and edx, {kept}",
                "jmp rax",
                ".cfi_endproc",
                real = sym $real,
                kept = const $kept,
            )
        }
    };
}

/// Defines a function that calls `$before` and jumps to the address in the first word of `$real`
/// with all arguments as they came; if that is null, to `$missing`.
macro_rules! call_before_jump {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; $before:path, $real:path, $missing:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                // Seven pushes align the stack for the call; rax holds the number of vector registers of a
                // variadic call.
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                ".cfi_adjust_cfa_offset 56",
                "call {before}",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "mov r11, qword ptr [rip + {real}]",
                "test r11, r11",
                "jz {missing}",
                "jmp r11",
                ".cfi_endproc",
                before = sym $before,
                real = sym $real,
                missing = sym $missing,
            )
        }
    };
}

/// Defines `syscall`: calls `$before` for the numbers in question, and jumps to the address in
/// the first word of `$real` with registers and stack as they came; if that is null, makes the system call
/// as libc does. There is no frame: a thread that `clone` makes returns on a stack of its own, and a
/// program may have all system calls caught but those of libc's code (`PR_SET_SYSCALL_USER_DISPATCH`).
macro_rules! forward_system_call {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; $real:path, $before:path: $($number:ident)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                $(concat!("cmp edi, {", stringify!($number), "}"), "je 2f",)*
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
                $crate::arch::system_call::return_as_libc!(),
                ".cfi_endproc",
                $($number = const libc::$number,)*
                real = sym $real,
                before = sym $before,
            )
        }
    };
}

/// Defines `prctl`: as [`forward_system_call`], by option; before boot, a system call through
/// `$syscall`.
macro_rules! forward_prctl {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; $real:path, $before:path, $syscall:path: $($option:ident)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                $(concat!("cmp edi, {", stringify!($option), "}"), "je 2f",)*
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
                "4:",
                "mov r9, r8",
                "mov r8, rcx",
                "mov rcx, rdx",
                "mov rdx, rsi",
                "movsxd rsi, edi",
                "mov edi, {prctl}",
                "jmp {syscall}",
                ".cfi_endproc",
                $($option = const libc::$option,)*
                prctl = const libc::SYS_prctl,
                real = sym $real,
                before = sym $before,
                syscall = sym $syscall,
            )
        }
    };
}

pub(crate) use {
    call_before_jump, forward_prctl, forward_system_call, jump_with_flags, with_caller,
};
