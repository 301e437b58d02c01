//! Standard error, a descriptor of the program.

use super::file::File;
use super::signals::{SignalBlock, swallow_signal_of};
use super::syscall;

impl File {
    /// Writes as much as fits into one write. Writes nothing if the descriptor is not writable at
    /// once. The line is worth neither a SIGPIPE nor a wait for room in a full pipe.
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
        let _block = SignalBlock::new();
        // SAFETY: reads `bytes`. The caller has checked which file has this number.
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
