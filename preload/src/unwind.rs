//! Unwinding: from registers and a stack to a list of return addresses.
//!
//! May import: os, state.
//!
//! Not here: who asks for a stack, and what becomes of it.

pub(crate) mod cfi_storage;
pub(crate) mod checked_read;
pub(crate) mod eh_frame;
pub(crate) mod elf_image;
pub(crate) mod jit_ranges;
pub(crate) mod module_events;
pub(crate) mod module_lookup;
pub(crate) mod modules;
#[cfg(target_env = "musl")]
pub(crate) mod musl_code;
pub(crate) mod stack_bounds;
pub(crate) mod walk;
pub(crate) mod walker;
