//! Document: the data of a page, in JSON, which the page's script reads.
//!
//! Moments are numbered. 0 is the beginning, the others are the ends of the steps, and one more is
//! the peak, if it is known. Behind these are the other spikes. Each text and each frame stands
//! once.

use std::collections::BTreeSet;

use heapprof_format::ANY_LABEL;
use serde::Serialize;

use super::Report;
use super::coarse::{self, Coarse};
use super::findings::Findings;
use super::memory::Memory;
use super::number::{Moment, Number, Series, series, significant};
use super::site_past::Ages;
use super::tables::{FrameWords, Tables};
use crate::analysis::recording_conditions::RecordingConditions;
use crate::analysis::timeline::mapped_course::MappedSeries;
use crate::model::precision::Precision;
use crate::model::printable::Printable;
use crate::model::profile::Profile;
use crate::model::quantity::Count;

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
    findings: Findings,
    /// The time before that of the steps.
    coarse: Vec<Coarse>,
    /// True if several processes are in it: then the highest of a coarse moment is a bound.
    is_joined: bool,
    steps: Steps,
    peak: Option<Peak>,
    spikes: Vec<OtherPeak>,
    memory: Option<Memory>,
    markers: Vec<Marker>,
    /// Functions, files and modules.
    texts: Vec<String>,
    frames: Vec<FrameWords>,
    /// The keys of the program's labels.
    label_keys: Vec<String>,
    groups: Vec<Group>,
    /// When the slack of the groups and the ages of the sites are those of, in seconds.
    pasts_s: f64,
    ages: Vec<Ages>,
    /// Sizes, threads and the like, each value with its numbers.
    dimensions: Vec<Dimension>,
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

#[derive(Default, Serialize)]
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
    /// The number of the type's text; none: the blocks are mappings without a stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<i64>,
    /// Bytes, and their error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slack: Vec<Number>,
    series: Vec<Series>,
    /// Mapped bytes, and the resident ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mapped: Vec<Series>,
}

/// A property that divides the blocks of a stack.
#[derive(Serialize)]
struct Dimension {
    name: &'static str,
    values: Vec<Value>,
}

#[derive(Serialize)]
struct Value {
    name: String,
    series: Vec<Series>,
}

impl<'a> Document<'a> {
    pub(super) fn of(report: &'a Report<'a>) -> Document<'a> {
        let Report {
            profile, timeline, ..
        } = *report;
        let run = &profile.run;
        let mut tables = Tables::default();
        let keys = label_keys(profile);
        let groups = groups(report, &keys, &mut tables);
        let findings = Findings::of(report.explanation, report.until_ns, report.log, &mut tables);
        let steps = &timeline.steps;
        let numbers = |of: fn(&crate::analysis::timeline::Step<Moment>) -> f64| {
            steps.iter().map(|step| Number(of(step))).collect()
        };
        Document {
            title: match report.title {
                "" => Printable(run.name()).to_string(),
                title => Printable(title).to_string(),
            },
            who: Printable(&profile.process_name()).to_string(),
            command: Printable(&run.args.join(" ")).to_string(),
            started_ms: run.start_wall_ns as f64 / 1e6,
            from_s: run.checkpoint.map_or(0, |it| it.time_ns) as f64 / 1e9,
            duration_s: run.duration_ns as f64 / 1e9,
            precision: report.precision,
            is_exact: is_exact(profile),
            percent: report.confidence.percent(),
            standard_errors: report.confidence.standard_errors(),
            notes: notes(profile),
            circumstances: RecordingConditions::of(profile),
            findings,
            coarse: coarse::moments(profile, report.sites, &mut tables),
            is_joined: run.is_joined,
            steps: Steps {
                end_s: steps.iter().map(|it| it.end_ns as f64 / 1e9).collect(),
                in_use: numbers(|it| it.in_use.round()),
                in_use_error: numbers(|it| significant(it.in_use_error)),
                highest: numbers(|it| it.highest.round()),
                allocated: numbers(|it| it.allocated.round()),
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
                    bytes: spike.peak.bytes.to_f64().round(),
                })
                .collect(),
            memory: Memory::of(profile, &report.surroundings.memory, &mut tables),
            markers: (run.markers.iter())
                .map(|marker| Marker {
                    time_s: marker.time_ns as f64 / 1e9,
                    name: Printable(&marker.name).to_string(),
                })
                .collect(),
            pasts_s: report.pasts.time_s(),
            ages: report.pasts.ages(&mut tables),
            dimensions: dimensions(report),
            texts: tables.texts,
            frames: tables.frames,
            label_keys: keys.iter().map(|key| Printable(key).to_string()).collect(),
            groups,
        }
    }
}

fn is_exact(profile: &Profile) -> bool {
    profile.precision() == Precision::Exact
}

