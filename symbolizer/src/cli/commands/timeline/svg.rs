//! `heapprof timeline --svg`: the curves as a picture.

use std::io::{self, Write};

use heapprof_symbolizer::{Bytes, CoarseRow, Printable, Profile, Timeline, cut_middle};

use super::coarse::Coarse;
use super::{begins_at, rate};

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

/// Its width, and what is left and right of the charts for their scales.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 100.0;
const RIGHT: f64 = 20.0;
/// The title of a chart and the words behind it that mark the coarse time.
const LEGEND_OF_COARSE: f64 = 360.0;
/// As many letters of a legend as are sure to stay within the picture.
const LEGEND: usize = 110;

/// Writes the picture: in use above, with a curve for each of `names`, and the rate of allocation
/// below.
pub(super) fn write(
    timeline: &Timeline<f64>,
    names: &[String],
    coarse: &Coarse,
    profile: &Profile,
    out: &mut impl Write,
) -> io::Result<()> {
    // A single curve needs no legend.
    let legend: Vec<&str> = match names.is_empty() {
        true => Vec::new(),
        false => ["all, highest of each step"]
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .collect(),
    };
    let circumstances = profile.circumstances();
    // The parts below them move down.
    let room = 14.0 * circumstances.len() as f64;
    let total_height = 470.0 + room + 20.0 * legend.len() as f64;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total_height}\" \
         width=\"{WIDTH}\" height=\"{total_height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}: memory over time</text>",
        escaped(profile.run.name())
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
    let steps = &timeline.steps;
    let mut in_use = vec![steps.iter().map(|step| step.highest).collect()];
    in_use.extend((0..names.len()).map(|i| steps.iter().map(|step| step.groups[i]).collect()));
    let picture = Picture::of(timeline, coarse, profile);
    picture.chart(
        &Chart {
            top: 60.0,
            height: 220.0,
            title: "in use",
            unit: "",
            curves: in_use,
            coarse: coarse.rows(),
        },
        out,
    )?;
    picture.chart(
        &Chart {
            top: 330.0,
            height: 100.0,
            title: "allocated per second",
            unit: "/s",
            curves: vec![rate(timeline)],
            coarse: &[],
        },
        out,
    )?;
    write_legend(&legend, out)?;
    writeln!(out, "</g>\n</svg>")
}

fn write_legend(legend: &[&str], out: &mut impl Write) -> io::Result<()> {
    for (i, name) in legend.iter().enumerate() {
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
    Ok(())
}

/// A chart: curves over time, one value for each step, in a part of the picture.
struct Chart<'a> {
    /// The upper edge of the space for the curves, in the picture's unit.
    top: f64,
    height: f64,
    title: &'a str,
    /// The text behind "bytes".
    unit: &'a str,
    /// The first is filled.
    curves: Vec<Vec<f64>>,
    /// The moments before the time in detail.
    coarse: &'a [CoarseRow],
}

/// What all charts share: the axis of time.
struct Picture<'a> {
    timeline: &'a Timeline<f64>,
    profile: &'a Profile,
    begin_s: f64,
    /// When the steps begin: later, if there are coarse moments.
    detail_s: f64,
    end_s: f64,
}

impl Picture<'_> {
    fn of<'a>(timeline: &'a Timeline<f64>, coarse: &Coarse, profile: &'a Profile) -> Picture<'a> {
        let detail_s = begins_at(profile) as f64 / 1e9;
        Picture {
            timeline,
            profile,
            begin_s: match coarse.rows().is_empty() {
                true => detail_s,
                false => 0.0,
            },
            detail_s,
            end_s: profile.run.duration_ns as f64 / 1e9,
        }
    }

    /// Where a time is.
    fn x(&self, s: f64) -> f64 {
        let shown_s = self.end_s - self.begin_s;
        let part = match shown_s > 0.0 {
            true => (s - self.begin_s) / shown_s,
            false => 0.0,
        };
        LEFT + (WIDTH - LEFT - RIGHT) * part
    }

    fn chart(&self, chart: &Chart<'_>, out: &mut impl Write) -> io::Result<()> {
        let (top, height, title) = (chart.top, chart.height, chart.title);
        let coarse = chart.coarse.iter().map(|row| row.highest);
        let values = chart.curves.iter().flatten().copied().chain(coarse);
        let most = values.fold(0.0, f64::max);
        let limit = nice(most);
        let y = |value: f64| top + height - height * value / limit;
        writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\">{title}</text>",
            top - 8.0
        )?;
        self.coarse_time(chart, out)?;
        self.stops(chart, out)?;
        for i in 0..=4 {
            let value = limit * f64::from(i) / 4.0;
            writeln!(
                out,
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y(value) + 4.0,
                Bytes(value),
                chart.unit,
                y = y(value)
            )?;
        }
        for (i, curve) in chart.curves.iter().enumerate() {
            let mut path = format!("M{:.1} {:.1}", self.x(self.detail_s), y(0.0));
            for (value, step) in curve.iter().zip(&self.timeline.steps) {
                let until = (step.end_ns as f64 / 1e9).min(self.end_s);
                path.push_str(&format!("V{:.1}H{:.1}", y(*value), self.x(until)));
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
        if !chart.coarse.is_empty() {
            let mut path = format!("M{:.1} {:.1}", self.x(self.begin_s), y(0.0));
            for row in chart.coarse {
                let until = self.x(row.time_ns as f64 / 1e9);
                path.push_str(&format!("V{:.1}H{until:.1}", y(row.highest)));
            }
            writeln!(
                out,
                "<path class=\"coarse\" d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"6 3\" stroke-width=\"1.5\"/>",
                COLOURS[0]
            )?;
        }
        for (s, label) in ticks(self.begin_s, self.end_s) {
            writeln!(
                out,
                "<path d=\"M{x:.1} {:.1}v4\" stroke=\"#999\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{label}</text>",
                top + height,
                top + height + 18.0,
                x = self.x(s),
            )?;
        }
        Ok(())
    }

    /// Light grey: only moments are known, and no rate.
    fn coarse_time(&self, chart: &Chart<'_>, out: &mut impl Write) -> io::Result<()> {
        if self.begin_s == self.detail_s {
            return Ok(());
        }
        let (from, to) = (self.x(self.begin_s), self.x(self.detail_s));
        writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"#f7f7f7\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\" font-size=\"11\">coarse: {} between moments</text>",
            chart.top,
            to - from,
            chart.height,
            to.max(LEFT + LEGEND_OF_COARSE),
            chart.top - 8.0,
            match self.profile.run.is_joined {
                true => "no more",
                false => "the highest",
            }
        )
    }

    /// Grey: nothing was recorded.
    fn stops(&self, chart: &Chart<'_>, out: &mut impl Write) -> io::Result<()> {
        let (begin, end) = (begins_at(self.profile), self.profile.run.duration_ns);
        for (from_ns, to_ns) in self.profile.run.stops(begin, end) {
            let (from, to) = (self.x(from_ns as f64 / 1e9), self.x(to_ns as f64 / 1e9));
            writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"#eee\"/>",
                chart.top,
                to - from,
                chart.height
            )?;
        }
        Ok(())
    }
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
