//! What we tell the user on standard error: one line each, and few of them.
//!
//! Descriptor 2 is standard error only as long as the program says so: one that closed it and opened a
//! file of its own under the number must not find our line in it. So the first look at it is
//! remembered, and nothing is written to anything else.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys;

/// Device and inode of standard error at boot.
static KNOWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// At boot: remembers what standard error is.
pub(crate) fn remember() {
    if let Some((device, inode)) = sys::stderr_identity() {
        KNOWN[0].store(device, Ordering::Relaxed);
        KNOWN[1].store(inode, Ordering::Relaxed);
    }
}

/// A line in the making, on the stack: what is said about a want of memory, or before there may be any, needs none.
struct Line {
    bytes: [u8; 400],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, words: &str) -> std::fmt::Result {
        let end = self.len + words.len();
        let place = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        place.copy_from_slice(words.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Writes `heapprof: …` as one write, so that lines of several processes do not mix.
pub(crate) fn line(words: std::fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 400],
        len: 0,
    };
    match writeln!(line, "heapprof: {words}") {
        Ok(()) => bytes(&line.bytes[..line.len]),
        Err(_) => bytes(format!("heapprof: {words}\n").as_bytes()), // long paths
    }
}

/// Writes that, as it is.
pub(crate) fn bytes(line: &[u8]) {
    let known = (
        KNOWN[0].load(Ordering::Relaxed),
        KNOWN[1].load(Ordering::Relaxed),
    );
    if sys::stderr_identity() == Some(known) {
        sys::write_stderr(line);
    }
}

macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
}
pub(crate) use say;
