//! Process table: a line for each process that was added up, for `heapprof info`.

use std::io::{self, Write};

use heapprof_symbolizer::{Bytes, Profile, Run, utc};

use crate::cli::output::table::{Align, Table};
use crate::cli::output::width::stdout_width;

/// The section in place of the one on a single run.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nProcesses")?;
    let mut table = Table::new(&[
        ("pid", Align::Right),
        ("program", Align::Left),
        ("start", Align::Left),
        ("duration", Align::Right),
        ("interval", Align::Right),
        ("file", Align::Path),
        ("end", Align::Left),
    ]);
    for part in &profile.parts {
        let run = &part.run;
        table.row(vec![
            known(run.pid != 0, || run.pid.to_string()),
            run.titled_name(),
            known(run.start_wall_ns != 0, || utc(run.start_wall_ns)),
            known(run.duration_ns != 0, || {
                format!("{:.3} s", run.duration_ns as f64 / 1e9)
            }),
            interval(run),
            part.file.clone(),
            run.ending.describe().into(),
        ]);
    }
    table.write(stdout_width(), out)
}

fn known(is_known: bool, text: impl FnOnce() -> String) -> String {
    if is_known { text() } else { "?".into() }
}

fn interval(run: &Run) -> String {
    match run.intervals() {
        None => "?".into(),
        Some((least, most)) if least == most => Bytes(least as f64).to_string(),
        Some((least, most)) => format!("{} to {}", Bytes(least as f64), Bytes(most as f64)),
    }
}
