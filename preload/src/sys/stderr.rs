//! Standard error, which is the program's.

use super::file::File;
use super::signals::{Fence, swallow_signal_of};
use super::syscall;

/// Which file descriptor 2 is: device and inode.
pub(crate) fn stderr_identity() -> Option<(u64, u64)> {
    // Not to be closed: it is the program's.
    let stderr = File::of_others(2);
    stderr.stat().ok().map(|stat| (stat.device, stat.inode))
}

/// Writes to standard error what fits into one write. Nothing is written when nobody reads: the line
/// is not worth a SIGPIPE, nor waiting for room in a pipe that is full.
pub(crate) fn write_stderr(bytes: &[u8]) {
    let mut stderr = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: reads and writes one pollfd; a timeout of 0 does not wait.
    let ready = unsafe {
        syscall(
            libc::SYS_poll,
            [std::ptr::from_mut(&mut stderr) as u64, 1, 0, 0, 0, 0],
        )
    };
    if ready == Ok(0) {
        return;
    }
    let _fence = Fence::new();
    // SAFETY: reads `bytes`. Descriptor 2 is by convention the program's standard error.
    let answer = unsafe {
        syscall(
            libc::SYS_write,
            [2, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0],
        )
    };
    if let Err(error) = answer {
        swallow_signal_of(error);
    }
}
