//! jemalloc's comparisons of C strings, independent of interceptors of libc's functions.
//!
//! Danger: assembly with libc's names. jemalloc uses these functions to read its options at its
//! first allocation. Before glibc 2.34 that allocation may come from ThreadSanitizer, which starts
//! before our constructor and allocates while it looks for the functions that it intercepts. If one
//! of them is called then, it ends the program. So they are defined here, hidden: only this
//! library's own calls reach them, which are few and have short strings.

use crate::arch::strings::hidden_string_functions;

hidden_string_functions!();
