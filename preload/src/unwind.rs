//! Unwinding: from registers and a stack to a list of return addresses.
//!
//! May import: arch, os, state.
//!
//! Not here: the callers of a walk, and the use of its stack.

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
