//! Runs of a page: a word in its head that tells of which recordings it is.
//!
//! A page under a default name may be replaced by a page of the same recordings, and by no other.

use heapprof_format::Start;
use sha2::{Digest, Sha256};

/// Where the word stands. See the module's text.
const BEFORE: &str = "<meta name=\"heapprof-runs\" content=\"";
/// A page has the word in so many bytes.
pub const RUNS_WITHIN: usize = 4096;
/// Bytes of the digest that the word has.
const LEN: usize = 12;

/// Returns the word for recordings that begin so, in any order.
pub fn runs_of(starts: &[Start]) -> String {
    let mut each: Vec<[u64; 4]> = starts
        .iter()
        .map(|start| {
            let pid = u64::from(start.pid);
            [pid, start.wall_ns, start.monotonic_ns, start.log_number]
        })
        .collect();
    each.sort_unstable();
    let mut digest = Sha256::new();
    for word in each.iter().flatten() {
        digest.update(word.to_le_bytes());
    }
    let digest = digest.finalize();
    digest
        .iter()
        .take(LEN)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns true if a page that begins with these bytes is of the runs with that word.
pub fn is_page_of(beginning: &[u8], runs: &str) -> bool {
    let beginning = String::from_utf8_lossy(beginning);
    let word = beginning.split_once(BEFORE).map(|(_, behind)| behind);
    word.is_some_and(|word| word.split('"').next() == Some(runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_of_all_recordings_in_any_order() {
        let start = |pid, wall_ns| Start {
            pid,
            wall_ns,
            ..Start::default()
        };
        let (a, b) = (start(1, 5), start(2, 7));
        let both = runs_of(&[a.clone(), b.clone()]);
        assert_eq!(both.len(), 2 * LEN);
        assert_eq!(both, runs_of(&[b.clone(), a.clone()]));
        for other in [&[a.clone()][..], &[b], &[a, start(2, 8)]] {
            assert_ne!(both, runs_of(other));
        }
        let page = format!("<!DOCTYPE html>\n{BEFORE}{both}\">\n");
        assert!(is_page_of(page.as_bytes(), &both));
        assert!(!is_page_of(page.as_bytes(), &both[1..]));
        assert!(!is_page_of(b"<html>", &both));
    }
}
