//! `heapprof diff`: what changed, and whether it is more than noise.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    Change, Count, Diff, DiffGraph, DiffPlace, Differences, InputError, Json, Measure, Moment,
    Pace, Profile, REAL, Reading, Unlike, View,
};
use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::measure::{SumArg, TemporaryArgs};
use crate::cli::output;
use crate::cli::say;
use crate::cli::source::{Places, read};
use crate::cli::table::{Align, Table, stdout_width};

/// Show what changed between two profiles, or two moments of one log
///
/// With two files, each difference has the errors of both. With one log and --at given twice, what
/// is there at both moments rests on the same samples and cancels: only what came and what went has
/// an error. A difference is "real" from 3 standard errors on, where noise alone gets once in 370.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The first file, or the only one
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The second file
    #[arg(value_name = "B")]
    after: Option<PathBuf>,

    /// A moment of the log, as in `heapprof top --at`; given twice with one log, once or twice with
    /// two (the first for A)
    #[arg(long, value_name = "MOMENT")]
    at: Vec<String>,

    /// How many sites to show; 0 for all
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    number: usize,

    /// The number that is compared
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: SumArg,

    #[command(flatten)]
    temporary: TemporaryArgs,

    /// Leave out sites that differ by less than so many standard errors
    #[arg(long, value_name = "Z", default_value_t = 0.0)]
    min_significance: f64,

    /// Compare different programs as well
    #[arg(long)]
    force: bool,

    /// JSON, with exact numbers
    #[arg(long)]
    json: bool,

    /// A flame graph (SVG) of what changed: red grew, blue shrank, grey may be noise
    #[arg(long, conflicts_with_all = ["json", "folded"])]
    flamegraph: bool,

    /// `stack before after` lines, for other programs' differential flame graphs
    #[arg(long, conflicts_with = "json")]
    folded: bool,

    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    #[command(flatten)]
    places: Places,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let moments: Vec<Moment> = args
        .at
        .iter()
        .map(|text| match text.parse() {
            Ok(moment) => moment,
            Err(never) => match never {},
        })
        .collect();
    match (&args.after, &moments[..]) {
        (Some(_), [_, _, _, ..]) => Err(Failure::Asked("--at is given more than twice".into())),
        (Some(after), moments) => two_files(args, after, moments),
        (None, [from, to]) => two_moments(args, from, to),
        (None, _) => Err(Failure::Asked(
            "two files are compared, or one log at two moments (--at T1 --at T2)".into(),
        )),
    }
}

fn two_files(args: &Args, after: &Path, moments: &[Moment]) -> Result<(), Failure> {
    let measure = args.metric.0;
    let part = |file: &Path, i: usize| {
        let profile = read(
            file,
            &Reading {
                view: match moments.get(i).or(moments.last()) {
                    Some(moment) => View::At(moment.clone()),
                    None => View::Whole,
                },
                pasts: measure.needs_pasts().then(|| args.temporary.temporary()),
                ..Reading::default()
            },
        )?;
        if measure.needs_pasts() && profile.pasts.is_empty() && !profile.rows.is_empty() {
            return Err(InputError::NoTimes { path: file.into() }.into());
        }
        Ok::<Profile, Failure>(profile)
    };
    let (a, b) = (part(&args.before, 0)?, part(after, 1)?);
    let unlike = Unlike::between(&a, &b);
    warn(&unlike, args.force)?;
    let (of_a, of_b) = (
        args.places.symbols(&args.before, &a)?,
        args.places.symbols(after, &b)?,
    );
    let heading = format!("{} -> {}", args.before.display(), after.display());
    let differences = Differences::of_two((&a, &of_a), (&b, &of_b), measure);
    show(args, &heading, &unlike, &differences)
}

fn two_moments(args: &Args, from: &Moment, to: &Moment) -> Result<(), Failure> {
    let Measure::Basic(metric) = args.metric.0 else {
        return Err(Failure::Asked(format!(
            "{} is compared between two files; within one log, `heapprof top --metric {} --from T1 --to T2` shows a window",
            args.metric.0, args.metric.0
        )));
    };
    let part = |view| {
        let reading = Reading {
            view,
            ..Reading::default()
        };
        read(&args.before, &reading)
    };
    let window = part(View::Window(from.clone(), to.clone()))?;
    let before = part(View::At(from.clone()))?;
    let after = part(View::At(to.clone()))?;
    let symbols = args.places.symbols(&args.before, &after)?;
    let seconds = |profile: &Profile| {
        let span = profile.run.span;
        span.map_or(0.0, |span| span.to.time_ns() as f64 / 1e9)
    };
    let heading = format!(
        "{}: {:.6} s -> {:.6} s",
        args.before.display(),
        seconds(&before),
        seconds(&after)
    );
    let differences = Differences::of_moments(&before, &after, &window, &symbols, metric);
    show(args, &heading, &Unlike::default(), &differences)
}

