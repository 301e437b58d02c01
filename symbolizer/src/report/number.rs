//! Number: a number of a page, as short as it can be written, and series of such numbers.

use heapprof_core::{Estimate, Totals};
use serde::{Serialize, Serializer};

/// The numbers of a group at a moment, each with its standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moment([f64; SERIES]);

/// Bytes and blocks in use, bytes and blocks allocated so far; then the errors of these.
const SERIES: usize = 8;
/// The number of these series that are no errors.
const VALUES: usize = SERIES / 2;

impl From<&Totals> for Moment {
    fn from(totals: &Totals) -> Moment {
        let values = |it: &Estimate| [it.bytes_f64().round(), decimals(it.objects_f64())];
        let errors = |it: &Estimate| {
            [
                significant(it.bytes_error()),
                significant(it.objects_error()),
            ]
        };
        let [a, b] = values(&totals.in_use);
        let [c, d] = values(&totals.allocated);
        let [e, f] = errors(&totals.in_use);
        let [g, h] = errors(&totals.allocated);
        Moment([a, b, c, d, e, f, g, h])
    }
}

/// To two places: a block is never less than one, but what it stands for is no whole number.
fn decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// To three digits or a few more: nobody reads more of an error.
pub(super) fn significant(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    match unit < 1.0 {
        true => (value / unit).round() * unit,
        false => (value / unit).round() * unit.round(),
    }
}

/// Without a point where it needs none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number(pub(super) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const EXACT: f64 = (1u64 << 53) as f64;
        let Number(value) = *self;
        match value.fract() == 0.0 && value.abs() < EXACT {
            true => serializer.serialize_i64(value as i64),
            false => serializer.serialize_f64(value),
        }
    }
}

/// The changes of a number: moment, number, moment, number, …
pub(super) type Series = Vec<Number>;

/// The series of a group, from its numbers at each moment in order.
pub(super) fn series(moments: impl Iterator<Item = Moment>, is_exact: bool) -> Vec<Series> {
    let count = if is_exact { VALUES } else { SERIES };
    let mut series: Vec<Series> = (0..count).map(|_| Vec::new()).collect();
    let mut before = Moment::default();
    for (number, now) in moments.enumerate() {
        for ((series, now), before) in series.iter_mut().zip(now.0).zip(before.0) {
            if now != before {
                series.extend([Number(number as f64), Number(now)]);
            }
        }
        before = now;
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_rounded_to_what_is_read() {
        for (value, expected) in [
            (0.0, 0.0),
            (123_456.0, 123_000.0),
            (1234.0, 1230.0),
            (99.96, 100.0),
            (5.0, 5.0),
        ] {
            assert_eq!(significant(value), expected);
        }
        assert!((significant(0.012_345) - 0.0123).abs() < 1e-12);
    }
}
