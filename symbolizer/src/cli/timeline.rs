//! `heapprof timeline`: in use and allocation rate over time.

mod json;

use std::io::{self, Write};
use std::path::PathBuf;

use heapprof_symbolizer::export::csv::cell;
use heapprof_symbolizer::{
    Bytes, Input, Printable, Profile, SiteMap, Timeline, ViewError, profile_of_log, stacks_at_peak,
    timeline_of_log,
};

use crate::cli::failure::Failure;
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::quantity::count;
use crate::cli::say;
use crate::cli::source::{self, Places};
use crate::cli::table::{cut_middle, stdout_width};

/// Show bytes in use and the rate of allocation over time
///
/// A line of text for each curve; --csv, --svg and --json for other programs. --top K adds the bytes in use
/// of the K sites that held the most when the whole program did.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A record log (.heaplog)
    #[arg(value_name = "LOG")]
    file: PathBuf,

    /// Curves of the K sites with the most memory at the peak
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = count, allow_negative_numbers = true)]
    top: usize,

    /// Steps of time, up to 100000 [default: as wide as the terminal, 200 for --csv, --svg, --json]
    #[arg(long, value_name = "N", value_parser = number_of_steps, allow_negative_numbers = true)]
    steps: Option<usize>,

    /// Comma-separated values
    #[arg(long, conflicts_with = "svg")]
    csv: bool,

    /// A picture (SVG)
    #[arg(long)]
    svg: bool,

    /// JSON
    #[arg(long, conflicts_with_all = ["csv", "svg"])]
    json: bool,

    /// Where to write it; - is standard output [default: -]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    #[command(flatten)]
    places: Places,
}

/// Most steps: beyond, they would be finer than any screen, and memory would be needed for them.
const MOST_STEPS: usize = 100_000;

fn number_of_steps(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MOST_STEPS).contains(n));
    number.ok_or_else(|| format!("a whole number from 1 to {MOST_STEPS}"))
}

/// What stands beside a curve in text: `in use      `, and `  up to 1023.9 MiB/s`.
const BESIDE: usize = 32;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let input = Input::open(&args.file)?;
    let log = input.log()?;
    let failed = |error| input.view_error(ViewError::Read(error));
    let progress = Progress::bytes("reading", input.len());
    let profile = profile_of_log(log, |offset| progress.at(offset));
    progress.finish();
    let profile = profile.map_err(failed)?;
    source::note_what_is_kept(&args.file, &profile);
    source::note_what_is_wrong(&args.file, &profile.account);
    let (names, group_of) = match args.top {
        0 => (Vec::new(), Vec::new()),
        _ => {
            let progress = Progress::bytes("finding the peak", input.len());
            let held = stacks_at_peak(log, &profile, |offset| progress.at(offset));
            progress.finish();
            groups(args, &profile, &held.map_err(failed)?)?
        }
    };
    let wide = stdout_width().unwrap_or(100).saturating_sub(BESIDE).max(8);
    let steps = match args.steps {
        Some(steps) => steps,
        None if args.csv || args.svg || args.json => 200,
        None => wide,
    };
    let progress = Progress::bytes("drawing", input.len());
    let timeline = timeline_of_log(
        log,
        &profile,
        steps,
        names.len(),
        |stack| group_of.get(stack as usize).copied().flatten(),
        |offset| progress.at(offset),
    );
    progress.finish();
    let timeline = timeline.map_err(failed)?;
    if args.csv {
        // The others have a place for it.
        for line in profile.circumstances() {
            say::note(&format_args!("note: {}: {line}", args.file.display()));
        }
    }
    output::to(output::file(args.output.as_ref()), |out| {
        if args.csv {
            write_csv(&timeline, &names, out)
        } else if args.svg {
            write_svg(&timeline, &names, &profile, out)
        } else if args.json {
            json::write(&timeline, &names, &profile, out)
        } else {
            write_text(&timeline, &names, &profile, out)
        }
    })
}

/// When the curves begin: with the log, or with the oldest segment of one that rotates.
fn begins_at(profile: &Profile) -> u64 {
    let checkpoint = profile.run.checkpoint.as_ref();
    checkpoint.map_or(0, |checkpoint| checkpoint.time_ns)
}

/// Names of sites, and of each stack which of them it belongs to.
type Groups = (Vec<String>, Vec<Option<usize>>);

