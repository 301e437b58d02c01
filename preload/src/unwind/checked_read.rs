//! Checked reads: memory of this process that may be unmapped at any time, read by the kernel.
//!
//! Danger: the memory may belong to a module that another thread unloads. A load would fault. A
//! read of `/proc/self/mem` fails, or returns the memory that is there instead, so the bytes may
//! have any value.
//!
//! `/proc` may be missing (in a chroot), or closed to a process that has dropped privileges. Then
//! the bytes are loaded after a check of every page (`sys::is_readable`). A fault remains possible
//! between check and load. It needs a walk that follows wrong data into a module that is unloaded
//! at that time.

use std::mem::MaybeUninit;

use crate::os::procfs;
use crate::os::sys::{self, File, PAGE};

/// Number of bytes of a module's path that are read at once.
const PATH_CHUNK: usize = 128;
/// Longest path that is read.
const LONGEST_PATH: usize = 4096;

/// The process's memory; see the module's text. Held for one operation (Law 9).
pub(crate) struct Memory(Option<File>);

/// A type for which every sequence of bytes is valid: integers and raw pointers.
///
/// # Safety
/// Every sequence of bytes is a valid value of the type.
pub(crate) unsafe trait PlainData {}

impl Memory {
    pub(crate) fn open() -> Memory {
        Memory(procfs::memory())
    }

    /// Returns memory that is read without a descriptor, as without `/proc`. For memory that is
    /// hardly ever unmapped.
    pub(crate) fn without_descriptor() -> Memory {
        Memory(None)
    }

    /// Returns `len` bytes from `address` on, if all are readable and can be allocated.
    pub(crate) fn bytes(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        // For a large library these are megabytes, which the reserve of our allocator cannot
        // provide.
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        (self.read(address, &mut bytes) == len).then_some(bytes)
    }

    /// Returns the value at `address`.
    pub(crate) fn value<T: PlainData>(&self, address: u64) -> Option<T> {
        self.values(address, 1)?.pop()
    }

    /// Returns `count` consecutive values.
    pub(crate) fn values<T: PlainData>(&self, address: u64, count: usize) -> Option<Vec<T>> {
        let bytes = self.bytes(address, count.checked_mul(size_of::<T>())?)?;
        let value = |part: &[u8]| {
            let mut value = MaybeUninit::<T>::uninit();
            // SAFETY: as many bytes as a T has, and all bytes are valid for it (`PlainData`).
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), value.as_mut_ptr().cast(), part.len());
                value.assume_init()
            }
        };
        Some(bytes.chunks_exact(size_of::<T>()).map(value).collect())
    }

    /// Returns the bytes up to the next zero; none for a null address.
    pub(crate) fn c_string(&self, address: u64) -> Option<Vec<u8>> {
        let mut string = Vec::new();
        let mut chunk = [0; PATH_CHUNK];
        while address != 0 && string.len() < LONGEST_PATH {
            let read = self.read(address + string.len() as u64, &mut chunk);
            let chunk = chunk.get(..read).filter(|chunk| !chunk.is_empty())?;
            match chunk.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    string.extend_from_slice(&chunk[..end]);
                    return Some(string);
                }
                None => string.extend_from_slice(chunk),
            }
        }
        (address == 0).then_some(string)
    }

    /// Fills `buffer` from `address` on by the kernel alone, so no fault is possible. Returns false
    /// if that fails.
    pub(crate) fn fill_without_load(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.0.is_some() && self.read(address, buffer) == buffer.len()
    }

    /// Reads as many bytes as possible. Returns their number.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Memory(Some(file)) = self else {
            return load(address, buffer);
        };
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(address + done as u64, &mut buffer[done..]) {
                Ok(0) | Err(_) => break,
                Ok(read) => done += read,
            }
        }
        done
    }
}

/// Reads like [`Memory::read`], without the kernel's help.
fn load(address: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let from = address.wrapping_add(done as u64);
        let in_page = (PAGE - from % PAGE) as usize;
        let len = in_page.min(buffer.len() - done);
        if !sys::is_readable(from & !7) {
            break;
        }
        // SAFETY: within one page that has just been readable; the module's text describes the
        // remaining risk.
        unsafe {
            std::ptr::copy_nonoverlapping(from as *const u8, buffer[done..].as_mut_ptr(), len);
        }
        done += len;
    }
    done
}
