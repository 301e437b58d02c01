//! Diagnostics: what this library has to tell, in single lines.
//!
//! Glossary: notice.
//!
//! A line goes to the log as a notice, where readers show it beside the numbers ([`notice`]).
//! Standard error belongs to the program: a line there in the middle of a run breaks other
//! programs' tests. It has what cannot be told elsewhere ([`say`]), notices that no log has taken
//! when the process ends, and all notices if `HEAPPROF_VERBOSE` is set.
//!
//! Descriptor 2 may stop being standard error. A program may close it and open a file of its own
//! under the number, and must not find our line there. So boot remembers the file, and lines go to
//! no other file.
//!
//! Our thread may be unable to reach standard error. Its lines are kept then, and the thread that
//! ends the process prints them.

use std::cell::UnsafeCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

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

/// True if there is a log that takes notices.
static HAS_LOG: AtomicBool = AtomicBool::new(false);
/// `HEAPPROF_VERBOSE`.
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// At boot: notices are printed, too.
pub(crate) fn be_verbose() {
    IS_VERBOSE.store(true, Ordering::Relaxed);
}

/// Returns true if notices are printed, too.
pub(crate) fn is_verbose() -> bool {
    IS_VERBOSE.load(Ordering::Relaxed)
}

/// A log begins that takes notices, or ends.
pub(crate) fn set_has_log(has_log: bool) {
    HAS_LOG.store(has_log, Ordering::Release);
}

/// Most bytes of a notice. The rest is cut off.
const NOTICE_BYTES: usize = 512;

/// A place for a notice on its way to the log.
///
/// ```text
///  FREE ──> WRITING ──> READY ──> TAKEN ──> FREE
///     any thread           the writer, or the thread that ends the process
/// ```
struct Notice {
    state: AtomicU8,
    len: UnsafeCell<usize>,
    text: UnsafeCell<[u8; NOTICE_BYTES]>,
}

const FREE: u8 = 0;
const WRITING: u8 = 1;
const READY: u8 = 2;
const TAKEN: u8 = 3;

// SAFETY: only the thread that moved the state to WRITING or TAKEN uses the text and its length.
unsafe impl Sync for Notice {}

/// More than a process notes before the writer comes round.
static NOTICES: [Notice; 16] = [const {
    Notice {
        state: AtomicU8::new(FREE),
        len: UnsafeCell::new(0),
        text: UnsafeCell::new([0; NOTICE_BYTES]),
    }
}; 16];

impl Notice {
    /// Moves the state. Returns true if it was `from`: the text is this thread's now.
    fn moves(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Passes the text of a notice that is ready to `work`.
    fn take(&self, work: impl FnOnce(&str)) {
        if self.moves(READY, TAKEN) {
            // SAFETY: the text is this thread's, by the move; so many bytes were written.
            let text = unsafe { (&*self.text.get()).get(..*self.len.get()) };
            let text = text.and_then(|text| std::str::from_utf8(text).ok());
            work(text.unwrap_or_default());
            self.state.store(FREE, Ordering::Release);
        }
    }
}

/// A notice under construction.
struct Text<'a> {
    place: &'a mut [u8; NOTICE_BYTES],
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, words: &str) -> std::fmt::Result {
        for each in words.chars() {
            let mut bytes = [0; 4];
            let bytes = printable(each).encode_utf8(&mut bytes).as_bytes();
            let end = self.len + bytes.len();
            let place = self.place.get_mut(self.len..end).ok_or(std::fmt::Error)?;
            place.copy_from_slice(bytes);
            self.len = end;
        }
        Ok(())
    }
}

/// Puts a notice into the log if there is one; otherwise prints it on standard error.
pub(crate) fn put_notice(words: std::fmt::Arguments<'_>) {
    if HAS_LOG.load(Ordering::Acquire) {
        put_notice_for_next_log(words);
    } else {
        line(words);
    }
}

/// The same while the log is still to be made. Nothing is allocated.
pub(crate) fn put_notice_for_next_log(words: std::fmt::Arguments<'_>) {
    if is_verbose() {
        line(words);
    }
    let Some(notice) = NOTICES.iter().find(|notice| notice.moves(FREE, WRITING)) else {
        return line(words);
    };
    // SAFETY: the text and its length are this thread's, by the move.
    let (place, len) = unsafe { (&mut *notice.text.get(), &mut *notice.len.get()) };
    let mut text = Text { place, len: 0 };
    let _ = text.write_fmt(words); // what does not fit is cut off
    *len = text.len;
    notice.state.store(READY, Ordering::Release);
}

/// Returns true if a notice waits for the log.
pub(crate) fn has_notices() -> bool {
    let mut states = NOTICES.iter().map(|it| it.state.load(Ordering::Relaxed));
    states.any(|state| state == READY)
}

/// Passes each notice that waits to `work`.
pub(crate) fn take_notices(mut work: impl FnMut(&str)) {
    for notice in &NOTICES {
        notice.take(&mut work);
    }
}

/// In the thread that ends the process: prints the notices that no log has taken.
#[cold]
pub(crate) fn print_notices() {
    let is_printed = is_verbose();
    take_notices(|text| {
        if !is_printed {
            line(format_args!("{text}"));
        }
    });
}

/// In a forked child: discards the parent's lines and notices, which the parent tells.
pub(crate) fn after_fork() {
    KEPT.len.store(0, Ordering::Relaxed);
    HAS_LOG.store(false, Ordering::Relaxed);
    for notice in &NOTICES {
        notice.state.store(FREE, Ordering::Relaxed);
    }
}

macro_rules! say {
    ($($words:tt)*) => { $crate::os::diagnostics::line(format_args!($($words)*)) };
}
macro_rules! notice {
    ($($words:tt)*) => { $crate::os::diagnostics::put_notice(format_args!($($words)*)) };
}
pub(crate) use {notice, say};
