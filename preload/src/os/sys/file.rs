//! Open files.

use std::ffi::CStr;

use super::signals::{Fence, swallow_signal_of};
use super::{Errno, syscall};

/// An open file, closed when dropped. In the program's table it is held for the length of one operation only (Law 9).
pub(crate) struct File {
    pub(super) number: u64,
    whose: Whose,
}

/// Whose it is to close what is under a number.
enum Whose {
    /// Ours, as long as it is the file of that device and inode. The program may have put its own there (`dup2`).
    Ours(u64, u64),
    /// Ours, for all that is known: the kernel, or a filter of the program's, does not say what it is.
    Unknown,
    /// The program's.
    Others,
}

impl Drop for File {
    #[inline(never)]
    fn drop(&mut self) {
        let is_ours = match self.whose {
            Whose::Others => false,
            Whose::Unknown => true,
            Whose::Ours(device, inode) => match self.stat() {
                Ok(now) => (now.device, now.inode) == (device, inode),
                Err(error) => error != Errno(libc::EBADF),
            },
        };
        if is_ours {
            // SAFETY: close takes a number. That it is still our file was asked just now; what lies between is what "one
            // operation only" is for.
            let _ = unsafe { syscall(libc::SYS_close, [self.number, 0, 0, 0, 0, 0]) };
        }
    }
}

/// What tells one file from another, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    /// Names that it has.
    pub(crate) links: u64,
}

impl Stat {
    fn of(stat: &libc::stat) -> Stat {
        Stat {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            mode: stat.st_mode,
            links: stat.st_nlink,
        }
    }
}

/// What is at that path, be it a link. It takes no descriptor.
pub(crate) fn stat_at(path: &CStr) -> Result<Stat, Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: reads a C string, and writes one `struct stat`, which on x86-64 is the kernel's own layout.
    unsafe {
        syscall(
            libc::SYS_newfstatat,
            [
                libc::AT_FDCWD as i64 as u64,
                path.as_ptr() as u64,
                stat.as_mut_ptr() as u64,
                libc::AT_SYMLINK_NOFOLLOW as u64,
                0,
                0,
            ],
        )?;
    }
    // SAFETY: zeroed, then filled by the kernel; integers only.
    Ok(Stat::of(&unsafe { stat.assume_init() }))
}

impl File {
    /// What was just opened under that number.
    #[inline(never)]
    pub(super) fn just_opened(number: u64) -> File {
        let mut file = File::of_others(number);
        file.whose = match file.stat() {
            Ok(stat) => Whose::Ours(stat.device, stat.inode),
            Err(Errno(libc::EBADF)) => Whose::Others, // closed already, and perhaps another's at once
            Err(_) => Whose::Unknown,
        };
        file
    }

    /// What somebody else opened under that number, and will close.
    pub(crate) fn of_others(number: u64) -> File {
        File {
            number,
            whose: Whose::Others,
        }
    }

    /// Opens `path`; `O_CLOEXEC` is added.
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
        Ok(File::just_opened(fd))
    }

    /// The same file under a number that programs rarely come to: one that closes all that it does not know, and opens
    /// its own, gets the lowest.
    pub(crate) fn aside(self) -> Result<File, Errno> {
        const ASIDE: u64 = 1000;
        // SAFETY: numbers only.
        let answer = unsafe {
            syscall(
                libc::SYS_fcntl,
                [self.number, libc::F_DUPFD_CLOEXEC as u64, ASIDE, 0, 0, 0],
            )
        };
        match answer {
            // Whatever it is that was under the first number, this one is ours.
            Ok(fd) => Ok(File::just_opened(fd)),
            Err(Errno(libc::EBADF)) => Err(Errno(libc::EBADF)), // closed by the program
            Err(_) => Ok(self), // there is no such number, or none free
        }
    }

    // Not inlined: a hook has little stack, and what it keeps of a file while it reads should not be in the way.
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

    /// Writes all of `bytes`, or as much as could be.
    ///
    /// # Errors
    /// With the number of bytes that were written before the error.
    ///
    /// A file size limit answers with an error only: the signal that comes with it is not the program's.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> Result<(), (usize, Errno)> {
        let _fence = Fence::new();
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

    /// Cuts the file to `len` bytes.
    pub(crate) fn truncate(&self, len: u64) -> Result<(), Errno> {
        // SAFETY: numbers only.
        unsafe { syscall(libc::SYS_ftruncate, [self.number, len, 0, 0, 0, 0]) }.map(drop)
    }

    /// Reads up to `buffer.len()` bytes from `offset` on. Returns how many there were.
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

    /// Reads all there is, in pieces.
    pub(crate) fn read_to_end(&self) -> Result<Vec<u8>, Errno> {
        self.read_up_to(usize::MAX, 0)
    }

    /// Reads to the end, or until there are at least `most` bytes. So many are `expected`: what grows as it is read is there twice.
    ///
    /// By offsets: a program that takes free numbers by `dup2` may have put a socket or a pipe of its own under this one. Then that is
    /// an error, while `read` would wait for what is sent to the program, and take it.
    pub(crate) fn read_up_to(&self, most: usize, expected: usize) -> Result<Vec<u8>, Errno> {
        let mut piece = [0u8; 2048];
        let mut all = Vec::with_capacity(match expected {
            0 => 0,
            some => some.min(most).saturating_add(piece.len()),
        });
        while all.len() < most {
            match self.read_at(all.len() as u64, &mut piece) {
                Ok(0) => break,
                Ok(n) => all.extend_from_slice(&piece[..n]),
                Err(Errno(libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}
