//! C string comparisons without dependencies: `strcmp`, `strncmp`, `strchr`.

/// Defines the three as hidden functions: only calls from this library reach them.
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
pub(crate) use hidden_string_functions;
