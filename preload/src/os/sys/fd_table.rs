//! Tables of descriptors: that of this thread, and that of the process.

use super::file::File;
use super::process::getpid;
use super::{Errno, syscall};

/// This thread, which shared its table with others, has an empty one of its own from here on. False: it shares it as before.
///
/// The kernel makes the copy before it closes anything, so what others have open stays open. Of a table that nobody shares it makes
/// none, and closes what is open in it: nobody else's, then.
pub(crate) fn leave_descriptors() -> bool {
    // SAFETY: numbers only. What is closed is this thread's alone, as above, and we keep no descriptor (Law 9).
    let answer = unsafe {
        syscall(
            libc::SYS_close_range,
            [
                0,
                u64::from(u32::MAX),
                u64::from(libc::CLOSE_RANGE_UNSHARE),
                0,
                0,
                0,
            ],
        )
    };
    answer.is_ok()
}

impl File {
    /// What the process's main thread has open under that number, under one of this thread's own.
    ///
    /// # Errors
    /// EBADF: it has nothing there. Others where the main thread has ended, or the kernel has no such call (before Linux 5.6).
    pub(crate) fn of_process(number: u64) -> Result<File, Errno> {
        // SAFETY: numbers only.
        let process =
            unsafe { syscall(libc::SYS_pidfd_open, [u64::from(getpid()), 0, 0, 0, 0, 0]) };
        let process = File::just_opened(process?);
        // SAFETY: numbers only.
        let file = unsafe { syscall(libc::SYS_pidfd_getfd, [process.number, number, 0, 0, 0, 0]) };
        file.map(File::just_opened)
    }
}
