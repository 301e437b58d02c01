//! `heapprof man`: the manual pages, from the commands' own definitions.

use clap_mangen::Man;

use crate::cli::failure::Failure;
use crate::cli::output;

/// Write a manual page
///
/// To read one: heapprof man export | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command that the page is about [default: heapprof itself]
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    command.build();
    let about = match &args.command {
        None => command,
        Some(name) => match command.find_subcommand(name) {
            // Its page is called heapprof-export, as git's are.
            Some(found) => {
                let page: &'static str = format!("heapprof-{name}").leak();
                found
                    .clone()
                    .name(page)
                    .bin_name(format!("heapprof {name}"))
            }
            None => {
                return Err(Failure::NoSuchCommand {
                    command: name.clone(),
                });
            }
        },
    };
    output::to(None, |out| Man::new(about).render(out))
}
