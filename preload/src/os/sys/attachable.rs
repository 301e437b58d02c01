//! Attachable memory: zeroed memory that another process of the same user can attach, by an id that
//! stands in this process's `/proc/PID/maps`.
//!
//! It is a segment of System V shared memory. It has no descriptor and no file that somebody could
//! shorten, and it is gone with the last process that has it attached, because it is marked for
//! removal as soon as it is attached.
//!
//! A process that is killed before it has set the mark would leave a segment for good, and the
//! kernel has few. So a segment has one of a few keys until then:
//!
//! ```text
//!  shmget(key) ──> shmat ──> marked for removal: the key is free again
//!       └── killed: the key stays taken, until the next process that wants it removes the segment
//! ```
//!
//! So all processes together leave at most one segment for each key, and these for a short time.

use super::{Errno, syscall, take_place};
use crate::os::clock;

/// The first key: `hp`, and a number of ours. The last bits number the keys.
const KEY: u64 = 0x6870_7600;
/// The number of keys. Two processes that make their segments at one time need two.
const KEYS: u64 = 16;
/// A segment that no process has attached after so many seconds is left over. A process that is
/// slower gets no segment.
const LEFT_AFTER_S: u64 = 2;

/// Makes `len` bytes of attachable memory.
pub(crate) fn map_attachable(len: usize) -> Result<*mut u8, Errno> {
    let id = make(len)?;
    // SAFETY: a new mapping, which the kernel refuses where something exists.
    let attach = |place| unsafe { syscall(libc::SYS_shmat, [id, place, 0, 0, 0, 0]) };
    let place = take_place(len);
    let address = attach(place.start).or_else(|_| {
        place.give_back();
        attach(0)
    });
    // From here on the last process to detach removes it; that may be the kernel, at our end.
    remove(id);
    address.map(|address| address as *mut u8)
}

/// Unmaps memory of [`map_attachable`]. The kernel frees it if no other process has it.
///
/// # Safety
/// No other code of this process reads the memory.
#[cfg(feature = "attach")]
pub(crate) unsafe fn unmap_attachable(address: *mut u8) {
    // SAFETY: the caller's promise.
    let _ = unsafe { syscall(libc::SYS_shmdt, [address as u64, 0, 0, 0, 0, 0]) };
}

/// Makes a segment under a free key. If other processes hold all keys, the segment has no key.
fn make(len: usize) -> Result<u64, Errno> {
    let new = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
    let mut has_looked = false;
    for key in KEY..KEY + KEYS {
        let mut made = get(key, len, new);
        if made == Err(Errno(libc::EEXIST)) && !has_looked {
            has_looked = true;
            remove_left(len);
            made = get(key, len, new);
        }
        if made != Err(Errno(libc::EEXIST)) {
            return made;
        }
    }
    get(libc::IPC_PRIVATE as u64, len, new)
}

/// Removes the segments that killed processes left, if this process may.
fn remove_left(len: usize) {
    for id in (KEY..KEY + KEYS).filter_map(|key| get(key, 0, 0).ok()) {
        let mut about = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
        let place = about.as_mut_ptr() as u64;
        let command = libc::IPC_STAT as u64;
        // SAFETY: writes one `shmid_ds`, which on x86-64 is the kernel's own layout.
        let answer = unsafe { syscall(libc::SYS_shmctl, [id, command, place, 0, 0, 0]) };
        // SAFETY: zeroed, then filled by the kernel; integers only.
        let about = unsafe { about.assume_init() };
        let made_s = about.shm_ctime.cast_unsigned();
        let is_old = clock::wall_ns() / 1_000_000_000 >= made_s.saturating_add(LEFT_AFTER_S);
        if answer.is_ok() && about.shm_segsz == len && about.shm_nattch == 0 && is_old {
            remove(id);
        }
    }
}

/// The id of the segment with that key.
fn get(key: u64, len: usize, flags: i32) -> Result<u64, Errno> {
    // SAFETY: numbers only.
    unsafe { syscall(libc::SYS_shmget, [key, len as u64, flags as u64, 0, 0, 0]) }
}

/// Marks a segment for removal.
fn remove(id: u64) {
    // SAFETY: numbers only; processes that have it attached keep it.
    let _ = unsafe { syscall(libc::SYS_shmctl, [id, libc::IPC_RMID as u64, 0, 0, 0, 0]) };
}
