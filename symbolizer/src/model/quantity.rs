//! Quantity: a number as people read it, bytes in KiB and MiB, counts in groups of three, shares in
//! percent.

use std::fmt;
use std::num::IntErrorKind;

/// Bytes, with one decimal and a binary unit.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 <= -0.5 {
            return f.pad(&format!("-{}", Bytes(-self.0)));
        }
        if self.0 < 1023.5 {
            return f.pad(&format!("{:.0} B", self.0.max(0.0)));
        }
        let mut value = self.0 / 1024.0;
        let mut unit = 0;
        // A value that would round to 1024.0 is written as 1.0 of the next unit.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.1} {}", UNITS[unit]))
    }
}

/// A number with its digits in groups of three.
#[derive(Debug, Clone, Copy)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A part of a whole, in percent with one decimal.
#[derive(Debug, Clone, Copy)]
pub struct Percent {
    /// The part.
    pub part: f64,
    /// The whole; nothing of nothing is 0 %.
    pub whole: f64,
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = if self.whole == 0.0 {
            0.0
        } else {
            100.0 * self.part / self.whole
        };
        f.pad(&format!("{percent:.1}%"))
    }
}

/// The most digits behind the point: the tenth of a GiB is a tenth of a byte.
const MOST_DECIMALS: usize = 10;

/// The bytes in a text such as `1048576`, `512KiB` or `1.5GiB`, in powers of 1024, rounded to a
/// byte. `None`: too many.
///
/// # Errors
/// In words, if the text is none.
pub fn bytes_in(text: &str) -> Result<Option<u64>, String> {
    const WANTED: &str = "bytes, such as 1048576, 512KiB, 100MiB, 1.5GiB";
    if text.starts_with('-') {
        return Err(format!("negative; wanted are {WANTED}"));
    }
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(WANTED.into()),
    };
    let (whole, decimals) = match number.split_once('.') {
        Some((_, decimals)) if decimals.is_empty() || decimals.contains('.') => {
            return Err(WANTED.into());
        }
        Some(_) if shift == 0 => {
            return Err(format!("a part of a byte; wanted are {WANTED}"));
        }
        Some((_, decimals)) if decimals.len() > MOST_DECIMALS => {
            return Err(format!(
                "{} digits behind the point, and {MOST_DECIMALS} at most make sense",
                decimals.len()
            ));
        }
        Some((whole, decimals)) => (whole, decimals),
        None => (number, "0"),
    };
    let whole = match whole.parse::<u64>() {
        Ok(whole) => u128::from(whole) << shift,
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => return Ok(None),
        Err(_) => return Err(WANTED.into()),
    };
    let one = 10_u128.pow(decimals.len() as u32);
    let parts: u128 = decimals.parse().map_err(|_| WANTED.to_owned())?;
    let part = ((parts << shift) + one / 2) / one;
    Ok(u64::try_from(whole + part).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_at_a_glance() {
        let cases = [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1023.9, "1.0 KiB"),
            (1024.0, "1.0 KiB"),
            (1536.0, "1.5 KiB"),
            (1048575.0, "1.0 MiB"),
            (8388608.0, "8.0 MiB"),
            (1.8e19, "15.6 EiB"),
            (-1536.0, "-1.5 KiB"),
            (-0.4, "0 B"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("[{:>9}]", Bytes(1536.0)), "[  1.5 KiB]");
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
            assert_eq!(bytes_in(text), Ok(Some(bytes)), "{text}");
        }
        assert_eq!(bytes_in("17179869183.9999999999GiB"), Ok(None), "2^64");
    }

    #[test]
    fn what_is_no_number_of_bytes_says_why() {
        for (text, words) in [
            ("-1.5MiB", "negative"),
            ("nan", "such as"),
            ("NaNMiB", "such as"),
            ("inf", "such as"),
            ("1e3K", "such as"),
            ("1,5MiB", "such as"),
            (".5MiB", "such as"),
            ("5.MiB", "such as"),
            ("1.2.3M", "such as"),
            ("5.5", "a part of a byte"),
            ("5.5B", "a part of a byte"),
            ("1.00000000000G", "11 digits behind the point"),
        ] {
            let error = bytes_in(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn digits_come_in_threes() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1234567, "1,234,567"),
        ] {
            assert_eq!(Count(number).to_string(), text);
        }
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        assert_eq!(
            Percent {
                part: 0.0,
                whole: 0.0
            }
            .to_string(),
            "0.0%"
        );
        assert_eq!(
            Percent {
                part: 1.0,
                whole: 3.0
            }
            .to_string(),
            "33.3%"
        );
    }
}
