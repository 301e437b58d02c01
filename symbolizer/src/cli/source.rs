//! A source: the file that a command is about, and where its names may be found.

use std::path::PathBuf;

use heapprof_symbolizer::resolve::SearchPath;
use heapprof_symbolizer::{Input, Profile, Symbols};

use crate::cli::failure::Failure;
use crate::cli::progress::Progress;
use crate::cli::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// A record log (.heaplog) or a heap dump (.heap), of heapprof or gperftools
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) places: Places,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Places {
    /// A folder with detached debug information, laid out as /usr/lib/debug is; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Where names come from")]
    debug_dir: Vec<PathBuf>,

    /// The root of the file system that the program saw; its files are then sought only below it
    #[arg(long, value_name = "DIR", help_heading = "Where names come from")]
    sysroot: Option<PathBuf>,
}

impl Places {
    fn search(&self) -> SearchPath {
        let mut search = SearchPath {
            sysroot: self.sysroot.clone(),
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

    pub(crate) fn symbols(&self, profile: &Profile) -> Symbols {
        let progress = Progress::spinner("finding names");
        let symbols = Symbols::of(profile, &self.search());
        progress.finish();
        symbols
    }
}

impl Source {
    /// The profile. What its reader should know about the file itself is said on the way.
    pub(crate) fn profile(&self) -> Result<Profile, Failure> {
        let input = Input::open(&self.file)?;
        let progress = Progress::bytes("reading", input.len());
        let profile = input.read(|offset| progress.at(offset));
        progress.finish();
        let profile = profile?;

        let file = self.file.display();
        let account = &profile.account;
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
        Ok(profile)
    }

    pub(crate) fn symbols(&self, profile: &Profile) -> Symbols {
        self.places.symbols(profile)
    }
}
