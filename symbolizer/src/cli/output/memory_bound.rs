//! The end of a run that passes the bound on memory: one line, and an exit status.
//!
//! The allocator calls it, so nothing here may allocate or unwind. An output that is being written
//! has no name yet. On a file system without unnamed files its part stays, as after an interrupt.

use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use heapprof_symbolizer::Printable;
use heapprof_symbolizer::memory::{self, Exceeded};
use heapprof_symbolizer::watch::restore_terminal;

/// The exit status.
static STATUS: AtomicI32 = AtomicI32::new(1);

/// Sets the bound: the one that the user gave, or else the one that the files allow.
pub(crate) fn hold(given: Option<u64>) {
    let given = given.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    memory::bound(given, end);
}

/// Sets the exit status: that of a profiled program, which a failing summary does not change.
pub(crate) fn keep_status(status: u8) {
    STATUS.store(status.into(), Relaxed);
}

/// Says why, and ends.
fn end(exceeded: &Exceeded<'_>) -> ! {
    restore_terminal();
    let mut line = Cursor::new([0; 2048]);
    // A line that is too long for the buffer is cut.
    let _ = write_line(exceeded, &mut line);
    let length = line.position() as usize;
    let bytes = line.into_inner();
    let _ = std::io::stderr().write_all(&bytes[..length]);
    // SAFETY: ends the process; no other thread of it is waited for, and nothing is run.
    unsafe { libc::_exit(STATUS.load(Relaxed)) }
}

fn write_line(exceeded: &Exceeded<'_>, out: &mut impl Write) -> std::io::Result<()> {
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    write!(out, "heapprof: ")?;
    if !exceeded.name.is_empty() {
        write!(out, "{}: ", Printable(exceeded.name))?;
    }
    if exceeded.is_refused {
        return writeln!(
            out,
            "there is not enough memory for this (see `ulimit -v`, `ulimit -u` and the cgroup's limit)"
        );
    }
    write!(
        out,
        "this takes more than {} MiB of memory",
        mib(exceeded.bound)
    )?;
    match exceeded.is_given {
        true => writeln!(out, ", the most that --max-memory allows"),
        false => writeln!(
            out,
            " ({} MiB, and {} times the {} MiB that were read): is it damaged? --max-memory BYTES allows more",
            mib(memory::CONSTANT),
            memory::MULTIPLE,
            mib(exceeded.read)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_file_the_bound_and_the_way_out() {
        let said = |exceeded: &Exceeded<'_>| {
            let mut line = Vec::new();
            write_line(exceeded, &mut line).unwrap();
            String::from_utf8(line).unwrap()
        };
        let mut exceeded = Exceeded {
            name: "a\n.heaplog",
            bound: 320 << 20,
            read: 1 << 20,
            is_given: false,
            is_refused: false,
        };
        assert_eq!(
            said(&exceeded),
            "heapprof: a\\x0a.heaplog: this takes more than 320 MiB of memory (256 MiB, and 64 times the 1 MiB that \
             were read): is it damaged? --max-memory BYTES allows more\n"
        );
        exceeded.is_refused = true;
        let refused = "heapprof: a\\x0a.heaplog: there is not enough memory for this";
        assert!(said(&exceeded).starts_with(refused), "{}", said(&exceeded));
        exceeded.is_refused = false;
        exceeded.is_given = true;
        exceeded.name = "";
        assert_eq!(
            said(&exceeded),
            "heapprof: this takes more than 320 MiB of memory, the most that --max-memory allows\n"
        );
    }
}
