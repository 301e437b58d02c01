//! The settings: environment variables, read once at boot.
//!
//! gperftools' names keep their meanings and defaults; our own names begin with `HEAPPROF_`.
//!
//! A new setting needs a field of [`Settings`], a line in [`Settings::read`], and one in
//! [`Settings::listed`], by which it goes into the log. It also needs a row in `docs/settings.md`
//! and a line in the help of `heapprof run`. A test compares these two with the names in this file
//! (`tests/tests/documents.rs`). A setting that is needed before the others has a function of its
//! own here. A variable that only `heapprof` reads goes into [`OTHERS`].

use heapprof_format::{ATTACHED, TAPPED};

use crate::os::diagnostics::say;
use crate::os::environment::Environment;
use crate::os::files;
use crate::os::sys;

/// Longest interval: a terabyte between samples. Readers treat a longer one as damage of the log.
pub(crate) const MAX_INTERVAL: u64 = 1 << 40;

/// Default mean sampling interval, in bytes: the value of jemalloc and Go.
const DEFAULT_INTERVAL: u64 = 512 << 10;
/// Default of the longest delay of the program's end, in milliseconds.
const DEFAULT_EXIT_WAIT_MS: u64 = 100;
/// Default of the most distinct values of a label's key.
const DEFAULT_LABEL_VALUES: u64 = 1000;
/// Default of the time between two readings of the process's memory, in milliseconds.
const DEFAULT_MEMORY_INTERVAL_MS: u64 = 1000;
/// Default of the least bytes of a mapping that is recorded.
const DEFAULT_MMAP: u64 = 64 << 10;
/// Longest time between two readings of pages, in seconds: a day.
const MAX_PAGES_INTERVAL_S: u64 = 86_400;
/// Longest delay that can be set: an hour.
const MAX_EXIT_WAIT_MS: u64 = 3_600_000;
/// Least bound of a log. A segment is a quarter of it, and must hold the program's modules and some
/// stacks.
const MIN_MAX_LOG: u64 = 64 << 10;

/// The beginning of our own variables.
const OURS: &str = "HEAPPROF_";
/// The beginnings of names that are settings' names, well or badly spelt.
const NEAR: [&str; 3] = ["HEAPPROF", "HEAP_PROF", "HEAPROF"];
/// gperftools' variables that change nothing here.
const OF_GPERFTOOLS: &[&str] = &[
    "HEAP_PROFILE_CLEANUP",
    "HEAP_PROFILE_MMAP",
    "HEAP_PROFILE_MMAP_LOG",
    "HEAP_PROFILE_ONLY_MMAP",
    "HEAPPROFILE_USE_PID",
];
/// Set by `heapprof run`, which has told the misspelt names.
const TOLD: &str = "HEAPPROF_TOLD";
/// Variables that the `heapprof` program reads.
const OTHERS: &[&str] = &[
    "HEAPPROF_LIBRARY",
    "HEAPPROF_RUN",
    "HEAPPROF_PUSH_HEADERS",
    "HEAPPROF_PUSH_BASIC_AUTH",
    "HEAPPROF_SERVE_TOKEN",
];

/// Returns false if `HEAPPROF_FAST_PATH=0` leaves every allocation to the allocator's own
/// functions. Called before the other settings are read.
pub(crate) fn uses_fast_path(environment: &Environment) -> bool {
    environment.get("HEAPPROF_FAST_PATH") != Some(b"0")
}

/// The allocator that is to serve the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocatorChoice {
    /// The program's own.
    Program,
    /// This library's.
    Ours,
    /// This library's, unless the program calls functions that only its own allocator has.
    Automatic,
}

/// Returns the choice of the allocator. Called before the other settings are read, and before the
/// first allocation. For a program with more rights than its user, the environment has no say.
pub(crate) fn allocator_choice(environment: &Environment) -> AllocatorChoice {
    // SAFETY: reads a number of the auxiliary vector.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let value = environment.get(ALLOCATOR);
    match value.filter(|value| !is_secure && !value.is_empty()) {
        Some(value) if value == PROGRAM.as_bytes() => AllocatorChoice::Program,
        Some(value) if value == JEMALLOC.as_bytes() => AllocatorChoice::Ours,
        _ => AllocatorChoice::Automatic,
    }
}

const ALLOCATOR: &str = "HEAPPROF_ALLOCATOR";
/// Value of [`ALLOCATOR`]: the program's own.
const PROGRAM: &str = "program";
/// Value of [`ALLOCATOR`]: this library's, which is the default.
const JEMALLOC: &str = "jemalloc";

