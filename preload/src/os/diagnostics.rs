//! Diagnostics: single lines for the user on standard error.
//!
//! Descriptor 2 may stop being standard error. A program may close it and open a file of its own
//! under the number, and must not find our line there. So boot remembers the file, and lines go to
//! no other file.
//!
//! Our thread may be unable to reach standard error. Its lines are kept then, and the thread that
//! ends the process prints them.

use std::cell::UnsafeCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::os::fd_table;
use crate::os::sys::File;

/// Device and inode of standard error at boot.
static KNOWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// At boot: remembers the file of standard error.
pub(crate) fn remember() {
    if let Ok(stat) = File::borrowed(2).stat() {
        KNOWN[0].store(stat.device, Ordering::Relaxed);
        KNOWN[1].store(stat.inode, Ordering::Relaxed);
    }
}

/// A line under construction, on the stack. Messages about lack of memory, or before memory is
/// available, allocate nothing.
struct Line {
    bytes: [u8; 400],
    len: usize,
}

impl Line {
    fn push(&mut self, bytes: &[u8]) -> std::fmt::Result {
        let end = self.len + bytes.len();
        let place = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        place.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }
}

impl Write for Line {
    fn write_str(&mut self, words: &str) -> std::fmt::Result {
        words.chars().try_for_each(|each| self.write_char(each))
    }

    fn write_char(&mut self, each: char) -> std::fmt::Result {
        self.push(printable(each).encode_utf8(&mut [0; 4]).as_bytes())
    }
}

/// Replaces control characters, which a terminal would obey or which would end the line. Values of
/// variables and paths may contain any character.
fn printable(each: char) -> char {
    if each.is_control() { '?' } else { each }
}

/// Writes `heapprof: …` as one write, so that lines of several processes do not mix.
pub(crate) fn line(words: std::fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 400],
        len: 0,
    };
    let fits = write!(line, "heapprof: {words}").and_then(|()| line.push(b"\n"));
    match fits {
        Ok(()) => bytes(&line.bytes[..line.len]),
        // The line is too long for the buffer, mostly due to long paths.
        Err(_) => {
            let words = words.to_string();
            let words: String = words.chars().map(printable).collect();
            bytes(format!("heapprof: {words}\n").as_bytes());
        }
    }
}

/// Writes `line` unchanged.
pub(crate) fn bytes(line: &[u8]) {
    let Some(stderr) = fd_table::standard_error() else {
        return KEPT.push(line);
    };
    let known = [
        KNOWN[0].load(Ordering::Relaxed),
        KNOWN[1].load(Ordering::Relaxed),
    ];
    if stderr
        .stat()
        .is_ok_and(|stat| [stat.device, stat.inode] == known)
    {
        stderr.write_line(line);
    }
}

/// Lines that are kept for the end of the process.
struct KeptLines {
    bytes: UnsafeCell<[u8; 1024]>,
    /// Number of bytes in use.
    len: AtomicUsize,
}

// SAFETY: one thread appends after the bytes in use (`push`); other threads read only the bytes in
// use.
unsafe impl Sync for KeptLines {}

static KEPT: KeptLines = KeptLines {
    bytes: UnsafeCell::new([0; 1024]),
    len: AtomicUsize::new(0),
};

impl KeptLines {
    /// In our thread, which is the only one that calls this: keeps a line, if there is room for it.
    fn push(&self, line: &[u8]) {
        let len = self.len.load(Ordering::Relaxed);
        if len + line.len() <= size_of_val(&self.bytes) {
            // SAFETY: within the array, by the check above. No thread reads beyond `len`, and no
            // other thread writes.
            unsafe {
                let place = self.bytes.get().cast::<u8>().add(len);
                place.copy_from_nonoverlapping(line.as_ptr(), line.len());
            }
            self.len.store(len + line.len(), Ordering::Release);
        }
    }
}

/// In the thread that ends the process: prints the lines that our thread could not print.
pub(crate) fn print_kept_lines() {
    let len = KEPT.len.load(Ordering::Acquire);
    if len > 0 {
        // SAFETY: these bytes are written before the length, and never again.
        let lines = unsafe { std::slice::from_raw_parts(KEPT.bytes.get().cast::<u8>(), len) };
        bytes(lines);
    }
}

/// In a forked child: discards the parent's lines, which the parent prints.
pub(crate) fn after_fork() {
    KEPT.len.store(0, Ordering::Relaxed);
}

macro_rules! say {
    ($($words:tt)*) => { $crate::os::diagnostics::line(format_args!($($words)*)) };
}
pub(crate) use say;
