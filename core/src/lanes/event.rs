//! Events of lanes, and their encoding in words.
//!
//! Glossary: usual event, slack.
//!
//! An event is as short as possible: most of its price is the transfer between two processors'
//! caches. Thread and interval are sent once for many events. An event that is near to the one
//! before is encoded as the distance to it, in one word with its kind:
//!
//! | kind | words |
//! | --- | --- |
//! | `ORIGIN` | thread, interval: the origin of the events that follow |
//! | `FREED` | id, time |
//! | `FREED_NEAR` | ticks since the event before, id less that of the lane's last sample |
//! | `SAMPLED` | id, time, stack, size, slack, counted |
//! | `SAMPLED_NEAR` | ticks since the event before, ended sample, size, slack; stack; counted |
//! | ... with `AGAIN` | without stack: it is that of the last sample |
//! | ... with `ALONE` | without counted: it is size |
//! | ... with a slack of `WIDE` | one more word after the first: size and slack of a large block |
//!
//! The id of a `SAMPLED_NEAR` is the next one of its lane. Its "ended sample" is the old sample of
//! a `realloc`, if that is one of the lane's last samples.

use std::ops::ControlFlow;

pub(crate) const ORIGIN: u64 = 0;
pub(crate) const FREED: u64 = 1;
pub(crate) const SAMPLED: u64 = 2;
pub(crate) const FREED_NEAR: u64 = 3;
pub(crate) const SAMPLED_NEAR: u64 = 4;
pub(crate) const AGAIN: u64 = 1;
pub(crate) const ALONE: u64 = 2;

/// Bits of an event's kind. The upper bits of the first word hold the first column of the table.
pub(crate) const KIND_BITS: u32 = 3;
/// Bits of the ticks of a near free. Above them is the distance of ids, a signed number.
pub(crate) const TICK_BITS: u32 = 28;
/// Bits of the ticks of a near sample. Above them are the ended sample, size and slack.
pub(crate) const SAMPLED_TICK_BITS: u32 = 22;
pub(crate) const ENDED_SHIFT: u32 = KIND_BITS + SAMPLED_TICK_BITS;
/// Bits of the ended sample. 0: no sample ended; else its distance from the last sample, plus one.
pub(crate) const ENDED_BITS: u32 = 6;
pub(crate) const NEAR_SHIFT: u32 = ENDED_SHIFT + ENDED_BITS;
const _: () = assert!(NEAR_SHIFT == KIND_BITS + TICK_BITS);
pub(crate) const SIZE_BITS: u32 = 21;
pub(crate) const SLACK_SHIFT: u32 = NEAR_SHIFT + SIZE_BITS;
pub(crate) const SLACK_BITS: u32 = 64 - SLACK_SHIFT;
/// A slack that says that size and slack are in the next word: size, and slack above it.
pub(crate) const WIDE: u64 = (1 << SLACK_BITS) - 1;
pub(crate) const WIDE_SIZE_BITS: u32 = 36;
pub(crate) const WIDE_SLACK_BITS: u32 = 64 - WIDE_SIZE_BITS;

/// Returns the lowest `bits` bits of a word.
#[inline(always)]
pub(crate) const fn low(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

/// Returns the ticks between a near event and the event before.
#[inline(always)]
pub(crate) fn ticks_of(first: u64) -> u64 {
    let bits = match first & SAMPLED_NEAR {
        0 => TICK_BITS,
        _ => SAMPLED_TICK_BITS,
    };
    low(first >> KIND_BITS, bits)
}

/// Most words of an event: a sample, with the `ORIGIN` and the `FREED` before it.
pub(crate) const LONGEST: usize = 10;

/// The origin of events: their thread, and its interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Number of the thread.
    pub thread: u32,
    /// Mean interval in force, in bytes.
    pub interval: u64,
}

/// A sample that ends with the next sample, as a lane encodes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndedSample(pub(crate) u64);

