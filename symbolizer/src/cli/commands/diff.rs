//! `heapprof diff`: shows what changed between two profiles or moments, and whether it is more than
//! noise.

mod annotations;
mod json;
mod markdown;
mod signed;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    By, Change, Comparability, Count, Cut, DiffGraph, DiffSite, Differences, Input, InputError,
    Limit, Measure, Moment, Profile, ReadRequest, Span, View, note_life, paired_difference_of_log,
};

use crate::cli::inputs::single_file::read;
use crate::cli::inputs::source::need_slabs;
use crate::cli::options::age::Age;
use crate::cli::options::filter::LabelArgs;
use crate::cli::options::limit::{self, Gate};
use crate::cli::options::measure::{SumArg, TemporaryArgs};
use crate::cli::options::quantity::{count, standard_errors};
use crate::cli::options::suppressions::SuppressionArgs;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::notes::{note_what_is_kept, note_what_is_wrong};
use crate::cli::output::progress::Progress;
use crate::cli::output::say;

/// Show what changed between two profiles, two moments of one log, or two windows of it
///
/// With two files, each difference has the errors of both. With one log and --at given twice, what
/// is there at both moments rests on the same samples and cancels: only what came and what went has
/// an error. So it is for every metric, and for windows (--from, --to, each twice). A difference is
/// "real" from 3 standard errors on, where noise alone gets once in 370.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The first file, or the only one; of several processes, the log that `heapprof join` makes of
    /// theirs
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The second file
    #[arg(value_name = "B")]
    after: Option<PathBuf>,

    /// A moment of the log, as in `heapprof top --at`; given twice with one log, once or twice with
    /// two (the first for A)
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    at: Vec<String>,

    /// The beginning of a window: what was allocated after it, and up to --to. Given twice with one
    /// log, and --to as well
    #[arg(
        long,
        value_name = "MOMENT",
        allow_hyphen_values = true,
        conflicts_with = "at"
    )]
    from: Vec<String>,

    /// The end of a window
    #[arg(
        long,
        value_name = "MOMENT",
        allow_hyphen_values = true,
        conflicts_with = "at"
    )]
    to: Vec<String>,

    #[command(flatten)]
    age: Age,

    /// Show this many sites; 0 for all
    #[arg(short, long, value_name = "N", default_value_t = 20, value_parser = count, allow_negative_numbers = true)]
    number: usize,

    /// The number that is compared
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: SumArg,

    #[command(flatten)]
    temporary: TemporaryArgs,

    /// Leave out sites that differ by less than so many standard errors
    #[arg(long, value_name = "Z", default_value_t = 0.0, value_parser = standard_errors, allow_negative_numbers = true)]
    min_significance: f64,

    /// Exit with status 3 if the total grew by more than this, and by more than noise (3 standard
    /// errors): 10MiB, 5000, 5%; with 4 if it cannot be judged
    #[arg(long, value_name = "AMOUNT", value_parser = limit::growth, allow_hyphen_values = true)]
    fail_above: Option<Limit>,

    /// Exit with status 0 if the limit cannot be judged: the log is damaged or cut, has no samples,
    /// or noise is too large; without this, with status 4
    #[arg(long, requires = "fail_above")]
    allow_inconclusive: bool,

    /// Compare the values of a label of the program instead of sites: label:tenant
    #[arg(long, value_name = "label:KEY", value_parser = by_label, conflicts_with_all = ["flamegraph", "folded"])]
    by: Option<By>,

    #[command(flatten)]
    labels: LabelArgs,

    #[command(flatten)]
    suppressions: SuppressionArgs,

    /// Compare different programs as well
    #[arg(long)]
    force: bool,

    /// Print JSON, with exact numbers
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Form for a pull request
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["flamegraph", "folded"])]
    format: Option<Format>,

    /// Draw a flame graph (SVG) of what changed: red grew, blue shrank, grey may be noise
    #[arg(long, conflicts_with_all = ["json", "folded"])]
    flamegraph: bool,

    /// Print `stack before after` lines, for other programs' differential flame graphs
    #[arg(long, conflicts_with = "json")]
    folded: bool,

    /// Write to this file; - is standard output [default: -]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    #[command(flatten)]
    places: SymbolArgs,
}

