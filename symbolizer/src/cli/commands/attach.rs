//! `heapprof attach`: records a process that runs already, until it is detached.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heapprof_symbolizer::Printable;
use heapprof_symbolizer::attach::{
    self, AttachRequest, AttachedRecording, RecordingState, Refusal,
};
use heapprof_symbolizer::control::Attached;

use crate::cli::inputs::signals::Signals;
use crate::cli::options::{quantity, taps};
use crate::cli::output::detached::{check_end, check_log, milliseconds, tell_end};
use crate::cli::output::failure::Failure;

const AFTER: &str = "\
All numbers are since heapprof was attached: blocks that were allocated before are unknown, and
their frees change nothing. The log is written by the process, so its user must be permitted to write
there. A forked child of the process is not recorded.

It works on 64-bit x86 programs of glibc 2.34 and later, linked dynamically, for the user of the
process (if the system permits tracing) and for root. Nothing is sent to the process; its threads
are stopped twice, for some milliseconds. If this program is killed, the process and the recording
go on; heapprof detach ends the recording.";

/// Record a process that runs already
///
/// Loads a library into the process, and lets each call of malloc, free and their relatives pass
/// it. Ctrl-C, --for or heapprof detach end the recording and restore the process's code.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = quantity::pid, allow_negative_numbers = true)]
    pid: u32,

    /// Mean number of bytes between two samples, such as 64KiB; 1 records every allocation
    /// [default: 524288; the process's own if it runs under libheapprof.so]
    #[arg(
        short, long, value_name = "BYTES", value_parser = quantity::bytes,
        allow_negative_numbers = true
    )]
    interval: Option<u64>,

    /// Begin the log's name so: PREFIX.heaplog; in a folder that exists, its name is the default
    /// [default: ./heapprof.PROGRAM.PID]
    #[arg(short = 'o', long, value_name = "PREFIX", visible_alias = "output")]
    prefix: Option<PathBuf>,

    /// Also record an allocator of the program's own by its functions; MODULE is the name of a
    /// library's file, or of the program's. KIND is malloc, calloc, realloc, free, memalign,
    /// posix_memalign or malloc_usable_size. May be given several times
    #[arg(long, value_name = taps::SYNTAX, value_parser = taps::parse)]
    tap: Vec<String>,

    /// Detach after that time, such as 60s [default: when Ctrl-C is pressed]
    #[arg(long = "for", value_name = "TIME", value_parser = quantity::time, allow_negative_numbers = true)]
    time: Option<u64>,

    /// Return as soon as the recording has begun; heapprof detach ends it
    #[arg(long, conflicts_with = "time")]
    leave: bool,
}

/// Mean number of bytes between two samples by default: as that of the preloaded library.
const INTERVAL: u64 = 512 << 10;
/// Most frames of a stack.
const DEPTH: u32 = 512;
/// The time between two looks at the process.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let refused = |why| Failure::Refused { pid: args.pid, why };
    let signals = Signals::block();
    let request = AttachRequest {
        interval: args.interval.unwrap_or(INTERVAL),
        depth: DEPTH,
        folder: folder(args.pid),
        name: prefix(args.prefix.as_deref()),
        taps: taps::joined(&args.tap).unwrap_or_default(),
        library: library()?,
    };
    let recording = match attach::attach(args.pid, &request) {
        Ok(recording) => recording,
        Err(Refusal::Because(why)) => return Err(refused(why)),
        Err(Refusal::Preloaded) => return start(args).map_err(refused),
    };
    tell(args.pid, &recording);
    if args.leave {
        return Ok(());
    }
    let end = args
        .time
        .map(|ns| Instant::now() + Duration::from_nanos(ns));
    let why = match wait(&signals, &recording, end) {
        RecordingState::Active => None,
        RecordingState::Ended => Some("was detached by another heapprof"),
        RecordingState::Gone if Path::new(&format!("/proc/{}/maps", args.pid)).exists() => {
            Some("has executed another program, which is not recorded")
        }
        RecordingState::Gone => Some("has ended"),
    };
    if let Some(why) = why {
        let log = Printable(&recording.log);
        eprintln!("heapprof: process {} {why}; log: {log}", args.pid);
        return check_log(args.pid, &recording.log);
    }
    match attach::detach(args.pid) {
        Ok(ended) => {
            tell_end(args.pid, &ended);
            check_end(args.pid, &ended)
        }
        Err(Refusal::Because(why)) => Err(refused(why)),
        Err(Refusal::Preloaded) => Ok(()),
    }
}

