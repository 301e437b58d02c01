//! The processor: machine code of x86-64 that a borrowed thread executes.
//!
//! Another processor has another file of the same functions here. Outside of this folder, the names
//! of registers depend on the processor (`tracee.rs`, `all_threads.rs`, `safe_point.rs`,
//! `borrowing.rs`, `quiet.rs`), and the length of a jump (`quiet.rs`).

pub(super) mod borrowed_code;
