//! Byte numbers: the number of bytes in a text such as `1048576`, `512KiB` or `1.5GiB`.

use std::fmt;
use std::num::IntErrorKind;

/// The most digits behind the point: the tenth of a GiB is a tenth of a byte.
const MOST_DECIMALS: usize = 10;

/// Why a text is no number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoByteNumber {
    /// 2^64 bytes and more.
    TooMany,
    /// It begins with a minus.
    Negative,
    /// It has a point, and no unit.
    PartOfByte,
    /// So many digits behind the point.
    Decimals(usize),
    /// It is something else.
    NoNumber,
}

impl fmt::Display for NoByteNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WANTED: &str = "bytes, such as 1048576, 512KiB, 100MiB, 1.5GiB";
        match self {
            NoByteNumber::TooMany => f.write_str("2^64 or more"),
            NoByteNumber::Negative => write!(f, "negative; wanted are {WANTED}"),
            NoByteNumber::PartOfByte => write!(f, "a part of a byte; wanted are {WANTED}"),
            NoByteNumber::Decimals(count) => write!(
                f,
                "{count} digits behind the point, and {MOST_DECIMALS} at most make sense"
            ),
            NoByteNumber::NoNumber => f.write_str(WANTED),
        }
    }
}

/// Returns the bytes in a text, rounded to a byte. K, M and G are powers of 1024, as KiB, MiB and
/// GiB are; KB, MB and GB are powers of 1000.
///
/// # Errors
/// If the text is no number of bytes, or one of 2^64 and more.
pub fn byte_number(text: &str) -> Result<u64, NoByteNumber> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(NoByteNumber::Negative);
    }
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let bytes_of_unit = bytes_of(unit.trim_start()).ok_or(NoByteNumber::NoNumber)?;
    let (whole, decimals) = match number.split_once('.') {
        Some((_, decimals)) if decimals.is_empty() || decimals.contains('.') => {
            return Err(NoByteNumber::NoNumber);
        }
        Some(_) if bytes_of_unit == 1 => return Err(NoByteNumber::PartOfByte),
        Some((_, decimals)) if decimals.len() > MOST_DECIMALS => {
            return Err(NoByteNumber::Decimals(decimals.len()));
        }
        Some((whole, decimals)) => (whole, decimals),
        None => (number, "0"),
    };
    let whole = whole.parse::<u64>().map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => NoByteNumber::TooMany,
        _ => NoByteNumber::NoNumber,
    })?;
    let one = 10_u128.pow(decimals.len() as u32);
    let parts: u128 = decimals.parse().map_err(|_| NoByteNumber::NoNumber)?;
    let part = (parts * bytes_of_unit + one / 2) / one;
    let bytes = u128::from(whole) * bytes_of_unit + part;
    u64::try_from(bytes).map_err(|_| NoByteNumber::TooMany)
}

fn bytes_of(unit: &str) -> Option<u128> {
    const UNITS: [(&[&str], u128); 7] = [
        (&["", "b"], 1),
        (&["kb"], 1000),
        (&["mb"], 1_000_000),
        (&["gb"], 1_000_000_000),
        (&["k", "kib"], 1 << 10),
        (&["m", "mib"], 1 << 20),
        (&["g", "gib"], 1 << 30),
    ];
    let is_unit = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(unit));
    let found = UNITS.iter().find(|(names, _)| is_unit(names));
    found.map(|&(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_or_of_1000() {
        for (text, bytes) in [
            ("524288", 524_288),
            ("512K", 524_288),
            (" 512 kib ", 524_288),
            ("64M", 64 << 20),
            ("1gB", 1_000_000_000),
            ("5MB", 5_000_000),
            ("5.5kb", 5500),
            ("1gIb", 1 << 30),
            ("7B", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(byte_number(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_decimal_is_rounded_to_a_byte() {
        for (text, bytes) in [
            ("5.5MiB", 5_767_168),
            ("1.5G", 1_610_612_736),
            ("0.1KiB", 102),
            ("0.3k", 307),
            ("0.0005 KB", 1),
            ("0.0004KiB", 0),
            ("1.0000000001GiB", 1 << 30),
            ("1.0000000009GiB", (1 << 30) + 1),
            // More digits than a float has.
            ("9007199254740993.0009765625K", 9_223_372_036_854_776_833),
        ] {
            assert_eq!(byte_number(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_of_bytes_says_why() {
        for (text, error, words) in [
            ("-1.5MiB", NoByteNumber::Negative, "negative"),
            ("nan", NoByteNumber::NoNumber, "such as"),
            ("NaNMiB", NoByteNumber::NoNumber, "such as"),
            ("inf", NoByteNumber::NoNumber, "such as"),
            ("", NoByteNumber::NoNumber, "such as"),
            ("K", NoByteNumber::NoNumber, "such as"),
            ("1e3K", NoByteNumber::NoNumber, "such as"),
            ("1,5MiB", NoByteNumber::NoNumber, "such as"),
            (".5MiB", NoByteNumber::NoNumber, "such as"),
            ("5.MiB", NoByteNumber::NoNumber, "such as"),
            ("1.2.3M", NoByteNumber::NoNumber, "such as"),
            ("5.5", NoByteNumber::PartOfByte, "a part of a byte"),
            ("5.5B", NoByteNumber::PartOfByte, "a part of a byte"),
            ("1.00000000000G", NoByteNumber::Decimals(11), "11 digits"),
            ("17179869183.9999999999GiB", NoByteNumber::TooMany, "2^64"),
            ("18446744073709551616", NoByteNumber::TooMany, "2^64"),
            ("17179869184G", NoByteNumber::TooMany, "2^64"),
        ] {
            assert_eq!(byte_number(text), Err(error), "{text}");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