/// Names of the sites with the most at the peak, and which stack is whose.
fn groups(args: &Args, profile: &Profile, of_stacks: &[f64]) -> Result<Groups, Failure> {
    let symbols = args.places.symbols(&args.file, profile)?;
    let map = SiteMap::of(profile, &symbols);
    let mut held = vec![0.0; map.keys().len()];
    for (stack, bytes) in of_stacks.iter().enumerate() {
        if let Some(site) = map.own(stack as u32) {
            held[site] += bytes;
        }
    }
    let mut sites: Vec<usize> = (0..held.len()).filter(|&site| held[site] > 0.0).collect();
    sites.sort_by(|&a, &b| {
        held[b]
            .total_cmp(&held[a])
            .then_with(|| map.keys()[a].cmp(&map.keys()[b]))
    });
    sites.truncate(args.top);
    let name = |&site: &usize| {
        let key = &map.keys()[site];
        let line = key.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}", key.function)
    };
    let group = |stack: usize| {
        let own = map.own(stack as u32)?;
        sites.iter().position(|&site| site == own)
    };
    Ok((
        sites.iter().map(name).collect(),
        (0..profile.stacks.len()).map(group).collect(),
    ))
}

fn rate(timeline: &Timeline) -> Vec<f64> {
    let seconds = timeline.step_ns as f64 / 1e9;
    let steps = timeline.steps.iter();
    steps.map(|step| step.allocated / seconds).collect()
}

