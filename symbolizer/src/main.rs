//! Program `heapprof`: the command line of the offline half.

mod cli;

use std::process::ExitCode;

use heapprof_symbolizer::memory::CountedAllocator;
#[cfg(not(all(target_env = "musl", feature = "jemalloc")))]
use std::alloc::System as Allocator;
#[cfg(all(target_env = "musl", feature = "jemalloc"))]
use tikv_jemallocator::Jemalloc as Allocator;

/// Holds the bound on memory, whichever allocator is below.
#[global_allocator]
static ALLOCATOR: CountedAllocator<Allocator> = CountedAllocator(Allocator);

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        // The reader of our output has read enough: `heapprof top x | head` is no failure.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            cli::output::say::error(&error);
            error.status()
        }
    }
}
