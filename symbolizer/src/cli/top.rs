//! `heapprof top`: where the memory comes from, largest first.

use std::io::{self, Write};

use heapprof_symbolizer::export::json::{Errors, Intervals, Values};
use heapprof_symbolizer::{
    Bytes, Confidence, Count, Ending, FEW_SAMPLES, Measure, Metric, Percent, Precision, Printable,
    Profile, Site, Sites,
};
use serde::Serialize;

use crate::cli::confidence;
use crate::cli::failure::Failure;
use crate::cli::measure::{self, MeasureArg, TemporaryArgs};
use crate::cli::output;
use crate::cli::source::Source;
use crate::cli::table::{Align, Table, stdout_width};

/// Show the allocation sites with the most memory
///
/// A site is the innermost function and line that is neither an allocation function nor the
/// standard library's. "self" was allocated there, "cum" there or in what is called from there.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    /// How many sites to show; 0 for all
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    number: usize,

    /// The number that is shown and sorted by
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: MeasureArg,

    #[command(flatten)]
    temporary: TemporaryArgs,

    /// How often, in percent, the interval behind ± shall hold the truth
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = confidence::parse)]
    confidence: Confidence,

    /// Sort by cumulative numbers, and show callers that allocate nothing themselves
    #[arg(long)]
    cum: bool,

    /// JSON, with all four metrics of each site and exact numbers
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let measure = args.metric.0;
    let profile = args
        .source
        .profile_with_pasts(measure.needs_pasts().then(|| args.temporary.temporary()))?;
    let symbols = args.source.symbols(&profile)?;
    let Measure::Basic(metric) = measure else {
        let shown = measure::Shown {
            measure,
            temporary: args.temporary.temporary(),
            number: args.number,
            cumulative: args.cum,
            confidence: args.confidence,
        };
        return measure::run(&profile, &symbols, &args.source.file, &shown, args.json);
    };
    let mut sites = Sites::of(&profile, &symbols);
    sites.sort(metric, args.cum);
    sites.sites.retain(|site| {
        if args.cum {
            &site.cumulative
        } else {
            &site.own
        }
        .get(metric)
            > 0
    });
    let hidden = match args.number {
        0 => 0,
        n => sites.sites.len().saturating_sub(n),
    };
    sites.sites.truncate(sites.sites.len() - hidden);

    output::to(None, |out| {
        if args.json {
            return write_json(&profile, &sites, args.confidence, out);
        }
        write_totals_at(&profile, args.confidence, out)?;
        writeln!(out)?;
        write_sites_at(
            &profile,
            &sites,
            metric,
            args.confidence,
            stdout_width(),
            out,
        )?;
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

/// The heading: what ran, the four totals with their errors, and the same as plain numbers.
pub(crate) fn write_totals(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    write_totals_at(profile, Confidence::default(), out)
}

/// The same, with intervals of that confidence.
pub(crate) fn write_totals_at(
    profile: &Profile,
    confidence: Confidence,
    out: &mut impl Write,
) -> io::Result<()> {
    let run = &profile.run;
    let name = run
        .program
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty());
    write!(out, "{}", Printable(name.unwrap_or("unknown program")))?;
    if run.pid != 0 {
        write!(out, ", pid {}", run.pid)?;
    }
    if run.duration_ns > 0 {
        write!(out, ", {:.1} s", run.duration_ns as f64 / 1e9)?;
    }
    writeln!(
        out,
        ": {}{}",
        how_exact(profile),
        what_interval(profile, confidence)
    )?;

    if let Some(span) = run.span {
        writeln!(out, "view: {}", span.describe())?;
    }
    let numbers = profile.numbers();
    let quantity = |metric: Metric, value: f64| {
        if metric.is_bytes() {
            Bytes(value).to_string()
        } else {
            Count(value.round() as u64).to_string()
        }
    };
    let shown = |metric: Metric| -> String {
        let text = quantity(metric, numbers.get(metric) as f64);
        match profile.error(metric) {
            Some(error) if profile.precision() != Precision::Exact => {
                let half = error * confidence.standard_errors();
                format!("{text} ± {}", quantity(metric, half))
            }
            _ => text,
        }
    };
    for (label, bytes, objects) in [
        ("in use   ", Metric::InUseBytes, Metric::InUseObjects),
        (
            "allocated",
            Metric::AllocatedBytes,
            Metric::AllocatedObjects,
        ),
    ] {
        writeln!(
            out,
            "  {label}  {} in {} blocks",
            shown(bytes),
            shown(objects)
        )?;
    }
    writeln!(
        out,
        "total: in use {} objects, {} bytes; allocated {} objects, {} bytes",
        numbers.in_use_objects,
        numbers.in_use_bytes,
        numbers.allocated_objects,
        numbers.allocated_bytes
    )?;
    if profile.run.ending == Ending::CutOff {
        writeln!(
            out,
            "the log has no end (the process was killed, or still runs): numbers are those of its last record"
        )?;
    }
    let lost: u64 = profile.account.losses().map(|(_, n)| n).sum();
    if lost > 0 {
        writeln!(out, "losses were counted: see `heapprof info`")?;
    }
    Ok(())
}

/// How exact the numbers are, in words.
pub(crate) fn how_exact(profile: &Profile) -> String {
    match (profile.precision(), profile.run.interval) {
        (Precision::Exact, _) => "every allocation recorded, numbers are exact".into(),
        (Precision::Sampled, Some(interval)) => {
            format!("sampled every {} on average", Bytes(interval as f64))
        }
        (Precision::Sampled, None) => "sampled".into(),
        (Precision::Stated, Some(interval)) if profile.stated_errors.is_some() => format!(
            "a dump, sampled every {} on average; the error of its single lines is not stated",
            Bytes(interval as f64)
        ),
        (Precision::Stated, Some(interval)) if interval > 1 => format!(
            "a dump, sampled every {} on average; it does not state the error of its numbers",
            Bytes(interval as f64)
        ),
        (Precision::Stated, _) => "a dump; it does not state the error of its numbers".into(),
    }
}

/// What ± means, when it is shown.
pub(crate) fn what_interval(profile: &Profile, confidence: Confidence) -> String {
    let is_known = match profile.precision() {
        Precision::Exact => false,
        Precision::Sampled => true,
        Precision::Stated => profile.stated_errors.is_some(),
    };
    if is_known {
        format!("; ± is the {} % interval", confidence.percent())
    } else {
        String::new()
    }
}

/// The table.
pub(crate) fn write_sites(
    profile: &Profile,
    sites: &Sites,
    metric: Metric,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    write_sites_at(profile, sites, metric, Confidence::default(), width, out)
}

/// The same, with intervals of that confidence.
pub(crate) fn write_sites_at(
    profile: &Profile,
    sites: &Sites,
    metric: Metric,
    confidence: Confidence,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut any_few = false;
    let whole = profile.numbers().get(metric) as f64;
    let is_sampled = profile.precision() == Precision::Sampled;
    let mut columns = vec![("self", Align::Right)];
    if is_sampled {
        columns.push(("±", Align::Right));
    }
    columns.extend([
        ("", Align::Right),
        ("cum", Align::Right),
        ("", Align::Right),
        ("function", Align::Left),
        ("where", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    let quantity = |value: f64| {
        if metric.is_bytes() {
            Bytes(value).to_string()
        } else {
            Count(value.round() as u64).to_string()
        }
    };
    for site in &sites.sites {
        let (own, all) = (
            site.own.get(metric) as f64,
            site.cumulative.get(metric) as f64,
        );
        let mut cells = vec![quantity(own)];
        if is_sampled {
            let half = metric.error_of(&site.own_totals) * confidence.standard_errors();
            // A block so large that it is always sampled is exact, however few there are.
            let samples = metric.samples_of(&site.own_totals);
            let is_few = (1..FEW_SAMPLES).contains(&samples) && half > 0.1 * own;
            any_few |= is_few;
            let mark = if is_few { "~ " } else { "" };
            cells.push(format!("{mark}{}", quantity(half)));
        }
        cells.extend([
            Percent { part: own, whole }.to_string(),
            quantity(all),
            Percent { part: all, whole }.to_string(),
            shortened(&site.key.function, width),
            place(site, width),
        ]);
        table.row(cells);
    }
    if sites.sites.is_empty() {
        let hint = match metric.is_in_use() {
            true => " (--metric allocated-bytes shows what was freed, too)",
            false => "",
        };
        return writeln!(out, "  nothing: {metric} is 0{hint}");
    }
    table.write(width, out)?;
    if any_few {
        writeln!(
            out,
            "  ~ rests on fewer than {FEW_SAMPLES} samples: an order of magnitude, not a number"
        )?;
    }
    Ok(())
}

/// On a terminal, a name of a kilobyte would push the line's place off the screen.
fn shortened(function: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return function.into();
    };
    let room = (width / 2).max(24);
    if function.chars().count() <= room {
        return function.into();
    }
    let cut: String = function.chars().take(room - 1).collect();
    format!("{cut}…")
}

/// File and line, or else the module; on a terminal the end of a long path, which says more than
/// its beginning.
fn place(site: &Site, width: Option<usize>) -> String {
    const ROOM: usize = 40;
    let key = &site.key;
    let path = key.file.as_deref().unwrap_or(&key.module);
    let mut text = path.to_owned();
    let length = path.chars().count();
    if width.is_some() && length > ROOM {
        text = format!("…{}", path.chars().skip(length - ROOM).collect::<String>());
    }
    match (&key.file, key.line) {
        (Some(_), Some(line)) => format!("{text}:{line}"),
        _ => text,
    }
}

#[derive(Serialize)]
struct Document<'a> {
    program: &'a str,
    pid: u32,
    estimator: String,
    totals: Values,
    standard_errors: Errors,
    intervals: Intervals,
    sites: Vec<JsonSite<'a>>,
}

#[derive(Serialize)]
struct JsonSite<'a> {
    function: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    module: &'a str,
    samples: u64,
    #[serde(rename = "self")]
    own: Values,
    self_errors: Errors,
    cumulative: Values,
    cumulative_errors: Errors,
}

fn write_json(
    profile: &Profile,
    sites: &Sites,
    confidence: Confidence,
    out: &mut impl Write,
) -> io::Result<()> {
    let sites = sites.sites.iter().map(|site| JsonSite {
        function: &site.key.function,
        file: site.key.file.as_deref(),
        line: site.key.line,
        module: &site.key.module,
        samples: Metric::AllocatedBytes.samples_of(&site.own_totals),
        own: site.own.into(),
        self_errors: Errors::of(&site.own_totals),
        cumulative: site.cumulative.into(),
        cumulative_errors: Errors::of(&site.cumulative_totals),
    });
    let document = Document {
        program: &profile.run.program,
        pid: profile.run.pid,
        estimator: how_exact(profile),
        totals: profile.numbers().into(),
        standard_errors: Errors::of(&profile.totals()),
        intervals: Intervals::of(profile, confidence),
        sites: sites.collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
