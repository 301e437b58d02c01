//! Document: the data of a page, in JSON. `model.js` reads it.
//!
//! Moments are numbered. 0 is the beginning, the others are the ends of the steps, and one more is
//! the peak, if it is known. Behind these are the other spikes. Each text and each frame stands
//! once.

use std::collections::{BTreeSet, HashMap};

use heapprof_core::{Estimate, Totals};
use heapprof_format::ANY_LABEL;
use serde::{Serialize, Serializer};

use super::Report;
use crate::analysis::recording_conditions::RecordingConditions;
use crate::model::precision::Precision;
use crate::model::printable::Printable;
use crate::model::profile::{Place, Profile};
use crate::model::quantity::Count;
use crate::naming::site::SiteMap;
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;

/// The numbers of a group at a moment, each with its standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moment([f64; SERIES]);

/// Bytes and blocks in use, bytes and blocks allocated so far; then the errors of these.
const SERIES: usize = 8;
/// The number of these series that are no errors.
const VALUES: usize = SERIES / 2;

impl From<&Totals> for Moment {
    fn from(totals: &Totals) -> Moment {
        let values = |it: &Estimate| [it.bytes_f64().round(), decimals(it.objects_f64())];
        let errors = |it: &Estimate| {
            [
                significant(it.bytes_error()),
                significant(it.objects_error()),
            ]
        };
        let [a, b] = values(&totals.in_use);
        let [c, d] = values(&totals.allocated);
        let [e, f] = errors(&totals.in_use);
        let [g, h] = errors(&totals.allocated);
        Moment([a, b, c, d, e, f, g, h])
    }
}

/// To two places: a block is never less than one, but what it stands for is no whole number.
fn decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// To three digits or a few more: nobody reads more of an error.
fn significant(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    match unit < 1.0 {
        true => (value / unit).round() * unit,
        false => (value / unit).round() * unit.round(),
    }
}

/// Without a point where it needs none.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const EXACT: f64 = (1u64 << 53) as f64;
        let Number(value) = *self;
        match value.fract() == 0.0 && value.abs() < EXACT {
            true => serializer.serialize_i64(value as i64),
            false => serializer.serialize_f64(value),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Document<'a> {
    title: String,
    /// The program and its process.
    who: String,
    command: String,
    /// When it began, in milliseconds since 1970; 0: not known.
    started_ms: f64,
    /// Seconds after the start: when the first step begins, and how long the run was.
    from_s: f64,
    duration_s: f64,
    /// How exact the numbers are.
    precision: &'a str,
    is_exact: bool,
    /// The confidence of intervals in percent, and their half width in standard errors.
    percent: f64,
    standard_errors: f64,
    /// The notes that must stand beside the numbers.
    notes: Vec<String>,
    #[serde(flatten)]
    circumstances: RecordingConditions<'a>,
    steps: Steps,
    peak: Option<Peak>,
    spikes: Vec<OtherPeak>,
    markers: Vec<Marker>,
    /// Functions, files and modules.
    texts: Vec<String>,
    /// Function, file, line and module of each frame. Texts by number; -1 and line 0: unknown.
    frames: Vec<(i64, i64, u32, i64)>,
    /// The keys of the program's labels.
    label_keys: Vec<String>,
    groups: Vec<Group>,
}

/// The totals by step.
#[derive(Serialize)]
struct Steps {
    end_s: Vec<f64>,
    in_use: Vec<Number>,
    in_use_error: Vec<Number>,
    /// The most at any time of the step.
    highest: Vec<Number>,
    /// In the step.
    allocated: Vec<Number>,
}

#[derive(Serialize)]
struct Peak {
    time_s: f64,
    bytes: f64,
    /// True if the groups know what it was made of.
    is_known: bool,
}

/// Another moment that stands out.
#[derive(Serialize)]
struct OtherPeak {
    time_s: f64,
    bytes: f64,
}

#[derive(Serialize)]
struct Marker {
    time_s: f64,
    name: String,
}

