//! Logs: the logs that a command shows over time; several are joined into one.

use std::path::PathBuf;

use heapprof_symbolizer::{Input, Profile, Symbols};

use crate::cli::inputs::joined;
use crate::cli::options::filter::LabelArgs;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::failure::Failure;
use crate::cli::output::shell_quote::quoted;

#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// A record log (.heaplog), or a bundle of one (.tar); several are joined, as `heapprof join`
    /// does it: all processes of a server, say
    #[arg(value_name = "LOG", required = true)]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) labels: LabelArgs,

    #[command(flatten)]
    places: SymbolArgs,
}

impl Logs {
    /// The log, or what the logs are together.
    pub(crate) fn open(&self) -> Result<Input, Failure> {
        match &self.files[..] {
            [file] => Ok(Input::open(file)?),
            files => joined::joined(files, &self.name()),
        }
    }

    /// Returns its name in messages.
    pub(crate) fn name(&self) -> PathBuf {
        joined::name_of(&self.files)
    }

    /// Returns the logs as a shell takes them in a command that shows one log.
    pub(crate) fn in_commands(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|file| quoted(file)).collect();
        match &files[..] {
            [file] => file.clone(),
            files => format!("--joined {}", files.join(" ")),
        }
    }

    /// The command that shows whose the most bytes in use were.
    pub(crate) fn at_peak(&self) -> &'static str {
        match &self.files[..] {
            [_] => "`heapprof top --at peak`",
            _ => "`heapprof top --joined --at peak`",
        }
    }

    pub(crate) fn symbols(&self, profile: &Profile) -> Result<Symbols, Failure> {
        match &self.files[..] {
            [file] => self.places.symbols(file, profile),
            files => self.places.symbols_of_several(files, profile),
        }
    }
}
