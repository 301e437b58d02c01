//! System calls, made directly.
//!
//! Danger: inline `syscall`. libc's wrappers are not used because a program may export functions of
//! those names (a `write` that logs, an `open` that allocates), because they are cancellation
//! points (malloc must not become one), and because they set errno.
//!
//! Here is the call itself and what it answers; each file below has the calls about one thing.

use std::arch::asm;
use std::fmt;

mod fd_table;
mod file;
mod memory;
mod path;
mod process;
mod random;
mod signals;
mod stderr;
mod wait;

pub(crate) use fd_table::leave_descriptors;
pub(crate) use file::{File, Stat, stat_at};
pub(crate) use memory::{
    address_space_is_limited, can_map, map_attachable, map_stack, map_zeroed, readable, unshare,
};
pub(crate) use path::{
    getcwd, link, read_own_path, readlink, rename, rename_exchange, rename_new, unlink,
};
pub(crate) use process::{
    Scheduling, execve, exit_group, getpid, gettid, has_thread, name_thread, thread_name,
    thread_pointer, threads,
};
pub(crate) use random::random_u64;
pub(crate) use signals::{
    block_signals, is_on_signal_stack, restore_sigaction, restore_signals, sigaction_of,
};
pub(crate) use wait::{
    futex_wait, futex_wait_shared, futex_wake, futex_wake_shared, sleep_ns, yield_now,
};

/// An error number of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            libc::ENOENT => "no such file or directory",
            libc::EACCES => "permission denied",
            libc::EPERM => "operation not permitted",
            libc::ENOTDIR => "a component of the path is not a directory",
            libc::EISDIR => "is a directory",
            libc::EROFS => "read-only file system",
            libc::ENOSPC => "no space left on device",
            libc::EDQUOT => "disk quota exceeded",
            libc::EFBIG => "file size limit reached",
            libc::EMFILE | libc::ENFILE => "too many open files",
            libc::ELOOP => "is a symbolic link",
            libc::EEXIST => "file exists",
            libc::ENAMETOOLONG => "file name too long",
            libc::ENOMEM => "out of memory",
            n => return write!(f, "error {n}"),
        };
        f.write_str(words)
    }
}

/// # Safety
/// The arguments must be what the call of that number expects: pointers valid for what it reads and
/// writes.
#[inline]
pub(crate) unsafe fn syscall(number: i64, args: [u64; 6]) -> Result<u64, Errno> {
    let answer: i64;
    // SAFETY: the caller's promise; rcx and r11 are what the instruction clobbers, and memory is not
    // declared untouched.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&answer) {
        Err(Errno(-answer as i32))
    } else {
        Ok(answer as u64)
    }
}

/// Hidden functions under libc's names, in assembly: only this library's own calls reach them.
macro_rules! hidden_functions {
    ($($name:literal: $($line:expr),*;)*) => {
        $(std::arch::global_asm!(
            ".pushsection .text.heapprof_system, \"ax\", @progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            $($line,)*
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        );)*
    };
}

/// Those that make the system call of that number with their own arguments, and return as the assembly behind the comma has it (`os/errno.rs`).
macro_rules! hidden_system_calls {
    ($($name:literal = $number:literal, $return:expr;)*) => {
        crate::os::sys::hidden_functions! {
            $($name: "mov r10, rcx", concat!("mov eax, ", $number), "syscall", $return;)*
        }
    };
}

pub(crate) use {hidden_functions, hidden_system_calls};
