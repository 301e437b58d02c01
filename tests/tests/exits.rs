//! Every way a process can end: the status is the program's own, and the log holds the blocks from
//! before.

use std::collections::BTreeMap;
use std::time::Duration;

use heapprof_format::EndReason;
use heapprof_tests::{Finished, Run};

fn leave(way: &str) -> Finished {
    Run::fixture("exit_ways")
        .arg(way)
        .interval(1)
        .prefix("t")
        .run()
}

/// Asserts that the status is that of the same program alone, and that block 17001 is in the log.
#[track_caller]
fn assert_left(way: &str) -> Finished {
    let alone = Run::fixture("exit_ways").arg(way).without_library().run();
    let ran = leave(way);
    assert_eq!(ran.status, alone.status, "{way}: {}", ran.stderr);
    assert_eq!(ran.stderr, alone.stderr, "{way}");
    let same_but_pid = |text: &str| text.replace(char::is_numeric, "");
    assert_eq!(
        same_but_pid(&ran.stdout),
        same_but_pid(&alone.stdout),
        "{way}"
    );

    let log = ran.log().whole();
    for (size, pattern) in &ran.claims().stacks {
        let blocks = log.blocks_of(*size);
        assert_eq!(blocks.len(), 1, "{way}: blocks of {size} bytes");
        let stack = blocks[0].stack;
        assert!(
            pattern.matches(&log.named().stacks[stack]),
            "{way}: {}",
            log.named().shown(stack)
        );
        assert!(blocks[0].in_use);
    }
    // The library delays the end by at most 100 ms; the rest is the machine's.
    assert!(
        ran.elapsed < alone.elapsed + Duration::from_millis(1000),
        "{way}: {:?}",
        ran.elapsed
    );
    ran
}

/// Asserts an end in the log, and the last dump: for ways on which the library's code can still
/// run.
#[track_caller]
fn assert_finished(way: &str) {
    let ran = assert_left(way);
    let log = ran.log();
    assert_eq!(log.end(), Some(EndReason::Exit), "{way}");
    assert_eq!(ran.files(), ["t.0001.heap", "t.heaplog"], "{way}");
    let dump = ran.named("t.0001.heap");
    assert_eq!(dump.profile.numbers(), log.profile.numbers(), "{way}");
}

#[test]
fn by_return() {
    assert_finished("return");
}

#[test]
fn by_exit() {
    assert_finished("exit");
}

#[test]
fn by_underscore_exit() {
    assert_finished("_exit");
}

#[test]
fn by_the_bare_system_call() {
    assert_finished("exit_group");
}

#[test]
fn by_quick_exit() {
    assert_finished("quick_exit");
}

#[test]
fn with_the_last_thread() {
    // The main thread may have ended in any way before.
    for way in ["thread_exit", "thrd_exit", "cancel", "bare_exit"] {
        assert_finished(way);
    }
}

#[test]
fn by_sigkill() {
    let ran = assert_left("sigkill");
    assert_eq!(ran.log().end(), None);
    assert_eq!(ran.files(), ["t.heaplog"]);
}

/// The last blocks before the signal may be lost; blocks from more than 150 ms before may not. The
/// fixture does not wait, so this test waits for the log and kills from outside.
#[test]
fn by_signals_from_outside() {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGABRT, libc::SIGSEGV] {
        let running = Run::fixture("idle")
            .arg("30")
            .interval(1)
            .prefix("t")
            .start();
        let mut running = running;
        running.until("its output", |running| {
            running.stdout_so_far().contains("stack")
        });
        std::thread::sleep(Duration::from_millis(150));
        running.signal(signal);
        let ran = running.wait();
        assert_eq!(ran.code(), 128 + signal);
        assert_eq!(
            ran.log().whole().blocks_of(19001).len(),
            1,
            "signal {signal}"
        );
        assert_eq!(ran.files(), ["t.heaplog"]);
    }
}

/// A signal raised at once: the status is right, and the existing part of the log is readable.
#[test]
fn by_abort_and_sigterm_at_once() {
    for way in ["abort", "sigterm"] {
        let alone = Run::fixture("exit_ways").arg(way).without_library().run();
        let ran = leave(way);
        assert_eq!(ran.status, alone.status, "{way}");
        assert_eq!(ran.stderr, alone.stderr, "{way}");
        let log = ran.log();
        assert!(log.torn.is_none(), "{way}: {:?}", log.torn);
        assert_eq!(log.start().pid, ran.pid);
        assert_eq!(log.end(), None, "{way}");
        assert_eq!(ran.files(), ["t.heaplog"], "{way}");
    }
}

