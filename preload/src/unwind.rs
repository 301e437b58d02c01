//! Unwinding: from registers and a stack to a list of return addresses.
//!
//! | concept | file |
//! | --- | --- |
//! | the walk, and its caches that are too large for a stack | `walk.rs`, `walker.rs` |
//! | the addresses at which a walk ends, or goes on in another way | `known_code.rs` |
//! | the stack that may be read, and all threads' stacks | `stack_bounds.rs`, `thread_stacks.rs` |
//! | the module of an address, known or new | `modules.rs`, `module_lookup.rs` |
//! | the unwind table of a module, and an entry | `elf_image.rs`, `eh_frame.rs`, `cfi_storage.rs` |
//! | code without a table | `jit_ranges.rs`, `musl_code.rs` |
//! | memory that may be unmapped | `checked_read.rs` |
//! | the frames of Python functions | `python.rs` |
//! | loads and unloads, for the log | `module_events.rs` |
//!
//! May import: arch, os, state.
//!
//! Not here: the callers of a walk, and the use of its stack.

pub(crate) mod cfi_storage;
pub(crate) mod checked_read;
pub(crate) mod eh_frame;
pub(crate) mod elf_image;
pub(crate) mod jit_ranges;
pub(crate) mod known_code;
pub(crate) mod module_events;
pub(crate) mod module_lookup;
pub(crate) mod modules;
#[cfg(target_env = "musl")]
pub(crate) mod musl_code;
pub(crate) mod python;
pub(crate) mod stack_bounds;
pub(crate) mod thread_stacks;
pub(crate) mod walk;
pub(crate) mod walker;
