//! jemalloc's comparisons of C strings, past whoever intercepts libc's.
//!
//! Danger: assembly under libc's names. jemalloc reads its options at its first allocation, with these. Before glibc 2.34 that may be
//! ThreadSanitizer's own, which begins before our constructor and allocates while it looks for the functions that it intercepts; asked for one of them then, it ends the program.
//! They are defined here, hidden: only this library's own calls reach them, which are few, and of short strings.

use crate::arch::strings::hidden_string_functions;

hidden_string_functions!();
