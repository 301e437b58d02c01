//! Descriptor tables: the table of this thread, and that of the process.

use super::file::File;
use super::process::getpid;
use super::{Errno, syscall};

/// Gives this thread, which shares its descriptor table with others, an empty table of its own.
/// Returns false if it still shares the table.
///
/// The kernel copies the table before it closes any descriptor, so descriptors of other threads
/// stay open. If no other thread shares the table, the kernel copies nothing and closes all
/// descriptors, which then belong to this thread alone.
pub(crate) fn unshare_descriptors() -> bool {
    // SAFETY: numbers only. The closed descriptors belong to this thread alone, as above, and we
    // keep no descriptor (Law 9).
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
    /// Duplicates a descriptor of the process's main thread into this thread's table.
    ///
    /// # Errors
    /// EBADF if the main thread has no such descriptor. Other errors if the main thread
    /// has ended, or if the kernel lacks the call (before Linux 5.6).
    pub(crate) fn of_process(number: u64) -> Result<File, Errno> {
        // SAFETY: numbers only.
        let process =
            unsafe { syscall(libc::SYS_pidfd_open, [u64::from(getpid()), 0, 0, 0, 0, 0]) };
        let process = File::opened(process?);
        // SAFETY: numbers only.
        let file = unsafe { syscall(libc::SYS_pidfd_getfd, [process.number, number, 0, 0, 0, 0]) };
        file.map(File::opened)
    }
}
