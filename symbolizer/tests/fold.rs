//! A log's profile holds what its records say, exactly; and what a damaged log still says.

use crate::common::{LogBuilder, SERVER_TRUTH, server_log, server_profile};
use heapprof_core::{Totals, Weight};
use heapprof_format::{FILE_HEADER_LEN, ReadErrorKind};
use heapprof_symbolizer::{Ending, Metric, Numbers, Precision, profile_of_log};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn numbers(numbers: Numbers) -> [u64; 4] {
    [
        numbers.in_use_objects,
        numbers.in_use_bytes,
        numbers.allocated_objects,
        numbers.allocated_bytes,
    ]
}

#[test]
fn every_number_is_the_truth_at_interval_one() {
    let profile = server_profile(1);
    assert_eq!(numbers(profile.numbers()), SERVER_TRUTH);
    assert_eq!(profile.precision(), Precision::Exact);
    let rows: Vec<_> = profile
        .rows
        .iter()
        .map(|row| (row.stack, numbers(Numbers::of(&row.totals))))
        .collect();
    assert_eq!(
        rows,
        [
            (2, [1, 8 << 20, 1, 8 << 20]),
            (0, [2, 2000, 3, 3000]),
            (1, [0, 0, 10, 240]),
            (3, [2, 128, 2, 128]),
        ]
    );
    assert!(profile.account.is_whole());
}

#[test]
fn what_ran_is_told() {
    let run = server_profile(4096).run;
    assert_eq!(
        (run.program.as_str(), run.pid, run.interval),
        ("/bin/server", 77, Some(4096))
    );
    assert_eq!(run.args, ["server", "--fast"]);
    assert!(matches!(run.ending, Ending::Said(_)));
    assert_eq!(run.duration_ns, 27_000_000);
    assert_eq!(run.intervals_seen, Some((4096, 4096)));
}

#[test]
fn a_sampled_log_weighs_each_sample_once() {
    let profile = server_profile(4096);
    let mut expected = Totals::default();
    for (size, n) in [(1000, 3), (24, 10), (8 << 20, 1), (64, 2)] {
        for _ in 0..n {
            expected.allocated.add(&Weight::of(size, 4096));
        }
    }
    for (size, n) in [(1000, 2), (8 << 20, 1), (64, 2)] {
        for _ in 0..n {
            expected.in_use.add(&Weight::of(size, 4096));
        }
    }
    assert_eq!(profile.totals(), expected);
    assert_eq!(profile.precision(), Precision::Sampled);
    assert!(Metric::InUseBytes.error_of(&profile.totals()) > 0.0);
}

#[test]
fn a_module_that_went_and_one_that_came_in_its_place_are_told_apart() {
    let mut log = LogBuilder::new(1);
    let first = log.module("/lib/plugin-a.so", 0x1000, 0x1000);
    let a = log.stack(&[0x1010, 0x1100]);
    log.alloc(a, 10);
    log.module_gone(first);
    log.alloc(a, 10); // the stack was first seen while the first was there
    log.module("/lib/plugin-b.so", 0x1000, 0x1000);
    let b = log.stack(&[0x1010, 0x1200]);
    log.alloc(b, 10);
    let profile = profile_of_log(&log.end(), |_| {}).unwrap();
    let module = |stack: usize| {
        let place = profile.places(&profile.stacks[stack]).next().unwrap();
        profile.module_of(place).unwrap().path.clone()
    };
    assert_eq!(
        (module(0).as_str(), module(1).as_str()),
        ("/lib/plugin-a.so", "/lib/plugin-b.so")
    );
}

#[test]
fn a_torn_tail_is_read_up_to_the_tear() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x10]);
    log.alloc(stack, 100);
    let whole = log.flush();
    log.alloc(stack, 1000);
    log.alloc(stack, 10_000);
    let bytes = log.cut();
    let mut seen = Vec::new();
    for len in whole + 1..bytes.len() {
        let profile = profile_of_log(&bytes[..len], |_| {}).unwrap();
        // The records in front of the cut count, without the checksum of their frame.
        let account = &profile.account;
        let (torn, left) = account.torn.unwrap();
        assert_eq!(torn + left, len as u64);
        assert_eq!(torn, whole as u64 + account.unchecked_bytes);
        let in_use = profile.numbers().in_use_bytes;
        assert_eq!(in_use > 100, account.unchecked_bytes > 0);
        seen.push(in_use);
        assert_eq!(profile.run.ending, Ending::CutOff);
        assert!(!profile.is_complete());
        let words = account.damages().next().unwrap();
        assert_eq!(
            words.contains("checksum"),
            account.unchecked_bytes > 0,
            "{words}"
        );
    }
    seen.dedup();
    assert_eq!(seen, [100, 1100]);
    // Cut between two frames, nothing is torn.
    let profile = profile_of_log(&bytes[..whole], |_| {}).unwrap();
    assert!(profile.account.is_whole());
}

