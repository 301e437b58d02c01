//! Numbers in texts of the kernel: `NAME: NUMBER kB` in `/proc/PID/status` and `smaps_rollup`,
//! `NAME NUMBER` in a cgroup's `memory.events`, or a number alone.

/// Returns the number of the line that begins with `name`, in bytes if its unit is kB. `None`:
/// there is no such line, or it has no number.
#[must_use]
pub fn number_of(text: &[u8], name: &str) -> Option<u64> {
    let lines = text.split(|&byte| byte == b'\n');
    let rest = lines.into_iter().find_map(|line| {
        let rest = line.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b":").or_else(|| rest.strip_prefix(b" "))
    })?;
    let mut words = words(rest);
    let number = number(words.next()?)?;
    match words.next() {
        Some(b"kB") => number.checked_mul(1024),
        _ => Some(number),
    }
}

/// Returns the limit in a cgroup's file. `None`: there is none (`max`, or a number that no machine
/// reaches).
#[must_use]
pub fn limit_in(text: &[u8]) -> Option<u64> {
    /// Version 1 writes the largest number of pages that its counter holds.
    const NO_LIMIT: u64 = 1 << 62;
    only_number(text).filter(|&limit| limit < NO_LIMIT)
}

/// Returns the number that is all of the text.
#[must_use]
pub fn only_number(text: &[u8]) -> Option<u64> {
    number(words(text).next()?)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] =
        b"Name:\tVmRSS: 9\nVmPeak:\t 3060 kB\nVmRSS:\t    1676 kB\nRssAnon:\t 0 kB\nThreads:\t12\n";

    #[test]
    fn lines_are_found_by_their_beginning_and_kilobytes_become_bytes() {
        assert_eq!(number_of(STATUS, "VmRSS"), Some(1676 << 10));
        assert_eq!(number_of(STATUS, "RssAnon"), Some(0));
        assert_eq!(number_of(STATUS, "Threads"), Some(12));
        assert_eq!(number_of(b"low 0\nhigh 3\nmax 17\n", "max"), Some(17));
    }

    #[test]
    fn what_is_missing_is_unknown_and_not_zero() {
        assert_eq!(number_of(STATUS, "VmSwap"), None);
        assert_eq!(number_of(STATUS, "Vm"), None);
        assert_eq!(number_of(b"VmSwap:", "VmSwap"), None);
        assert_eq!(number_of(b"VmSwap:\t-1 kB", "VmSwap"), None);
        assert_eq!(
            number_of(b"VmSwap:\t18446744073709551615 kB", "VmSwap"),
            None
        );
        assert_eq!(number_of(b"", ""), None);
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(limit_in(b"536870912\n"), Some(512 << 20));
        assert_eq!(limit_in(b"max\n"), None);
        assert_eq!(limit_in(b"9223372036854771712\n"), None);
        assert_eq!(limit_in(b""), None);
    }
}
