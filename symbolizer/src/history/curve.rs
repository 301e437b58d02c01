//! Curve: bytes in use over a run that goes on, in a bounded number of steps.
//!
//! ```text
//!   steps   [0..1) [1..2) [2..3) [3..4)        full: two steps become one, and steps are twice as
//!           [0..2)        [2..4)        …      long from then on
//! ```
//!
//! A step has the most bytes that were in use in it. A step without an event has those of the last
//! event before it.

/// The most steps. A merge leaves half of them, which are more than a wide terminal has columns.
const MOST: usize = 2048;
/// The length of a step at first, in nanoseconds.
const FIRST_NS: u64 = 1_000_000;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    /// When the first step begins; `None`: there was no event.
    from_ns: Option<u64>,
    step_ns: u64,
    /// The most bytes of each step.
    highest: Vec<f64>,
    /// The bytes in use behind the last event.
    now: f64,
}

impl Default for Curve {
    fn default() -> Self {
        Curve {
            from_ns: None,
            step_ns: FIRST_NS,
            highest: Vec::new(),
            now: 0.0,
        }
    }
}

impl Curve {
    /// Notes that so many bytes are in use from that time on. If a later event has an earlier time,
    /// it counts for the last step.
    pub(crate) fn at(&mut self, time_ns: u64, bytes: f64) {
        let from_ns = *self.from_ns.get_or_insert(time_ns);
        let mut step = self.step_of(from_ns, time_ns);
        while step >= MOST {
            self.merge();
            step = self.step_of(from_ns, time_ns);
        }
        if step >= self.highest.len() {
            self.highest.resize(step + 1, self.now);
        }
        if let Some(last) = self.highest.last_mut() {
            *last = last.max(bytes);
        }
        self.now = bytes;
    }

    fn step_of(&self, from_ns: u64, time_ns: u64) -> usize {
        usize::try_from(time_ns.saturating_sub(from_ns) / self.step_ns).unwrap_or(usize::MAX)
    }

    fn merge(&mut self) {
        let pairs = self.highest.chunks(2);
        self.highest = pairs
            .map(|pair| pair.iter().copied().fold(0.0, f64::max))
            .collect();
        // A length that no time reaches ends the merging.
        self.step_ns = self.step_ns.saturating_mul(2);
    }

    /// When it begins.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.from_ns.unwrap_or_default()
    }

    /// The highest bytes in each of so many equal parts of the time from `from_ns` to `until_ns`;
    /// 0 before the first event.
    pub(crate) fn parts(&self, from_ns: u64, until_ns: u64, parts: usize) -> Vec<f64> {
        let begin_ns = self.begin_ns();
        let length = until_ns.saturating_sub(from_ns) as f64 / parts.max(1) as f64;
        // The step at a time, as a real number.
        let at = |part: usize| {
            let time = from_ns as f64 + part as f64 * length - begin_ns as f64;
            time / self.step_ns as f64
        };
        (0..parts)
            .map(|part| {
                let (from, to) = (at(part), at(part + 1));
                if self.highest.is_empty() || to <= 0.0 {
                    return 0.0;
                }
                let first = from.max(0.0) as usize;
                // A step that begins where the part ends belongs to the next part.
                let end = (to.ceil() as usize).max(first + 1);
                let known = self.highest.get(first..end.min(self.highest.len()));
                match known.filter(|steps| !steps.is_empty()) {
                    Some(steps) => steps.iter().copied().fold(0.0, f64::max),
                    None => self.now,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn each_part_has_its_highest_and_quiet_parts_have_the_last() {
        let mut curve = Curve::default();
        for (ms, bytes) in [(0, 10.0), (1, 50.0), (1, 20.0), (5, 30.0), (7, 0.0)] {
            curve.at(ms * MS, bytes);
        }
        let parts = curve.parts(0, 10 * MS, 10);
        assert_eq!(
            parts,
            [10.0, 50.0, 20.0, 20.0, 20.0, 30.0, 30.0, 30.0, 0.0, 0.0]
        );
        assert_eq!(curve.parts(0, 10 * MS, 2), [50.0, 30.0]);
        assert_eq!(curve.parts(4 * MS, 6 * MS, 4), [20.0, 20.0, 30.0, 30.0]);
        assert_eq!(Curve::default().parts(0, MS, 3), [0.0; 3]);
    }

    #[test]
    fn an_event_that_comes_late_counts_for_the_last_step() {
        let mut curve = Curve::default();
        curve.at(3 * MS, 5.0);
        curve.at(2 * MS, 9.0);
        assert_eq!(curve.parts(3 * MS, 4 * MS, 1), [9.0]);
        assert_eq!((curve.begin_ns(), curve.now), (3 * MS, 9.0));
    }

    /// A run of a month in as much memory as one of a minute, with each of its peaks.
    #[test]
    fn a_long_run_takes_no_more_room_and_keeps_its_peaks() {
        let mut curve = Curve::default();
        let day = 86_400_000 * MS;
        for hour in 0..24 * 30 {
            curve.at(hour * (day / 24), if hour == 100 { 7.0 } else { 1.0 });
        }
        assert!(curve.highest.len() <= MOST);
        let days = curve.parts(0, 30 * day, 30);
        let at_peak = (0..30).map(|day| if day == 4 { 7.0 } else { 1.0 });
        assert_eq!(days, at_peak.collect::<Vec<f64>>());
        curve.at(u64::MAX, 2.0);
        assert!(curve.highest.len() <= MOST);
    }
}