fn show(
    args: &Args,
    heading: &str,
    unlike: &Unlike,
    differences: &Differences<'_>,
) -> Result<(), Failure> {
    let measure = args.metric.0;
    let is_significant = |change: &Change| {
        let is_large = |z: f64| z.abs() >= args.min_significance;
        change.difference() != 0.0 && change.z().is_none_or(is_large)
    };
    if args.flamegraph || args.folded {
        let mut stacks = differences.by_stack();
        stacks.retain(|_, change| args.min_significance == 0.0 || is_significant(change));
        let graph = DiffGraph::of(&stacks, measure);
        return output::to(args.output.as_deref(), |out| match args.folded {
            true => graph.write_folded(out),
            false => graph.write_svg(heading, out),
        });
    }
    let diff = differences.by_site();
    let mut changes: Vec<(&DiffPlace, &Change)> = diff
        .changes
        .iter()
        .filter(|(_, change)| is_significant(change))
        .collect();
    changes.sort_by(|(a, x), (b, y)| {
        let size = |change: &Change| change.difference().abs();
        size(y).total_cmp(&size(x)).then_with(|| a.cmp(b))
    });
    let hidden = match args.number {
        0 => 0,
        n => changes.len().saturating_sub(n),
    };
    changes.truncate(changes.len() - hidden);
    output::to(args.output.as_deref(), |out| {
        if args.json {
            return write_json(&diff, &changes, unlike, measure, out);
        }
        writeln!(out, "{heading}")?;
        write_table(&diff, &changes, measure, out)?;
        if hidden > 0 {
            let hidden = Count(hidden as u64);
            writeln!(out, "  … and {hidden} more (-n 0 shows all)")?;
        }
        Ok(())
    })
}

fn warn(unlike: &Unlike, force: bool) -> Result<(), Failure> {
    if let Some(programs) = &unlike.programs {
        if !force {
            return Err(Failure::Asked(format!(
                "these are profiles of different programs: {programs} (--force compares them)"
            )));
        }
        say::note(&format_args!("note: different programs: {programs}"));
    }
    for remark in &unlike.remarks {
        say::note(&format_args!("note: {remark}"));
    }
    Ok(())
}

fn write_table(
    diff: &Diff,
    changes: &[(&DiffPlace, &Change)],
    metric: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    if changes.is_empty() {
        return writeln!(out, "  nothing differs in {metric}");
    }
    let all = changes.iter().map(|(_, change)| change.difference().abs());
    let pace = Pace::of(all.fold(0.0, f64::max));
    let quantity = |value: f64| match metric.is_growth() {
        true => metric.quantity_at(value, pace),
        false => metric.quantity(value),
    };
    let signed = |value: f64| {
        let sign = if value < 0.0 { "-" } else { "+" };
        format!("{sign}{}", quantity(value.abs()))
    };
    let mut table = Table::new(&[
        ("difference", Align::Right),
        ("std. error", Align::Right),
        ("z", Align::Right),
        ("", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("function", Align::Left),
        ("module", Align::Left),
    ]);
    let row = |change: &Change, function: &str, module: &str| {
        let z = match change.z() {
            Some(z) if z.is_finite() => format!("{z:.1}"),
            _ => "-".into(),
        };
        vec![
            signed(change.difference()),
            match change.is_unsure {
                true => "?".into(),
                false => quantity(change.error()),
            },
            z,
            change.verdict().name().into(),
            quantity(change.before),
            quantity(change.after),
            function.into(),
            module.into(),
        ]
    };
    table.row(row(&diff.total, "(all)", ""));
    for (place, change) in changes {
        table.row(row(change, &place.function, &place.module));
    }
    table.write(stdout_width(), out)?;
    writeln!(
        out,
        "  {metric}; z is the difference in standard errors, real from {REAL} on"
    )
}

#[derive(Serialize)]
struct Document<'a> {
    metric: &'a str,
    unit: &'a str,
    /// What else differs, that a reader of the numbers must know.
    remarks: Vec<&'a String>,
    total: Numbers<'a>,
    sites: Vec<Site<'a>>,
}

#[derive(Serialize)]
struct Site<'a> {
    function: &'a str,
    module: &'a str,
    #[serde(flatten)]
    numbers: Numbers<'a>,
}

#[derive(Serialize)]
struct Numbers<'a> {
    before: f64,
    after: f64,
    difference: f64,
    standard_error: Option<f64>,
    z: Option<f64>,
    verdict: &'a str,
}

impl Numbers<'_> {
    fn of(change: &Change) -> Self {
        Numbers {
            before: change.before,
            after: change.after,
            difference: change.difference(),
            standard_error: (!change.is_unsure).then(|| change.error()),
            z: change.z().filter(|z| z.is_finite()),
            verdict: change.verdict().name(),
        }
    }
}

fn write_json(
    diff: &Diff,
    changes: &[(&DiffPlace, &Change)],
    unlike: &Unlike,
    metric: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    let sites = changes.iter().map(|(place, change)| Site {
        function: &place.function,
        module: &place.module,
        numbers: Numbers::of(change),
    });
    let document = Document {
        metric: metric.name(),
        unit: metric.unit(),
        remarks: unlike.programs.iter().chain(&unlike.remarks).collect(),
        total: Numbers::of(&diff.total),
        sites: sites.collect(),
    };
    Json::Pretty.write(&document, out)
}
