//! Memory: what may be read, and what is mapped.

use super::{Errno, syscall};

/// Whether the process may map only so much.
pub(crate) fn address_space_is_limited() -> bool {
    let mut limit = [u64::MAX; 2];
    // SAFETY: writes one `struct rlimit`, two words; asks about this process and changes nothing.
    let answer = unsafe {
        syscall(
            libc::SYS_prlimit64,
            [
                0,
                libc::RLIMIT_AS as u64,
                0,
                limit.as_mut_ptr() as u64,
                0,
                0,
            ],
        )
    };
    answer.is_ok() && limit[0] != u64::MAX
}

/// Whether the eight bytes at `address` can be read.
///
/// `rt_sigprocmask` with an operation that does not exist copies the set in first: it answers EFAULT
/// when that fails and EINVAL when it does not, and changes nothing either way. Every seccomp
/// policy under which a program can run allows it.
pub(crate) fn readable(address: u64) -> bool {
    // SAFETY: the kernel reads the address with its own fault handling; no such operation as -1.
    let answer = unsafe { syscall(libc::SYS_rt_sigprocmask, [u64::MAX, address, 0, 8, 0, 0]) };
    answer == Err(Errno(libc::EINVAL))
}

/// Whether `len` bytes can be mapped.
pub(crate) fn can_map(len: usize) -> bool {
    let Some(memory) = map_zeroed(len) else {
        return false;
    };
    // SAFETY: mapped just now, and nobody else knows of it.
    let _ = unsafe { syscall(libc::SYS_munmap, [memory as u64, len as u64, 0, 0, 0, 0]) };
    true
}

/// `len` bytes of zeroed memory of our own, never given back; `None` when there is none to be had.
pub(crate) fn map_zeroed(len: usize) -> Option<*mut u8> {
    // SAFETY: a new anonymous mapping touches nothing that exists.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [
                0,
                len as u64,
                (libc::PROT_READ | libc::PROT_WRITE) as u64,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64,
                u64::MAX,
                0,
            ],
        )
    }
    .ok()
    .map(|address| address as *mut u8)
}

/// Memory for a stack, above a page that cannot be written to. Given back when it is dropped.
pub(crate) struct Stack {
    low: u64,
    len: u64,
    /// The first address above it, aligned to pages.
    pub(crate) top: *mut u8,
}

/// A stack of `len` bytes, whole pages; `None` when there is no memory.
pub(crate) fn map_stack(len: usize) -> Option<Stack> {
    const GUARD: u64 = 4096;
    let (read_write, private) = (
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64,
    );
    let whole = len as u64 + GUARD;
    let none = libc::PROT_NONE as u64;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let low = unsafe { syscall(libc::SYS_mmap, [0, whole, none, private, u64::MAX, 0]) }.ok()?;
    let stack = Stack {
        low,
        len: whole,
        top: (low + whole) as *mut u8,
    };
    let fixed = private | libc::MAP_FIXED as u64;
    // SAFETY: over pages that were mapped just now, and which nobody else knows of.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [low + GUARD, len as u64, read_write, fixed, u64::MAX, 0],
        )
    }
    .ok()?;
    Some(stack)
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_stack`; nobody uses it any more.
        let _ = unsafe { syscall(libc::SYS_munmap, [self.low, self.len, 0, 0, 0, 0]) };
    }
}

/// `len` bytes of zeroed memory that another process of the same user can attach by an id that stands in this
/// one's `/proc/PID/maps`. It has no name, no descriptor and no file that somebody could cut short, and is
/// gone with the last process that has it.
pub(crate) fn map_attachable(len: usize) -> Result<*mut u8, Errno> {
    // SAFETY: numbers only. IPC_PRIVATE: always a new segment.
    let id = unsafe {
        syscall(
            libc::SYS_shmget,
            [
                libc::IPC_PRIVATE as u64,
                len as u64,
                (libc::IPC_CREAT | 0o600) as u64,
                0,
                0,
                0,
            ],
        )?
    };
    // SAFETY: a new mapping, where the kernel likes it; it touches nothing that exists.
    let address = unsafe { syscall(libc::SYS_shmat, [id, 0, 0, 0, 0, 0]) };
    // SAFETY: numbers only. From here on the last one to detach removes it; that may be the kernel, at our end.
    let _ = unsafe { syscall(libc::SYS_shmctl, [id, libc::IPC_RMID as u64, 0, 0, 0, 0]) };
    address.map(|address| address as *mut u8)
}

/// Puts zeroed memory of this process alone in the place of what [`map_attachable`] gave.
///
/// # Safety
/// `address` and `len` are what `map_attachable` gave, and all zero is valid to whoever still looks there.
pub(crate) unsafe fn unshare(address: *mut u8, len: usize) {
    // SAFETY: replaces, in one step, pages that are ours by the caller's promise.
    let _ = unsafe {
        syscall(
            libc::SYS_mmap,
            [
                address as u64,
                len as u64,
                (libc::PROT_READ | libc::PROT_WRITE) as u64,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64,
                u64::MAX,
                0,
            ],
        )
    };
}