/// The allocators inside of the program that are tapped: all known ones, none, or named ones.
const TAP: &str = "HEAPPROF_TAP";

/// The frames of Python functions: read, or not.
const PYTHON: &str = "HEAPPROF_PYTHON";

/// The values of all settings.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Mean sampling interval in bytes; 1: every allocation; 0: no sampling, so this library is
    /// only an allocator.
    pub(crate) interval: u64,
    /// Most frames of a stack, without that of the allocation function.
    pub(crate) depth: u32,
    /// Most bytes of log, all segments together; 0: one log without a bound.
    pub(crate) max_log: u64,
    /// Longest delay of the program's end for the last records and the last dump, in milliseconds.
    pub(crate) exit_wait_ms: u64,
    /// Time between two readings of the process's memory, in milliseconds; 0: no readings.
    pub(crate) memory_interval_ms: u64,
    /// Seconds between two regular readings of the pages of sampled blocks; 0: none.
    pub(crate) pages_interval_s: u64,
    /// True if readings of pages have the addresses of the blocks, and one is taken at the end.
    pub(crate) addresses: bool,
    /// Bytes from which a mapping is recorded; 0: none is.
    pub(crate) mmap_from: u64,
    /// Prints a line at start and one at exit.
    pub(crate) verbose: bool,
    /// The programs that are recorded, by their names without folders, with commas between them;
    /// `None`: all.
    pub(crate) only: Option<String>,
    /// `HEAPPROFILE`: prefix of all files, with a slash at its end if it means a folder. Dumps are
    /// written only if it is set.
    pub(crate) prefix: Option<Vec<u8>>,
    /// True if `HEAPPROFILE` has gperftools' flag: the program is the child of a profiled one.
    pub(crate) is_profiled_child: bool,
    /// `HEAPPROF_FOLDER`: the folder in which `heapprof run` was started. A relative path begins
    /// there, in whichever folder a process of the run begins.
    pub(crate) folder_of_run: Option<Vec<u8>>,
    /// The program's folder at its start, from which paths are resolved, in forked children too.
    /// `None`: outside the root, or deleted.
    pub(crate) folder: Option<Vec<u8>>,
    /// Bytes allocated between dumps; 0: no such dumps.
    pub(crate) dump_allocated: u64,
    /// Bytes freed between dumps; 0: no such dumps.
    pub(crate) dump_freed: u64,
    /// Bytes by which a dump's in-use total exceeds the last high-water mark; 0: no such dumps.
    pub(crate) dump_in_use: u64,
    /// Seconds between dumps; 0: no such dumps.
    pub(crate) dump_seconds: u64,
    /// Signal that requests a dump; 0: none.
    pub(crate) dump_signal: i32,
    /// Most samples a second, to which the budget adjusts the interval; 0: no budget.
    pub(crate) max_samples_per_sec: u64,
    /// Size in bytes from which every block is recorded; 0: size alone records none.
    pub(crate) record_over: u64,
    /// Most distinct values of a label's key.
    pub(crate) label_values: u32,
    /// Records nothing until a request starts the recording.
    pub(crate) start_paused: bool,
    /// True if allocators inside of the program are tapped.
    pub(crate) taps: bool,
    /// True if the frames of Python functions are read.
    pub(crate) python: bool,
    /// The functions of an allocator that the user names, as `HEAPPROF_TAP` has them.
    pub(crate) named_taps: Option<String>,
    /// The allocators that were tapped at boot, in words.
    pub(crate) tapped: Vec<String>,
    /// The log's path without its ending, from the folder on. A path that ends with a slash is that
    /// of a folder for a name of the program's. `None`: a name of the program's.
    pub(crate) log_name: Option<Vec<u8>>,
    /// True if recording began in a running process.
    pub(crate) is_attached: bool,
    /// When the writer listens to `heapprof ctl`: from the start, never, or (`None`) from the first
    /// sample.
    pub(crate) control: Option<bool>,
}

