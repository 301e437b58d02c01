//! jemalloc's comparisons of C strings, past whoever intercepts libc's.
//!
//! Danger: assembly under libc's names. jemalloc reads its options at its first allocation, with these. Before glibc 2.34 that may be
//! ThreadSanitizer's own, which begins before our constructor and allocates while it looks for the functions that it intercepts; asked for one of them then, it ends the program.
//! They are defined here, hidden: only this library's own calls reach them, which are few, and of short strings.

use crate::os::sys;

sys::hidden_functions! {
    "strcmp":
        "mov rdx, -1",
        "jmp strncmp";
    // The difference of the first bytes that differ, of `rdx` at most; 0 if there are none up to the end.
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
    // Where the first byte `sil` is, which may be the end; null if it is nowhere.
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
