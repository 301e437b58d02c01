//! Coarse past: what a run had in use before the time that its log has in detail, by site.
//!
//! The log has it at moments, with the stacks that had the most bytes at each. So a site had at
//! least the sum of its stacks that are listed. A site without such a stack was not among the
//! largest, which is not the same as nothing.

use heapprof_format::CoarseMoment;

use crate::model::profile::Profile;
use crate::model::run::Run;
use crate::naming::site::SiteMap;

/// The bytes in use at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct CoarseRow {
    /// The moment.
    pub time_ns: u64,
    /// Bytes in use.
    pub bytes: f64,
    /// Their standard error.
    pub bytes_error: f64,
    /// Blocks in use.
    pub objects: f64,
    /// The most bytes in use at any time since the row before; of several processes, a bound.
    pub highest: f64,
    /// Resident bytes by the last reading of the memory; `None`: there was none.
    pub resident: Option<u64>,
    /// The sites of the largest stacks, the largest first.
    pub sites: Vec<CoarseSite>,
}

/// A site at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoarseSite {
    /// Index into [`SiteMap::keys`].
    pub site: usize,
    /// It had at least so many bytes in use.
    pub least_bytes: f64,
}

/// A change from a moment of the coarse past to the end of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoarseSpan {
    /// The moment.
    pub from_ns: u64,
    /// The length of time.
    pub seconds: f64,
    /// Bytes in use then; of a site, at least.
    pub before: f64,
    /// Bytes in use at the end.
    pub after: f64,
    /// The standard error of the change is at most this.
    pub error: f64,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoarsePast {
    /// In order of time.
    pub rows: Vec<CoarseRow>,
    /// True if a process was forked: the rows are without what it has from its parent.
    pub without_inherited: bool,
    /// True if the rows are of several processes: they had `highest` at most.
    pub is_joined: bool,
}

impl CoarsePast {
    /// The coarse past of a whole run. It is empty for a part of the time or of the stacks, and for
    /// a log that has all of its detail.
    pub fn of(profile: &Profile, sites: &SiteMap) -> CoarsePast {
        let is_whole = profile.run.span.is_none();
        let moments = profile.coarse.iter().filter(|_| is_whole);
        CoarsePast {
            rows: moments.map(|moment| row(moment, sites)).collect(),
            without_inherited: profile.has_coarse_heir(),
            is_joined: profile.run.is_joined,
        }
    }

    /// Returns at most so many rows: the last one of each of as many equal parts of the rows, with
    /// the most of all rows of the part.
    pub fn thinned(&self, most: usize) -> Vec<CoarseRow> {
        let part = self.rows.len().div_ceil(most.max(1)).max(1);
        // The first part is the one that may be shorter.
        let first = self.rows.len() % part;
        let (first, rest) = self.rows.split_at(first);
        let parts = Some(first).into_iter().chain(rest.chunks(part));
        let of_part = |rows: &[CoarseRow]| {
            Some(CoarseRow {
                highest: rows.iter().map(|row| row.highest).fold(0.0, f64::max),
                ..rows.last()?.clone()
            })
        };
        parts.filter_map(of_part).collect()
    }

    /// Returns the most bytes in use in each of so many equal steps of the time up to `until_ns`.
    pub fn curve(&self, until_ns: u64, steps: usize) -> Vec<f64> {
        self.curve_of(until_ns, steps, |row| row.highest)
    }

    /// Like [`curve`](Self::curve), of the resident bytes. `None`: no row has them.
    pub fn resident_curve(&self, until_ns: u64, steps: usize) -> Option<Vec<f64>> {
        self.rows.iter().find_map(|row| row.resident)?;
        Some(self.curve_of(until_ns, steps, |row| row.resident.unwrap_or(0) as f64))
    }

    fn curve_of(&self, until_ns: u64, steps: usize, value: impl Fn(&CoarseRow) -> f64) -> Vec<f64> {
        let mut curve = vec![0.0; steps];
        let step_of = |ns: u64| {
            let step = u128::from(ns) * steps as u128 / u128::from(until_ns.max(1));
            (step as usize).min(steps.saturating_sub(1))
        };
        let mut from_ns = 0;
        for row in &self.rows {
            // A moment that ends a step belongs to it.
            let last = step_of(row.time_ns.saturating_sub(1));
            if let Some(covered) = curve.get_mut(step_of(from_ns)..=last) {
                for most in covered {
                    *most = value(row).max(*most);
                }
            }
            from_ns = row.time_ns;
        }
        curve
    }

