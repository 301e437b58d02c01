//! The processor: machine code of x86-64 that a borrowed thread executes.
//!
//! Another processor implements the same names in a folder beside `x86_64`. Outside of this folder,
//! the names of registers depend on the processor (`tracee.rs`, `all_threads.rs`, `safe_point.rs`,
//! `borrowing.rs`, `entries.rs`, `quiet.rs`), and the length of a jump (`quiet.rs`).

mod x86_64;

pub(super) use x86_64::*;
