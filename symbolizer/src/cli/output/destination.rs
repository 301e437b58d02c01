//! Destination: standard output, or a file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{Input, RegularFile, is_log_file};

use crate::cli::output::failure::Failure;
use crate::cli::output::partial_file::Unfinished;

/// Where an output goes, as the command line says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination<'a> {
    /// Standard output.
    Stdout,
    /// The file that `-o` names: over links, into pipes and devices, as the user wants it.
    Named(&'a Path),
    /// A file under a name that nobody typed. In a folder that others may write to, another user
    /// may have planted a link of that name to a file of ours. So the name itself is given to a new
    /// file, or the output is refused.
    Default(&'a Path),
}

impl<'a> Destination<'a> {
    /// Returns the meaning of `-o`: standard output if it is `-` or absent. A file called `-` is
    /// `./-`.
    pub(crate) fn of(output: Option<&'a PathBuf>) -> Destination<'a> {
        match output {
            Some(path) if path != Path::new("-") => Destination::Named(path),
            _ => Destination::Stdout,
        }
    }

    /// Returns the meaning of `-o` for a command with a default file.
    pub(crate) fn or(output: Option<&'a PathBuf>, default: &'a Path) -> Destination<'a> {
        match output {
            None => Destination::Default(default),
            output => Destination::of(output),
        }
    }

    /// The file's name, if it is one.
    pub(crate) fn path(self) -> Option<&'a Path> {
        match self {
            Destination::Stdout => None,
            Destination::Named(path) | Destination::Default(path) => Some(path),
        }
    }

    /// Refuses an output that would take an input's place: there may be no other recording of that
    /// run. Called before reading, which may take long.
    pub(crate) fn refuse_input<'i>(
        self,
        inputs: impl IntoIterator<Item = &'i PathBuf>,
    ) -> Result<(), Failure> {
        let file = |path: &Path| {
            let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
            Some((meta.dev(), meta.ino()))
        };
        let Some(out) = self.path() else {
            return Ok(());
        };
        let is_out = |input: &&PathBuf| file(input).is_some() && file(input) == file(out);
        match inputs.into_iter().find(is_out) {
            Some(input) => Err(Failure::OverInput {
                path: out.into(),
                input: input.clone(),
            }),
            None => self.refuse_what_is_there(),
        }
    }

    /// Refuses to replace a file under a default name, unless `may_go` says that it is `what` the
    /// command makes: nobody has said that the file may go.
    pub(crate) fn refuse_foreign(
        self,
        what: &'static str,
        may_go: impl FnOnce(&Path) -> Option<bool>,
    ) -> Result<(), Failure> {
        match self {
            Destination::Default(path) if path.exists() && may_go(path) != Some(true) => {
                Err(Failure::OverForeign {
                    path: path.into(),
                    what,
                })
            }
            _ => Ok(()),
        }
    }

    /// Refuses what would fill a terminal with what nobody can read.
    pub(crate) fn refuse_terminal(self, what: &'static str) -> Result<(), Failure> {
        match self.path().is_none() && io::stdout().is_terminal() {
            true => Err(Failure::BinaryOnTerminal { format: what }),
            false => Ok(()),
        }
    }

    /// Refuses to replace a recording. Under a default name, refuses everything but a file.
    fn refuse_what_is_there(self) -> Result<(), Failure> {
        match self {
            Destination::Stdout => Ok(()),
            Destination::Named(path) => refuse_log(path),
            Destination::Default(path) => match fs::symlink_metadata(path) {
                Ok(meta) if !meta.is_file() => Err(Failure::OverSpecial {
                    path: path.into(),
                    what: kind(meta.file_type()),
                }),
                _ => refuse_log(path),
            },
        }
    }

    /// Calls `write` with the file, or with standard output.
    ///
    /// A file gets its name when it is whole: a failure or an interrupt leaves the old file as it
    /// is. A record log is never replaced.
    pub(crate) fn write(
        self,
        write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let Some(path) = self.path() else {
            let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(Box::new(io::stdout().lock()));
            return write(&mut out)
                .and_then(|()| out.flush())
                .map_err(Failure::Stdout);
        };
        self.refuse_what_is_there()?;
        let into = |file: File| {
            let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(Box::new(file));
            write(&mut out)?;
            out.flush()
        };
        let place = match self {
            Destination::Named(path) => place(path),
            _ => Place::Named(path.into()),
        };
        let written = match place {
            Place::Itself => File::create(path).and_then(into),
            Place::Named(path) => Unfinished::beside(&path).and_then(|unfinished| {
                into(unfinished.file().try_clone()?)?;
                unfinished.replace(&path)
            }),
        };
        written.map_err(|source| Failure::Write {
            path: path.into(),
            source,
        })
    }
}

/// In words: something that is no file.
fn kind(kind: fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Refuses to replace a log, which is a recording, unless it was joined from others.
fn refuse_log(out: &Path) -> Result<(), Failure> {
    let is_log = RegularFile::open(out).is_ok_and(|file| is_log_file(&file));
    match is_log && !Input::open_alone(out).is_ok_and(|log| log.is_join()) {
        true => Err(Failure::OverLog { path: out.into() }),
        false => Ok(()),
    }
}

/// The target behind a name that the user gave.
enum Place {
    /// A device or a pipe, which is written to and not replaced.
    Itself,
    /// A file. Where the name was a link, what it leads to.
    Named(PathBuf),
}

fn place(path: &Path) -> Place {
    let is_special = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    // /dev/stdout leads to a file when standard output is one; the names there are the machine's.
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let is_the_machines = ["/dev", "/proc"].iter().any(|root| {
        folder
            .as_ref()
            .is_some_and(|folder| folder.starts_with(root))
    });
    let is_shared_memory = folder.is_some_and(|folder| folder.starts_with("/dev/shm"));
    match is_special || is_the_machines && !is_shared_memory {
        true => Place::Itself,
        false => Place::Named(path.canonicalize().unwrap_or_else(|_| path.into())),
    }
}
