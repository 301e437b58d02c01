//! Standard error, which is the program's.

use super::file::File;
use super::signals::{Fence, swallow_signal_of};
use super::syscall;

impl File {
    /// Writes what fits into one write. Nothing is written when nobody reads: the line is not worth a SIGPIPE, nor waiting for
    /// room in a pipe that is full.
    pub(crate) fn write_line(&self, bytes: &[u8]) {
        let mut ready = libc::pollfd {
            fd: self.number as i32,
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: reads and writes one pollfd; a timeout of 0 does not wait.
        let answer = unsafe {
            syscall(
                libc::SYS_poll,
                [std::ptr::from_mut(&mut ready) as u64, 1, 0, 0, 0, 0],
            )
        };
        if answer == Ok(0) {
            return;
        }
        let _fence = Fence::new();
        // SAFETY: reads `bytes`. What is under the number was asked by the caller (`os/diagnostics.rs`).
        let answer = unsafe {
            syscall(
                libc::SYS_write,
                [
                    self.number,
                    bytes.as_ptr() as u64,
                    bytes.len() as u64,
                    0,
                    0,
                    0,
                ],
            )
        };
        if let Err(error) = answer {
            swallow_signal_of(error);
        }
    }
}
