//! `heapprof info --json`: the same content in JSON, described in `docs/json.md`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heapprof_symbolizer::export::json::{Errors, Intervals, PeakValues, Values};
use heapprof_symbolizer::resolve::Identity;
use heapprof_symbolizer::{
    By, Confidence, Coverage, CoverageShare, Health, Json, Metric, Profile, RecordingConditions,
    Run, Symbols, groups,
};
use serde::Serialize;

use super::{WalkEnds, label_values, stacks_shown, walk_ends};
use crate::cli::output::document::Head;

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
    run: RunFacts<'a>,
    samples: Samples,
    counters: Vec<Counted<'a>>,
    lost: u64,
    damage: Damages<'a>,
    remarks: &'a [String],
    health: Option<HealthFacts>,
    allocators: Vec<Allocator>,
    walks: Vec<Walk>,
    coverage: Coverages,
    modules: Vec<Module<'a>>,
    perf_map: Option<String>,
    debuginfod: Option<String>,
}

#[derive(Serialize)]
struct RunFacts<'a> {
    command: &'a [String],
    title: Option<&'a str>,
    forked_from: Option<u32>,
    start_unix_ns: Option<u64>,
    duration_ns: u64,
    ended: &'a str,
    library: &'a str,
    allocator: Option<String>,
    tapped: &'a [String],
    attached: bool,
    interval_bytes: Option<u64>,
    least_interval_bytes: Option<u64>,
    most_interval_bytes: Option<u64>,
    stopped_ns: u64,
    regimes: Vec<Regime>,
    settings: Vec<Setting<'a>>,
    markers: Vec<Marker<'a>>,
    notices: Vec<Notice<'a>>,
    threads: usize,
    /// The program's own description, by OpenTelemetry's process context.
    resource: BTreeMap<&'a str, &'a str>,
    /// Keys of labels, with the numbers of their values.
    labels: BTreeMap<&'a str, usize>,
    segments: Vec<Segment>,
    checkpoint: Option<Checkpoint>,
    coarse_history: Option<CoarseHistory>,
}

#[derive(Serialize)]
struct Allocator {
    name: String,
    #[serde(flatten)]
    totals: Values,
}

#[derive(Serialize)]
struct Regime {
    time_ns: u64,
    interval_bytes: u64,
    by_budget: bool,
}

#[derive(Serialize)]
struct Setting<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
struct Marker<'a> {
    time_ns: u64,
    name: &'a str,
}

#[derive(Serialize)]
struct Notice<'a> {
    time_ns: u64,
    text: &'a str,
}

#[derive(Serialize)]
struct Segment {
    number: u32,
    time_ns: u64,
}

#[derive(Serialize)]
struct Checkpoint {
    segment: u32,
    time_ns: u64,
    bytes_before: u64,
}

/// The moments from before the checkpoint.
#[derive(Serialize)]
struct CoarseHistory {
    moments: usize,
    since_ns: u64,
    until_ns: u64,
}

#[derive(Serialize)]
struct Samples {
    allocated: u64,
    in_use: u64,
    stacks: usize,
}

#[derive(Serialize)]
struct Counted<'a> {
    name: &'a str,
    value: u64,
    is_loss: bool,
}

#[derive(Serialize)]
struct Damages<'a> {
    unknown_frees: u64,
    unknown_stacks: u64,
    implausible: u64,
    missing_frames: u64,
    torn: Option<TornEnd>,
    places: Vec<Damaged<'a>>,
}

#[derive(Serialize)]
struct TornEnd {
    offset: u64,
    unused_bytes: u64,
    unchecked_bytes: u64,
}

#[derive(Serialize)]
struct Damaged<'a> {
    offset: u64,
    skipped_bytes: u64,
    what: &'a str,
}

#[derive(Serialize)]
struct HealthFacts {
    samples_bytes: f64,
    counted_bytes: f64,
    tolerance_bytes: f64,
    agrees: bool,
}

