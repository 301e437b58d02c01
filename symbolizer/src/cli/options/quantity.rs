//! Quantities: value parsers for bytes, counts, times, shares and process ids.
//!
//! Options with a quantity allow a minus sign, so that the message about `-1` names the option.

use std::num::IntErrorKind;
use std::str::FromStr;

use heapprof_core::{NoByteNumber, byte_number};
use heapprof_symbolizer::{LARGEST_INTERVAL, duration_ns};

/// `1048576`, `512KiB`, `100MiB`, `1.5GiB`: bytes, more than 0, in powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    match byte_number(text) {
        Ok(0) | Err(NoByteNumber::TooMany) => Err("more than 0, and less than 2^64".into()),
        number => number.map_err(|error| error.to_string()),
    }
}

/// A mean sampling interval: 1 is every allocation, 0 none.
pub(crate) fn interval(text: &str) -> Result<u64, String> {
    match byte_number(text) {
        Ok(number) if number <= LARGEST_INTERVAL => Ok(number),
        Ok(_) | Err(NoByteNumber::TooMany) => Err(format!("{LARGEST_INTERVAL} bytes at most")),
        Err(error) => Err(error.to_string()),
    }
}

/// A length of time, as clap wants it.
pub(crate) fn time(text: &str) -> Result<u64, String> {
    duration_ns(text).ok_or_else(|| "a time, such as 10ms, 2s, 1m".into())
}

/// How many of something.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|error: std::num::ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => format!("{} at most", usize::MAX),
            _ => "a whole number, 0 or more".into(),
        })
}

/// A share of a whole.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%');
    within(number, 100.0).ok_or_else(|| "a percentage from 0 to 100, such as 0.5".into())
}

/// Standard errors.
pub(crate) fn standard_errors(text: &str) -> Result<f64, String> {
    within(text, f64::MAX).ok_or_else(|| "a number, 0 or more, such as 3 or 2.5".into())
}

fn within(text: &str, most: f64) -> Option<f64> {
    let number = f64::from_str(text).ok()?;
    (0.0..=most).contains(&number).then_some(number)
}

/// The number of a process.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let number = i32::from_str(text).ok().filter(|&pid| pid > 0);
    number
        .map(i32::cast_unsigned)
        .ok_or_else(|| "the number of a process, such as 4711".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("1"), Ok(1));
        assert_eq!(bytes("512K"), Ok(524_288));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("2mb"), Ok(2_000_000));
        assert_eq!(bytes("1.5K"), Ok(1536));
        for wrong in ["", "K", "-1", "1.5", "1x", "0.0K", "0", "99999999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        let overflow = "99999999999999999999999";
        assert_eq!(
            bytes(overflow),
            Err("more than 0, and less than 2^64".into())
        );
    }

    #[test]
    fn an_interval_is_what_the_library_takes_for_one() {
        assert_eq!(interval("0"), Ok(0));
        assert_eq!(interval("64KiB"), Ok(65_536));
        assert_eq!(interval("1024G"), Ok(LARGEST_INTERVAL));
        assert!(interval("1025G").is_err() && interval("99999999999999999999G").is_err());
    }

    #[test]
    fn what_is_no_number_is_no_share() {
        assert_eq!(percent("0.5%"), Ok(0.5));
        assert_eq!(standard_errors("2.5"), Ok(2.5));
        for wrong in ["nan", "inf", "-1", "x", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
            assert!(standard_errors(wrong).is_err(), "{wrong}");
        }
        assert!(percent("101").is_err());
    }
}
