//! Signals: those for the program reach the program, and its handlers stay its own.

use std::time::Duration;

use heapprof_format::Counter;
use heapprof_tests::{Run, notes, ranges_of};

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

/// Installs a handler for SIGUSR2 as soon as there is a file named `go`, gets the signal, and says
/// so.
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

/// The library has the dump signal until the program uses it; then it is the program's, with a
/// line.
#[test]
fn a_dump_signal_that_the_program_takes_later_is_given_up_with_a_line() {
    let mut running = Run::compiled("takes", TAKES_THE_SIGNAL, &[])
        .interval(1)
        .prefix("t")
        .env("HEAPPROFILESIGNAL", "SIGUSR2")
        .start();
    let folder = running.folder().to_owned();
    // Its log exists before the handler does.
    running.until("its main", |running| running.stdout_so_far() == "ready\n");
    running.signal(libc::SIGUSR2);
    running.until("a dump", |_| folder.join("t.0001.heap").exists());
    std::fs::write(folder.join("go"), "").unwrap();
    let ran = running.wait();
    assert_eq!((ran.code(), ran.stdout.as_str()), (7, "ready\ngot 1\n"));
    assert_eq!(ran.stderr, "");
    ran.assert_noted(&["HEAPPROFILESIGNAL", "uses that signal"]);
    // One for the library's signal, one at the end.
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
    let log = running.folder().join("t.heaplog");
    running.until("its output and the notice", |running| {
        running.stdout_so_far().contains("stack") && !notes(&log).is_empty()
    });
    running.signal(libc::SIGHUP);
    running.signal(libc::SIGTERM);
    let ran = running.wait();
    assert_eq!(ran.code(), 128 + libc::SIGTERM, "SIGHUP is still ignored");
    assert_eq!(ran.stderr, "");
    ran.assert_noted(&["HEAPPROFILESIGNAL", "uses that signal"]);
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

/// A handler from before the library stays.
#[test]
fn a_dump_signal_that_is_handled_from_the_start_is_refused_with_a_line() {
    let ran = Run::compiled("handles", HANDLES_FROM_THE_START, &[])
        .interval(1)
        .prefix("t")
        .env("HEAPPROFILESIGNAL", "SIGUSR2")
        .run();
    assert_eq!((ran.code(), ran.stdout.as_str()), (7, "got 1\n"));
    assert_eq!(ran.stderr, "");
    ran.assert_noted(&["uses that signal"]);
    assert_eq!(
        ran.files_ending(".heap"),
        ["t.0001.heap"],
        "the last one only"
    );
}

/// A line of the library causes neither a SIGPIPE nor a wait for a reader.
#[test]
fn nobody_reads_our_lines() {
    // python3 resets SIGPIPE to its default only for programs that it starts with
    // `restore_signals`.
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
        .arg(build.library())
        .arg(build.fixture("exit_ways"))
        .run()
        .well();
    assert_eq!(ran.stdout, "3\n3\n");
    // The line is about a folder that is not there: nothing is recorded.
    assert_eq!(ran.files_ending(".heaplog"), [""; 0]);
}

/// Prints for each signal whether it has its default action, is ignored, or has a handler, and
/// whether it is blocked; also in its thread.
const TELLS_DISPOSITIONS: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
void *kept;
static void *tells(void *unused)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int i = 1; i <= SIGRTMAX; i++) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(i, NULL, &action);
        const char *what = action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "handled";
        printf("%d %s %d %d\n", i, what, action.sa_flags, sigismember(&blocked, i));
    }
    return unused;
}
int main(void)
{
    pthread_t thread;
    kept = malloc(20001);
    tells(NULL);
    pthread_create(&thread, NULL, tells, NULL);
    pthread_join(thread, NULL);
    return 5;
}
"#;

/// The program sees none of the library's own handling of signals, before it begins or later.
#[test]
fn dispositions_and_masks_are_as_without_us() {
    let told = |run: Run| {
        let ran = run.run();
        assert_eq!((ran.code(), &*ran.stderr), (5, ""));
        ran.stdout
    };
    let run = || Run::compiled("tells", TELLS_DISPOSITIONS, &["-pthread"]);
    let alone = told(run().without_library());
    assert!(alone.lines().count() > 120);
    for interval in [1, 1 << 30] {
        assert_eq!(told(run().interval(interval).prefix("t")), alone);
    }
}

