//! Atomics: those of the machine, or those of loom.
//!
//! loom tries every order in which threads can meet (`core/tests/models.rs`, run by
//! `scripts/models`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
