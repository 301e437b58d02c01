//! JSON of a difference (docs/json.md lists the keys).

use std::io::{self, Write};

use heapprof_symbolizer::{Change, Comparability, Diff, DiffSite, Json, Measure};
use serde::Serialize;

use crate::cli::output::document::VERSION;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    /// False if something is missing from the record of one of the runs.
    complete: bool,
    metric: &'a str,
    unit: &'a str,
    /// Other differences that a reader of the numbers must know.
    remarks: Vec<&'a String>,
    /// Caveats: what the numbers lack, and what a metric does not mean.
    caveats: &'a [String],
    total: Numbers<'a>,
    sites: Vec<Site<'a>>,
}

#[derive(Serialize)]
struct Site<'a> {
    function: &'a str,
    module: &'a str,
    /// The end of the file's path, if functions of that name are in several files.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    /// The line of the site, or the file of its lines.
    source: Option<Source<'a>>,
    #[serde(flatten)]
    numbers: Numbers<'a>,
}

#[derive(Serialize)]
struct Source<'a> {
    file: &'a str,
    line: Option<u32>,
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

/// Writes the changes, largest first.
pub(super) fn write(
    diff: &Diff,
    changes: &[(&DiffSite, &Change)],
    comparability: &Comparability,
    metric: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    let sites = changes.iter().map(|(place, change)| Site {
        function: &place.function,
        module: &place.module,
        file: place.file.as_deref(),
        source: diff.places.get(*place).map(|source| Source {
            file: &source.file,
            line: source.line,
        }),
        numbers: Numbers::of(change),
    });
    let document = Document {
        version: VERSION,
        complete: !comparability.is_incomplete,
        metric: metric.name(),
        unit: metric.unit(),
        remarks: comparability
            .programs
            .iter()
            .chain(&comparability.remarks)
            .collect(),
        caveats: &comparability.caveats,
        total: Numbers::of(&diff.total),
        sites: sites.collect(),
    };
    Json::Pretty.write(&document, out)
}
