//! The settings: environment variables, read once at boot.
//!
//! gperftools' names keep their meanings and defaults; ours begin with `HEAPPROF_`.

use crate::os::diagnostics::say;
use crate::os::environment::Environment;
use crate::os::sys;

/// No interval is longer: a terabyte between samples. Readers take more for a damaged log.
pub(crate) const MAX_INTERVAL: u64 = 1 << 40;

/// Mean sampling interval in bytes when nothing else is said: that of jemalloc and Go.
const DEFAULT_INTERVAL: u64 = 512 << 10;
/// The end of a program waits for us at most so many milliseconds, unless it is told to wait longer.
const DEFAULT_EXIT_WAIT_MS: u64 = 100;
/// An hour.
const MAX_EXIT_WAIT_MS: u64 = 3_600_000;
/// Segments of a quarter of it must hold the modules of a program and some stacks.
const MIN_MAX_LOG: u64 = 64 << 10;

/// With what our own names begin.
const OURS: &str = "HEAPPROF_";
/// The `heapprof` program's.
const OTHERS: &[&str] = &["HEAPPROF_LIBRARY"];

/// Returns false if `HEAPPROF_FAST_PATH=0` leaves every allocation to the allocator's own functions. Asked
/// before the other settings are read.
pub(crate) fn uses_fast_path(environment: &Environment) -> bool {
    environment.get("HEAPPROF_FAST_PATH") != Some(b"0")
}

/// What is in force.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Mean sampling interval in bytes; 1: every allocation; 0: none, we are an allocator only.
    pub(crate) interval: u64,
    /// Most frames of a stack, the allocation function's not counted.
    pub(crate) depth: u32,
    /// Most bytes of log, all segments together; 0: one log without a bound.
    pub(crate) max_log: u64,
    /// The end of the program waits for the last records and the last dump at most that long, in milliseconds.
    pub(crate) exit_wait_ms: u64,
    /// A line at start and one at exit.
    pub(crate) verbose: bool,
    /// `HEAPPROFILE`: where files go. Dumps are written only when it is set.
    pub(crate) prefix: Option<Vec<u8>>,
    /// Where the program started: what paths are meant from, in its forked children too. `None`: outside the root, or gone.
    pub(crate) folder: Option<Vec<u8>>,
    /// A dump every so many bytes allocated; 0: none.
    pub(crate) dump_allocated: u64,
    /// A dump every so many bytes freed; 0: none.
    pub(crate) dump_freed: u64,
    /// A dump whenever in-use bytes exceed the last high-water mark by that; 0: none.
    pub(crate) dump_in_use: u64,
    /// A dump every so many seconds; 0: none.
    pub(crate) dump_seconds: u64,
    /// A dump on this signal; 0: none.
    pub(crate) dump_signal: i32,
    /// Samples a second that the interval is to keep to; 0: no budget.
    pub(crate) max_samples_per_sec: u64,
    /// Blocks of at least so many bytes are all recorded; 0: none for its size.
    pub(crate) record_over: u64,
    /// Nothing is recorded until somebody starts it.
    pub(crate) start_paused: bool,
    /// Whether `heapprof ctl` is listened to: from the start, never, or (`None`) from the first sample.
    pub(crate) control: Option<bool>,
}

impl Settings {
    /// Reads them all, with a line for each that makes no sense.
    pub(crate) fn read(environment: &Environment) -> Settings {
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
            verbose: environment.flag("HEAPPROF_VERBOSE"),
            prefix: environment
                .get("HEAPPROFILE")
                .filter(|prefix| !prefix.is_empty())
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
            start_paused: environment.is_paused("HEAPPROF_START"),
            control: environment.choice("HEAPPROF_CONTROL", "listening from the first sample"),
        };
        let _ = environment.choice("HEAPPROF_FAST_PATH", "on"); // a line, if it makes no sense
        environment.refuse_rest(OURS, OTHERS);
        settings
    }

    /// Whether somebody may ask before there is a sample.
    pub(crate) fn listens_from_the_start(&self) -> bool {
        self.control == Some(true) || self.start_paused && self.control.is_none()
    }

    /// By the names of their variables, for the log.
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
        if self.max_log > 0 {
            all.push(("HEAPPROF_MAX_LOG", self.max_log.to_string()));
        }
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
