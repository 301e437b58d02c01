//! A contrast: a sum over blocks in two views of one log, and their difference.
//!
//! Every metric is a sum of `x k` over blocks, `x` being a block's size, 1 or its slack, and `k` what the view says of it: 1 or 0
//! for in use, allocated and temporary, seconds for heaptime, a part of a slope for growth. A sample brings to the
//! difference of two views `x (k₂ - k₁)/p`, with variance `x² (k₂ - k₁)² (1 - p)/p²`. So what is the same in both
//! cancels and adds no error, and two windows may share blocks, or touch, or overlap:
//!
//! ```text
//!   at T1, at T2         in use      a block that is there at both: k₁ = k₂, no error
//!   at T1, at T2         heaptime    k₂ - k₁: for how long it was there in between
//!   T1..T2, T3..T4       growth      a block from T1 to beyond T4 moves neither slope; one that came in the first
//!                                    and went in the second moves both, and its error counts once for both together
//! ```
//!
//! What a view says is what `heapprof top` shows of it, metric by metric; `core`'s history has the same definitions.

use heapprof_core::{Came, Estimate, NumberMap, Temporary, Weight};

use crate::diff::Change;
use crate::measure::{Amount, Measure};
use crate::metric::Metric;
use crate::moment::Cut;
use crate::view::Span;

/// Where an event is in the log.
#[derive(Debug, Clone, Copy)]
struct At {
    record: u64,
    time_ns: u64,
}

impl At {
    fn is_before(self, cut: Cut) -> bool {
        cut.includes(self.record, self.time_ns)
    }
}

#[derive(Debug, Clone, Copy)]
struct Birth {
    came: Came,
    at: At,
    /// What its thread had allocated, it included.
    allocations: f64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Contrast {
    measure: Measure,
    temporary: Temporary,
    views: [Span; 2],
    /// Detail begins here.
    since_ns: u64,
    live: NumberMap<u64, Birth>,
    allocations: NumberMap<u32, f64>,
    by_stack: Vec<Change>,
}

impl Contrast {
    /// Between those views. The peak is no such sum: nothing is said of it.
    pub(crate) fn of(measure: Measure, temporary: Temporary, views: [Span; 2]) -> Contrast {
        Contrast {
            measure,
            temporary,
            views,
            since_ns: 0,
            live: NumberMap::default(),
            allocations: NumberMap::default(),
            by_stack: Vec::new(),
        }
    }

    /// What is known of times begins there.
    pub(crate) fn begin_at(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
    }

    /// A sampled block came, by the record of that number.
    pub(crate) fn alloc(&mut self, came: &Came, record: u64) {
        let sum = self.allocations.entry(came.thread).or_default();
        *sum += Weight::of(came.size, came.interval).objects_f64();
        let at = At {
            record,
            time_ns: came.time_ns,
        };
        let birth = Birth {
            came: *came,
            at,
            allocations: *sum,
        };
        self.live.insert(came.id, birth);
    }

    /// It went.
    pub(crate) fn free(&mut self, id: u64, record: u64, time_ns: u64) {
        if let Some(birth) = self.live.remove(&id) {
            self.settle(&birth, Some(At { record, time_ns }));
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
        let mut live: Vec<Birth> = self.live.drain().map(|(_, birth)| birth).collect();
        // Sums of floating-point numbers depend on their order; a hash map has none.
        live.sort_unstable_by_key(|birth| birth.came.id);
        for birth in &live {
            self.settle(birth, None);
        }
        self.by_stack
    }

    /// All of a block's life is known.
    fn settle(&mut self, birth: &Birth, death: Option<At>) {
        let factors = self.views.map(|view| self.factor(view, birth, death));
        let came = &birth.came;
        let weight = Weight::of(came.size, came.interval);
        let (value, variance) = match self.measure {
            Measure::Slack => weight.carrying(came.slack).bytes_f64_with_variance(),
            measure if measure.is_bytes() => weight.bytes_f64_with_variance(),
            _ => weight.objects_f64_with_variance(),
        };
        self.add(came.stack, factors, (value, variance), 1);
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
        };
    }

    /// What a view says of a block.
    fn factor(&self, view: Span, birth: &Birth, death: Option<At>) -> f64 {
        if !birth.at.is_before(view.to) {
            return 0.0;
        }
        let death = death.filter(|death| death.is_before(view.to));
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
                let by_now = self.allocations.get(&birth.came.thread).copied();
                let since = by_now.unwrap_or_default() - birth.allocations;
                let is_known = death.is_some() && !birth.came.inherited;
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