#[derive(Serialize)]
struct Group {
    /// Outermost first.
    stack: Vec<usize>,
    /// The frame that its blocks are put down to.
    site: Option<usize>,
    /// How many stacks it is, where their callers are not told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<usize>,
    /// Its value of each key, as a text's number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<i64>,
    /// The changes of each series: moment, number, moment, number, …
    series: Vec<Vec<Number>>,
}

impl<'a> Document<'a> {
    pub(super) fn of(report: &'a Report<'a>) -> Document<'a> {
        let Report {
            profile,
            symbols,
            kept,
            timeline,
            ..
        } = *report;
        let run = &profile.run;
        let is_exact = profile.precision() == Precision::Exact;
        let mut tables = Tables::default();
        let keys = label_keys(profile);
        let mut groups: Vec<Group> = (kept.stacks().iter().enumerate())
            .map(|(group, &stack)| Group {
                stack: tables.stack(profile, symbols, stack),
                site: tables.site(report.sites, stack),
                stacks: None,
                labels: tables.labels(profile, &keys, stack),
                series: series(report, group, is_exact),
            })
            .collect();
        let others: usize = kept.others().iter().map(|(_, count)| count).sum();
        for &(stack, count) in kept.others() {
            let name = format!("({} stacks with less)", Count(others as u64));
            let outer = tables.frame(&name, None, None, None);
            let site = tables.site(report.sites, stack);
            groups.push(Group {
                stack: [outer].into_iter().chain(site).collect(),
                site,
                stacks: Some(count),
                labels: tables.labels(profile, &keys, stack),
                series: series(report, groups.len(), is_exact),
            });
        }
        let steps = &timeline.steps;
        Document {
            title: match report.title {
                "" => Printable(run.name()).to_string(),
                title => Printable(title).to_string(),
            },
            who: Printable(&profile.who()).to_string(),
            command: Printable(&run.args.join(" ")).to_string(),
            started_ms: run.start_wall_ns as f64 / 1e6,
            from_s: run.checkpoint.map_or(0, |it| it.time_ns) as f64 / 1e9,
            duration_s: run.duration_ns as f64 / 1e9,
            precision: report.precision,
            is_exact,
            percent: report.confidence.percent(),
            standard_errors: report.confidence.standard_errors(),
            notes: notes(profile),
            circumstances: RecordingConditions::of(profile),
            steps: Steps {
                end_s: steps.iter().map(|it| it.end_ns as f64 / 1e9).collect(),
                in_use: steps.iter().map(|it| Number(it.in_use.round())).collect(),
                in_use_error: steps
                    .iter()
                    .map(|it| Number(significant(it.in_use_error)))
                    .collect(),
                highest: steps.iter().map(|it| Number(it.highest.round())).collect(),
                allocated: steps
                    .iter()
                    .map(|it| Number(it.allocated.round()))
                    .collect(),
            },
            peak: profile
                .peak
                .filter(|peak| peak.record > 0)
                .map(|peak| Peak {
                    time_s: peak.time_ns as f64 / 1e9,
                    bytes: peak.bytes.to_f64(),
                    is_known: timeline.at_peak.is_some(),
                }),
            spikes: (report.spikes.iter())
                .map(|spike| OtherPeak {
                    time_s: spike.peak.time_ns as f64 / 1e9,
                    bytes: spike.peak.in_use.bytes_f64().round(),
                })
                .collect(),
            markers: (run.markers.iter())
                .map(|marker| Marker {
                    time_s: marker.time_ns as f64 / 1e9,
                    name: Printable(&marker.name).to_string(),
                })
                .collect(),
            texts: tables.texts,
            frames: tables.frames,
            label_keys: keys.iter().map(|key| Printable(key).to_string()).collect(),
            groups,
        }
    }
}

/// The keys of all labels, but for the one that stands for any.
fn label_keys(profile: &Profile) -> Vec<&str> {
    let labels = profile.stacks.iter().flat_map(|stack| stack.labels.iter());
    let keys: BTreeSet<&str> = labels.map(|(key, _)| key).collect();
    keys.into_iter().filter(|&key| key != ANY_LABEL).collect()
}

