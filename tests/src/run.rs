//! A run: one program, with or without the library, in a fresh folder, with a hard time limit.
//!
//! Standard output and error go to files outside that folder: a child that outlives its parent
//! then keeps nobody waiting, and the folder holds only what the program and the library made.
//! The environment is empty but for `PATH`, `HOME` and what the test sets.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::build::{self, Build};
use crate::claims::Claims;
use crate::log::Log;
use crate::named::Named;
use crate::watchdog;

/// Longer than any test needs on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A run that is being described.
#[derive(Debug)]
pub struct Run {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    preload: bool,
    exit_wait: bool,
    limit: Duration,
    ignored_signal: Option<i32>,
    filtered: bool,
    folder: Arc<TempDir>,
    inside: Option<PathBuf>,
}

impl Run {
    /// A fixture, under the library.
    pub fn fixture(name: &str) -> Run {
        Run::program(Build::get().fixture(name))
    }

    /// Any program, under the library.
    ///
    /// # Panics
    /// When no temporary folder can be made.
    pub fn program(path: impl Into<PathBuf>) -> Run {
        Run {
            program: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            preload: true,
            exit_wait: true,
            limit: TIME_LIMIT,
            ignored_signal: None,
            filtered: false,
            folder: Arc::new(tempfile::tempdir().expect("a temporary folder")),
            inside: None,
        }
    }

    /// A C program that is too special to be a fixture, under the library. It lies in the run's folder as
    /// `bin/<name>`. `flags` come last.
    ///
    /// # Panics
    /// When gcc refuses it.
    pub fn compiled(name: &str, source: &str, flags: &[&str]) -> Run {
        let mut run = Run::program("");
        let bin = run.folder().join("bin");
        fs::create_dir(&bin).expect("a fresh folder");
        run.program = build::c_program(&bin, name, source, flags);
        run
    }

    /// A program without the library: a reader of profiles, or a fixture for comparison.
    pub fn tool(path: impl Into<PathBuf>) -> Run {
        Run {
            preload: false,
            ..Run::program(path)
        }
    }

    /// The `heapprof` program.
    pub fn heapprof() -> Run {
        Run::tool(&Build::get().heapprof)
    }

    /// The program runs without the library.
    #[must_use]
    pub fn without_library(mut self) -> Run {
        self.preload = false;
        self
    }

    /// `LD_PRELOAD` of these libraries and ours (`""`), in that order. What is the name of a fixture is that.
    #[must_use]
    pub fn preloading(self, libraries: &[&str]) -> Run {
        let build = Build::get();
        let path = |name: &&str| match *name {
            "" => build.library.display().to_string(),
            name if build.fixtures.join(name).exists() => build.fixture(name).display().to_string(),
            name => name.to_owned(),
        };
        let paths: Vec<String> = libraries.iter().map(path).collect();
        self.without_library().env("LD_PRELOAD", paths.join(":"))
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Run {
        self.args.push(arg.as_ref().into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Run {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One more variable; a later one of the same name counts.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.env.push((name.into(), value.as_ref().into()));
        self
    }

    /// `HEAPPROF_SAMPLE_INTERVAL`.
    #[must_use]
    pub fn interval(self, bytes: u64) -> Run {
        self.env("HEAPPROF_SAMPLE_INTERVAL", bytes.to_string())
    }

    /// `HEAPPROFILE`, in the run's folder when it is relative.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Run {
        let path = self.folder.path().join(prefix);
        self.env("HEAPPROFILE", path)
    }

    /// The end waits for the record no longer than it does by default. Elsewhere it waits for longer: a machine that runs tests
    /// may be busy enough, or its disk, that a tenth of a second is not enough for what a test wants to see.
    #[must_use]
    pub fn default_exit_wait(mut self) -> Run {
        self.exit_wait = false;
        self
    }

    /// Another limit than a minute.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// The program starts with that signal ignored, as under nohup.
    #[must_use]
    pub fn ignoring(mut self, signal: i32) -> Run {
        self.ignored_signal = Some(signal);
        self
    }

    /// The program starts behind a filter of system calls, as in a container: one that lets everything through. Our thread then shares its
    /// table of descriptors, as on an old kernel.
    #[must_use]
    pub fn behind_a_filter(mut self) -> Run {
        self.filtered = true;
        self
    }

    /// In the folder of an earlier run.
    #[must_use]
    pub fn in_folder_of(mut self, earlier: &Finished) -> Run {
        self.folder = Arc::clone(&earlier.folder);
        self
    }

    /// With another working directory than the run's folder.
    #[must_use]
    pub fn inside(mut self, folder: impl Into<PathBuf>) -> Run {
        self.inside = Some(folder.into());
        self
    }

    /// The run's folder, for what must be there before.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the program to its end.
    pub fn run(self) -> Finished {
        self.start().wait()
    }

    /// Starts the program.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(self) -> Running {
        let streams = tempfile::tempdir().expect("a temporary folder");
        let stream = |name| {
            let path = streams.path().join(name);
            let file = File::options()
                .create(true)
                .append(true)
                .open(path)
                .expect("a file in a folder of ours");
            Stdio::from(file)
        };
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .envs(self.exit_wait.then_some(("HEAPPROF_EXIT_WAIT_MS", "10000")))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.inside.as_deref().unwrap_or(self.folder.path()))
            .stdin(Stdio::null())
            .stdout(stream("stdout"))
            .stderr(stream("stderr"))
            .process_group(0);
        if self.preload {
            command.env("LD_PRELOAD", &Build::get().library);
        }
        if let Some(signal) = self.ignored_signal {
            // SAFETY: between fork and exec, one system call without memory.
            unsafe {
                command.pre_exec(move || {
                    libc::signal(signal, libc::SIG_IGN);
                    Ok(())
                });
            }
        }
        if self.filtered {
            // SAFETY: between fork and exec, two system calls without memory but the stack's.
            unsafe { command.pre_exec(let_everything_through) };
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.program.display()));
        Running {
            child,
            started: Instant::now(),
            limit: self.limit,
            shown: format!("{} {:?}", self.program.display(), self.args),
            streams,
            folder: self.folder,
            ended: false,
        }
    }
}