/// Allocates and frees without pause, while another thread sends it a signal. The handler
/// allocates, and frees an earlier block, if it has interrupted code at an address that its
/// arguments allow: from..to, each as an offset from the library's beginning. It acts once for each
/// block: signals in quick succession all find the same instruction. With ON_STACK it has a stack
/// of its own, above the frames that it interrupts.
const INTERRUPTED_IN_A_HOOK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#ifndef MOST
#define MOST 200
#endif
static unsigned long allowed[16];
static int bounds;
static volatile int hits, is_over;
static volatile long blocks, seen;
void *kept[MOST], *made[MOST];
static void handler(int signal, siginfo_t *info, void *context)
{
    unsigned long pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    for (int i = 0; i < bounds && hits < MOST && seen != blocks; i += 2)
        if (pc >= allowed[i] && pc < allowed[i + 1]) {
            made[hits] = malloc(20003);
            free(kept[hits]);
            hits++;
            seen = blocks;
            return;
        }
}
static void *interrupts(void *thread)
{
    while (!is_over) pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}
static void work(int depth)
{
    void *volatile block = malloc(1000 + depth);
    free(block);
    blocks++;
    if (depth < 20 && hits < MOST) work(depth + 1);
}
int main(int argc, char **argv)
{
    pthread_t self = pthread_self(), thread;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
#ifdef ON_STACK
    char room[64 << 10];
    sigaltstack(&(stack_t){.ss_sp = room, .ss_size = sizeof room}, NULL);
    action.sa_flags |= SA_ONSTACK;
#endif
    Dl_info library;
    if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &library)) return 2;
    for (bounds = 0; bounds + 1 < argc; bounds++)
        allowed[bounds] = (unsigned long)library.dli_fbase + strtoul(argv[bounds + 1], NULL, 16);
    for (int i = 0; i < MOST; i++) kept[i] = malloc(20004);
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&thread, NULL, interrupts, &self);
    for (long i = 0; i < 3000000 && hits < MOST; i++) work(0);
    is_over = 1;
    pthread_join(thread, NULL);
    printf("hits %d\n", hits);
    return 5;
}
"#;

/// Returns the library's code in which no function of jemalloc is half done.
fn bounds_of_hooks() -> Vec<String> {
    let bounds = ranges_of(&[
        "walk4Walk3run",
        "walk11walk_frames",
        "sample15sample_deferred",
        "sample20count_reentrant_loss",
    ]);
    assert!(bounds.len() >= 10, "{bounds:?}");
    bounds
}

/// A handler that interrupts a sample: its allocations pass through and are counted, its frees are
/// recorded, and the interrupted sample is whole.
#[test]
fn a_handler_that_interrupts_a_hook() {
    for flags in [&["-pthread"][..], &["-pthread", "-DON_STACK", "-DMOST=40"]] {
        interrupts_a_hook(flags);
    }
}

fn interrupts_a_hook(flags: &[&str]) {
    let bounds = bounds_of_hooks();
    let run = Run::compiled("interrupted", INTERRUPTED_IN_A_HOOK, flags);
    let ran = run.args(&bounds).interval(1).prefix("t").run();
    assert_eq!((ran.code(), &*ran.stderr), (5, ""));
    let hits: u64 = ran.stdout.trim()["hits ".len()..].parse().unwrap();
    assert!(hits > 0, "no hook was ever interrupted");
    let log = ran.log();
    assert!(log.torn.is_none() && log.end().is_some(), "{:?}", log.torn);
    // If the hook had not begun, or was done, the handler's own block is recorded.
    let recorded = log.blocks_of(20003).len() as u64;
    let passed = log.losses().get(&Counter::LostReentrant).copied();
    let passed = passed.expect("of so many moments some are within a hook");
    assert_eq!(recorded + passed, hits);
    // The handler returns: the hook was not left.
    assert_eq!(log.losses().get(&Counter::LostLeft), None);
    let freed = log
        .blocks_of(20004)
        .into_iter()
        .filter(|block| !block.in_use);
    assert_eq!(freed.count() as u64, hits);
    let churned = log
        .blocks()
        .into_iter()
        .filter(|block| (1000..1021).contains(&block.size));
    assert!(churned.into_iter().all(|block| !block.in_use));
    println!("{hits}, {recorded} recorded");
}

