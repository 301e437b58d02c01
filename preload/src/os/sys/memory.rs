//! Memory of this process: new mappings, and a check that an address can be read.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Errno, map_at_place, return_place, syscall};
use crate::arch::page::PAGE;

/// Returns the process's limit on its address space, in bytes. `None`: there is no limit.
pub(crate) fn address_space_limit() -> Option<u64> {
    let mut limit = [u64::MAX; 2];
    // SAFETY: writes one `struct rlimit`, two words. The call queries this process and changes
    // nothing.
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
    (answer.is_ok() && limit[0] != u64::MAX).then_some(limit[0])
}

/// Returns true if the process has a limit on its address space.
pub(crate) fn address_space_is_limited() -> bool {
    address_space_limit().is_some()
}

/// Returns true if the eight bytes at `address` can be read.
///
/// `rt_sigprocmask` with an invalid operation first copies the set in. It fails with EFAULT if the
/// copy fails, and with EINVAL otherwise. It changes nothing in both cases. Every seccomp policy
/// under which a program can run allows it.
pub(crate) fn is_readable(address: u64) -> bool {
    // SAFETY: the kernel reads the address with its own fault handling; no operation has the number
    // -1.
    let answer = unsafe { syscall(libc::SYS_rt_sigprocmask, [u64::MAX, address, 0, 8, 0, 0]) };
    answer == Err(Errno(libc::EINVAL))
}

/// Returns true if `len` bytes can be mapped.
pub(crate) fn can_map(len: usize) -> bool {
    let Some(memory) = map_unlisted(len) else {
        return false;
    };
    // SAFETY: mapped just above, and no other code has the address.
    let _ = unsafe { syscall(libc::SYS_munmap, [memory as u64, len as u64, 0, 0, 0, 0]) };
    return_place(memory as u64, len);
    true
}

/// Number of our mappings that are listed. The others are not, which is harmless.
const LISTED: usize = 1024;
/// Start and end of each listed mapping, or zeros. The end is stored first.
static MAPPINGS: [[AtomicU64; 2]; LISTED] = [const { [const { AtomicU64::new(0) }; 2] }; LISTED];
static NEXT_MAPPING: AtomicUsize = AtomicUsize::new(0);

/// Returns the addresses of our mappings that are never unmapped.
pub(crate) fn own_mappings() -> impl Iterator<Item = Range<u64>> {
    let ranges = MAPPINGS.iter().map(|[start, end]| {
        let start = start.load(Ordering::Acquire);
        start..end.load(Ordering::Relaxed)
    });
    ranges.take_while(|range| range.start != 0)
}

/// Lists a mapping of ours that is never unmapped.
fn list_mapping(start: u64, len: u64) {
    let place = NEXT_MAPPING.fetch_add(1, Ordering::Relaxed);
    if let Some([first, end]) = MAPPINGS.get(place) {
        end.store(start + len, Ordering::Relaxed);
        first.store(start, Ordering::Release);
    }
}

/// Maps `len` bytes of zeroed memory that are never unmapped. Returns `None` if there is no memory.
pub(crate) fn map_zeroed(len: usize) -> Option<*mut u8> {
    let memory = map_unlisted(len)?;
    list_mapping(memory as u64, len as u64);
    Some(memory)
}

/// Maps a block of `len` zeroed bytes, to be [unmapped](unmap) some time. `None`: there is no
/// memory.
#[cfg(feature = "attach")]
pub(crate) fn map_block(len: usize) -> Option<*mut u8> {
    map_unlisted(len.next_multiple_of(PAGE as usize))
}

fn map_unlisted(len: usize) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let address = map_private(len, protection, libc::MAP_ANONYMOUS, u64::MAX).ok()?;
    Some(address as *mut u8)
}

