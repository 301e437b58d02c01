//! The table of a difference: the total and each site, with errors and verdicts.

use std::io::{self, Write};

use heapprof_symbolizer::{By, Change, Diff, DiffSite, Measure, REAL, SourcePlace};

use crate::cli::commands::diff::signed::{Signed, standard_error, z_of};
use crate::cli::output::table::{Align, Table};
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// Where a remark goes on that is too wide.
const REMARK_INDENT: usize = 4;

pub(super) fn write(
    diff: &Diff,
    changes: &[(&DiffSite, &Change)],
    by: Option<By>,
    metric: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    if changes.is_empty() {
        return writeln!(out, "  nothing differs in {metric}");
    }
    let signed = Signed::of(metric, changes);
    let mut table = Table::new(&[
        ("difference", Align::Right),
        ("std. error", Align::Right),
        ("z", Align::Right),
        ("", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        (
            by.map_or("function", By::name),
            match by {
                None | Some(By::Function) => Align::Function,
                Some(_) => Align::Left,
            },
        ),
        (by.map_or("where", |_| ""), Align::Path),
    ]);
    // The verdict rests on these two.
    const Z: usize = 2;
    const STANDARD_ERROR: usize = 1;
    table.spare(&[Z, STANDARD_ERROR]);
    let row = |change: &Change, function: &str, module: &str| {
        vec![
            signed.difference(change.difference()),
            standard_error(&signed, change),
            z_of(change),
            change.verdict().name().into(),
            signed.quantity(change.before),
            signed.quantity(change.after),
            function.into(),
            module.into(),
        ]
    };
    table.row(row(&diff.total, "(all)", ""));
    for (site, change) in changes {
        let place = diff.places.get(*site).map(SourcePlace::to_string);
        let place = place.as_ref().unwrap_or(&site.module);
        table.row(row(change, &site.title(), place));
    }
    table.write(stdout_width(), out)?;
    let remark = format!("  {metric}; a difference is real from {REAL} standard errors (z) on");
    write_wrapped(&remark, REMARK_INDENT, stdout_width(), out)
}
