//! What heapprof leaves on disk: the record log (`*.heaplog`) and the dumps (`*.heap`); and the page that `heapprof ctl` shares with
//! a running program ([`ControlPage`]).
//!
//! You give [`Encoder`] the records of one flush and get the bytes of one *frame* to append to the
//! file; you give [`Reader`] the bytes of a file and get the records back, in order, up to the end
//! or up to the first byte that cannot be trusted. Both sides live in this crate so that neither
//! can drift from the other. Nothing here opens a file, reads a clock or looks at the process.
//!
//! # The file
//!
//! ```text
//! "heaplog" version:u8                          8 bytes, once
//! frame*                                        appended, never rewritten
//!
//! frame = magic:u32 length:u32 crc:u32 sequence:u32   little endian, 16 bytes
//!         payload                                     `length` bytes; crc32 of sequence and payload
//! payload = base_time:varint record*
//! ```
//!
//! A frame is decoded from its own bytes alone: deltas start anew in each. So a torn tail costs the
//! tail, and a damaged frame costs that frame: the reader can go on at the next magic.
//!
//! Files that continue each other (the segments of a rotated log, each beginning with a [`Checkpoint`]) are
//! one log when put behind each other.
//!
//! # What a record costs
//!
//! The two records there are millions of, [`Alloc`] and [`Free`], take mostly six and two to
//! four bytes: one byte holds the kind, whether the thread changed, and a time step of up to 30
//! microseconds; ids are deltas to the id before, and that of an allocation is mostly the next ([`Usual`]). Everything
//! else is a tag, a length and a body, so a reader skips what it does not know: new kinds of
//! record do not need a new version, changed meanings of old ones do.
#![forbid(unsafe_code)]

mod body;
mod checkpoint;
mod control;
mod dump;
mod frame;
mod log;
mod read;
mod read_error;
mod record;
mod segments;
mod thread_status;
mod varint;

pub use body::TIME_UNIT_NS;
pub use checkpoint::{Checkpoint, Passed, Sums};
pub use control::{CONTROL_PAGE_LEN, ControlPage, MAX_CONTROL_COMMAND, WRITER_AWAKE};
pub use dump::{
    Dump, DumpError, DumpErrorKind, DumpLine, DumpNumbers, DumpText, MAX_FRAMES, Mapping, Sampling,
    Symbols,
};
pub use frame::{
    FILE_HEADER, FILE_HEADER_LEN, FRAME_HEADER_LEN, MAX_FRAME_LEN, OLDEST_VERSION, VERSION,
};
pub use log::{Encoder, Usual};
pub use read::Reader;
pub use read_error::{ReadError, ReadErrorKind};
pub use record::{
    Alloc, Counter, EXECUTED_AS, EndReason, Event, FORKED_AT, Free, MAX_STACK_FRAMES, Module,
    PARENT_LOG, Process, Record, Segment, Stack, Start, Thread, WalkEnd,
};
pub use segments::SegmentStart;
pub use thread_status::thread_name_in;
