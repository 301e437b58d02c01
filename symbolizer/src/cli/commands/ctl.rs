//! `heapprof ctl`: sends a command to a program while it runs, and prints the answer.

use std::io::Write as _;

use heapprof_symbolizer::control::Attached;

use crate::cli::inputs::process::READ_ADDRESSES;
use crate::cli::options::quantity;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;

/// Control a running program: stop and start recording, change the interval, set a marker, dump
///
/// The program runs under libheapprof.so and has had at least one sample (or was started with
/// HEAPPROF_START=paused or HEAPPROF_CONTROL=1). Only its user and root may; nothing is stopped or
/// signalled, and a program that nobody asks is never woken. With HEAPPROF_CONTROL=0 it does not
/// listen. Prints the program's answer; a refusal is an error.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = quantity::pid, allow_negative_numbers = true)]
    pid: u32,

    #[command(subcommand)]
    command: ControlCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ControlCommand {
    /// Show what is in force, the number of samples, and where the log is
    Status,
    /// Start recording, if it is stopped
    Start,
    /// Stop recording: no new samples; frees of recorded blocks are still recorded
    Stop,
    /// Change the mean sampling interval
    Interval {
        /// Bytes between samples on average, such as 512KiB; 1: every allocation
        #[arg(value_name = "BYTES", value_parser = quantity::bytes, allow_negative_numbers = true)]
        bytes: u64,
    },
    /// Name this moment, for --at, --from and --to
    Mark {
        /// Name of the marker
        #[arg(value_name = "NAME", value_parser = name_of_mark)]
        name: String,
    },
    /// Read which pages of sampled blocks are resident, for -m resident, untouched, pinned
    Pages {
        /// The addresses of the blocks as well, for `heapprof at`
        #[arg(value_name = "addresses")]
        with: Option<PagesExtra>,
    },
    /// Write a heap dump and print its path
    Dump {
        /// Reason, which the dump states
        #[arg(value_name = "REASON")]
        reason: Option<String>,
    },
}

/// The additions to a reading of pages.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PagesExtra {
    Addresses,
}

fn name_of_mark(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a marker needs a name, such as deploy".into()),
        _ => Ok(text.to_owned()),
    }
}

impl ControlCommand {
    /// As the library understands it.
    fn text(&self) -> String {
        match self {
            ControlCommand::Status => "status".into(),
            ControlCommand::Start => "start".into(),
            ControlCommand::Stop => "stop".into(),
            ControlCommand::Interval { bytes } => format!("interval {bytes}"),
            ControlCommand::Mark { name } => format!("mark {name}"),
            ControlCommand::Pages { with: None } => "pages".into(),
            ControlCommand::Pages {
                with: Some(PagesExtra::Addresses),
            } => READ_ADDRESSES.into(),
            ControlCommand::Dump { reason: None } => "dump".into(),
            ControlCommand::Dump { reason: Some(why) } => format!("dump {why}"),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let refused = |why| Failure::Refused { pid: args.pid, why };
    let answer = Attached::to(args.pid)
        .and_then(|process| process.ask(&args.command.text()))
        .map_err(refused)?;
    Destination::Stdout.write(|out| {
        for line in answer.lines() {
            writeln!(out, "{}", heapprof_symbolizer::Printable(line))?;
        }
        Ok(())
    })
}
