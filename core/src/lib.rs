//! The arithmetic of heapprof: the code that both the profiled process and the offline programs
//! run.
//!
//! This crate opens no file, reads no clock, ignores the environment and maps no memory: the caller
//! passes time, randomness and memory in. So every component runs under a test, a fuzzer or miri.
//! The two users cannot disagree: the writer inside the process and the reader of a log fold events
//! with the same [`Ledger`], and weigh samples with the same [`Weight`]. docs/glossary.md defines
//! the words that are this project's own.
//!
//! Components that run for every allocation or free:
//!
//! - [`Sampler`] decides with one subtraction whether a block is sampled.
//! - [`BloomFilter`] tells with one load that an address has no sample.
//!
//! Components that run for sampled blocks:
//!
//! - [`SampleTable`] maps the address of a live block to its sample.
//! - [`Memos`] holds the cached walks of recent call sites.
//! - [`Memo`] finds the frames that a walk has in common with a cached one.
//! - [`Words`] are the stack words that validate a cached walk.
//! - [`Rules`] caches the unwind rule of each return address.
//! - [`find_epilogue`] derives a rule from a function's code if there are no unwind tables.
//! - [`StackHasher`] and [`StackSet`] identify a stack and tell whether the writer has it.
//! - [`StackLane`] sends the frames of an unknown stack to the writer.
//! - [`Lane`] sends samples and frees to the writer.
//!
//! Components that run for sampled blocks of Python programs:
//!
//! - [`PythonLayout`] knows where the fields of the interpreter's structures are.
//! - [`python_frames`] reads the Python frames of a thread, and [`Merged`] puts them between the
//!   native ones.
//! - [`read_code`] reads what a code object says of itself, for the writer.
//!
//! Components that run when an allocator is tapped:
//!
//! - [`EntryPatch`] plans a jump at a function's entry, and moves the replaced instructions.
//!
//! Components that run in the writer or in the reader:
//!
//! - [`Budget`] adapts the interval to a limit of samples a second.
//! - [`Merge`] orders the events of all lanes.
//! - [`Timeline`] converts the processor's counter to nanoseconds.
//! - [`RateLimit`] limits the rate of requests.
//! - [`Pace`] estimates the least time for the rest of a dump, at the program's end.
//! - [`Allowance`] decides how long the program's end waits for the writer.
//! - [`Weight`] is the estimate that one sample contributes.
//! - [`Estimate`] sums weights, with a standard error.
//! - [`Trend`] tells whether a growth is more than noise, and matters.
//! - [`Ledger`] keeps the totals by stack and size class.
//! - [`CoarseHistory`] keeps the bytes in use of a whole run, at moments.
//! - [`Cgroup`] finds the memory cgroup of a process, and [`number_of`] reads the kernel's texts.
//! - [`BlockPages`] divides blocks by the state of their pages.
//! - [`AddressMap`] keeps which mapping an address belongs to.
//! - [`CpuShare`] spaces costly readings, and [`LimitAlarm`] tells shares of a memory limit once.
//! - [`Waterfall`] divides the resident memory into lines that add up to it.
//!
//! [`nearest_name`] finds the name of a setting that a misspelt one means. [`byte_number`] reads
//! the bytes in `1.5GiB`.
//!
//! [`seccomp_bpf`] evaluates a seccomp filter before the program installs it.
//!
//! The folders and files, from the bottom up: `primitive`, `tables`, `sampling`, then `unwind`,
//! `lanes`, `ledger`, `coarse_history`, `memory`, `python`, `pace`, `allowance`, `rate_limit`,
//! `spelling` and `byte_number` beside each other, `arch`, `seccomp_bpf`. `scripts/check-layers`
//! keeps this order.
#![forbid(unsafe_code)]

mod allowance;
mod arch;
mod byte_number;
mod coarse_history;
mod lanes;
mod ledger;
mod memory;
mod pace;
mod primitive;
mod python;
mod rate_limit;
mod sampling;
pub mod seccomp_bpf;
mod spelling;
mod tables;
mod unwind;

pub use allowance::{Allowance, ThreadProgress};
pub use arch::{EntryPatch, Epilogue, Refusal, Unmovable, find_epilogue};
pub use byte_number::{NoByteNumber, byte_number};
pub use coarse_history::{CoarseEntry, CoarseHistory, LargestStacks, StackSums};
pub use lanes::event::{
    EndedSample, Event, Freed, LastSample, NextSample, NoUsualSink, Origin, Sampled, Sink,
    UsualSink,
};
pub use lanes::lane::{LANES, Lane};
pub use lanes::merge::Merge;
pub use lanes::stack_lane::{SentStack, StackLane};
pub use lanes::timeline::{ClockReading, Scale, Timeline};
pub use ledger::{Block, Ledger, Live, Row, Totals};
pub use memory::address_map::AddressMap;
pub use memory::block_pages::{BlockPages, PageState, PlacedBlock};
pub use memory::cgroup::{Cgroup, CgroupVersion};
pub use memory::cpu_share::CpuShare;
pub use memory::detail_baseline::{DetailBaseline, DetailChanges, RecordedBytes};
pub use memory::kernel_text::{limit_in, number_of, only_number};
pub use memory::limit_alarm::LimitAlarm;
pub use memory::waterfall::{EstimatedBlocks, MemoryPart, Waterfall, WaterfallLine};
pub use pace::Pace;
pub use python::code::{MOST_CODE_WORDS, code_of_words, read_code};
pub use python::layout::{
    DEBUG_OFFSETS_WORDS, Layout as PythonLayout, NEWEST_PYTHON, OLDEST_PYTHON,
};
pub use python::memory::Memory;
pub use python::walk::{
    MOST_PYTHON_FRAMES, Merged, NativeFrame, PythonFault, PythonFrame, hash_of_python,
    python_frames,
};
pub use rate_limit::RateLimit;
pub use sampling::budget::Budget;
pub use sampling::estimate::Estimate;
pub use sampling::estimates::Estimates;
pub use sampling::fixed::Fixed;
pub use sampling::rng::Rng;
pub use sampling::sampler::{Regime, STRIDE, Sampler, Suspended, counted_bytes};
pub use sampling::size_class::SizeClass;
pub use sampling::trend::{LEAST_OF_ALL, LEAST_OF_OWN, REAL, Trend};
pub use sampling::weight::Weight;
pub use spelling::nearest_name;
pub use tables::block_map::BlockMap;
pub use tables::bloom_filter::{BloomFilter, Unit};
pub use tables::number_hash::{NumberHasher, NumberMap, NumberState, mix};
pub use tables::sample_table::{SampleTable, Vacant};
pub use tables::slots::{Growth, LEVELS, Levels, Slot, level_slots};
pub use tables::stack_set::StackSet;
pub use unwind::frame::Frame;
pub use unwind::kinds::{Cursor, Kind, Word, Words};
pub use unwind::memo::{Memo, MemoHit};
pub use unwind::memos::Memos;
pub use unwind::rules::{Rule, Rules};
pub use unwind::stack_hash::StackHasher;
