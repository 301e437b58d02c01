//! Timeline: the linear map from the ticks of a processor's counter to nanoseconds, through
//! readings of both.

/// A counter and a clock, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// The counter, in its own unit.
    pub ticks: u64,
    /// The clock, in nanoseconds.
    pub ns: u64,
}

/// Least distance of the two readings that the map goes through, once there are such readings.
///
/// The counter and the clock are not read at once, so a reading has an error of up to about 0.1 µs.
/// Over this distance the rate's error is a millionth: an event that waited for 100 ms is misplaced
/// by another 0.1 µs. Readings within microseconds of each other give no rate at all.
const BASE_NS: u64 = 100_000_000;

/// The linear map through two readings: the newest, and one that is older by `BASE_NS` or more.
#[derive(Debug, Clone)]
pub struct Timeline {
    from: ClockReading,
    /// The next `from`, once it is old enough.
    then: ClockReading,
    to: ClockReading,
    /// Nanoseconds in a tick, times 2^32. 0 while unknown. A counter of less than 2 Hz has no room
    /// here.
    rate: i64,
}

impl Timeline {
    /// Returns a timeline that begins with a reading.
    #[must_use]
    pub const fn new(first: ClockReading) -> Timeline {
        Timeline {
            from: first,
            then: first,
            to: first,
            rate: 0,
        }
    }

    /// Returns the timeline of a counter that counts nanoseconds: nothing is read, and
    /// [`ns`](Self::ns) returns its argument.
    #[must_use]
    pub const fn of_nanoseconds() -> Timeline {
        let zero = ClockReading { ticks: 0, ns: 0 };
        Timeline {
            rate: 1 << 32,
            ..Timeline::new(zero)
        }
    }

    /// Takes a newer reading.
    ///
    /// If the counter was set back (the machine was suspended), the timeline begins again with this
    /// reading.
    pub fn advance(&mut self, to: ClockReading) {
        if to.ticks < self.to.ticks || to.ns < self.to.ns {
            *self = Timeline::new(to);
            return;
        }
        if to.ns - self.then.ns >= BASE_NS {
            self.from = self.then;
            self.then = to;
        }
        self.to = to;
        let ticks = i128::from(to.ticks - self.from.ticks);
        if ticks > 0 {
            let rate = (i128::from(to.ns - self.from.ns) << 32) / ticks;
            self.rate = i64::try_from(rate).unwrap_or(0);
        }
    }

    /// Returns the ticks in less than four seconds' worth of nanoseconds; 0 while there is only one
    /// reading.
    #[must_use]
    pub fn ticks_in(&self, ns: u64) -> u64 {
        debug_assert!(ns < 1 << 32);
        (ns << 32)
            .checked_div(self.rate.cast_unsigned())
            .unwrap_or(0)
    }

    /// Returns the time at which the counter was at `ticks`, in nanoseconds. While there is only
    /// one reading, it is that reading's time.
    #[inline]
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        let since = i128::from(ticks.wrapping_sub(self.to.ticks).cast_signed());
        self.to
            .ns
            .wrapping_add(((since * i128::from(self.rate)) >> 32) as u64)
    }

    /// Returns this timeline in units of `unit_ns` nanoseconds since `zero_ns`, for many
    /// conversions.
    ///
    /// # Panics
    /// If the unit is 0.
    #[must_use]
    pub fn scale(&self, unit_ns: u64, zero_ns: u64) -> Scale {
        // Rounded up: the first moment of a unit belongs to the unit.
        let rate = (u128::from(self.rate.cast_unsigned()) << 32).div_ceil(u128::from(unit_ns));
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let since_zero = i128::from(self.to.ns) - i128::from(zero_ns);
        let newest = (since_zero << 64).div_euclid(i128::from(unit_ns));
        let up_to_it = u128::from(self.to.ticks) * u128::from(rate);
        Scale {
            rate,
            offset: newest.cast_unsigned().wrapping_sub(up_to_it),
        }
    }
}

/// A [`Timeline`] as it is now, in other units. It is a linear map through the newest reading, and
/// takes half as many instructions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scale {
    /// Units in a tick, which are less than one, times 2^64. So the upper half of a product is in
    /// units.
    rate: u64,
    /// Units at tick 0, times 2^64; below zero it wraps. It is as exact as the reading, because the
    /// products are.
    offset: u128,
}

impl Scale {
    /// Returns the unit in which the counter was at `ticks`.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, ticks: u64) -> i64 {
        let units = (u128::from(ticks) * u128::from(self.rate)).wrapping_add(self.offset);
        (units >> 64) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_nanoseconds() {
        let timeline = Timeline::of_nanoseconds();
        for ns in [0, 1, 1 << 32, 1 << 62, i64::MAX as u64] {
            assert_eq!(timeline.ns(ns), ns);
        }
        assert_eq!(timeline.ticks_in(1000), 1000);
    }

    /// A counter of 2.9 GHz that began long before the clock. Both are read together, up to
    /// `ERROR_NS` wrong.
    const GHZ: f64 = 2.9;
    const ERROR_NS: f64 = 100.0;

    fn ticks(ns: u64) -> u64 {
        7_000_000_000_000 + (ns as f64 * GHZ) as u64
    }

    fn reading(ns: u64, error: f64) -> ClockReading {
        ClockReading {
            ticks: ticks(ns) + (error * GHZ) as u64,
            ns,
        }
    }

