//! Source of the atomics: the machine's, or those of loom, which tries every interleaving of
//! threads (`core/tests/models.rs`, run by `scripts/models`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
