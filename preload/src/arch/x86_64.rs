//! x86-64, with the System V ABI and its thread-local storage (the thread pointer is in `fs`).

pub(crate) mod counter;
pub(crate) mod entry_stubs;
pub(crate) mod ifunc;
#[cfg(not(feature = "attach"))]
pub(crate) mod jemalloc_fast_path;
pub(crate) mod memory;
#[cfg(not(feature = "attach"))]
pub(crate) mod next_fast_path;
pub(crate) mod page;
pub(crate) mod probes;
pub(crate) mod registers;
pub(crate) mod signal_frame;
pub(crate) mod stack_switch;
pub(crate) mod strings;
pub(crate) mod system_call;
pub(crate) mod tap_stubs;
pub(crate) mod thread_block;
pub(crate) mod trampolines;
