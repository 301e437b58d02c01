//! `heapprof explain --json`: the findings in JSON, described in `docs/json.md`.

use std::io::{self, Write};

use heapprof_symbolizer::{Explanation, Finding, Json, Outlook, PastBeforeDetail, Profile};
use serde::Serialize;

use crate::cli::output::document::Head;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    time_ns: u64,
    nothing_is_wrong: bool,
    too_short: bool,
    few_samples: bool,
    findings: Vec<FindingLine<'a>>,
    churn: Vec<ChurnLine<'a>>,
    mappings: Option<MappingsLine<'a>>,
    many_sites: Option<ManySitesLine>,
    short: bool,
    limit: Option<Limit<'a>>,
    caveats: Vec<String>,
}

#[derive(Serialize)]
struct FindingLine<'a> {
    kind: &'a str,
    trouble: bool,
    function: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    module: &'a str,
    in_use_bytes: f64,
    in_use_error_bytes: f64,
    growth_bytes_per_second: f64,
    growth_error_bytes_per_second: f64,
    highest_bytes: f64,
    highest_ns: u64,
    highest_error_bytes: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_ns: Option<u64>,
    mean_bytes: f64,
    freed_of_old: f64,
    rises: usize,
    samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    judged_until_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coarse: Option<Coarse>,
}

/// The coarse history's part in a verdict.
#[derive(Serialize)]
struct Coarse {
    what: &'static str,
    time_ns: u64,
    in_use_bytes: Option<f64>,
}

#[derive(Serialize)]
struct ChurnLine<'a> {
    function: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    module: &'a str,
    allocated_bytes: f64,
    temporary_bytes: f64,
    share: f64,
    reallocs: f64,
    reallocs_error: f64,
}

/// Memory that malloc never saw, and that grows.
#[derive(Serialize)]
struct MappingsLine<'a> {
    /// The site that has mapped most of it; `None`: none has.
    function: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    module: Option<&'a str>,
    resident_bytes: u64,
    mapped_bytes: u64,
    growth_bytes_per_second: f64,
    growth_error_bytes_per_second: f64,
}

/// Growth of the program that is in no site alone.
#[derive(Serialize)]
struct ManySitesLine {
    in_use_bytes: f64,
    in_use_error_bytes: f64,
    growth_bytes_per_second: f64,
    growth_error_bytes_per_second: f64,
}

#[derive(Serialize)]
struct Limit<'a> {
    name: &'a str,
    bytes: u64,
    used_bytes: u64,
    #[serde(flatten)]
    outlook: OutlookLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<OutlookLine>,
}

#[derive(Serialize)]
struct OutlookLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ns: Option<u64>,
    growth_bytes_per_second: f64,
    growth_error_bytes_per_second: f64,
    seconds: Option<f64>,
    seconds_least: Option<f64>,
    seconds_most: Option<f64>,
}

impl From<Outlook> for OutlookLine {
    fn from(it: Outlook) -> Self {
        OutlookLine {
            since_ns: it.since_ns,
            growth_bytes_per_second: it.growth,
            growth_error_bytes_per_second: it.growth_error,
            seconds: it.seconds,
            seconds_least: it.least_seconds,
            seconds_most: it.most_seconds,
        }
    }
}

impl<'a> From<&'a Finding> for FindingLine<'a> {
    fn from(it: &'a Finding) -> Self {
        FindingLine {
            kind: it.kind.name(),
            trouble: it.kind.is_trouble(),
            function: &it.site.function,
            file: it.site.file.as_deref(),
            line: it.site.line,
            module: &it.site.module,
            in_use_bytes: it.in_use.value,
            in_use_error_bytes: it.in_use.error(),
            growth_bytes_per_second: it.growth,
            growth_error_bytes_per_second: it.growth_error,
            highest_bytes: it.highest,
            highest_ns: it.highest_ns,
            highest_error_bytes: it.highest_error,
            settled_ns: it.settled_ns,
            mean_bytes: it.mean,
            freed_of_old: it.gone,
            rises: it.rises,
            samples: it.samples,
            judged_until_ns: it.until_ns,
            coarse: it.past_before_detail.map(|past| match past {
                PastBeforeDetail::Grown { since_ns, before } => Coarse {
                    what: "grown since",
                    time_ns: since_ns,
                    in_use_bytes: Some(before),
                },
                PastBeforeDetail::Fallen { time_ns, bytes } => Coarse {
                    what: "fallen since",
                    time_ns,
                    in_use_bytes: Some(bytes),
                },
                PastBeforeDetail::NotKnown { until_ns } => Coarse {
                    what: "not known until",
                    time_ns: until_ns,
                    in_use_bytes: None,
                },
            }),
        }
    }
}

/// Writes the document.
pub(super) fn write(
    profile: &Profile,
    explanation: &Explanation,
    out: &mut impl Write,
) -> io::Result<()> {
    let span = profile.run.span;
    let churn = explanation.churn.iter().map(|it| ChurnLine {
        function: &it.site.function,
        file: it.site.file.as_deref(),
        line: it.site.line,
        module: &it.site.module,
        allocated_bytes: it.allocated,
        temporary_bytes: it.temporary,
        share: it.share,
        reallocs: it.reallocs.value,
        reallocs_error: it.reallocs.error(),
    });
    let mappings = explanation.mapped.as_ref().map(|it| {
        let site = (it.site_bytes > 0).then_some(&it.site);
        MappingsLine {
            function: site.map(|site| site.function.as_str()),
            file: site.and_then(|site| site.file.as_deref()),
            line: site.and_then(|site| site.line),
            module: site.map(|site| site.module.as_str()),
            resident_bytes: it.bytes,
            mapped_bytes: it.site_bytes,
            growth_bytes_per_second: it.growth,
            growth_error_bytes_per_second: it.growth_error,
        }
    });
    let limit = explanation.forecast.as_ref().map(|it| Limit {
        name: it.limit,
        bytes: it.bytes,
        used_bytes: it.used,
        outlook: it.outlook.into(),
        other: it.other.map(OutlookLine::from),
    });
    let document = Document {
        head: Head::of(profile),
        time_ns: span.map_or(profile.run.duration_ns, |span| span.to.time_ns()),
        nothing_is_wrong: explanation.is_well(),
        too_short: explanation.is_too_short,
        few_samples: explanation.is_of_few_samples,
        findings: explanation.findings.iter().map(FindingLine::from).collect(),
        churn: churn.collect(),
        mappings,
        many_sites: explanation.spread.as_ref().map(|it| ManySitesLine {
            in_use_bytes: it.in_use.value,
            in_use_error_bytes: it.in_use.error(),
            growth_bytes_per_second: it.growth,
            growth_error_bytes_per_second: it.growth_error,
        }),
        short: explanation.is_short,
        limit,
        caveats: profile.conditions(),
    };
    Json::Compact.write(&document, out)
}