impl Settings {
    /// Reads all settings. Prints a line for each invalid one.
    pub(crate) fn read(environment: &Environment) -> Settings {
        let prefix = environment.value("HEAPPROFILE");
        let prefix = prefix.filter(|prefix| !prefix.is_empty());
        let unflagged = prefix.and_then(without_flag);
        // A path of a module, and the functions.
        let named_taps = environment.text(TAP).filter(|text| text.contains(':'));
        let (prefix, is_flagged) = (unflagged.as_deref().or(prefix), unflagged.is_some());
        let settings = Settings {
            interval: environment.bytes("HEAPPROF_SAMPLE_INTERVAL", DEFAULT_INTERVAL, MAX_INTERVAL),
            depth: environment.number(
                "HEAPPROF_STACK_DEPTH",
                512,
                "a number of frames from 1 to 2048",
                1..=2048,
            ) as u32,
            max_log: match environment.bytes("HEAPPROF_MAX_LOG", 0, u64::MAX) {
                n @ 1..MIN_MAX_LOG => {
                    say!(
                        "HEAPPROF_MAX_LOG={n} is too little for a log that rotates; using {MIN_MAX_LOG}"
                    );
                    MIN_MAX_LOG
                }
                n => n,
            },
            exit_wait_ms: environment.number(
                "HEAPPROF_EXIT_WAIT_MS",
                DEFAULT_EXIT_WAIT_MS,
                "a number of milliseconds up to an hour",
                0..=MAX_EXIT_WAIT_MS,
            ),
            memory_interval_ms: environment.number(
                "HEAPPROF_MEMORY_INTERVAL_MS",
                DEFAULT_MEMORY_INTERVAL_MS,
                "a number of milliseconds up to an hour",
                0..=MAX_EXIT_WAIT_MS,
            ),
            pages_interval_s: environment.number(
                "HEAPPROF_PAGES",
                0,
                "a number of seconds up to a day",
                0..=MAX_PAGES_INTERVAL_S,
            ),
            addresses: environment.flag("HEAPPROF_ADDRESSES"),
            mmap_from: environment.bytes("HEAPPROF_MMAP", DEFAULT_MMAP, MAX_INTERVAL),
            verbose: environment.flag("HEAPPROF_VERBOSE"),
            only: environment.text("HEAPPROF_ONLY"),
            prefix: prefix.map(files::folder_or_prefix),
            is_profiled_child: is_flagged,
            folder_of_run: (environment.value("HEAPPROF_FOLDER"))
                .filter(|folder| folder.starts_with(b"/"))
                .map(<[u8]>::to_vec),
            folder: sys::getcwd().ok().filter(|folder| folder.starts_with(b"/")),
            dump_allocated: environment.bytes(
                "HEAP_PROFILE_ALLOCATION_INTERVAL",
                1 << 30,
                u64::MAX,
            ),
            dump_freed: environment.bytes("HEAP_PROFILE_DEALLOCATION_INTERVAL", 0, u64::MAX),
            dump_in_use: environment.bytes("HEAP_PROFILE_INUSE_INTERVAL", 100 << 20, u64::MAX),
            dump_seconds: environment.number(
                "HEAP_PROFILE_TIME_INTERVAL",
                0,
                "a number of seconds",
                0..=u64::MAX / 1_000_000_000,
            ),
            dump_signal: environment.signal("HEAPPROFILESIGNAL"),
            max_samples_per_sec: environment.number(
                "HEAPPROF_MAX_SAMPLES_PER_SEC",
                0,
                "a number of samples a second",
                0..=1_000_000_000,
            ),
            record_over: environment.bytes("HEAPPROF_RECORD_OVER", 0, MAX_INTERVAL),
            label_values: environment.number(
                "HEAPPROF_LABEL_VALUES",
                DEFAULT_LABEL_VALUES,
                "a number of values of a label from 1 to 65536",
                1..=65_536,
            ) as u32,
            start_paused: environment.word("HEAPPROF_START", &["running", "paused"]) == 1,
            python: environment.choice(PYTHON, "on") != Some(false),
            taps: named_taps.is_some() || environment.choice(TAP, "on") != Some(false),
            named_taps,
            tapped: Vec::new(),
            log_name: None,
            is_attached: false,
            control: environment.choice("HEAPPROF_CONTROL", "listening from the first sample"),
        };
        // These two print a line if a value is invalid.
        let _ = environment.choice("HEAPPROF_FAST_PATH", "on");
        environment.word(ALLOCATOR, &[JEMALLOC, PROGRAM]);
        if !environment.flag(TOLD) {
            let names = [OTHERS, OF_GPERFTOOLS];
            environment.report_unknown(OURS, &NEAR, names);
        }
        settings
    }

    /// Returns true if requests are answered before the first sample.
    pub(crate) fn listens_from_the_start(&self) -> bool {
        self.control == Some(true) || self.start_paused && self.control.is_none()
    }

