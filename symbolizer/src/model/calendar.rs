//! Times: lengths of time, times of day and dates, in nanoseconds and as people write them.
//!
//! A date without a zone is UTC.

/// In nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const DAY: u64 = 86_400 * SECOND;

/// A length of time in nanoseconds: `12.5`, `12.5s`, `300ms`, `10us`, `2m`, `1h`.
pub fn duration_ns(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((number * unit).round() as u64)
}

/// A time of day in nanoseconds since midnight: `10:00`, `10:00:00`, `10:00:00.5`.
pub(crate) fn time_of_day_ns(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let mut two = |limit: u64| -> Option<u64> {
        let part = parts.next()?;
        let is_two = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        let number = is_two.then(|| part.parse().ok())??;
        (number < limit).then_some(number)
    };
    let (hours, minutes) = (two(24)?, two(60)?);
    let seconds: f64 = match parts.next() {
        None => 0.0,
        Some(text) if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok()?,
        Some(_) => return None,
    };
    if parts.next().is_some() || seconds >= 61.0 {
        return None;
    }
    Some((hours * 3600 + minutes * 60) * SECOND + (seconds * 1e9).round() as u64)
}

/// An instant in nanoseconds since 1970: `2026-11-21T10:00:00Z`, `2026-11-21T12:00:00+02:00`; a
/// space for the T, no Z, and no seconds are accepted.
pub(crate) fn wall_ns(text: &str) -> Option<u64> {
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' '])?;
    // East of Greenwich the clock shows more.
    let (time, east_ns, west_ns) = match time.find(['+', '-']) {
        Some(at) => {
            let offset_ns = time_of_day_ns(&time[at + 1..])?;
            match time.as_bytes()[at] {
                b'+' => (&time[..at], offset_ns, 0),
                _ => (&time[..at], 0, offset_ns),
            }
        }
        None => (time, 0, 0),
    };
    let mut parts = date.split('-');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (year, month, day) = (number()?, number()?, number()?);
    if parts.next().is_some()
        || !(1970..=2500).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=days_in(year, month)).contains(&day)
    {
        return None;
    }
    // Hinnant, "chrono-compatible low-level date algorithms", days_from_civil.
    let y = year - u64::from(month <= 2);
    let (era, year_of_era) = (y / 400, y % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (days * DAY + time_of_day_ns(time)? + west_ns).checked_sub(east_ns)
}

fn days_in(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Wall clock time in UTC, as ISO 8601 writes it but for the space.
pub fn utc(since_1970_ns: u64) -> String {
    let seconds = since_1970_ns / SECOND;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to a date: years of 400 years' cycles that begin in March (Hinnant, as above,
    // civil_from_days).
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Where there are milliseconds they are there: a moment within that second may be before this
    // one.
    let fraction = match since_1970_ns / 1_000_000 % 1000 {
        0 => String::new(),
        ms => format!(".{ms:03}"),
    };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_at_the_edges_both_ways() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (1_767_225_600, "2026-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * SECOND), text);
            let within = text.replace(" UTC", ".070 UTC");
            assert_eq!(utc(seconds * SECOND + 70_123_456), within);
            assert_eq!(wall_ns(text), Some(seconds * SECOND));
        }
    }
}
