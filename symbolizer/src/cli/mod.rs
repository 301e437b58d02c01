//! The command line: what can be asked, and who answers.

mod export;
mod failure;
mod info;
mod output;
mod progress;
mod run;
pub(crate) mod say;
mod source;
mod symbolize;
mod table;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Heap profiles: record a program with `heapprof run`, then ask `top`, `info`, `export`.
#[derive(Debug, Parser)]
#[command(
    name = "heapprof",
    version,
    max_term_width = 100,
    propagate_version = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Top(top::Args),
    Symbolize(symbolize::Args),
    Export(export::Args),
    Info(info::Args),
}

pub(crate) fn run() -> Result<ExitCode, Failure> {
    match Cli::parse().command {
        Command::Run(args) => return run::run(&args),
        Command::Top(args) => top::run(&args)?,
        Command::Symbolize(args) => symbolize::run(&args)?,
        Command::Export(args) => export::run(&args)?,
        Command::Info(args) => info::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }
}
