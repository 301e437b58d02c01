//! `heapprof run`: runs a program under the profiler, and prints a summary at its end.

mod crash;
mod gate;
mod large_logs;
mod library;
mod needed;
mod paths;
mod prefix;
mod program;
mod records;
mod signals;
mod still_running;
mod summary;
mod unrecorded;
mod unsampled;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::SystemTime;

use heapprof_symbolizer::Limit;
use heapprof_symbolizer::resolve::is_tapped;

use crate::cli::options::limit;
use crate::cli::options::measure::SumArg;
use crate::cli::options::quantity::interval;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::options::taps;
use crate::cli::options::variables;
use crate::cli::output::failure::Failure;
use crate::cli::output::{memory_bound, say};
use paths::PrintLog;
use prefix::Prefix;
use program::Program;
use records::Records;
use still_running::{Mark, Since, StillRunning};
use unrecorded::MostResident;
use unsampled::Unsampled;

/// How it ends.
const EXIT_STATUS: &str = "\
Exit status: the program's, or its signal; 127, there is no such program; 126, it cannot be run;
1, it cannot be profiled, or no log can be made, or files with the prefix exist; 2, the command line makes no sense; if the
program succeeds, 3, it is above --fail-above, and 4, that cannot be judged.";

/// The variables, and how it ends.
fn more_help() -> String {
    format!("{}\n\n{EXIT_STATUS}", variables::LIST)
}

/// Run a program under the profiler
///
/// Its output and exit status are its own. Afterwards, standard error says where the files are and
/// which five sites hold, or allocated, the most.
#[derive(Debug, clap::Args)]
#[command(override_usage = "heapprof run [OPTIONS] -- PROGRAM [ARGS]...", after_long_help = more_help())]
pub(crate) struct Args {
    /// Mean number of bytes between two samples, such as 64KiB; 1 records every allocation, 0 none
    /// [default: 524288]
    #[arg(short, long, value_name = "BYTES", value_parser = interval, allow_negative_numbers = true)]
    interval: Option<u64>,

    /// Begin the names of files with PREFIX, and also write gperftools dumps: PREFIX.heaplog,
    /// PREFIX.0001.heap, …; of programs that the program starts, PREFIX_PID.PROGRAM.heaplog, …; in
    /// a folder that exists, FOLDER/heapprof.PROGRAM.PID.heaplog, … [default:
    /// ./heapprof.PROGRAM.PID.heaplog and no dumps]
    #[arg(short = 'o', long, value_name = "PREFIX", visible_alias = "output")]
    prefix: Option<PathBuf>,

    /// The allocator that serves the program: heapprof's jemalloc, or the program's own
    /// [default: jemalloc; program if it calls functions that only its own allocator has]
    #[arg(long, value_name = "ALLOCATOR")]
    allocator: Option<Allocator>,

    /// Also record an allocator of the program's own by its functions, as HEAPPROF_TAP names them;
    /// may be given several times
    #[arg(long, value_name = taps::SYNTAX, value_parser = taps::parse)]
    tap: Vec<String>,

    /// Replace the files of an earlier run with that prefix, instead of ending with status 1 if
    /// there are any
    #[arg(long, requires = "prefix")]
    overwrite: bool,

    /// Exit with status 3 if the program succeeds and the metric of all processes together is more
    /// than this, as in `heapprof top --fail-above`; with 4 if it cannot be judged
    #[arg(long, value_name = "AMOUNT", value_parser = limit::amount, allow_hyphen_values = true)]
    fail_above: Option<Limit>,

