//! Coverage text: how much of the profile has names, as a section of `info` and at the end of
//! `symbolize`.

use std::io::{self, Write};

use heapprof_symbolizer::{Bytes, Coverage, CoverageShare, Percent, Profile, Symbols};

use crate::cli::output::say;
use crate::cli::output::table::{Align, Table};
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// `symbolize` names so many modules; `info` all.
const TOLD: usize = 4;

/// The section of `info`.
pub(crate) fn write(profile: &Profile, symbols: &Symbols, out: &mut impl Write) -> io::Result<()> {
    let coverage = Coverage::of(profile, symbols);
    if coverage.whole.bytes == 0 {
        return Ok(());
    }
    writeln!(out, "\nNames, by allocated bytes")?;
    let CoverageShare {
        bytes,
        named_bytes,
        lines_bytes,
    } = coverage.whole;
    let whole = format!(
        "  {} in stacks in which every frame has a name, {} with lines throughout",
        percent(named_bytes, bytes),
        percent(lines_bytes, bytes)
    );
    write_wrapped(&whole, 4, stdout_width(), out)?;
    let mut table = Table::new(&[
        ("allocated", Align::Right),
        ("named", Align::Right),
        ("with lines", Align::Right),
        ("in stacks through", Align::Path),
    ]);
    for (module, share) in coverage.worst_first() {
        table.row(vec![
            Bytes(share.bytes as f64).to_string(),
            percent(share.named_bytes, share.bytes),
            percent(share.lines_bytes, share.bytes),
            name_of(profile, module).to_owned(),
        ]);
    }
    table.write(stdout_width(), out)
}

/// Says on standard error, for `symbolize`, which names are missing, worst module first, and what
/// to do about it.
pub(crate) fn say(profile: &Profile, symbols: &Symbols) {
    let coverage = Coverage::of(profile, symbols);
    let CoverageShare {
        bytes, named_bytes, ..
    } = coverage.whole;
    if coverage.cut_bytes > 0 {
        say::note(&format_args!(
            "note: the stacks of {} of the allocated bytes were cut; `heapprof info` says why",
            percent(coverage.cut_bytes, bytes)
        ));
    }
    if named_bytes == bytes {
        return;
    }
    let (asked, unnamed) = symbols.asked_and_unnamed();
    say::note(&format_args!(
        "note: {} of the allocated bytes are fully named, {unnamed} of {asked} addresses have no name; \
         `heapprof info` says all that was tried",
        percent(named_bytes, bytes)
    ));
    let lacking = coverage.worst_first();
    let lacking = lacking
        .iter()
        .filter(|(_, share)| share.named_bytes < share.bytes);
    for (module, share) in lacking.take(TOLD) {
        say::line(&format!(
            "  {}: no name for frames in {} of its bytes",
            name_of(profile, *module),
            percent(share.bytes - share.named_bytes, share.bytes),
        ));
        let report = module.and_then(|module| symbols.reports().get(&module));
        for reason in report.into_iter().flat_map(|report| &report.reasons) {
            say::line(&format!("    {reason}"));
        }
    }
}

fn percent(part: u64, whole: u64) -> String {
    Percent {
        part: part as f64,
        whole: whole as f64,
    }
    .to_string()
}

fn name_of(profile: &Profile, module: Option<u32>) -> &str {
    module
        .and_then(|module| profile.modules.get(module as usize))
        .map_or("no module (code made at run time)", |m| m.path.as_str())
}