fn tell(pid: u32, recording: &AttachedRecording) {
    eprintln!(
        "heapprof: attached to process {pid}: {} functions; its {} threads were stopped for {}, \
         and one of them before that for {}; recording to {}",
        recording.functions,
        recording.threads,
        milliseconds(recording.stopped),
        milliseconds(recording.borrowed),
        Printable(&recording.log)
    );
}

/// Waits for a signal, the end of the time, or the end of the recording. Returns what has become of
/// the recording.
fn wait(signals: &Signals, recording: &AttachedRecording, end: Option<Instant>) -> RecordingState {
    loop {
        let look = Instant::now() + LOOK;
        let until = end.map_or(look, |end| end.min(look));
        let has_come = signals.came_before(until);
        recording.release_late_threads();
        let state = recording.state();
        let is_asked = has_come || end.is_some_and(|end| Instant::now() >= end);
        if is_asked || state != RecordingState::Active {
            return state;
        }
    }
}

/// Starts the recording of a process that runs under the preloaded library.
fn start(args: &Args) -> Result<(), String> {
    let process = Attached::to(args.pid).map_err(|why| {
        format!("it runs under libheapprof.so, which records it from its start if nobody has stopped that: {why}")
    })?;
    if let Some(interval) = args.interval {
        process.ask(&format!("interval {interval}"))?;
    }
    let answer = process.ask("start")?;
    eprintln!(
        "heapprof: process {} runs under libheapprof.so already: {}; heapprof ctl {} stop ends that",
        args.pid,
        Printable(&answer),
        args.pid
    );
    let is_set = [
        ("--for", args.time.is_some()),
        ("-o", args.prefix.is_some()),
        ("--tap", !args.tap.is_empty()),
    ];
    let without_effect: Vec<_> = (is_set.iter())
        .filter_map(|&(name, is_set)| is_set.then_some(name))
        .collect();
    if !without_effect.is_empty() {
        eprintln!(
            "heapprof: without effect there: {}; its own log goes on, which heapprof ctl {} status names",
            without_effect.join(", "),
            args.pid
        );
    }
    Ok(())
}

/// Returns the folder for the log as the process sees it: this one, or its own if it does not see
/// the same files.
fn folder(pid: u32) -> PathBuf {
    let link =
        |process: &str, name: &str| std::fs::read_link(format!("/proc/{process}/{name}")).ok();
    let same = |name: &str| link(&pid.to_string(), name) == link("self", name);
    let own = std::env::current_dir()
        .ok()
        .filter(|_| same("ns/mnt") && same("root"));
    let its = || link(&pid.to_string(), "cwd");
    own.or_else(its).unwrap_or_else(|| PathBuf::from("/"))
}

/// Returns the log's path without its ending, or its folder with a slash.
fn prefix(prefix: Option<&Path>) -> Vec<u8> {
    prefix.map_or_else(Vec::new, |path| {
        let path = match path.is_dir() {
            true => path.join(""),
            false => path.to_owned(),
        };
        path.into_os_string().into_encoded_bytes()
    })
}

/// Finds the library: beside libheapprof.so if that is named, or beside this program.
fn library() -> Result<PathBuf, Failure> {
    const NAMES: [&str; 2] = ["libheapprof-attach.so", "libheapprof_attach.so"];
    const FOLDERS: [&str; 4] = ["", "../lib", "../lib64", "../lib/x86_64-linux-gnu"];
    let named = std::env::var_os("HEAPPROF_LIBRARY").filter(|path| !path.is_empty());
    let beside = match named {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe().map_err(Failure::NoProc)?,
    };
    let folder = beside.parent().unwrap_or(Path::new("/"));
    let paths =
        (FOLDERS.iter()).flat_map(|sub| NAMES.iter().map(move |name| folder.join(sub).join(name)));
    let mut files = paths.filter(|path| path.is_file());
    files.next().ok_or_else(|| {
        Failure::Unfulfilled(format!(
            "{} was not found beside {}, nor in ../lib, ../lib64 or ../lib/x86_64-linux-gnu",
            NAMES[0],
            beside.display()
        ))
    })
}
