//! A source: the files that a command is about, and where their names may be found.

use std::path::{Path, PathBuf};

use heapprof_symbolizer::resolve::SearchPath;
use heapprof_symbolizer::{
    Account, Detail, Input, InputError, Measure, Moment, Profile, Reading, Symbols, View,
    ViewError, detailed_profile_of_log,
};

use crate::cli::commands::join;
use crate::cli::inputs::several;
use crate::cli::options::age::Age;
use crate::cli::options::debuginfod::Servers;
use crate::cli::output::failure::Failure;
use crate::cli::output::progress::Progress;
use crate::cli::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// A record log (.heaplog), a bundle (.tar), a heap dump (.heap) of heapprof, gperftools or jemalloc, or a
    /// heap profile of pprof (.pb.gz); several are added up: all processes of a server, say
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Several logs as if they were one process's, on one clock and with one heap, as `heapprof join` has them:
    /// a moment, `peak` too, is then of all together
    #[arg(long, help_heading = "When")]
    pub(crate) joined: bool,

    #[command(flatten)]
    pub(crate) time: Time,

    #[command(flatten)]
    pub(crate) places: Places,
}

/// Moments are `12.5`, `12.5s`, `300ms`, `2m` after the start, `50%` of the run, `10:00:00` or
/// `2026-11-21T10:00:00Z` (UTC), `start`, `end`, `peak`, or a marker's name or a part of it.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Time {
    /// The heap at a moment: 12.5s, 300ms, 2m, 50%, 10:00:00, 2026-11-21T10:00:00Z, start, end,
    /// peak, or a marker's name. Needs a .heaplog
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true, conflicts_with_all = ["from", "to"], help_heading = "When")]
    at: Option<String>,

    /// Only what was allocated after this moment [default: start]; "in use" is then what of it was
    /// still there at the window's end
    #[arg(
        long,
        value_name = "MOMENT",
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    from: Option<String>,

    /// Only what was allocated up to this moment [default: end]
    #[arg(
        long,
        value_name = "MOMENT",
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    to: Option<String>,

    #[command(flatten)]
    pub(crate) age: Age,
}

impl Time {
    /// The view that was asked for.
    pub(crate) fn view(&self) -> View {
        match (&self.at, &self.from, &self.to) {
            (Some(at), ..) => self.age.at(at.as_str().into()),
            (None, None, None) if self.age.is_any() => View::Whole,
            (None, None, None) => self.age.at(Moment::End),
            (None, from, to) => View::Window(
                from.as_deref().map_or(Moment::Start, Moment::from),
                to.as_deref().map_or(Moment::End, Moment::from),
            ),
        }
    }
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Places {
    /// A folder with detached debug information, laid out as /usr/lib/debug is; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Where names come from")]
    debug_dir: Vec<PathBuf>,

    /// The root of the file system that the program saw; its files are then sought only below it
    #[arg(long, value_name = "DIR", help_heading = "Where names come from")]
    sysroot: Option<PathBuf>,

    /// A perf map with the names of code made at run time [default: /tmp/perf-PID.map]
    #[arg(long, value_name = "FILE", help_heading = "Where names come from")]
    perf_map: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) servers: Servers,
}

impl Places {
    /// What the user names must be there: a name that is mistyped would look like names that are missing.
    fn check(&self) -> Result<(), Failure> {
        let folders = self.debug_dir.iter().map(|path| ("--debug-dir", path));
        let root = self.sysroot.iter().map(|path| ("--sysroot", path));
        let maps = self.perf_map.iter().map(|path| ("--perf-map", path));
        for (option, path) in folders.chain(root).chain(maps) {
            let asked = |why: &dyn std::fmt::Display| {
                Failure::Asked(format!("{option} {}: {why}", path.display()))
            };
            let meta = std::fs::metadata(path).map_err(|error| asked(&error))?;
            if option == "--perf-map" && meta.is_dir() {
                return Err(asked(&"a folder, and no map"));
            }
            let is_bundle = || Input::open_alone(path).is_ok_and(|input| input.is_bundle());
            if option != "--perf-map" && !meta.is_dir() && !is_bundle() {
                return Err(asked(&"neither a folder nor a bundle"));
            }
        }
        Ok(())
    }

    fn search(&self) -> SearchPath {
        let mut search = SearchPath {
            sysroot: self.sysroot.clone(),
            perf_map: self.perf_map.clone(),
            ..SearchPath::default()
        };
        // What the user names comes before what the system has.
        search
            .debug_dirs
            .splice(0..0, self.debug_dir.iter().cloned());
        if let Some(path) = std::env::var_os("PPROF_BINARY_PATH") {
            search.binary_dirs.extend(std::env::split_paths(&path));
        }
        search
    }

    /// The names of a profile that was added up from these files.
    pub(crate) fn symbols_of_several(
        &self,
        files: &[PathBuf],
        profile: &Profile,
    ) -> Result<Symbols, Failure> {
        if self.perf_map.is_some() {
            return Err(Failure::Senseless(
                "--perf-map names the code of one process, and these are several; each one's /tmp/perf-PID.map is used"
                    .into(),
            ));
        }
        self.check()?;
        let is_bundle =
            |file: &&PathBuf| Input::open_alone(file).is_ok_and(|input| input.is_bundle());
        let bundles: Vec<PathBuf> = files.iter().filter(is_bundle).cloned().collect();
        let mut search = self.search();
        search.debuginfod = self.servers.client()?;
        if bundles.len() == files.len() {
            search.debug_dirs.clone_from(&self.debug_dir);
            search.sysroot = bundles.first().cloned();
            search.binary_dirs.clear();
        }
        search.debug_dirs.splice(0..0, bundles.iter().cloned());
        search.binary_dirs.extend(bundles);
        Ok(self.ask(profile, &search))
    }

