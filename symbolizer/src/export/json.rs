//! JSON format: everything that a profile holds, for programs.
//!
//! Bytes and objects are whole numbers, never rounded further. Frames are listed once and named by
//! index.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::recording_conditions::RecordingConditions;
use crate::export::Options;
use crate::export::facts::estimator;
use crate::model::amount::Amount;
use crate::model::confidence::Confidence;
use crate::model::measure::Measure;
use crate::model::metric::{Metric, Numbers};
use crate::model::peak::Peak;
use crate::model::precision::Precision;
use crate::model::printable::Json;
use crate::model::profile::{Place, Profile};
use crate::naming::symbols::Symbols;

#[derive(Serialize)]
struct Document<'a> {
    /// Changes when the meaning of a key does.
    version: u32,
    program: &'a str,
    command: &'a [String],
    pid: u32,
    start_unix_ns: u64,
    duration_ns: u64,
    interval_bytes: Option<u64>,
    ended: &'a str,
    estimator: &'a str,
    complete: bool,
    totals: Values,
    standard_errors: Errors,
    intervals: Intervals,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<PeakValues>,
    #[serde(flatten)]
    circumstances: RecordingConditions<'a>,
    /// By the names of the command line; only for a log.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    past: BTreeMap<&'static str, Past>,
    counters: Vec<(&'a str, u64)>,
    modules: Vec<Module<'a>>,
    frames: Vec<Frame>,
    /// Indices of frames, innermost first.
    stacks: Vec<Vec<usize>>,
    /// The labels of each stack that has some, by its index.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<usize, BTreeMap<&'a str, &'a str>>,
    rows: Vec<Row>,
}

/// The four numbers, by the names of the command line.
#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub struct Values {
    in_use_objects: u64,
    in_use_bytes: u64,
    allocated_objects: u64,
    allocated_bytes: u64,
}

impl From<Numbers> for Values {
    fn from(n: Numbers) -> Self {
        Values {
            in_use_objects: n.in_use_objects,
            in_use_bytes: n.in_use_bytes,
            allocated_objects: n.allocated_objects,
            allocated_bytes: n.allocated_bytes,
        }
    }
}

/// The standard errors of the four numbers; null where nobody knows.
#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub struct Errors {
    in_use_objects: Option<f64>,
    in_use_bytes: Option<f64>,
    allocated_objects: Option<f64>,
    allocated_bytes: Option<f64>,
}

impl Errors {
    /// Returns the errors of a row or a site.
    pub fn of(totals: &heapprof_core::Totals) -> Self {
        Errors::by(|metric| Some(metric.error_of(totals)))
    }

    /// Returns the errors of a profile's totals. A dump has no samples, but may state the errors.
    /// If samples are possible and there are none, the errors are unknown.
    pub fn of_all(profile: &Profile) -> Self {
        Errors::by(|metric| {
            let error = profile.error(metric);
            error.filter(|_| !profile.has_no_sample_of(metric))
        })
    }

    fn by(of: impl Fn(Metric) -> Option<f64>) -> Self {
        Errors {
            in_use_objects: of(Metric::InUseObjects),
            in_use_bytes: of(Metric::InUseBytes),
            allocated_objects: of(Metric::AllocatedObjects),
            allocated_bytes: of(Metric::AllocatedBytes),
        }
    }
}

/// How wide intervals are at the confidence that was asked for.
#[derive(Serialize, Clone, Copy)]
pub struct Intervals {
    confidence_percent: f64,
    /// Half their width.
    standard_errors: f64,
    /// Bytes that a site without a sample could still hold; only for estimates.
    #[serde(skip_serializing_if = "Option::is_none")]
    unseen_bytes: Option<f64>,
}

impl Intervals {
    /// Those of a profile.
    pub fn of(profile: &Profile, confidence: Confidence) -> Self {
        Intervals {
            confidence_percent: confidence.percent(),
            standard_errors: confidence.standard_errors(),
            unseen_bytes: profile.unseen_bytes(confidence),
        }
    }
}

/// When the most bytes were in use.
#[derive(Serialize, Clone, Copy)]
pub struct PeakValues {
    time_ns: u64,
    bytes: f64,
    /// The standard error; `None`: it is not known.
    error: Option<f64>,
}

impl PeakValues {
    /// Those of a peak.
    pub fn of(peak: Peak) -> Self {
        PeakValues {
            time_ns: peak.time_ns,
            bytes: peak.bytes.to_f64(),
            error: peak.error(),
        }
    }
}

