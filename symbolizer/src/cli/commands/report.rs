//! `heapprof report`: writes a page for a browser.

use std::io::Read;
use std::panic::resume_unwind;
use std::path::PathBuf;

use heapprof_symbolizer::{
    BlockTypes, Bytes, Confidence, Courses, Dimensions, Explanation, Groups, Input, Kept, Looks,
    PastNumbers, Profile, RUNS_WITHIN, RegularFile, Report, ReportMoment, Rows, SiteMap, SitePasts,
    Spike, ViewError, WantedExtras, highest, is_page_of, note_life, runs_of,
    timeline_with_surroundings,
};

use crate::cli::inputs::logs::Logs;
use crate::cli::inputs::single_file;
use crate::cli::options::confidence;
use crate::cli::options::fold_library::FoldArgs;
use crate::cli::options::measure::DEFAULT_TEMPORARY;
use crate::cli::options::suppressions::SuppressionArgs;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::describe_precision;
use crate::cli::output::progress::Progress;
use crate::cli::output::say;

/// Write a page for a browser: the heap at every moment of the run
///
/// At its head are the findings of `heapprof explain`. Below is a curve of what was in use, on
/// which one chooses a moment or two. It shows the sites and the flame graph of what was in use
/// then, of what grew or shrank between, or of what was allocated. If the log has readings of the
/// memory, RSS stands above, and each moment has the lines of `heapprof rss`. The page holds all
/// that it shows and asks nobody: it needs no server and no network.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    logs: Logs,

    #[command(flatten)]
    suppressions: SuppressionArgs,

    #[command(flatten)]
    fold: FoldArgs,

    /// Moments that can be chosen: so many steps of time, up to 1000
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = up_to::<1000>, allow_negative_numbers = true)]
    steps: usize,

    /// Most stacks that are shown with their callers, up to 20000: those with the most memory at
    /// the end, at the peak or in all. Other stacks are shown as their site
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = up_to::<20_000>, allow_negative_numbers = true)]
    stacks: usize,

    /// Confidence level of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = confidence::parse, allow_negative_numbers = true)]
    confidence: Confidence,

    /// The page's title [default: the program]
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    title: String,

    /// Write to this file; - is standard output [default: the first LOG with .html in place of its
    /// extension, in the current folder, where only a report of the same logs is replaced]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Most numbers of moments and stacks, each of which takes 64 bytes while the page is made.
const MOST_NUMBERS: usize = 5_000_000;

/// The numbers of pasts that the page has.
const REPORTED: PastNumbers = PastNumbers {
    peak: true,
    temporary: true,
    slack: true,
    lifetimes: true,
    ..PastNumbers::NONE
};

/// Most spikes that can be chosen.
const MOST_SPIKES: usize = 20;

