//! Destination: standard output, or a file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heapprof_format::{FILE_HEADER, FILE_HEADER_LEN};
use heapprof_symbolizer::Input;

use crate::cli::output::failure::Failure;
use crate::cli::output::partial_file::Unfinished;

/// Refuses an output that would take an input's place: there may be no other recording of that run.
/// Asked before reading, which may take long.
pub(crate) fn refuse_input<'a>(
    out: Option<&Path>,
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let file = |path: &Path| {
        let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some((meta.dev(), meta.ino()))
    };
    let Some(out) = out else { return Ok(()) };
    let is_out = |input: &&PathBuf| file(input).is_some() && file(input) == file(out);
    match inputs.into_iter().find(is_out) {
        Some(input) => Err(Failure::OverInput {
            path: out.into(),
            input: input.clone(),
        }),
        None => refuse_log(out),
    }
}

/// The file that `-o` means, if it means one: `-` is standard output, as everywhere. A file of that
/// name is `./-`.
pub(crate) fn file(output: Option<&PathBuf>) -> Option<&Path> {
    let path = output.map(PathBuf::as_path);
    path.filter(|path| *path != Path::new("-"))
}

/// Refuses what would fill a terminal with what nobody can read.
pub(crate) fn refuse_terminal(output: Option<&Path>, what: &'static str) -> Result<(), Failure> {
    match output.is_none() && io::stdout().is_terminal() {
        true => Err(Failure::BinaryOnTerminal { format: what }),
        false => Ok(()),
    }
}

/// A log that is there is a recording, another segment of the input, say, unless it was joined of
/// others.
fn refuse_log(out: &Path) -> Result<(), Failure> {
    const NAME: usize = FILE_HEADER_LEN - 1;
    let mut first = [0; NAME];
    let is_file = fs::metadata(out).is_ok_and(|meta| meta.is_file());
    let is_log = is_file
        && File::open(out)
            .and_then(|mut file| file.read_exact(&mut first))
            .is_ok()
        && first == FILE_HEADER[..NAME];
    match is_log && !Input::open_alone(out).is_ok_and(|log| log.is_join()) {
        true => Err(Failure::OverLog { path: out.into() }),
        false => Ok(()),
    }
}

/// Calls `write` with the file, or with standard output when there is none.
///
/// A file gets its name when it is whole: a failure, or an interrupt, leaves what was there before.
/// A record log that is there is not replaced.
pub(crate) fn to(
    path: Option<&Path>,
    write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = path else {
        let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(Box::new(io::stdout().lock()));
        return write(&mut out)
            .and_then(|()| out.flush())
            .map_err(Failure::Stdout);
    };
    refuse_log(path)?;
    let into = |file: File| {
        let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(Box::new(file));
        write(&mut out)?;
        out.flush()
    };
    let written = match place(path) {
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

/// Where an output goes.
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
