//! `heapprof export`: writes the profile in the format of another program.

use std::path::PathBuf;

use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::{Confidence, PastNumbers, ReadRequest};

use crate::cli::inputs::source::Source;
use crate::cli::options::choice::choice;
use crate::cli::options::confidence;
use crate::cli::options::filter::FilterArgs;
use crate::cli::options::fold_library::FoldArgs;
use crate::cli::options::measure::{SumArg, TemporaryArgs};
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::notes::note_circumstances;

/// Write the profile in a form that other programs read
///
/// pprof and otlp have all metrics of blocks that the file tells: of a log, those of the past as
/// well. With -m and a metric of pages, pprof has the four of pages, too, as of their reading.
/// `heapprof push` sends the four that can be added up over time.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    fold: FoldArgs,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_parser = choice::<Format>())]
    format: Format,

    /// Write to this file; - is standard output [default: -]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// The number that is shown, or shown first where all of them are in the file
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: SumArg,

    #[command(flatten)]
    temporary: TemporaryArgs,

    /// Confidence level of the intervals, in percent, if the format has a place for them
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = confidence::parse, allow_negative_numbers = true)]
    confidence: Confidence,

    /// A title, for forms that have one [default: the program and the metric]
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    title: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let format = args.format;
    // Asked first: reading and naming may take long.
    let out = Destination::of(args.output.as_ref());
    if format.is_binary() {
        out.refuse_terminal(format.name())?;
    }
    out.refuse_input(&args.source.files)?;
    let measure = args.metric.0;
    if measure.needs_pasts() && !format.shows_pasts() {
        return Err(Failure::Senseless(format!(
            "{} has no place for {measure}; pprof, otlp, json, csv, folded, flamegraph, speedscope and callgrind have",
            format.name()
        )));
    }
    if args.fold.is_set() && !format.has_names() {
        return Err(Failure::Senseless(format!(
            "--fold-library is about names, and {} has addresses alone; its readers look these up themselves",
            format.name()
        )));
    }
    if args.source.files.len() > 1 && !args.source.joined && format == Format::Firefox {
        return Err(Failure::Senseless(
            "the Firefox profiler shows blocks in time, and several processes have no common one here; with --joined they have"
                .into(),
        ));
    }
    args.source.time.age.refuse_beside(measure)?;
    let shows_all = matches!(format, Format::Pprof | Format::Json | Format::Otlp);
    if !shows_all {
        args.temporary.refuse_beside(measure)?;
    }
    let mut profile = args.source.part(&ReadRequest {
        view: args.source.time.view(),
        pasts: (shows_all || measure.needs_pasts()).then(|| args.temporary.temporary()),
        numbers: match shows_all {
            true => PastNumbers::SUMS,
            false => measure.past_numbers(),
        },
        mappings: measure.is_mapped(),
        pages: measure.is_of_pages(),
        extras: format.wants(),
        ..ReadRequest::default()
    })?;
    args.source.need_times(measure, &profile)?;
    let mut symbols = args.source.symbols(&profile)?;
    args.filter.apply(&mut profile, &mut symbols)?;
    args.fold.apply(&mut profile, &mut symbols);
    if format == Format::Csv {
        note_circumstances(&profile);
    }
    let options = Options {
        metric: measure,
        confidence: args.confidence,
        title: args.title.clone(),
    };
    out.write(|out| format.write(&profile, &symbols, &options, out))
}
