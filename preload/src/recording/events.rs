//! Events: what the hooks tell the writer, beside the samples in the lanes.
//!
//! Glossary: note.

use heapprof_format::WalkEnd;

use crate::os::clock::Ticks;

/// An event that is too rare for a lane.
pub(crate) enum SideEvent {
    Thread {
        number: u32,
        tid: u32,
        /// The thread's name now, in case the thread has ended before the writer asks for it.
        name: [u8; 16],
    },
    Note(Box<Note>),
}

/// A note: an event that is neither an allocation nor a free, and has its place among them in the
/// log.
pub(crate) struct Note {
    pub(crate) at: Ticks,
    pub(crate) kind: NoteKind,
}

/// A change of the program's mappings, as a hook sends it. It takes no memory, since an allocator
/// may be the caller.
#[derive(Clone, Copy)]
pub(crate) struct MappingEvent {
    pub(crate) at: Ticks,
    /// The first address, or the descriptor of a thread that was made.
    pub(crate) start: u64,
    /// Bytes, or [`OF_THREAD`](Self::OF_THREAD).
    pub(crate) len: u64,
    /// Hash of the stack; 0: the range was unmapped, or is not recorded.
    pub(crate) stack: u64,
    pub(crate) thread: u32,
}

impl MappingEvent {
    /// The length that no range has: the event is about a thread, whose stack libc has mapped.
    pub(crate) const OF_THREAD: u64 = 0;
}

pub(crate) enum NoteKind {
    /// A named moment.
    Marker(String),
    /// The interval in force from here on, in bytes; 0 if recording is stopped.
    Regime(u64),
    /// A change of the program's mappings.
    Mapping(MappingEvent),
}

/// The longest name of a marker, and reason of a dump, in bytes: a line of a table, not a text.
const MAX_NAME: usize = 1000;

/// Returns the name of a marker, or the reason of a dump, from the program's bytes. A longer one is
/// cut between two characters.
pub(crate) fn name_of(bytes: &[u8]) -> String {
    // With the rest of a character that begins within the limit.
    let bytes = &bytes[..bytes.len().min(MAX_NAME + 3)];
    let mut name = String::from_utf8_lossy(bytes).into_owned();
    let end = (0..=name.len().min(MAX_NAME)).rfind(|&end| name.is_char_boundary(end));
    name.truncate(end.unwrap_or(0));
    name
}

/// The end of a sampled block.
#[derive(Clone, Copy)]
pub(crate) struct FreeEvent {
    pub(crate) at: Ticks,
    pub(crate) id: u64,
    pub(crate) thread: u32,
}

/// A stack that the writer does not have, without the frames of the callers.
pub(crate) struct NewStack<'a> {
    /// Hash of the frames, the end and the labels.
    pub(crate) hash: u64,
    pub(crate) end: WalkEnd,
    /// A PC inside the exported function.
    pub(crate) entry: u64,
    /// The words of the labels.
    pub(crate) labels: &'a [u64],
}

const _: () = assert!(size_of::<SideEvent>() <= 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        assert_eq!(name_of(b"deploy"), "deploy");
        let long = "\u{20ac}".repeat(400); // of three bytes each
        assert_eq!(name_of(long.as_bytes()), long[..999]);
        let whole = "x".repeat(999) + "\u{e9}";
        assert_eq!(name_of(whole.as_bytes()), whole[..999]);
        assert_eq!(name_of(&[0xff; 500]).len(), 999);
    }
}
