//! Attached server: the fixture `attached_server`, which runs while heapprof is attached to it and
//! detached again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::build::Build;
use crate::finished::Finished;
use crate::log::Log;
use crate::run::Run;

/// The server. It takes commands on its standard input.
#[derive(Debug)]
pub struct AttachedServer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl AttachedServer {
    /// Starts the fixture with so many busy threads.
    pub fn start(threads: u32) -> AttachedServer {
        AttachedServer::with(&[&threads.to_string()])
    }

    /// Starts the fixture with these arguments.
    pub fn with(arguments: &[&str]) -> AttachedServer {
        AttachedServer::of(&Build::get().fixture("attached_server"), arguments)
    }

    /// Starts a program that starts the fixture, or the fixture.
    ///
    /// # Panics
    /// If it does not start.
    pub fn of(program: &Path, arguments: &[&str]) -> AttachedServer {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the fixture");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut server = AttachedServer {
            child,
            input,
            output,
            folder,
        };
        assert_eq!(server.line(), "ready");
        server
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a pipe");
        line.trim_end().to_owned()
    }

    /// Gives a command, and returns the number of its answer.
    ///
    /// # Panics
    /// If it has ended, or does not know the command.
    pub fn tell(&mut self, command: &str) -> i32 {
        let input = self.input.as_mut().expect("open until the end");
        writeln!(input, "{command}").expect("it reads");
        let line = self.line();
        let number = line.strip_prefix("done ");
        number
            .unwrap_or_else(|| panic!("{command}: {line:?}"))
            .parse()
            .expect("a number")
    }

    /// Ends it. Checks that no wait has ended wrongly.
    ///
    /// # Panics
    /// If one has.
    pub fn end(mut self) {
        self.quit();
    }

    /// As [`end`](Self::end). Its folder stays.
    ///
    /// # Panics
    /// If a wait has ended wrongly.
    pub fn quit(&mut self) {
        writeln!(self.input.take().expect("open"), "quit").expect("it reads");
        assert_eq!(self.line(), "ended 0");
        let status = self.child.wait().expect("a child of ours");
        assert!(status.success(), "{status}");
    }

    /// Runs `heapprof`, in the server's folder.
    pub fn heapprof(&self, words: &[&str]) -> Finished {
        let run = Run::heapprof().inside(self.folder.path());
        run.args(words).limit(Duration::from_secs(60)).run()
    }

    /// Attaches, and returns the run of `heapprof attach`.
    pub fn attach(&self, options: &[&str]) -> Finished {
        let pid = self.pid().to_string();
        self.heapprof(&[&["attach", &pid, "--leave"], options].concat())
    }

    /// Detaches, and returns the run of `heapprof detach`.
    pub fn detach(&self) -> Finished {
        self.heapprof(&["detach", &self.pid().to_string()])
    }

    /// Attaches, and expects that it is done.
    pub fn attached(&self, options: &[&str]) -> String {
        self.attach(options).well().stderr
    }

    /// Detaches, and expects that it is done.
    pub fn detached(&self) -> String {
        self.detach().well().stderr
    }

    /// Returns the logs in its folder, the newest last.
    ///
    /// # Panics
    /// If the folder cannot be read.
    pub fn logs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "heaplog");
        let mut logs: Vec<_> = paths.filter(is_log).collect();
        logs.sort_by_key(|path| {
            fs::metadata(path)
                .and_then(|it| it.modified())
                .expect("a time")
        });
        logs
    }

    /// Returns the code of the program and of its libraries, by file and address.
    ///
    /// # Panics
    /// If it has ended.
    pub fn code(&self) -> BTreeMap<String, Vec<u8>> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("a map");
        let memory = fs::File::open(format!("/proc/{}/mem", self.pid())).expect("memory");
        let is_code = |line: &&str| {
            line.contains(" r-xp ") && line.contains('/') && !line.contains("libheapprof-attach")
        };
        let lines = maps.lines().filter(is_code);
        let read = lines.map(|line| {
            let range = line.split(' ').next().expect("a range");
            let (start, end) = range.split_once('-').expect("two ends");
            let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).expect("hex"));
            let mut bytes = vec![0; (end - start) as usize];
            memory.read_exact_at(&mut bytes, start).expect("mapped");
            (line.to_owned(), bytes)
        });
        read.collect()
    }

    /// Returns the numbers of threads and open descriptors, and the resident KiB.
    ///
    /// # Panics
    /// If it has ended.
    pub fn size(&self) -> [u64; 3] {
        let folder = format!("/proc/{}", self.pid());
        let count = |name| {
            fs::read_dir(format!("{folder}/{name}"))
                .expect("it lives")
                .count() as u64
        };
        let status = fs::read_to_string(format!("{folder}/status")).expect("it lives");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.split_ascii_whitespace().next());
        [
            count("task"),
            count("fd"),
            resident.expect("a number").parse().expect("a number"),
        ]
    }
}

impl Drop for AttachedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns how many blocks of that size were allocated, and how many are in use at the log's end.
pub fn blocks_in_use(log: &Log, size: u64) -> (usize, usize) {
    let blocks = log.blocks_of(size);
    let in_use = blocks.iter().filter(|block| block.in_use).count();
    (blocks.len(), in_use)
}