    /// The names of a profile that was read from `file`. A bundle's files stand for the other machine's file
    /// system: this one's are not asked.
    pub(crate) fn symbols(&self, file: &Path, profile: &Profile) -> Result<Symbols, Failure> {
        self.check()?;
        let mut search = self.search();
        search.debuginfod = self.servers.client()?;
        if Input::open_alone(file).is_ok_and(|input| input.is_bundle()) {
            search.debug_dirs.clone_from(&self.debug_dir);
            search.debug_dirs.insert(0, file.to_owned());
            search.binary_dirs = vec![file.to_owned()];
            search.sysroot = Some(file.to_owned());
        }
        Ok(self.ask(profile, &search))
    }

    fn ask(&self, profile: &Profile, search: &SearchPath) -> Symbols {
        self.servers.show(Some(Progress::spinner("finding names")));
        let symbols = Symbols::of(profile, search);
        if let Some(progress) = self.servers.show(None) {
            progress.finish();
        }
        self.servers.say_what_failed();
        symbols
    }
}

impl Source {
    /// The profile. What its reader should know about the file itself is said on the way.
    pub(crate) fn profile(&self) -> Result<Profile, Failure> {
        self.detailed_profile(Detail::default())
    }

    /// The profile with the detail that an exporter wants.
    pub(crate) fn detailed_profile(&self, detail: Detail) -> Result<Profile, Failure> {
        self.part(&Reading {
            view: self.time.view(),
            detail,
            ..Reading::default()
        })
    }

    /// A part of the file; of several, added up.
    pub(crate) fn part(&self, reading: &Reading) -> Result<Profile, Failure> {
        match &self.files[..] {
            [file] => read(file, reading),
            files if self.joined => {
                let name = join::name_of(files);
                read_input(&name, &join::joined(files, &name)?, reading)
            }
            files => several::read(files, reading),
        }
    }

    pub(crate) fn symbols(&self, profile: &Profile) -> Result<Symbols, Failure> {
        match &self.files[..] {
            [file] => self.places.symbols(file, profile),
            files => self.places.symbols_of_several(files, profile),
        }
    }

    /// Refuses a measure of the past where a file has no times.
    pub(crate) fn need_times(&self, measure: Measure, profile: &Profile) -> Result<(), Failure> {
        if measure.needs_pasts() && profile.pasts.is_empty() && !profile.rows.is_empty() {
            let path = self.without_times().to_owned();
            return Err(InputError::NoTimes { path }.into());
        }
        Ok(())
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

/// Says beside a form without a place for words what must stand beside its numbers.
pub(crate) fn note_circumstances(profile: &Profile) {
    for line in profile.circumstances() {
        say::note(&format_args!("note: {line}"));
    }
}

/// Says from when on a log that rotates has detail, to those who ask about time.
pub(crate) fn note_what_is_kept(file: &Path, profile: &Profile) {
    if let Some(checkpoint) = &profile.run.checkpoint {
        say::note(&format_args!(
            "note: {}: the log rotated, detail begins at {:.3} s: what depends on time (windows, peak, temporary, \
             lifetimes, heaptime, timeline) is of the time since; totals and what is in use are of the whole run",
            file.display(),
            checkpoint.time_ns as f64 / 1e9
        ));
    }
}

/// Reads a part of a file. What a reader should know about the file itself is said on the way.
pub(crate) fn read(file: &Path, reading: &Reading) -> Result<Profile, Failure> {
    read_input(file, &Input::open(file)?, reading)
}

/// Reads a part of a file that was opened.
pub(crate) fn read_input(
    file: &Path,
    input: &Input,
    reading: &Reading,
) -> Result<Profile, Failure> {
    let progress = Progress::bytes("reading", input.len());
    let profile = input.read_part(reading, |offset| progress.at(offset));
    progress.finish();
    let profile = profile?;

    if reading.view != View::Whole || reading.pasts.is_some() {
        note_what_is_kept(file, &profile);
    }
    note_what_is_wrong(file, &profile.account);
    Ok(profile)
}

/// The whole of a log, for what is shown over time. What a reader should know about the file itself is said on the way.
pub(crate) fn whole_log(file: &Path, input: &Input, detail: Detail) -> Result<Profile, Failure> {
    let log = input.log()?;
    let progress = Progress::bytes("reading", input.len());
    let profile = detailed_profile_of_log(log, detail, |offset| progress.at(offset));
    progress.finish();
    let profile = profile.map_err(|error| input.view_error(ViewError::Read(error)))?;
    note_what_is_kept(file, &profile);
    note_what_is_wrong(file, &profile.account);
    Ok(profile)
}

/// Says where a file is torn or damaged.
pub(crate) fn note_what_is_wrong(file: &Path, account: &Account) {
    let file = file.display();
    if let Some((offset, left)) = account.torn {
        say::note(&format_args!(
            "note: {file}: cut off at offset {offset}; read up to there ({left} bytes behind it are unusable)"
        ));
    }
    for damage in &account.damage {
        say::note(&format_args!(
            "note: {file}: {}; {} bytes passed over, the numbers miss what was in them",
            damage.what, damage.skipped
        ));
    }
}
