//! Entry stubs: the first instructions of functions that the program calls.
//!
//! A stub passes on the registers of its caller, or it saves all arguments, calls a function, and
//! then continues the call. Unwind tables (`.cfi_…`) describe the caller at each instruction,
//! because a signal handler that walks the stack may run between any two instructions.

/// Defines a function in two halves. The first half passes the stack and frame pointers at its
/// entry to the second, in the two registers after its arguments. So a walk begins at the program's
/// frame and not at frames of this library. If the function is the sampled path of another, the
/// unsampled path reaches it by a jump. With `number = N`, the second half also gets that number,
/// as its last argument.
///
/// The arguments are integers or pointers, each in a register.
macro_rules! with_caller {
    (@define $(#[$attribute:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;
     $sp:literal, $bp:literal $(, $register:literal = $number:literal)? => $second:ident) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                $(concat!("mov ", $register, ", ", $number),)?
                "jmp {second}",
                ".cfi_endproc",
                second = sym $second,
            )
        }
    };
    ($(#[$attribute:meta])* $name:ident($a:ident: $x:ty) -> $result:ty => $second:ident) => {
        with_caller! {
            @define $(#[$attribute])* $name($a: $x) -> $result;
            "rsi", "rdx" => $second
        }
    };
    ($(#[$attribute:meta])* $name:ident($a:ident: $x:ty, $b:ident: $y:ty) -> $result:ty => $second:ident) => {
        with_caller! {
            @define $(#[$attribute])* $name($a: $x, $b: $y) -> $result;
            "rdx", "rcx" => $second
        }
    };
    ($(#[$attribute:meta])* $name:ident($a:ident: $x:ty, $b:ident: $y:ty, $c:ident: $z:ty) -> $result:ty => $second:ident) => {
        with_caller! {
            @define $(#[$attribute])* $name($a: $x, $b: $y, $c: $z) -> $result;
            "rcx", "r8" => $second
        }
    };
    ($(#[$attribute:meta])* $name:ident($a:ident: $x:ty, $b:ident: $y:ty, $c:ident: $z:ty, $d:ident: $w:ty) -> $result:ty => $second:ident) => {
        with_caller! {
            @define $(#[$attribute])* $name($a: $x, $b: $y, $c: $z, $d: $w) -> $result;
            "r8", "r9" => $second
        }
    };
    ($(#[$attribute:meta])* $name:ident($a:ident: $x:ty, $b:ident: $y:ty) -> $result:ty; number = $number:literal => $second:ident) => {
        with_caller! {
            @define $(#[$attribute])* $name($a: $x, $b: $y) -> $result;
            "rdx", "rcx", "r8d" = $number => $second
        }
    };
    ($(#[$attribute:meta])* $name:ident($a:ident: $x:ty, $b:ident: $y:ty, $c:ident: $z:ty) -> $result:ty; number = $number:literal => $second:ident) => {
        with_caller! {
            @define $(#[$attribute])* $name($a: $x, $b: $y, $c: $z) -> $result;
            "rcx", "r8", "r9d" = $number => $second
        }
    };
}

/// Defines a function of six words in two halves, as [`with_caller`] does. All registers for
/// arguments are in use, so the second half gets the stack and frame pointers on the stack.
macro_rules! with_caller_on_stack {
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty => $second:ident) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, rsp",
                "sub rsp, 8", // three words align the stack for the call
                "push rbp",
                "push rax",
                ".cfi_adjust_cfa_offset 24",
                "call {second}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
                second = sym $second,
            )
        }
    };
}

/// Defines a function whose last argument is flags. It asks `$real` for the address of libc's
/// function, clears all flags but `$kept`, and jumps there, so the program stays the caller.
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
                // The called function may allocate and be sampled, so a walk must get through this
                // frame.
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

/// Defines a function that calls `$before` and then jumps to the address in the first word of
/// `$real`. If that word is null, it jumps to the address that `$find` returns for `$real`. All
/// arguments are passed on unchanged.
macro_rules! call_before_jump {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; $before:path, $real:path, $find:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                ".cfi_startproc",
                // Seven pushes align the stack for the call; rax holds the number of vector
                // registers of a variadic call.
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                ".cfi_adjust_cfa_offset 56",
                "call {before}",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "mov r11, qword ptr [rip + {real}]",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2:",
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                ".cfi_adjust_cfa_offset 56",
                "lea rdi, [rip + {real}]",
                "call {find}",
                "mov r11, rax",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "jmp r11",
                ".cfi_endproc",
                before = sym $before,
                real = sym $real,
                find = sym $find,
            )
        }
    };
}

/// Defines `syscall`. It calls `$before` for the given numbers, and then jumps to the address in
/// the first word of `$real` with registers and stack unchanged. If that word is null, it jumps to
/// `$bare`, which makes the system call in the way of libc.
///
/// There is no frame, for two reasons. A thread that `clone` makes returns on a stack of its own. A
/// program may intercept all system calls except those from libc's code
/// (`PR_SET_SYSCALL_USER_DISPATCH`).
macro_rules! forward_system_call {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; $real:path, $before:path, $bare:literal: $($number:ident)*) => {
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
                "4:",
                concat!("jmp ", $bare),
                ".cfi_endproc",
                $($number = const libc::$number,)*
                real = sym $real,
                before = sym $before,
            )
        }
    };
}

/// Defines `prctl` in the way of [`forward_system_call`], with options in place of numbers.
macro_rules! forward_prctl {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty; $real:path, $before:path, $bare:literal: $($option:ident)*) => {
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
                concat!("jmp ", $bare),
                ".cfi_endproc",
                $($option = const libc::$option,)*
                prctl = const libc::SYS_prctl,
                real = sym $real,
                before = sym $before,
            )
        }
    };
}

pub(crate) use {
    call_before_jump, forward_prctl, forward_system_call, jump_with_flags, with_caller,
    with_caller_on_stack,
};
