//! CSV format: one line for each allocation site, for spreadsheets.
//!
//! Only own numbers are written, so that columns sum to the totals. A metric of the past has two
//! more columns, behind the others.
//!
//! A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@` as a formula. Names come from
//! files that anybody may have written, so such cells get a `'` in front.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::export::Options;
use crate::model::amount::Amount;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::printable::Printable;
use crate::model::profile::Profile;
use crate::naming::site::{Site, SiteKey, SiteMap, Sites};
use crate::naming::symbols::Symbols;

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
    let mut amounts: HashMap<SiteKey, Amount> = HashMap::new();
    match options.metric {
        Measure::Basic(metric) => sites.sort(metric, false),
        measure => {
            let map = SiteMap::of(profile, symbols);
            for (index, row) in profile.rows.iter().enumerate() {
                if let Some(key) = map.own_of(row.stack) {
                    *amounts.entry(key.clone()).or_default() += measure.of_row(profile, index);
                }
            }
            let value = |site: &Site| amounts.get(&site.key).map_or(0.0, |amount| amount.value);
            sites.sites.sort_by(|a, b| {
                let by_value = value(b).total_cmp(&value(a));
                by_value.then_with(|| a.key.cmp(&b.key))
            });
        }
    }
    write!(
        out,
        "function,file,line,module,in-use-objects,in-use-bytes,allocated-objects,allocated-bytes,\
         in-use-bytes-error,allocated-bytes-error,samples"
    )?;
    match options.metric {
        Measure::Basic(_) => writeln!(out)?,
        measure => writeln!(out, ",{measure},{measure}-error")?,
    }
    for site in &sites.sites {
        let amount = amounts.get(&site.key);
        if site.own.is_zero() && amount.is_none_or(|amount| amount.value == 0.0) {
            continue;
        }
        let (key, own) = (&site.key, &site.own);
        write!(
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
        match options.metric {
            Measure::Basic(_) => writeln!(out)?,
            _ => {
                let amount = amount.copied().unwrap_or_default();
                writeln!(out, ",{:.6},{:.6}", amount.value, amount.error())?;
            }
        }
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
