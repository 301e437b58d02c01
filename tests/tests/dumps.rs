//! Dumps, on gperftools' occasions and under its names: `<prefix>.0001.heap`, `<prefix>.0002.heap`,
//! …
//!
//! gperftools' conditions (src/heap-profiler.cc, `MaybeDumpProfileLocked`), checked after each
//! allocation or free:
//! - allocated bytes have grown by ALLOCATION_INTERVAL since the last dump (`>=`), or
//! - freed bytes by DEALLOCATION_INTERVAL (`>=`), or
//! - in-use bytes exceed the highest in-use of all dumps by more than INUSE_INTERVAL (`>`), or
//! - TIME_INTERVAL seconds have passed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use heapprof_format::{Dump, Record};
use heapprof_symbolizer::{Moment, ReadRequest, View, profile_of_view};
use heapprof_tests::{Account, Finished, Log, Run};

/// Takes steps: `+n` allocates a block of n bytes, `-` frees the oldest one.
const STEPS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    void *blocks[64];
    int made = 0, freed = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '+')
            blocks[made++] = malloc(strtoul(argv[i] + 1, NULL, 10));
        else
            free(blocks[freed++]);
    }
    return 0;
}
"#;

const KIB: u64 = 1024;

/// Runs the steps, with one occasion for dumps besides the end.
fn steps(occasion: &str, value: u64, steps: &[&str]) -> Finished {
    let mut run = Run::compiled("steps", STEPS, &[]).args(steps).interval(1);
    for other in ["ALLOCATION", "DEALLOCATION", "INUSE", "TIME"] {
        run = run.env(&format!("HEAP_PROFILE_{other}_INTERVAL"), "0");
    }
    run.env(
        &format!("HEAP_PROFILE_{occasion}_INTERVAL"),
        value.to_string(),
    )
    .prefix("t")
    .run()
    .well()
}

fn parse(path: &Path) -> Dump {
    let bytes = fs::read(path).unwrap();
    Dump::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks that every dump of the folder is whole, is numbered without a gap, and has its mappings.
/// Returns their totals.
#[track_caller]
fn totals(ran: &Finished) -> Vec<Account> {
    let names = ran.files_ending(".heap");
    let numbered: Vec<_> = (1..=names.len())
        .map(|n| format!("t.{n:04}.heap"))
        .collect();
    assert_eq!(names, numbered);
    let unfinished: Vec<_> = ran
        .files()
        .into_iter()
        .filter(|name| name.contains("unfinished"))
        .collect();
    assert_eq!(unfinished, [""; 0]);
    let total = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("heap profile: "), "{text:.80}");
        assert!(text.contains("\nMAPPED_LIBRARIES:\n"));
        let dump = parse(path);
        assert!(dump.mappings.iter().any(|mapping| {
            ["libc.so", "/libc-"]
                .iter()
                .any(|name| mapping.path.contains(name))
        }));
        let mut total = Account::default();
        for line in &dump.lines {
            total += Account {
                allocated_objects: line.allocated_objects,
                allocated_bytes: line.allocated_bytes,
                in_use_objects: line.in_use_objects,
                in_use_bytes: line.in_use_bytes,
            };
        }
        // The header states the sums. Allocated bytes are one more if they equal those in use,
        // which google-pprof would take for another kind of profile.
        let header = text.lines().next().unwrap();
        let numbers: Vec<u64> = header
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        let equal = u64::from(total.in_use_bytes == total.allocated_bytes);
        let stated = [
            total.in_use_objects,
            total.in_use_bytes,
            total.allocated_objects,
            total.allocated_bytes + equal,
        ];
        assert_eq!(numbers, stated, "{header}");
        total
    };
    ran.dumps().iter().map(|path| total(path)).collect()
}

/// Returns the program's own blocks, which are large, in whole KiB.
fn in_use_kib(ran: &Finished) -> Vec<u64> {
    totals(ran)
        .iter()
        .map(|total| total.in_use_bytes / KIB)
        .collect()
}

#[test]
fn allocation_interval_counts_allocated_bytes_from_the_last_dump() {
    // 400 K each: the third reaches 1 M, the sixth 2 M (from the dump at 1200 K: 2400 K), then the
    // end.
    let all = [
        "+409600", "+409600", "+409600", "-", "+409600", "+409600", "+409600", "+409600",
    ];
    let ran = steps("ALLOCATION", 1 << 20, &all);
    let totals = totals(&ran);
    let allocated: Vec<u64> = totals
        .iter()
        .map(|total| total.allocated_bytes / KIB)
        .collect();
    assert_eq!(allocated, [1200, 2400, 2800]);
    assert_eq!(in_use_kib(&ran), [1200, 2000, 2400]);
}

#[test]
fn deallocation_interval_counts_freed_bytes_from_the_last_dump() {
    let all = [
        "+409600", "+409600", "+409600", "+409600", "-", "-", "-", "-", "+409600",
    ];
    let ran = steps("DEALLOCATION", 700 * KIB, &all);
    assert_eq!(in_use_kib(&ran), [800, 0, 400]);
}

