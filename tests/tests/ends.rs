//! The very end: what the log has of the last moments, and what the end costs.
//!
//! Both are measured over several runs, of which the best half counts: the machine may be busy with other things, and
//! a profiler that is late by design is late every time.

use std::time::Instant;

use heapprof_format::EndReason;
use heapprof_tests::{Finished, Log, Run};

/// The number behind the last line that begins with this word.
fn last(ran: &Finished, word: &str) -> u64 {
    let rest = |line: &str| line.strip_prefix(word)?.trim().parse().ok();
    let found = ran.stdout.lines().filter_map(rest).next_back();
    found.unwrap_or_else(|| panic!("no {word} in {}", ran.stdout))
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Milliseconds before the end after which nothing is in the log.
fn missing_ms(ran: &Finished) -> u64 {
    // After an exec there is another's.
    let log = Log::read(&ran.folder().join("t.heaplog"));
    let ticks = log.blocks().into_iter().map(|block| block.size);
    let recorded = ticks.filter(|size| (500_000..510_000).contains(size)).max();
    last(ran, "tick ") - (recorded.unwrap_or(500_000) - 500_000)
}

fn ended(way: &str, interval: u64) -> Finished {
    Run::fixture("late_end")
        .arg(way)
        .interval(interval)
        .prefix("t")
        .run()
}

/// The best of up to nine runs, as soon as one is good enough.
fn best(limit: u64, measure: impl Fn() -> u64) -> u64 {
    let mut best = u64::MAX;
    for _ in 0..9 {
        best = best.min(measure());
        if best <= limit {
            break;
        }
    }
    best
}

#[test]
fn where_code_of_ours_runs_nothing_is_missing() {
    for (way, status) in [("return", 0), ("exit", 3), ("_exit", 4), ("quick_exit", 5)] {
        let ran = ended(way, 1);
        assert_eq!(ran.code(), status, "{way}: {}", ran.stderr);
        assert_eq!(ran.stderr, "", "{way}");
        assert_eq!(missing_ms(&ran), 0, "{way}");
        assert_eq!(ran.log().end(), Some(EndReason::Exit), "{way}");
        let dumps = ran.files_ending(".heap");
        let last = dumps.last().unwrap_or_else(|| panic!("{way}: no dump"));
        let text = String::from_utf8_lossy(&ran.bytes(last)).into_owned();
        assert!(text.contains("Exiting"), "{way}: {last} is not the last");
        assert_eq!(ran.files_ending(".unfinished"), [""; 0], "{way}");
    }
    let ran = ended("exec", 1).well();
    assert_eq!(missing_ms(&ran), 0, "exec");
}

#[test]
fn a_signal_costs_at_most_the_last_100_ms() {
    for (way, signal) in [
        ("abort", libc::SIGABRT),
        ("sigterm", libc::SIGTERM),
        ("sigsegv", libc::SIGSEGV),
        ("sigkill", libc::SIGKILL),
    ] {
        for interval in [1, 65536] {
            let missing = best(100, || {
                let ran = ended(way, interval);
                assert_eq!(ran.code(), 128 + signal, "{way}");
                assert_eq!(ran.stderr, "", "{way}");
                missing_ms(&ran)
            });
            assert!(missing <= 100, "{way} at {interval}: {missing} ms");
        }
    }
}

/// From the last thing that the program does to the moment its parent knows of its end, with the library less
/// without it.
#[test]
fn the_end_is_delayed_by_less_than_100_ms() {
    let end_ms = |run: Run| {
        let ran = run.run();
        let now = monotonic_ns();
        now.saturating_sub(last(&ran, "leaving ")) / 1_000_000
    };
    for interval in [1, 65536] {
        for way in ["exit", "_exit"] {
            let started = Instant::now();
            let delay = best(100, || {
                let fixture = || Run::fixture("late_end").arg(way);
                let alone = end_ms(fixture().without_library());
                end_ms(fixture().interval(interval).prefix("t")).saturating_sub(alone)
            });
            assert!(
                delay <= 100,
                "{way} at {interval}: {delay} ms, after {:?}",
                started.elapsed()
            );
        }
    }
}
