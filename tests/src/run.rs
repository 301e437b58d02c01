//! A run: one program, with or without the library, in a fresh folder, with a hard time limit.
//!
//! Standard output and error go to files outside that folder: a child that outlives its parent
//! then keeps nobody waiting, and the folder holds only what the program and the library made.
//! The environment is empty but for `PATH`, `HOME` and what the test sets.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::build::{self, Build};
use crate::finished::Finished;
use crate::running::Running;

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

    /// The same as a program of musl.
    pub fn over_musl(name: &str) -> Run {
        Run::program(Build::get().fixture_over_musl(name))
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
            "" => build.library_for(&self.program).display().to_string(),
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
            .envs(build::without_fast_path().then_some(("HEAPPROF_FAST_PATH", "0")))
            .envs(self.exit_wait.then_some(("HEAPPROF_EXIT_WAIT_MS", "10000")))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.inside.as_deref().unwrap_or(self.folder.path()))
            .stdin(Stdio::null())
            .stdout(stream("stdout"))
            .stderr(stream("stderr"))
            .process_group(0);
        if self.preload {
            command.env("LD_PRELOAD", Build::get().library_for(&self.program));
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
