//! `heapprof completions`: prints a shell completion script, made from the definitions of the
//! commands.

use clap_complete::Shell;

use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;

/// Write a completion script for a shell
///
/// For bash: heapprof completions bash > ~/.local/share/bash-completion/completions/heapprof
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    // Into memory first: clap_complete panics where a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "heapprof", &mut script);
    Destination::Stdout.write(|out| std::io::Write::write_all(out, &script))
}
