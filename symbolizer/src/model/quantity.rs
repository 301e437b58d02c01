//! Quantity: a number as people read it, bytes in KiB and MiB, counts in groups of three, shares in
//! percent.

use std::fmt;

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
