//! Signals: those meant for the program reach the program, and its handlers stay its own.

use std::time::Duration;

use heapprof_tests::{Log, Run};

#[test]
fn signals_to_process() {
    for interval in [1, 4096] {
        let ran = Run::fixture("signals_to_process")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        let claims = ran.claims();
        assert_eq!(claims.ok, ["blocked", "handled", "dispositions"]);
        assert_eq!(ran.stderr, "");
        assert!(ran.log().whole().end().is_some());
    }
}

/// Installs a handler for SIGUSR2 as soon as there is a file named `go`, gets the signal, and says so.
const TAKES_THE_SIGNAL: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int got;
void *kept[2];
static void handler(int signal) { (void)signal; got++; }
int main(void)
{
    kept[0] = malloc(20001);
    puts("ready");
    fflush(stdout);
    while (access("go", F_OK) != 0) usleep(5000);
    signal(SIGUSR2, handler);
    raise(SIGUSR2);
    for (int i = 0; i < 60; i++) {
        kept[1] = malloc(20002);
        usleep(5000);
    }
    printf("got %d\n", got);
    return 7;
}
"#;

/// The dump signal is ours as long as the program has no use for it, and then the program's, with a line.
#[test]
fn a_dump_signal_that_the_program_takes_later_is_given_up_with_a_line() {
    let mut running = Run::compiled("takes", TAKES_THE_SIGNAL, &[])
        .interval(1)
        .prefix("t")
        .env("HEAPPROFILESIGNAL", "SIGUSR2")
        .start();
    let folder = running.folder().to_owned();
    // Its log is there before the handler is.
    running.until("its main", |running| running.stdout_so_far() == "ready\n");
    running.signal(libc::SIGUSR2);
    running.until("a dump", |_| folder.join("t.0001.heap").exists());
    std::fs::write(folder.join("go"), "").unwrap();
    let ran = running.wait();
    assert_eq!((ran.code(), ran.stdout.as_str()), (7, "ready\ngot 1\n"));
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("HEAPPROFILESIGNAL") && ran.stderr.contains("uses that signal"),
        "{}",
        ran.stderr
    );
    // One for the signal that was ours, one at the end.
    assert_eq!(ran.files_ending(".heap"), ["t.0001.heap", "t.0002.heap"]);
}