fn write_text(
    timeline: &Timeline,
    names: &[String],
    profile: &Profile,
    out: &mut impl Write,
) -> io::Result<()> {
    let steps = &timeline.steps;
    let mut line = |what: &str, values: &[f64], unit: &str| -> io::Result<()> {
        let most = values.iter().copied().fold(0.0, f64::max);
        writeln!(
            out,
            "{:<12}{}  up to {}{unit}",
            what,
            sparkline(values, most),
            Bytes(most)
        )
    };
    let highest: Vec<f64> = steps.iter().map(|step| step.highest).collect();
    line("in use", &highest, "")?;
    line("allocated", &rate(timeline), "/s")?;
    for (i, name) in names.iter().enumerate() {
        let values: Vec<f64> = steps.iter().map(|step| step.groups[i]).collect();
        let name = Printable(name).to_string();
        match stdout_width() {
            // Its end is the line.
            Some(width) => writeln!(out, "{}", cut_middle(&name, width))?,
            None => writeln!(out, "{name}")?,
        }
        let most = values.iter().copied().fold(0.0, f64::max);
        writeln!(
            out,
            "{:<12}{}  up to {}",
            "",
            sparkline(&values, most),
            Bytes(most)
        )?;
    }
    let end = profile.run.duration_ns as f64 / 1e9;
    let begin = match begins_at(profile) {
        0 => "0".to_owned(),
        ns => format!("{:.3} s", ns as f64 / 1e9),
    };
    let end = format!("{end:.3} s");
    let gap = steps.len().saturating_sub(begin.len() + end.len()).max(1);
    writeln!(out, "{:<12}{begin}{}{end}", "", " ".repeat(gap))?;
    if let Some(peak) = profile.peak.filter(|peak| peak.record > 0) {
        // What was in use before the oldest segment nobody can tell any more.
        let is_kept = !peak.is_gone;
        writeln!(
            out,
            "peak at {:.6} s: {} in use{}",
            peak.time_ns as f64 / 1e9,
            Bytes(peak.bytes.to_f64()),
            if is_kept {
                "; `heapprof top --at peak` shows whose"
            } else {
                ""
            }
        )?;
    }
    for line in profile.circumstances() {
        writeln!(out, "{line}")?;
    }
    Ok(())
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

fn write_csv(timeline: &Timeline, names: &[String], out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "seconds,in_use_bytes,in_use_error,highest_in_use_bytes,allocated_bytes,allocated_objects"
    )?;
    for name in names {
        write!(out, ",{}", cell(name))?;
    }
    writeln!(out)?;
    for step in &timeline.steps {
        write!(
            out,
            "{:.6},{:.0},{:.0},{:.0},{:.0},{:.0}",
            step.end_ns as f64 / 1e9,
            step.in_use,
            step.in_use_error,
            step.highest,
            step.allocated,
            step.allocated_objects
        )?;
        for value in &step.groups {
            write!(out, ",{value:.0}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Paul Tol's "bright" scheme, which colour-blind people can tell apart; the first is the whole's.
const COLOURS: [&str; 7] = [
    "#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB",
];

/// How curves of one colour are told apart.
const DASHES: [&str; 4] = ["none", "7 3", "2 2", "9 2 2 2"];

/// Colour and dashes of a curve, as attributes. Only the whole's has the first colour.
fn stroke(curve: usize) -> String {
    let (round, colour) = match curve.checked_sub(1) {
        None => (0, 0),
        Some(site) => (site / (COLOURS.len() - 1), 1 + site % (COLOURS.len() - 1)),
    };
    let dashes = DASHES[round % DASHES.len()];
    format!(
        "stroke=\"{}\" stroke-dasharray=\"{dashes}\"",
        COLOURS[colour]
    )
}

fn write_svg(
    timeline: &Timeline,
    names: &[String],
    profile: &Profile,
    out: &mut impl Write,
) -> io::Result<()> {
    const WIDTH: f64 = 960.0;
    const LEFT: f64 = 100.0;
    const RIGHT: f64 = 20.0;
    // As many letters of a legend as are sure to stay within the picture.
    const LEGEND: usize = 110;
    // What the first curve is needs no words where it is alone.
    let legend: Vec<&str> = match names.is_empty() {
        true => Vec::new(),
        false => ["all, highest of each step"]
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .collect(),
    };
    let circumstances = profile.circumstances();
    // What is below them makes room.
    let room = 14.0 * circumstances.len() as f64;
    let total_height = 470.0 + room + 20.0 * legend.len() as f64;
    let begin_s = begins_at(profile) as f64 / 1e9;
    let end_s = profile.run.duration_ns as f64 / 1e9;
    let shown_s = end_s - begin_s;
    let x = |s: f64| {
        let part = if shown_s > 0.0 {
            (s - begin_s) / shown_s
        } else {
            0.0
        };
        LEFT + (WIDTH - LEFT - RIGHT) * part
    };
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total_height}\" \
         width=\"{WIDTH}\" height=\"{total_height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}: memory over time</text>",
        escaped(profile.run.program.rsplit('/').next().unwrap_or(""))
    )?;
    for (i, line) in circumstances.iter().enumerate() {
        writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{}\" fill=\"#555\" font-size=\"11\">{}</text>",
            41 + 14 * i,
            escaped(line)
        )?;
    }
    writeln!(out, "<g transform=\"translate(0 {room})\">")?;
    let highest: Vec<f64> = timeline.steps.iter().map(|step| step.highest).collect();
    let mut chart = |top: f64, height: f64, title: &str, unit: &str, curves: &[Vec<f64>]| {
        let most = curves.iter().flatten().copied().fold(0.0, f64::max);
        let limit = nice(most);
        let y = |value: f64| top + height - height * value / limit;
        writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\">{title}</text>",
            top - 8.0
        )?;
        // Grey: nothing was recorded.
        for (from_ns, to_ns) in profile
            .run
            .stops(begins_at(profile), profile.run.duration_ns)
        {
            let (from, to) = (x(from_ns as f64 / 1e9), x(to_ns as f64 / 1e9));
            writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\" fill=\"#eee\"/>",
                to - from
            )?;
        }
        for i in 0..=4 {
            let value = limit * f64::from(i) / 4.0;
            writeln!(
                out,
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}{unit}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y(value) + 4.0,
                Bytes(value),
                y = y(value)
            )?;
        }
        for (i, curve) in curves.iter().enumerate() {
            let mut path = format!("M{:.1} {:.1}", x(begin_s), y(0.0));
            for (value, step) in curve.iter().zip(&timeline.steps) {
                let until = (step.end_ns as f64 / 1e9).min(end_s);
                path.push_str(&format!("V{:.1}H{:.1}", y(*value), x(until)));
            }
            if i == 0 {
                writeln!(
                    out,
                    "<path d=\"{path}V{:.1}Z\" fill=\"{}\" fill-opacity=\"0.15\"/>",
                    y(0.0),
                    COLOURS[0]
                )?;
            }
            writeln!(
                out,
                "<path d=\"{path}\" fill=\"none\" {} stroke-width=\"1.5\"/>",
                stroke(i)
            )?;
        }
        for (s, label) in ticks(begin_s, end_s) {
            writeln!(
                out,
                "<path d=\"M{x:.1} {:.1}v4\" stroke=\"#999\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{label}</text>",
                top + height,
                top + height + 18.0,
                x = x(s),
            )?;
        }
        io::Result::Ok(())
    };
    let mut curves = vec![highest];
    for i in 0..names.len() {
        curves.push(timeline.steps.iter().map(|step| step.groups[i]).collect());
    }
    chart(60.0, 220.0, "in use", "", &curves)?;
    chart(
        330.0,
        100.0,
        "allocated per second",
        "/s",
        &[rate(timeline)],
    )?;
    for (i, name) in legend.into_iter().enumerate() {
        let y = 478.0 + 20.0 * i as f64;
        writeln!(
            out,
            "<path d=\"M{LEFT} {:.1}h24\" {} stroke-width=\"4\"/><text x=\"{:.1}\" y=\"{y:.1}\"><title>{}</title>{}</text>",
            y - 4.0,
            stroke(i),
            LEFT + 30.0,
            escaped(name),
            escaped(&cut_middle(&Printable(name).to_string(), LEGEND))
        )?;
    }
    writeln!(out, "</g>\n</svg>")
}

