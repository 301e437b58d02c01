//! Run: one program, with or without the library, in a fresh folder, with a hard time limit.
//!
//! Standard output and error go to files outside that folder. So no test waits for a child that
//! outlives its parent, and the folder holds only the files of the program and the library. The
//! environment is empty but for `PATH`, `HOME` and the test's own variables.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::build::{self, Build};
use crate::cgroup::MemoryCgroup;
use crate::finished::Finished;
use crate::running::Running;

/// A limit that no test reaches on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The description of a run.
#[derive(Debug)]
pub struct Run {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    preload: bool,
    exit_wait: bool,
    limit: Duration,
    ignored_signal: Option<i32>,
    has_seccomp_filter: bool,
    cgroup: Option<Arc<File>>,
    folder: Arc<TempDir>,
    inside: Option<PathBuf>,
}

impl Run {
    /// Returns a run of a fixture under the library.
    pub fn fixture(name: &str) -> Run {
        Run::program(Build::get().fixture(name))
    }

    /// Returns a run of a fixture that is a program of musl.
    pub fn over_musl(name: &str) -> Run {
        Run::program(Build::get().fixture_over_musl(name))
    }

    /// Returns a run of any program under the library.
    ///
    /// # Panics
    /// If no temporary folder can be made.
    pub fn program(path: impl Into<PathBuf>) -> Run {
        Run {
            program: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            preload: true,
            exit_wait: true,
            limit: TIME_LIMIT,
            ignored_signal: None,
            has_seccomp_filter: false,
            cgroup: None,
            folder: Arc::new(tempfile::tempdir().expect("a temporary folder")),
            inside: None,
        }
    }

    /// Returns a run of a C program that is too special to be a fixture, under the library. It lies
    /// in the run's folder as `bin/<name>`. `flags` come last.
    ///
    /// # Panics
    /// If gcc refuses it.
    pub fn compiled(name: &str, source: &str, flags: &[&str]) -> Run {
        let mut run = Run::program("");
        let bin = run.folder().join("bin");
        fs::create_dir(&bin).expect("a fresh folder");
        run.program = build::c_program(&bin, name, source, flags);
        run
    }

    /// Runs this program instead.
    #[must_use]
    pub fn with_program(mut self, path: impl Into<PathBuf>) -> Run {
        self.program = path.into();
        self
    }

    /// Returns a run without the library: of a reader of profiles, or of a fixture for comparison.
    pub fn tool(path: impl Into<PathBuf>) -> Run {
        Run {
            preload: false,
            ..Run::program(path)
        }
    }

    /// Returns a run of the `heapprof` program.
    pub fn heapprof() -> Run {
        Run::tool(&Build::get().heapprof)
    }

    /// Runs the program without the library.
    #[must_use]
    pub fn without_library(mut self) -> Run {
        self.preload = false;
        self
    }

    /// Sets `LD_PRELOAD` to these libraries and ours (`""`), in that order. A fixture's name stands
    /// for the fixture.
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

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Run {
        self.args.push(arg.as_ref().into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Run {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable; the last one of a name counts.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.env.push((name.into(), value.as_ref().into()));
        self
    }

    /// Sets `HEAPPROF_SAMPLE_INTERVAL`.
    #[must_use]
    pub fn interval(self, bytes: u64) -> Run {
        self.env("HEAPPROF_SAMPLE_INTERVAL", bytes.to_string())
    }

    /// Sets `HEAPPROFILE`, in the run's folder if it is relative.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Run {
        let path = self.folder.path().join(prefix);
        self.env("HEAPPROFILE", path)
    }

    /// Sets the default wait of the program's end for its record. Other tests wait longer: on a
    /// busy machine or disk, a tenth of a second may not suffice for the test's data.
    #[must_use]
    pub fn default_exit_wait(mut self) -> Run {
        self.exit_wait = false;
        self
    }

    /// Sets another limit than a minute.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// Starts the program with that signal ignored, as under nohup.
    #[must_use]
    pub fn ignoring(mut self, signal: i32) -> Run {
        self.ignored_signal = Some(signal);
        self
    }

    /// Starts the program behind a seccomp filter that lets everything through, as in a
    /// container. The library's thread then shares the program's table of descriptors, as on an old
    /// kernel.
    #[must_use]
    pub fn behind_seccomp_filter(mut self) -> Run {
        self.has_seccomp_filter = true;
        self
    }

    /// Starts the program in a cgroup.
    #[must_use]
    pub fn in_cgroup(mut self, cgroup: &MemoryCgroup) -> Run {
        self.cgroup = Some(Arc::new(cgroup.processes()));
        self
    }

    /// Runs in the folder of an earlier run.
    #[must_use]
    pub fn in_folder_of(mut self, earlier: &Finished) -> Run {
        self.folder = Arc::clone(&earlier.folder);
        self
    }

    /// Runs with another working directory than the run's folder.
    #[must_use]
    pub fn inside(mut self, folder: impl Into<PathBuf>) -> Run {
        self.inside = Some(folder.into());
        self
    }

    /// Returns the run's folder, for files that must exist before.
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
    /// If it cannot be started.
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
            .envs(build::setting_of_all_runs())
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
        if self.has_seccomp_filter {
            // SAFETY: between fork and exec, two system calls without memory but the stack's.
            unsafe { command.pre_exec(let_everything_through) };
        }
        if let Some(processes) = &self.cgroup {
            let descriptor = processes.as_raw_fd();
            // SAFETY: between fork and exec, one system call; the file stays open until the spawn
            // is over.
            unsafe { command.pre_exec(move || add_itself(descriptor)) };
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

/// Adds the calling process to the cgroup with that list of processes.
fn add_itself(processes: RawFd) -> std::io::Result<()> {
    // SAFETY: reads one byte.
    match unsafe { libc::write(processes, c"0".as_ptr().cast(), 1) } {
        1 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Installs a seccomp filter for the calling process and all that it starts.
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
