//! Segments: the files of a rotating log, and how many bytes they may take.
//!
//! ```text
//!   <base>.heaplog         the newest, to which is appended; the name that people open
//!   <base>.0001.heaplog    ┐ older ones; the order is in their content, not in their names
//!   <base>.0002.heaplog    ┘
//! ```
//!
//! A new segment is written under the next number. When its checkpoint is complete, it changes
//! names with the newest segment, in one step. So `<base>.heaplog` is whole whenever the process is
//! killed. A file with a number is a segment, or the unfinished beginning of one, which a reader
//! recognises by its missing end. The oldest segments are deleted to stay within the bound.
//!
//! A segment has a quarter of the bound, so that some past is always there. It also has at least
//! twice its own checkpoint, so that checkpoints are at most half of what is written. Both fit as
//! long as a checkpoint is less than a third of the bound. Beyond that the bound is three
//! checkpoints, which is reported.

use std::collections::VecDeque;

use heapprof_format::MAX_FRAME_LEN;

use crate::os::diagnostics::notice;
use crate::os::fd_table;
use crate::os::files::{self, AppendError, AppendFile};
use crate::os::sys::Errno;

/// The most bytes of a frame, whatever the bound: readers take a frame beyond the format's limit
/// for damage.
const LONGEST_FRAME: u64 = 1 << 20;
const _: () = assert!(LONGEST_FRAME <= MAX_FRAME_LEN as u64 / 16);

/// The segments of one log. See the module's text.
pub(crate) struct Segments {
    /// The bound, `HEAPPROF_MAX_LOG`.
    bound_bytes: u64,
    /// The number of the segment that is appended to, from 1.
    pub(crate) number: u32,
    /// The bytes of all segments that were ever closed.
    pub(crate) bytes_before: u64,
    /// The closed segments that exist, the oldest first.
    closed: VecDeque<AppendFile>,
    closed_bytes: u64,
    /// The number in the next file's name.
    file_number: u32,
    is_warned: bool,
}

impl Segments {
    /// The bound of a log that has none.
    pub(crate) const NO_BOUND: u64 = u64::MAX;

    pub(crate) fn new(bound_bytes: u64) -> Segments {
        Segments {
            bound_bytes,
            number: 1,
            bytes_before: 0,
            closed: VecDeque::new(),
            closed_bytes: 0,
            file_number: 1,
            is_warned: false,
        }
    }

    /// Returns the length at which a frame ends.
    pub(crate) fn frame_bytes(&self) -> usize {
        (self.bound_bytes / 16).min(LONGEST_FRAME) as usize
    }

    /// Returns the most bytes of all segments together, with checkpoints of that size.
    fn bound(&self, checkpoint: u64) -> u64 {
        self.bound_bytes.max(checkpoint.saturating_mul(3))
    }

    /// Returns true if a segment of that length must be followed by another.
    pub(crate) fn is_full(&self, len: u64, checkpoint: u64) -> bool {
        len >= (self.bound(checkpoint) / 4).max(checkpoint.saturating_mul(2))
    }

    /// Reports, once, that checkpoints of that size do not fit.
    pub(crate) fn warn_if_small(&mut self, checkpoint: u64) {
        let bound = self.bound(checkpoint);
        if bound > self.bound_bytes && !self.is_warned {
            self.is_warned = true;
            notice!(
                "HEAPPROF_MAX_LOG={}: the blocks in use and the stacks alone take {checkpoint} bytes of log; \
                 it takes up to {bound} bytes, and more as they grow",
                self.bound_bytes
            );
        }
    }

    /// Deletes the oldest segments until there is room for so many bytes beside the `current` ones.
    pub(crate) fn make_room(&mut self, current: u64, bytes: u64, checkpoint: u64) {
        let bound = self.bound(checkpoint);
        while self.closed_bytes + current + bytes > bound && self.drop_oldest() {}
        // Stacks that are ever new make each checkpoint as large as the log: no segment is begun.
        if self.closed_bytes + current + bytes > self.bound_bytes {
            self.warn_if_small(checkpoint);
        }
    }

    /// Leaves a number out, for a segment that does not continue the one before.
    pub(crate) fn skip_number(&mut self) {
        self.number += 1;
    }

    /// Deletes the oldest closed segment. False: there is none, or the log has no bound.
    pub(crate) fn drop_oldest(&mut self) -> bool {
        if self.bound_bytes == Segments::NO_BOUND {
            return false;
        }
        let Some(oldest) = self.closed.pop_front() else {
            return false;
        };
        self.closed_bytes -= oldest.len();
        let path = oldest.path();
        if !oldest.remove() {
            if oldest.is_there() {
                notice!("{path} cannot be deleted, and stays");
            } else if files::exists(path.as_bytes()) {
                notice!("{path} is no longer ours, and stays");
            }
        }
        true
    }

    /// Makes the file of the next segment, of the log at `base`.
    pub(crate) fn create(&mut self, base: &[u8]) -> Result<AppendFile, Errno> {
        loop {
            let ending = format!(".{:04}.heaplog", self.file_number);
            let made = AppendFile::create(&[base, ending.as_bytes()].concat());
            match made {
                // The file belongs to another program: keep it, and take the next number.
                Err(Errno(libc::EEXIST)) if self.file_number < 1_000_000_000 => {
                    self.file_number += 1
                }
                made => {
                    if made.is_ok() {
                        self.file_number += 1;
                    }
                    return made;
                }
            }
        }
    }

    /// Makes `next`, which is whole, the segment that is appended to, in place of `current`.
    pub(crate) fn close(
        &mut self,
        current: &mut AppendFile,
        mut next: AppendFile,
    ) -> Result<(), (AppendFile, AppendError)> {
        // First: under its new name, other programs may move it away.
        if fd_table::is_separate() {
            next.hold();
        }
        if let Err(error) = next.take_name_of(current) {
            return Err((next, error));
        }
        let mut closed = std::mem::replace(current, next);
        closed.let_go();
        self.number += 1;
        self.bytes_before += closed.len();
        // A segment that another program has moved away is not counted, and never deleted.
        if closed.path() != current.path() {
            self.closed_bytes += closed.len();
            self.closed.push_back(closed);
        }
        Ok(())
    }
}
