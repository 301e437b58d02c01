//! Sampling parameters: intervals that change, a budget for samples, blocks recorded for their
//! size.

use std::collections::BTreeMap;

use heapprof_core::{Estimate, Weight};
use heapprof_tests::{Log, Run, ctl_output, ended, samples_so_far, service, started, writer_of};

#[test]
fn an_interval_is_followed_by_a_thread_that_was_far_from_its_mark() {
    let run = service("steady")
        .interval(1 << 40)
        .env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    assert_eq!(ctl_output(pid, &["interval", "1"]), "every allocation\n");
    // 4 MiB in blocks of 23 kB are 182 blocks.
    running.until("samples", |running| samples_so_far(running, 23001) > 20);
    let log = ended(running).log().whole();
    assert_eq!(log.regimes().last().map(|(_, interval)| *interval), Some(1));
    assert!(log.allocs().all(|alloc| alloc.interval == 1));
    // Each block is freed at once: after the change none is left out.
    assert_eq!(log.blocks_of(23001).iter().filter(|b| b.in_use).count(), 0);
}

/// All blocks from that size on, at an interval that would find none of these; and an estimate of
/// the others.
#[test]
fn large_blocks_are_all_recorded_whatever_the_interval() {
    const OVER: u64 = 4 << 10;
    let sizes = |log: &Log, interval: u64| -> BTreeMap<u64, u64> {
        let mut sizes = BTreeMap::new();
        for alloc in log.allocs().filter(|alloc| alloc.size >= OVER) {
            assert_eq!(alloc.interval, interval);
            *sizes.entry(alloc.size).or_default() += 1;
        }
        sizes
    };
    let truth = |interval: u64| {
        Run::fixture("truth")
            .args(["--threads", "2"])
            .interval(interval)
    };
    let all = truth(1).run().well().log().whole();
    let ran = truth(1 << 40)
        .env("HEAPPROF_RECORD_OVER", "4K")
        .run()
        .well();
    let large = ran.log().whole();
    let expected = sizes(&all, 1);
    assert!(expected.values().sum::<u64>() > 100, "{expected:?}");
    assert_eq!(sizes(&large, 1), expected);
    // 43 MB at an interval of 1 TiB: one sample in 25,000 runs.
    assert_eq!(large.allocs().filter(|alloc| alloc.size < OVER).count(), 0);
    let top = Run::heapprof().arg("top").arg(ran.log_path()).run().well();
    let said = "blocks of 4.0 KiB and more all recorded";
    assert!(top.stdout.contains(said), "{}", top.stdout);
}

/// A load of about a million blocks a second, of which 200 a second may be recorded. The numbers
/// stay right.
#[test]
fn a_budget_is_kept_and_the_numbers_stay_right() {
    let run = service("hot")
        .interval(4096)
        .env("HEAPPROF_MAX_SAMPLES_PER_SEC", "200")
        .env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    running.until("its load", |running| {
        running.stdout_so_far().contains("allocated ")
    });
    let pid = running.pid();
    // Without allocations the interval comes down by itself to the requested one, and then the
    // writer is not woken.
    running.until("the interval to come down", |_| {
        ctl_output(pid, &["status"]).contains("one sample every 4096 bytes on average\n")
    });
    let ran = ended(running);
    let line = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("allocated "));
    let (blocks, bytes) = line.unwrap().split_once(' ').unwrap();
    let (blocks, bytes): (f64, f64) = (blocks.parse().unwrap(), bytes.parse().unwrap());

    let log = ran.log().whole();
    let mut estimate = Estimate::default();
    let (mut first_ns, mut last_ns, mut samples) = (u64::MAX, 0, 0);
    for alloc in log
        .allocs()
        .filter(|alloc| (200..1224).contains(&alloc.size))
    {
        estimate.add(&Weight::of(alloc.size, alloc.interval));
        samples += 1;
        first_ns = first_ns.min(alloc.time_ns);
        last_ns = last_ns.max(alloc.time_ns);
    }
    // Beyond 5 standard errors once in 1.7 million runs; twice here.
    let z_blocks = (estimate.objects_f64() - blocks) / estimate.objects_error();
    let z_bytes = (estimate.bytes_f64() - bytes) / estimate.bytes_error();
    assert!(
        z_blocks.abs() < 5.0 && z_bytes.abs() < 5.0,
        "{z_blocks} {z_bytes}"
    );
    assert!(bytes / 4096.0 > 20_000.0, "no load: {bytes} bytes");
    // The bound has three parts. Before the load is noticed: a full lane, and at most another while
    // the writer empties it. Under an interval sixteen times as long: the samples until the writer
    // has looked twice, every 50 ms. After that: twice the budget. The load is two seconds of CPU
    // time.
    let seconds = (last_ns - first_ns) as f64 / 1e9;
    let between_looks = bytes / 2.0 / (16.0 * 4096.0) * 0.05;
    let most = 2.0 * 8192.0 + 2.0 * between_looks + 2.0 * 200.0 * (seconds + 1.0);
    assert!(
        f64::from(samples) < most,
        "{samples} samples in {seconds} s"
    );
    let info = Run::heapprof().arg("info").arg(ran.log_path()).run().well();
    assert!(info.stdout.contains("  budget "), "{}", info.stdout);
}

