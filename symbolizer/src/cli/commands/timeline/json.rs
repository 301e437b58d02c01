//! `heapprof timeline --json`: the steps in JSON, described in `docs/json.md`.

use std::io::{self, Write};

use heapprof_symbolizer::export::json::PeakValues;
use heapprof_symbolizer::{By, Json, Profile, RecordingConditions, Timeline};
use serde::Serialize;

use super::coarse::{self, Coarse};
use super::peaks;
use crate::cli::output::document::Head;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(flatten)]
    circumstances: RecordingConditions<'a>,
    duration_ns: u64,
    step_ns: u64,
    peak: Option<PeakValues>,
    /// The time before detail, if the log rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    coarse: Option<coarse::Document<'a>>,
    /// The highest spikes.
    peaks: Vec<peaks::Document<'a>>,
    /// The kind of the groups, if they are no sites.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    /// Names of the sites whose bytes each step lists, or of the groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    sites: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<&'a [String]>,
    steps: Vec<Step<'a>>,
}

#[derive(Serialize)]
struct Step<'a> {
    end_ns: u64,
    in_use_bytes: f64,
    in_use_error: f64,
    highest_in_use_bytes: f64,
    allocated_bytes: f64,
    allocated_objects: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    highest_resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sites_in_use_bytes: Option<&'a [f64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups_in_use_bytes: Option<&'a [f64]>,
}

pub(super) fn write(
    timeline: &Timeline<f64>,
    (names, by): (&[String], Option<By>),
    peaks: &[peaks::Peak],
    coarse: &Coarse,
    profile: &Profile,
    out: &mut impl Write,
) -> io::Result<()> {
    let document = Document {
        head: Head::of(profile),
        circumstances: RecordingConditions::of(profile),
        duration_ns: profile.run.duration_ns,
        step_ns: timeline.step_ns,
        peak: profile
            .peak
            .filter(|peak| peak.record > 0)
            .map(PeakValues::of),
        coarse: coarse.document(profile),
        peaks: peaks.iter().map(peaks::Peak::document).collect(),
        by: by.map(By::name),
        sites: by.is_none().then_some(names),
        groups: by.map(|_| names),
        steps: (timeline.steps.iter())
            .map(|step| Step {
                end_ns: step.end_ns,
                in_use_bytes: step.in_use,
                in_use_error: step.in_use_error,
                highest_in_use_bytes: step.highest,
                allocated_bytes: step.allocated,
                allocated_objects: step.allocated_objects,
                resident_bytes: step.resident,
                highest_resident_bytes: step.highest_resident,
                sites_in_use_bytes: by.is_none().then_some(&step.groups),
                groups_in_use_bytes: by.map(|_| &*step.groups),
            })
            .collect(),
    };
    Json::Pretty.write(&document, out)
}
