//! `heapprof timeline`: shows bytes in use and the rate of allocation over time.

mod coarse;
mod csv;
mod json;
mod peaks;
mod svg;

use std::io::{self, Write};
use std::path::PathBuf;

use coarse::Coarse;
use heapprof_symbolizer::{
    By, Bytes, GroupMap, Groups, Heights, Looks, Printable, Profile, Rows, SiteKey, SiteMap,
    Symbols, Timeline, ViewError, WantedExtras, cut_function, cut_middle, timeline_of_log,
};
use peaks::Peak;

use crate::cli::inputs::logs::Logs;
use crate::cli::inputs::single_file;
use crate::cli::options::choice;
use crate::cli::options::quantity::count;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::progress::Progress;
use crate::cli::output::say;
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// Show bytes in use and the rate of allocation over time
///
/// A line of text for each curve, and a list of the highest peaks with the sites that made each;
/// --csv, --svg and --json for other programs. If the log rotated, all of them begin with moments
/// of the time before its oldest segment. --top K adds the bytes in use of the K sites that
/// held the most at these peaks; --by, of the processes, threads, types and so on.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    logs: Logs,

    /// Draw a curve for each of the K sites with the most memory at one of the highest peaks
    /// [default: 0, with --by 5]
    #[arg(long, value_name = "K", value_parser = count, allow_negative_numbers = true)]
    top: Option<usize>,

    /// Draw one curve per GROUP instead of per site
    #[arg(long, value_name = "GROUP", value_parser = choice::by())]
    by: Option<By>,

    /// Steps of time, up to 100000 [default: as wide as the terminal, 200 for --csv, --svg, --json]
    #[arg(long, value_name = "N", value_parser = number_of_steps, allow_negative_numbers = true)]
    steps: Option<usize>,

    /// Print comma-separated values
    #[arg(long, conflicts_with = "svg")]
    csv: bool,

    /// Draw a picture (SVG)
    #[arg(long)]
    svg: bool,

    /// Print JSON
    #[arg(long, conflicts_with_all = ["csv", "svg"])]
    json: bool,

    /// Write to this file; - is standard output [default: -]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Most steps: beyond, they would be finer than any screen, and memory would be needed for them.
const MOST_STEPS: usize = 100_000;

fn number_of_steps(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MOST_STEPS).contains(n));
    number.ok_or_else(|| format!("a whole number from 1 to {MOST_STEPS}"))
}