/// A form that services for code show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table for a comment, or for the summary of a job ($GITHUB_STEP_SUMMARY)
    Markdown,
    /// Commands by which GitHub Actions marks the lines that grew by more than noise
    Github,
}

fn by_label(text: &str) -> Result<By, String> {
    By::label(text).ok_or_else(|| "not of the form label:KEY".into())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    Destination::of(args.output.as_ref())
        .refuse_input([&args.before].into_iter().chain(&args.after))?;
    args.temporary.refuse_beside(args.metric.0)?;
    args.age.refuse_beside(args.metric.0)?;
    let views = views(args)?;
    match (&args.after, &views[..]) {
        (_, [_, _, _, ..]) => Err(Failure::Senseless(
            "two are compared: --at, or --from with --to, is given more than twice".into(),
        )),
        (Some(after), views) => two_files(args, after, views),
        (None, [first, second]) => two_views(args, first, second),
        (None, _) => Err(Failure::Senseless(
            "two files are compared, or one log at two moments (--at T1 --at T2) or in two windows (--from T1 --to T2 \
             --from T3 --to T4)"
                .into(),
        )),
    }
}

/// The views that were asked for, in their order.
fn views(args: &Args) -> Result<Vec<View>, Failure> {
    let moment = |text: &String| Moment::from(text.as_str());
    if args.from.len() != args.to.len() {
        return Err(Failure::Senseless(
            "a window has a --from and a --to; start and end are moments, too".into(),
        ));
    }
    let windows = args.from.iter().zip(&args.to);
    let windows = windows.map(|(from, to)| View::Window(moment(from), moment(to)));
    let moments = args.at.iter().map(|at| args.age.at(moment(at)));
    let mut views: Vec<View> = moments.chain(windows).collect();
    if args.after.is_some() && views.is_empty() && !args.age.is_any() {
        views.push(args.age.at(Moment::End));
    }
    Ok(views)
}

fn two_files(args: &Args, after: &Path, views: &[View]) -> Result<(), Failure> {
    let measure = args.metric.0;
    let part = |file: &Path, i: usize| {
        let profile = read(
            file,
            &ReadRequest {
                view: views.get(i).or(views.last()).cloned().unwrap_or_default(),
                pasts: measure.needs_pasts().then(|| args.temporary.temporary()),
                mappings: measure.is_mapped(),
                pages: measure.is_of_pages(),
                ..ReadRequest::default()
            },
        )?;
        if measure.needs_pasts() && profile.pasts.is_empty() && !profile.rows.is_empty() {
            return Err(InputError::NoTimes { path: file.into() }.into());
        }
        need_slabs(measure, &profile)?;
        Ok::<Profile, Failure>(profile)
    };
    let (a, b) = (part(&args.before, 0)?, part(after, 1)?);
    let mut comparability = Comparability::between(&a, &b);
    warn(&comparability, args.force)?;
    let (of_a, of_b) = (
        args.places.symbols_beside(&args.before, after, &a)?,
        args.places.symbols_beside(after, &args.before, &b)?,
    );
    let file = args.before.display();
    let heading = match (after == args.before, a.run.span, b.run.span) {
        _ if measure == Measure::MappedResident => format!(
            "{file}, {} -> {}, {}",
            mappings_read(&a),
            after.display(),
            mappings_read(&b)
        ),
        (true, Some(of_a), Some(of_b)) => {
            format!("{file}: {} -> {}", describe_span(of_a), describe_span(of_b))
        }
        _ => format!("{file} -> {}", after.display()),
    };
    let mut differences = Differences::of_two((&a, &of_a), (&b, &of_b), measure);
    let is_same_reading = || after == args.before && a.pages.is_some() && a.pages == b.pages;
    let same_reading = (measure.is_of_pages() && is_same_reading())
        .then(|| "both moments have the same reading of pages, so nothing can differ".to_owned());
    for remark in differences.remarks().into_iter().chain(same_reading) {
        say::note(&format_args!("note: {remark}"));
        comparability.remarks.push(remark);
    }
    args.labels.apply(&mut differences);
    let of_names = suppress(args, &mut differences, &mut comparability)?;
    let shown = show(args, &heading, &comparability, &differences);
    limit::after(shown, || {
        let doubts = [(&a, "first"), (&b, "second")].into_iter();
        let doubts = doubts.flat_map(|(profile, which)| {
            let doubts = profile.doubts().into_iter();
            doubts.map(move |doubt| format!("of the {which}: {doubt}"))
        });
        let doubts = doubts.chain(of_names);
        let unseen = limit::unseen(&a).max(limit::unseen(&b));
        check(args, &differences, &doubts.collect::<Vec<_>>(), unseen)
    })
}

