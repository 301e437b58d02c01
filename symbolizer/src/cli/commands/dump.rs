//! `heapprof dump`: writes the dumps that a running program would have written, from its log.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use heapprof_format::ReadError;
use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::resolve::SearchPath;
use heapprof_symbolizer::{
    DumpTriggers, Input, Moment, Printable, Profile, ReadRequest, Symbols, View, ViewError,
    dumps_of_log, duration_ns,
};

use crate::cli::inputs::single_file;
use crate::cli::options::quantity::{bytes, count};
use crate::cli::output::failure::Failure;
use crate::cli::output::notes;
use crate::cli::output::partial_file::Unfinished;

/// Write, afterwards, the heap dumps that a policy would have written while the program ran
///
/// From a .heaplog, dumps PREFIX.0001.heap, PREFIX.0002.heap, … in gperftools' text form, as the
/// library writes them with HEAP_PROFILE_ALLOCATION_INTERVAL (--every 100MiB),
/// HEAP_PROFILE_INUSE_INTERVAL (--every-in-use), HEAP_PROFILE_DEALLOCATION_INTERVAL (--every-freed)
/// and HEAP_PROFILE_TIME_INTERVAL (--every 10s). Several may be given; after any dump, all count
/// anew. No file is overwritten: a number that is taken is passed over.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A record log (.heaplog); of several processes, the one that `heapprof join` makes of theirs
    #[arg(value_name = "LOG")]
    file: PathBuf,

    /// So many bytes allocated (100MiB), so much time (10s), or `peak`: one dump of the heap at its
    /// largest; may be repeated
    #[arg(long, value_name = "AMOUNT", required_unless_present_any = ["every_in_use", "every_freed"], value_parser = trigger, allow_hyphen_values = true)]
    every: Vec<DumpTrigger>,

    /// Write a dump whenever bytes in use exceed those of the highest dump by so many
    #[arg(long, value_name = "BYTES", value_parser = bytes, allow_negative_numbers = true)]
    every_in_use: Option<u64>,

    /// Write a dump for every so many bytes freed
    #[arg(long, value_name = "BYTES", value_parser = bytes, allow_negative_numbers = true)]
    every_freed: Option<u64>,

    /// Most dumps to write: a log says how long the run lasted, and so how many there would be
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = count, allow_negative_numbers = true)]
    most_dumps: usize,

    /// Write files whose names begin so [default: the log's path without .heaplog]
    #[arg(short, long, value_name = "PREFIX")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DumpTrigger {
    Allocated(u64),
    Time(u64),
    Peak,
}

fn trigger(text: &str) -> Result<DumpTrigger, String> {
    if text == "peak" {
        return Ok(DumpTrigger::Peak);
    }
    // `10m` is ten minutes here; ten mebibytes are `10MiB`.
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    match duration_ns(text).filter(|&ns| has_unit && ns > 0) {
        Some(ns) => Ok(DumpTrigger::Time(ns)),
        None => bytes(text)
            .map(DumpTrigger::Allocated)
            .map_err(|_| "an amount of memory (100MiB), a time (10s), or `peak`".into()),
    }
}

