//! Memory of this process that may be unmapped at any moment, read by the kernel.
//!
//! Danger: whatever is read here may belong to a module that another thread unloads. A load of ours would fault; a read of
//! `/proc/self/mem` answers with an error, or with what is there instead, so what was read may be of any value.
//!
//! Where there is no `/proc` (a chroot) or the process may not look at itself (it gave up privileges), the bytes are
//! loaded after every page was asked for (`sys::is_readable`). That leaves a moment between the question and the load;
//! it takes a walk that was led astray, into a module that is unloaded at that moment, to fault in it.

use std::mem::MaybeUninit;

use crate::os::procfs;
use crate::os::sys::{self, File};

/// Bytes of a module's path that are read at a time.
const PATH_PIECE: usize = 128;
/// The longest path that is read.
const LONGEST_PATH: usize = 4096;
const PAGE: u64 = 4096;

/// See the module's text. Held for the length of one look (Law 9).
pub(crate) struct Memory(Option<File>);

/// Integers and raw pointers: every sequence of bytes is one.
///
/// # Safety
/// So it must be.
pub(crate) unsafe trait Plain {}

impl Memory {
    pub(crate) fn open() -> Memory {
        Memory(procfs::memory())
    }

    /// As where there is no `/proc`: no descriptor is taken. For what is hardly ever unmapped.
    pub(crate) fn without_descriptor() -> Memory {
        Memory(None)
    }

    /// `len` bytes from `address` on, if all can be read, and there is memory for them.
    pub(crate) fn bytes(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        // Of a large library that is megabytes, of which the reserve (`allocator/global.rs`) has none.
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        (self.read(address, &mut bytes) == len).then_some(bytes)
    }

    /// The value at `address`.
    pub(crate) fn value<T: Plain>(&self, address: u64) -> Option<T> {
        self.values(address, 1)?.pop()
    }

    /// `count` values, one after the other.
    pub(crate) fn values<T: Plain>(&self, address: u64, count: usize) -> Option<Vec<T>> {
        let bytes = self.bytes(address, count.checked_mul(size_of::<T>())?)?;
        let value = |part: &[u8]| {
            let mut value = MaybeUninit::<T>::uninit();
            // SAFETY: as many bytes as a T has, each of which makes a valid one (`Plain`).
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), value.as_mut_ptr().cast(), part.len());
                value.assume_init()
            }
        };
        Some(bytes.chunks_exact(size_of::<T>()).map(value).collect())
    }

    /// The bytes up to the next zero; none for a null address.
    pub(crate) fn c_string(&self, address: u64) -> Option<Vec<u8>> {
        let mut string = Vec::new();
        let mut piece = [0; PATH_PIECE];
        while address != 0 && string.len() < LONGEST_PATH {
            let read = self.read(address + string.len() as u64, &mut piece);
            let piece = piece.get(..read).filter(|piece| !piece.is_empty())?;
            match piece.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    string.extend_from_slice(&piece[..end]);
                    return Some(string);
                }
                None => string.extend_from_slice(piece),
            }
        }
        (address == 0).then_some(string)
    }

    /// Reads as much as there is. Returns how many bytes.
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

/// The same without the kernel's help.
fn load(address: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let from = address.wrapping_add(done as u64);
        let in_page = (PAGE - from % PAGE) as usize;
        let len = in_page.min(buffer.len() - done);
        if !sys::is_readable(from & !7) {
            break;
        }
        // SAFETY: within one page, which could be read just now; the module's text says what is left to chance.
        unsafe {
            std::ptr::copy_nonoverlapping(from as *const u8, buffer[done..].as_mut_ptr(), len);
        }
        done += len;
    }
    done
}