#[test]
fn in_use_interval_counts_from_the_high_water_mark() {
    // 1000 up (a dump: more than 900 above 0), all freed, 1000 up again (no dump: the mark is
    // 1000), then up to 2000 (a dump), freed, and the end.
    let all = [
        "+512000", "+512000", "-", "-", "+512000", "+512000", "+512000", "+512000", "-", "-",
    ];
    let ran = steps("INUSE", 900 * KIB, &all);
    assert_eq!(in_use_kib(&ran), [1000, 2000, 1000]);
}

#[test]
fn in_use_interval_must_be_exceeded() {
    let probe = steps("INUSE", 0, &["+1024000"]);
    let whole = totals(&probe)[0].in_use_bytes;
    assert_eq!(
        totals(&steps("INUSE", whole, &["+1024000"])).len(),
        1,
        "reached, not exceeded"
    );
    assert_eq!(
        totals(&steps("INUSE", whole - 1, &["+1024000"])).len(),
        2,
        "exceeded by one"
    );
}

#[test]
fn no_occasion_no_dump_but_the_last() {
    let ran = steps("TIME", 0, &["+1024000", "-", "+1024000", "-"]);
    assert_eq!(in_use_kib(&ran), [0]);
    assert_eq!(totals(&ran)[0].allocated_bytes / KIB, 2000);
}

#[test]
fn each_dump_says_why_and_the_log_knows_of_it() {
    let ran = steps("ALLOCATION", 1 << 20, &["+1048576", "+1048576"]);
    let reasons: Vec<String> = ran
        .dumps()
        .iter()
        .map(|path| {
            let comments = parse(path).comments;
            let reason = comments
                .iter()
                .find_map(|comment| comment.strip_prefix("reason: "));
            reason.expect("a reason").to_owned()
        })
        .collect();
    assert_eq!(reasons.len(), 3);
    assert!(
        reasons[0].contains("1 MB allocated cumulatively"),
        "{reasons:?}"
    );
    assert!(reasons[2].contains("Exiting"), "{reasons:?}");
    let log = ran.log().whole();
    let markers = log
        .records
        .iter()
        .filter(|record| matches!(record, Record::Marker { .. }));
    assert_eq!(markers.count(), 3);
}

#[test]
fn an_idle_process_dumps_every_interval_of_time() {
    let ran = Run::fixture("idle")
        .arg("3.5")
        .interval(1)
        .env("HEAP_PROFILE_TIME_INTERVAL", "1")
        .prefix("t")
        .run()
        .well();
    let totals = totals(&ran);
    // At 1, 2 and 3 seconds and at the end; a busy machine may skip one.
    assert!((3..=4).contains(&totals.len()), "{totals:?}");
    assert!(totals.iter().all(|total| total.in_use_bytes >= 19001));
}

#[test]
fn a_timed_dump_comes_while_the_process_sleeps() {
    let mut running = Run::fixture("idle")
        .arg("30")
        .interval(1)
        .env("HEAP_PROFILE_TIME_INTERVAL", "1")
        .prefix("t")
        .start();
    running.until("a dump", |running| {
        running.folder().join("t.0001.heap").exists()
    });
    assert!(
        !parse(&running.folder().join("t.0001.heap"))
            .lines
            .is_empty()
    );
}

/// Sleeps on, however often a signal interrupts it: nanosleep is not restarted after a handler.
const WAITS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *kept;
int main(void)
{
    kept = malloc(19001);
    puts("waits");
    fflush(stdout);
    for (;;)
        pause();
}
"#;

#[test]
fn a_signal_asks_for_a_dump_each_time() {
    // With timed dumps, and without.
    for (setting, signal, seconds) in [
        ("SIGUSR2", libc::SIGUSR2, "0"),
        ("usr1", libc::SIGUSR1, "0"),
        ("12", 12, "3600"),
    ] {
        let mut running = Run::compiled("waits", WAITS, &[])
            .interval(1)
            .env("HEAPPROFILESIGNAL", setting)
            .env("HEAP_PROFILE_TIME_INTERVAL", seconds)
            .prefix("t")
            .start();
        running.until("its output", |running| {
            running.stdout_so_far().contains("waits")
        });
        for number in 1..=3 {
            running.signal(signal);
            let name = format!("t.{number:04}.heap");
            running.until(&name, |running| running.folder().join(&name).exists());
        }
        running.signal(libc::SIGKILL);
        let ran = running.wait();
        assert_eq!(ran.stderr, "");
        let totals = totals(&ran);
        assert_eq!(totals.len(), 3);
        assert!(totals.iter().all(|total| total.in_use_bytes >= 19001));
    }
}