/// A group's numbers at the beginning, at the end of each step, at the peak, and at other spikes.
fn series(report: &Report<'_>, group: usize, is_exact: bool) -> Vec<Vec<Number>> {
    let timeline = report.timeline;
    let moments = [&timeline.at_start]
        .into_iter()
        .chain(timeline.steps.iter().map(|step| &step.groups))
        .chain(&timeline.at_peak)
        .chain(&timeline.looked);
    let count = if is_exact { VALUES } else { SERIES };
    let mut series: Vec<Vec<Number>> = (0..count).map(|_| Vec::new()).collect();
    let mut before = Moment::default();
    for (number, groups) in moments.enumerate() {
        let now = groups.get(group).copied().unwrap_or_default();
        for ((series, now), before) in series.iter_mut().zip(now.0).zip(before.0) {
            if now != before {
                series.extend([Number(number as f64), Number(now)]);
            }
        }
        before = now;
    }
    series
}

/// Returns what a reader must know before believing a number.
fn notes(profile: &Profile) -> Vec<String> {
    let mut lines = profile.circumstances();
    lines.extend(profile.resident());
    if let Some(checkpoint) = &profile.run.checkpoint {
        lines.push(format!(
            "the log rotated: the past is known from {:.3} s on",
            checkpoint.time_ns as f64 / 1e9
        ));
    }
    lines.extend(profile.account.faults());
    let losses = profile.account.losses();
    lines.extend(losses.map(|(counter, n)| format!("lost: {n} {}", counter.describe())));
    lines
        .iter()
        .map(|line| Printable(line).to_string())
        .collect()
}

/// Texts and frames, each once.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    text_of: HashMap<String, i64>,
    frames: Vec<(i64, i64, u32, i64)>,
    frame_of: HashMap<(i64, i64, u32, i64), usize>,
    /// Thousands of stacks pass each place.
    place_of: HashMap<Place, Vec<usize>>,
}

impl Tables {
    fn text(&mut self, text: Option<&str>) -> i64 {
        let Some(text) = text else { return -1 };
        let text = Printable(text).to_string();
        *self.text_of.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            self.texts.len() as i64 - 1
        })
    }

    fn frame(
        &mut self,
        function: &str,
        file: Option<&str>,
        line: Option<u32>,
        module: Option<&str>,
    ) -> usize {
        let frame = (
            self.text(Some(function)),
            self.text(file),
            line.unwrap_or(0),
            self.text(module),
        );
        *self.frame_of.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            self.frames.len() - 1
        })
    }

    /// The values of a stack's labels, by key.
    fn labels(&mut self, profile: &Profile, keys: &[&str], stack: u32) -> Vec<i64> {
        let labels = &profile.stacks[stack as usize].labels;
        keys.iter()
            .map(|key| self.text(Some(labels.value(key))))
            .collect()
    }

    /// The frame that a stack's blocks are put down to.
    fn site(&mut self, sites: &SiteMap, stack: u32) -> Option<usize> {
        let site = sites.own_of(stack)?;
        let module = Some(&*site.module).filter(|module| !module.is_empty());
        Some(self.frame(&site.function, site.file.as_deref(), site.line, module))
    }

    /// The frames of a stack, outermost first.
    fn stack(&mut self, profile: &Profile, symbols: &Symbols, stack: u32) -> Vec<usize> {
        let mut all = Vec::new();
        for place in profile.places(&profile.stacks[stack as usize]) {
            if !self.place_of.contains_key(&place) {
                let module = profile.module_of(place).map(|module| module.path.as_str());
                let frame = |frame: &Frame| {
                    let function = symbols.function(profile, place, frame);
                    self.frame(&function, frame.file.as_deref(), frame.line, module)
                };
                let those = symbols.frames(place).iter().map(frame).collect();
                self.place_of.insert(place, those);
            }
            all.extend_from_slice(&self.place_of[&place]);
        }
        all.reverse();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_rounded_to_what_is_read() {
        for (value, expected) in [
            (0.0, 0.0),
            (123_456.0, 123_000.0),
            (1234.0, 1230.0),
            (99.96, 100.0),
            (5.0, 5.0),
        ] {
            assert_eq!(significant(value), expected);
        }
        assert!((significant(0.012_345) - 0.0123).abs() < 1e-12);
    }
}
