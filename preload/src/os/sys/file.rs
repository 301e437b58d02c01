//! Open files.

use std::ffi::CStr;

use super::signals::{SignalBlock, swallow_signal_of};
use super::{Errno, syscall};

/// An open file, closed when dropped. A file in the program's descriptor table is held for one
/// operation only (Law 9).
pub(crate) struct File {
    pub(super) number: u64,
    ownership: Ownership,
}

/// The party that closes the file of a number.
enum Ownership {
    /// Ours, while the number names the file with this device and inode. The program may have put a
    /// file of its own there (`dup2`).
    Ours(u64, u64),
    /// Presumed ours: the kernel, or a seccomp filter, does not tell which file it is.
    Unknown,
    /// The program's.
    Program,
}

impl Drop for File {
    #[inline(never)]
    fn drop(&mut self) {
        let is_ours = match self.ownership {
            Ownership::Program => false,
            Ownership::Unknown => true,
            Ownership::Ours(device, inode) => match self.stat() {
                Ok(now) => (now.device, now.inode) == (device, inode),
                Err(error) => error != Errno(libc::EBADF),
            },
        };
        if is_ours {
            // SAFETY: close takes a number. The check above found our file under it. The rule of
            // one operation keeps the time between check and close short.
            let _ = unsafe { syscall(libc::SYS_close, [self.number, 0, 0, 0, 0, 0]) };
        }
    }
}

/// The identity and size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified_ns: u64,
    pub(crate) mode: u32,
    /// Number of hard links.
    pub(crate) links: u64,
}

impl Stat {
    fn of(stat: &libc::stat) -> Stat {
        Stat {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified_ns: (stat.st_mtime as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(stat.st_mtime_nsec as u64),
            mode: stat.st_mode,
            links: stat.st_nlink,
        }
    }
}

/// Returns the status of the file at `path`, without following a link. Uses no descriptor.
pub(crate) fn stat_at(path: &CStr) -> Result<Stat, Errno> {
    stat_with(path, libc::AT_SYMLINK_NOFOLLOW)
}

/// The file that a path leads to, over links. It takes no descriptor.
pub(crate) fn stat_of_target(path: &CStr) -> Result<Stat, Errno> {
    stat_with(path, 0)
}

fn stat_with(path: &CStr, flags: i32) -> Result<Stat, Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: reads a C string, and writes one `struct stat`, which on x86-64 is the kernel's own
    // layout.
    unsafe {
        syscall(
            libc::SYS_newfstatat,
            [
                libc::AT_FDCWD as i64 as u64,
                path.as_ptr() as u64,
                stat.as_mut_ptr() as u64,
                flags as u64,
                0,
                0,
            ],
        )?;
    }
    // SAFETY: zeroed, then filled by the kernel; integers only.
    Ok(Stat::of(&unsafe { stat.assume_init() }))
}

impl File {
    /// Returns the file that this library has just opened under `number`.
    #[inline(never)]
    pub(super) fn opened(number: u64) -> File {
        let mut file = File::borrowed(number);
        file.ownership = match file.stat() {
            Ok(stat) => Ownership::Ours(stat.device, stat.inode),
            Err(Errno(libc::EBADF)) => Ownership::Program, // already closed, perhaps reused
            Err(_) => Ownership::Unknown,
        };
        file
    }

    /// Returns the descriptor.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns a file under `number` that another party opened and will close.
    pub(crate) fn borrowed(number: u64) -> File {
        File {
            number,
            ownership: Ownership::Program,
        }
    }

    /// Opens `path` with `O_CLOEXEC` added.
    pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> Result<File, Errno> {
        let flags = (flags | libc::O_CLOEXEC) as u64;
        // SAFETY: the path is a C string; openat reads it and nothing else.
        let fd = unsafe {
            syscall(
                libc::SYS_openat,
                [
                    libc::AT_FDCWD as i64 as u64,
                    path.as_ptr() as u64,
                    flags,
                    u64::from(mode),
                    0,
                    0,
                ],
            )?
        };
        Ok(File::opened(fd))
    }

    /// Moves the file to a number that programs rarely use. A program that closes all unknown
    /// descriptors and then opens its own files gets the lowest numbers.
    pub(crate) fn move_to_high_number(self) -> Result<File, Errno> {
        const LOWEST: u64 = 1000;
        // SAFETY: numbers only.
        let answer = unsafe {
            syscall(
                libc::SYS_fcntl,
                [self.number, libc::F_DUPFD_CLOEXEC as u64, LOWEST, 0, 0, 0],
            )
        };
        match answer {
            // Whichever file has the first number now, the copy is ours.
            Ok(fd) => Ok(File::opened(fd)),
            Err(Errno(libc::EBADF)) => Err(Errno(libc::EBADF)), // closed by the program
            Err(_) => Ok(self),                                 // no such number, or none free
        }
    }

