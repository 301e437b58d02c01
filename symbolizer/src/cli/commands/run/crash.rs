//! Crash: what may help if a fault has ended the program.

use std::path::Path;

use heapprof_format::ALLOCATOR;
use heapprof_symbolizer::{RegularFile, start_of_file};

use crate::cli::output::say;

/// The signals of faults, and of checks by allocators and libc.
const FAULTS: [(i32, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
];

/// Says how the program keeps its allocator, if a fault has ended it and jemalloc has served it. A
/// program may give a block of `malloc` to another allocator's function that it finds by `dlsym`,
/// or read what it has freed, which harms in one allocator and not in another.
pub(super) fn advise(signal: Option<i32>, log: Option<&Path>) {
    let fault = FAULTS.iter().find(|(number, _)| Some(*number) == signal);
    if let (Some((_, name)), Some(log)) = (fault, log)
        && jemalloc_served(log)
    {
        say::note(&format_args!(
            "{name} has ended the program; if it runs without heapprof, try heapprof run --allocator program, which keeps the program's own allocator"
        ));
    }
}

/// Returns true if the log says that heapprof's jemalloc served the program.
fn jemalloc_served(log: &Path) -> bool {
    let file = RegularFile::open_itself(log).ok();
    let start = file.and_then(|file| start_of_file(&file));
    start.is_some_and(|start| start.settings.iter().all(|(name, _)| name != ALLOCATOR))
}
