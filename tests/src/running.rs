//! Running: a program that runs, with its output so far, its signals, and a wait for its end within
//! its limit.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::finished::Finished;
use crate::watchdog;

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    pub(crate) child: Child,
    pub(crate) started: Instant,
    pub(crate) limit: Duration,
    pub(crate) shown: String,
    pub(crate) streams: TempDir,
    pub(crate) folder: Arc<TempDir>,
    pub(crate) ended: bool,
}

impl Running {
    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns its standard output so far.
    pub fn stdout_so_far(&self) -> String {
        read_lossy(&self.streams.path().join("stdout"))
    }

    /// Returns its standard error so far.
    pub fn stderr_so_far(&self) -> String {
        read_lossy(&self.streams.path().join("stderr"))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a system call without memory; the child is not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until `condition` holds. The program's own time limit counts.
    ///
    /// # Panics
    /// If it does not become true, with the stacks of all threads.
    pub fn until(&mut self, what: &str, condition: impl Fn(&Running) -> bool) {
        while !condition(self) {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                assert!(condition(self), "{}: {status} before {what}", self.shown);
                return;
            }
            if self.started.elapsed() > self.limit {
                self.hang(what);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait(mut self) -> Finished {
        let status = loop {
            match self.child.try_wait().expect("a child of ours") {
                Some(status) => break status,
                None if self.started.elapsed() > self.limit => self.hang("its end"),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        self.ended = true;
        Finished {
            status,
            elapsed: self.started.elapsed(),
            pid: self.child.id(),
            stdout: read_lossy(&self.streams.path().join("stdout")),
            stderr: read_lossy(&self.streams.path().join("stderr")),
            shown: std::mem::take(&mut self.shown),
            folder: Arc::clone(&self.folder),
        }
    }

    fn hang(&mut self, awaited: &str) -> ! {
        let group = self.child.id() as i32;
        let stacks = watchdog::stacks(group);
        panic!(
            "{}: waited {:?} in vain for {awaited}\n{stacks}\nstdout: {}\nstderr: {}",
            self.shown,
            self.limit,
            self.stdout_so_far(),
            read_lossy(&self.streams.path().join("stderr")),
        );
    }
}

impl Drop for Running {
    /// Kills the program: a test that fails leaves no process behind.
    fn drop(&mut self) {
        if !self.ended {
            watchdog::kill(self.child.id() as i32);
            let _ = self.child.wait();
        }
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
