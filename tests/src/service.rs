//! Service: a program that allocates until it is told to end, and `heapprof ctl`, which controls
//! it.

use std::fs;
use std::path::PathBuf;

use crate::finished::Finished;
use crate::log::Log;
use crate::run::Run;
use crate::running::Running;

/// Returns a run of `allocates_until_told` in that mode, which a file in its folder ends.
pub fn service(mode: &str) -> Run {
    let run = Run::fixture("allocates_until_told");
    let told = run.folder().join("told");
    run.arg(told).arg(mode)
}

/// Starts it, and waits until it has printed its process id.
pub fn started(run: Run) -> Running {
    let mut running = run.start();
    running.until("its process id", |running| {
        running.stdout_so_far().contains('\n')
    });
    running
}

/// Returns the number of samples of that size that are on disk by now.
pub fn samples_so_far(running: &Running, size: u64) -> usize {
    let is_log = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|e| e == "heaplog");
    let mut entries = fs::read_dir(running.folder()).unwrap().map(Result::unwrap);
    entries.find(is_log).map_or(0, |entry| {
        let log = Log::read(&entry.path());
        log.allocs().filter(|alloc| alloc.size == size).count()
    })
}

/// Tells it to end.
pub fn ended(running: Running) -> Finished {
    fs::write(running.folder().join("told"), "").unwrap();
    running.wait().well()
}

/// Runs `heapprof ctl`.
pub fn ctl(pid: u32, words: &[&str]) -> Finished {
    Run::heapprof()
        .arg("ctl")
        .arg(pid.to_string())
        .args(words)
        .run()
}

/// Runs `heapprof ctl` and returns its output.
#[track_caller]
pub fn ctl_output(pid: u32, words: &[&str]) -> String {
    let ran = ctl(pid, words).well();
    assert_eq!(ran.stderr, "");
    ran.stdout
}

/// Runs `heapprof ctl` and returns the reason of its refusal.
#[track_caller]
pub fn refused(pid: u32, words: &[&str]) -> String {
    let ran = ctl(pid, words);
    assert_ne!(ran.code(), 0, "{}", ran.stdout);
    assert_eq!(ran.stdout, "");
    ran.stderr
}

/// Returns the writer's thread, if there is one.
pub fn writer_of(pid: u32) -> Option<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut tasks = tasks.filter_map(Result::ok).map(|task| task.path());
    tasks.find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "heapprof\n"))
}
