//! `heapprof man`: the manual pages, from the commands' own definitions.

use clap_mangen::Man;

use crate::cli::failure::Failure;
use crate::cli::output;

/// Write a manual page
///
/// To read one: heapprof man export | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command that the page is about, such as `export` or `ctl mark` [default: heapprof itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    command.build();
    let mut about = &command;
    for name in &args.command {
        about = about
            .find_subcommand(name)
            .ok_or_else(|| Failure::NoSuchCommand {
                command: args.command.join(" "),
            })?;
    }
    let mut about = about.clone();
    if !args.command.is_empty() {
        // Its page is called heapprof-export, as git's are.
        let page: &'static str = format!("heapprof-{}", args.command.join("-")).leak();
        about = about
            .name(page)
            .bin_name(format!("heapprof {}", args.command.join(" ")));
    }
    output::to(None, |out| Man::new(about).render(out))
}
