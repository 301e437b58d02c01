//! x86-64: the code that depends on the instructions of this processor.
//!
//! Imports: `unwind`.
//!
//! Not here: registers of a running thread (`preload`).

pub(crate) mod entry_patch;
pub(crate) mod epilogue;
pub(crate) mod seccomp;