/// Round times between two, not more than fits, with what is written at them.
fn ticks(begin_s: f64, end_s: f64) -> Vec<(f64, String)> {
    const MOST: f64 = 8.0;
    let (unit, in_unit) = match end_s - begin_s {
        s if s >= 3.0 * 86_400.0 => ("d", 86_400.0),
        s if s >= 3.0 * 3600.0 => ("h", 3600.0),
        s if s >= 180.0 => ("min", 60.0),
        s if s >= 0.5 || begin_s > 0.0 => ("s", 1.0),
        _ => ("ms", 1e-3),
    };
    let (begin, end) = (begin_s / in_unit, end_s / in_unit);
    let shown = end - begin;
    if shown <= 0.0 {
        return vec![(begin_s, format!("{begin}"))];
    }
    let power = 10f64.powf((shown / MOST).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| shown / step <= MOST);
    let step = step.unwrap_or(10.0 * power);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    // A tick that only rounding puts beside the end stays.
    let (first, last) = ((begin / step - 1e-9).ceil(), (end / step + 1e-9).floor());
    (first as u64..=last as u64)
        .map(|i| {
            let time = i as f64 * step;
            (time * in_unit, format!("{time:.decimals$} {unit}"))
        })
        .collect()
}

/// The least of 1, 1.5, 2, 3, 4, 6, 8, 12 … of a binary unit that is not below.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = value.log2().floor().exp2();
    [1.0, 1.5, 2.0]
        .into_iter()
        .map(|step| step * power)
        .find(|&limit| limit >= value)
        .unwrap_or(2.0 * power)
}

fn escaped(text: &str) -> String {
    Printable(text)
        .to_string()
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_rises_with_its_values() {
        assert_eq!(sparkline(&[0.0, 0.1, 4.0, 8.0], 8.0), " ▁▄█");
        assert_eq!(sparkline(&[0.0], 0.0), " ");
    }

    #[test]
    fn ticks_are_round_and_not_too_many() {
        let between = |begin_s: f64, end_s: f64| -> Vec<String> {
            ticks(begin_s, end_s).into_iter().map(|t| t.1).collect()
        };
        let texts = |end_s: f64| between(0.0, end_s);
        assert_eq!(
            texts(1.485),
            [
                "0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s", "1.2 s", "1.4 s"
            ]
        );
        assert_eq!(texts(0.018).last().unwrap(), "15 ms");
        assert_eq!(
            texts(7.0 * 60.0),
            [
                "0 min", "1 min", "2 min", "3 min", "4 min", "5 min", "6 min", "7 min"
            ]
        );
        assert_eq!(texts(90.0 * 86_400.0).last().unwrap(), "80 d");
        assert_eq!(texts(0.0), ["0"]);
        assert_eq!(
            between(9.31, 9.7),
            [
                "9.35 s", "9.40 s", "9.45 s", "9.50 s", "9.55 s", "9.60 s", "9.65 s", "9.70 s"
            ]
        );
        assert_eq!(between(1000.0, 1030.0).first().unwrap(), "1000 s");
    }

    #[test]
    fn only_the_whole_has_its_colour_and_no_two_of_many_curves_are_alike() {
        let strokes: std::collections::BTreeSet<String> = (0..25).map(stroke).collect();
        assert_eq!(strokes.len(), 25);
        let wholes = strokes.iter().filter(|stroke| stroke.contains(COLOURS[0]));
        assert_eq!(wholes.count(), 1);
    }

    #[test]
    fn limits_are_round_and_above() {
        for (value, limit) in [(1000.0, 1024.0), (1025.0, 1536.0), (0.0, 1.0)] {
            assert_eq!(nice(value), limit);
        }
    }
}