    /// The number that is limited
    #[arg(
        short,
        long,
        value_name = "METRIC",
        default_value = "peak",
        requires = "fail_above",
        hide_possible_values = true
    )]
    metric: SumArg,

    /// Exit with the program's status if the limit cannot be judged
    #[arg(long, requires = "fail_above")]
    allow_inconclusive: bool,

    /// Print what was written, behind the program's output: the path of the program's log, the
    /// paths of all logs, or all files in JSON
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "program"
    )]
    print_log: Option<PrintLog>,

    /// Record only the programs with these names (without folders), of all that the program starts
    #[arg(long, value_name = "NAME,…", value_parser = programs)]
    only: Option<String>,

    /// Keep the files of processes that ended and never had a sample, which are counted and removed
    /// otherwise
    #[arg(long)]
    keep_unsampled: bool,

    /// Do not compress logs of 16 MiB and more when all has ended
    #[arg(long)]
    no_compress: bool,

    /// Do not write LOG.names, the file beside a log that keeps its names for the time after a
    /// rebuild
    #[arg(long)]
    no_kept_names: bool,

    /// Print a line of the profiler at its start and at its end
    #[arg(short, long)]
    verbose: bool,

    /// Say nothing at the end
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// The allocator that serves the program.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Allocator {
    /// heapprof's jemalloc
    Jemalloc,
    /// The one that serves the program without heapprof
    Program,
}

impl Allocator {
    /// The value of the library's variable.
    fn value(self) -> &'static str {
        match self {
            Allocator::Jemalloc => "jemalloc",
            Allocator::Program => "program",
        }
    }
}

/// Parses the names of `--only`.
fn programs(text: &str) -> Result<String, String> {
    let is_name = |name: &str| !name.trim().is_empty() && !name.contains('/');
    match text.split(',').all(is_name) {
        true => Ok(text.to_owned()),
        false => Err("wanted are names without folders, with commas between them".into()),
    }
}

/// As shells say it: a program that is there and cannot be run, and one that is not there.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let [name, words @ ..] = &args.command[..] else {
        return Ok(ExitCode::FAILURE);
    };
    let path = match program::find(name) {
        Ok(path) => path,
        Err(error) => {
            say::note(&format_args!("{}: {error}", name.display()));
            let code = if error.is_missing() {
                NOT_FOUND
            } else {
                NOT_EXECUTABLE
            };
            return Ok(ExitCode::from(code));
        }
    };
    let program = Program::inspect(&path);
    if let Some(why) = program.obstacle() {
        return Err(Failure::Program { program: path, why });
    }
    let taps_are_off =
        args.tap.is_empty() && std::env::var_os("HEAPPROF_TAP").is_some_and(|value| value == "0");
    if let Some(allocator) = program
        .own_allocator()
        .filter(|allocator| taps_are_off || !is_tapped(allocator))
    {
        say::note(&format_args!(
            "warning: {} brings its own allocator ({allocator}): what it allocates there will not be seen",
            program.path().display()
        ));
    }
    if let Some(allocator) = program.stripped_allocator() {
        say::note(&format_args!(
            "warning: {} seems to have {allocator} inside, and its symbols are stripped: what it allocates there is not seen, unless its debug file is installed (by build-id); or keep its symbols (`strip --strip-debug`)",
            program.path().display()
        ));
    }
    let library = library::find(program.libc())?;
    let preload = preload(&library);
    let missing = needed::missing(&program, words, &library, &preload);
    if !missing.is_empty() {
        return Err(Failure::MissingLibraries {
            program: path,
            library,
            missing: missing.join(", "),
        });
    }

    let named = args.prefix.as_deref().map(Prefix::named);
    if let Some(prefix) = &named {
        prefix.make_way(args.overwrite)?;
    }
    let set = || std::env::var_os("HEAPPROFILE").filter(|prefix| !prefix.is_empty());
    let prefix = named.or_else(|| Some(Prefix::of(Path::new(&set()?))));
    match &prefix {
        Some(prefix) => prefix.try_out()?,
        None => Prefix::none().try_out()?,
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(words).env("LD_PRELOAD", preload);
    let mark = Mark::new();
    mark.set(&mut command);
    // A process of the run may begin in another folder.
    if let Ok(folder) = std::env::current_dir() {
        command.env("HEAPPROF_FOLDER", folder);
    }
    for line in variables::misspelt(std::env::vars_os().map(|(name, _)| name)) {
        say::note(&line);
        // Else each process that the program starts says it again.
        command.env("HEAPPROF_TOLD", "1");
    }
    if let Some(interval) = args.interval {
        command.env("HEAPPROF_SAMPLE_INTERVAL", interval.to_string());
    }
    if let Some(prefix) = &prefix {
        command.env("HEAPPROFILE", prefix.path());
    }
    if let Some(allocator) = args.allocator {
        command.env("HEAPPROF_ALLOCATOR", allocator.value());
    }
    if let Some(taps) = taps::joined(&args.tap) {
        command.env("HEAPPROF_TAP", taps);
    }
    if let Some(only) = &args.only {
        command.env("HEAPPROF_ONLY", only);
    }
    if args.verbose {
        command.env("HEAPPROF_VERBOSE", "1");
    }
    if std::env::var_os("LD_AUDIT").is_some_and(|auditors| !auditors.is_empty()) {
        command.env(TUNABLES, with_room_for_us(std::env::var_os(TUNABLES)));
    }
    // Blocked before the child exists, so that none is missed in between.
    let forwarder = signals::Forwarder::block();
    forwarder.unblock_in(&mut command);
    let started = SystemTime::now();
    let resident = MostResident::at_start();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            say::note(&format_args!("{}: {error}", name.display()));
            return Ok(ExitCode::from(NOT_EXECUTABLE));
        }
        Err(source) => {
            return Err(Failure::Start {
                program: path,
                source,
            });
        }
    };
    let pid = child.id();
    let since = Since::start_of(pid, mark);
    forwarder.forward_to(pid);
    forwarder.wait(pid);
    let status = child.wait().map_err(|source| Failure::Start {
        program: path.clone(),
        source,
    })?;

    // With --only, some processes are meant to have no log.
    let resident = args.only.is_none().then(|| resident.at_end());
    let still_running = match args.only {
        None => since.find(),
        Some(_) => StillRunning::default(),
    };
    let others = (resident, &still_running);
    let mut records = Records::find(prefix.as_ref().map(Prefix::place), pid, started);
    let unsampled = match args.keep_unsampled {
        true => Unsampled::default(),
        false => Unsampled::take(&mut records),
    };
    memory_bound::keep_status(as_shells_say(status));
    let places = SymbolArgs::keeping_names(!args.no_kept_names);
    match args.quiet {
        false => {
            summary::show(&records, &unsampled, others, &places);
            crash::advise(status.signal(), records.log.as_deref());
        }
        true if !args.no_kept_names => summary::keep_names(&records, &unsampled, &places),
        true => {}
    }
    let judged = judge(args, &records, &unsampled, status, others);
    // The numbers above are of all processes.
    unsampled.remove();
    if !args.no_compress {
        large_logs::compress(&records, args.quiet);
    }
    judged?;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(ExitCode::from(code as u8)),
        (None, Some(signal)) => Ok(signals::die_of(signal)),
        (None, None) => Ok(ExitCode::FAILURE),
    }
}

