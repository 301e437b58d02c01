//! Threads: many, short ones, such that end in the middle of something, and such that go on allocating while they end.

use std::collections::BTreeSet;

use heapprof_tests::{Finished, Run, assert_claims};

/// Two numbers of a line of the fixture's.
fn numbers(ran: &Finished, word: &str) -> (u64, u64) {
    let line = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(word)?.trim().split_once(' '));
    let (a, b) = line.unwrap_or_else(|| panic!("no {word} in {}", ran.stdout));
    (a.parse().unwrap(), b.parse().unwrap())
}

/// Every one of 10,240 threads is in the log; and between 20,480 and 81,920 threads the process does not grow, whether
/// everything is recorded or a sample, with dumps or without. 32 bytes kept of each would be 1920 KiB; what is in use
/// at a moment, of the program's blocks and stacks and of ours, varies by some hundreds of KiB on a busy machine,
/// however many threads there were.
#[test]
fn short_threads() {
    let ran = Run::fixture("short_threads").interval(1).prefix("t");
    let log = assert_claims(&ran.run().well());
    let blocks = log.blocks_of(34001).into_iter();
    let threads: BTreeSet<u32> = blocks.map(|block| block.thread).collect();
    assert_eq!(threads.len(), 10_240);

    for (interval, dumps) in [(1, true), (4096, false)] {
        let mut run = Run::fixture("short_threads").arg("81920");
        if dumps {
            run = run.prefix("t");
        }
        let ran = run.interval(interval).run().well();
        let (before, after) = numbers(&ran, "anonymous_kib");
        println!("interval {interval}: {before} KiB after 20,480 threads, {after} after 81,920");
        assert!(after < before + 1536, "{interval}: {before} {after}");
    }
}

/// Destructors of C++ and of pthread keys, before and after the allocator's own.
#[test]
fn thread_end() {
    let ran = Run::fixture("thread_end").interval(1).prefix("t");
    assert_claims(&ran.run().well());
}

/// After every cancellation threads sample on, and none ends inside the allocator.
#[test]
fn cancel_storm() {
    for interval in [1, 4096] {
        let ran = Run::fixture("cancel_storm").interval(interval).prefix("t");
        let ran = ran.run().well();
        assert_eq!(ran.claims().ok, ["cancelled"]);
        assert_eq!(ran.stderr, "");
        let log = ran.log().whole();
        if interval == 1 {
            assert_eq!(log.blocks_of(36002).len(), 10_000);
            assert_eq!(log.blocks_of(36003).len(), 100);
            assert!(log.blocks_of(36002).iter().all(|block| !block.in_use));
        }
        assert_eq!(log.losses().values().sum::<u64>(), 0, "{:?}", log.losses());
    }
}