/// A budget without a change of its own is not named as the cause of a change, and does not block
/// the next one.
#[test]
fn a_budget_does_not_keep_what_somebody_asked_for() {
    let run = service("steady")
        .interval(4096)
        .env("HEAPPROF_MAX_SAMPLES_PER_SEC", "100000")
        .env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    let pid = running.pid();
    for interval in ["1M", "64K", "256K"] {
        let answer = ctl_output(pid, &["interval", interval]);
        assert!(!answer.contains("budget"), "{interval}: {answer}");
        // The budget has seen the change after a round.
        let before = samples_so_far(&running, 23001);
        running.until("more samples", |running| {
            samples_so_far(running, 23001) > before + 3
        });
    }
    let ran = ended(running);
    let intervals: Vec<u64> = ran
        .log()
        .whole()
        .regimes()
        .iter()
        .map(|regime| regime.1)
        .collect();
    assert_eq!(intervals, [1 << 20, 64 << 10, 256 << 10]);
    let info = Run::heapprof().arg("info").arg(ran.log_path()).run().well();
    assert!(!info.stdout.contains("  budget "), "{}", info.stdout);
}

/// Keeps a thousand blocks recorded one by one, and a thousand under an interval that it sets.
const CHANGES_ITS_INTERVAL: &str = r#"
#include <stdlib.h>
int heapprof_set_interval(size_t bytes) __attribute__((weak));
void HeapProfilerDump(const char *reason) __attribute__((weak));
void *kept[2000];
int main(void)
{
    for (int i = 0; i < 1000; i++) kept[i] = malloc(3001);
    if (heapprof_set_interval(65536) != 0) return 1;
    for (int i = 1000; i < 2000; i++) kept[i] = malloc(3002);
    HeapProfilerDump("asked");
    return 0;
}
"#;

/// A run was recorded one by one only at first: its dump says that it estimates, and its readers
/// do, too.
#[test]
fn a_dump_after_a_change_of_interval_says_that_it_estimates() {
    let ran = Run::compiled("changes", CHANGES_ITS_INTERVAL, &[])
        .interval(1)
        .run()
        .well();
    let [dump] = &ran.files_ending(".heap")[..] else {
        panic!("{:?}", ran.files());
    };
    let text = String::from_utf8_lossy(&ran.bytes(dump)).into_owned();
    assert!(text.contains("# interval: 65536\n"), "{text}");
    assert!(
        text.contains("# estimator: each sample of s bytes"),
        "{text}"
    );
    let again = ran.folder().join("again.heap");
    let made = Run::heapprof()
        .args(["export", "--format", "gperftools", "-o"])
        .arg(&again)
        .arg(ran.log_path())
        .run();
    assert_eq!(made.code(), 0, "{}", made.stderr);
    for dump in [ran.folder().join(dump), again] {
        let top = Run::heapprof().arg("top").arg(&dump).run().well().stdout;
        let in_use = top.lines().find(|line| line.contains("in use")).unwrap();
        assert!(in_use.contains('±') && !in_use.contains("± 0 B"), "{top}");
    }
}
