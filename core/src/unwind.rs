//! Unwinding: the caches of a thread's walks, so that the next walk repeats no work.
//!
//! Imports: `sampling` (random numbers, in tests).
//!
//! Circle: `memo`, `model_program`: the tests of a memo walk the model, which drives a memo.
//!
//! Not here: reading unwind tables (`preload`), decoding instructions (`arch`).

pub(crate) mod echo;
pub(crate) mod frame;
pub(crate) mod kinds;
pub(crate) mod memo;
pub(crate) mod memos;
#[cfg(test)]
pub(crate) mod model_program;
pub(crate) mod rules;
pub(crate) mod stack_hash;
