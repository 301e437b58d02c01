//! `heapprof top`: shows the sites with the most memory, largest first.

mod coarse_growth;
mod past;

use std::io::{self, Write};

use heapprof_symbolizer::export::json::{Errors, Intervals, PeakValues, Values};
use heapprof_symbolizer::{
    By, Confidence, Count, Json, Limit, Measure, Metric, Profile, ReadRequest, RecordingConditions,
    Sites, Symbols, WantedExtras,
};
use serde::Serialize;

use crate::cli::inputs::source::Source;
use crate::cli::options::choice;
use crate::cli::options::confidence;
use crate::cli::options::filter::FilterArgs;
use crate::cli::options::limit::{self, Gate};
use crate::cli::options::measure::{MeasureArg, TemporaryArgs};
use crate::cli::options::quantity::count;
use crate::cli::output::destination::Destination;
use crate::cli::output::document::Head;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::write_totals_at;
use crate::cli::output::label::{JsonLabel, JsonLines, Label};
use crate::cli::output::notes::note_circumstances;
use crate::cli::output::site_table::{
    Shown, SiteLine, lines_of_groups, lines_of_sites, write_lines,
};
use crate::cli::output::width::stdout_width;

/// Show the allocation sites with the most memory
///
/// A site is the innermost function and line that is neither an allocation function nor the
/// standard library's. "self" was allocated there, "cum" there or in what is called from there.
/// With --by, sites are added up: by a part of the source, or by what the blocks are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    filter: FilterArgs,

    /// Group that a line stands for [default: an allocation site]
    #[arg(long, value_name = "GROUP", value_parser = choice::by())]
    by: Option<By>,

    /// Show this many lines; 0 for all
    #[arg(short, long, value_name = "N", default_value_t = 20, value_parser = count, allow_negative_numbers = true)]
    number: usize,

    /// The number that is shown and sorted by
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: MeasureArg,

    #[command(flatten)]
    temporary: TemporaryArgs,

    /// Confidence level of the ± intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = confidence::parse, allow_negative_numbers = true)]
    confidence: Confidence,

    /// Sort by cumulative numbers, and show callers that allocate nothing themselves
    #[arg(long)]
    cum: bool,

    /// Exit with status 3 if the total of the metric, of what the filters let through, is more than
    /// this, and by more than noise (3 standard errors): 200MiB, 5000; with 4 if it cannot be
    /// judged
    #[arg(long, value_name = "AMOUNT", value_parser = limit::amount, allow_hyphen_values = true)]
    fail_above: Option<Limit>,

    /// Exit with status 0 if the limit cannot be judged: the log is damaged or cut, has no samples,
    /// or noise is too large; without this, with status 4
    #[arg(long, requires = "fail_above")]
    allow_inconclusive: bool,

    /// Print JSON, with all four metrics of each line and exact numbers
    #[arg(long)]
    json: bool,

    /// Print CSV, with the same numbers
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let measure = measure_of(args);
    if args.fail_above.is_some() && measure == Measure::Lifetime {
        let words =
            "--fail-above is a limit of a sum, and lifetimes have none; leave out one of them";
        return Err(Failure::Senseless(words.into()));
    }
    args.temporary.refuse_beside(measure)?;
    args.source.time.age.refuse_beside(measure)?;
    let by = args.by;
    let mut profile = args.source.part(&ReadRequest {
        view: args.source.time.view(),
        pasts: measure.needs_pasts().then(|| args.temporary.temporary()),
        numbers: measure.past_numbers(),
        mappings: measure.is_mapped(),
        pages: measure.is_of_pages(),
        extras: WantedExtras {
            threads: by.is_some_and(By::divides_rows),
            ..WantedExtras::default()
        },
        ..ReadRequest::default()
    })?;
    args.source.need_times(measure, &profile)?;
    let mut symbols = args.source.symbols(&profile)?;
    args.filter.apply(&mut profile, &mut symbols)?;
    if args.csv {
        note_circumstances(&profile);
    }
    let shown = show(args, measure, &profile, &symbols);
    limit::after(shown, || match args.fail_above {
        Some(limit) => {
            let gate = Gate {
                limit,
                allows_inconclusive: args.allow_inconclusive,
            };
            gate.check(&profile, measure)
        }
        None => Ok(()),
    })
}