/// The text beside a curve: `in use `, and ` up to 1023.9 MiB/s`.
const BESIDE: usize = 32;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (input, name) = (args.logs.open()?, args.logs.name());
    let labels = &args.logs.labels;
    let log = labels.part(input.log()?);
    let failed = |error| input.view_error(ViewError::Read(error));
    let rows = match args.by {
        Some(by) if by.divides_rows() => Rows::ByThread,
        _ => Rows::Whole,
    };
    let extras = WantedExtras {
        spikes: true,
        ..rows.extras()
    };
    let profile = single_file::whole_log(&name, &input, labels, extras)?;
    let wide = stdout_width().unwrap_or(100).saturating_sub(BESIDE).max(8);
    let steps = match args.steps {
        Some(steps) => steps,
        None if args.csv || args.svg || args.json => 200,
        None => wide,
    };
    let most = args.top.unwrap_or(args.by.map_or(0, |_| 5));
    // The other forms have no place for a list.
    let spikes = match args.csv || args.svg {
        true => Vec::new(),
        false => peaks::listed(&profile),
    };
    let has_coarse = !profile.coarse.is_empty();
    let (named, coarse) = match most > 0 || !spikes.is_empty() || has_coarse {
        true => {
            let symbols = args.logs.symbols(&profile)?;
            let coarse = has_coarse.then(|| Coarse::of(&profile, &symbols));
            (Named::of(&profile, &symbols, args.by), coarse)
        }
        false => Default::default(),
    };
    let coarse = coarse.unwrap_or_default();
    let (curves, heights) = match most {
        0 => Default::default(),
        most => {
            let progress = Progress::bytes("finding the peaks", input.len());
            let behind = peaks::records_of_peaks(&peaks::listed(&profile));
            let heights = Heights::of_log(log, &profile, steps, rows, &behind, |offset| {
                progress.at(offset)
            });
            progress.finish();
            let heights = heights.map_err(failed)?;
            (Curves::of(&named, &heights, most), heights)
        }
    };
    let progress = Progress::bytes("drawing", input.len());
    let timeline = timeline_of_log(
        log,
        &profile,
        steps,
        Groups {
            rows,
            count: curves.names.len(),
            of: |row: usize| curves.of_row.get(row).copied().flatten(),
            looks: Looks {
                steps: &heights.records,
                rows: &peaks::records(&spikes),
                ..Looks::default()
            },
        },
        |totals| totals.in_use.bytes_f64(),
        |offset| progress.at(offset),
    );
    progress.finish();
    let timeline = timeline.map_err(failed)?;
    let peaks = Peak::all(&spikes, &timeline.rows, &named);
    if args.csv {
        // The others have a place for it.
        for line in profile.circumstances() {
            say::note(&format_args!("note: {}: {line}", name.display()));
        }
    }
    Destination::of(args.output.as_ref()).write(|out| {
        if args.csv {
            csv::write(&timeline, &curves.names, &coarse, out)
        } else if args.svg {
            svg::write(&timeline, &curves.names, &coarse, &profile, out)
        } else if args.json {
            let names = (&curves.names[..], args.by);
            json::write(&timeline, names, &peaks, &coarse, &profile, out)
        } else {
            let fit: fn(&str, usize) -> String = match args.by {
                None | Some(By::Function | By::Line) => cut_function,
                Some(_) => cut_middle,
            };
            let at_peak = args.logs.at_peak();
            coarse.write(&profile, steps, out)?;
            write_text(&timeline, &curves.names, fit, &profile, at_peak, out)?;
            peaks::write(&peaks, at_peak, out)?;
            for line in profile.circumstances() {
                write_wrapped(&line, INDENT, stdout_width(), out)?;
            }
            Ok(())
        }
    })
}

/// When the curves begin: with the log, or with the oldest segment of one that rotates.
fn begins_at(profile: &Profile) -> u64 {
    let checkpoint = profile.run.checkpoint.as_ref();
    checkpoint.map_or(0, |checkpoint| checkpoint.time_ns)
}

/// The sites of a profile, or other groups.
#[derive(Default)]
struct Named {
    names: Vec<String>,
    /// The site or group that a row's blocks belong to.
    of_row: Vec<Option<usize>>,
}

impl Named {
    fn of(profile: &Profile, symbols: &Symbols, by: Option<By>) -> Named {
        match by {
            None => {
                let map = SiteMap::of(profile, symbols);
                let rows = profile.rows.iter();
                Named {
                    names: map.keys().iter().map(site_name).collect(),
                    of_row: rows.map(|row| map.own(row.stack)).collect(),
                }
            }
            Some(by) => {
                let map = GroupMap::of(profile, symbols, by);
                let rows = 0..map.parts();
                Named {
                    names: map.names().to_vec(),
                    of_row: rows.map(|row| Some(map.own(row))).collect(),
                }
            }
        }
    }

    /// Bytes by site, of those by row.
    fn sums(&self, of_rows: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.names.len()];
        for (group, bytes) in self.of_row.iter().zip(of_rows) {
            if let Some(group) = *group {
                sums[group] += bytes;
            }
        }
        sums
    }
}

/// The groups that have a curve of their own.
#[derive(Default)]
struct Curves {
    names: Vec<String>,
    /// The curve that a row's blocks belong to.
    of_row: Vec<Option<usize>>,
}

impl Curves {
    /// Those with the most at any of the highest peaks.
    fn of(named: &Named, heights: &Heights, most: usize) -> Curves {
        let all = &named.names;
        let mut sums = named.sums(&heights.rows_at_peak);
        for rows in &heights.rows_behind {
            for (most, sum) in sums.iter_mut().zip(named.sums(rows)) {
                *most = sum.max(*most);
            }
        }
        let mut largest: Vec<usize> = (0..all.len()).filter(|&i| sums[i] > 0.0).collect();
        largest.sort_by(|&a, &b| {
            sums[b]
                .total_cmp(&sums[a])
                .then_with(|| all[a].cmp(&all[b]))
        });
        largest.truncate(most);
        let mut curve_of = vec![None; all.len()];
        for (curve, &group) in largest.iter().enumerate() {
            curve_of[group] = Some(curve);
        }
        Curves {
            names: largest.iter().map(|&group| all[group].clone()).collect(),
            of_row: (named.of_row.iter())
                .map(|group| group.and_then(|group| curve_of[group]))
                .collect(),
        }
    }
}