#[derive(Serialize)]
struct Walk {
    end: &'static str,
    samples: u64,
    stacks: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Coverages {
    #[serde(flatten)]
    whole: Share,
    cut_bytes: u64,
    outside_modules: Option<Share>,
}

#[derive(Serialize)]
struct Share {
    bytes: u64,
    named_bytes: u64,
    lines_bytes: u64,
}

impl From<CoverageShare> for Share {
    fn from(share: CoverageShare) -> Self {
        Share {
            bytes: share.bytes,
            named_bytes: share.named_bytes,
            lines_bytes: share.lines_bytes,
        }
    }
}

#[derive(Serialize)]
struct Module<'a> {
    path: &'a str,
    build_id: String,
    loaded_ns: u64,
    unloaded_ns: Option<u64>,
    /// Only of modules with an address in a stack.
    names: Option<Names>,
    coverage: Option<Share>,
}

#[derive(Serialize)]
struct Names {
    identity: &'static str,
    addresses: u64,
    by_debug_information: u64,
    by_symbols: u64,
    unnamed: u64,
    tried: Vec<Attempt>,
    reasons: Vec<String>,
}

#[derive(Serialize)]
struct Attempt {
    path: String,
    outcome: String,
}

pub(super) fn write(
    profile: &Profile,
    symbols: &Symbols,
    confidence: Confidence,
    debuginfod: Option<String>,
    out: &mut impl Write,
) -> io::Result<()> {
    let account = &profile.account;
    let totals = profile.totals();
    let coverage = Coverage::of(profile, symbols);
    let document = Document {
        head: Head::of(profile),
        totals: profile.numbers().into(),
        standard_errors: Errors::of_all(profile),
        intervals: Intervals::of(profile, confidence),
        peak: profile.peak_of_run().map(PeakValues::of),
        circumstances: RecordingConditions::of(profile),
        run: run_facts(profile),
        samples: Samples {
            allocated: totals.allocated.samples,
            in_use: totals.in_use.samples,
            stacks: stacks_shown(profile).len(),
        },
        counters: (account.counters.iter())
            .map(|&(counter, value)| Counted {
                name: counter.describe(),
                value,
                is_loss: counter.is_loss(),
            })
            .collect(),
        lost: account.losses().map(|(_, n)| n).sum(),
        damage: Damages {
            unknown_frees: account.unknown_frees,
            unknown_stacks: account.unknown_stacks,
            implausible: account.implausible,
            missing_frames: account.missing_frames,
            torn: account.torn.map(|(offset, unused_bytes)| TornEnd {
                offset,
                unused_bytes,
                unchecked_bytes: account.unchecked_bytes,
            }),
            places: (account.damage.iter())
                .map(|damage| Damaged {
                    offset: damage.offset,
                    skipped_bytes: damage.skipped,
                    what: &damage.what,
                })
                .collect(),
        },
        remarks: &account.remarks,
        health: Health::of(profile).map(|health| HealthFacts {
            samples_bytes: health.samples,
            counted_bytes: health.counted,
            tolerance_bytes: health.tolerance,
            agrees: health.agrees(),
        }),
        allocators: (groups(profile, symbols, By::Allocator, Metric::InUseBytes, false)
            .into_iter())
        .map(|each| Allocator {
            name: each.name,
            totals: each.own.into(),
        })
        .collect(),
        walks: (walk_ends(profile).into_iter())
            .map(|(end, walks)| {
                let WalkEnds {
                    samples,
                    stacks,
                    bytes,
                } = walks;
                Walk {
                    end: end.describe(),
                    samples,
                    stacks,
                    bytes,
                }
            })
            .collect(),
        coverage: Coverages {
            whole: coverage.whole.into(),
            cut_bytes: coverage.cut_bytes,
            outside_modules: coverage.modules.get(&None).map(|&share| share.into()),
        },
        modules: modules(profile, symbols, &coverage),
        perf_map: symbols.perf_map().map(ToString::to_string),
        debuginfod,
    };
    Json::Pretty.write(&document, out)
}

