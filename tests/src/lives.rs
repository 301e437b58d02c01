//! Lives: every block of `known_history` by its own record, and the truths that follow, without
//! code of the profiler. All computations are quadratic and plain.
//!
//! An instant is a block of `site_marker` while the program is otherwise quiet. An event at the
//! instant comes before it, so the marker itself is in use then.

use std::collections::BTreeMap;

use crate::account::Account;

/// A block's life. Times are of the monotonic clock before and after the call, in ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// The function that allocated it.
    pub site: String,
    /// The thread that allocated it.
    pub thread: u32,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes beyond the requested ones.
    pub slack: u64,
    /// Time of its allocation.
    pub born: (i64, i64),
    /// Time of its free.
    pub freed: Option<(i64, i64)>,
    /// Its number among its thread's allocations.
    nth: u64,
    /// Allocations of its thread at the time of its free.
    nth_then: u64,
}

impl Life {
    fn of(line: &str) -> Option<Life> {
        let mut words = line.strip_prefix("life ")?.split(' ');
        let site = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<i64>().ok();
        let life = Life {
            site,
            thread: number()? as u32,
            size: number()? as u64,
            slack: number()? as u64,
            born: (number()?, number()?),
            freed: Some((number()?, number()?)).filter(|freed| freed.0 >= 0),
            nth: number()? as u64,
            nth_then: number()? as u64,
        };
        Some(life)
    }

    /// Returns the number of its thread's allocations between its own and its free.
    pub fn allocations_until_freed(&self) -> Option<u64> {
        self.freed.map(|_| self.nth_then - self.nth)
    }

    /// Returns the middle of its birth, for results that do not depend on microseconds.
    fn came(&self) -> f64 {
        (self.born.0 + self.born.1) as f64 / 2.0
    }

    fn went(&self) -> Option<f64> {
        self.freed.map(|freed| (freed.0 + freed.1) as f64 / 2.0)
    }
}

/// Bounds of a value, by clock stamps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bounds {
    /// Lower bound.
    pub least: f64,
    /// Upper bound.
    pub most: f64,
}

impl Bounds {
    /// Returns true if a value lies within.
    pub fn hold(self, value: f64) -> bool {
        (self.least..=self.most).contains(&value)
    }

    /// Returns the middle.
    pub fn middle(self) -> f64 {
        (self.least + self.most) / 2.0
    }

