//! Table of the past: `heapprof top` by a number that only the past tells, from peak to lifetimes.

use std::io::{self, Write};

use heapprof_core::{LEAST_OF_ALL, LEAST_OF_OWN};
use heapprof_symbolizer::Lifetimes;
use heapprof_symbolizer::export::json::Intervals;
use heapprof_symbolizer::{
    Amount, By, Confidence, Count, FEW_SAMPLES, GroupMap, Json, Measure, Pace, Percent, Precision,
    Profile, REAL, RecordingConditions, Scale, SiteMap, Symbols,
};
use serde::Serialize;

use super::coarse_growth::{self, CoarseGrowth};
use crate::cli::options::measure::not_known_by;
use crate::cli::output::colour::TextStyle;
use crate::cli::output::destination::Destination;
use crate::cli::output::document::Head;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::{describe_confidence, write_mappings_read, write_totals_at};
use crate::cli::output::label::{JsonLabel, JsonLines, Label};
use crate::cli::output::site_table::{columns, spare_columns, write_few};
use crate::cli::output::table::{Align, Table};
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// The choice of what is shown, and how.
pub(crate) struct Shown {
    pub(crate) measure: Measure,
    pub(crate) by: Option<By>,
    pub(crate) number: usize,
    pub(crate) cumulative: bool,
    pub(crate) confidence: Confidence,
}

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Json,
    Csv,
}

struct PastLine {
    label: Label,
    own: Amount,
    all: Amount,
    lifetimes: Lifetimes,
}

pub(crate) fn run(
    profile: &Profile,
    symbols: &Symbols,
    shown: &Shown,
    form: Form,
) -> Result<(), Failure> {
    let mut lines = match shown.by {
        None => of_sites(profile, &SiteMap::of(profile, symbols), shown.measure),
        Some(by) => {
            // The past is kept by stack and size, lifetimes by stack.
            if by.divides_rows() || by == By::Size && shown.measure == Measure::Lifetime {
                let what = not_known_by(shown.measure, by);
                return Err(Failure::Senseless(what));
            }
            let map = GroupMap::of(profile, symbols, by);
            of_groups(profile, &map, shown.measure)
        }
    };
    let sorted_by = |line: &PastLine| match shown.measure {
        // The longest first; those with no median outlive all others.
        Measure::Lifetime => line.lifetimes.median().unwrap_or(f64::MAX),
        _ if shown.cumulative => line.all.value,
        _ => line.own.value,
    };
    lines.retain(|line| match shown.measure {
        Measure::Lifetime => line.lifetimes != Lifetimes::default(),
        measure if measure.is_growth() => sorted_by(line) != 0.0,
        _ => sorted_by(line) > 0.0,
    });
    lines.sort_by(|a, b| {
        sorted_by(b)
            .total_cmp(&sorted_by(a))
            .then_with(|| a.label.cmp(&b.label))
    });
    let hidden = match shown.number {
        0 => 0,
        n => lines.len().saturating_sub(n),
    };
    lines.truncate(lines.len() - hidden);
    let coarse = CoarseGrowth::of(profile, symbols, shown.measure, shown.confidence);
    Destination::Stdout.write(|out| {
        match form {
            Form::Json => return write_json(profile, &lines, shown, coarse.as_ref(), out),
            Form::Csv => return write_csv(&lines, shown, out),
            Form::Table => {}
        }
        if shown.measure.is_mapped() {
            write_mappings_read(profile, out)?;
        } else {
            write_totals_at(profile, shown.confidence, stdout_width(), out)?;
        }
        writeln!(out)?;
        if lines.is_empty() {
            let is_unknown =
                shown.measure == Measure::MappedResident && profile.mappings.read_ns.is_none();
            match is_unknown {
                true => writeln!(out, "  unknown: the resident bytes were not read")?,
                false => writeln!(out, "  nothing: {} is 0", shown.measure)?,
            }
        } else if shown.measure == Measure::Lifetime {
            write_lifetimes(&lines, shown.by, out)?;
        } else {
            write_sums(profile, &lines, shown, out)?;
        }
        if hidden > 0 {
            let hidden = Count(hidden as u64);
            writeln!(out, "  … and {hidden} more (-n 0 shows all)")?;
        }
        if let Some(coarse) = &coarse {
            coarse.write(out)?;
        }
        Ok(())
    })
}

impl PastLine {
    fn of(label: Label) -> PastLine {
        PastLine {
            label,
            own: Amount::default(),
            all: Amount::default(),
            lifetimes: Lifetimes::default(),
        }
    }
}

