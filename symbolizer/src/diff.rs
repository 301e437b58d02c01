//! A difference: what changed between two profiles, site by site, and whether it is more than noise.
//!
//! ```text
//!   two runs      A: all that was there     B: all that was there        both noisy, variances add
//!   one log       T1 ──────────────────────> T2
//!                 ├─ stays ────────────────┤                            the same samples: cancels
//!                 ├─ freed ─────┘  counts as minus
//!                      └─ came ────────────┤  counts as plus
//! ```
//!
//! Plus and minus rest on different samples, so the variance of their difference is the sum of
//! theirs: `z = (plus - minus) / sqrt(var plus + var minus)`. With one log that is the variance of
//! what changed, and not that of all there is.

use std::collections::BTreeMap;

use heapprof_core::Estimate;

use crate::measure::Amount;
use crate::metric::Metric;
use crate::profile::{Precision, Profile};
use crate::site::SiteMap;
use crate::symbols::Symbols;

/// Beyond so many standard errors a difference is called real: noise alone gets there once in 370.
pub const REAL: f64 = 3.0;

/// A site, by what two builds of a program have in common: lines move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The function.
    pub function: String,
    /// Name of its module, without folders.
    pub module: String,
}

/// What changed at a site.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// How much there was.
    pub before: f64,
    /// How much there is.
    pub after: f64,
    /// What only the second has.
    pub plus: Amount,
    /// What only the first has.
    pub minus: Amount,
    /// Whether a side comes from a dump that does not state its errors.
    pub is_unsure: bool,
}

/// Whether a change is more than noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every allocation was recorded: it is what it is.
    Exact,
    /// Larger than noise would make it.
    Real,
    /// Noise may have made it.
    Noise,
    /// The inputs do not say how exact they are.
    Unknown,
}

impl Verdict {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::Real => "real",
            Verdict::Noise => "noise",
            Verdict::Unknown => "unknown",
        }
    }
}

impl Change {
    /// How much more there is.
    pub fn difference(&self) -> f64 {
        self.plus.value - self.minus.value
    }

    /// Its standard error.
    pub fn error(&self) -> f64 {
        (self.plus.variance + self.minus.variance).max(0.0).sqrt()
    }

    /// The difference in standard errors; infinite for an exact one, `None` when nothing is known
    /// about errors.
    pub fn z(&self) -> Option<f64> {
        let difference = self.difference();
        if self.is_unsure {
            None
        } else if difference == 0.0 {
            Some(0.0)
        } else {
            Some(difference / self.error())
        }
    }

    /// Whether it is more than noise.
    pub fn verdict(&self) -> Verdict {
        match self.z() {
            None => Verdict::Unknown,
            Some(_) if self.error() == 0.0 => Verdict::Exact,
            Some(z) if z.abs() >= REAL => Verdict::Real,
            Some(_) => Verdict::Noise,
        }
    }
}

/// All changes, in no order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diff {
    /// By site.
    pub changes: BTreeMap<Place, Change>,
    /// Of everything.
    pub total: Change,
}

impl Diff {
    /// Between two profiles that share no samples.
    pub fn of_two(
        (before, before_symbols): (&Profile, &Symbols),
        (after, after_symbols): (&Profile, &Symbols),
        metric: Metric,
    ) -> Diff {
        let mut diff = Diff::default();
        for (profile, symbols, is_after) in [
            (before, before_symbols, false),
            (after, after_symbols, true),
        ] {
            let map = SiteMap::of(profile, symbols);
            let is_unsure = profile.precision() == Precision::Stated;
            for row in &profile.rows {
                let amount = amount(metric.estimate_of(&row.totals), metric);
                diff.at(&map, row.stack, |change| {
                    change.is_unsure |= is_unsure;
                    if is_after {
                        change.after += amount.value;
                        change.plus += amount;
                    } else {
                        change.before += amount.value;
                        change.minus += amount;
                    }
                });
            }
        }
        diff
    }