/// As above, but the handler jumps out of the interrupted code, as often as its first argument
/// tells. The last blocks must be recorded.
const JUMPS_OUT_OF_A_HOOK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
static unsigned long allowed[16];
static int bounds, most;
static volatile int jumps, is_over;
static sigjmp_buf before;
void *kept[100];
static void handler(int signal, siginfo_t *info, void *context)
{
    unsigned long pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    for (int i = 0; i < bounds && jumps < most; i += 2)
        if (pc >= allowed[i] && pc < allowed[i + 1]) {
            jumps++;
            siglongjmp(before, 1);
        }
}
static void *interrupts(void *thread)
{
    /* Without a pause the thread may do nothing but take signals, and hardly come to a hook in two seconds. */
    while (!is_over) pthread_kill(*(pthread_t *)thread, SIGUSR1), usleep(50);
    return NULL;
}
static void work(int depth)
{
    void *volatile block = malloc(1000 + depth);
    free(block);
    if (depth < 20) work(depth + 1);
}
int main(int argc, char **argv)
{
    pthread_t self = pthread_self(), thread;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    Dl_info library;
    if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &library)) return 2;
    most = atoi(argv[1]);
    for (bounds = 0; bounds + 2 < argc; bounds++)
        allowed[bounds] = (unsigned long)library.dli_fbase + strtoul(argv[bounds + 2], NULL, 16);
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&thread, NULL, interrupts, &self);
    /* When there are no hooks any more to jump out of, hardly anything is left to hit. */
    volatile time_t last = time(NULL);
    volatile int known = 0;
    while (jumps < most && time(NULL) <= last + 2) {
        if (sigsetjmp(before, 1) == 0) work(0);
        if (known != jumps) {
            known = jumps;
            last = time(NULL);
        }
    }
    is_over = 1;
    pthread_join(thread, NULL);
    for (int i = 0; i < 50; i++) {
        free(malloc(20006));
        usleep(20000);
    }
    for (int i = 0; i < 100; i++) kept[i] = malloc(20005);
    printf("jumps %d\n", jumps);
    return 5;
}
"#;

/// A thread that jumps out of a hook goes on, and is recorded on. Possibly missing events are
/// counted. There is a limit: a structure that was left half-changed is abandoned.
#[test]
fn a_handler_that_jumps_out_of_a_hook() {
    for (jumps, is_recorded_on) in [(10, true), (30, true), (50, false)] {
        let run = Run::compiled("jumps", JUMPS_OUT_OF_A_HOOK, &["-pthread"]);
        let run = run.arg(jumps.to_string()).args(bounds_of_hooks());
        let ran = run.interval(1).prefix("t").run();
        assert_eq!((ran.code(), &*ran.stderr), (5, ""));
        let jumped = ran.stdout.trim().strip_prefix("jumps ");
        let jumped: u64 = jumped.expect("its line").parse().unwrap();
        assert!(
            jumped == jumps || !is_recorded_on && jumped >= 32,
            "{jumped}"
        );
        let log = ran.log();
        assert!(log.torn.is_none() && log.end().is_some(), "{:?}", log.torn);
        let left = log.losses()[&Counter::LostLeft];
        println!("{jumps}: {left} hooks left");
        assert!(left > 0 && left <= jumped, "{left}");
        if is_recorded_on {
            assert_eq!(log.blocks_of(20005).len(), 100);
        }
        let phantoms = log
            .blocks()
            .into_iter()
            .filter(|block| (1000..1021).contains(&block.size) && block.in_use);
        assert!(phantoms.count() as u64 <= left);
    }
}