fn of_sites(profile: &Profile, map: &SiteMap, measure: Measure) -> Vec<PastLine> {
    let labels = map.keys().iter().cloned().map(Label::Site);
    let mut lines: Vec<PastLine> = labels.map(PastLine::of).collect();
    for (index, row) in profile.rows.iter().enumerate() {
        let amount = measure.of_row(profile, index);
        if let Some(own) = map.own(row.stack) {
            lines[own].own += amount;
        }
        for site in map.all(row.stack) {
            lines[site].all += amount;
        }
    }
    for (stack, lifetimes) in profile.lifetimes.iter().enumerate() {
        if let Some(own) = map.own(stack as u32) {
            lines[own].lifetimes.merge(lifetimes);
        }
    }
    lines
}

fn of_groups(profile: &Profile, map: &GroupMap, measure: Measure) -> Vec<PastLine> {
    let labels = map.names().iter().cloned().map(Label::Group);
    let mut lines: Vec<PastLine> = labels.map(PastLine::of).collect();
    let mut lived = vec![false; profile.lifetimes.len()];
    for (index, row) in profile.rows.iter().enumerate() {
        let amount = measure.of_row(profile, index);
        let own = map.own(index);
        lines[own].own += amount;
        for &group in map.all(index) {
            lines[group as usize].all += amount;
        }
        // A stack has several rows, and its lifetimes once.
        let stack = row.stack as usize;
        if lived.get(stack) == Some(&false) {
            lived[stack] = true;
            lines[own].lifetimes.merge(&profile.lifetimes[stack]);
        }
    }
    lines
}

fn write_sums(
    profile: &Profile,
    lines: &[PastLine],
    shown: &Shown,
    out: &mut impl Write,
) -> io::Result<()> {
    let measure = shown.measure;
    let whole = measure.of_all(profile);
    let scale = Scale::of(profile, measure);
    // All mappings are recorded, whatever the interval.
    let is_sampled = profile.precision() == Precision::Sampled && !measure.is_mapped();
    let half = |amount: &Amount| amount.error() * shown.confidence.standard_errors();
    // One unit for all lines, or they could not be compared at a glance.
    let most = lines
        .iter()
        .map(|line| line.own.value.abs())
        .fold(0.0, f64::max);
    let pace = Pace::of(most);
    let quantity = |value: f64| match measure.is_growth() {
        true => measure.quantity_at(value, pace),
        false => measure.quantity(value),
    };
    let plus_minus = match is_sampled {
        true => format!(" ± {}", quantity(half(&whole))),
        false => String::new(),
    };
    writeln!(out, "{measure}: {}{plus_minus}", quantity(whole.value))?;
    let mut table = Table::new(&columns(is_sampled, shown.by));
    table.spare(&spare_columns(is_sampled, shown.cumulative));
    let mut any_few = false;
    for line in lines {
        let style = |part| match measure.is_growth() {
            // Parts of a sum of what grew and what shrank are none.
            true => TextStyle::Plain,
            false => TextStyle::of_share(part, whole.value),
        };
        let mut cells = vec![(quantity(line.own.value), style(line.own.value))];
        if is_sampled {
            let half = half(&line.own);
            let few =
                (1..FEW_SAMPLES).contains(&line.own.samples) && half > 0.1 * line.own.value.abs();
            any_few |= few;
            let mark = if few { "~ " } else { "" };
            cells.push((format!("{mark}{}", quantity(half)), TextStyle::Aside));
        }
        let share = |part: f64| {
            let whole = whole.value;
            Percent { part, whole }.to_string()
        };
        let (own, all) = match measure.is_growth() {
            true => (scale.verdict(&line.own).name().into(), String::new()),
            false => (share(line.own.value), share(line.all.value)),
        };
        cells.extend([
            (own, style(line.own.value)),
            (quantity(line.all.value), TextStyle::Plain),
            (all, style(line.all.value)),
        ]);
        cells.extend(line.label.cells());
        table.row_of(cells);
    }
    table.write(stdout_width(), out)?;
    if any_few {
        write_few(stdout_width(), out)?;
    }
    if measure.is_growth() {
        let words = format!("  {}", words_of_verdicts(is_sampled));
        write_wrapped(&words, REMARK_INDENT, stdout_width(), out)?;
    }
    Ok(())
}

/// Where a remark goes on that is too wide.
const REMARK_INDENT: usize = 4;

/// The meaning of the verdicts on growth.
fn words_of_verdicts(is_sampled: bool) -> String {
    let small = format!(
        "small: less than {} % of what the line, or {} % of what all have in use; past: falls, as most of it is gone; \
         late: came near the end, which may be a burst (`heapprof explain` tells)",
        100.0 * LEAST_OF_OWN,
        100.0 * LEAST_OF_ALL
    );
    match is_sampled {
        true => format!("real: more than {REAL} standard errors from no growth at all; {small}"),
        false => small,
    }
}