/// Returns the measure that is shown. Only mappings have names, so by name the usual one is that of
/// their resident bytes.
fn measure_of(args: &Args) -> Measure {
    let measure = args.metric.0;
    match args.by {
        Some(By::Mapping) if measure == Measure::default() => Measure::MappedResident,
        _ => measure,
    }
}

fn show(
    args: &Args,
    measure: Measure,
    profile: &Profile,
    symbols: &Symbols,
) -> Result<(), Failure> {
    let by = args.by;
    let Measure::Basic(metric) = measure else {
        let shown = past::Shown {
            measure,
            by,
            number: args.number,
            cumulative: args.cum,
            confidence: args.confidence,
        };
        let form = match (args.json, args.csv) {
            (true, _) => past::Form::Json,
            (_, true) => past::Form::Csv,
            _ => past::Form::Table,
        };
        return past::run(profile, symbols, &shown, form);
    };
    let mut lines = lines(profile, symbols, by, metric, args.cum);
    lines.retain(|line| {
        if args.cum {
            &line.cumulative
        } else {
            &line.own
        }
        .get(metric)
            > 0
    });
    let hidden = match args.number {
        0 => 0,
        n => lines.len().saturating_sub(n),
    };
    lines.truncate(lines.len() - hidden);

    Destination::Stdout.write(|out| {
        if args.json {
            return write_json(profile, &lines, by, args.confidence, out);
        }
        if args.csv {
            return write_csv(&lines, by, out);
        }
        write_totals_at(profile, args.confidence, stdout_width(), out)?;
        writeln!(out)?;
        let shown = Shown {
            by,
            metric,
            confidence: args.confidence,
            cumulative: args.cum,
            width: stdout_width(),
        };
        write_lines(profile, &lines, &shown, out)?;
        if hidden > 0 {
            writeln!(
                out,
                "  … and {} more (-n 0 shows all)",
                Count(hidden as u64)
            )?;
        }
        Ok(())
    })
}

/// All of them, sorted.
fn lines(
    profile: &Profile,
    symbols: &Symbols,
    by: Option<By>,
    metric: Metric,
    cumulative: bool,
) -> Vec<SiteLine> {
    match by {
        None => {
            let mut sites = Sites::of(profile, symbols);
            sites.sort(metric, cumulative);
            lines_of_sites(sites)
        }
        Some(by) => lines_of_groups(profile, symbols, by, metric, cumulative),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    totals: Values,
    standard_errors: Errors,
    intervals: Intervals,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<PeakValues>,
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
    own: Values,
    self_errors: Errors,
    cumulative: Values,
    cumulative_errors: Errors,
}

fn write_json(
    profile: &Profile,
    lines: &[SiteLine],
    by: Option<By>,
    confidence: Confidence,
    out: &mut impl Write,
) -> io::Result<()> {
    let json = |line| {
        let line: &SiteLine = line;
        JsonLine {
            label: (&line.label).into(),
            samples: Metric::AllocatedBytes.samples_of(&line.own_totals),
            own: line.own.into(),
            self_errors: Errors::of(&line.own_totals),
            cumulative: line.cumulative.into(),
            cumulative_errors: Errors::of(&line.cumulative_totals),
        }
    };
    let document = Document {
        head: Head::of(profile),
        totals: profile.numbers().into(),
        standard_errors: Errors::of_all(profile),
        intervals: Intervals::of(profile, confidence),
        peak: profile.peak_of_run().map(PeakValues::of),
        circumstances: RecordingConditions::of(profile),
        lines: JsonLines::of(by, lines.iter().map(json)),
    };
    Json::Pretty.write(&document, out)
}

fn write_csv(lines: &[SiteLine], by: Option<By>, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}", Label::csv_columns(by))?;
    for what in ["self", "cumulative"] {
        for metric in Metric::ALL {
            write!(out, ",{what}-{metric},{what}-{metric}-error")?;
        }
    }
    writeln!(out, ",samples")?;
    for line in lines {
        write!(out, "{}", line.label.csv())?;
        for (numbers, totals) in [
            (&line.own, &line.own_totals),
            (&line.cumulative, &line.cumulative_totals),
        ] {
            for metric in Metric::ALL {
                write!(
                    out,
                    ",{},{:.0}",
                    numbers.get(metric),
                    metric.error_of(totals)
                )?;
            }
        }
        let samples = Metric::AllocatedBytes.samples_of(&line.own_totals);
        writeln!(out, ",{samples}")?;
    }
    Ok(())
}