fn run_facts(profile: &Profile) -> RunFacts<'_> {
    let run: &Run = &profile.run;
    let known = |ns: u64| (ns != 0).then_some(ns);
    let intervals = run.intervals();
    RunFacts {
        command: &run.args,
        title: Some(run.title.as_str()).filter(|title| !title.is_empty()),
        forked_from: (run.forked_from != 0).then_some(run.forked_from),
        start_unix_ns: known(run.start_wall_ns),
        duration_ns: run.duration_ns,
        ended: run.ending.describe(),
        library: &run.library,
        allocator: run.allocator_in_words(),
        tapped: &run.tapped,
        attached: run.is_attached,
        interval_bytes: run.interval,
        least_interval_bytes: intervals.map(|(least, _)| least),
        most_interval_bytes: intervals.map(|(_, most)| most),
        stopped_ns: profile.stopped_ns(),
        regimes: (run.regimes.iter())
            .map(|regime| Regime {
                time_ns: regime.time_ns,
                interval_bytes: regime.interval,
                by_budget: regime.by_budget,
            })
            .collect(),
        settings: (run.settings.iter())
            .map(|(name, value)| Setting { name, value })
            .collect(),
        markers: (run.markers.iter())
            .map(|marker| Marker {
                time_ns: marker.time_ns,
                name: &marker.name,
            })
            .collect(),
        notices: (run.notices.iter())
            .map(|notice| Notice {
                time_ns: notice.time_ns,
                text: &notice.text,
            })
            .collect(),
        threads: profile.threads.len(),
        resource: (run.resource.iter().map(|(key, value)| (&**key, &**value))).collect(),
        labels: label_values(profile),
        segments: (profile.account.segments.iter())
            .map(|segment| Segment {
                number: segment.number,
                time_ns: segment.time_ns,
            })
            .collect(),
        checkpoint: run.checkpoint.as_ref().map(|checkpoint| Checkpoint {
            segment: checkpoint.segment,
            time_ns: checkpoint.time_ns,
            bytes_before: checkpoint.bytes_before,
        }),
        coarse_history: profile
            .coarse
            .first()
            .zip(profile.coarse.last())
            .map(|(first, last)| CoarseHistory {
                moments: profile.coarse.len(),
                since_ns: first.time_ns,
                until_ns: last.time_ns,
            }),
    }
}

fn modules<'a>(profile: &'a Profile, symbols: &Symbols, coverage: &Coverage) -> Vec<Module<'a>> {
    let of = |(index, module): (usize, &'a heapprof_symbolizer::LoadedModule)| {
        let index = index as u32;
        let names = symbols.reports().get(&index).map(|report| Names {
            identity: match report.identity {
                Identity::Verified => "verified",
                Identity::Unverified => "unverified",
                Identity::NoFile => "no file",
            },
            addresses: report.quality.asked,
            by_debug_information: report.quality.by_dwarf,
            by_symbols: report.quality.by_symbols,
            unnamed: report.quality.unresolved,
            tried: (report.tried.iter())
                .map(|(path, outcome)| Attempt {
                    path: path.display().to_string(),
                    outcome: outcome.to_string(),
                })
                .collect(),
            reasons: report.reasons.iter().map(ToString::to_string).collect(),
        });
        Module {
            path: &module.path,
            build_id: super::hex(&module.build_id),
            loaded_ns: module.loaded_ns,
            unloaded_ns: module.unloaded_ns,
            names,
            coverage: coverage
                .modules
                .get(&Some(index))
                .map(|&share| share.into()),
        }
    };
    let modules = profile.modules.iter().enumerate();
    let files = modules.filter(|(_, module)| module.code.is_none());
    files.map(of).collect()
}
