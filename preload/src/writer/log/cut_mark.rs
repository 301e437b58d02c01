//! Cut mark: an end of the log that the writer did not write, because the process ended before it
//! was done. A reader learns from it that the last records are missing.
//!
//! Glossary: cut mark.
//!
//! ```text
//!               Pen::take            put
//!  writer  IDLE ────────> WRITING    IDLE ──> CUT   thread that ends the process
//!            <─────────── drop
//! ```
//!
//! Only one of the two writes to the log: the writer while it has the pen, or the ending thread,
//! after which there is no pen any more. A writer that is stuck in a write keeps the pen, and there
//! is no mark: the ending thread would wait for the same disk.
//!
//! The ending thread takes no memory for the mark: it may have interrupted an allocator.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use heapprof_format::{EndFrame, EndReason};

use crate::os::backoff::Backoff;
use crate::os::clock;
use crate::os::files::AppendFile;

const IDLE: u8 = 0;
const WRITING: u8 = 1;
const CUT: u8 = 2;

static HAND: AtomicU8 = AtomicU8::new(IDLE);

/// True if the log has an end.
static IS_COMPLETE: AtomicBool = AtomicBool::new(false);

/// Path of the log, leaked. Null: there is none.
static PATH: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
/// Zero of the log's times.
static START_NS: AtomicU64 = AtomicU64::new(0);
/// Device, inode and length of the log's file. Moved by the holder of the pen, as is the next.
static FILE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Sequence number of the log's next frame.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);

/// The right to write to the log.
pub(crate) struct Pen(());

impl Pen {
    /// Takes the pen. `None`: the process ends, and the log with it.
    pub(crate) fn take() -> Option<Pen> {
        HAND.compare_exchange(IDLE, WRITING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(Pen(()))
    }

    /// Notes how the log is now, and the sequence number of its next frame.
    pub(crate) fn note(&self, log: &AppendFile, sequence: u32) {
        for (place, value) in FILE.iter().zip(log.identity()) {
            place.store(value, Ordering::Relaxed);
        }
        SEQUENCE.store(sequence, Ordering::Relaxed);
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        HAND.store(IDLE, Ordering::Release);
    }
}

/// A log begins.
pub(crate) fn begin(path: &CStr, start_ns: u64) {
    START_NS.store(start_ns, Ordering::Relaxed);
    IS_COMPLETE.store(false, Ordering::Relaxed);
    PATH.store(CString::from(path).into_raw(), Ordering::Release);
}

/// For the writer: the log has its end.
pub(crate) fn is_not_needed() {
    IS_COMPLETE.store(true, Ordering::Release);
}

/// In the thread that ends the process: the writer is not done. Returns true if there is a log
/// without an end. It has a mark then, if there can be one. Waits for the pen as long as `patience`
/// lasts.
pub(crate) fn put(mut patience: Backoff) -> bool {
    let path = PATH.load(Ordering::Acquire);
    if path.is_null() || IS_COMPLETE.load(Ordering::Acquire) {
        return false;
    }
    let take = || {
        let taken = HAND.compare_exchange(IDLE, CUT, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    };
    let mut has_hand = take();
    while !has_hand && !IS_COMPLETE.load(Ordering::Acquire) && patience.pause() {
        has_hand = take();
    }
    // Once more: the writer may have had the pen for the end.
    if IS_COMPLETE.load(Ordering::Acquire) {
        return false;
    }
    if has_hand {
        let [device, inode, len] = FILE.each_ref().map(|part| part.load(Ordering::Relaxed));
        let time_ns = clock::now_ns().saturating_sub(START_NS.load(Ordering::Relaxed));
        let sequence = SEQUENCE.load(Ordering::Relaxed);
        let frame = EndFrame::new(sequence, time_ns, EndReason::Cut);
        // SAFETY: a C string that `begin` leaked.
        let path = unsafe { CStr::from_ptr(path) };
        // If the write fails, a reader sees a log without an end.
        let _ = AppendFile::append_to(path, [device, inode, len], frame.bytes());
    }
    true
}

/// In a forked child: it has no log yet.
pub(crate) fn after_fork() {
    PATH.store(std::ptr::null_mut(), Ordering::Relaxed);
    IS_COMPLETE.store(false, Ordering::Relaxed);
    HAND.store(IDLE, Ordering::Relaxed);
}
