//! Where the atomics come from: the machine's, or those of loom, which tries every order in which threads can meet
//! (`core/tests/models.rs`, run by `scripts/models`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