/// A signal that is ignored from the start, as nohup does with SIGHUP, is in use.
#[test]
fn a_dump_signal_that_is_in_use_is_refused_with_a_line() {
    let mut running = Run::fixture("idle")
        .arg("30")
        .interval(1)
        .prefix("t")
        .ignoring(libc::SIGHUP)
        .env("HEAPPROFILESIGNAL", "HUP")
        .limit(Duration::from_secs(40))
        .start();
    running.until("its output", |running| {
        running.stdout_so_far().contains("stack")
    });
    running.signal(libc::SIGHUP);
    running.signal(libc::SIGTERM);
    let ran = running.wait();
    assert_eq!(ran.code(), 128 + libc::SIGTERM, "SIGHUP is still ignored");
    assert_eq!(ran.said().len(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("HEAPPROFILESIGNAL"), "{}", ran.stderr);
    assert_eq!(ran.files_ending(".heap"), [""; 0]);
}

/// Handles SIGUSR2 before any constructor runs, and gets it.
const HANDLES_FROM_THE_START: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static volatile int got;
void *kept;
static void handler(int signal) { (void)signal; got++; }
static void installs(void) { signal(SIGUSR2, handler); }
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = installs;
int main(void)
{
    kept = malloc(20001);
    raise(SIGUSR2);
    printf("got %d\n", got);
    return 7;
}
"#;

/// A handler that was there before us stays.
#[test]
fn a_dump_signal_that_is_handled_from_the_start_is_refused_with_a_line() {
    let ran = Run::compiled("handles", HANDLES_FROM_THE_START, &[])
        .interval(1)
        .prefix("t")
        .env("HEAPPROFILESIGNAL", "SIGUSR2")
        .run();
    assert_eq!((ran.code(), ran.stdout.as_str()), (7, "got 1\n"));
    assert_eq!(ran.said().len(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("uses that signal"), "{}", ran.stderr);
    assert_eq!(
        ran.files_ending(".heap"),
        ["t.0001.heap"],
        "the last one only"
    );
}

/// A line of ours is not worth a SIGPIPE, nor a wait for whoever does not read.
#[test]
fn nobody_reads_our_lines() {
    // python3 resets SIGPIPE to its default only for what it starts with `restore_signals`.
    let script = r#"
import os, subprocess, sys, fcntl
full, broken = os.pipe(), os.pipe()
os.close(broken[0])
fcntl.fcntl(full[1], fcntl.F_SETFL, os.O_NONBLOCK)
try:
    while True: os.write(full[1], b'x' * 4096)
except BlockingIOError: pass
fcntl.fcntl(full[1], fcntl.F_SETFL, 0)
env = dict(os.environ, LD_PRELOAD=sys.argv[1], HEAPPROFILE='/nonexistent/x')
for pipe in full, broken:
    print(subprocess.run([sys.argv[2], 'exit'], stderr=pipe[1], stdout=subprocess.DEVNULL, env=env,
                         timeout=20).returncode)
"#;
    let build = heapprof_tests::Build::get();
    let ran = Run::tool("python3")
        .args(["-c", script])
        .arg(&build.library)
        .arg(build.fixture("exit_ways"))
        .run()
        .well();
    assert_eq!(ran.stdout, "3\n3\n");
    assert_eq!(ran.files_ending(".heaplog").len(), 2, "{:?}", ran.files());
}

/// A forked child, one of whose threads is interrupted while the child's session begins, as soon as its log is there (`<prefix>_<pid>.heaplog`),
/// and stays in the handler while another thread goes on allocating. Each block of 1 GiB is sampled, hardly anything else is.
const INTERRUPTED_AT_ITS_BEGINNING: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { GIB = 1 << 30, TIMES = 10 };
static char log_path[4096];
static volatile int is_caught, may_go, has_begun;
void *kept[3];
static void handler(int signal)
{
    (void)signal;
    if (!has_begun && !is_caught && access(log_path, F_OK) == 0) {
        is_caught = 1;
        while (!may_go) usleep(1000);
    }
}
static void *begins(void *unused)
{
    kept[0] = malloc(GIB + 1);
    has_begun = 1;
    return unused;
}
static double allocates(int times)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < times; i++) {
        void *volatile block = malloc(GIB + 2);
        free(block);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * 1e3 + (end.tv_nsec - begin.tv_nsec) / 1e6;
}
int main(int argc, char **argv)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        snprintf(log_path, sizeof log_path, "%s_%d.heaplog", argc > 1 ? argv[1] : "none", (int)getpid());
        sigaction(SIGUSR1, &action, NULL);
        pthread_create(&thread, NULL, begins, NULL);
        while (!is_caught && !has_begun) pthread_kill(thread, SIGUSR1);
        if (is_caught) {
            double first = allocates(1);
            double then = allocates(TIMES);
            printf("caught %d first %.0f then %.0f\n", (int)getpid(), first, then);
            fflush(stdout);
        }
        may_go = 1;
        pthread_join(thread, NULL);
        kept[1] = malloc(GIB + 3);
        exit(3);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
"#;

/// Whoever waits for a session that another thread begins waits once, and what is not recorded meanwhile is counted.
#[test]
fn a_thread_that_is_interrupted_while_it_begins_a_session_does_not_hold_up_the_others() {
    for _ in 0..200 {
        let run = Run::compiled("interrupted", INTERRUPTED_AT_ITS_BEGINNING, &["-pthread"]);
        let ran = run.arg("t").interval(64 << 20).prefix("t").run();
        assert_eq!((ran.code(), ran.stderr.as_str()), (3, ""));
        let words: Vec<&str> = ran.stdout.split_whitespace().collect();
        let ["caught", pid, "first", first, "then", then] = words[..] else {
            continue; // the handler ran before or after the moment
        };
        let [first, then]: [u32; 2] = [first, then].map(|ms| ms.parse().expect("a number"));
        assert!(first >= 50, "{first} ms: nobody waited");
        assert!(then < 500, "ten times {then} ms after {first} ms");
        let log = Log::read(&ran.folder().join(format!("t_{pid}.heaplog"))).whole();
        let blocks = |more: u64| log.blocks_of((1 << 30) + more).len();
        assert_eq!([blocks(1), blocks(2), blocks(3)], [1, 0, 1]);
        println!("{:?}", log.losses());
        return;
    }
    panic!("no session was ever interrupted while it began");
}
