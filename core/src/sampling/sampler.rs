//! Sampler: allocated bytes laid on an axis, marked by a Poisson process.
//!
//! Glossary: allocation axis, mark, piece, regime, stride.
//!
//! Model: every thread lays the bytes it requests end to end on an axis. Marks fall on it at
//! random, on average one every `interval` bytes, independently of everything (a Poisson process).
//! A block is sampled if at least one mark falls on it. For a block of `s` bytes the probability is
//! `1 - exp(-s / interval)`, by which [`Weight`](crate::Weight) divides. The process has no memory.
//! So after a sampled block one new draw decides the distance to the next mark, counted from the
//! end of the block; further marks on the same block need not be drawn.
//!
//! The remaining distance is one signed number. Every malloc costs one subtraction and a test of
//! the sign. Everything else happens once a sample, or once in a [`STRIDE`].
//!
//! The parameters in force may change ([`Regime`]), and a thread must not keep a mark that lies
//! gigabytes away. So the axis is cut into pieces. At the end of a piece without a mark the thread
//! reads the regime and draws again. It has learnt only that there is no mark so far. The process
//! has no memory, so that says nothing about the marks that follow. A block across the end of a
//! piece is decided to its end under the interval that it began with. So each block has one
//! interval.
//!
//! A block of zero bytes counts as one byte, here and in the weight: it can be sampled, and at
//! interval 1 it is.

use crate::sampling::rng::Rng;

/// Distance that no thread reaches, for phases in which nothing is sampled. A thread that allocates
/// a gigabyte a second needs 292 years for it.
const NEVER: i64 = i64::MAX;

/// Length of a piece in bytes: a change takes effect in a thread after at most that many.
const PIECE: i64 = 4 << 20;

/// Length of a piece in bytes while nothing is sampled. Allocations between a start and the
/// thread's next look are missing, and should be few against any interval.
const PIECE_STOPPED: i64 = 16 << 10;

/// Most bytes that a thread lays before it leaves the fast path for its periodic work
/// ([`Sampler::continue_countdown`]). So no block pays for a count of its own.
pub const STRIDE: u64 = 1 << 20;

/// The sampling parameters in force for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regime {
    /// Mean distance between marks, in bytes. 0: nothing is sampled; 1: everything is.
    pub interval: u64,
    /// Size from which every block is recorded, unless nothing is. 0: no block for its size. It is
    /// constant for the life of a sampler.
    pub record_over: u64,
}

impl Regime {
    /// The regime in which nothing is sampled.
    pub const STOPPED: Regime = Regime {
        interval: 0,
        record_over: 0,
    };

    fn takes_for_its_size(&self, size: u64) -> bool {
        self.record_over > 0 && size >= self.record_over
    }

    /// Returns the length of a piece. With `record_over`, a piece is no longer than such a block,
    /// so the block ends a piece wherever it lies. Its size is then checked on the slow path only.
    fn piece(&self) -> i64 {
        match (self.interval, self.record_over) {
            (0, _) => PIECE_STOPPED,
            (_, 0) => PIECE,
            (_, over) => over.min(PIECE as u64) as i64,
        }
    }
}

/// The position of a thread on its allocation axis.
///
/// All zero is a valid state: the thread's first block takes the slow path, where
/// [`start`](Self::start) draws the first mark.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub struct Sampler {
    /// Whole bytes from here to the end of the stride. The block that makes it negative lies on
    /// that end.
    left: i64,
    /// Whole bytes from the end of the stride to the next mark or the end of the piece. 0: the
    /// stride ends there.
    beyond: i64,
    /// Distance of the stride's end from the beginning of the axis.
    end: u64,
    /// Mean distance under which the mark was drawn. 0: nothing is sampled; 1: everything is.
    interval: u64,
    rng: Rng,
    /// True if the piece ends before the next mark.
    unmarked: bool,
}

/// The place on the axis at which a thread has suspended it.
#[derive(Debug)]
#[must_use = "without it the axis stays suspended"]
pub struct Suspended {
    left: i64,
    beyond: i64,
    end: u64,
}

impl Sampler {
    /// Offset of `left`, for assembly. [`passes`](Self::passes) is: subtract the block's bytes (1
    /// for an empty block) from this signed number. If the result is negative, call
    /// [`continue_countdown`](Self::continue_countdown).
    pub const LEFT: usize = std::mem::offset_of!(Sampler, left);

