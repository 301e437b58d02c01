//! The very end: the last moments in the log, and the cost of the end.
//!
//! Both are measured over up to nine runs, of which three have to be good. The machine may be busy
//! with other work, and a profiler that is late by design is late every time.

use std::fs;
use std::time::Instant;

use heapprof_format::{Counter, EndReason};
use heapprof_tests::{Finished, Log, Run, best, ended_after, exits, last, last_tick, tick_of};

/// Returns the milliseconds before the end that are missing in the log.
fn missing_ms(ran: &Finished) -> u64 {
    // After an exec there is another program's log.
    let log = Log::read(&ran.folder().join("t.heaplog"));
    last(ran, "tick ") - last_tick(&log, 500_000)
}

/// Returns the missing milliseconds of `exits`, whose blocks are smaller.
fn missing_ms_of_exits(ran: &Finished) -> u64 {
    last(ran, "tick ") - last_tick(&ran.log(), 5_000)
}

fn ended(way: &str, interval: u64) -> Finished {
    Run::fixture("late_end")
        .arg(way)
        .default_exit_wait()
        .interval(interval)
        .prefix("t")
        .run()
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

/// From the program's last action to the moment its parent knows of its end, with the library less
/// without it.
#[test]
fn the_end_is_delayed_by_less_than_100_ms() {
    let end_ms = |run: Run| ended_after(&run.run());
    for interval in [1, 65536] {
        for way in ["return", "exit", "_exit", "quick_exit"] {
            let started = Instant::now();
            let delay = best(100, || {
                let fixture = || Run::fixture("late_end").arg(way).default_exit_wait();
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

/// Without samples there is nothing to wait for.
#[test]
fn a_program_without_samples_ends_at_once() {
    for way in ["exit", "_exit"] {
        let delay = best(20, || {
            let run = exits(10, 10, 0).arg(way).interval(1 << 40);
            ended_after(&run.run().well())
        });
        assert!(delay <= 20, "{way}: {delay} ms");
    }
}

/// Threads that allocate without pause share two processors with the writer, which has to write a
/// dump; if everything is recorded, one of 8 MB. There are sixteen threads, or as many as leave the
/// writer some milliseconds of the tenth of a second if they do not wait.
#[test]
fn threads_that_go_on_allocating_do_not_delay_the_end() {
    for (interval, threads) in [(1, 16), (65536, 64)] {
        let delay = best(100, || {
            let alone = ended_after(&exits(20_000, 20_000, threads).without_library().run());
            let ran = exits(20_000, 20_000, threads).interval(interval).run();
            let delay = ended_after(&ran).saturating_sub(alone);
            assert_eq!(ran.code(), 0);
            let log = ran.log();
            let missing = match interval {
                1 => last(&ran, "tick ") - last_tick(&log, 5_000),
                _ => 0, // none of these small blocks need be sampled
            };
            // Torn: on a busier machine the process may end in the middle of a write.
            let has_ended = ran.stderr.is_empty()
                && log.torn.is_none()
                && log.end() == Some(EndReason::Exit)
                && ran.files_ending(".heap") == ["t.0001.heap"]
                && ran.files_ending(".unfinished").is_empty();
            // All conditions hold in one run.
            if has_ended {
                delay.max(missing)
            } else {
                u64::MAX
            }
        });
        assert!(delay <= 100, "at {interval}: {delay} ms");
    }
}

/// With a log that has a bound. It rotates while it is emptied, which takes time. If threads went
/// on until their lanes were full, half of such logs would have no end.
#[test]
fn a_log_with_a_bound_has_its_end_beside_threads_that_go_on_allocating() {
    let is_cut_off = || {
        let run = exits(1000, 10, 64).env("HEAPPROF_MAX_LOG", "4M");
        let ran = run.interval(1).run().well();
        let segments = ran.files_ending(".heaplog").into_iter();
        let info = Run::heapprof()
            .arg("info")
            .args(segments.map(|name| ran.folder().join(name)));
        !info.run().well().stdout.contains("the process ended")
    };
    // On a busier machine one may be torn, or in a bad moment all of a round.
    let mut rounds = (0..3).map(|_| (0..12).filter(|_| is_cut_off()).count());
    let cut_off = rounds.find(|&cut_off| cut_off <= 2);
    assert!(
        cut_off.is_some(),
        "of 12 logs more than 2 have no end, three times"
    );
}

/// The end comes in the middle of a checkpoint of half a million blocks, whose beginning shows in
/// the folder.
#[test]
fn a_checkpoint_does_not_keep_the_end_waiting() {
    let mut in_the_midst = 0;
    let delay = best(100, || {
        let run = exits(500_000, 10, 2)
            .arg("exit")
            .env("HEAPPROF_MAX_LOG", "64K");
        let word = run.folder().join("word");
        let next = run.folder().join("t.0001.heaplog");
        let mut running = run.arg(&word).interval(1).start();
        running.until("a checkpoint", |_| next.exists());
        fs::write(&word, "").expect("a folder of ours");
        let ran = running.wait().well();
        let after = ended_after(&ran);
        in_the_midst += u32::from(!next.exists());
        // The end is the last record: nothing is missing before it.
        let info = Run::heapprof()
            .arg("info")
            .arg(ran.folder().join("t.heaplog"));
        let is_whole = info.run().well().stdout.contains("the process ended");
        if is_whole && ran.files_ending(".heap").len() == 1 {
            after
        } else {
            u64::MAX
        }
    });
    assert!(delay <= 100, "{delay} ms");
    println!("{in_the_midst} of them left off the checkpoint");
}

/// 50,000 stacks are a dump of 20 MB. For any time limit, the dump is whole, or there is no part of
/// it and a line that names the log. The log has everything in either case.
#[test]
fn a_last_dump_that_takes_too_long_is_left_out_with_a_line() {
    let mut seen = Vec::new();
    for (patience_ms, is_there) in [
        (15, Some(false)),
        (20, None),
        (60, None),
        (30_000, Some(true)),
    ] {
        // A machine that gives the writer no processor for that long leaves no line.
        let (log, ran) = (0..10)
            .map(|_| {
                exits(50_000, 50_000, 0)
                    .interval(1)
                    .env("HEAPPROF_EXIT_WAIT_MS", patience_ms.to_string())
                    .run()
                    .well()
            })
            .map(|ran| (ran.log().whole(), ran))
            .find(|(log, ran)| {
                let has_dump = !ran.files_ending(".heap").is_empty();
                let is_told = has_dump || !ran.notes().is_empty();
                log.end().is_some() && is_told && ran.files_ending(".unfinished").is_empty()
            })
            .expect("an end that is in order");
        assert_eq!(log.end(), Some(EndReason::Exit));
        assert_eq!(last_tick(&log, 5_000), last(&ran, "tick "));
        let counters = &log.profile.account.counters;
        let lost = counters
            .iter()
            .any(|&(name, n)| name == Counter::LostDumps && n == 1);
        match &ran.files()[..] {
            [dump, log_name] => {
                assert_eq!([&**dump, &**log_name], ["t.0001.heap", "t.heaplog"]);
                assert_eq!(ran.stderr, "");
                assert!(!lost);
                let dump = ran.named(dump);
                assert_eq!(dump.profile.numbers(), log.profile.numbers());
            }
            files => {
                assert_eq!(files, ["t.heaplog"]);
                assert_eq!(ran.stderr, "");
                let said = ran.notes();
                let path = ran.log_path();
                assert!(
                    said.len() == 1
                        && said[0].contains("the last dump is skipped")
                        && said[0].contains(&format!("more than {patience_ms} ms"))
                        && said[0].contains(&format!("gperftools {}", path.display())),
                    "{said:?}"
                );
                assert!(lost);
            }
        }
        let was_there = ran.files().len() == 2;
        assert_eq!(is_there.unwrap_or(was_there), was_there, "{patience_ms} ms");
        seen.push((patience_ms, was_there));
    }
    println!("{seen:?}");
}

/// A large dump in the middle of the run: if the program is killed while it is written, the log has
/// everything but the last 100 ms.
#[test]
fn a_dump_does_not_keep_the_log_waiting() {
    let missing = best(100, || {
        let run = exits(400_000, 400_000, 0).arg("kill");
        let word = run.folder().join("word");
        let folder = run.folder().to_owned();
        let run = run.arg(&word).interval(1);
        let mut running = run.env("HEAPPROFILESIGNAL", "SIGUSR2").start();
        running.until("its first tick", |running| tick_of(running).is_some());
        running.signal(libc::SIGUSR2);
        // It has its own name when it is whole, and before that an ending.
        let begun = |file: fs::DirEntry| file.file_name().to_string_lossy().contains(".0001.heap");
        running.until("a dump", |_| {
            let mut files = fs::read_dir(&folder).expect("a folder of ours").flatten();
            files.any(begun)
        });
        // A writer that only wrote the dump until it was done would be as far behind now.
        let begun_at = tick_of(&running);
        running.until("what must not be missing", |running| {
            tick_of(running) > begun_at.map(|tick| tick + 120)
        });
        fs::write(&word, "").expect("a folder of ours");
        let ran = running.wait();
        assert_eq!(ran.code(), 128 + libc::SIGKILL);
        missing_ms_of_exits(&ran)
    });
    assert!(missing <= 100, "{missing} ms");
}

/// A process with many blocks in use, and children that live for a moment: each allocates one block
/// and leaves.
const SHORT_CHILD: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int argc, char **argv)
{
    for (int i = argc > 1 ? atoi(argv[1]) : 0; i > 0; i--)
        malloc(16);
    int pipes[2];
    if (pipe(pipes) != 0)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        malloc(40001);
        long leaving = now_ns();
        if (write(pipes[1], &leaving, sizeof leaving) != sizeof leaving)
            _exit(2);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    long after = now_ns(), leaving;
    if (read(pipes[0], &leaving, sizeof leaving) != sizeof leaving)
        return 2;
    printf("child %d\ntook %ld\n", (int)child, (after - leaving) / 1000000);
    return status;
}
"#;

/// A child inherits more than it has time to read. Its log is whole, and it ends as soon as others.
#[test]
fn a_child_that_inherits_much_and_lives_for_a_moment_has_its_log() {
    let delay = best(100, || {
        let run = Run::compiled("short_child", SHORT_CHILD, &[])
            .default_exit_wait()
            .arg("2000000")
            .interval(1)
            .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
            .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
            .prefix("t");
        let ran = run.run().well();
        let log = Log::read(
            &ran.folder()
                .join(format!("t_{}.heaplog", last(&ran, "child "))),
        );
        assert!(log.torn.is_none(), "{:?}", log.torn);
        let is_whole = log.end() == Some(EndReason::Exit) && log.blocks_of(40_001).len() == 1;
        if is_whole {
            last(&ran, "took ")
        } else {
            u64::MAX
        }
    });
    assert!(delay <= 100, "{delay} ms");
}

/// Frees and allocates in a destructor that runs after every other's; the C library's own cleanup
/// is no later.
const GOES_ON_AFTER_THE_END: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void *kept[1000];
static void runs_last(void)
{
    for (int i = 0; i < 1000; i++) {
        if (i % 2 == 0) free(kept[i]);
        else memset(kept[i] = realloc(kept[i], 5000), 1, 5000);
    }
    void *more = calloc(20003, 1);
    memset(more, 1, 20003);
    puts("last");
}
__attribute__((section(".fini_array.00001"), used)) static void (*destructor)(void) = runs_last;
int main(void)
{
    for (int i = 0; i < 1000; i++) kept[i] = malloc(20001);
    return 5;
}
"#;

/// Nothing of the library is torn down: allocations and frees after its end pass through.
#[test]
fn others_free_after_our_end() {
    let run = Run::compiled("goes_on", GOES_ON_AFTER_THE_END, &[]);
    let ran = run.interval(1).prefix("t").default_exit_wait().run();
    assert_eq!((ran.code(), &*ran.stderr, &*ran.stdout), (5, "", "last\n"));
    let log = ran.log().whole();
    assert_eq!(log.end(), Some(EndReason::Exit));
    assert_eq!(log.blocks_of(20001).len(), 1000);
}