    fn add(&mut self, times: f64, least: f64, most: f64) {
        self.least += times * least;
        self.most += times * most;
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Lives {
    /// Lives in the order of birth.
    pub lives: Vec<Life>,
    /// Indices of the instants' markers.
    instants: Vec<usize>,
}

/// Objects and bytes.
pub type Both<T> = (T, T);

impl Lives {
    /// Parses the fixture's output.
    ///
    /// # Panics
    /// If there are no lives.
    pub fn parse(output: &str) -> Lives {
        let lives: Vec<Life> = output.lines().filter_map(Life::of).collect();
        let is_marker = |i: &usize| lives[*i].site == "site_marker";
        let instants: Vec<usize> = (0..lives.len()).filter(is_marker).collect();
        assert_eq!(instants.len(), 10, "{output:.300}");
        Lives { lives, instants }
    }

    /// Returns the number of instants.
    pub fn instants(&self) -> usize {
        self.instants.len()
    }

    /// Returns the size of an instant's marker, by which a log has it.
    pub fn marker_size(&self, instant: usize) -> u64 {
        self.lives[self.instants[instant]].size
    }

    fn marker(&self, instant: usize) -> &Life {
        &self.lives[self.instants[instant]]
    }

    fn is_born_by(&self, life: &Life, instant: usize) -> bool {
        life.born.0 <= self.marker(instant).born.0
    }

    fn is_freed_by(&self, life: &Life, instant: usize) -> bool {
        life.freed
            .is_some_and(|freed| freed.1 <= self.marker(instant).born.0)
    }

    fn lives_at(&self, life: &Life, instant: usize) -> bool {
        self.is_born_by(life, instant) && !self.is_freed_by(life, instant)
    }

    /// Returns the four numbers by site, of blocks that were born after `from`, if any, and up to
    /// `to`, or the end.
    pub fn four(&self, from: Option<usize>, to: Option<usize>) -> BTreeMap<String, Account> {
        let mut sites: BTreeMap<String, Account> = BTreeMap::new();
        for life in &self.lives {
            let is_before = from.is_some_and(|from| self.is_born_by(life, from));
            if is_before || to.is_some_and(|to| !self.is_born_by(life, to)) {
                continue;
            }
            let in_use = match to {
                Some(to) => !self.is_freed_by(life, to),
                None => life.freed.is_none(),
            };
            *sites.entry(life.site.clone()).or_default() += Account {
                allocated_objects: 1,
                allocated_bytes: life.size,
                in_use_objects: u64::from(in_use),
                in_use_bytes: u64::from(in_use) * life.size,
            };
        }
        sites
    }

    /// Returns a sum by site, of objects and bytes.
    fn both(&self, count: impl Fn(&Life) -> bool) -> BTreeMap<String, Both<u64>> {
        let mut sites: BTreeMap<String, Both<u64>> = BTreeMap::new();
        for life in self.lives.iter().filter(|life| count(life)) {
            let sum = sites.entry(life.site.clone()).or_default();
            sum.0 += 1;
            sum.1 += life.size;
        }
        sites
    }

    /// Returns the blocks in use at the peak: when the largest block was allocated, and nothing
    /// else happened.
    ///
    /// # Panics
    /// Never: there are blocks.
    pub fn peak(&self) -> BTreeMap<String, Both<u64>> {
        let spike = self.lives.iter().max_by_key(|life| life.size);
        let spike = spike.expect("there are instants");
        self.both(|life| {
            life.born.0 <= spike.born.0 && life.freed.is_none_or(|freed| freed.0 >= spike.born.1)
        })
    }

    /// Returns the blocks that were freed within that time, or before that many allocations:
    /// certain ones and possible ones.
    pub fn temporary(
        &self,
        within_ns: Option<i64>,
        before: Option<u64>,
    ) -> [BTreeMap<String, Both<u64>>; 2] {
        let is_temporary = |life: &Life, certain: bool| {
            let Some(freed) = life.freed else {
                return false;
            };
            let lived = match certain {
                true => freed.1 - life.born.0,
                // Times are stored to the microsecond.
                false => freed.0 - life.born.1 - 2000,
            };
            let allocations = life.allocations_until_freed();
            within_ns.is_some_and(|ns| lived <= ns)
                || before.is_some_and(|n| allocations.is_some_and(|made| made < n))
        };
        [true, false].map(|certain| self.both(|life| is_temporary(life, certain)))
    }

    /// Returns the slack of the blocks in use at an instant.
    pub fn slack(&self, at: usize) -> BTreeMap<String, u64> {
        let mut sites = BTreeMap::new();
        for life in self.lives.iter().filter(|life| self.lives_at(life, at)) {
            *sites.entry(life.site.clone()).or_default() += life.slack;
        }
        sites
    }

    /// Returns object-seconds and byte-seconds of blocks that were born after `from`, if any, up to
    /// an instant.
    pub fn heaptime(&self, from: Option<usize>, to: usize) -> BTreeMap<String, Both<Bounds>> {
        // Each time is stored to the microsecond.
        const ROUNDING: f64 = 2e-6;
        let end = self.marker(to).born;
        let mut sites: BTreeMap<String, Both<Bounds>> = BTreeMap::new();
        for life in &self.lives {
            let is_before = from.is_some_and(|from| self.is_born_by(life, from));
            if is_before || !self.is_born_by(life, to) {
                continue;
            }
            let until = match life.freed {
                Some(freed) if self.is_freed_by(life, to) => freed,
                _ => end,
            };
            let least = ((until.0 - life.born.1) as f64 / 1e9 - ROUNDING).max(0.0);
            let most = (until.1 - life.born.0) as f64 / 1e9 + ROUNDING;
            let sums = sites.entry(life.site.clone()).or_default();
            sums.0.add(1.0, least, most);
            sums.1.add(life.size as f64, least, most);
        }
        sites
    }

    /// Returns objects and bytes a second by which each site grew between two instants: the
    /// least-squares line through its curve, from the moments of the curve itself, block by block.
    pub fn growth(&self, from: usize, to: usize) -> BTreeMap<String, Both<Bounds>> {
        let (from, to) = (self.marker(from), self.marker(to));
        let (start, end) = (from.came(), to.came());
        let seconds = (end - start) / 1e9;
        let mut sites: BTreeMap<String, Both<Bounds>> = BTreeMap::new();
        for life in &self.lives {
            let clipped = |time: f64| ((time - start) / 1e9).clamp(0.0, seconds);
            let (b, d) = (
                clipped(life.came()),
                clipped(life.went().unwrap_or(f64::MAX)),
            );
            // The integral of (t - T/2) from b to d, divided by that of (t - T/2)² over all, which
            // is T³ / 12.
            let half = |t: f64| (t - seconds / 2.0).powi(2) / 2.0;
            let slope = (half(d) - half(b)) / (seconds.powi(3) / 12.0);
            // It moves by at most 6 / T² for each second of a time's error; four times take part.
            let width = |stamps: (i64, i64)| (stamps.1 - stamps.0) as f64 / 1e9 + 2e-6;
            let off: f64 = [Some(life.born), life.freed, Some(from.born), Some(to.born)]
                .into_iter()
                .flatten()
                .map(width)
                .sum();
            // A block that is in use all the time adds nothing, for any length of time.
            let takes_part = b > 0.0 || d < seconds;
            let off = f64::from(u8::from(takes_part)) * off * 12.0 / seconds.powi(2);
            let sums = sites.entry(life.site.clone()).or_default();
            sums.0.add(1.0, slope - off, slope + off);
            sums.1.add(life.size as f64, slope - off, slope + off);
        }
        sites
    }

    /// Returns by site the blocks freed up to an instant, the blocks in use then, and the age in
    /// seconds at which half of all were gone (Kaplan and Meier, age by age).
    pub fn lifetimes(&self, at: usize) -> BTreeMap<String, (u64, u64, Option<Bounds>)> {
        let mut by_site: BTreeMap<String, [Vec<(f64, bool)>; 2]> = BTreeMap::new();
        let end = self.marker(at).born;
        for life in self.lives.iter().filter(|life| self.is_born_by(life, at)) {
            let freed = life.freed.filter(|_| self.is_freed_by(life, at));
            let until = freed.unwrap_or(end);
            let [least, most] = by_site.entry(life.site.clone()).or_default();
            least.push(((until.0 - life.born.1) as f64 / 1e9, freed.is_some()));
            most.push(((until.1 - life.born.0) as f64 / 1e9, freed.is_some()));
        }
        let sites = by_site.into_iter();
        sites
            .map(|(site, [least, most])| {
                let freed = least.iter().filter(|age| age.1).count() as u64;
                let live = least.len() as u64 - freed;
                // An older block, freed or not, reduces no other block's share of the survivors.
                let bounds = (median(least), median(most));
                let bounds = match bounds {
                    (Some(least), Some(most)) => Some(Bounds { least, most }),
                    (None, None) => None,
                    one => panic!("{site}: {one:?}"),
                };
                (site, (freed, live, bounds))
            })
            .collect()
    }
}

/// Returns the age at which half are gone. Each entry is an age, and whether the block was freed
/// then or still lived.
fn median(mut ages: Vec<(f64, bool)>) -> Option<f64> {
    ages.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut outlive = 1.0;
    for (i, (age, is_freed)) in ages.iter().enumerate() {
        if *is_freed {
            outlive *= 1.0 - 1.0 / (ages.len() - i) as f64;
        }
        if outlive <= 0.5 + 1e-9 {
            return Some(*age);
        }
    }
    None
}
