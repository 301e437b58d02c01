//! The processor: what depends on its instructions, one folder for each architecture.
//!
//! Imports: `unwind`.
//!
//! Not here: what is the same on every processor.

pub(crate) mod x86_64;