fn up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MOST).contains(n));
    number.ok_or_else(|| format!("a whole number from 1 to {MOST}"))
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let first = args.logs.files.first();
    let first = first.and_then(|file| file.file_name()).unwrap_or_default();
    let beside = PathBuf::from(first).with_extension("html");
    let out = Destination::or(args.output.as_ref(), &beside);
    out.refuse_input(&args.logs.files)?;
    let runs = runs(&args.logs.files);
    out.refuse_foreign("a report of the same logs", |path| {
        let file = RegularFile::open(path).ok()?;
        let mut beginning = Vec::new();
        let mut file = file.file().take(RUNS_WITHIN as u64);
        file.read_to_end(&mut beginning).ok()?;
        Some(is_page_of(&beginning, &runs))
    })?;
    if args.steps * args.stacks > MOST_NUMBERS {
        return Err(Failure::Senseless(format!(
            "--steps {} with --stacks {} is more than memory and browsers are good for: at most {MOST_NUMBERS} when multiplied",
            args.steps, args.stacks
        )));
    }
    let input = args.logs.open()?;
    let labels = &args.logs.labels;
    let failed = |error| input.view_error(ViewError::Read(error));
    // Rows are divided by thread if there are several threads.
    let extras = WantedExtras {
        spikes: true,
        ..Rows::ByThread.extras()
    };

    let name = args.logs.name();
    let read = single_file::whole_log_with_courses(&name, &input, labels, extras, REPORTED);
    let (mut profile, mut midway) = read?;
    let mut symbols = args.logs.symbols(&profile)?;
    let suppressed = args.suppressions.frames(&profile, &symbols)?;
    let log = labels.part(input.log()?).without(&suppressed);
    args.suppressions.apply(&mut profile, &symbols)?;
    if !suppressed.is_empty() {
        let words = std::mem::take(&mut profile.filtered);
        let read = log.profile_with_courses(extras, DEFAULT_TEMPORARY, REPORTED, |_| {});
        (profile, midway) = read.map_err(failed)?;
        note_life(&mut profile.run);
        profile.filtered = words;
        symbols = args.logs.symbols(&profile)?;
    }

    let sites = SiteMap::of(&profile, &symbols);
    let types = BlockTypes::of_profile(&profile, &symbols);
    let at_peak: Vec<f64> = (profile.pasts.iter())
        .map(|past| past.peak.bytes_f64())
        .collect();
    let kept = Kept::of(&profile, &at_peak, args.stacks, |stack| {
        (sites.own(stack), types.of(stack))
    });

    let until_ns = profile.end_of_use_ns();
    let midway = until_ns.zip(Some(midway));
    let explain = || {
        let cut = midway.map(|(end_ns, midway)| midway.up_to(end_ns));
        let cut = cut.transpose().map_err(failed)?;
        let explained = cut.as_ref().unwrap_or(&profile);
        let explanation = Explanation::of(explained, &symbols);
        Ok::<_, Failure>((explanation, SitePasts::of(explained, &kept, &sites)))
    };

    let dimensions = Dimensions::of(&profile, &symbols);
    let spikes = spikes(&profile);
    let records: Vec<u64> = spikes.iter().map(|it| it.peak.record).collect();
    let times: Vec<u64> = spikes.iter().map(|it| it.peak.time_ns).collect();
    let progress = Progress::bytes("drawing", input.len());
    // Both read the log once more, at least its late part.
    let (explained, drawn) = std::thread::scope(|scope| {
        let explained = scope.spawn(explain);
        let drawn = timeline_with_surroundings(
            log,
            &profile,
            args.steps,
            Groups {
                rows: dimensions.rows(),
                count: kept.groups() + dimensions.groups(),
                of: |row: usize| {
                    let stack = match dimensions.rows() {
                        Rows::Whole => profile.rows.get(row).map(|it| it.stack),
                        Rows::ByThread => {
                            let threads = profile.extras.threads.as_ref();
                            threads.and_then(|it| it.get(row)).map(|it| it.row.stack)
                        }
                    };
                    let group = stack.and_then(|stack| kept.group_of(stack));
                    let others = dimensions.groups_of(row).map(|it| kept.groups() + it);
                    group.into_iter().chain(others)
                },
                looks: Looks {
                    groups: &records,
                    ..Looks::default()
                },
            },
            &times,
            |totals| ReportMoment::from(totals),
            |offset| progress.at(offset),
        );
        (explained.join(), drawn)
    });
    progress.finish();
    let (timeline, surroundings) = drawn.map_err(failed)?;
    let (explanation, pasts) = explained.unwrap_or_else(|panic| resume_unwind(panic))?;
    // Courses have a hundred numbers of each stack, and the page has none of these.
    profile.courses = Courses::default();

    args.fold.apply(&mut profile, &mut symbols);
    let report = Report {
        profile: &profile,
        symbols: &symbols,
        sites: &sites,
        kept: &kept,
        types: &types,
        dimensions: &dimensions,
        timeline: &timeline,
        spikes: &spikes,
        surroundings: &surroundings,
        explanation: &explanation,
        until_ns,
        pasts: &pasts,
        log: &args.logs.in_commands(),
        runs: &runs,
        confidence: args.confidence,
        title: &args.title,
        precision: &describe_precision(&profile),
    };
    out.write(|out| report.write(out))?;
    if let Some(out) = out.path() {
        let size = std::fs::metadata(out).map_or(0, |it| it.len());
        say::note(&format_args!("{}: {}", out.display(), Bytes(size as f64)));
    }
    if !kept.others().is_empty() {
        say::note(&format_args!(
            "note: {} of {} stacks are shown with their callers, of the others the site; --stacks keeps more",
            kept.stacks().len(),
            profile.stacks.len()
        ));
    }
    Ok(())
}

/// Returns the word for the recordings. A file that cannot be read is told when it is needed.
fn runs(files: &[PathBuf]) -> String {
    let starts = files
        .iter()
        .filter_map(|file| Input::open_alone(file).ok()?.start());
    runs_of(&starts.collect::<Vec<_>>())
}

/// The spikes that can be chosen beside the peak of all.
fn spikes(profile: &Profile) -> Vec<Spike> {
    let spikes = profile.extras.spikes.as_deref().unwrap_or_default();
    let peak = profile.peak.unwrap_or_default();
    let mut highest = highest(spikes, MOST_SPIKES);
    highest.retain(|spike| spike.peak.record != peak.record);
    highest
}
