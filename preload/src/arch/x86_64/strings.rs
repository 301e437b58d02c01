//! Functions for memory and C strings without dependencies.

/// Defines `strcmp`, `strncmp` and `strchr` as hidden functions: only calls from this library reach
/// them.
macro_rules! hidden_string_functions {
    () => {
        $crate::arch::system_call::hidden_functions! {
            "strcmp":
                "mov rdx, -1",
                "jmp strncmp";
            // Compares at most `rdx` bytes. Returns the difference of the first two bytes that
            // differ, or 0 if none differ up to the terminator.
            "strncmp":
                "xor eax, eax",
                "2:",
                "sub rdx, 1",
                "jb 3f",
                "movzx eax, byte ptr [rdi]",
                "movzx ecx, byte ptr [rsi]",
                "inc rdi",
                "inc rsi",
                "sub eax, ecx",
                "jnz 3f",
                "test ecx, ecx",
                "jnz 2b",
                "3:",
                "ret";
            // Returns the address of the first byte equal to `sil`, which may be the terminator, or
            // null.
            "strchr":
                "2:",
                "movzx ecx, byte ptr [rdi]",
                "mov rax, rdi",
                "inc rdi",
                "cmp cl, sil",
                "je 3f",
                "test cl, cl",
                "jnz 2b",
                "xor eax, eax",
                "3:",
                "ret";
        }
    };
}

/// Defines `heapprof_plain_NAME` for each name of `os/libc_trampolines.rs`: short code, for the few
/// calls before boot.
macro_rules! plain_memory_functions {
    () => {
        $crate::arch::system_call::hidden_functions! {
            "heapprof_plain_memcpy":
                "jmp heapprof_plain_memmove";
            // Downwards, if the destination begins within the source.
            "heapprof_plain_memmove":
                "mov rax, rdi",
                "mov rcx, rdx",
                "mov r8, rdi",
                "sub r8, rsi",
                "cmp r8, rdx",
                "jb 2f",
                "rep movsb",
                "ret",
                "2:",
                "lea rdi, [rdi + rdx - 1]",
                "lea rsi, [rsi + rdx - 1]",
                "std",
                "rep movsb",
                "cld",
                "ret";
            "heapprof_plain_memset":
                "mov r8, rdi",
                "mov eax, esi",
                "mov rcx, rdx",
                "rep stosb",
                "mov rax, r8",
                "ret";
            "heapprof_plain_bcmp":
                "jmp heapprof_plain_memcmp";
            "heapprof_plain_memcmp":
                "xor eax, eax",
                "2:",
                "sub rdx, 1",
                "jb 3f",
                "movzx eax, byte ptr [rdi]",
                "movzx ecx, byte ptr [rsi]",
                "inc rdi",
                "inc rsi",
                "sub eax, ecx",
                "jz 2b",
                "3:",
                "ret";
            "heapprof_plain_memchr":
                "2:",
                "sub rdx, 1",
                "jb 3f",
                "mov rax, rdi",
                "inc rdi",
                "cmp byte ptr [rax], sil",
                "jne 2b",
                "ret",
                "3:",
                "xor eax, eax",
                "ret";
            "heapprof_plain_memrchr":
                "2:",
                "sub rdx, 1",
                "jb 3f",
                "lea rax, [rdi + rdx]",
                "cmp byte ptr [rax], sil",
                "jne 2b",
                "ret",
                "3:",
                "xor eax, eax",
                "ret";
            "heapprof_plain_strlen":
                "xor eax, eax",
                "2:",
                "cmp byte ptr [rdi + rax], 0",
                "je 3f",
                "inc rax",
                "jmp 2b",
                "3:",
                "ret";
            // Zeros fill what the string leaves of `rdx` bytes.
            "heapprof_plain_strncpy":
                "mov rax, rdi",
                "2:",
                "sub rdx, 1",
                "jb 3f",
                "movzx ecx, byte ptr [rsi]",
                "mov byte ptr [rdi], cl",
                "inc rdi",
                "cmp ecx, 1",
                "sbb rsi, -1",
                "jmp 2b",
                "3:",
                "ret";
        }
    };
}

pub(crate) use {hidden_string_functions, plain_memory_functions};