/// Killed at random moments under load: the log is readable up to its end, every time. (`ends.rs`
/// tests what it misses.)
#[test]
fn by_sigkill_under_load() {
    let mut seen = BTreeMap::new();
    for round in 0..6u64 {
        let mut running = Run::fixture("churn")
            .args(["4", "30s"])
            .interval(1024)
            .prefix("t")
            .start();
        let log_path = running.folder().join("t.heaplog");
        running.until("a log", |_| {
            log_path.metadata().is_ok_and(|m| m.len() > 10_000)
        });
        std::thread::sleep(Duration::from_millis(150 + 17 * round));
        running.signal(libc::SIGKILL);
        let ran = running.wait();
        let log = ran.log();
        // One append may have been under way.
        assert!(log.records.len() > 100, "{:?}", log.torn);
        assert_eq!(log.unknown_frees(), 0);
        assert_eq!(log.profile.account.missing_frames, 0);
        seen.insert(round, log.torn.map(|torn| torn.kind));
    }
    println!("{seen:?}");
}

/// One thread ends the program, and another one does, too, meanwhile: an exit handler that runs
/// before the library's tells it to.
const TWO_END_IT: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
enum { BLOCKS = 100000 };
static void *kept[BLOCKS];
static volatile int ending;
static void *ends_it_too(void *unused)
{
    while (!ending) {}
    _exit(6);
    return unused;
}
static void tells(void) { ending = 1; }
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, ends_it_too, NULL);
    for (int i = 0; i < BLOCKS; i++) kept[i] = malloc(16 + i % 512);
    atexit(tells);
    exit(6);
}
"#;

/// The second thread waits for the end that the first has begun.
#[test]
fn two_threads_that_end_the_program() {
    for _ in 0..5 {
        let ran = Run::compiled("two_end_it", TWO_END_IT, &["-pthread"])
            .interval(1)
            .prefix("t")
            .run();
        assert_eq!((ran.code(), &*ran.stderr), (6, ""));
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit));
        assert_eq!(ran.files_ending(".heap").len(), 1, "{:?}", ran.files());
    }
}

/// The writer starts with the first sample, which another thread takes while the program ends.
#[test]
fn a_program_that_ends_at_the_first_sample_of_another_thread() {
    for delay_us in (0..600).step_by(10) {
        let ran = Run::fixture("ends_at_first_sample")
            .arg(delay_us.to_string())
            .interval(512 << 10)
            .prefix("t")
            .run()
            .well();
        assert_eq!(ran.stderr, "", "{delay_us} us");
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit), "{delay_us} us");
    }
}

/// A timer of the program goes off while the program ends, and its handler ends the process.
const HANDLER_ENDS_IT: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
enum { BLOCKS = 200000 };
static void *volatile kept[BLOCKS];
static void ends_it(int signal) { _exit(signal == SIGALRM ? 6 : 5); }
int main(int argc, char **argv)
{
    struct itimerval soon = {{0, 0}, {0, argc > 1 ? atoi(argv[1]) : 1}};
    signal(SIGALRM, ends_it);
    for (int i = 0; i < BLOCKS; i++) kept[i] = malloc(16 + i % 512);
    setitimer(ITIMER_REAL, &soon, NULL);
    exit(6);
}
"#;

/// The handler cannot wait for the thread that it interrupts. The log says that it is cut, or has
/// its end.
#[test]
fn a_handler_that_ends_the_process_during_its_end() {
    for delay_us in (1..1500).step_by(50) {
        let ran = Run::compiled("handler_ends_it", HANDLER_ENDS_IT, &[])
            .arg(delay_us.to_string())
            .interval(1)
            .prefix("t")
            .run();
        assert_eq!(ran.code(), 6, "{delay_us} us: {}", ran.stderr);
        let end = ran.log().end();
        let has_end = matches!(end, Some(EndReason::Exit | EndReason::Cut));
        assert!(has_end, "{delay_us} us: {end:?}");
    }
}
