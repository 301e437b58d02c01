//! Symbol options: where the names of addresses may be found.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapprof_symbolizer::resolve::{KeptFile, SearchPath};
use heapprof_symbolizer::{Input, Profile, Symbols};

use crate::cli::options::debuginfod::Servers;
use crate::cli::output::failure::Failure;
use crate::cli::output::progress::Progress;
use crate::cli::output::{kept_names, say};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct SymbolArgs {
    /// A folder with detached debug information, laid out as /usr/lib/debug is; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Where names come from")]
    debug_dir: Vec<PathBuf>,

    /// The root of the file system that the program saw; its files are then sought only below it
    #[arg(long, value_name = "DIR", help_heading = "Where names come from")]
    sysroot: Option<PathBuf>,

    /// A perf map with the names of code made at run time [default: /tmp/perf-PID.map]
    #[arg(long, value_name = "FILE", help_heading = "Where names come from")]
    perf_map: Option<PathBuf>,

    /// Neither use nor write LOG.names, the file beside a log that keeps its names for the time
    /// after a rebuild
    #[arg(long, help_heading = "Where names come from")]
    no_kept_names: bool,

    #[command(flatten)]
    pub(crate) servers: Servers,
}

impl SymbolArgs {
    /// The options of a command that has none of them, except that one.
    pub(crate) fn keeping_names(is_wanted: bool) -> SymbolArgs {
        SymbolArgs {
            no_kept_names: !is_wanted,
            ..SymbolArgs::default()
        }
    }

    /// Checks that the files that the user names exist: a mistyped path would look like missing
    /// names.
    fn check(&self) -> Result<(), Failure> {
        let folders = self.debug_dir.iter().map(|path| ("--debug-dir", path));
        let root = self.sysroot.iter().map(|path| ("--sysroot", path));
        let maps = self.perf_map.iter().map(|path| ("--perf-map", path));
        for (option, path) in folders.chain(root).chain(maps) {
            let asked = |why: &dyn std::fmt::Display| {
                Failure::Unfulfilled(format!("{option} {}: {why}", path.display()))
            };
            let meta = std::fs::metadata(path).map_err(|error| asked(&error))?;
            if option == "--perf-map" && meta.is_dir() {
                return Err(asked(&"a folder, and no map"));
            }
            if option == "--perf-map" || meta.is_dir() {
                continue;
            }
            let bundle = Input::open_alone(path).ok();
            let Some(bundle) = bundle.filter(Input::is_bundle) else {
                return Err(asked(&"neither a folder nor a bundle"));
            };
            if let Some(words) = bundle.lost_names() {
                say::note(&format_args!("note: {option} {}: {words}", path.display()));
            }
        }
        Ok(())
    }

    /// Where the names of processes are that run here.
    pub(crate) fn search_path(&self) -> Result<SearchPath, Failure> {
        self.check()?;
        let mut search = self.search();
        search.debuginfod = self.servers.client()?;
        Ok(search)
    }

    /// The options for files as words of a command line.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let folders = self.debug_dir.iter().map(|path| ("--debug-dir", path));
        let root = self.sysroot.iter().map(|path| ("--sysroot", path));
        let maps = self.perf_map.iter().map(|path| ("--perf-map", path));
        let words = folders.chain(root).chain(maps);
        let switch = self.no_kept_names.then(|| "--no-kept-names".into());
        words
            .flat_map(|(option, path)| [option.into(), path.into()])
            .chain(switch)
            .collect()
    }

    /// Whether names count that were kept beside a log.
    pub(crate) fn uses_kept_names(&self) -> bool {
        !self.no_kept_names
    }

    fn search(&self) -> SearchPath {
        let mut search = SearchPath {
            sysroot: self.sysroot.clone(),
            perf_map: self.perf_map.clone(),
            ..SearchPath::default()
        };
        // The user's folders come before those of the system.
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
        let (mut bundles, mut kept) = (Vec::new(), Vec::new());
        for file in files {
            let Ok(input) = Input::open_alone(file) else {
                continue;
            };
            if input.is_bundle() {
                bundles.push(file.clone());
            }
            kept.extend(self.kept_names(&input));
        }
        let mut search = self.search();
        search.kept = kept;
        search.debuginfod = self.servers.client()?;
        if bundles.len() == files.len() {
            search.debug_dirs.clone_from(&self.debug_dir);
            search.sysroot = bundles.first().cloned();
            search.binary_dirs.clear();
        }
        search.debug_dirs.splice(0..0, bundles.iter().cloned());
        search.binary_dirs.extend(bundles);
        let symbols = self.ask(profile, &search);
        self.keep_names(files, profile, &symbols, &search);
        Ok(symbols)
    }

    /// The names of a profile that was read from `file`.
    pub(crate) fn symbols(&self, file: &Path, profile: &Profile) -> Result<Symbols, Failure> {
        Ok(self.found(file, profile, &self.search_for(file)?))
    }

    /// The same, where `other` may have names of the same build: of a program that was stripped
    /// since, or before.
    pub(crate) fn symbols_beside(
        &self,
        file: &Path,
        other: &Path,
        profile: &Profile,
    ) -> Result<Symbols, Failure> {
        let mut search = self.search_for(file)?;
        if let Ok(input) = Input::open_alone(other) {
            search.kept.extend(self.kept_names(&input));
        }
        Ok(self.found(file, profile, &search))
    }

    /// Searches for the names of a profile, and keeps them beside its file.
    fn found(&self, file: &Path, profile: &Profile, search: &SearchPath) -> Symbols {
        let symbols = self.ask(profile, search);
        self.keep_names(&[file.to_owned()], profile, &symbols, search);
        symbols
    }

    /// Where the names of a profile that is read from `file` come from. A bundle's files stand for
    /// the other machine's file system: this one's are not asked.
    pub(crate) fn search_for(&self, file: &Path) -> Result<SearchPath, Failure> {
        self.check()?;
        let mut search = self.search();
        search.debuginfod = self.servers.client()?;
        let Ok(input) = Input::open_alone(file) else {
            return Ok(search);
        };
        search.kept.extend(self.kept_names(&input));
        if input.is_bundle() {
            search.debug_dirs.clone_from(&self.debug_dir);
            search.debug_dirs.insert(0, file.to_owned());
            search.binary_dirs = vec![file.to_owned()];
            search.sysroot = Some(file.to_owned());
        }
        Ok(search)
    }

    fn kept_names(&self, input: &Input) -> Option<Arc<KeptFile>> {
        let wanted = (!self.no_kept_names).then_some(input)?;
        wanted.kept_names().map(Arc::new)
    }

    /// Keeps the names beside the logs, if they say more than what is there.
    fn keep_names(
        &self,
        files: &[PathBuf],
        profile: &Profile,
        symbols: &Symbols,
        search: &SearchPath,
    ) {
        if !self.no_kept_names {
            kept_names::keep(files, profile, symbols, &search.kept);
        }
    }

    fn ask(&self, profile: &Profile, search: &SearchPath) -> Symbols {
        self.asking(|| Symbols::of(profile, search))
    }

    /// Shows the progress of a question for names, and says which servers failed.
    pub(crate) fn asking<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.servers.show(Some(Progress::spinner("finding names")));
        let answer = ask();
        if let Some(progress) = self.servers.show(None) {
            progress.finish();
        }
        self.servers.say_what_failed();
        answer
    }
}