/// `serve:12`.
fn site_name(key: &SiteKey) -> String {
    let line = key.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}{line}", key.function)
}

/// Where a remark goes on that is too wide.
const INDENT: usize = 4;

fn rate(timeline: &Timeline<f64>) -> Vec<f64> {
    let seconds = timeline.step_ns as f64 / 1e9;
    let steps = timeline.steps.iter();
    steps.map(|step| step.allocated / seconds).collect()
}

fn write_text(
    timeline: &Timeline<f64>,
    names: &[String],
    fit: fn(&str, usize) -> String,
    profile: &Profile,
    at_peak: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let steps = &timeline.steps;
    let mut line = |what: &str, values: &[f64], unit: &str| curve_line(what, values, unit, out);
    let highest: Vec<f64> = steps.iter().map(|step| step.highest).collect();
    if steps.iter().any(|step| step.highest_resident.is_some()) {
        let resident = steps
            .iter()
            .map(|step| step.highest_resident.unwrap_or(0) as f64);
        line("resident", &resident.collect::<Vec<_>>(), "")?;
    }
    line("in use", &highest, "")?;
    line("allocated", &rate(timeline), "/s")?;
    for (i, name) in names.iter().enumerate() {
        let values: Vec<f64> = steps.iter().map(|step| step.groups[i]).collect();
        let name = Printable(name).to_string();
        match stdout_width() {
            Some(width) => writeln!(out, "{}", fit(&name, width))?,
            None => writeln!(out, "{name}")?,
        }
        curve_line("", &values, "", out)?;
    }
    axis(
        begins_at(profile),
        profile.run.duration_ns,
        steps.len(),
        out,
    )?;
    if let Some(peak) = profile.peak.filter(|peak| peak.record > 0) {
        // The blocks in use before the oldest segment are unknown.
        let is_kept = !peak.is_gone;
        // Before all logs have their detail, only the peaks of single processes are known.
        let at_least = match profile.run.is_joined && peak.is_gone {
            true => "at least ",
            false => "",
        };
        // The peak of a part is another moment than that of all.
        let whose = match is_kept && profile.filtered.is_empty() {
            true => format!("; {at_peak} shows whose"),
            false => String::new(),
        };
        let line = format!(
            "peak at {:.6} s: {at_least}{} in use{whose}",
            peak.time_ns as f64 / 1e9,
            Bytes(peak.bytes.to_f64()),
        );
        write_wrapped(&line, INDENT, stdout_width(), out)?;
    }
    Ok(())
}

/// Writes a curve, with what it is of in front of it and the most behind it.
fn curve_line(what: &str, values: &[f64], unit: &str, out: &mut impl Write) -> io::Result<()> {
    let most = values.iter().copied().fold(0.0, f64::max);
    let curve = sparkline(values, most);
    writeln!(out, "{what:<12}{curve}  up to {}{unit}", Bytes(most))
}

/// Writes the begin and the end of the time below curves of so many steps.
fn axis(from_ns: u64, to_ns: u64, steps: usize, out: &mut impl Write) -> io::Result<()> {
    let begin = match from_ns {
        0 => "0".to_owned(),
        ns => format!("{:.3} s", ns as f64 / 1e9),
    };
    let end = format!("{:.3} s", to_ns as f64 / 1e9);
    let gap = steps.saturating_sub(begin.len() + end.len()).max(1);
    writeln!(out, "{:<12}{begin}{}{end}", "", " ".repeat(gap))
}

fn sparkline(values: &[f64], most: f64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |&value: &f64| {
        if value <= 0.0 || most <= 0.0 {
            return ' ';
        }
        BARS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_rises_with_its_values() {
        assert_eq!(sparkline(&[0.0, 0.1, 4.0, 8.0], 8.0), " ▁▄█");
        assert_eq!(sparkline(&[0.0], 0.0), " ");
    }
}
