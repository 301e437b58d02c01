//! Paired difference: the difference of a sum over blocks between two views of one log.
//!
//! Every metric is a sum of `x k` over blocks. `x` is a block's size, 1 or its slack. `k` depends
//! on the view: 1 or 0 for in use, allocated and temporary, seconds for heaptime, a part of a slope
//! for growth. A sample adds `x (k₂ - k₁)/p` to the difference, with variance `x² (k₂ - k₁)² (1 -
//! p)/p²`. So blocks that both views have in common cancel, and add no error. Two windows may share
//! blocks, touch or overlap:
//!
//! ```text
//!   at T1, at T2         in use      a block that is there at both: k₁ = k₂, no error
//!   at T1, at T2         heaptime    k₂ - k₁: for how long it was there in between
//!   T1..T2, T3..T4       growth      a block from T1 to beyond T4 moves neither slope; one that
//!                                    came in the first and went in the second moves both, and its
//!                                    error counts once for both together
//! ```
//!
//! Each view's sum is what `heapprof top` shows of the view. [`History`](crate::history::History)
//! has the same definitions.

use crate::history::Allocation;
use crate::history::temporary::Temporary;
use heapprof_core::{BlockMap, Estimate, NumberMap, Weight};

use crate::model::amount::Amount;
use crate::model::change::Change;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::span::Cut;
use crate::model::span::Span;

/// Where an event is in the log.
#[derive(Debug, Clone, Copy, Default)]
struct EventPosition {
    record: u64,
    time_ns: u64,
}

