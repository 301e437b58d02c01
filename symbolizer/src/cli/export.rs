//! `heapprof export`: the profile in a form that another program reads.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::{Confidence, InputError, Metric, Reading};

use crate::cli::confidence;
use crate::cli::failure::Failure;
use crate::cli::filter::FilterArgs;
use crate::cli::measure::{SumArg, TemporaryArgs};
use crate::cli::output;
use crate::cli::source::Source;

/// Write the profile in a form that other programs read
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    filter: FilterArgs,

    /// The form
    #[arg(short, long, value_name = "FORMAT")]
    format: FormatArg,

    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// The number that is shown, or shown first where all of them are in the file
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: SumArg,

    #[command(flatten)]
    temporary: TemporaryArgs,

    /// How often, in percent, intervals shall hold the truth, where the form has a place for them
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = confidence::parse)]
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
    let format = args.format.0;
    // Asked first: reading and naming may take long.
    if args.output.is_none() && format.is_binary() && std::io::stdout().is_terminal() {
        return Err(Failure::BinaryOnTerminal {
            format: format.name(),
        });
    }
    let measure = args.metric.0;
    if measure.needs_pasts() && !format.shows_pasts() {
        return Err(Failure::Asked(format!(
            "{} has no place for {measure}; pprof, json, csv, folded, flamegraph, speedscope and callgrind have",
            format.name()
        )));
    }
    if args.source.files.len() > 1 && format == Format::Firefox {
        return Err(Failure::Asked(
            "the Firefox profiler shows blocks in time, and several processes have no common one here; export each by itself"
                .into(),
        ));
    }
    let shows_all = matches!(format, Format::Pprof | Format::Json);
    let mut profile = args.source.part(&Reading {
        view: args.source.time.view(),
        pasts: (shows_all || measure.needs_pasts()).then(|| args.temporary.temporary()),
        detail: format.wants(),
        ..Reading::default()
    })?;
    if measure.needs_pasts() && profile.pasts.is_empty() && !profile.rows.is_empty() {
        let path = args.source.without_times().to_owned();
        return Err(InputError::NoTimes { path }.into());
    }
    let mut symbols = args.source.symbols(&profile)?;
    args.filter.apply(&mut profile, &mut symbols);
    let options = Options {
        metric: measure,
        confidence: args.confidence,
        title: args.title.clone(),
    };
    output::to(args.output.as_deref(), |out| {
        format.write(&profile, &symbols, &options, out)
    })
}

/// The library's formats, as clap wants them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FormatArg(Format);

impl clap::ValueEnum for FormatArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [FormatArg; Format::ALL.len()] = {
            let mut all = [FormatArg(Format::Gperftools); Format::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = FormatArg(Format::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Format::Gperftools => {
                "gperftools text with addresses, for google-pprof, jeprof, go tool pprof"
            }
            Format::Symbolized => {
                "the same with names in it, for google-pprof and jeprof; see also symbolize"
            }
            Format::Pprof => {
                "gzipped profile.proto, for go tool pprof, Parca, Pyroscope, speedscope"
            }
            Format::Folded => "one line a stack, for flame graph tools",
            Format::Flamegraph => "a flame graph (SVG), for a browser",
            Format::Json => "everything, for programs",
            Format::Csv => "allocation sites, for spreadsheets",
            Format::Speedscope => "for https://www.speedscope.app",
            Format::Jemalloc => "jemalloc's text with numbers by thread, for jeprof --thread=N",
            Format::Dhat => "DHAT's JSON, for valgrind's dh_view.html",
            Format::Callgrind => "for KCachegrind and callgrind_annotate",
            Format::Firefox => {
                "for https://profiler.firefox.com, with allocations and frees in time"
            }
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}

/// The library's metrics, as clap wants them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricArg(pub(crate) Metric);

impl clap::ValueEnum for MetricArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [MetricArg; 4] = [
            MetricArg(Metric::InUseBytes),
            MetricArg(Metric::InUseObjects),
            MetricArg(Metric::AllocatedBytes),
            MetricArg(Metric::AllocatedObjects),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Metric::InUseBytes => "bytes allocated and not freed",
            Metric::InUseObjects => "blocks allocated and not freed",
            Metric::AllocatedBytes => "bytes ever allocated",
            Metric::AllocatedObjects => "blocks ever allocated",
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}
