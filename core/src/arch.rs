//! Processor: the code that depends on its instructions, one folder for each architecture.
//!
//! Imports: `unwind`.
//!
//! Not here: what is the same on every processor.

mod x86_64;

pub use x86_64::entry_patch::{EntryPatch, Refusal, Unmovable};
pub use x86_64::epilogue::{Epilogue, find_epilogue};
pub(crate) use x86_64::seccomp::AUDIT_ARCH;
