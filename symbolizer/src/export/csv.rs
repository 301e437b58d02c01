//! CSV: one line for each allocation site, for spreadsheets. Own numbers only, so that columns sum
//! to the totals.
//!
//! A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@` as a formula; names come from
//! files that anybody may have written, so such cells get a `'` in front.

use std::io::{self, Write};

use crate::export::Options;
use crate::metric::Metric;
use crate::printable::Printable;
use crate::profile::Profile;
use crate::site::Sites;
use crate::symbols::Symbols;

/// Writes all sites, largest first by the metric that was chosen.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut sites = Sites::of(profile, symbols);
    sites.sort(options.metric, false);
    writeln!(
        out,
        "function,file,line,module,in-use-objects,in-use-bytes,allocated-objects,allocated-bytes,\
         in-use-bytes-error,allocated-bytes-error,samples"
    )?;
    for site in sites.sites.iter().filter(|site| !site.own.is_zero()) {
        let (key, own) = (&site.key, &site.own);
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},{:.0},{:.0},{}",
            cell(&key.function),
            cell(key.file.as_deref().unwrap_or_default()),
            key.line.map(|line| line.to_string()).unwrap_or_default(),
            cell(&key.module),
            own.in_use_objects,
            own.in_use_bytes,
            own.allocated_objects,
            own.allocated_bytes,
            Metric::InUseBytes.error_of(&site.own_totals),
            Metric::AllocatedBytes.error_of(&site.own_totals),
            Metric::AllocatedBytes.samples_of(&site.own_totals),
        )?;
    }
    Ok(())
}

/// Text as a cell that is only shown.
pub fn cell(text: &str) -> String {
    let mut text = Printable(text).to_string();
    if text.starts_with(['=', '+', '-', '@']) {
        text.insert(0, '\'');
    }
    if text.contains(['"', ',', ' ', '\'']) {
        text = format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}