    /// Between two moments of one log: the profiles at both, and of the window between them.
    pub fn of_moments(
        before: &Profile,
        after: &Profile,
        window: &Profile,
        symbols: &Symbols,
        metric: Metric,
    ) -> Diff {
        type Rows = BTreeMap<(u32, heapprof_core::SizeClass), [Estimate; 3]>;
        let mut rows = Rows::new();
        for (i, profile) in [before, after, window].into_iter().enumerate() {
            for row in &profile.rows {
                let key = (row.stack, row.class);
                rows.entry(key).or_default()[i] = *metric.estimate_of(&row.totals);
            }
        }
        let map = SiteMap::of(after, symbols);
        let mut diff = Diff::default();
        for ((stack, _), [before, after, came]) in rows {
            // What stays is what is there and did not come; what was freed was there and did not stay.
            let freed = before.without(&after.without(&came));
            diff.at(&map, stack, |change| {
                change.before += amount(&before, metric).value;
                change.after += amount(&after, metric).value;
                change.plus += amount(&came, metric);
                change.minus += amount(&freed, metric);
            });
        }
        diff
    }

    fn at(&mut self, map: &SiteMap, stack: u32, add: impl Fn(&mut Change)) {
        let Some(key) = map.own_of(stack) else {
            return;
        };
        let module = key.module.rsplit('/').next().unwrap_or(&key.module);
        let place = Place {
            function: key.function.clone(),
            module: module.to_owned(),
        };
        add(self.changes.entry(place).or_default());
        add(&mut self.total);
    }
}

fn amount(estimate: &Estimate, metric: Metric) -> Amount {
    let (value, error) = if metric.is_bytes() {
        (estimate.bytes_f64(), estimate.bytes_error())
    } else {
        (estimate.objects_f64(), estimate.objects_error())
    };
    Amount {
        value,
        variance: error * error,
        samples: estimate.samples,
    }
}

/// Why two profiles may not be comparable, in words; the first kind forbids it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unlike {
    /// They are of different programs.
    pub programs: Option<String>,
    /// What else a reader must know.
    pub remarks: Vec<String>,
}

impl Unlike {
    /// What differs between two profiles besides their numbers.
    pub fn between(a: &Profile, b: &Profile) -> Unlike {
        let name = |profile: &Profile| {
            let program = &profile.run.program;
            program.rsplit('/').next().unwrap_or(program).to_owned()
        };
        let mut unlike = Unlike::default();
        let (of_a, of_b) = (name(a), name(b));
        if of_a != of_b && !of_a.is_empty() && !of_b.is_empty() {
            unlike.programs = Some(format!("the first is of {of_a}, the second of {of_b}"));
        }
        if a.run.interval != b.run.interval {
            let interval = |profile: &Profile| match profile.run.interval {
                Some(interval) => format!("{interval} bytes"),
                None => "not stated".into(),
            };
            unlike.remarks.push(format!(
                "sampling intervals differ ({} and {}): errors take that into account, \
                 but a small site may be seen in one only",
                interval(a),
                interval(b)
            ));
        }
        for module in &a.modules {
            let other = b.modules.iter().find(|other| other.name() == module.name());
            let Some(other) = other else { continue };
            let differ = module.build_id != other.build_id;
            if differ && !module.build_id.is_empty() && !other.build_id.is_empty() {
                unlike.remarks.push(format!(
                    "{} was rebuilt in between (build-ids differ): functions are compared by name",
                    module.name()
                ));
            }
        }
        let (of_a, of_b) = (
            a.run.duration_ns as f64 / 1e9,
            b.run.duration_ns as f64 / 1e9,
        );
        if of_a > 0.0 && of_b > 0.0 && (of_a / of_b > 1.5 || of_b / of_a > 1.5) {
            unlike.remarks.push(format!(
                "the runs lasted {of_a:.1} s and {of_b:.1} s: what was allocated differs for that alone"
            ));
        }
        for (profile, which) in [(a, "first"), (b, "second")] {
            if profile.precision() == Precision::Stated {
                unlike.remarks.push(format!(
                    "the {which} is a dump that does not state the errors of its lines: no verdicts"
                ));
            }
        }
        unlike
    }
}