/// A number that needs the past.
#[derive(Serialize)]
struct Past {
    unit: &'static str,
    value: f64,
    standard_error: f64,
    samples: u64,
}

impl Past {
    fn of(measure: Measure, amount: Amount) -> (&'static str, Past) {
        let past = Past {
            unit: measure.unit(),
            value: amount.value,
            standard_error: amount.error(),
            samples: amount.samples,
        };
        (measure.name(), past)
    }

    /// All of them.
    fn all(profile: &Profile, of: impl Fn(Measure) -> Amount) -> BTreeMap<&'static str, Past> {
        match profile.pasts.is_empty() {
            true => BTreeMap::new(),
            false => Measure::SUMS.map(|m| Past::of(m, of(m))).into(),
        }
    }
}

#[derive(Serialize)]
struct Module<'a> {
    path: &'a str,
    build_id: String,
    start: u64,
}

#[derive(Serialize)]
struct Frame {
    function: Option<String>,
    linkage_name: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    inlined: bool,
    module: Option<u32>,
    address: u64,
}

#[derive(Serialize)]
struct Row {
    stack: u32,
    /// The largest request of the row's size class.
    size_up_to: u64,
    samples_allocated: u64,
    samples_in_use: u64,
    #[serde(flatten)]
    values: Values,
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_errors: Option<Errors>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    past: BTreeMap<&'static str, Past>,
}

/// Writes the profile. All metrics are in it.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut of_place: HashMap<Place, (usize, usize)> = HashMap::new();
    let mut stacks = Vec::with_capacity(profile.stacks.len());
    for stack in &profile.stacks {
        let mut indices = Vec::new();
        for place in profile.places(stack) {
            let &mut (from, to) = of_place.entry(place).or_insert_with(|| {
                let from = frames.len();
                frames.extend(symbols.frames(place).iter().map(|frame| Frame {
                    function: frame.function.as_ref().map(|name| name.demangled().into()),
                    linkage_name: frame.function.as_ref().map(|name| name.raw().into()),
                    file: frame.file.as_deref().map(String::from),
                    line: frame.line,
                    inlined: frame.inlined,
                    module: place.module,
                    address: place.avma,
                }));
                (from, frames.len())
            });
            indices.extend(from..to);
        }
        stacks.push(indices);
    }
    let run = &profile.run;
    let is_sampled = profile.precision() == Precision::Sampled;
    let document = Document {
        version: 1,
        program: &run.program,
        command: &run.args,
        pid: run.pid,
        start_unix_ns: run.start_wall_ns,
        duration_ns: run.duration_ns,
        interval_bytes: run.interval,
        ended: run.ending.describe(),
        estimator: estimator(profile),
        complete: profile.is_complete(),
        totals: profile.numbers().into(),
        standard_errors: Errors::of_all(profile),
        intervals: Intervals::of(profile, options.confidence),
        peak: profile.peak_of_run().map(PeakValues::of),
        circumstances: RecordingConditions::of(profile),
        past: Past::all(profile, |measure| measure.of_all(profile)),
        counters: profile
            .account
            .counters
            .iter()
            .map(|(counter, n)| (counter.describe(), *n))
            .collect(),
        modules: profile
            .modules
            .iter()
            .map(|module| Module {
                path: &module.path,
                build_id: module
                    .build_id
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
                start: module.segments.first().map_or(0, |segment| segment.start),
            })
            .collect(),
        frames,
        labels: labels_of(profile),
        stacks,
        rows: profile
            .rows
            .iter()
            .enumerate()
            .map(|(index, row)| Row {
                stack: row.stack,
                size_up_to: row.class.upper(),
                samples_allocated: row.totals.allocated.samples,
                samples_in_use: row.totals.in_use.samples,
                values: Numbers::of(&row.totals).into(),
                standard_errors: is_sampled.then(|| Errors::of(&row.totals)),
                past: Past::all(profile, |measure| measure.of_row(profile, index)),
            })
            .collect(),
    };
    Json::Compact.write(&document, out)
}

/// Returns the labels of each stack that has some, by its index.
fn labels_of(profile: &Profile) -> BTreeMap<usize, BTreeMap<&str, &str>> {
    let stacks = profile.stacks.iter().enumerate();
    let labelled = stacks.filter(|(_, stack)| !stack.labels.is_empty());
    labelled
        .map(|(index, stack)| (index, stack.labels.iter().collect()))
        .collect()
}
