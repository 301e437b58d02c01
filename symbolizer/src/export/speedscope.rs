//! speedscope format: JSON with the chosen metric first and the other three behind it.
//!
//! Each metric is a profile of its own, and the viewer switches between them.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::export::Options;
use crate::export::facts::in_a_line;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::printable::{Json, Printable};
use crate::model::profile::{Place, Profile};
use crate::naming::symbols::Symbols;

#[derive(Serialize)]
struct Document {
    #[serde(rename = "$schema")]
    schema: &'static str,
    shared: Shared,
    profiles: Vec<Sampled>,
    name: String,
    exporter: &'static str,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize, Clone, PartialEq, Eq, Hash)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Indices of frames, outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes the profile.
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
    let mut known: HashMap<Frame, usize> = HashMap::new();
    // Thousands of stacks pass each place.
    let mut of_place: HashMap<Place, Vec<usize>> = HashMap::new();
    let mut stacks: Vec<Vec<usize>> = Vec::new();
    for stack in &profile.stacks {
        let mut indices = Vec::new();
        for place in profile.places(stack) {
            let those = of_place.entry(place).or_insert_with(|| {
                let of_frame = |frame: &crate::resolve::Frame| {
                    let frame = Frame {
                        name: Printable(&symbols.function(profile, place, frame)).to_string(),
                        file: frame
                            .file
                            .as_deref()
                            .map(|file| Printable(file).to_string()),
                        line: frame.line,
                    };
                    *known.entry(frame).or_insert_with_key(|frame| {
                        frames.push(frame.clone());
                        frames.len() - 1
                    })
                };
                symbols.frames(place).iter().map(of_frame).collect()
            });
            indices.extend_from_slice(those);
        }
        indices.reverse();
        stacks.push(indices);
    }

    let mut metrics = Metric::ALL.map(Measure::Basic).to_vec();
    if !profile.pasts.is_empty() {
        metrics.extend(Measure::SUMS);
    }
    metrics.sort_by_key(|&metric| metric != options.metric);
    let profiles = metrics
        .into_iter()
        .map(|metric| sampled(profile, &stacks, metric))
        .collect();
    let name = match options.title.as_str() {
        "" => Printable(&profile.run.program).to_string(),
        title => title.into(),
    } + &in_a_line(profile);
    let document = Document {
        schema: "https://www.speedscope.app/file-format-schema.json",
        shared: Shared { frames },
        profiles,
        name,
        exporter: concat!("heapprof ", env!("CARGO_PKG_VERSION")),
    };
    Json::Compact.write(&document, out)
}

fn sampled(profile: &Profile, stacks: &[Vec<usize>], metric: Measure) -> Sampled {
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for (row, number) in profile.rows.iter().zip(metric.whole_numbers(profile)) {
        // A graph of time or memory has no place for what shrank.
        let weight = u64::try_from(number).unwrap_or(0);
        if let (Some(stack), true) = (stacks.get(row.stack as usize), weight > 0) {
            samples.push(stack.clone());
            weights.push(weight);
        }
    }
    Sampled {
        r#type: "sampled",
        name: metric.name(),
        unit: match metric.sample_type().1 {
            "bytes" => "bytes",
            _ => "none",
        },
        start_value: 0,
        end_value: weights
            .iter()
            .fold(0, |sum: u64, weight| sum.saturating_add(*weight)),
        samples,
        weights,
    }
}
