//! Trampolines: hidden functions with libc's names that jump to the address in a slot.

/// Defines a trampoline for each name, and `heapprof_trampolines`, an array with one slot for each.
/// A slot holds the address that its trampoline jumps to. Initially the jump leads to `$find`,
/// which takes the slot's address, stores the address of libc's function in it, and returns that
/// address.
macro_rules! define_trampolines {
    ($find:path: $($name:literal)*) => {
        std::arch::global_asm!(
            ".pushsection .data.heapprof_trampolines, \"aw\", @progbits",
            ".balign 8",
            ".globl heapprof_trampolines",
            ".hidden heapprof_trampolines",
            "heapprof_trampolines:",
            ".popsection",
            $(
                // Initially the jump leads to the instruction after it, as in a PLT. The slot's
                // address identifies the function.
                ".pushsection .text.heapprof_trampolines, \"ax\", @progbits",
                ".balign 16",
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                ".cfi_startproc",
                "jmp qword ptr [rip + 4f]",
                "3:",
                "lea r11, [rip + 4f]",
                "jmp heapprof_find_target",
                ".cfi_endproc",
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
                ".pushsection .data.heapprof_trampolines, \"aw\", @progbits",
                "4:",
                ".quad 3b",
                ".popsection",
            )*
            ".pushsection .text.heapprof_trampolines, \"ax\", @progbits",
            ".type heapprof_find_target, @function",
            "heapprof_find_target:",
            ".cfi_startproc",
            // None of these functions takes a vector register; seven pushes align the stack.
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
            ".cfi_adjust_cfa_offset 56",
            "mov rdi, r11",
            "cld",
            "call {find}",
            "mov r11, rax",
            "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            ".cfi_adjust_cfa_offset -56",
            "jmp r11",
            ".cfi_endproc",
            ".size heapprof_find_target, . - heapprof_find_target",
            ".popsection",
            find = sym $find,
        );
    };
}
/// Defines hidden functions for memory and strings, and `heapprof_memory_slots`, a word for each:
/// where its jump leads. At first that is a plain function here, which depends on nothing: what
/// looks for libc's function calls these itself.
macro_rules! define_memory_trampolines {
    ($($name:literal)*) => {
        std::arch::global_asm!(
            ".pushsection .data.heapprof_memory_slots, \"aw\", @progbits",
            ".balign 8",
            ".globl heapprof_memory_slots",
            ".hidden heapprof_memory_slots",
            "heapprof_memory_slots:",
            ".popsection",
            $(
                ".pushsection .text.heapprof_trampolines, \"ax\", @progbits",
                ".balign 16",
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                ".cfi_startproc",
                "jmp qword ptr [rip + 4f]",
                ".cfi_endproc",
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
                ".pushsection .data.heapprof_memory_slots, \"aw\", @progbits",
                "4:",
                concat!(".quad heapprof_plain_", $name),
                ".popsection",
            )*
        );
        $crate::arch::strings::plain_memory_functions!();
    };
}

pub(crate) use {define_memory_trampolines, define_trampolines};