/// The groups of stacks, and behind them those of mappings without a stack.
fn groups(report: &Report<'_>, keys: &[&str], tables: &mut Tables) -> Vec<Group> {
    let Report {
        profile,
        symbols,
        kept,
        sites,
        ..
    } = *report;
    let mut mapped = mapped_by_group(report);
    let mut group = |number: usize, stack: u32, tables: &mut Tables| Group {
        site: sites.own_of(stack).map(|site| tables.site(site)),
        labels: tables.labels(profile, keys, stack),
        r#type: Some(tables.text(Some(report.types.of(stack)))),
        slack: report.pasts.slack(number),
        series: series_of(report, number),
        mapped: std::mem::take(&mut mapped[number]),
        ..Group::default()
    };
    let mut groups: Vec<Group> = Vec::new();
    for (number, &stack) in kept.stacks().iter().enumerate() {
        groups.push(Group {
            stack: tables.stack(profile, symbols, stack),
            ..group(number, stack, tables)
        });
    }
    let less: usize = kept.others().iter().map(|(_, count)| count).sum();
    let less = format!("({} stacks with less)", Count(less as u64));
    for &(stack, count) in kept.others() {
        let outer = tables.frame(&less, None, None, None);
        let other = group(groups.len(), stack, tables);
        groups.push(Group {
            stack: [outer].into_iter().chain(other.site).collect(),
            stacks: Some(count),
            ..other
        });
    }
    for series in &report.surroundings.mappings {
        if series.stack.is_none() {
            let frame = tables.frame(&series.name, None, None, None);
            groups.push(Group {
                stack: vec![frame],
                site: Some(frame),
                labels: keys.iter().map(|_| -1).collect(),
                mapped: mapped_series(&[series]),
                ..Group::default()
            });
        }
    }
    groups
}

/// The mappings of the stacks of each group.
fn mapped_by_group(report: &Report<'_>) -> Vec<Vec<Series>> {
    let mut of_group: Vec<Vec<&MappedSeries>> = vec![Vec::new(); report.kept.groups()];
    for series in &report.surroundings.mappings {
        if let Some(group) = series.stack.and_then(|stack| report.kept.group_of(stack)) {
            of_group[group].push(series);
        }
    }
    of_group.iter().map(|all| mapped_series(all)).collect()
}

/// The sum of several series, mapped and resident; nothing if there are none.
fn mapped_series(all: &[&MappedSeries]) -> Vec<Series> {
    if all.is_empty() {
        return Vec::new();
    }
    let moments: BTreeSet<usize> = (all.iter())
        .flat_map(|series| series.changes.iter().map(|(moment, _)| *moment))
        .collect();
    let mut sums = [Series::new(), Series::new()];
    for &moment in &moments {
        for (at, sum) in sums.iter_mut().enumerate() {
            let bytes: u64 = all.iter().map(|series| series.at(moment)[at]).sum();
            let bytes = Number(bytes as f64);
            if sum.last().unwrap_or(&Number(0.0)) != &bytes {
                sum.extend([Number(moment as f64), bytes]);
            }
        }
    }
    sums.into()
}

fn dimensions(report: &Report<'_>) -> Vec<Dimension> {
    let mut group = report.kept.groups();
    let all = report.dimensions.all.iter();
    all.map(|it| Dimension {
        name: it.name,
        values: (it.values.iter())
            .map(|name| {
                let series = series_of(report, group);
                group += 1;
                Value {
                    name: Printable(name).to_string(),
                    series,
                }
            })
            .collect(),
    })
    .collect()
}

/// The keys of all labels, but for the one that stands for any.
fn label_keys(profile: &Profile) -> Vec<&str> {
    let labels = profile.stacks.iter().flat_map(|stack| stack.labels.iter());
    let keys: BTreeSet<&str> = labels.map(|(key, _)| key).collect();
    keys.into_iter().filter(|&key| key != ANY_LABEL).collect()
}

/// A group's numbers at the beginning, at the end of each step, at the peak, and at other spikes.
fn series_of(report: &Report<'_>, group: usize) -> Vec<Series> {
    let timeline = report.timeline;
    let moments = [&timeline.at_start]
        .into_iter()
        .chain(timeline.steps.iter().map(|step| &step.groups))
        .chain(&timeline.at_peak)
        .chain(&timeline.looked);
    let moments = moments.map(|groups| groups.get(group).copied().unwrap_or_default());
    series(moments, is_exact(report.profile))
}

/// Returns what a reader must know before believing a number.
fn notes(profile: &Profile) -> Vec<String> {
    let mut lines = profile.circumstances();
    lines.extend(profile.resident());
    if let Some(checkpoint) = &profile.run.checkpoint {
        lines.push(format!(
            "the log rotated: the past is known from {:.3} s on{}",
            checkpoint.time_ns as f64 / 1e9,
            match profile.before_detail() {
                Some(words) => format!("; {words}"),
                None => String::new(),
            }
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
