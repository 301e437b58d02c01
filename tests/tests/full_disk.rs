//! Disks that are full: for a moment, for a while, and to the end.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use heapprof_core::SizeClass;
use heapprof_format::{Counter, EndReason};
use heapprof_symbolizer::{Ending, Input};
use heapprof_tests::{Build, Run, may_mount, notes};

/// A file system with room for a part of the log. The written part can be read, and the program
/// ends as usual.
#[test]
fn full_file_system() {
    if !may_mount() {
        return;
    }
    let mut took = Vec::new();
    for size in ["1g", "600k", "1m"] {
        let run = Run::tool("unshare");
        fs::create_dir(run.folder().join("small")).unwrap();
        let script = format!(
            "mount -t tmpfs -o size={size} none small && mkdir small/d && \
             LD_PRELOAD=$1 HEAPPROFILE=small/d/t HEAP_PROFILE_ALLOCATION_INTERVAL=64M \"$0\" 4 100000
             status=$?; cp small/d/* .; exit $status"
        );
        let begun = Instant::now();
        let ran = run
            .args(["-rm", "sh", "-c", &script])
            .arg(Build::get().fixture("churn"))
            .arg(Build::get().library())
            .interval(1)
            .run()
            .well();
        took.push(begun.elapsed());
        assert!(ran.stdout.contains("ops 400000"), "{}", ran.stdout);
        if size == "1g" {
            assert_eq!(
                (ran.log().whole().end(), &*ran.stderr),
                (Some(EndReason::Exit), "")
            );
            continue;
        }
        let told = ran.library_messages();
        let ends = |it: &&String| it.contains("no space left") && it.contains("log ends here");
        assert_eq!(told.iter().filter(ends).count(), 1, "{told:?}");
        let log = ran.log();
        assert!(log.torn.is_none(), "{:?}", log.torn);
        assert!(log.blocks().len() > 100, "{}", log.blocks().len());
        assert_eq!(
            log.end(),
            Some(EndReason::LogFailed),
            "the log says so itself"
        );
        assert!(
            log.losses().contains_key(&Counter::LostLogBytes),
            "{:?}",
            log.losses()
        );
        // There is no half of a dump.
        assert_eq!(ran.files_ending(".unfinished"), [""; 0]);
        for dump in ran.dumps() {
            assert!(fs::metadata(&dump).unwrap().len() > 100);
        }
    }
    // No thread waits for room that never comes.
    let [ample, little, some] = took[..] else {
        panic!("three runs")
    };
    let limit = ample * 2 + Duration::from_secs(1);
    assert!(little < limit && some < limit, "{took:?}");
}

/// Fills its disk, allocates, waits as long as it is told, and makes room again.
const FILLS_DISK: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *volatile kept;

static void allocate(size_t size, int count)
{
    for (int i = 0; i < count; i++) {
        kept = malloc(size);
        if (i > 0)
            free(kept);
    }
}

int main(int argc, char **argv)
{
    static char page[4096];
    allocate(21001, 1000);
    usleep(300000);
    int fill = open(argv[1], O_CREAT | O_WRONLY, 0600);
    while (write(fill, page, sizeof page) > 0)
        ;
    allocate(21002, atoi(argv[3]));
    usleep(atoi(argv[2]) * 1000);
    unlink(argv[1]);
    close(fill);
    usleep(atoi(argv[4]) * 1000);
    allocate(21003, 1000);
    for (int i = 0; i < 10; i++)
        free(malloc(100)), kept = malloc(21004);
    return argc != 5;
}
"#;

/// Frames that find no room wait for it, so that nothing is lost.
#[test]
fn a_disk_that_is_full_for_a_moment_costs_nothing() {
    if !may_mount() {
        return;
    }
    let compiled = Run::compiled("fills_disk", FILLS_DISK, &[]);
    let program = compiled.folder().join("bin/fills_disk");
    // On a busy machine the writer may find the full disk only after a while.
    for wait_ms in [200, 1000, 4000, 16000] {
        let run = Run::tool("unshare");
        fs::create_dir(run.folder().join("small")).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=8m none small && mkdir small/d && \
             LD_PRELOAD=$1 HEAPPROFILE=small/d/t HEAP_PROFILE_ALLOCATION_INTERVAL=0 \"$0\" small/fill {wait_ms} 100000 0
             status=$?; cp small/d/* .; exit $status"
        );
        let ran = run
            .args(["-rm", "sh", "-c", &script])
            .arg(&program)
            .arg(Build::get().library())
            .interval(1)
            .run()
            .well();
        assert_eq!(ran.stderr, "");
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit));
        assert!(log.losses().is_empty(), "{:?}", log.losses());
        let blocks = [21001, 21002, 21003].map(|size| log.blocks_of(size).len());
        assert_eq!(blocks, [1000, 100_000, 1000]);
        if !ran.library_messages().is_empty() {
            return ran.assert_noted(&["no space left", "wait in memory for room"]);
        }
    }
    panic!("the disk was never full");
}

/// A log that cannot wait longer has a gap, and goes on with all sums: with the account that dumps
/// need, with that of a bound, and with the one that is made from the log.
#[test]
fn behind_a_disk_that_stays_full_the_log_goes_on() {
    if !may_mount() {
        return;
    }
    let compiled = Run::compiled("fills_disk", FILLS_DISK, &[]);
    let program = compiled.folder().join("bin/fills_disk");
    for settings in [
        "",
        "HEAPPROFILE=t HEAP_PROFILE_ALLOCATION_INTERVAL=0 HEAP_PROFILE_INUSE_INTERVAL=0",
        "HEAPPROF_MAX_LOG=64M",
    ] {
        let run = Run::tool("unshare");
        fs::create_dir(run.folder().join("small")).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=40m none small && cp \"$0\" fills && cd small && mkdir d && cd d && \
             env {settings} LD_PRELOAD=$1 ../../fills ../fill 700 3000000 1500
             status=$?; cp * ../..; exit $status"
        );
        let ran = run
            .args(["-rm", "sh", "-c", &script])
            .arg(&program)
            .arg(Build::get().library())
            .interval(1)
            .run()
            .well();
        let mut logs: Vec<_> = (ran.files_ending(".heaplog").iter())
            .map(|name| {
                let path = ran.folder().join(name);
                let profile = Input::open(&path).and_then(|input| input.read(|_| ()));
                (profile.expect("a log"), notes(&path).join("\n"))
            })
            .collect();
        let failed = Ending::Said(EndReason::LogFailed);
        logs.sort_by_key(|(profile, _)| profile.run.ending == failed);
        // The one before the gap stays.
        let [(profile, told), (before, _)] = &logs[..] else {
            panic!("{settings}: {:?}", ran.files())
        };
        assert_eq!(profile.run.ending, Ending::Said(EndReason::Exit));
        assert!(
            before.run.checkpoint.is_none() && before.run.ending == failed,
            "{settings}"
        );
        let first: u64 = (before.rows.iter())
            .map(|row| row.totals.allocated.objects())
            .sum();
        assert!(first >= 1000, "{settings}: {first}");
        assert!(
            told.contains("the disk was full from "),
            "{settings}: {told}"
        );
        let lost = profile.account.counter(Counter::LostLogBytes);
        assert!(
            lost.is_some_and(|bytes| bytes > 1 << 20),
            "{settings}: {lost:?}"
        );
        // Each size has a class of its own, but for the first three, which the program asks for in
        // one function.
        let mut blocks: BTreeMap<u8, [u64; 2]> = BTreeMap::new();
        for row in &profile.rows {
            let sums = blocks.entry(row.class.0).or_default();
            sums[0] += row.totals.allocated.objects();
            sums[1] += row.totals.in_use.objects();
        }
        let [all, in_use] = blocks[&SizeClass::of(21001).0];
        assert_eq!(all, 1000 + 3_000_000 + 1000 + 10, "{settings}");
        assert_eq!(in_use, 1 + 1 + 1 + 10, "{settings}");
        assert!(ran.stderr.is_empty(), "{}", ran.stderr);
    }
}
