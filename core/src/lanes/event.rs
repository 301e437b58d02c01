//! Event: a sample or a free on its way to the writer, as a few words of a lane.
//!
//! Most of an event's cost is the transfer of its words from one processor's cache to another's. So
//! thread and interval are sent once for many events. An event close to the one before it is sent
//! as a difference, in one word with its kind:
//!
//! | kind | words |
//! | --- | --- |
//! | `BY` | thread and interval of the next events |
//! | `FREED` | id, time |
//! | `FREED_NEAR` | ticks since the event before, id less that of the last sample put in here |
//! | `SAMPLED` | id, time, stack, size, slack, counted |
//! | `SAMPLED_NEAR` | ticks since the event before, size and slack; stack, counted |
//! | ... with `AGAIN` | without stack: it is that of the last sample |
//! | ... with `ALONE` | without counted: it is size |
//! | ... with a slack of `WIDE` | one more word after the first, with size and slack |
//!
//! A near sample has the next id. If a realloc made it, its first word also says which of the last
//! samples ended with it. Size and slack of large blocks have no room in the first word.

use std::ops::ControlFlow;

pub(crate) const BY: u64 = 0;
pub(crate) const FREED: u64 = 1;
pub(crate) const SAMPLED: u64 = 2;
pub(crate) const FREED_NEAR: u64 = 3;
pub(crate) const SAMPLED_NEAR: u64 = 4;
pub(crate) const AGAIN: u64 = 1;
pub(crate) const ALONE: u64 = 2;

/// An event's first word: its kind, and in the upper bits what is first in the table.
pub(crate) const KIND_BITS: u32 = 3;
/// Bits of the ticks in a near free. Above them is the distance of ids, a signed number.
pub(crate) const TICK_BITS: u32 = 28;
/// Bits of the ticks in a near sample. Above them are the sample that ended with it, size and
/// slack.
pub(crate) const SAMPLED_TICK_BITS: u32 = 22;
pub(crate) const ENDED_SHIFT: u32 = KIND_BITS + SAMPLED_TICK_BITS;
/// 0: none did; else how many samples before the last it was put in, plus one.
pub(crate) const ENDED_BITS: u32 = 6;
pub(crate) const NEAR_SHIFT: u32 = ENDED_SHIFT + ENDED_BITS;
const _: () = assert!(NEAR_SHIFT == KIND_BITS + TICK_BITS);
pub(crate) const SIZE_BITS: u32 = 21;
pub(crate) const SLACK_SHIFT: u32 = NEAR_SHIFT + SIZE_BITS;
pub(crate) const SLACK_BITS: u32 = 64 - SLACK_SHIFT;
/// In place of a slack: both are in the word behind, size and above it slack.
pub(crate) const WIDE: u64 = (1 << SLACK_BITS) - 1;
pub(crate) const WIDE_SIZE_BITS: u32 = 36;
pub(crate) const WIDE_SLACK_BITS: u32 = 64 - WIDE_SIZE_BITS;

/// The lowest so many bits of a word.
#[inline(always)]
pub(crate) const fn low(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

/// Ticks since the event before of one that is near.
#[inline(always)]
pub(crate) fn ticks_of(first: u64) -> u64 {
    let bits = match first & SAMPLED_NEAR {
        0 => TICK_BITS,
        _ => SAMPLED_TICK_BITS,
    };
    low(first >> KIND_BITS, bits)
}

/// Words of the longest event, a sample, with the `BY` and the `FREED` before it.
pub(crate) const LONGEST: usize = 10;

/// The thread and the interval of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// Number of the thread.
    pub thread: u32,
    /// Mean interval in force, in bytes.
    pub interval: u64,
}

/// A sample that ends with the next one, of those put in last: as a lane tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended(pub(crate) u64);

impl Ended {
    /// There is none.
    pub const NONE: Ended = Ended(0);
}

/// A sampled allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// When, on the scale that orders the events of all lanes: see [`Merge`](crate::Merge).
    pub at: u64,
    /// Below 2^61.
    pub id: u64,
    /// Hash of its stack.
    pub stack: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes beyond them that the block has.
    pub slack: u32,
    /// Bytes that the thread laid on its line ([`Sampler::laid`](crate::Sampler::laid)) since its
    /// last sample that was recorded. The highest bit is a mark of the thread that puts the sample
    /// in: there was no such sample. Lanes carry the word as it is.
    pub counted: u64,
}

/// The end of a sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// When, as in [`Sampled`].
    pub at: u64,
    /// Below 2^61.
    pub id: u64,
}

/// An event that came out of a lane, as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// A sampled allocation.
    Sampled(Sampled),
    /// The end of a sampled block.
    Freed(Freed),
}

/// Whoever takes what comes out of the lanes, one event after another. `Break`: it wants no more
/// for now; the event that it was given, it has taken.
///
/// Events are handed over by calls, and not returned as values: a value would be stored word by
/// word and then copied by wider loads, and a processor waits where a load is wider than the store
/// that it needs.
pub trait Sink {
    /// The taker of usual events; [`Never`] if there is none.
    type Usual<'a>: Usual
    where
        Self: 'a;

    /// A sampled allocation.
    fn sampled(&mut self, by: By, it: &Sampled) -> ControlFlow<()>;

    /// The end of a sampled block.
    fn freed(&mut self, by: By, it: &Freed) -> ControlFlow<()>;

    /// To be given the usual events of that thread, where `last` was the last sample in its lane.
    /// `None`: not now.
    #[inline(always)]
    fn usual(&mut self, _by: By, _last: Last) -> Option<Self::Usual<'_>> {
        None
    }
}

/// The last sample of a lane, which the usual events after it refer to.
#[derive(Debug, Clone, Copy)]
pub struct Last {
    /// Id of the last sample.
    pub id: u64,
    /// Hash of its stack.
    pub stack: u64,
}

/// Takes events that follow each other in one lane, of one thread and under one interval, each near
/// to the one before. Their common properties are asked once.
pub trait Usual {
    /// A sampled allocation. False: it is not usual after all, and was not taken.
    fn sampled(&mut self, at: u64, sampled: Next) -> bool;

    /// The end of the block whose sample was put in so many samples before the last. False: as
    /// above.
    fn freed(&mut self, at: u64, back: u64) -> bool;

    /// Both, the end first, at one time. False: neither was taken.
    fn replaced(&mut self, at: u64, back: u64, sampled: Next) -> bool;

    /// That is all. It took so many.
    fn finish(self, samples: u64, frees: u64);
}

/// A sampled allocation whose id is the next. The fields are those of [`Sampled`].
#[derive(Debug, Clone, Copy)]
pub struct Next {
    /// If it is another than the last one's.
    pub stack: Option<u64>,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes beyond them.
    pub slack: u64,
    /// Bytes that the thread laid on its line since its last sample, and the mark.
    pub counted: u64,
}

/// Takes nothing.
#[derive(Debug)]
pub enum Never {}

impl Usual for Never {
    fn sampled(&mut self, _: u64, _: Next) -> bool {
        match *self {}
    }

    fn replaced(&mut self, _: u64, _: u64, _: Next) -> bool {
        match *self {}
    }

    fn freed(&mut self, _: u64, _: u64) -> bool {
        match *self {}
    }

    fn finish(self, _: u64, _: u64) {}
}
