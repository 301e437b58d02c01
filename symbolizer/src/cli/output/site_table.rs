//! Site table: a line for each site or group, with its own and cumulative numbers.

use std::io::{self, Write};

use heapprof_core::Totals;
use heapprof_symbolizer::{
    By, Bytes, Confidence, Count, FEW_SAMPLES, Metric, Numbers, Percent, Precision, Profile, Sites,
    Symbols, groups,
};

use crate::cli::output::colour::TextStyle;
use crate::cli::output::label::Label;
use crate::cli::output::table::{Align, Table};
use crate::cli::output::wrapped::write_wrapped;

/// A site or group with its numbers.
pub(crate) struct SiteLine {
    pub(crate) label: Label,
    pub(crate) own: Numbers,
    pub(crate) own_totals: Totals,
    pub(crate) cumulative: Numbers,
    pub(crate) cumulative_totals: Totals,
}

pub(crate) fn lines_of_sites(sites: Sites) -> Vec<SiteLine> {
    sites
        .sites
        .into_iter()
        .map(|site| SiteLine {
            label: Label::Site(site.key),
            own: site.own,
            own_totals: site.own_totals,
            cumulative: site.cumulative,
            cumulative_totals: site.cumulative_totals,
        })
        .collect()
}

/// Lines of groups, sorted.
pub(crate) fn lines_of_groups(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
    metric: Metric,
    cumulative: bool,
) -> Vec<SiteLine> {
    groups(profile, symbols, by, metric, cumulative)
        .into_iter()
        .map(|group| SiteLine {
            label: Label::Group(group.name),
            own: group.own,
            own_totals: group.own_totals,
            cumulative: group.cumulative,
            cumulative_totals: group.cumulative_totals,
        })
        .collect()
}

/// The table of sites.
pub(crate) fn write_sites(
    profile: &Profile,
    sites: Sites,
    metric: Metric,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let shown = Shown {
        by: None,
        metric,
        confidence: Confidence::default(),
        cumulative: false,
        width,
    };
    write_lines(profile, &lines_of_sites(sites), &shown, out)
}

/// Says what the mark of few samples means.
pub(crate) fn write_few(width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let remark = format!(
        "  ~ rests on fewer than {FEW_SAMPLES} samples: an order of magnitude, not a number"
    );
    write_wrapped(&remark, REMARK_INDENT, width, out)
}

/// Where a remark goes on that is too wide.
const REMARK_INDENT: usize = 4;

/// The choice of what is shown, and how.
pub(crate) struct Shown {
    pub(crate) by: Option<By>,
    pub(crate) metric: Metric,
    pub(crate) confidence: Confidence,
    /// True if lines are sorted by the cumulative number.
    pub(crate) cumulative: bool,
    pub(crate) width: Option<usize>,
}

/// The columns of numbers, with or without errors, and those of the label.
pub(crate) fn columns(is_sampled: bool, by: Option<By>) -> Vec<(&'static str, Align)> {
    let mut columns = vec![("self", Align::Right)];
    if is_sampled {
        columns.push(("±", Align::Right));
    }
    columns.extend([
        ("", Align::Right),
        ("cum", Align::Right),
        ("", Align::Right),
    ]);
    columns.extend(Label::columns(by));
    columns
}

/// The places of the columns that a narrow table does without: what it is not sorted by.
pub(crate) fn spare_columns(is_sampled: bool, cumulative: bool) -> Vec<usize> {
    let shares_and_sums = match is_sampled {
        true => [4, 3],
        false => [3, 2],
    };
    match cumulative {
        true => Vec::new(),
        false => shares_and_sums.to_vec(),
    }
}

pub(crate) fn write_lines(
    profile: &Profile,
    lines: &[SiteLine],
    shown: &Shown,
    out: &mut impl Write,
) -> io::Result<()> {
    let metric = shown.metric;
    let mut any_few = false;
    let whole = profile.numbers().get(metric) as f64;
    let is_sampled = profile.precision() == Precision::Sampled;
    let mut table = Table::new(&columns(is_sampled, shown.by));
    table.spare(&spare_columns(is_sampled, shown.cumulative));
    let quantity = |value: f64| {
        if metric.is_bytes() {
            Bytes(value).to_string()
        } else {
            Count(value.round() as u64).to_string()
        }
    };
    for line in lines {
        let (own, all) = (
            line.own.get(metric) as f64,
            line.cumulative.get(metric) as f64,
        );
        let mut cells = vec![(quantity(own), TextStyle::of_share(own, whole))];
        if is_sampled {
            let half = metric.error_of(&line.own_totals) * shown.confidence.standard_errors();
            // A block so large that it is always sampled is exact, however few there are.
            let samples = metric.samples_of(&line.own_totals);
            let is_few = (1..FEW_SAMPLES).contains(&samples) && half > 0.1 * own;
            any_few |= is_few;
            let mark = if is_few { "~ " } else { "" };
            cells.push((format!("{mark}{}", quantity(half)), TextStyle::Aside));
        }
        let share = |part| Percent { part, whole }.to_string();
        cells.extend([
            (share(own), TextStyle::of_share(own, whole)),
            (quantity(all), TextStyle::Plain),
            (share(all), TextStyle::of_share(all, whole)),
        ]);
        cells.extend(line.label.cells());
        table.row_of(cells);
    }
    if lines.is_empty() {
        let is_all_in_use = profile
            .run
            .span
            .is_some_and(|span| span.survived_ns.is_some());
        let hint = match metric.is_in_use() && !is_all_in_use {
            true => " (-m allocated-bytes shows what was freed, too)",
            false => "",
        };
        return writeln!(out, "  nothing: {metric} is 0{hint}");
    }
    table.write(shown.width, out)?;
    if any_few {
        write_few(shown.width, out)?;
    }
    Ok(())
}