fn write_lifetimes(lines: &[PastLine], by: Option<By>, out: &mut impl Write) -> io::Result<()> {
    let mut columns: Vec<(&str, Align)> = ["median", "90 %", "mean", "freed", "live"]
        .map(|name| (name, Align::Right))
        .into();
    columns.extend(Label::columns(by));
    let mut table = Table::new(&columns);
    for line in lines {
        let lifetimes = &line.lifetimes;
        let or_long = |time: Option<f64>| time.map_or("outlives".into(), seconds);
        let numbers = [
            or_long(lifetimes.median()),
            or_long(lifetimes.quantile(0.9)),
            or_long(lifetimes.mean()),
            Count(lifetimes.died_samples()).to_string(),
            Count(lifetimes.live_samples()).to_string(),
        ];
        let numbers = numbers.into_iter().map(|text| (text, TextStyle::Plain));
        table.row_of(numbers.chain(line.label.cells()).collect());
    }
    table.write(stdout_width(), out)?;
    let remark =
        "  freed and live are samples; \"outlives\": more of the blocks lived on than would tell";
    write_wrapped(remark, REMARK_INDENT, stdout_width(), out)
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    metric: &'a str,
    unit: &'a str,
    /// A distribution has no sum.
    total: Option<f64>,
    total_error: Option<f64>,
    intervals: Intervals,
    /// Growth since before the oldest segment of a log that rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    coarse: Option<coarse_growth::Document<'a>>,
    #[serde(flatten)]
    circumstances: RecordingConditions<'a>,
    #[serde(flatten)]
    lines: JsonLines<JsonLine<'a>>,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    #[serde(flatten)]
    label: JsonLabel<'a>,
    samples: u64,
    #[serde(rename = "self")]
    own: Option<f64>,
    self_error: Option<f64>,
    cumulative: Option<f64>,
    cumulative_error: Option<f64>,
    lifetime_median_s: Option<f64>,
    lifetime_90_percent_s: Option<f64>,
    lifetime_mean_s: Option<f64>,
    /// Samples whose blocks were freed, and those that live.
    freed_samples: u64,
    live_samples: u64,
}

/// Returns the number of samples that a line rests on.
fn samples(line: &PastLine, measure: Measure) -> u64 {
    let lifetimes = &line.lifetimes;
    match measure {
        Measure::Lifetime => lifetimes.died_samples() + lifetimes.live_samples(),
        _ => line.own.samples,
    }
}

fn write_json(
    profile: &Profile,
    lines: &[PastLine],
    shown: &Shown,
    coarse: Option<&CoarseGrowth>,
    out: &mut impl Write,
) -> io::Result<()> {
    let whole = shown.measure.of_all(profile);
    let of_sum = |number: f64| (shown.measure != Measure::Lifetime).then_some(number);
    let json = lines.iter().map(|line| JsonLine {
        label: (&line.label).into(),
        samples: samples(line, shown.measure),
        own: of_sum(line.own.value),
        self_error: of_sum(line.own.error()),
        cumulative: of_sum(line.all.value),
        cumulative_error: of_sum(line.all.error()),
        lifetime_median_s: line.lifetimes.median(),
        lifetime_90_percent_s: line.lifetimes.quantile(0.9),
        lifetime_mean_s: line.lifetimes.mean(),
        freed_samples: line.lifetimes.died_samples(),
        live_samples: line.lifetimes.live_samples(),
    });
    let mut head = Head::of(profile);
    if !describe_confidence(profile, shown.confidence).is_empty() {
        head.estimator.push_str("; errors are standard errors");
    }
    let document = Document {
        head,
        metric: shown.measure.name(),
        unit: shown.measure.unit(),
        total: of_sum(whole.value),
        total_error: of_sum(whole.error()),
        intervals: Intervals::of(profile, shown.confidence),
        coarse: coarse.map(CoarseGrowth::document),
        circumstances: RecordingConditions::of(profile),
        lines: JsonLines::of(shown.by, json),
    };
    Json::Pretty.write(&document, out)
}

/// Empty cells where nothing is known.
fn write_csv(lines: &[PastLine], shown: &Shown, out: &mut impl Write) -> io::Result<()> {
    let label = Label::csv_columns(shown.by);
    let metric = shown.measure;
    writeln!(
        out,
        "{label},self-{metric},self-{metric}-error,cumulative-{metric},cumulative-{metric}-error,\
         lifetime-median-s,lifetime-mean-s,samples,lifetime-90-percent-s,freed-samples,live-samples"
    )?;
    let cell = |number: Option<f64>| number.map(|n| n.to_string()).unwrap_or_default();
    let of_sum = |number: f64| cell((metric != Measure::Lifetime).then_some(number));
    for line in lines {
        let (own, all) = (&line.own, &line.all);
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{}",
            line.label.csv(),
            of_sum(own.value),
            of_sum(own.error()),
            of_sum(all.value),
            of_sum(all.error()),
            cell(line.lifetimes.median()),
            cell(line.lifetimes.mean()),
            samples(line, metric),
            cell(line.lifetimes.quantile(0.9)),
            line.lifetimes.died_samples(),
            line.lifetimes.live_samples(),
        )?;
    }
    Ok(())
}