    /// Returns the change of all that is in use, from the first row on. `None`: there is no row, or
    /// no time behind it, or what the end has from the parent is not in the rows.
    pub fn whole_span(&self, profile: &Profile) -> Option<CoarseSpan> {
        let first = self.rows.first().filter(|_| !self.without_inherited)?;
        let in_use = profile.totals().in_use;
        span(profile, first.time_ns, first.bytes, in_use.bytes_f64()).map(|span| CoarseSpan {
            // Blocks that are there at both moments cancel.
            error: first.bytes_error.hypot(in_use.bytes_error()),
            ..span
        })
    }

    /// Returns the change of a site from the first row on that lists it, if one does: at most as
    /// much as that. `after` is what it has in use at the end.
    pub fn span_of_site(&self, profile: &Profile, site: usize, after: f64) -> Option<CoarseSpan> {
        let listed = |row: &CoarseRow| {
            let mut sites = row.sites.iter();
            Some((row.time_ns, sites.find(|it| it.site == site)?.least_bytes))
        };
        let rows = self.rows.iter().filter(|_| !self.without_inherited);
        let (from_ns, before) = rows.into_iter().find_map(listed)?;
        span(profile, from_ns, before, after)
    }
}

impl Profile {
    /// Returns what is known of the time before detail, in words; `None`: nothing.
    pub fn before_detail(&self) -> Option<&'static str> {
        self.run.checkpoint.as_ref()?;
        let is_joined = self.run.is_joined;
        match (self.coarse.is_empty(), self.has_coarse_heir()) {
            (true, _) if is_joined => {
                Some("of the time before, a process's own log may show moments")
            }
            (true, _) => None,
            (false, true) if is_joined => Some(
                "of the time before, `timeline` and the page of `report` show moments, without what processes have \
                 from their parents",
            ),
            (false, true) => Some(
                "of the time before, `timeline` and the page of `report` show moments, without what the process \
                 has from its parent",
            ),
            (false, false) if is_joined => Some(
                "of the time before, `timeline`, `top -m growth` and the page of `report` use moments",
            ),
            (false, false) => Some(
                "of the time before, `timeline`, `top -m growth`, `explain` and the page of `report` use moments",
            ),
        }
    }
}

impl Profile {
    /// Returns true if the coarse history is without blocks that a process has from its parent.
    fn has_coarse_heir(&self) -> bool {
        let is_heir = |run: &Run| run.forked_from != 0;
        let mut parts = self.parts.iter();
        is_heir(&self.run) || parts.any(|part| is_heir(&part.run) && !part.without_inherited)
    }
}

impl CoarseSpan {
    /// Returns the bytes by which it grew each second.
    pub fn bytes_per_second(&self) -> f64 {
        (self.after - self.before) / self.seconds
    }
}

fn span(profile: &Profile, from_ns: u64, before: f64, after: f64) -> Option<CoarseSpan> {
    let length_ns = profile.run.duration_ns.checked_sub(from_ns)?;
    (length_ns > 0).then_some(CoarseSpan {
        from_ns,
        seconds: length_ns as f64 / 1e9,
        before,
        after,
        error: 0.0,
    })
}