    /// Returns a number of a fixed sequence, from 0 up to 1.
    fn noise(n: u64) -> f64 {
        (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The writer looks often under load and sleeps in between; an event may have waited for long.
    #[test]
    fn moments_are_found_to_the_microsecond() {
        let mut timeline = Timeline::new(reading(1000, 0.0));
        let mut now = 1000;
        for n in 0..if cfg!(miri) { 2_000 } else { 200_000 } {
            now += match n % 1000 {
                0 => 30_000_000,
                _ => 3_000 + (noise(n) * 20_000.0) as u64,
            };
            timeline.advance(reading(now, noise(n + 7) * ERROR_NS));
            for age in [0, 1_000, 100_000, 10_000_000, 100_000_000] {
                if age < now {
                    let wrong = timeline.ns(ticks(now - age)).abs_diff(now - age);
                    assert!(wrong < 500, "{wrong} ns at {now}, {age} ns old");
                }
            }
        }
    }

    #[test]
    fn it_begins_anew_when_the_counter_was_set_back() {
        let mut timeline = Timeline::new(reading(1000, 0.0));
        timeline.advance(reading(500_000_000, 0.0));
        let woken = ClockReading {
            ticks: 5,
            ns: 9_000_000_000,
        };
        timeline.advance(woken);
        assert_eq!(timeline.ns(5), woken.ns);
        timeline.advance(ClockReading {
            ticks: 5 + 2_900_000,
            ns: woken.ns + 1_000_000,
        });
        assert!(timeline.ns(5 + 1_450_000).abs_diff(woken.ns + 500_000) <= 1);
    }

    fn at(ticks: u64, ns: u64) -> ClockReading {
        ClockReading { ticks, ns }
    }

    #[test]
    fn two_readings_of_one_moment_leave_the_rate_as_it_is() {
        let mut timeline = Timeline::new(at(0, 0));
        timeline.advance(at(1000, 500));
        timeline.advance(at(1000, 500));
        assert_eq!((timeline.ns(3000), timeline.ticks_in(500)), (1500, 1000));
        // A counter that stood still tells no rate.
        let mut timeline = Timeline::new(at(5, 5));
        timeline.advance(at(5, 7));
        assert_eq!((timeline.ns(5000), timeline.ticks_in(500)), (7, 0));
    }

    #[test]
    fn it_begins_anew_when_the_clock_alone_was_set_back() {
        let mut timeline = Timeline::new(at(0, 1000));
        timeline.advance(at(1000, 1500));
        timeline.advance(at(2000, 1400));
        assert_eq!((timeline.ns(9999), timeline.ticks_in(500)), (1400, 0));
        timeline.advance(at(2800, 1800));
        assert_eq!(timeline.ns(4000), 2400);
    }

    /// One tick a nanosecond, and two from 100 ms on: readings older than the base do not count.
    #[test]
    fn the_rate_is_that_of_the_last_tenth_of_a_second() {
        let mut timeline = Timeline::new(at(0, 0));
        timeline.advance(at(BASE_NS, BASE_NS));
        timeline.advance(at(3 * BASE_NS, 2 * BASE_NS));
        assert_eq!(timeline.ns(3 * BASE_NS + 2000), 2 * BASE_NS + 1000);
        // Then three ticks, with frequent readings.
        for n in 1..=300u64 {
            let ms = n * 1_000_000;
            timeline.advance(at(3 * BASE_NS + 3 * ms, 2 * BASE_NS + ms));
        }
        assert_eq!(timeline.ticks_in(1000), 3000);
    }

    #[test]
    fn a_counter_of_less_than_two_hertz_is_none() {
        let mut timeline = Timeline::new(at(0, 0));
        timeline.advance(at(1, 3_000_000_000));
        assert_eq!((timeline.ns(7), timeline.ticks_in(500)), (3_000_000_000, 0));
    }

    /// Whole microseconds before and after a moment, against a division of nanoseconds, within its
    /// own rounding.
    #[test]
    fn a_scale_is_the_timeline_in_other_units() {
        let zero = 5_000_123;
        let mut timeline = Timeline::new(reading(1000, 0.0));
        let mut now = 1000;
        for n in 0..if cfg!(miri) { 1_000 } else { 20_000 } {
            now += 1 + (noise(n) * 60_000_000.0) as u64;
            timeline.advance(reading(now, noise(n + 7) * ERROR_NS));
            let scale = timeline.scale(1000, zero);
            for age in [0, 999, 1_000_000, 10_000_000, 100_000_000] {
                let ticks = ticks(now.saturating_sub(age));
                let ns = timeline.ns(ticks);
                let since = ns.wrapping_sub(zero).cast_signed();
                let wrong = scale.at(ticks).abs_diff(since.div_euclid(1000));
                let is_on_the_edge = !(2..998).contains(&since.rem_euclid(1000));
                assert!(
                    wrong <= u64::from(is_on_the_edge),
                    "{wrong} at {now}, {age} ns old"
                );
            }
        }
        let nanoseconds = Timeline::of_nanoseconds().scale(1000, 4_000);
        for (ns, units) in [
            (0, -4),
            (3_999, -1),
            (4_999, 0),
            (5_000, 1),
            (1 << 55, (1 << 55) / 1000 - 4),
        ] {
            assert_eq!(nanoseconds.at(ns), units, "{ns}");
        }
    }
}
