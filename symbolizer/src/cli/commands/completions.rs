//! `heapprof completions`: prints a shell completion script, made from the definitions of the
//! commands.
//!
//! The scripts of bash, zsh and fish ask `heapprof completions` for what only it knows: processes
//! under heapprof, and the moments of a log.

mod offers;
mod shells;

use std::ffi::OsString;
use std::io::Write;

use clap_complete::Shell;
use heapprof_symbolizer::Printable;

use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use offers::OfferKind;

/// Write a completion script for a shell
///
/// For bash: heapprof completions bash > ~/.local/share/bash-completion/completions/heapprof
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_name = "SHELL", required_unless_present_any = ["pids", "moments_of"])]
    shell: Option<Shell>,

    /// For a script: the processes, one a line
    #[arg(long, value_name = "WHICH", hide = true, conflicts_with = "moments_of")]
    pids: Option<OfferKind>,

    /// For a script: the moments of the first log among these words, one a line
    #[arg(long, value_name = "WORD", hide = true, num_args = 0.., allow_hyphen_values = true)]
    moments_of: Option<Vec<OsString>>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    let offered = match (args.pids, &args.moments_of) {
        (Some(which), _) => offers::pids(which),
        (None, Some(words)) => offers::moments(words),
        (None, None) => Vec::new(),
    };
    if let Some(shell) = args.shell {
        // Into memory first: clap_complete panics where a pipe is closed.
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "heapprof", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        let script = shells::with_offers(shell, script, &shells::Facts::of(&command));
        return Destination::Stdout.write(|out| out.write_all(script.as_bytes()));
    }
    Destination::Stdout.write(|out| {
        // A tab separates a word from what it is.
        offered.iter().try_for_each(|(word, meaning)| {
            let word = Printable(word);
            match meaning.as_str() {
                "" => writeln!(out, "{word}"),
                meaning => writeln!(out, "{word}\t{}", Printable(meaning)),
            }
        })
    })
}
