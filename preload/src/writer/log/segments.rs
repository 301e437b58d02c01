//! The segments of a log that rotates: their files, and how many bytes they may take.
//!
//! ```text
//!   <base>.heaplog         the newest, to which is appended; the name that people open
//!   <base>.0001.heaplog    ┐ older ones; their order is in them, not in their names
//!   <base>.0002.heaplog    ┘
//! ```
//!
//! A new segment is written under the next number, checkpoint and all, and when it is whole it changes names
//! with the newest, in one step: whenever the process is killed, `<base>.heaplog` is there and whole, and what is
//! there under a number is a segment, or the unfinished beginning of one, which a reader tells by its missing
//! end. The oldest go when there would otherwise be more bytes than allowed.
//!
//! How large a segment becomes: a quarter of what is allowed, so that some past is always there; and twice its own
//! checkpoint, so that checkpoints are at most half of what is written. Both fit in the bound as long as
//! a checkpoint is less than a third of it; beyond that the bound is three checkpoints, which is said.

use std::collections::VecDeque;

use heapprof_format::MAX_FRAME_LEN;

use crate::os::diagnostics::say;
use crate::os::fd_table;
use crate::os::files::{self, AppendError, Appended};
use crate::os::sys::Errno;

/// A frame is ended at so many bytes, however many are allowed: readers take one beyond the format's limit for damage.
const LONGEST_FRAME: u64 = 1 << 20;
const _: () = assert!(LONGEST_FRAME <= MAX_FRAME_LEN as u64 / 16);

/// See the module's text.
pub(crate) struct Segments {
    /// `HEAPPROF_MAX_LOG`.
    most: u64,
    /// Number of the segment that is appended to, from 1.
    pub(crate) number: u32,
    /// Bytes in all segments that were ever closed.
    pub(crate) bytes_before: u64,
    /// Closed ones that are kept, the oldest first.
    closed: VecDeque<Appended>,
    closed_bytes: u64,
    /// Number in the next file's name.
    name: u32,
    said_small: bool,
}

impl Segments {
    pub(crate) fn new(most: u64) -> Segments {
        Segments {
            most,
            number: 1,
            bytes_before: 0,
            closed: VecDeque::new(),
            closed_bytes: 0,
            name: 1,
            said_small: false,
        }
    }

    /// A frame is at most about that long.
    pub(crate) fn frame_bytes(&self) -> usize {
        (self.most / 16).min(LONGEST_FRAME) as usize
    }

    /// Most bytes of all segments together, with checkpoints of that size.
    fn bound(&self, checkpoint: u64) -> u64 {
        self.most.max(checkpoint.saturating_mul(3))
    }

    /// Whether a segment of that length is to be followed by another.
    pub(crate) fn is_full(&self, len: u64, checkpoint: u64) -> bool {
        len >= (self.bound(checkpoint) / 4).max(checkpoint.saturating_mul(2))
    }

    /// Says once that checkpoints of that size do not fit.
    pub(crate) fn warn_if_small(&mut self, checkpoint: u64) {
        let bound = self.bound(checkpoint);
        if bound > self.most && !self.said_small {
            self.said_small = true;
            say!(
                "HEAPPROF_MAX_LOG={}: the blocks in use and the stacks alone take {checkpoint} bytes of log; \
                 it takes up to {bound} bytes, and more as they grow",
                self.most
            );
        }
    }

    /// Deletes the oldest segments until there is room for so many bytes beside the `current` ones.
    pub(crate) fn make_room(&mut self, current: u64, bytes: u64, checkpoint: u64) {
        let bound = self.bound(checkpoint);
        while self.closed_bytes + current + bytes > bound && self.drop_oldest() {}
    }

    /// Deletes the oldest closed segment. False: there is none.
    pub(crate) fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.closed.pop_front() else {
            return false;
        };
        self.closed_bytes -= oldest.len();
        let path = oldest.path();
        if !oldest.remove() {
            if oldest.is_there() {
                say!("{path} cannot be deleted, and stays");
            } else if files::exists(path.as_bytes()) {
                say!("{path} is no longer ours, and stays");
            }
        }
        true
    }

    /// Makes the file of the next segment, of the log at `base`.
    pub(crate) fn create(&mut self, base: &[u8]) -> Result<Appended, Errno> {
        loop {
            let name = format!(".{:04}.heaplog", self.name);
            let made = Appended::create(&[base, name.as_bytes()].concat());
            match made {
                // Somebody else's: leave it, take the next number.
                Err(Errno(libc::EEXIST)) if self.name < 1_000_000_000 => self.name += 1,
                made => {
                    if made.is_ok() {
                        self.name += 1;
                    }
                    return made;
                }
            }
        }
    }

    /// `next`, which is whole, becomes the segment that is appended to, in place of `current`.
    pub(crate) fn close(
        &mut self,
        current: &mut Appended,
        mut next: Appended,
    ) -> Result<(), (Appended, AppendError)> {
        // Before it has the name by which others move it away.
        if fd_table::are_own() {
            next.hold();
        }
        if let Err(error) = next.take_name_of(current) {
            return Err((next, error));
        }
        let mut closed = std::mem::replace(current, next);
        closed.let_go();
        self.number += 1;
        self.bytes_before += closed.len();
        // One that somebody has moved away is not ours to count, or to delete.
        if closed.path() != current.path() {
            self.closed_bytes += closed.len();
            self.closed.push_back(closed);
        }
        Ok(())
    }
}
