//! What we tell the user on standard error: one line each, and few of them.
//!
//! Descriptor 2 is standard error only as long as the program says so: one that closed it and opened a
//! file of its own under the number must not find our line in it. So the first look at it is
//! remembered, and nothing is written to anything else.
//!
//! Our thread may not come by it (`os/fd_table.rs`). What it has to say then is said at the end, by the thread that waits for it.

use std::cell::UnsafeCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::os::fd_table;
use crate::os::sys::File;

/// Device and inode of standard error at boot.
static KNOWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// At boot: remembers what standard error is.
pub(crate) fn remember() {
    if let Ok(stat) = File::of_others(2).stat() {
        KNOWN[0].store(stat.device, Ordering::Relaxed);
        KNOWN[1].store(stat.inode, Ordering::Relaxed);
    }
}

/// A line in the making, on the stack: what is said about a want of memory, or before there may be any, needs none.
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
        self.push(harmless(each).encode_utf8(&mut [0; 4]).as_bytes())
    }
}

/// What a terminal does not obey, and what does not end the line: values of variables and paths are whatever they are.
fn harmless(each: char) -> char {
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
        // Long paths.
        Err(_) => {
            let words = words.to_string();
            let words: String = words.chars().map(harmless).collect();
            bytes(format!("heapprof: {words}\n").as_bytes());
        }
    }
}

/// Writes that, as it is.
pub(crate) fn bytes(line: &[u8]) {
    let Some(stderr) = fd_table::standard_error() else {
        return UNSAID.keep(line);
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

/// Lines for the end.
struct Unsaid {
    bytes: UnsafeCell<[u8; 1024]>,
    /// As many of them are lines.
    len: AtomicUsize,
}

// SAFETY: one thread adds, behind what is there (`keep`); others read what is there by its length.
unsafe impl Sync for Unsaid {}

static UNSAID: Unsaid = Unsaid {
    bytes: UnsafeCell::new([0; 1024]),
    len: AtomicUsize::new(0),
};

impl Unsaid {
    /// In our thread, of which there is one: keeps a line, if there is room for it.
    fn keep(&self, line: &[u8]) {
        let len = self.len.load(Ordering::Relaxed);
        if len + line.len() <= size_of_val(&self.bytes) {
            // SAFETY: within the array, by the line above; nobody reads behind `len`, and nobody else writes.
            unsafe {
                let place = self.bytes.get().cast::<u8>().add(len);
                place.copy_from_nonoverlapping(line.as_ptr(), line.len());
            }
            self.len.store(len + line.len(), Ordering::Release);
        }
    }
}

/// In the thread that ends the process: what our thread could not say.
pub(crate) fn what_is_unsaid() {
    let len = UNSAID.len.load(Ordering::Acquire);
    if len > 0 {
        // SAFETY: so many were written before the length was, and are not written again.
        let lines = unsafe { std::slice::from_raw_parts(UNSAID.bytes.get().cast::<u8>(), len) };
        bytes(lines);
    }
}

/// In a forked child: what its parent has to say, its parent says.
pub(crate) fn after_fork() {
    UNSAID.len.store(0, Ordering::Relaxed);
}

macro_rules! say {
    ($($words:tt)*) => { $crate::os::diagnostics::line(format_args!($($words)*)) };
}
pub(crate) use say;