    /// Bytes from [`LEFT`](Self::LEFT) on whose zeros make the next block one that is decided.
    pub const RESTART_LEN: usize =
        std::mem::offset_of!(Sampler, beyond) + size_of::<i64>() - Self::LEFT;

    /// The value of `default()`, for statics.
    pub const ZERO: Sampler = Sampler {
        left: 0,
        beyond: 0,
        end: 0,
        interval: 0,
        rng: Rng::new(0),
        unmarked: false,
    };

    /// Lays `size` bytes on the axis. Returns true if no mark falls on them, and no piece ends in
    /// them.
    #[inline(always)]
    pub fn passes(&mut self, size: usize) -> bool {
        // A request beyond isize::MAX never succeeds, and lays nothing. As a signed number it would
        // lead backwards, and hide the marks of later blocks.
        self.left = self.left.wrapping_sub(bytes_laid(size));
        self.left >= 0 || self.continue_countdown()
    }

    /// Begins the next stride if only a stride ended in the block that made `left` negative.
    /// Returns true if the block passes.
    #[inline(always)]
    pub fn continue_countdown(&mut self) -> bool {
        if self.beyond != 0 {
            self.go(self.left.wrapping_add(self.beyond));
        }
        self.left >= 0
    }

    /// Returns true if a mark, a stride or a piece ended in the last block, and nothing is drawn or
    /// continued yet.
    pub fn is_due(&self) -> bool {
        self.left < 0
    }

    /// Takes the last block of `size` bytes off the axis: there was no memory for it. The distance
    /// to the next mark stays.
    #[cold]
    pub fn retract(&mut self, size: usize) {
        self.end = self.end.wrapping_sub(bytes_laid(size) as u64);
    }

    /// Suspends the axis: until [`resume`](Self::resume), blocks lay nothing on it and none is due.
    /// So a block is laid once when the function that allocates it calls another one.
    pub fn suspend(&mut self) -> Suspended {
        let suspended = Suspended {
            left: self.left,
            beyond: self.beyond,
            end: self.end,
        };
        (self.left, self.beyond) = (NEVER, NEVER);
        suspended
    }

    /// Resumes the axis where it was suspended, unless it was restarted meanwhile (see
    /// [`RESTART_LEN`](Self::RESTART_LEN)).
    pub fn resume(&mut self, suspended: Suspended) {
        // Only a restart makes it 0.
        if self.beyond != 0 {
            let Suspended { left, beyond, end } = suspended;
            (self.left, self.beyond, self.end) = (left, beyond, end);
        }
    }

    /// Returns the number of bytes ever laid on the axis, wrapping.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.end.wrapping_sub(self.left as u64)
    }

    /// Begins the axis with a seed, and draws the first mark.
    pub fn start(&mut self, seed: u64, interval: u64) {
        self.rng = Rng::new(seed);
        self.draw(interval);
    }

    /// Draws the distance from here to the next mark. Call it after each sampled block, and
    /// whenever the interval in force changes. The process has no memory, so it may be redrawn at
    /// any point of the axis without a bias.
    pub fn draw(&mut self, interval: u64) {
        let distance = self.distance(interval);
        self.unmarked = false;
        self.go(distance);
    }

    /// Draws like [`draw`](Self::draw), but no further than one piece. If a block does not pass,
    /// call [`decide`](Self::decide) for it, and then this function again.
    #[inline(always)]
    pub fn draw_under(&mut self, regime: Regime) {
        if regime.interval == 1 {
            return self.draw(1); // no piece is that short
        }
        let distance = self.distance(regime.interval);
        let piece = regime.piece();
        self.unmarked = distance >= piece;
        self.go(distance.min(piece - 1));
    }

    /// Draws a distance to the next mark.
    #[inline(always)]
    fn distance(&mut self, interval: u64) -> i64 {
        self.interval = interval;
        match interval {
            0 => NEVER,
            // Every block has at least a byte on the axis, so a distance of 0 samples every block.
            1 => 0,
            _ => self.rng.exponential(interval),
        }
    }

    /// Begins a stride at that distance from the next mark or the end of the piece.
    #[inline(always)]
    fn go(&mut self, distance: i64) {
        let laid = self.position();
        self.left = distance.min(STRIDE as i64);
        self.beyond = distance.wrapping_sub(self.left);
        self.end = laid.wrapping_add(self.left as u64);
    }

    /// Begins the axis under that regime.
    #[cold]
    #[inline(never)]
    pub fn start_under(&mut self, seed: u64, regime: Regime) {
        self.rng = Rng::new(seed);
        self.draw_under(regime);
    }

    /// Returns the interval under which a block is sampled, or `None` if it is not. Call it for a
    /// block that neither passes nor [goes on](Self::continue_countdown).
    pub fn decide(&mut self, size: usize, regime: Regime) -> Option<u64> {
        let size = counted_bytes(size as u64);
        match (regime.interval, self.interval) {
            // Stopped now, or when the mark was drawn.
            (0, _) | (_, 0) => None,
            _ if regime.takes_for_its_size(size) => Some(1),
            (_, interval) if !self.unmarked => Some(interval),
            (_, interval) => self
                .reaches_behind_piece(size, interval)
                .then_some(interval),
        }
    }

    /// Returns true if a mark falls on the part of a block behind the end of a piece without a
    /// mark.
    #[cold]
    #[inline(never)]
    fn reaches_behind_piece(&mut self, size: u64, interval: u64) -> bool {
        let behind = self.left.saturating_neg().saturating_sub(1);
        let behind = behind.min(i64::try_from(size).unwrap_or(i64::MAX));
        self.rng.exponential(interval) < behind
    }

    /// Stops sampling until the next [`start`](Self::start) or [`draw`](Self::draw).
    pub fn stop(&mut self) {
        self.draw(0);
    }

    /// Returns the mean interval under which the last sampled block was chosen, in bytes.
    pub fn interval(&self) -> u64 {
        self.interval
    }
}