fn row(moment: &CoarseMoment, map: &SiteMap) -> CoarseRow {
    let mut sites: Vec<CoarseSite> = Vec::new();
    for &(stack, bytes) in &moment.largest {
        let Some(site) = map.own(stack) else { continue };
        match sites.iter_mut().find(|it| it.site == site) {
            Some(known) => known.least_bytes += bytes as f64,
            None => sites.push(CoarseSite {
                site,
                least_bytes: bytes as f64,
            }),
        }
    }
    sites.sort_by(|a, b| b.least_bytes.total_cmp(&a.least_bytes));
    CoarseRow {
        time_ns: moment.time_ns,
        bytes: moment.bytes as f64,
        bytes_error: moment.bytes_error as f64,
        objects: moment.objects as f64,
        highest: moment.highest as f64,
        resident: Some(moment.resident).filter(|&bytes| bytes > 0),
        sites,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(rows: &[(u64, f64, f64)]) -> CoarsePast {
        let row = |&(seconds, bytes, highest): &(u64, f64, f64)| CoarseRow {
            time_ns: seconds * 1_000_000_000,
            bytes,
            bytes_error: 3.0,
            objects: 1.0,
            highest,
            resident: None,
            sites: vec![CoarseSite {
                site: seconds as usize / 20,
                least_bytes: bytes / 2.0,
            }],
        };
        CoarsePast {
            rows: rows.iter().map(row).collect(),
            ..CoarsePast::default()
        }
    }

    #[test]
    fn a_thinned_past_keeps_the_last_row_and_every_maximum() {
        let rows = [
            (10, 1.0, 9.0),
            (20, 2.0, 2.0),
            (30, 3.0, 3.0),
            (40, 4.0, 7.0),
            (50, 5.0, 5.0),
        ];
        let past = past(&rows);
        let thinned = |most: usize| -> Vec<(u64, f64)> {
            let rows = past.thinned(most);
            let of = |row: &CoarseRow| (row.time_ns / 1_000_000_000, row.highest);
            rows.iter().map(of).collect()
        };
        assert_eq!(thinned(2), [(20, 9.0), (50, 7.0)]);
        assert_eq!(thinned(3), [(10, 9.0), (30, 3.0), (50, 7.0)]);
        assert_eq!(thinned(1), [(50, 9.0)]);
        assert_eq!(past.thinned(5), past.rows);
        assert_eq!(past.thinned(99), past.rows);
        assert!(CoarsePast::default().thinned(3).is_empty());
    }

    #[test]
    fn a_step_of_the_curve_has_the_most_of_the_rows_that_cover_it() {
        let past = past(&[(10, 1.0, 9.0), (40, 4.0, 7.0), (50, 5.0, 5.0)]);
        let ns = 50_000_000_000;
        assert_eq!(past.curve(ns, 5), [9.0, 7.0, 7.0, 7.0, 5.0]);
        assert_eq!(past.curve(ns, 1), [9.0]);
        assert_eq!(past.curve(2 * ns, 2), [9.0, 0.0]);
        assert_eq!(past.curve(0, 2).len(), 2);
        assert!(past.curve(ns, 0).is_empty());
        assert_eq!(CoarsePast::default().curve(ns, 2), [0.0, 0.0]);
    }

    #[test]
    fn the_curve_of_resident_bytes_has_the_rows_that_tell_them() {
        let mut past = past(&[(10, 1.0, 9.0), (40, 4.0, 7.0), (50, 5.0, 5.0)]);
        let ns = 50_000_000_000;
        assert_eq!(past.resident_curve(ns, 5), None);
        past.rows[1].resident = Some(80);
        past.rows[2].resident = Some(60);
        let curve = past.resident_curve(ns, 5);
        assert_eq!(curve, Some(vec![0.0, 80.0, 80.0, 80.0, 60.0]));
    }

    #[test]
    fn a_site_grows_from_the_first_row_that_lists_it() {
        let past = past(&[(10, 100.0, 100.0), (30, 300.0, 300.0), (40, 500.0, 500.0)]);
        let mut profile = Profile::default();
        profile.run.duration_ns = 110_000_000_000;
        let of_site = past.span_of_site(&profile, 1, 950.0).expect("it is listed");
        assert_eq!((of_site.from_ns, of_site.before), (30_000_000_000, 150.0));
        assert_eq!(of_site.bytes_per_second(), 10.0);
        // Listed by none: nothing is known, which is not zero.
        assert_eq!(past.span_of_site(&profile, 9, 950.0), None);
        let whole = past.whole_span(&profile).expect("there are rows");
        assert_eq!((whole.before, whole.after, whole.error), (100.0, 0.0, 3.0));
        assert_eq!((whole.seconds, whole.bytes_per_second()), (100.0, -1.0));
        let forked = CoarsePast {
            without_inherited: true,
            ..past.clone()
        };
        assert_eq!(forked.whole_span(&profile), None);
        assert_eq!(forked.span_of_site(&profile, 1, 950.0), None);
        profile.run.duration_ns = 10_000_000_000;
        assert_eq!(past.whole_span(&profile), None);
    }
}
