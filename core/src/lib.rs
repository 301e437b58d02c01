//! The arithmetic of heapprof: what both the profiled process and the offline programs compute.
//!
//! Nothing here opens a file, reads a clock, looks at the environment or maps memory: the caller
//! passes time, randomness and memory in. So every piece runs under a test, a fuzzer or miri, and
//! the two users cannot disagree: the writer inside the process and the reader of a log fold
//! events with the same [`Ledger`] and weigh samples with the same [`Weight`].
//!
//! | piece | runs | what it answers |
//! | --- | --- | --- |
//! | [`Sampler`] | every malloc | is this block sampled? (one subtraction) |
//! | [`Budget`] | writer | which interval keeps to so many samples a second? |
//! | [`Filter`] | every free | could this block have been sampled? (one load) |
//! | [`SampleTable`] | sampled malloc, free | which sample lives at this address? |
//! | [`Memos`] | sampled malloc | which of the last walks was from here? |
//! | [`Memo`] | sampled malloc | what has this walk in common with that one? |
//! | [`Words`] | sampled malloc | what of the stack must hold for it to be that one? |
//! | [`Rules`] | sampled malloc | by which rule is a frame at this address unwound? |
//! | [`way_out`] | sampled malloc | by which is one of a function without unwind tables? |
//! | [`StackHasher`], [`StackSet`] | sampled malloc | which stack is this, and is it known? |
//! | [`StackLane`] | sampled malloc | what are the frames of a stack that is not known? |
//! | [`Lane`] | sampled malloc, free | what does the writer hear of this sample, of this free? |
//! | [`Merge`] | writer | which event of all lanes is next? |
//! | [`fence`] | before a system call filter | does a process behind this filter survive these calls? |
//! | [`Pace`] | writer, at the program's end | how long does the rest of a dump take at least? |
//! | [`Timeline`] | writer | when was the processor's counter at this value? |
//! | [`Weight`] | writer, reader | what does a sample stand for? |
//! | [`Estimate`] | writer, reader | what do many of them stand for together, and how uncertain is that? |
//! | [`Ledger`] | writer, reader | what was allocated and is in use, by stack and size class? |
//! | [`History`] | reader | what was it at the peak, for how long did it live, how fast did it grow? |
#![forbid(unsafe_code)]

#[cfg(test)]
mod all;
mod budget;
mod echo;
mod estimate;
mod event;
pub mod fence;
mod filter;
mod fixed;
mod frame;
mod history;
mod lane;
mod ledger;
mod lifetimes;
mod memo;
mod memos;
mod merge;
mod number_hash;
mod over_time;
mod pace;
mod primitive;
#[cfg(test)]
mod program;
mod rng;
mod rules;
mod sample_table;
mod sampler;
mod size_class;
mod slope;
mod slots;
mod stack_hash;
mod stack_lane;
mod stack_set;
mod tap;
mod temporary;
mod timeline;
mod way_out;
mod weight;
mod weight_cache;

pub use budget::Budget;
pub use echo::{Word, Words};
pub use estimate::Estimate;
pub use event::{By, Ended, Freed, Last, Never, Next, Passed, Sampled, Sink, Usual};
pub use filter::{Filter, Unit};
pub use fixed::Fixed;
pub use frame::{Frame, Place};
pub use history::{Came, History, Past};
pub use lane::{LANES, Lane};
pub use ledger::{Block, Ledger, Live, Row, Totals};
pub use lifetimes::Lifetimes;
pub use memo::{Memo, Met};
pub use memos::Memos;
pub use merge::Merge;
pub use number_hash::{NumberHasher, NumberMap};
pub use over_time::OverTime;
pub use pace::Pace;
pub use rng::Rng;
pub use rules::{Kind, Rule, Rules};
pub use sample_table::{SampleTable, Vacant};
pub use sampler::{Regime, STRIDE, Sampler, bytes_on_the_line};
pub use size_class::SizeClass;
pub use slope::Slope;
pub use slots::{Growth, LEVELS, Levels, Slot, level_slots};
pub use stack_hash::StackHasher;
pub use stack_lane::{SentStack, StackLane};
pub use stack_set::StackSet;
pub use temporary::Temporary;
pub use timeline::{ClockReading, Scale, Timeline};
pub use way_out::{WayOut, way_out};
pub use weight::Weight;
