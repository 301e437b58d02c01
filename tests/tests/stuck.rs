//! A writer that is stuck, as by a disk that does not answer: its effect on the program, and the
//! contents of the log.

use std::fs;
use std::time::Duration;

use heapprof_format::{Counter, EndReason};
use heapprof_tests::{Run, Running, best, ended_after, exits, last_tick, tick_of};

/// Returns the library's thread of a program.
fn writer_of(running: &Running) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).expect("a living process");
    let mut ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let is_ours = |tid: &i32| {
        let name = fs::read_to_string(format!("/proc/{}/task/{tid}/comm", running.pid()));
        name.is_ok_and(|name| name.trim() == "heapprof")
    };
    ids.find(is_ours).expect("a thread of ours")
}

/// Waits until a traced thread has stopped.
fn wait_for_stop(tid: i32) {
    let mut status = 0;
    // SAFETY: writes one int.
    let waited = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
    assert_eq!(waited, tid, "{}", std::io::Error::last_os_error());
    assert!(libc::WIFSTOPPED(status));
}

/// Waits until a traced thread has ended. Its process cannot end before this is known here.
fn wait_for_end(running: &mut Running, tid: i32) {
    running.until("its end", |_| {
        let mut status = 0;
        // SAFETY: writes one int.
        let waited = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        waited == tid && !libc::WIFSTOPPED(status)
    });
}

/// Stops one thread for good, in a system call where it writes or waits, as an unresponsive disk
/// does. Elsewhere it might hold a lock of jemalloc that all arenas share, or the kernel's lock of
/// the address space, where real programs do not stop for good.
fn stop_for_good(running: &Running, tid: i32) {
    let trace = |request| {
        // SAFETY: none of the requests reads or writes memory of this process.
        let result = unsafe { libc::ptrace(request, tid, 0usize, 0usize) };
        assert_eq!(result, 0, "ptrace: {}", std::io::Error::last_os_error());
    };
    trace(libc::PTRACE_SEIZE);
    loop {
        trace(libc::PTRACE_INTERRUPT);
        wait_for_stop(tid);
        let path = format!("/proc/{}/task/{tid}/syscall", running.pid());
        let call = fs::read_to_string(path).expect("a stopped thread of a child of ours");
        let number = call
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok());
        if [libc::SYS_write, libc::SYS_futex, libc::SYS_nanosleep]
            .map(Some)
            .contains(&number)
        {
            return;
        }
        trace(libc::PTRACE_CONT);
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A writer that does not proceed: the end comes all the same, and the log has the data written
/// before.
#[test]
fn a_writer_that_is_stuck_delays_the_end_by_less_than_100_ms() {
    for (interval, way) in [(1, "exit"), (1, "_exit"), (1024, "exit")] {
        let alone = || {
            let ran = exits(1000, 10, 0).arg(way).without_library().run().well();
            ended_after(&ran)
        };
        let stuck = || {
            let run = exits(1000, 10, 0).arg(way);
            let word = run.folder().join("word");
            let mut running = run.arg(&word).interval(interval).start();
            running.until("some ticks", |running| tick_of(running) > Some(200));
            let tid = writer_of(&running);
            let before = tick_of(&running).unwrap_or(0);
            stop_for_good(&running, tid);
            fs::write(&word, "").expect("a folder of ours");
            wait_for_end(&mut running, tid);
            let ran = running.wait().well();
            let after = ended_after(&ran);
            ran.assert_said(&["the log ends before the program"]);
            let log = ran.log();
            assert!(log.torn.is_none(), "{:?}", log.torn);
            // Nobody writes to a log whose writer is stopped in a write.
            assert!(matches!(log.end(), Some(EndReason::Cut) | None));
            assert_eq!(ran.files(), ["t.heaplog", "word"]);
            let missing = before.saturating_sub(last_tick(&log, 5_000));
            after.max(if interval == 1 { missing } else { 0 })
        };
        let delay = best(100, || stuck().saturating_sub(alone()));
        assert!(delay <= 100, "{way} at {interval}: {delay} ms");
    }
}

/// In the middle of the program's life: it stalls once, for the two seconds that recording
/// everything is worth, and goes on without its profile.
#[test]
fn a_writer_that_is_stuck_stalls_the_program_once() {
    let run = Run::fixture("waits_for_nobody")
        .default_exit_wait()
        .prefix("t");
    let word = run.folder().join("word");
    // The events that there is room for on the way, and as many again.
    let mut running = run.arg(&word).arg("20000").interval(1).start();
    running.until("its word", |running| {
        running.stdout_so_far().contains("waits")
    });
    let tid = writer_of(&running);
    stop_for_good(&running, tid);
    fs::write(&word, "").expect("a folder of ours");
    wait_for_end(&mut running, tid);
    let ran = running.wait().well();
    let took = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("took "));
    let took: u64 = took.and_then(|ms| ms.parse().ok()).expect("milliseconds");
    // At most twice: for a sample, and for the free of another sample that was in already.
    assert!((1_900..8_000).contains(&took), "{took} ms");
}

/// Prints `waits`, and waits until there is a file named `word`. Then keeps 40,000 blocks, prints
/// `kept`, and waits for one named `on`.
const KEEPS_BLOCKS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { COUNT = 40000 };
void *kept[COUNT + 1];
int main(void)
{
    kept[COUNT] = malloc(20001);
    puts("waits");
    fflush(stdout);
    while (access("word", F_OK) != 0) usleep(1000);
    for (int i = 0; i < COUNT; i++) kept[i] = malloc(777);
    puts("kept");
    fflush(stdout);
    while (access("on", F_OK) != 0) usleep(1000);
    kept[COUNT] = malloc(20002);
    return 5;
}
"#;

/// Events without room while the writer stands still are lost, and each is counted. When it goes
/// on, the log goes on.
#[test]
fn what_a_writer_that_is_stuck_did_not_take_is_counted() {
    let mut running = Run::compiled("keeps_blocks", KEEPS_BLOCKS, &[])
        .interval(1)
        .prefix("t")
        .start();
    let says = |word: &'static str| move |running: &Running| running.stdout_so_far().contains(word);
    running.until("its word", says("waits"));
    let tid = writer_of(&running);
    stop_for_good(&running, tid);
    fs::write(running.folder().join("word"), "").expect("a folder of ours");
    running.until("its blocks", says("kept"));
    let log_path = running.folder().join("t.heaplog");
    let len = move || log_path.metadata().map_or(0, |log| log.len());
    let before = len();
    // SAFETY: neither reads nor writes memory of this process.
    let result = unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0usize, 0usize) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // By then there is room again.
    running.until("more of the log", |_| len() > before + 10_000);
    fs::write(running.folder().join("on"), "").expect("a folder of ours");
    let ran = running.wait();
    assert_eq!((ran.code(), &*ran.stderr), (5, ""));
    let log = ran.log().whole();
    let lost = log.losses()[&Counter::LostQueueFull];
    assert!(lost > 0);
    assert_eq!(log.blocks_of(777).len() as u64 + lost, 40_000);
    assert_eq!(log.blocks_of(20002).len(), 1);
    println!("{lost} lost");
}
