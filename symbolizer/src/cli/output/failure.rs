//! Failure: the reason why a command could not do its work, and its exit status. `say` shows it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use heapprof_symbolizer::{InputError, Printable};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("cannot write to standard output")]
    Stdout(#[source] io::Error),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write a temporary file in {}; TMPDIR names another folder", folder.display())]
    Temporary { folder: PathBuf, source: io::Error },
    #[error("cannot write {}: it is {}, which is read; give -o another name", path.display(), input.display())]
    OverInput { path: PathBuf, input: PathBuf },
    #[error("cannot write {}: it is a record log, which nothing could bring back; give -o another name", path.display())]
    OverLog { path: PathBuf },
    #[error("cannot write {}: {what} is there, and that name is only the default; give -o a name", path.display())]
    OverSpecial { path: PathBuf, what: &'static str },
    #[error("{} exists and is not {what}; name it with -o to replace it, or give -o another name", path.display())]
    OverForeign { path: PathBuf, what: &'static str },
    #[error("{} exists{}; give -o another name, or --overwrite", path.display(), and_more(*more))]
    Exists { path: PathBuf, more: usize },
    #[error("nothing was run, since no log can be made in the folder {}; {}", folder.display(), way_out(*is_missing))]
    NoRoomForLog {
        folder: PathBuf,
        is_missing: bool,
        source: io::Error,
    },
    #[error("cannot remove {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("{format} is binary and standard output is a terminal; use -o FILE, or a pipe")]
    BinaryOnTerminal { format: &'static str },
    #[error(
        "libheapprof.so for programs of {libc} was not found beside {}, nor in ../lib, ../lib64, ../lib/x86_64-linux-gnu or ../lib/x86_64-linux-musl; `cargo install` brings heapprof alone: copy the library there, or set HEAPPROF_LIBRARY to its path",
        beside.display()
    )]
    NoLibrary { libc: &'static str, beside: PathBuf },
    #[error("{} is for programs of another C library than {libc}, which this one is linked with; set HEAPPROF_LIBRARY to that for {libc}, or leave it unset", path.display())]
    OtherLibrary { path: PathBuf, libc: &'static str },
    #[error(
        "where heapprof itself lies, and libheapprof.so beside it, cannot be told without /proc; set HEAPPROF_LIBRARY to the library's path"
    )]
    NoProc(#[source] std::io::Error),
    #[error("HEAPPROF_LIBRARY={}: there is no such file; it is the path of libheapprof.so, and need not be set where that lies beside heapprof", path.display())]
    NamedLibrary { path: PathBuf },
    #[error("{} cannot be preloaded: its path holds a space or a colon, where LD_PRELOAD is split; move it, or set HEAPPROF_LIBRARY", path.display())]
    LibraryPath { path: PathBuf },
    #[error(
        "cannot profile {}: its loader does not find {missing}, which {} needs, and would end the program; install what is missing, or copy it into a folder of LD_LIBRARY_PATH (docs/guide.md, Docker)",
        program.display(),
        library.display()
    )]
    MissingLibraries {
        program: PathBuf,
        library: PathBuf,
        missing: String,
    },
    #[error("cannot profile {}: {why}", program.display())]
    Program { program: PathBuf, why: &'static str },
    #[error("there is no command {command}; `heapprof --help` lists them")]
    NoSuchCommand { command: String },
    #[error("process {pid}{}: {why}", in_brackets(*pid))]
    Refused { pid: u32, why: String },
    /// The request cannot be fulfilled.
    #[error("{0}")]
    Unfulfilled(String),
    /// The command line makes no sense, whatever the input is.
    #[error("{0}")]
    Senseless(String),
    #[error("{0}")]
    Exceeded(String),
    #[error(
        "cannot judge the limit: {}; --allow-inconclusive lets that pass",
        Printable(.0)
    )]
    Inconclusive(String),
    #[error("cannot start {}", program.display())]
    Start { program: PathBuf, source: io::Error },
}

fn way_out(is_missing: bool) -> &'static str {
    match is_missing {
        true => "make the folder, or name another one with -o FOLDER/NAME",
        false => "name another one with -o FOLDER/NAME",
    }
}

/// Returns the name of a process's program; `None`: there is no such process.
pub(crate) fn program_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn in_brackets(pid: u32) -> String {
    program_of(pid).map_or_else(String::new, |name| format!(" ({name})"))
}

fn and_more(files: usize) -> String {
    match files {
        0 => String::new(),
        n => format!(", and {n} more files of that prefix"),
    }
}

impl Failure {
    /// Returns the exit status of the program.
    pub(crate) fn status(&self) -> ExitCode {
        match self {
            Failure::Senseless(_) => ExitCode::from(2),
            Failure::Exceeded(_) => ExitCode::from(3),
            Failure::Inconclusive(_) => ExitCode::from(4),
            _ => ExitCode::FAILURE,
        }
    }

    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
