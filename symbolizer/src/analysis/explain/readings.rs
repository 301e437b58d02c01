//! Readings: growth of memory that malloc never saw, and of what a limit counts, by the readings of
//! the memory.
//!
//! As in `explain::conduct`, the lower envelope is judged in quarters of the time. In the first one
//! a program fills its tables, and it is left out. Readings are no estimates: the error is how
//! unsteady the growth is.
//!
//! Not here: which stacks have mapped it; the profile's mappings tell.

use crate::model::memory_course::MemoryMoment;
use crate::model::profile::Profile;
use crate::naming::allocator_name::is_of_pymalloc;
use crate::naming::site::{SiteKey, SiteMap};
use crate::naming::symbols::Symbols;

/// Fewest readings in each of the three quarters that are judged.
const FEWEST: usize = 2;
/// The part of what was there that growth must be, to matter.
const MATTERS: f64 = 0.05;
/// Bytes that growth must be.
const LEAST: f64 = (1 << 20) as f64;
/// The part of the growth that each half of the time has.
const STEADY: f64 = 0.4;
/// The part of the mapped memory from which a site is the one to name.
const MOST: f64 = 0.5;

/// Steady growth of a number of the readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trend {
    /// In bytes a second.
    pub(crate) growth: f64,
    /// Half of the difference between the rates of its two halves, in place of a standard error.
    pub(crate) error: f64,
}

/// Memory that malloc never saw, and that grows.
#[derive(Debug, Clone, PartialEq)]
pub struct MappedGrowth {
    /// In bytes a second.
    pub growth: f64,
    /// See [`growth`](MappedGrowth::growth).
    pub growth_error: f64,
    /// Resident bytes of mappings and shared memory at the last reading.
    pub bytes: u64,
    /// The site that has mapped most of them, or all mappings if none has.
    pub site: SiteKey,
    /// Mapped bytes of that site; 0: none has mapped most.
    pub site_bytes: u64,
    /// Mapped bytes of arenas of Python's small objects.
    pub of_pymalloc: u64,
}

impl Trend {
    /// Returns the growth of a number from the first moment to the last one. `None`: it does not
    /// grow to the end, or there are too few readings.
    pub(crate) fn of(
        moments: &[MemoryMoment],
        number: impl Fn(&MemoryMoment) -> Option<u64>,
    ) -> Option<Trend> {
        let known: Vec<(u64, f64)> = moments
            .iter()
            .filter_map(|it| Some((it.time_ns, number(it)? as f64)))
            .collect();
        let (&(first_ns, _), &(last_ns, last)) = known.first().zip(known.last())?;
        let quarter_ns = last_ns.checked_sub(first_ns)? / 4;
        let low_of = |quarter: u64| {
            let from_ns = first_ns + quarter * quarter_ns;
            let to_ns = match quarter {
                3 => u64::MAX,
                _ => from_ns + quarter_ns,
            };
            let inside = known.iter().filter(|it| (from_ns..to_ns).contains(&it.0));
            let least = inside.clone().min_by(|a, b| a.1.total_cmp(&b.1));
            least.copied().filter(|_| inside.count() >= FEWEST)
        };
        let (second, third, fourth) = (low_of(1)?, low_of(2)?, low_of(3)?);
        let rate =
            |from: (u64, f64), to: (u64, f64)| (to.1 - from.1) * 1e9 / (to.0 - from.0) as f64;
        let (before, after) = (rate(second, third), rate(third, fourth));
        let growth = rate(second, fourth);
        let is_enough = fourth.1 - second.1 > (MATTERS * last).max(LEAST);
        // Growth that has ended, or came at once, is none.
        let goes_on = before.min(after) > growth * STEADY;
        (is_enough && goes_on).then(|| Trend {
            growth,
            error: (after - before).abs() / 2.0,
        })
    }
}

impl MappedGrowth {
    /// `None`: it does not grow, or is not known.
    pub(crate) fn of(profile: &Profile, symbols: &Symbols, map: &SiteMap) -> Option<MappedGrowth> {
        // Blocks of allocators inside lie in mappings, and are judged by their sites.
        if !profile.run.tapped.is_empty() {
            return None;
        }
        let moments = moments_of(profile);
        let trend = Trend::of(moments, |it| it.mappings)?;
        let last = moments.iter().rev().find_map(|it| it.mappings)?;
        let mut by_site: Vec<u64> = vec![0; map.keys().len()];
        let mut of_pymalloc: u64 = 0;
        for line in &profile.mappings.lines {
            let stack = line
                .stack
                .and_then(|stack| profile.stacks.get(stack as usize));
            if stack.is_some_and(|stack| is_of_pymalloc(profile, symbols, stack)) {
                of_pymalloc = of_pymalloc.saturating_add(line.mapped);
            }
            if let Some(site) = line.stack.and_then(|stack| map.own(stack)) {
                by_site[site] = by_site[site].saturating_add(line.mapped);
            }
        }
        let largest = by_site.iter().enumerate().max_by_key(|it| *it.1);
        let largest = largest.filter(|it| *it.1 as f64 > MOST * last as f64);
        let (site, site_bytes) = match largest {
            Some((site, &bytes)) => (map.keys()[site].clone(), bytes),
            None => (SiteKey::of_no_site("[mappings]"), 0),
        };
        Some(MappedGrowth {
            growth: trend.growth,
            growth_error: trend.error,
            bytes: last,
            site,
            site_bytes,
            of_pymalloc,
        })
    }
}

/// Returns the moments of the view.
pub(crate) fn moments_of(profile: &Profile) -> &[MemoryMoment] {
    let moments = profile.memory_course.moments();
    let Some(span) = profile.run.span else {
        return moments;
    };
    let begin = moments.partition_point(|it| it.time_ns < span.from.time_ns());
    let end = moments.partition_point(|it| it.time_ns <= span.to.time_ns());
    &moments[begin.min(end)..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn trend(values: impl Iterator<Item = u64>) -> Option<Trend> {
        let moments: Vec<MemoryMoment> = (0..)
            .zip(values)
            .map(|(second, mib)| MemoryMoment {
                time_ns: second * 1_000_000_000,
                mappings: Some(mib * MIB),
                address_space: None,
                cgroup: None,
            })
            .collect();
        Trend::of(&moments, |it| it.mappings)
    }

    #[test]
    fn steady_growth_is_told_by_the_second() {
        let found = trend((0..41).map(|second| 10 + 5 * second)).unwrap();
        assert_eq!(found.growth, 5.0 * MIB as f64);
        assert_eq!(found.error, 0.0);
    }

    #[test]
    fn growth_that_has_ended_or_came_at_once_is_none() {
        assert_eq!(trend((0..40).map(|second: u64| second.min(20))), None);
        assert_eq!(
            trend((0..40).map(|second| if second > 25 { 200 } else { 10 })),
            None
        );
        // It rises and falls.
        assert_eq!(trend((0..40).map(|second| 10 + second % 7 * 20)), None);
        assert_eq!(trend((0..40).map(|_| 100)), None);
        // A hundredth of what is there.
        assert_eq!(trend((0..40).map(|second| 4000 + second)), None);
        assert_eq!(trend((0..5).map(|second| second * 100)), None, "too few");
        assert_eq!(trend(std::iter::empty()), None);
        // A damaged log may have times that go back.
        let at = |time_ns| MemoryMoment {
            time_ns,
            mappings: Some(time_ns),
            address_space: None,
            cgroup: None,
        };
        assert_eq!(
            Trend::of(&[at(u64::MAX), at(5), at(0)], |it| it.mappings),
            None
        );
    }
}
