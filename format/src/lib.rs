//! heapprof's files: the record log (`*.heaplog`) and the dumps (`*.heap`); and the page that
//! `heapprof ctl` shares with a running program ([`ControlPage`]), and the words by which `heapprof
//! attach` agrees with its library ([`AttachBlock`]).
//!
//! [`Encoder`] takes the records of one flush and returns the bytes of one *frame*, to be appended
//! to the file. [`Reader`] takes the bytes of a file and returns the records in order, up to the
//! end or the first byte that cannot be trusted. Both sides live in this crate, so that neither can
//! drift from the other. The crate opens no file, reads no clock and does not look at the process.
//! docs/glossary.md defines the words that are this project's own.
//!
//! # The file
//!
//! ```text
//! "heaplog" version:u8                          8 bytes, once
//! frame*                                        appended, never rewritten
//!
//! frame = magic:u32 length:u32 crc:u32 sequence:u32   little endian, 16 bytes
//!         payload                                     `length` bytes; crc32 covers sequence, too
//! payload = base_time:varint record*
//! ```
//!
//! A frame is decoded from its own bytes alone: deltas start again in each frame. So a torn tail
//! costs the tail, and a damaged frame costs that frame: the reader continues at the next magic.
//!
//! Files that continue each other (the segments of a rotated log, each beginning with a
//! [`Checkpoint`]) are one log when they are concatenated.
//!
//! # What a record costs
//!
//! The two frequent records, [`Alloc`] and [`Free`], mostly take six and two to four bytes. One
//! byte holds the kind, whether the thread changed, and a short time step. Ids are deltas to the id
//! before, and an allocation mostly has the next id ([`Usual`]).
//!
//! Every other record is a tag, a length and a body, so a reader skips unknown records. New kinds
//! of records need no new version; a changed meaning of an old kind does.
#![forbid(unsafe_code)]

mod attach_block;
mod body;
mod checkpoint;
mod coarse_moment;
mod code;
mod control;
mod dump;
mod end_frame;
mod field;
mod frame;
mod harmless;
mod log;
mod mapped_memory;
mod memory_reading;
mod page_reading;
mod process_context;
mod read;
mod read_error;
mod record;
mod segments;
mod thread_status;
mod varint;

pub use attach_block::{
    ATTACH_BLOCK_SYMBOL, ATTACH_DESCRIPTORS, ATTACH_JUMP, ATTACH_LIBRARY, ATTACH_MAGIC,
    ATTACH_SYMBOL, AttachBlock, AttachBlockView, AttachInput, AttachPatch, COUNTDOWN_LEN,
    MOST_ATTACH_PATCHES, attach_state,
};
pub use checkpoint::{Checkpoint, Passed, Sums};
pub use coarse_moment::CoarseMoment;
pub use code::{
    CODE_LEN, Code, LineTableKind, MAX_LINE_TABLE, NO_INSTRUCTION, code_address, code_start,
    is_code_address,
};
pub use control::{CONTROL_PAGE_LEN, ControlPage, MAX_CONTROL_COMMAND, WRITER_AWAKE};
pub use dump::{
    Dump, DumpError, DumpErrorKind, DumpLine, DumpNumbers, DumpText, MAX_FRAMES, Mapping, Sampling,
    Symbols,
};
pub use end_frame::EndFrame;
pub use field::TIME_UNIT_NS;
pub use frame::{
    FILE_HEADER, FILE_HEADER_LEN, FRAME_HEADER_LEN, MAX_FRAME_LEN, VERSION, frame_end,
};
pub use harmless::is_harmless;
pub use log::{Encoder, Usual};
pub use mapped_memory::{MappedMemory, MappedPart, MappingChange};
pub use memory_reading::{MemoryField, MemoryReading};
pub use page_reading::{PageReading, PagesOfBlock, Slab, Touch};
pub use process_context::ProcessContext;
pub use read::Reader;
pub use read_error::{ReadError, ReadErrorKind};
pub use record::{
    ALLOCATOR, ANY_LABEL, ATTACHED, Alloc, Counter, EMPTY_LOGS, EXECUTED_AS, EndReason, Event,
    FOLDED_LABEL, FORKED_AT, FileStamp, Free, MAX_LABELS, MAX_STACK_FRAMES, Module, PARENT_LOG,
    Process, Record, SLACK_UNKNOWN, SPAN_ID, Segment, Stack, Start, TAPPED, TAPPED_LATER, TITLE,
    TRACE_ID, Thread, WalkEnd,
};
pub use segments::SegmentStart;
pub use thread_status::thread_name_in;