/// Requests a dump right after each of three bursts, each longer than the writer takes at a time,
/// and waits for the dump.
const ASKS_AFTER_BURSTS: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *kept[3][5000];
int main(int argc, char **argv)
{
    for (int burst = 0; burst < 3; burst++) {
        usleep(30000);
        for (int i = 0; i < 5000; i++)
            kept[burst][i] = malloc(1000);
        raise(SIGUSR2);
        char name[1000];
        snprintf(name, sizeof name, "%s.%04d.heap", argv[1], burst + 1);
        for (int i = 0; i < 30000 && access(name, F_OK) != 0; i++)
            usleep(1000);
    }
    return 0;
}
"#;

#[test]
fn a_dump_on_a_signal_has_all_that_was_allocated_before_it() {
    let run = Run::compiled("asks_after_bursts", ASKS_AFTER_BURSTS, &[])
        .interval(1)
        .env("HEAPPROFILESIGNAL", "SIGUSR2")
        .prefix("t");
    let prefix = run.folder().join("t");
    let ran = run.arg(&prefix).run().well();
    let totals = totals(&ran);
    assert_eq!(totals.len(), 4, "three and the last");
    for (burst, total) in (1..=3).zip(&totals) {
        assert!(total.in_use_objects >= burst * 5000, "{burst}: {total:?}");
    }
}

/// A signal in use stays its owner's: here the parent has set it to be ignored, as nohup does.
#[test]
fn a_signal_in_use_is_refused_with_a_line() {
    let mut running = Run::fixture("idle")
        .arg("0.5")
        .interval(1)
        .env("HEAPPROFILESIGNAL", "SIGHUP")
        .ignoring(libc::SIGHUP)
        .prefix("t")
        .start();
    running.until("its output", |running| {
        running.stdout_so_far().contains("stack")
    });
    running.signal(libc::SIGHUP);
    let ran = running.wait().well();
    assert_eq!(ran.stderr, "");
    ran.assert_noted(&["HEAPPROFILESIGNAL"]);
    assert_eq!(totals(&ran).len(), 1, "the last one only");
}

/// A dump is of the very event that called for it. A log replays the account of a dump's moment:
/// the sum of the blocks up to the marker.
#[test]
fn a_dump_is_the_state_at_its_marker_in_the_log() {
    let all = [
        "+300000", "+300000", "-", "+300000", "+300000", "-", "+300000", "+300000",
    ];
    let ran = steps("ALLOCATION", 500_000, &all);
    let totals = totals(&ran);
    let log: Log = ran.log().whole();
    let (mut live, mut at_markers) = (std::collections::BTreeMap::new(), Vec::new());
    let mut names = Vec::new();
    let mut account = Account::default();
    for record in &log.records {
        match record {
            Record::Alloc(alloc) => {
                live.insert(alloc.id, alloc.size);
                account.allocated_objects += 1;
                account.allocated_bytes += alloc.size;
            }
            Record::Free(free) => {
                live.remove(&free.id);
            }
            Record::Marker { name, .. } => {
                names.push(name.clone());
                at_markers.push(Account {
                    in_use_objects: live.len() as u64,
                    in_use_bytes: live.values().sum(),
                    ..account
                });
            }
            _ => {}
        }
    }
    assert_eq!(totals, at_markers);
    assert_eq!(totals.len(), 4);
    // The marker's name also gives that state, though the marker's time is later than that of some
    // events after it.
    let bytes = fs::read(ran.log_path()).unwrap();
    for (name, expected) in names.iter().zip(totals) {
        if names.iter().filter(|other| *other == name).count() > 1 {
            continue; // the first of them is meant
        }
        let request = ReadRequest {
            view: View::At(Moment::Marker(name.clone())),
            ..ReadRequest::default()
        };
        let numbers = profile_of_view(&bytes, &request, |_| ()).unwrap().numbers();
        let shown = Account {
            in_use_objects: numbers.in_use_objects,
            in_use_bytes: numbers.in_use_bytes,
            allocated_objects: numbers.allocated_objects,
            allocated_bytes: numbers.allocated_bytes,
        };
        assert_eq!(shown, expected, "{name}");
    }
}

/// Under load, with frequent dumps: each is whole as soon as it is visible.
#[test]
fn a_dump_is_whole_as_soon_as_it_can_be_seen() {
    let mut running = Run::fixture("churn")
        .args(["2", "3s"])
        .interval(65536)
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "50M")
        .prefix("t")
        .limit(Duration::from_secs(60))
        .start();
    running.until("a first dump", |running| {
        running.folder().join("t.0001.heap").exists()
    });
    let mut seen = 0;
    for number in 1..=40 {
        let path = running.folder().join(format!("t.{number:04}.heap"));
        for _ in 0..100 {
            if path.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if path.exists() {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("\nMAPPED_LIBRARIES:\n") && text.ends_with('\n'));
            parse(&path);
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen} dumps");
    let ran = running.wait().well();
    let _ = totals(&ran);
}