    /// Returns true if a program with one of these names is recorded.
    pub(crate) fn wants_program(&self, names: [&[u8]; 2]) -> bool {
        let wanted = |only: &str| {
            let mut wanted = only.split(',').map(|name| name.trim().as_bytes());
            wanted.any(|name| names.contains(&name))
        };
        self.only.as_deref().is_none_or(wanted)
    }

    /// Returns true if the account of the blocks in use is kept from the start.
    pub(crate) fn needs_ledger(&self) -> bool {
        self.prefix.is_some() || self.max_log > 0 || self.pages_interval_s > 0 || self.addresses
    }

    /// Returns the settings by their variables' names, for the log.
    pub(crate) fn listed(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("HEAPPROF_SAMPLE_INTERVAL", self.interval.to_string()),
            ("HEAPPROF_STACK_DEPTH", self.depth.to_string()),
        ];
        if self.max_samples_per_sec > 0 {
            let most = self.max_samples_per_sec.to_string();
            all.push(("HEAPPROF_MAX_SAMPLES_PER_SEC", most));
        }
        if self.record_over > 0 {
            all.push(("HEAPPROF_RECORD_OVER", self.record_over.to_string()));
        }
        if u64::from(self.label_values) != DEFAULT_LABEL_VALUES {
            let most = self.label_values.to_string();
            all.push(("HEAPPROF_LABEL_VALUES", most));
        }
        if self.start_paused {
            all.push(("HEAPPROF_START", "paused".to_owned()));
        }
        if let Some(control) = self.control {
            all.push(("HEAPPROF_CONTROL", u8::from(control).to_string()));
        }
        if self.exit_wait_ms != DEFAULT_EXIT_WAIT_MS {
            let most = self.exit_wait_ms.to_string();
            all.push(("HEAPPROF_EXIT_WAIT_MS", most));
        }
        if self.memory_interval_ms != DEFAULT_MEMORY_INTERVAL_MS {
            let interval = self.memory_interval_ms.to_string();
            all.push(("HEAPPROF_MEMORY_INTERVAL_MS", interval));
        }
        if self.pages_interval_s > 0 {
            all.push(("HEAPPROF_PAGES", self.pages_interval_s.to_string()));
        }
        if self.addresses {
            all.push(("HEAPPROF_ADDRESSES", "1".to_owned()));
        }
        if self.mmap_from != DEFAULT_MMAP {
            all.push(("HEAPPROF_MMAP", self.mmap_from.to_string()));
        }
        if let Some(only) = &self.only {
            all.push(("HEAPPROF_ONLY", only.clone()));
        }
        if self.max_log > 0 {
            all.push(("HEAPPROF_MAX_LOG", self.max_log.to_string()));
        }
        if !self.python {
            all.push((PYTHON, "0".to_owned()));
        }
        if !self.taps {
            all.push((TAP, "0".to_owned()));
        }
        if let Some(named) = &self.named_taps {
            all.push((TAP, named.clone()));
        }
        if self.is_attached {
            all.push((ATTACHED, "1".to_owned()));
        }
        all.extend(self.tapped.iter().map(|what| (TAPPED, what.clone())));
        if let Some(prefix) = &self.prefix {
            all.extend([
                ("HEAPPROFILE", String::from_utf8_lossy(prefix).into_owned()),
                (
                    "HEAP_PROFILE_ALLOCATION_INTERVAL",
                    self.dump_allocated.to_string(),
                ),
                (
                    "HEAP_PROFILE_DEALLOCATION_INTERVAL",
                    self.dump_freed.to_string(),
                ),
                ("HEAP_PROFILE_INUSE_INTERVAL", self.dump_in_use.to_string()),
                ("HEAP_PROFILE_TIME_INTERVAL", self.dump_seconds.to_string()),
                ("HEAPPROFILESIGNAL", self.dump_signal.to_string()),
            ]);
        }
        all.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// Returns the prefix without gperftools' flag, or `None` if there is no flag. A program with
/// gperftools in it sets the highest bit of the first byte of `HEAPPROFILE` for its children, so
/// that they add their process ids. A path in UTF-8 may have such a byte, but not alone.
fn without_flag(prefix: &[u8]) -> Option<Vec<u8>> {
    let (&first, rest) = prefix.split_first()?;
    let is_flagged = first & FLAG != 0 && std::str::from_utf8(prefix).is_err();
    is_flagged.then(|| [&[first & !FLAG], rest].concat())
}

/// See [`without_flag`].
const FLAG: u8 = 1 << 7;
