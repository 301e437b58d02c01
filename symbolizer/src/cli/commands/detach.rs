//! `heapprof detach`: ends what `heapprof attach` has begun.

use heapprof_symbolizer::attach::{self, Refusal};

use crate::cli::options::quantity;
use crate::cli::output::detached::{check_end, tell_end};
use crate::cli::output::failure::Failure;

/// End the recording of a process that heapprof was attached to
///
/// Restores the process's code and completes the log. The library stays in the process's memory,
/// unused; another heapprof attach uses it again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = quantity::pid, allow_negative_numbers = true)]
    pid: u32,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let refused = |why| Failure::Refused { pid: args.pid, why };
    let ended = match attach::detach(args.pid) {
        Ok(ended) => ended,
        Err(Refusal::Because(why)) => return Err(refused(why)),
        Err(Refusal::Preloaded) => {
            return Err(refused(format!(
                "it runs under libheapprof.so, which cannot be removed; heapprof ctl {} stop ends the recording",
                args.pid
            )));
        }
    };
    tell_end(args.pid, &ended);
    check_end(args.pid, &ended)
}
