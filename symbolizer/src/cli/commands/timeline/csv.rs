//! `heapprof timeline --csv`: the steps as comma-separated values, behind the coarse moments.

use std::io::{self, Write};

use heapprof_symbolizer::Timeline;
use heapprof_symbolizer::export::csv::cell;

use super::coarse::Coarse;

/// Writes a line for each coarse moment, in which the cells that are not known are empty, and one
/// for each step.
pub(super) fn write(
    timeline: &Timeline<f64>,
    names: &[String],
    coarse: &Coarse,
    out: &mut impl Write,
) -> io::Result<()> {
    write!(
        out,
        "seconds,in_use_bytes,in_use_error,highest_in_use_bytes,allocated_bytes,allocated_objects"
    )?;
    for name in names {
        write!(out, ",{}", cell(name))?;
    }
    writeln!(out, ",resident_bytes,coarse")?;
    for row in coarse.rows() {
        writeln!(
            out,
            "{:.6},{:.0},{:.0},{:.0},,{},{},1",
            row.time_ns as f64 / 1e9,
            row.bytes,
            row.bytes_error,
            row.highest,
            ",".repeat(names.len()),
            known(row.resident)
        )?;
    }
    for step in &timeline.steps {
        write!(
            out,
            "{:.6},{:.0},{:.0},{:.0},{:.0},{:.0}",
            step.end_ns as f64 / 1e9,
            step.in_use,
            step.in_use_error,
            step.highest,
            step.allocated,
            step.allocated_objects
        )?;
        for value in &step.groups {
            write!(out, ",{value:.0}")?;
        }
        writeln!(out, ",{},0", known(step.resident))?;
    }
    Ok(())
}

/// The cell of a number, which is empty if the number is not known.
fn known(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}
