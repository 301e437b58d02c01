//! Symbol options: where the names of addresses may be found.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::resolve::SearchPath;
use heapprof_symbolizer::{Input, Profile, Symbols};

use crate::cli::options::debuginfod::Servers;
use crate::cli::output::failure::Failure;
use crate::cli::output::progress::Progress;

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

    #[command(flatten)]
    pub(crate) servers: Servers,
}

impl SymbolArgs {
    /// Checks that the files that the user names exist: a mistyped path would look like missing
    /// names.
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
        words
            .flat_map(|(option, path)| [option.into(), path.into()])
            .collect()
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

    /// The names of a profile that was read from `file`.
    pub(crate) fn symbols(&self, file: &Path, profile: &Profile) -> Result<Symbols, Failure> {
        Ok(self.ask(profile, &self.search_for(file)?))
    }

    /// Where the names of a profile that is read from `file` come from. A bundle's files stand for
    /// the other machine's file system: this one's are not asked.
    pub(crate) fn search_for(&self, file: &Path) -> Result<SearchPath, Failure> {
        self.check()?;
        let mut search = self.search();
        search.debuginfod = self.servers.client()?;
        if Input::open_alone(file).is_ok_and(|input| input.is_bundle()) {
            search.debug_dirs.clone_from(&self.debug_dir);
            search.debug_dirs.insert(0, file.to_owned());
            search.binary_dirs = vec![file.to_owned()];
            search.sysroot = Some(file.to_owned());
        }
        Ok(search)
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