/// Prints the paths that are asked for, and checks the limit.
fn judge(
    args: &Args,
    records: &Records,
    unsampled: &Unsampled,
    status: ExitStatus,
    others: (Option<MostResident>, &StillRunning),
) -> Result<(), Failure> {
    if let Some(what) = args.print_log {
        paths::print(what, records, unsampled, as_shells_say(status))?;
    }
    match args.fail_above {
        Some(limit) if status.success() => gate::check(records, unsampled, others, (args, limit)),
        _ => Ok(()),
    }
}

/// A status as one number: a signal's behind those of programs.
fn as_shells_say(status: ExitStatus) -> u8 {
    let of_signal = || 128 + status.signal().unwrap_or(0) as u8;
    status.code().map_or_else(of_signal, |code| code as u8)
}

/// Ours comes first: another allocator that is preloaded would answer in our place.
fn preload(library: &Path) -> OsString {
    let mut value = library::named(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}

/// glibc's settings for its loader, and others.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// Under `LD_AUDIT` the loader lays out thread-local memory before it knows the libraries, with so
/// much left for them. The 512 bytes that it leaves by itself are too few for any allocator but the
/// smallest: the program would not start.
fn with_room_for_us(tunables: Option<OsString>) -> OsString {
    const ROOM: &str = "glibc.rtld.optional_static_tls";
    let mut all = tunables.unwrap_or_default();
    if !all.to_string_lossy().contains(ROOM) {
        if !all.is_empty() {
            all.push(":");
        }
        all.push(format!("{ROOM}=4096"));
    }
    all
}
