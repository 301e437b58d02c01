//! System calls, made directly.
//!
//! Danger: inline `syscall`. libc's wrappers are not usable for three reasons. A program may export
//! functions with those names (a `write` that logs, an `open` that allocates). The wrappers are
//! cancellation points, and malloc must not become one. They also set errno.
//!
//! This file has the call itself and its result. Each file below has the calls about one subject.

use std::fmt;

pub(crate) use crate::arch::page::PAGE;
use crate::arch::system_call::system_call;

mod attachable;
mod error_text;
mod fd_table;
mod file;
mod mapped_file;
mod memory;
mod page_scan;
mod path;
mod places;
mod process;
mod random;
mod signals;
mod stderr;
mod wait;

pub(crate) use attachable::map_attachable;
#[cfg(feature = "attach")]
pub(crate) use attachable::unmap_attachable;
pub(crate) use fd_table::unshare_descriptors;
pub(crate) use file::{File, Stat, stat_at, stat_of_target};
pub(crate) use mapped_file::MappedFile;
pub(crate) use memory::{
    Stack, address_space_is_limited, address_space_limit, can_map, is_readable, map_at, map_stack,
    map_zeroed, own_mappings, protect, unmap_at, unshare,
};
#[cfg(feature = "attach")]
pub(crate) use memory::{map_block, unmap};
pub(crate) use page_scan::PAGEMAP_SCAN;
pub(crate) use path::{
    getcwd, link, read_own_path, readlink, rename, rename_exchange, rename_new, unlink,
};
use places::take_place;
pub(crate) use places::{count_place, map_at_place, places, return_place};
pub(crate) use process::{
    Scheduling, execve, exit_group, getpid, gettid, has_thread, list_threads, name_thread,
    robust_list, thread_name, threads,
};
pub(crate) use random::random_u64;
pub(crate) use signals::{
    block_signals, is_on_signal_stack, restore_sigaction, restore_signals, sigaction_of,
};
pub(crate) use wait::{
    futex_wait, futex_wait_shared, futex_wake, futex_wake_shared, sleep_ns, wait_for_change,
    wait_for_change_or, yield_now,
};

/// An error number of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(words) = error_text::describe(self.0) else {
            return write!(f, "unknown error {}", self.0); // a seccomp filter may answer any number
        };
        f.write_str(words)
    }
}

/// Makes a system call, and returns the kernel's value or error.
///
/// # Safety
/// The arguments are valid for the system call `number`: pointers are valid for its reads
/// and writes.
#[inline]
pub(crate) unsafe fn syscall(number: i64, args: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller's promise.
    let answer = unsafe { system_call(number, args) };
    if (-4095..0).contains(&answer) {
        Err(Errno(-answer as i32))
    } else {
        Ok(answer as u64)
    }
}