    // Not inlined: a hook has little stack, and the `struct stat` must not lie on it during reads.
    #[inline(never)]
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: fstat writes one `struct stat`, which on x86-64 is the kernel's own layout.
        unsafe {
            syscall(
                libc::SYS_fstat,
                [self.number, stat.as_mut_ptr() as u64, 0, 0, 0, 0],
            )?;
        }
        // SAFETY: zeroed, then filled by the kernel; integers only.
        Ok(Stat::of(&unsafe { stat.assume_init() }))
    }

    /// Writes all of `bytes`, or as many as possible.
    ///
    /// # Errors
    /// The error, with the number of bytes written before it.
    ///
    /// Beyond a file size limit there is only an error: the signal that accompanies it does not
    /// reach the program.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> Result<(), (usize, Errno)> {
        let _block = SignalBlock::new();
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            // SAFETY: reads `rest`, which is borrowed for the call.
            let answer = unsafe {
                syscall(
                    libc::SYS_write,
                    [
                        self.number,
                        rest.as_ptr() as u64,
                        rest.len() as u64,
                        0,
                        0,
                        0,
                    ],
                )
            };
            match answer {
                Ok(0) => return Err((done, Errno(libc::ENOSPC))),
                Ok(n) => done += n as usize,
                Err(Errno(libc::EINTR)) => {}
                Err(error) => {
                    swallow_signal_of(error);
                    return Err((done, error));
                }
            }
        }
        Ok(())
    }

    /// Truncates the file to `len` bytes.
    pub(crate) fn truncate(&self, len: u64) -> Result<(), Errno> {
        // SAFETY: numbers only.
        unsafe { syscall(libc::SYS_ftruncate, [self.number, len, 0, 0, 0, 0]) }.map(drop)
    }

    /// Reads up to `buffer.len()` bytes from `offset` on. Returns the number of bytes read.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: writes at most `buffer.len()` bytes into `buffer`.
        let answer = unsafe {
            syscall(
                libc::SYS_pread64,
                [
                    self.number,
                    buffer.as_mut_ptr() as u64,
                    buffer.len() as u64,
                    offset,
                    0,
                    0,
                ],
            )
        };
        answer.map(|read| read as usize)
    }

    /// Reads from the beginning of the file until `place` is full, or to the file's end. Returns
    /// the number of bytes read.
    pub(crate) fn read_into(&self, place: &mut [u8]) -> usize {
        let mut done = 0;
        while done < place.len() {
            match self.read_at(done as u64, &mut place[done..]) {
                Ok(n @ 1..) => done += n,
                Err(Errno(libc::EINTR)) => {}
                _ => break,
            }
        }
        done
    }

    /// Writes up to `bytes.len()` bytes from `offset` on. Returns the number of bytes written.
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        // SAFETY: reads `bytes`, which is borrowed for the call.
        let answer = unsafe {
            syscall(
                libc::SYS_pwrite64,
                [
                    self.number,
                    bytes.as_ptr() as u64,
                    bytes.len() as u64,
                    offset,
                    0,
                    0,
                ],
            )
        };
        answer.map(|written| written as usize)
    }

    /// Reads the whole file, in chunks.
    pub(crate) fn read_to_end(&self) -> Result<Vec<u8>, Errno> {
        self.read_up_to(usize::MAX, 0)
    }

    /// Reads to the end of the file, or until there are at least `most` bytes. `expected` is the
    /// capacity reserved at first, because a vector that grows exists twice while it is copied.
    ///
    /// Reads by offset, because the program may have put a socket or a pipe under this number
    /// (`dup2`). A read by offset fails there, while `read` would wait for data sent to the program
    /// and consume it.
    pub(crate) fn read_up_to(&self, most: usize, expected: usize) -> Result<Vec<u8>, Errno> {
        let mut chunk = [0u8; 2048];
        let mut all = Vec::with_capacity(match expected {
            0 => 0,
            some => some.min(most).saturating_add(chunk.len()),
        });
        while all.len() < most {
            match self.read_at(all.len() as u64, &mut chunk) {
                Ok(0) => break,
                Ok(n) => all.extend_from_slice(&chunk[..n]),
                Err(Errno(libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}