fn two_views(args: &Args, first: &View, second: &View) -> Result<(), Failure> {
    let measure = args.metric.0;
    if matches!(measure, Measure::PeakBytes | Measure::PeakObjects) {
        return Err(Failure::Senseless(format!(
            "{measure} is of one moment, and no sum over blocks whose difference could be taken: compare moments (--at peak --at \
             end, in-use-bytes), or two files"
        )));
    }
    // Neither is a sum over blocks that came and went: each moment has numbers of its own.
    if measure.is_mapped() && matches!(first, View::Window(..)) {
        return Err(Failure::Senseless(format!(
            "{measure} is of a moment, and not of a window: give --at twice"
        )));
    }
    if measure.is_mapped() || measure.is_of_pages() {
        let views = [first.clone(), second.clone()];
        return two_files(args, &args.before, &views);
    }
    let input = Input::open(&args.before)?;
    let progress = Progress::bytes("reading", input.len());
    let read = paired_difference_of_log(
        input.log()?,
        [first, second],
        measure,
        args.temporary.temporary(),
        |offset| progress.at(offset),
    );
    progress.finish();
    let (mut profile, spans) = read.map_err(|error| input.view_error(error))?;
    note_life(&mut profile.run);
    input.note_damage(&mut profile.account);
    note_what_is_wrong(&args.before, &profile.account);
    note_what_is_kept(&args.before, &profile);
    let symbols = args.places.symbols(&args.before, &profile)?;
    let file = args.before.display();
    let heading = format!(
        "{file}: {} -> {}",
        describe_span(spans[0]),
        describe_span(spans[1])
    );
    let mut comparability = Comparability::default();
    let length = |span: Span| (span.to.time_ns() - span.from.time_ns()) as f64 / 1e9;
    let [a, b] = spans.map(length);
    if matches!(first, View::Window(..)) && (a - b).abs() > 0.01 * a.max(b) {
        comparability.remarks.push(format!(
            "the windows last {a:.3} s and {b:.3} s: what was allocated differs for that alone"
        ));
    }
    comparability.caveats = profile.caveats();
    comparability.is_incomplete = !profile.is_complete();
    let run = &profile.run;
    comparability.stopped(spans.map(|span| run.stopped_ns(span.from.time_ns(), span.to.time_ns())));
    warn(&comparability, args.force)?;
    let mut differences = Differences::of_views(&profile, &symbols);
    args.labels.apply(&mut differences);
    let of_names = suppress(args, &mut differences, &mut comparability)?;
    let shown = show(args, &heading, &comparability, &differences);
    limit::after(shown, || {
        let doubts = [profile.doubts(), of_names].concat();
        check(args, &differences, &doubts, limit::unseen(&profile))
    })
}