/// Returns the bytes that a block of `size` bytes takes of the axis: an empty block takes one.
#[inline(always)]
pub fn counted_bytes(size: u64) -> u64 {
    if size == 0 { 1 } else { size }
}

/// Returns the bytes that a request of `size` lays: none if it can never succeed.
#[inline(always)]
fn bytes_laid(size: usize) -> i64 {
    (counted_bytes(size as u64) as i64).max(0)
}

const _: () = assert!(size_of::<Sampler>() <= 48);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the deviation of the sampled share of `n` blocks of `size` bytes from `1 -
    /// exp(-s/R)`, in standard errors.
    fn deviation(size: usize, interval: u64, n: u64, seed: u64) -> f64 {
        let mut sampler = Sampler::default();
        sampler.start(seed, interval);
        let mut hits = 0u64;
        for _ in 0..n {
            if !sampler.passes(size) {
                hits += 1;
                sampler.draw(interval);
            }
        }
        let p = -libm::expm1(-(counted_bytes(size as u64) as f64) / interval as f64);
        let n = n as f64;
        (hits as f64 - n * p) / (n * p * (1.0 - p)).sqrt().max(1e-9)
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn a_block_is_sampled_with_the_stated_probability() {
        // Beyond 5 standard errors once in 1.7 million tries; 12 tries here, with fixed seeds.
        for (i, (size, interval)) in [
            (0, 512),
            (1, 512),
            (16, 4096),
            (511, 512),
            (512, 512),
            (513, 512),
            (4096, 512),
            (64, 524_288),
            (65_536, 524_288),
            (524_288, 524_288),
            (3, 2),
            (1, 2),
        ]
        .into_iter()
        .enumerate()
        {
            let d = deviation(size, interval, 2_000_000, 17 + i as u64);
            assert!(d.abs() < 5.0, "size {size} interval {interval}: {d} sigma");
        }
    }

    #[test]
    fn interval_one_takes_every_block() {
        let mut sampler = Sampler::default();
        sampler.start(1, 1);
        for size in [0, 1, 2, 100, 0, 1 << 40] {
            assert!(!sampler.passes(size));
            sampler.draw(1);
        }
    }

    #[test]
    fn a_request_that_cannot_succeed_hides_no_block() {
        for size in [
            usize::MAX,
            usize::MAX - 4095,
            1 << 63,
            (1 << 63) + 1,
            3 << 62,
        ] {
            let mut sampler = Sampler::default();
            sampler.start(1, 1);
            if !sampler.passes(size) {
                sampler.draw(1);
            }
            assert!(!sampler.passes(16), "after one of {size} bytes");
        }
    }

    #[test]
    fn interval_zero_takes_none() {
        let mut sampler = Sampler::default();
        sampler.start(1, 0);
        assert!((0..1000).all(|_| sampler.passes(1 << 40)));
    }

    #[test]
    fn a_zeroed_sampler_asks_the_slow_path_at_once() {
        assert!(!Sampler::default().passes(0));
        assert!(!Sampler::ZERO.clone().passes(1));
    }

    #[test]
    fn different_seeds_mark_different_blocks() {
        let marks = |seed| {
            let mut sampler = Sampler::default();
            sampler.start(seed, 1000);
            (0..if cfg!(miri) { 2_000 } else { 10_000 })
                .filter(|_| {
                    let hit = !sampler.passes(10);
                    if hit {
                        sampler.draw(1000);
                    }
                    hit
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(marks(1), marks(1));
        assert_ne!(marks(1), marks(2));
    }

    #[test]
    fn a_suspended_axis_stays_where_it_is() {
        for interval in [0, 1, 4096, 3 * STRIDE] {
            let mut sampler = Sampler::default();
            sampler.start(5, interval);
            sampler.passes(100);
            let before = format!("{sampler:?}");
            let suspended = sampler.suspend();
            let within = sampler.suspend();
            for size in [1, 5000, 100 << 20, 1 << 62] {
                assert!(sampler.passes(size), "{interval}: {size}");
            }
            sampler.resume(within);
            assert!(sampler.passes(usize::MAX));
            sampler.resume(suspended);
            assert_eq!(format!("{sampler:?}"), before);
        }
    }

    #[test]
    fn an_axis_that_is_restarted_while_it_is_suspended_stays_so() {
        let mut sampler = Sampler::default();
        sampler.start(5, 1 << 30);
        let suspended = sampler.suspend();
        (sampler.left, sampler.beyond) = (0, 0);
        sampler.resume(suspended);
        assert!(!sampler.passes(1));
    }

    const MARKED_LATER: u64 = 1 << 50;

    /// Ends a piece without a mark here.
    fn ends_here(sampler: &mut Sampler) {
        (sampler.left, sampler.beyond, sampler.unmarked) = (0, 0, true);
    }

    #[test]
    fn strides_move_no_mark() {
        for interval in [0, 1, 4096, 3 * STRIDE, 40 * STRIDE] {
            let mut sampler = Sampler::default();
            sampler.start(5, interval);
            let mut sizes = Rng::new(6);
            let (mut laid, mut strides) = (0u64, 0);
            for _ in 0..if cfg!(miri) { 300 } else { 30_000 } {
                let size = match sizes.next_u64() % 4 {
                    0 => sizes.next_u64() % (3 * STRIDE),
                    _ => sizes.next_u64() % 5000,
                };
                laid += counted_bytes(size);
                let behind_goal = laid > sampler.end.saturating_add(sampler.beyond as u64);
                let beyond = sampler.beyond;
                let passes = sampler.passes(size as usize);
                assert_eq!(sampler.position(), laid);
                assert_eq!(passes, !behind_goal, "interval {interval}, {laid} bytes");
                assert_eq!(sampler.is_due(), behind_goal);
                strides += u64::from(passes && sampler.beyond != beyond);
                if !passes {
                    sampler.draw(interval);
                }
            }
            // There is at most one a stride, and without marks exactly as many as fit.
            let most = laid / STRIDE;
            let least = if interval == 0 { most / 3 } else { 0 };
            assert!(
                (least..=most).contains(&strides),
                "interval {interval}: {strides} of {most}"
            );
        }
    }

    #[test]
    fn what_was_not_there_is_taken_back() {
        let mut sampler = Sampler::default();
        sampler.start(1, 1 << 40);
        let ahead = |sampler: &Sampler| sampler.left + sampler.beyond;
        let at_first = ahead(&sampler);
        for size in [0, 100, 1 << 30, usize::MAX] {
            let before = sampler.position();
            sampler.passes(size);
            sampler.retract(size);
            assert_eq!(sampler.position(), before, "{size}");
        }
        // The mark is nearer by the bytes laid.
        assert_eq!(at_first - ahead(&sampler), 1 + 100 + (1 << 30));
    }

    fn under(interval: u64, record_over: u64) -> Regime {
        Regime {
            interval,
            record_over,
        }
    }

    #[test]
    fn a_block_is_sampled_when_a_mark_falls_on_one_of_its_bytes() {
        // Five bytes without a mark; the sixth byte has one.
        let five_left = Sampler {
            left: 5,
            ..Sampler::ZERO
        };
        assert!(five_left.clone().passes(5));
        assert!(!five_left.clone().passes(6));
        let mut behind_five = five_left;
        assert!((0..5).all(|_| behind_five.passes(0)));
        assert!(!behind_five.is_due());
        assert!(!behind_five.passes(0));
        assert!(behind_five.is_due());
    }

    #[test]
    fn a_thread_asks_again_at_the_end_of_a_piece() {
        for (regime, piece) in [
            (under(MARKED_LATER, 0), 4 << 20),
            // No mark in a gigabyte. A larger piece would let changes take effect later.
            (under(MARKED_LATER, 1 << 30), 4 << 20),
            (under(MARKED_LATER, 1000), 1000),
            (Regime::STOPPED, 16 << 10),
        ] {
            let mut sampler = Sampler::default();
            sampler.start_under(3, regime);
            assert!(sampler.passes(piece - 1), "{regime:?}");
            assert!(!sampler.passes(1), "{regime:?}");
            assert_eq!(sampler.decide(1, regime), None, "{regime:?}");
        }
    }

    /// Four bytes between marks, and pieces of sixteen: two pieces in a hundred have no mark.
    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn what_ends_with_a_piece_has_no_second_chance() {
        let regime = under(4, 16);
        let mut sampler = Sampler::default();
        sampler.start_under(7, regime);
        let (mut ends, mut continued) = (0, 0);
        for _ in 0..100_000 {
            sampler.draw_under(regime);
            if !sampler.unmarked {
                continue;
            }
            assert!(sampler.passes(8));
            let mut other = sampler.clone();
            // Up to the end, before which there is no mark.
            assert!(!sampler.passes(8));
            assert_eq!(sampler.decide(8, regime), None);
            ends += 1;
            // A byte beyond the end has a mark with probability 1 - exp(-1/4) = 0.221.
            assert!(!other.passes(9));
            continued += u64::from(other.decide(9, regime) == Some(4));
        }
        // 1832 pieces, more or less 42; and five standard errors of their share.
        let share = continued as f64 / f64::from(ends);
        assert!((1600..2050).contains(&ends), "{ends}");
        assert!((share - 0.221).abs() < 0.05, "{share}");
    }

    #[test]
    fn a_mark_within_a_piece_needs_no_second_one() {
        let regime = under(64, 0);
        let mut sampler = Sampler::default();
        sampler.start_under(7, regime);
        // One piece without a mark; the next one has a mark again.
        ends_here(&mut sampler);
        for _ in 0..1000 {
            sampler.draw_under(regime);
            while sampler.passes(1) {}
            assert_eq!(sampler.decide(1, regime), Some(64));
        }
    }

    #[test]
    fn a_block_is_recorded_for_its_size_from_that_size_on() {
        let decide = |size, interval, record_over| {
            let regime = under(interval, record_over);
            let mut sampler = Sampler::default();
            sampler.start_under(3, regime);
            ends_here(&mut sampler);
            assert!(!sampler.passes(size));
            sampler.decide(size, regime)
        };
        assert_eq!(decide(999, MARKED_LATER, 1000), None);
        assert_eq!(decide(1000, MARKED_LATER, 1000), Some(1));
        // No block is recorded for its size.
        assert_eq!(decide(1 << 20, MARKED_LATER, 0), None);
        // Nothing is sampled, or not yet.
        assert_eq!(decide(1000, 0, 1000), None);
    }

    #[test]
    fn each_seed_has_its_own_marks_in_pieces_too() {
        let first = |seed| {
            let mut sampler = Sampler::default();
            sampler.start_under(seed, under(1 << 12, 0));
            sampler.end + sampler.beyond as u64
        };
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn a_stopped_thread_is_asked_no_more_until_it_draws() {
        let regime = under(64, 0);
        let mut sampler = Sampler::default();
        sampler.start_under(3, regime);
        ends_here(&mut sampler);
        assert!(!sampler.passes(8));
        assert_eq!(sampler.interval(), 64);
        sampler.stop();
        assert_eq!((sampler.interval(), sampler.is_due()), (0, false));
        assert!((0..1000).all(|_| sampler.passes(1 << 40)));
        // Before the next draw there is no interval, so each mark counts as one.
        assert_eq!(sampler.decide(8, regime), None);
        assert!(!sampler.unmarked);
        sampler.draw(64);
        while sampler.passes(1) {}
        assert_eq!(sampler.decide(1, regime), Some(64));
    }
}
