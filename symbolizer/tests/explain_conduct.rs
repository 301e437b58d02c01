//! `heapprof explain`: sites that grow for a time, fall, or rest on blocks of many sizes.

use std::collections::VecDeque;

use serde_json::Value;

use heapprof_format::{Record, Stack, WalkEnd};

use crate::common::history::{STACKS, ok};
use crate::explain::{KIB, expected, log_at, verdicts};
use crate::explain_chance::Chance;

/// The only finding of a log.
fn only(document: &Value) -> &Value {
    let findings = document["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), 1, "{document}");
    &findings[0]
}

/// A cache that is filled up to three fifths of the time. Then its blocks are replaced at random:
/// of the old ones, as large a part stays as of the others.
#[test]
fn a_cache_that_is_filled_and_level_since_is_no_leak() {
    let folder = tempfile::tempdir().expect("a folder");
    for interval in [1, 512 * KIB] {
        let (mut chance, mut cache) = (Chance(0x9e37_79b9_7f4a_7c15), Vec::new());
        let log = log_at(interval, &folder, &mut |history, tick| {
            if tick % 6 != 0 {
                return;
            }
            if tick > 1800 {
                let at = chance.below(cache.len() as u64) as usize;
                history.free(cache.swap_remove(at));
            }
            cache.push(history.alloc(0, 6 * KIB, 0));
        });
        let (kinds, document) = verdicts(&log);
        assert_eq!(kinds, expected(&[(0, "cache")]), "{document}");
        let since = only(&document)["settled_ns"].as_u64().expect("a time");
        assert!(since.abs_diff(36_000_000_000) < 2_000_000_000, "{document}");
        let text = ok(&["explain", &log, "--width", "200"]);
        assert!(text.contains(" in use, level since 3"), "{text}");
        assert!(text.contains("Nothing is wrong"), "{text}");
    }
}

/// A queue that gets longer, with a hundred samples. Growth may be uncertain, but it is not level.
#[test]
fn a_backlog_of_few_samples_is_never_level() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut found = 0;
    for seed in 1..=20 {
        let (mut chance, mut queue) = (Chance(0x0937_79b9_7f4a_7c15 * seed), VecDeque::new());
        let log = log_at(512 * KIB, &folder, &mut |history, tick| {
            // Four blocks in a tick, of which one in 60 is a sample; the queue is served in turn.
            for _ in 0..4 {
                queue.push_back((chance.once_in(60)).then(|| history.alloc(0, 2 * KIB, 0)));
            }
            for _ in 0..if tick % 5 < 2 { 3 } else { 2 } {
                if let Some(block) = queue.pop_front().unwrap() {
                    history.free(block);
                }
            }
        });
        let (kinds, document) = verdicts(&log);
        found += usize::from(kinds == expected(&[(0, "backlog")]));
        assert!(kinds.values().all(|kind| kind != "cache"), "{document}");
        assert_eq!(document["nothing_is_wrong"], false, "{document}");
    }
    assert!(found >= 15, "{found} of 20");
}

/// Elements that stay, and an array that is replaced by one of twice the size as they come.
#[test]
fn the_arrays_of_a_container_do_not_hide_that_its_elements_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut array, mut room, mut count) = (None, 64, 0);
    let log = log_at(1, &folder, &mut |history, _| {
        for _ in 0..4 {
            count += 1;
            history.alloc(0, 40, 0);
        }
        if count > room {
            if let Some(block) = array.take() {
                history.free(block);
            }
            room *= 2;
            array = Some(history.alloc(0, 32 * room, 0));
        }
    });
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "leak")]), "{document}");
    let gone = only(&document)["freed_of_old"].as_f64();
    assert!(gone > Some(0.2), "{document}");
    let text = ok(&["explain", &log, "--width", "200"]);
    assert!(text.contains("of its old blocks stays"), "{text}");
}

#[test]
fn a_site_that_grew_until_half_of_the_time_and_stays_is_told_with_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for until in [1500, 1800] {
        let log = log_at(1, &folder, &mut |history, tick| {
            if tick < until {
                history.alloc(0, 4 * KIB, 0);
            }
        });
        let (kinds, document) = verdicts(&log);
        assert_eq!(kinds, expected(&[(0, "one-time")]), "{document}");
        let text = ok(&["explain", &log, "--width", "200"]);
        let (_, time) = text.split_once("allocated up to ").expect("a time");
        let time: f64 = time.split(' ').next().unwrap().parse().expect("seconds");
        assert!((time - until as f64 / 50.0).abs() < 1.0, "{text}");
    }
}

/// A block that comes three times in a run, the last time at two thirds of it: it may come again.
#[test]
fn a_leak_of_few_large_steps_has_not_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_at(1, &folder, &mut |history, tick| {
        if tick % 1000 == 0 {
            history.alloc(0, 4096 * KIB, 0);
        }
    });
    assert_eq!(verdicts(&log).0, expected(&[(0, "leak")]));
}

#[test]
fn a_site_that_only_frees_falls_and_is_no_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    // The second one loses half of its blocks.
    for left in [0, 1500] {
        let mut all = Vec::new();
        let log = log_at(1, &folder, &mut |history, tick| {
            if tick == 0 {
                all.extend((0..3001).map(|_| history.alloc(0, 4 * KIB, 0)));
            }
            if left == 0 || tick % 2 == 0 {
                history.free(all.pop().unwrap());
            }
        });
        let (kinds, document) = verdicts(&log);
        assert_eq!(kinds, expected(&[(0, "falls")]), "{document}");
        assert_eq!(only(&document)["trouble"], false);
    }
}

