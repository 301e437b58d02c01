//! Program `heapprof`: the command line of the offline half.

mod cli;

use std::process::ExitCode;

#[cfg(all(target_env = "musl", feature = "jemalloc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        // Whoever reads our output has read enough: `heapprof top x | head` is no failure.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            cli::output::say::error(&error);
            error.status()
        }
    }
}