#[test]
fn a_damaged_frame_is_passed_over_and_noted() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x10]);
    log.alloc(stack, 100);
    let first = log.flush();
    log.alloc(stack, 1000);
    let second = log.flush();
    log.alloc(stack, 10_000);
    let mut bytes = log.end();
    bytes[(first + second) / 2] ^= 0x40;
    let profile = profile_of_log(&bytes, |_| {}).unwrap();
    assert_eq!(profile.numbers().in_use_bytes, 10_100);
    let [damage] = &profile.account.damage[..] else {
        panic!("one damaged place")
    };
    assert_eq!(
        (damage.offset, damage.skipped),
        (first as u64, (second - first) as u64)
    );
    assert!(damage.what.contains("checksum"), "{}", damage.what);
}

#[test]
fn a_lost_stack_is_counted_and_its_samples_kept() {
    let mut log = LogBuilder::new(1);
    log.alloc(5, 100);
    log.free(999);
    let profile = profile_of_log(&log.end(), |_| {}).unwrap();
    assert_eq!(profile.numbers().in_use_bytes, 100);
    assert_eq!(
        (
            profile.account.unknown_stacks,
            profile.account.unknown_frees
        ),
        (1, 1)
    );
}

#[test]
fn impossible_numbers_are_left_out_and_counted() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x10]);
    log.alloc(stack, u64::MAX);
    log.alloc(stack, 7);
    let profile = profile_of_log(&log.end(), |_| {}).unwrap();
    assert_eq!(
        (profile.numbers().in_use_bytes, profile.account.implausible),
        (7, 1)
    );
}

#[test]
fn what_holds_no_record_is_an_error() {
    let bytes = server_log(1);
    let kind = |bytes: &[u8]| profile_of_log(bytes, |_| {}).unwrap_err().kind;
    assert_eq!(kind(b""), ReadErrorKind::Empty);
    assert_eq!(kind(&bytes[..4]), ReadErrorKind::NotALog);
    assert_eq!(kind(&bytes[..FILE_HEADER_LEN]), ReadErrorKind::TornTail);
    assert_eq!(
        kind(&bytes[..FILE_HEADER_LEN + 20]),
        ReadErrorKind::TornTail
    );
    assert_eq!(kind(b"heaplog\x09"), ReadErrorKind::Version(9));
}

proptest! {
    /// Against a list of blocks, at interval 1, with flushes anywhere.
    #[test]
    fn any_history_is_folded_exactly(
        steps in prop::collection::vec((0u32..3, 0u64..5000, any::<prop::sample::Index>(), 0u8..10), 1..200)
    ) {
        let mut log = LogBuilder::new(1);
        for stack in 0..3 {
            log.stack(&[0x10, 0x100 + stack]);
        }
        let mut live: Vec<(u64, u32, u64)> = Vec::new();
        let mut truth: BTreeMap<u32, [u64; 4]> = BTreeMap::new();
        for (stack, size, which, action) in steps {
            match action {
                0..4 if !live.is_empty() => {
                    let (id, stack, size) = live.swap_remove(which.index(live.len()));
                    log.free(id);
                    let sums = truth.entry(stack).or_default();
                    sums[0] -= 1;
                    sums[1] -= size;
                }
                9 => { log.flush(); }
                _ => {
                    live.push((log.alloc(stack, size), stack, size));
                    let sums = truth.entry(stack).or_default();
                    for (sum, n) in sums.iter_mut().zip([1, size, 1, size]) { *sum += n; }
                }
            }
        }
        let profile = profile_of_log(&log.end(), |_| {}).unwrap();
        let mut folded: BTreeMap<u32, Numbers> = BTreeMap::new();
        for row in &profile.rows {
            *folded.entry(row.stack).or_default() += Numbers::of(&row.totals);
        }
        let folded: BTreeMap<u32, [u64; 4]> = folded.into_iter().map(|(stack, n)| (stack, numbers(n))).collect();
        prop_assert_eq!(folded, truth);
    }

    #[test]
    fn no_damage_panics(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()
    ) {
        let mut bytes = server_log(4096);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = profile_of_log(&bytes, |_| {});
        let _ = profile_of_log(&bytes[..cut.index(bytes.len())], |_| {});
    }
}