/// Makes a private mapping at a place of ours: of the file with that descriptor, or of none.
pub(super) fn map_private(
    len: usize,
    protection: i32,
    more_flags: i32,
    descriptor: u64,
) -> Result<u64, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | more_flags;
    let map = |hint| {
        let args = [
            hint,
            len as u64,
            protection as u64,
            flags as u64,
            descriptor,
            0,
        ];
        // SAFETY: a new mapping touches nothing that exists.
        unsafe { syscall(libc::SYS_mmap, args) }
    };
    let unmap = |address| unmap_at(address, len);
    map_at_place(len, map, unmap)
}

/// Unmaps memory of [`map_zeroed`] or [`map_block`] that no other code uses.
#[cfg(feature = "attach")]
pub(crate) fn unmap(address: u64, len: usize) {
    let len = len.next_multiple_of(PAGE as usize);
    // SAFETY: the callers have mapped it, and nothing reads it any more.
    let _ = unsafe { syscall(libc::SYS_munmap, [address, len as u64, 0, 0, 0, 0]) };
    return_place(address, len);
}

/// Maps `len` bytes of zeroed memory at that address. `None`: something is mapped there, or there
/// is no memory.
pub(crate) fn map_at(address: u64, len: usize) -> Option<u64> {
    // SAFETY: a new anonymous mapping. With this flag it replaces nothing; an older kernel takes
    // the address as a hint.
    let mapped = unsafe {
        syscall(
            libc::SYS_mmap,
            [
                address,
                len as u64,
                (libc::PROT_READ | libc::PROT_WRITE) as u64,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64,
                u64::MAX,
                0,
            ],
        )
    }
    .ok()?;
    if mapped != address {
        unmap_at(mapped, len);
        return None;
    }
    Some(mapped)
}

/// Unmaps memory of [`map_at`] that no other code uses.
pub(crate) fn unmap_at(address: u64, len: usize) {
    // SAFETY: the callers have mapped it, and nothing reads it any more.
    let _ = unsafe { syscall(libc::SYS_munmap, [address, len as u64, 0, 0, 0, 0]) };
}

/// Changes the protection of pages.
pub(crate) fn protect(address: u64, len: usize, protection: i32) -> Result<(), Errno> {
    // SAFETY: the callers change pages of code that no thread runs, and of generated code.
    unsafe {
        syscall(
            libc::SYS_mprotect,
            [address, len as u64, protection as u64, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Bytes of a guard page.
const GUARD: u64 = PAGE;

/// Memory for a stack, above a guard page. Unmapped when dropped.
pub(crate) struct Stack {
    low: u64,
    len: u64,
    /// The first address above the stack, aligned to pages.
    pub(crate) top: *mut u8,
}

/// Maps a stack of `len` bytes, which are whole pages. Returns `None` if there is no memory.
pub(crate) fn map_stack(len: usize) -> Option<Stack> {
    let (read_write, private) = (
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64,
    );
    let whole = len as u64 + GUARD;
    let (none, anonymous) = (libc::PROT_NONE, libc::MAP_ANONYMOUS);
    let low = map_private(whole as usize, none, anonymous, u64::MAX).ok()?;
    let stack = Stack {
        low,
        len: whole,
        top: (low + whole) as *mut u8,
    };
    let fixed = private | libc::MAP_FIXED as u64;
    // SAFETY: replaces pages that are mapped just above, and no other code has their address.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [low + GUARD, len as u64, read_write, fixed, u64::MAX, 0],
        )
    }
    .ok()?;
    Some(stack)
}

impl Stack {
    /// Returns the length of the stack, without the guard page.
    pub(crate) fn bytes(&self) -> usize {
        (self.len - GUARD) as usize
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_stack`; the owner drops it after the last use.
        let _ = unsafe { syscall(libc::SYS_munmap, [self.low, self.len, 0, 0, 0, 0]) };
        return_place(self.low, self.len as usize);
    }
}

/// Replaces the memory of [`map_attachable`](super::map_attachable) by zeroed memory of this
/// process alone.
///
/// # Safety
/// `address` and `len` are those of one `map_attachable`, and all remaining readers accept zeroed
/// memory.
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