impl EndedSample {
    /// No sample ends.
    pub const NONE: EndedSample = EndedSample(0);
}

/// A sampled allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// Time, on the scale that orders the events of all lanes: see [`Merge`](crate::Merge).
    pub at: u64,
    /// Id of the sample, below 2^61.
    pub id: u64,
    /// Hash of its stack.
    pub stack: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes beyond the requested ones.
    pub slack: u32,
    /// Bytes on the thread's allocation axis since its last recorded sample
    /// ([`Sampler::position`](crate::Sampler::position)). The highest bit is the sender's flag that
    /// there is no such sample. Lanes carry the word unchanged.
    pub counted: u64,
}

/// The end of a sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Time, as in [`Sampled`].
    pub at: u64,
    /// Id of the sample, below 2^61.
    pub id: u64,
}

/// An event of a lane, as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A sampled allocation.
    Sampled(Sampled),
    /// The end of a sampled block.
    Freed(Freed),
}

/// Receiver of the events of lanes, one event after another. A method returns `Break` if the
/// receiver wants no more events for now; it has taken that event.
///
/// Events are handed over by calls and not returned as values. A returned value is stored word by
/// word and then copied by wider loads. A processor waits if a load is wider than the store that it
/// needs.
pub trait Sink {
    /// Receiver of usual events, or [`NoUsualSink`] if there is none.
    type UsualSink<'a>: UsualSink
    where
        Self: 'a;

    /// Takes a sampled allocation.
    fn sampled(&mut self, by: Origin, it: &Sampled) -> ControlFlow<()>;

    /// Takes the end of a sampled block.
    fn freed(&mut self, by: Origin, it: &Freed) -> ControlFlow<()>;

    /// Returns a receiver for the usual events of one thread, or `None` if there is none now.
    /// `last` is the last sample in the lane.
    #[inline(always)]
    fn usual_sink(&mut self, _by: Origin, _last: LastSample) -> Option<Self::UsualSink<'_>> {
        None
    }
}

/// The sample that usual events are encoded against.
#[derive(Debug, Clone, Copy)]
pub struct LastSample {
    /// Id of the last sample.
    pub id: u64,
    /// Hash of its stack.
    pub stack: u64,
}

/// Receiver of usual events: consecutive events of one lane, thread and interval, each near to the
/// one before. Work that is equal for all is done once.
pub trait UsualSink {
    /// Takes a sampled allocation. Returns false if the event is not usual after all; it is then
    /// not taken.
    fn sampled(&mut self, at: u64, sampled: NextSample) -> bool;

    /// Takes the end of the sample that is `back` samples before the last. Returns false if it is
    /// not taken.
    fn freed(&mut self, at: u64, back: u64) -> bool;

    /// Takes the end of a sample, then a sampled allocation of the same time. Returns false if
    /// neither is taken.
    fn replaced(&mut self, at: u64, back: u64, sampled: NextSample) -> bool;

    /// Ends the sequence. It had that many samples and frees.
    fn finish(self, samples: u64, frees: u64);
}

/// A sampled allocation with the next id of its lane. The fields are those of [`Sampled`].
#[derive(Debug, Clone, Copy)]
pub struct NextSample {
    /// Hash of its stack, if it differs from the last one's.
    pub stack: Option<u64>,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes beyond the requested ones.
    pub slack: u64,
    /// Bytes on the thread's allocation axis since its last sample, and the flag.
    pub counted: u64,
}

/// A receiver that takes nothing.
#[derive(Debug)]
pub enum NoUsualSink {}

impl UsualSink for NoUsualSink {
    fn sampled(&mut self, _: u64, _: NextSample) -> bool {
        match *self {}
    }

    fn replaced(&mut self, _: u64, _: u64, _: NextSample) -> bool {
        match *self {}
    }

    fn freed(&mut self, _: u64, _: u64) -> bool {
        match *self {}
    }

    fn finish(self, _: u64, _: u64) {}
}
