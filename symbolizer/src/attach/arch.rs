//! The processor: registers of a stopped thread, and machine code that a borrowed one executes.
//!
//! Another processor implements the same names in a folder beside `x86_64`. Outside of this folder
//! these depend on the processor:
//!
//! - the bytes of a page (`borrowing.rs`) and of an aligned word (`stack.rs`);
//! - system calls that a processor may lack (`tracee.rs`, `seccomp_filters.rs`);
//! - the length of a jump, which is in the format (`AttachPatch`).

mod x86_64;

pub(super) use x86_64::*;
