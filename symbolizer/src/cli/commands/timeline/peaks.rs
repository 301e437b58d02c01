//! Peaks: the highest peaks of a run, and the sites or groups that made each.

use std::io::{self, Write};

use heapprof_symbolizer::{Bytes, Point, Printable, Profile, Spike, cut_middle, highest};
use serde::Serialize;

use super::Named;
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// So many peaks are listed.
const LISTED: usize = 5;
/// So many sites are listed of each.
const MAKERS: usize = 3;

/// A peak.
pub(super) struct Peak {
    spike: Spike,
    /// Those that grew most from the low before the peak to the peak, the largest first.
    makers: Vec<Maker>,
}

/// A site or a group at a peak.
struct Maker {
    name: String,
    /// Bytes in use at the peak.
    in_use: f64,
    /// How much more that is than at the low before the peak.
    rise: f64,
}

/// A peak in JSON.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    time_ns: u64,
    bytes: f64,
    error: f64,
    low: Low,
    makers: Vec<MakerDocument<'a>>,
}

#[derive(Serialize)]
struct Low {
    time_ns: u64,
    bytes: f64,
}

#[derive(Serialize)]
struct MakerDocument<'a> {
    name: &'a str,
    in_use_bytes: f64,
    rise_bytes: f64,
}

/// The spikes of a profile that are listed.
pub(super) fn listed(profile: &Profile) -> Vec<Spike> {
    let spikes = profile.extras.spikes.as_deref().unwrap_or_default();
    highest(spikes, LISTED)
}

/// The records behind which the most were in use.
pub(super) fn records_of_peaks(spikes: &[Spike]) -> Vec<u64> {
    spikes.iter().map(|spike| spike.peak.record).collect()
}

/// The records behind which rows are looked at: of each spike the peak, then its low.
pub(super) fn records(spikes: &[Spike]) -> Vec<u64> {
    let both = spikes.iter().flat_map(|spike| [spike.peak, spike.low]);
    both.map(|point| point.record).collect()
}

impl Peak {
    /// The peaks of these spikes. `rows` are the bytes in use of each row, behind each of the
    /// [`records`].
    pub(super) fn all(spikes: &[Spike], rows: &[Vec<f64>], named: &Named) -> Vec<Peak> {
        let spikes = spikes.iter().zip(rows.chunks_exact(2));
        spikes
            .map(|(&spike, rows)| {
                let at_peak = named.sums(&rows[0]);
                let at_low = named.sums(&rows[1]);
                let both = named.names.iter().zip(at_peak).zip(at_low);
                let maker = |((name, peak), low): ((&String, f64), f64)| Maker {
                    name: name.clone(),
                    in_use: peak,
                    rise: peak - low,
                };
                let is_rise = rise_of(&spike) > 0.0;
                let mut makers: Vec<Maker> = both
                    .map(maker)
                    .filter(|it| it.in_use > 0.0 && (it.rise > 0.0 || !is_rise))
                    .collect();
                makers.sort_by(|a, b| {
                    let by_rise = b.rise.total_cmp(&a.rise);
                    by_rise.then_with(|| b.in_use.total_cmp(&a.in_use))
                });
                makers.truncate(MAKERS);
                Peak { spike, makers }
            })
            .collect()
    }

    /// As in JSON.
    pub(super) fn document(&self) -> Document<'_> {
        let Spike { peak, low } = &self.spike;
        Document {
            time_ns: peak.time_ns,
            bytes: peak.bytes.to_f64(),
            error: peak.bytes_error(),
            low: Low {
                time_ns: low.time_ns,
                bytes: low.bytes.to_f64(),
            },
            makers: (self.makers.iter())
                .map(|maker| MakerDocument {
                    name: &maker.name,
                    in_use_bytes: maker.in_use,
                    rise_bytes: maker.rise,
                })
                .collect(),
        }
    }
}

/// Writes the list.
pub(super) fn write(peaks: &[Peak], at: &str, out: &mut impl Write) -> io::Result<()> {
    let Some(first) = peaks.first() else {
        return Ok(());
    };
    let line = format!(
        "highest peaks, each with those that grew most; {} shows one:",
        at.replace(
            "peak",
            &format!(
                "\"peak near {:.6}s\"",
                first.spike.peak.time_ns as f64 / 1e9
            )
        )
    );
    write_wrapped(&line, 5, stdout_width(), out)?;
    for Peak { spike, makers } in peaks {
        let rise = rise_of(spike);
        let in_use = Bytes(spike.peak.bytes.to_f64());
        let from = match rise > 0.0 {
            true => format!(", {} more than at {}", Bytes(rise), seconds(&spike.low)),
            false => String::new(),
        };
        let line = format!("  {}: {in_use} in use{from}", seconds(&spike.peak));
        write_wrapped(&line, 5, stdout_width(), out)?;
        for maker in makers {
            // The line above has the rise.
            let share = match rise > 0.0 {
                true => format!("{:>4.0} % of that, to ", maker.rise / rise * 100.0),
                false => String::new(),
            };
            let head = format!("    {share}{:>10}  ", Bytes(maker.in_use).to_string());
            let name = Printable(&maker.name).to_string();
            let name = match stdout_width() {
                Some(width) => cut_middle(&name, width.saturating_sub(head.len()).max(16)),
                None => name,
            };
            writeln!(out, "{head}{name}")?;
        }
    }
    Ok(())
}

fn rise_of(spike: &Spike) -> f64 {
    spike.peak.bytes.to_f64() - spike.low.bytes.to_f64()
}

fn seconds(point: &Point) -> String {
    format!("{:.6} s", point.time_ns as f64 / 1e9)
}