/// Why a dump could not be made.
enum Trouble {
    Read(ReadError),
    Write(Failure),
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        Trouble::Read(error)
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let input = Input::open(&args.file)?;
    let log = input.log()?;
    let mut files = Files {
        prefix: args.output.clone().unwrap_or_else(|| prefix(&args.file)),
        number: 0,
        written: 0,
        most: args.most_dumps,
    };
    let mut occasions = DumpTriggers {
        every_in_use: args.every_in_use.unwrap_or(0),
        every_freed: args.every_freed.unwrap_or(0),
        ..DumpTriggers::default()
    };
    for trigger in &args.every {
        let (place, amount) = match trigger {
            DumpTrigger::Allocated(bytes) => (&mut occasions.every_allocated, *bytes),
            DumpTrigger::Time(ns) => (&mut occasions.every_ns, *ns),
            DumpTrigger::Peak => continue,
        };
        if std::mem::replace(place, amount) != 0 {
            return Err(Failure::Senseless(
                "--every is given twice for memory, or twice for time: one of each can be in force"
                    .into(),
            ));
        }
    }
    let mut said = false;
    if occasions != DumpTriggers::default() {
        let account = dumps_of_log(log, occasions, |profile| {
            if !said {
                notes::note_what_is_kept(&args.file, &profile);
                said = true;
            }
            files.write(&profile).map_err(Trouble::Write)
        })
        .map_err(|trouble| match trouble {
            Trouble::Read(error) => input.view_error(ViewError::Read(error)).into(),
            Trouble::Write(failure) => failure,
        })?;
        notes::note_what_is_wrong(&args.file, &account);
    }
    if args.every.contains(&DumpTrigger::Peak) {
        let mut profile = single_file::read(
            &args.file,
            &ReadRequest {
                view: View::At(Moment::Peak),
                ..ReadRequest::default()
            },
        )?;
        profile.run.reason = "the most bytes in use".into();
        files.write(&profile)?;
    }
    if files.written == 0 {
        crate::cli::output::say::note(&"no occasion for a dump: the log ends before the first");
    }
    Ok(())
}

fn prefix(log: &Path) -> PathBuf {
    match log.extension() {
        Some(extension) if extension == "heaplog" => log.with_extension(""),
        _ => log.into(),
    }
}

struct Files {
    prefix: PathBuf,
    /// The number that was taken last, by a dump or by another file.
    number: u32,
    written: usize,
    /// So many may be written.
    most: usize,
}

impl Files {
    /// Writes the next dump and says where.
    fn write(&mut self, profile: &Profile) -> Result<(), Failure> {
        if self.written >= self.most {
            return Err(Failure::Unfulfilled(format!(
                "{} dumps are written, and there are occasions for more; take a larger --every, or allow more by \
                 --most-dumps N",
                self.written
            )));
        }
        let mut text = Vec::new();
        let symbols = Symbols::of(&Profile::default(), &SearchPath::default());
        Format::Gperftools
            .write(profile, &symbols, &Options::default(), &mut text)
            .map_err(Failure::Stdout)?;
        let write = |path: &Path| {
            let unfinished = Unfinished::beside(path)?;
            unfinished.file().write_all(&text)?;
            Ok(unfinished)
        };
        let next = self.path(self.number + 1);
        let unfinished = write(&next).map_err(|source| Failure::Write { path: next, source })?;
        loop {
            self.number += 1;
            let path = self.path(self.number);
            match unfinished.name(&path) {
                Ok(()) => {
                    self.written += 1;
                    return say_where(&path, &profile.run.reason);
                }
                // Somebody else's file: leave it, take the next number.
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && self.number < 9999 => {}
                Err(source) => return Err(Failure::Write { path, source }),
            }
        }
    }

    fn path(&self, number: u32) -> PathBuf {
        let mut path = self.prefix.as_os_str().to_owned();
        path.push(format!(".{number:04}.heap"));
        path.into()
    }
}

/// A reader that ends early (`| head`) wants the dumps all the same.
fn say_where(path: &Path, reason: &str) -> Result<(), Failure> {
    let path = path.display().to_string();
    match writeln!(io::stdout().lock(), "{}: {reason}", Printable(&path)) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said.map_err(Failure::Stdout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_from_times() {
        assert_eq!(trigger("100MiB"), Ok(DumpTrigger::Allocated(100 << 20)));
        assert_eq!(trigger("1048576"), Ok(DumpTrigger::Allocated(1 << 20)));
        assert_eq!(trigger("10s"), Ok(DumpTrigger::Time(10_000_000_000)));
        assert_eq!(trigger("300ms"), Ok(DumpTrigger::Time(300_000_000)));
        assert_eq!(trigger("peak"), Ok(DumpTrigger::Peak));
        assert!(trigger("0").is_err() && trigger("often").is_err() && trigger("0s").is_err());
    }
}