impl EventPosition {
    fn is_before(self, cut: Cut) -> bool {
        cut.includes(self.record, self.time_ns)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Birth {
    allocation: Allocation,
    at: EventPosition,
    /// Allocations of its thread so far, itself included.
    allocations: f64,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct PairedDifference {
    measure: Measure,
    temporary: Temporary,
    views: [Span; 2],
    /// Detail begins here.
    since_ns: u64,
    live: BlockMap<Birth>,
    allocations: NumberMap<u32, f64>,
    by_stack: Vec<Change>,
}

impl PairedDifference {
    /// Between those views. The peak is no such sum: nothing is said of it.
    pub(crate) fn of(measure: Measure, temporary: Temporary, views: [Span; 2]) -> PairedDifference {
        PairedDifference {
            measure,
            temporary,
            views,
            since_ns: 0,
            live: BlockMap::default(),
            allocations: NumberMap::default(),
            by_stack: Vec::new(),
        }
    }

    /// Says that times are known from there on.
    pub(crate) fn begin_at(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
    }

    /// A sampled block was allocated, by the record of that number.
    pub(crate) fn alloc(&mut self, allocation: &Allocation, record: u64) {
        let sum = self.allocations.entry(allocation.thread).or_default();
        *sum += Weight::of(allocation.size, allocation.interval).objects_f64();
        let at = EventPosition {
            record,
            time_ns: allocation.time_ns,
        };
        let birth = Birth {
            allocation: *allocation,
            at,
            allocations: *sum,
        };
        self.live.insert(allocation.id, birth);
    }

    /// A sampled block was freed.
    pub(crate) fn free(&mut self, id: u64, record: u64, time_ns: u64) {
        if let Some(birth) = self.live.remove(id) {
            self.settle(&birth, Some(EventPosition { record, time_ns }));
        }
    }

    /// Blocks of that stack came and went before detail begins.
    pub(crate) fn passed(&mut self, stack: u32, freed: &Estimate) {
        let Measure::Basic(metric) = self.measure else {
            return;
        };
        if metric.is_in_use() {
            return;
        }
        let factors = self.views.map(|view| match (view.from, view.to) {
            _ if view.survived_ns.is_some() => 0.0,
            (_, Cut::Nothing) => 0.0,
            (Cut::Nothing, _) => 1.0,
            _ => 0.0,
        });
        let (value, error) = match metric.is_bytes() {
            true => (freed.bytes_f64(), freed.bytes_error()),
            false => (freed.objects_f64(), freed.objects_error()),
        };
        self.add(stack, factors, (value, error * error), freed.samples);
    }

    /// The differences by stack; may be shorter than the stacks.
    pub(crate) fn finish(mut self) -> Vec<Change> {
        let mut live: Vec<Birth> = self.live.iter().map(|(_, &birth)| birth).collect();
        self.live = BlockMap::default();
        // Sums of floating-point numbers depend on their order; a hash map has none.
        live.sort_unstable_by_key(|birth| birth.allocation.id);
        for birth in &live {
            self.settle(birth, None);
        }
        self.by_stack
    }

    /// All of a block's life is known.
    fn settle(&mut self, birth: &Birth, death: Option<EventPosition>) {
        let factors = self.views.map(|view| self.factor(view, birth, death));
        let allocation = &birth.allocation;
        let weight = Weight::of(allocation.size, allocation.interval);
        let (value, variance) = match self.measure {
            Measure::Slack => weight.carrying(allocation.slack).bytes_f64_with_variance(),
            measure if measure.is_bytes() => weight.bytes_f64_with_variance(),
            _ => weight.objects_f64_with_variance(),
        };
        self.add(allocation.stack, factors, (value, variance), 1);
    }

    fn add(
        &mut self,
        stack: u32,
        [first, second]: [f64; 2],
        (value, variance): (f64, f64),
        samples: u64,
    ) {
        if first == 0.0 && second == 0.0 {
            return;
        }
        let index = stack as usize;
        if index >= self.by_stack.len() {
            self.by_stack.resize_with(index + 1, Change::default);
        }
        let change = &mut self.by_stack[index];
        change.before += value * first;
        change.after += value * second;
        change.before_variance += variance * first * first;
        let more = second - first;
        let side = match more {
            0.0 => return,
            more if more > 0.0 => &mut change.plus,
            _ => &mut change.minus,
        };
        *side += Amount {
            value: value * more.abs(),
            variance: variance * more * more,
            samples,
            ..Amount::default()
        };
    }

    /// Returns the factor `k` of a block in a view.
    fn factor(&self, view: Span, birth: &Birth, death: Option<EventPosition>) -> f64 {
        if !birth.at.is_before(view.to) {
            return 0.0;
        }
        let death = death.filter(|death| death.is_before(view.to));
        let is_survivor = death.is_none() && view.is_old_enough(birth.at.time_ns);
        if view.survived_ns.is_some() && !is_survivor {
            return 0.0;
        }
        let until_ns = death.map_or(view.to.time_ns(), |death| death.time_ns);
        if self.measure.is_growth() {
            return self.slope(view, birth.at.time_ns, until_ns);
        }
        if birth.at.is_before(view.from) {
            return 0.0;
        }
        let yes = |is_so: bool| f64::from(u8::from(is_so));
        match self.measure {
            Measure::Basic(Metric::AllocatedBytes | Metric::AllocatedObjects) => 1.0,
            Measure::Basic(Metric::InUseBytes | Metric::InUseObjects) | Measure::Slack => {
                yes(death.is_none())
            }
            Measure::TemporaryBytes | Measure::TemporaryObjects => {
                let lived_ns = until_ns.saturating_sub(birth.at.time_ns);
                let by_now = self.allocations.get(&birth.allocation.thread).copied();
                let since = by_now.unwrap_or_default() - birth.allocations;
                let is_known = death.is_some() && !birth.allocation.inherited;
                yes(is_known && self.temporary.holds(lived_ns, since))
            }
            Measure::HeaptimeBytes | Measure::HeaptimeObjects => {
                let held_ns = until_ns.saturating_sub(birth.at.time_ns.max(self.since_ns));
                (held_ns / 1000) as f64 / 1e6
            }
            Measure::PeakBytes
            | Measure::PeakObjects
            | Measure::GrowthBytes
            | Measure::GrowthObjects
            | Measure::Mapped
            | Measure::MappedResident
            | Measure::Resident
            | Measure::Swapped
            | Measure::Untouched
            | Measure::Pinned
            | Measure::Lifetime => 0.0,
        }
    }

    /// A block's part of the slope over the view's time, as in `core`'s slope.
    fn slope(&self, view: Span, from_ns: u64, until_ns: u64) -> f64 {
        let begin_ns = view.from.time_ns().max(self.since_ns);
        let seconds = |ns: u64| ns.saturating_sub(begin_ns) as f64 / 1e9;
        let (b, d, t) = (
            seconds(from_ns),
            seconds(until_ns),
            seconds(view.to.time_ns()),
        );
        match t > 0.0 && d > b {
            true => 6.0 * (d * d - b * b - t * (d - b)) / (t * t * t),
            false => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    /// Half of such blocks are sampled: each stands for two, with variance (1 - p) / p² = 2.
    const HALF: (u64, u64) = (726_817, 1 << 20); // ln 2 of a MiB

    fn allocation(id: u64, size: u64, time_ns: u64) -> Allocation {
        Allocation {
            id,
            stack: 0,
            thread: 0,
            size,
            slack: 0,
            interval: 1,
            time_ns,
            inherited: false,
        }
    }

    fn at(to_ns: u64) -> Span {
        Span::between(Cut::Nothing, Cut::Time(to_ns))
    }

    fn window(from_ns: u64, to_ns: u64) -> Span {
        Span::between(Cut::Time(from_ns), Cut::Time(to_ns))
    }

    fn contrast(measure: impl Into<Measure>, views: [Span; 2]) -> PairedDifference {
        PairedDifference::of(measure.into(), Temporary::within(S / 2), views)
    }

    fn near(is: f64, expected: f64) -> bool {
        (is - expected).abs() <= 1e-5 * expected.abs()
    }

    /// The sums in either view, and the parts that only the second and only the first have.
    fn of(contrast: PairedDifference) -> [f64; 4] {
        let change = contrast.finish().pop().unwrap_or_default();
        let Change {
            before,
            after,
            plus,
            minus,
            ..
        } = change;
        [before, after, plus.value, minus.value]
    }

    /// At 2 s and at 5 s: one stays, one goes, one comes, and one does both in between.
    fn story(measure: Metric, views: [Span; 2]) -> PairedDifference {
        let mut contrast = contrast(measure, views);
        contrast.alloc(&allocation(1, 1000, 0), 1);
        contrast.alloc(&allocation(2, 100, S), 2);
        contrast.alloc(&allocation(3, 10, 3 * S), 3);
        contrast.free(2, 4, 3 * S);
        contrast.alloc(&allocation(4, 1, 3 * S), 5);
        contrast.free(4, 6, 4 * S);
        contrast
    }

    #[test]
    fn what_is_in_both_views_cancels() {
        let views = [at(2 * S), at(5 * S)];
        let bytes = of(story(Metric::InUseBytes, views));
        assert_eq!(bytes, [1100.0, 1010.0, 10.0, 100.0]);
        let objects = of(story(Metric::InUseObjects, views));
        assert_eq!(objects, [2.0, 2.0, 1.0, 1.0]);
        let allocated = of(story(Metric::AllocatedBytes, views));
        assert_eq!(allocated, [1100.0, 1111.0, 11.0, 0.0]);
        // For windows, the blocks that came in them.
        let views = [window(0, 2 * S), window(2 * S, 5 * S)];
        let bytes = of(story(Metric::InUseBytes, views));
        assert_eq!(bytes, [100.0, 10.0, 10.0, 100.0]);
        let allocated = of(story(Metric::AllocatedObjects, views));
        assert_eq!(allocated, [1.0, 2.0, 2.0, 1.0]);
    }

    #[test]
    fn heaptime_differs_by_how_long_it_was_there_in_between() {
        let views = [at(2 * S), at(5 * S)];
        let block = Allocation {
            interval: HALF.1,
            ..allocation(1, HALF.0, S)
        };
        let size = HALF.0 as f64;
        let mut heaptime = contrast(Measure::HeaptimeBytes, views);
        heaptime.alloc(&block, 1);
        let change = heaptime.finish()[0];
        // Two blocks, for a second and for four.
        assert!(near(change.before, 2.0 * size) && near(change.after, 8.0 * size));
        assert!(near(change.plus.value, 6.0 * size), "{change:?}");
        assert!(near(change.plus.variance, 2.0 * size * size * 9.0));
        assert_eq!((change.plus.samples, change.minus.samples), (1, 0));
        // Where times are known from 1.5 s on, of that half a second less.
        let mut later = contrast(Measure::HeaptimeObjects, views);
        later.begin_at(S + S / 2);
        later.alloc(&block, 1);
        later.free(1, 2, 4 * S);
        let [before, after, plus, minus] = of(later);
        assert!(near(before, 1.0) && near(after, 5.0) && near(plus, 4.0) && minus == 0.0);
    }

    /// c = 6 (d² - b² - T (d - b)) / T³
    #[test]
    fn growth_is_what_a_block_brings_to_each_slope() {
        let views = [at(4 * S), window(4 * S, 10 * S)];
        let growth = |death: Option<u64>, since_s: u64| {
            let mut growth = contrast(Measure::GrowthBytes, views);
            growth.begin_at(since_s * S);
            growth.alloc(&allocation(1, 1000, 2 * S), 1);
            if let Some(death) = death {
                growth.free(1, 2, death * S);
            }
            of(growth)
        };
        let is = |growth: [f64; 4], expected: [f64; 4]| {
            let both = growth.into_iter().zip(expected);
            assert!(both.into_iter().all(|(a, b)| near(a, b)), "{growth:?}");
        };
        // 2 to 4 of 4: 6 (12 - 8) / 64. All of the second window: nothing.
        is(growth(None, 0), [375.0, 0.0, 0.0, 375.0]);
        // 0 to 3 of 6: 6 (9 - 18) / 216.
        is(growth(Some(7), 0), [375.0, -250.0, 0.0, 625.0]);
        // It went in the first: 2 to 3 of 4: 6 (5 - 4) / 64.
        is(growth(Some(3), 0), [93.75, 0.0, 0.0, 93.75]);
        // Knowledge begins at 1 s: 1 to 3 of 3: 6 (8 - 6) / 27.
        is(growth(None, 1), [12e3 / 27.0, 0.0, 0.0, 12e3 / 27.0]);
    }

    #[test]
    fn temporary_is_what_the_history_calls_so() {
        let views = [at(2 * S), at(5 * S)];
        let temporary = |temporary: Temporary| {
            let measure = Measure::TemporaryBytes;
            let mut contrast = PairedDifference::of(measure, temporary, views);
            let mut record = 0;
            let mut next = || {
                record += 1;
                record
            };
            // In both; in the second; too long; never; had from the parent.
            for (id, from, to) in [(1, 10, 15), (2, 30, 35), (3, 36, 42)] {
                contrast.alloc(&allocation(id, 10u64.pow(id as u32), from * S / 10), next());
                contrast.free(id, next(), to * S / 10);
            }
            contrast.alloc(&allocation(4, 1, 43 * S / 10), next());
            let inherited = Allocation {
                inherited: true,
                ..allocation(5, 100_000, 44 * S / 10)
            };
            contrast.alloc(&inherited, next());
            // In another thread, 7 goes before its thread's next, and 6 behind it.
            for id in [6, 7] {
                let other = Allocation {
                    thread: 1,
                    ..allocation(id, 10u64.pow(id as u32), 45 * S / 10)
                };
                contrast.alloc(&other, next());
            }
            for id in [5, 6, 7] {
                contrast.free(id, next(), 49 * S / 10);
            }
            of(contrast)
        };
        let within = temporary(Temporary::within(S / 2));
        assert_eq!(within, [10.0, 11_000_110.0, 11_000_100.0, 0.0]);
        let before_its_next = temporary(Temporary {
            within_ns: None,
            before_allocations: Some(1),
        });
        assert_eq!(before_its_next, [10.0, 10_001_110.0, 10_001_100.0, 0.0]);
    }

    #[test]
    fn slack_has_the_odds_of_its_block() {
        let mut slack = contrast(Measure::Slack, [at(2 * S), at(5 * S)]);
        let block = Allocation {
            interval: HALF.1,
            slack: 1000,
            ..allocation(1, HALF.0, S)
        };
        slack.alloc(&block, 1);
        slack.free(1, 2, 3 * S);
        let change = slack.finish()[0];
        assert!(near(change.minus.value, 2000.0) && near(change.minus.variance, 2e6));
        assert_eq!(change.minus.samples, 1);
    }

    /// It rotated: of what came and went before, all that can be known is that it was allocated.
    #[test]
    fn what_came_and_went_before_detail_begins_was_allocated() {
        let mut freed = Estimate::default();
        freed.add(&Weight::of(HALF.0, HALF.1));
        let size = HALF.0 as f64;
        let passed = |measure: Metric, views| {
            let mut contrast = contrast(measure, views);
            contrast.begin_at(S);
            contrast.passed(0, &freed);
            contrast.finish().pop()
        };
        let views = [at(5 * S), window(2 * S, 5 * S)];
        let bytes = passed(Metric::AllocatedBytes, views).unwrap();
        assert!(near(bytes.before, 2.0 * size) && bytes.after == 0.0);
        assert!(near(bytes.minus.value, 2.0 * size));
        assert!(near(bytes.minus.variance, 2.0 * size * size));
        assert_eq!(bytes.minus.samples, 1);
        let objects = passed(Metric::AllocatedObjects, views).unwrap();
        assert!(near(objects.minus.value, 2.0) && near(objects.minus.variance, 2.0));
        assert_eq!(passed(Metric::InUseBytes, views), None);
        // In both it is the same, and at the very start nothing has been.
        let same = passed(Metric::AllocatedObjects, [at(5 * S), at(6 * S)]).unwrap();
        assert_eq!((same.plus, same.minus), Default::default());
        let start = Span::between(Cut::Nothing, Cut::Nothing);
        let all = passed(Metric::AllocatedObjects, [start, at(6 * S)]).unwrap();
        assert!(all.before == 0.0 && near(all.plus.value, 2.0));
    }
}
