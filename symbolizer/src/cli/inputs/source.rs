//! Source: the files that a command is about, with its options for time and names.

use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    Input, InputError, Measure, Profile, ReadRequest, Symbols, WantedExtras,
};

use crate::cli::inputs::{joined, several, single_file};
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::options::time::TimeArgs;
use crate::cli::output::failure::Failure;
use crate::cli::output::other_allocators::other_allocators;
use crate::cli::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// A record log (.heaplog), a bundle (.tar), a heap dump (.heap) of heapprof, gperftools or
    /// jemalloc, or a heap profile of pprof (.pb.gz); several are added up: all processes of a
    /// server, say
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Several logs as if they were one process's, on one clock and with one heap, as
    /// `heapprof join` has them: a moment, `peak` too, is then of all together
    #[arg(long, help_heading = "When")]
    pub(crate) joined: bool,

    #[command(flatten)]
    pub(crate) time: TimeArgs,

    #[command(flatten)]
    pub(crate) places: SymbolArgs,
}

/// Refuses a measure of slabs where these are not known.
pub(crate) fn need_slabs(measure: Measure, profile: &Profile) -> Result<(), Failure> {
    let is_unknown = profile.pages.is_some_and(|pages| !pages.knows_slabs);
    if measure != Measure::Pinned || !is_unknown {
        return Ok(());
    }
    let why = match profile.run.allocator.as_str() {
        "" => "jemalloc's slabs were not read, because HEAPPROF_FAST_PATH=0 forbids it or the \
               library did not know their layout"
            .into(),
        library => format!(
            "the program's own allocator, in {library}, does not tell which blocks lie together"
        ),
    };
    Err(Failure::Unfulfilled(format!(
        "pinned is not known: {why}; resident, swapped and untouched are known"
    )))
}

impl Source {
    /// Reads the profile. Notes say what its reader should know about the file itself.
    pub(crate) fn profile(&self) -> Result<Profile, Failure> {
        self.profile_with(WantedExtras::default())
    }

    /// The profile with the extras that an exporter wants.
    pub(crate) fn profile_with(&self, extras: WantedExtras) -> Result<Profile, Failure> {
        self.part(&ReadRequest {
            view: self.time.view(),
            extras,
            ..ReadRequest::default()
        })
    }

    /// A part of the file; of several, added up.
    pub(crate) fn part(&self, request: &ReadRequest) -> Result<Profile, Failure> {
        match &self.files[..] {
            [file] => single_file::read(file, request),
            files if self.joined => {
                let name = joined::name_of(files);
                single_file::read_input(&name, &joined::joined(files, &name)?, request)
            }
            files => several::read(files, request),
        }
    }

    pub(crate) fn symbols(&self, profile: &Profile) -> Result<Symbols, Failure> {
        let symbols = match &self.files[..] {
            [file] => self.places.symbols(file, profile),
            files => self.places.symbols_of_several(files, profile),
        }?;
        for allocator in other_allocators(profile, &symbols) {
            say::note(&format_args!("note: {allocator}"));
        }
        Ok(symbols)
    }

    /// Refuses a measure of the past where a file has no times.
    pub(crate) fn need_times(&self, measure: Measure, profile: &Profile) -> Result<(), Failure> {
        if measure.needs_pasts() && profile.pasts.is_empty() && !profile.rows.is_empty() {
            let path = self.without_times().to_owned();
            return Err(InputError::NoTimes { path }.into());
        }
        need_slabs(measure, profile)
    }

    /// A file that has no times, for an error to name.
    fn without_times(&self) -> &Path {
        let is_log = |file: &Path| Input::open_alone(file).is_ok_and(|input| input.is_log());
        let without = self.files.iter().find(|file| !is_log(file));
        without
            .or(self.files.first())
            .map_or(Path::new(""), |file| file)
    }
}
