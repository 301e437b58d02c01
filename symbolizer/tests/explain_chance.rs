//! `heapprof explain`: verdicts on few samples, whose levels differ by chance.

use crate::common::history::History;
use crate::explain::{KIB, expected, log_at, verdicts};

/// Random numbers, the same in every run.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// Returns true once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns a number below that one.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % end
    }
}

/// Samples of a cache of small blocks. Each stays for half a second on average, and four times in a
/// tick, one comes by chance.
fn level(history: &mut History, live: &mut Vec<usize>, stack: u32, chance: &mut Chance, once: u64) {
    live.retain(|&block| {
        let goes = chance.once_in(25);
        if goes {
            history.free(block);
        }
        !goes
    });
    for _ in 0..4 {
        if chance.once_in(once) {
            live.push(history.alloc(stack, 256, 0));
        }
    }
}

/// A level of sixteen samples differs by chance from moment to moment.
#[test]
fn a_level_that_differs_by_chance_alone_is_a_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut live: [Vec<usize>; 4] = Default::default();
    let log = log_at(512 * KIB, &folder, &mut |history, _| {
        for (stack, live) in (0..).zip(&mut live) {
            level(history, live, stack, &mut chance, 6);
        }
    });
    let (kinds, document) = verdicts(&log);
    let all = [0, 1, 2, 3].map(|stack| (stack, "cache"));
    assert_eq!(kinds, expected(&all), "{document}");
}

/// A level of two samples has five times as many by chance, and then the program has its most.
#[test]
fn a_peak_by_chance_is_no_burst() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 1..=8 {
        let (mut chance, mut live) = (Chance(0x1e37_79b9_7f4a_7c15 * seed), Vec::new());
        let log = log_at(512 * KIB, &folder, &mut |history, _| {
            level(history, &mut live, 0, &mut chance, 50);
        });
        let (kinds, document) = verdicts(&log);
        assert!(kinds.values().all(|kind| kind == "cache"), "{document}");
    }
}

/// Fifteen samples of a leak, of which one is freed: that it grows is sure, though not by how much.
#[test]
fn a_leak_of_few_samples_is_one_though_one_of_them_is_freed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut freed = None;
    let log = log_at(512 * KIB, &folder, &mut |history, tick| match tick {
        2000 => freed = Some(history.alloc(0, 256, 0)),
        2500 => history.free(freed.take().expect("it came")),
        tick if tick % 200 == 0 => _ = history.alloc(0, 256, 0),
        _ => {}
    });
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "leak")]), "{document}");
}