/// A filter for the calling process, and all that it starts.
fn let_everything_through() -> std::io::Result<()> {
    let mut allow = libc::sock_filter {
        code: 0x06, // BPF_RET | BPF_K
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut allow,
    };
    // SAFETY: the first takes numbers, the second reads a program of one instruction.
    let answers = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ),
        ]
    };
    match answers {
        [0, 0] => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    limit: Duration,
    shown: String,
    streams: TempDir,
    folder: Arc<TempDir>,
    ended: bool,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has written to standard output so far.
    pub fn stdout_so_far(&self) -> String {
        read_lossy(&self.streams.path().join("stdout"))
    }

    /// What it has written to standard error so far.
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
    /// When it does not come true, with the stacks of all threads.
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
    /// When it does not end in time.
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
    /// A test that fails leaves no process behind.
    fn drop(&mut self) {
        if !self.ended {
            watchdog::kill(self.child.id() as i32);
            let _ = self.child.wait();
        }
    }
}

/// A program that has ended, and what it left behind.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// How long it ran.
    pub elapsed: Duration,
    /// Its process id.
    pub pid: u32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    shown: String,
    folder: Arc<TempDir>,
}

impl Finished {
    /// The run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The same run, whose exit status must be 0.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    #[track_caller]
    pub fn well(self) -> Finished {
        assert!(
            self.status.success(),
            "{}: {}\nstdout: {}\nstderr: {}",
            self.shown,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// The exit status, or 128 and the signal, as a shell says it.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// What the library said on standard error.
    pub fn said(&self) -> Vec<&str> {
        let ours = |line: &&str| line.starts_with("heapprof: ");
        self.stderr.lines().filter(ours).collect()
    }

    /// There is one line of ours that has all these words.
    ///
    /// # Panics
    /// When there is none, or more.
    #[track_caller]
    pub fn assert_said(&self, words: &[&str]) {
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        let count = self.said().into_iter().filter(has_all).count();
        assert_eq!(count, 1, "{words:?} in: {}", self.stderr);
    }

    /// What a fixture printed.
    pub fn claims(&self) -> Claims {
        Claims::parse(&self.stdout)
    }

    /// Names of the files in the folder, sorted.
    pub fn files(&self) -> Vec<String> {
        files_in(self.folder())
    }

    /// Those that end so.
    pub fn files_ending(&self, end: &str) -> Vec<String> {
        let mut files = self.files();
        files.retain(|name| name.ends_with(end));
        files
    }

    /// A file in the folder.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder().join(name)).unwrap_or_else(|error| {
            panic!("{name}: {error}; there are {:?}", self.files());
        })
    }

    /// Path of the only log.
    ///
    /// # Panics
    /// When there is not exactly one.
    #[track_caller]
    pub fn log_path(&self) -> PathBuf {
        match &self.files_ending(".heaplog")[..] {
            [one] => self.folder().join(one),
            logs => panic!("{}: one log expected, not {logs:?}", self.shown),
        }
    }

    /// The only log.
    #[track_caller]
    pub fn log(&self) -> Log {
        Log::read(&self.log_path())
    }

    /// The dumps, by name.
    pub fn dumps(&self) -> Vec<PathBuf> {
        let files = self.files_ending(".heap").into_iter();
        files.map(|name| self.folder().join(name)).collect()
    }

    /// A log or a dump of the folder, with names.
    pub fn named(&self, name: &str) -> Named {
        Named::read(&self.folder().join(name))
    }
}

pub(crate) fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the run's folder");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry of the run's folder");
        entry.file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
