//! Arithmetic of heapprof: the computations that the profiled process and the offline programs
//! share.
//!
//! Nothing here opens a file, reads a clock, looks at the environment or maps memory: the caller
//! passes time, randomness and memory in. So every piece runs under a test, a fuzzer or miri. The
//! two users cannot disagree: the writer inside the process and the reader of a log fold events
//! with the same [`Ledger`] and weigh samples with the same [`Weight`].
//!
//! | piece | runs | question that it answers |
//! | --- | --- | --- |
//! | [`Sampler`] | every malloc | is this block sampled? (one subtraction) |
//! | [`Budget`] | writer | which interval keeps to so many samples a second? |
//! | [`Filter`] | every free | could this block have been sampled? (one load) |
//! | [`SampleTable`] | sampled malloc, free | which sample lives at this address? |
//! | [`Memos`] | sampled malloc | which recent walk began at this place? |
//! | [`Memo`] | sampled malloc | which frames does this walk share with that one? |
//! | [`Words`] | sampled malloc | which stack words must be unchanged for the same result? |
//! | [`Rules`] | sampled malloc | which rule unwinds a frame at this address? |
//! | [`find_epilogue`] | sampled malloc | which rule unwinds a function without unwind tables? |
//! | [`StackHasher`], [`StackSet`] | sampled malloc | which stack is this, and is it known? |
//! | [`StackLane`] | sampled malloc | which frames does a new stack have? |
//! | [`Lane`] | sampled malloc, free | which events go to the writer? |
//! | [`Merge`] | writer | which event of all lanes is next? |
//! | [`seccomp_bpf`] | before a system call filter | does a process survive these calls? |
//! | [`Pace`] | writer, at the program's end | how long does the rest of a dump take at least? |
//! | [`Timeline`] | writer | at what time did the processor's counter have this value? |
//! | [`Weight`] | writer, reader | how many blocks and bytes does a sample stand for? |
//! | [`Estimate`] | writer, reader | how many do several samples stand for, with what error? |
//! | [`Ledger`] | writer, reader | what was allocated and is in use, by stack and size class? |
//!
//! The folders, from the bottom up: `primitive`, `tables`, `sampling`, then `unwind`, `lanes` and
//! `ledger` beside each other, `arch`, `seccomp_bpf`. `scripts/check-layers` keeps this order.
#![forbid(unsafe_code)]

mod arch;
mod lanes;
mod ledger;
mod pace;
mod primitive;
mod sampling;
pub mod seccomp_bpf;
mod tables;
mod unwind;

pub use arch::{Epilogue, find_epilogue};
pub use lanes::event::{By, Ended, Freed, Last, Never, Next, Passed, Sampled, Sink, Usual};
pub use lanes::lane::{LANES, Lane};
pub use lanes::merge::Merge;
pub use lanes::stack_lane::{SentStack, StackLane};
pub use lanes::timeline::{ClockReading, Scale, Timeline};
pub use ledger::{Block, Ledger, Live, Row, Totals};
pub use pace::Pace;
pub use sampling::budget::Budget;
pub use sampling::estimate::Estimate;
pub use sampling::fixed::Fixed;
pub use sampling::rng::Rng;
pub use sampling::sampler::{Regime, STRIDE, Sampler, bytes_on_the_line};
pub use sampling::size_class::SizeClass;
pub use sampling::weight::Weight;
pub use tables::filter::{Filter, Unit};
pub use tables::number_hash::{NumberHasher, NumberMap};
pub use tables::sample_table::{SampleTable, Vacant};
pub use tables::slots::{Growth, LEVELS, Levels, Slot, level_slots};
pub use tables::stack_set::StackSet;
pub use unwind::frame::Frame;
pub use unwind::kinds::{Cursor, Kind, Word, Words};
pub use unwind::memo::{Memo, MemoHit};
pub use unwind::memos::Memos;
pub use unwind::rules::{Rule, Rules};
pub use unwind::stack_hash::StackHasher;