/// Leaves out what is suppressed. Returns why that may be too few stacks.
fn suppress(
    args: &Args,
    differences: &mut Differences<'_>,
    comparability: &mut Comparability,
) -> Result<Vec<String>, Failure> {
    let doubts = args.suppressions.apply_to_differences(differences)?;
    for doubt in &doubts {
        say::note(&format_args!("note: {doubt}"));
        comparability.remarks.push(doubt.clone());
    }
    Ok(doubts)
}

/// Checks the limit, if there is one.
fn check(
    args: &Args,
    differences: &Differences<'_>,
    doubts: &[String],
    unseen: f64,
) -> Result<(), Failure> {
    let Some(limit) = args.fail_above else {
        return Ok(());
    };
    let gate = Gate {
        limit,
        allows_inconclusive: args.allow_inconclusive,
    };
    if differences.is_empty() && doubts.is_empty() {
        return gate.cannot_judge("the filter and the suppressions leave nothing to compare");
    }
    gate.check_growth(doubts, args.metric.0, &differences.total(), unseen)
}

/// The moment at which resident bytes of mappings were read, in a heading.
fn mappings_read(profile: &Profile) -> String {
    match profile.mappings.read_ns {
        Some(ns) => format!("resident bytes as of {:.3} s", ns as f64 / 1e9),
        None => "resident bytes were not read".to_owned(),
    }
}

/// A view in a heading.
fn describe_span(span: Span) -> String {
    let seconds = |cut: Cut| cut.time_ns() as f64 / 1e9;
    if let Some(age_ns) = span.survived_ns {
        let age = age_ns as f64 / 1e9;
        return format!("{:.6} s (at least {age} s old)", seconds(span.to));
    }
    match span.from {
        Cut::Nothing => format!("{:.6} s", seconds(span.to)),
        from => format!("{:.6} to {:.6} s", seconds(from), seconds(span.to)),
    }
}

fn show(
    args: &Args,
    heading: &str,
    comparability: &Comparability,
    differences: &Differences<'_>,
) -> Result<(), Failure> {
    let measure = args.metric.0;
    let is_significant = |change: &Change| {
        let is_large = |z: f64| z.abs() >= args.min_significance;
        change.difference() != 0.0 && change.z().is_none_or(is_large)
    };
    if args.flamegraph || args.folded {
        let mut stacks = differences.by_stack();
        stacks.retain(|change| args.min_significance == 0.0 || is_significant(change));
        let graph = DiffGraph::of(&stacks, measure);
        return Destination::of(args.output.as_ref()).write(|out| match args.folded {
            true => graph.write_folded(out),
            false => graph.write_svg(heading, out),
        });
    }
    let diff = match args.by {
        Some(by) => differences.by_label(by),
        None => differences.by_site(),
    };
    let mut changes: Vec<(&DiffSite, &Change)> = diff
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
    Destination::of(args.output.as_ref()).write(|out| {
        if args.json {
            return json::write(&diff, &changes, comparability, measure, out);
        }
        match args.format {
            Some(Format::Markdown) => {
                return markdown::write(&diff, &changes, hidden, comparability, measure, out);
            }
            Some(Format::Github) => return annotations::write(&diff, &changes, measure, out),
            None => {}
        }
        writeln!(out, "{heading}")?;
        table::write(&diff, &changes, args.by, measure, out)?;
        if hidden > 0 {
            let hidden = Count(hidden as u64);
            writeln!(out, "  … and {hidden} more (-n 0 shows all)")?;
        }
        Ok(())
    })
}

fn warn(comparability: &Comparability, force: bool) -> Result<(), Failure> {
    if let Some(programs) = &comparability.programs {
        if !force {
            return Err(Failure::Unfulfilled(format!(
                "these are profiles of different programs: {programs} (--force compares them)"
            )));
        }
        say::note(&format_args!("note: different programs: {programs}"));
    }
    for remark in comparability.remarks.iter().chain(&comparability.caveats) {
        say::note(&format_args!("note: {remark}"));
    }
    Ok(())
}
