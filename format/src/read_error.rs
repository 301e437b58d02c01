//! Errors of a log, with their offset.

use std::fmt;

use crate::frame::VERSION;

/// The reason why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadError {
    /// Offset in the file of the byte or frame that cannot be read.
    pub offset: u64,
    /// The fault.
    pub kind: ReadErrorKind,
}

/// A fault in the bytes of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadErrorKind {
    /// The file is empty.
    Empty,
    /// The file does not begin as a heapprof log does.
    NotALog,
    /// The log has a version that this reader does not know.
    Version(u8),
    /// The file ends inside a frame: the writer was cut off there.
    TornTail,
    /// A frame should begin here and does not.
    NoFrame,
    /// The frame's checksum does not match.
    Checksum,
    /// A record inside an intact frame makes no sense: a writer's fault, or another version's.
    Record,
    /// Another log begins there that does not continue this one.
    NotContinued,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ReadErrorKind::Empty => write!(f, "the file is empty"),
            ReadErrorKind::NotALog => write!(f, "not a heapprof log (its first bytes are foreign)"),
            ReadErrorKind::Version(v) => write!(
                f,
                "log format version {v}, and this heapprof reads version {VERSION}; the heapprof that came with the library that wrote it reads it"
            ),
            ReadErrorKind::TornTail => {
                write!(f, "the log is cut off at offset {}", self.offset)
            }
            ReadErrorKind::NoFrame => write!(f, "no frame begins at offset {}", self.offset),
            ReadErrorKind::Checksum => {
                write!(
                    f,
                    "checksum mismatch in the frame at offset {}",
                    self.offset
                )
            }
            ReadErrorKind::Record => write!(f, "malformed record at offset {}", self.offset),
            ReadErrorKind::NotContinued => write!(
                f,
                "another log begins at offset {}, which does not continue this one",
                self.offset
            ),
        }
    }
}

impl std::error::Error for ReadError {}