/// Two rises and falls are no pattern, but they are all of the memory.
#[test]
fn a_large_site_without_a_conduct_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut live = VecDeque::new();
    let log = log_at(1, &folder, &mut |history, tick| {
        let wanted = 2000.0 + 1500.0 * (tick as f64 / 3000.0 * 4.0 * std::f64::consts::PI).sin();
        while live.len() < wanted as usize {
            live.push_back(history.alloc(0, 4 * KIB, 0));
        }
        while live.len() > wanted as usize {
            history.free(live.pop_front().unwrap());
        }
    });
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "varies")]), "{document}");
}

/// A burst of eighty samples, and batches of forty: their numbers have errors.
#[test]
fn what_rises_and_falls_has_errors_where_it_is_sampled() {
    let folder = tempfile::tempdir().expect("a folder");
    for (interval, has_error) in [(1, false), (512 * KIB, true)] {
        let (mut burst, mut batch) = (Vec::new(), Vec::new());
        let log = log_at(interval, &folder, &mut |history, tick| {
            match tick {
                1500 => burst.extend((0..80).map(|_| history.alloc(0, 4 * KIB, 0))),
                1600 => burst.drain(..).for_each(|block| history.free(block)),
                _ => {}
            }
            match tick % 500 {
                0 => batch.extend((0..40).map(|_| history.alloc(1, 4 * KIB, 0))),
                200 => batch.drain(..).for_each(|block| history.free(block)),
                _ => {}
            }
        });
        let (kinds, document) = verdicts(&log);
        assert_eq!(kinds, expected(&[(0, "burst"), (1, "periodic")]));
        for (finding, samples) in [(0, 80.0), (1, 40.0)] {
            let finding = &document["findings"][finding];
            let number = |key: &str| finding[key].as_f64().expect("a number");
            let error = number("highest_error_bytes") / number("highest_bytes");
            let wanted = if has_error {
                1.0 / f64::sqrt(samples)
            } else {
                0.0
            };
            assert!(
                (error - wanted).abs() < 0.01,
                "{error} {wanted}: {document}"
            );
        }
        let text = ok(&["explain", &log, "--width", "200"]);
        let lines = text.lines().filter(|line| {
            line.contains(" s, near the peak of") || line.contains("rises and falls")
        });
        let with_error = lines.filter(|line| line.contains(" ± ")).count();
        assert_eq!(with_error, if has_error { 2 } else { 0 }, "{text}");
    }
}

/// Seven samples, none of which is freed: they are too few for a leak, and no conduct besides.
#[test]
fn few_samples_that_all_stay_may_be_growth() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_at(512 * KIB, &folder, &mut |history, tick| {
        if [100, 500, 900, 1300, 1700, 2300, 2900].contains(&tick) {
            history.alloc(0, 2 * KIB, 0);
        }
    });
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "may grow")]), "{document}");
    assert_eq!(document["nothing_is_wrong"], false, "{document}");
}

/// Each site has less than a hundredth, and all together grow as fast as a single leak would.
pub(crate) fn growth_of_many_sites(folder: &tempfile::TempDir) -> String {
    const SITES: u32 = 250;
    log_at(1, folder, &mut |history, tick| {
        if tick == 0 {
            for number in STACKS..STACKS + SITES {
                history.record += 1;
                history.encoder.record(&Record::Stack(Stack {
                    number,
                    end: WalkEnd::Root,
                    frames: vec![0x10, 0x1001 + 16 * u64::from(number)],
                    interrupted: vec![],
                    labels: Vec::new(),
                }));
            }
        }
        history.alloc(STACKS + tick as u32 % SITES, 4 * KIB, 0);
    })
}

#[test]
fn growth_that_no_single_site_has_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = growth_of_many_sites(&folder);
    let (kinds, document) = verdicts(&log);
    assert!(kinds.is_empty(), "{document}");
    assert_eq!(document["nothing_is_wrong"], false, "{document}");
    let growth = document["many_sites"]["growth_bytes_per_second"].as_f64();
    let expected = 50.0 * 4.0 * KIB as f64;
    assert!(
        (growth.expect("growth") / expected - 1.0).abs() < 0.05,
        "{document}"
    );
    let text = ok(&["explain", &log, "--width", "200"]);
    assert!(text.contains("1. growth: [many sites]"), "{text}");
    assert!(text.contains(" -m growth"), "{text}");

    // A leak of one site has all of the growth.
    let log = log_at(1, &folder, &mut |history, _| {
        history.alloc(0, 4 * KIB, 0);
    });
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, self::expected(&[(0, "leak")]), "{document}");
    assert!(document["many_sites"].is_null(), "{document}");
}

/// A table of the end, whose site begins late.
#[test]
fn what_came_at_once_is_told_with_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_at(1, &folder, &mut |history, tick| {
        if tick == 0 || (2400..2440).contains(&tick) {
            history.alloc(u32::from(tick > 0), 400 * KIB, 0);
        }
        let short = history.alloc(2, 64, 0);
        history.free(short);
    });
    let text = ok(&["explain", &log, "--width", "200"]);
    assert!(text.contains("allocated up to 48."), "{text}");
}
