//! Command line: the subcommands of `heapprof`, and what they share.
//!
//! | folder | what it holds | may import |
//! | --- | --- | --- |
//! | `output` | tables, headings, notes, files | |
//! | `options` | arguments that several commands share | `output` |
//! | `inputs` | from the files on the command line to a profile | `options`, `output` |
//! | `commands` | one file for each subcommand | all of these, no other command |
//!
//! Not here: reading, computing and exporting (the library `heapprof_symbolizer`).

mod commands;
mod inputs;
mod options;
pub(crate) mod output;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use commands::{
    at, attach, bundle, check, completions, compress, ctl, detach, diff, dump, explain, export,
    info, join, man, push, report, rss, run, serve, symbolize, timeline, top, tree, watch,
};
use heapprof_symbolizer::memory::OF_SERVICES;
use inputs::missing;
use options::quantity::bytes;
use output::failure::Failure;
use output::progress::show_unpacking;
use output::{colour, memory_bound, width};

const EXIT_STATUS: &str = "Exit status: 0, done; 1, it could not be done, and standard error says why; 2, the command line makes no \
     sense; 3, a limit that was given (--fail-above, check) is exceeded; 4, it cannot be judged. `heapprof run` ends as its program does.";

/// Heap profiles: record a program with `heapprof run`, then ask `top`, `info`, `export`.
#[derive(Debug, Parser)]
#[command(
    name = "heapprof",
    version,
    max_term_width = 100,
    propagate_version = true,
    after_help = EXIT_STATUS
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Colour: on a terminal, on pipes too, or never
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto")]
    color: colour::ColourChoice,

    /// Columns of tables, 40 or more; 0: no limit [default: those of the terminal, or else COLUMNS]
    #[arg(long, value_name = "COLUMNS", global = true, value_parser = width::parse)]
    width: Option<usize>,

    /// Most memory to take, such as 4GiB [default: 256MiB and 64 times the files that are read; for
    /// serve and push 2GiB]
    #[arg(long, value_name = "BYTES", global = true, value_parser = bytes, allow_negative_numbers = true)]
    max_memory: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Top(top::Args),
    Symbolize(symbolize::Args),
    Export(export::Args),
    Info(info::Args),
    Dump(dump::Args),
    Diff(diff::Args),
    Check(check::Args),
    Timeline(timeline::Args),
    Explain(explain::Args),
    Report(report::Args),
    Tree(tree::Args),
    Rss(rss::Args),
    At(at::Args),
    Watch(watch::Args),
    Join(join::Args),
    Compress(compress::Args),
    Bundle(bundle::Args),
    Push(push::Args),
    Ctl(ctl::Args),
    Attach(attach::Args),
    Detach(detach::Args),
    Serve(serve::Args),
    Completions(completions::Args),
    Man(man::Args),
}

pub(crate) fn run() -> Result<ExitCode, Failure> {
    let cli = Cli::parse();
    memory_bound::hold(match cli.command {
        Command::Serve(_) | Command::Push(_) => cli.max_memory.or(Some(OF_SERVICES as u64)),
        _ => cli.max_memory,
    });
    show_unpacking();
    width::decide(cli.width);
    colour::decide(
        cli.color,
        match cli.command {
            // Its standard output is the program's.
            Command::Run(_) => std::io::stderr().is_terminal(),
            _ => std::io::stdout().is_terminal(),
        },
    );
    command(cli.command).map_err(missing::explained)
}

/// Runs a command.
fn command(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => return run::run(&args),
        Command::Top(args) => top::run(&args)?,
        Command::Symbolize(args) => symbolize::run(&args)?,
        Command::Export(args) => export::run(&args)?,
        Command::Info(args) => info::run(&args)?,
        Command::Dump(args) => dump::run(&args)?,
        Command::Diff(args) => diff::run(&args)?,
        Command::Check(args) => check::run(&args)?,
        Command::Timeline(args) => timeline::run(&args)?,
        Command::Explain(args) => explain::run(&args)?,
        Command::Report(args) => report::run(&args)?,
        Command::Tree(args) => tree::run(&args)?,
        Command::Rss(args) => rss::run(&args)?,
        Command::At(args) => at::run(&args)?,
        Command::Watch(args) => watch::run(&args)?,
        Command::Join(args) => join::run(&args)?,
        Command::Compress(args) => return Ok(compress::run(&args)),
        Command::Bundle(args) => bundle::run(&args)?,
        Command::Push(args) => push::run(&args)?,
        Command::Ctl(args) => ctl::run(&args)?,
        Command::Attach(args) => attach::run(&args)?,
        Command::Detach(args) => detach::run(&args)?,
        Command::Serve(args) => serve::run(&args)?,
        Command::Completions(args) => completions::run(&args, Cli::command())?,
        Command::Man(args) => man::run(&args, Cli::command())?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    /// Each command has examples in its manual page, of that command, and clap takes them.
    #[test]
    fn the_examples_of_the_manual_are_understood() {
        let command = Cli::command();
        for about in command.get_subcommands() {
            let name = about.get_name();
            let page = man::EXAMPLES.iter().find(|(of, ..)| *of == name);
            let (_, examples, others) = page.unwrap_or_else(|| panic!("no examples of {name}"));
            assert!(!examples.is_empty() && !others.is_empty(), "{name}");
            let beginning = format!("heapprof {name} ");
            assert!(
                examples
                    .iter()
                    .all(|(line, _)| line.starts_with(&beginning))
            );
        }
        for (name, examples, others) in man::EXAMPLES {
            for (line, _) in *examples {
                let words = line.split(' ').take_while(|word| *word != "|");
                let parsed = command.clone().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
            for other in *others {
                let is_there =
                    ["", "libheapprof"].contains(other) || command.find_subcommand(other).is_some();
                assert!(is_there && other != name, "{name}: {other}");
            }
        }
    }
}
