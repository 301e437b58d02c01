//! Difference graph: a flame graph of what changed between two profiles, by where it was allocated.
//!
//! ```text
//!   width    how much changed there, up or down: growth and shrinkage do not cancel
//!   colour   red: grew   blue: shrank   grey: noise may have made it   pale: unknown
//!   text     function [+1.5 MiB real]: the sum of all above it
//! ```
//!
//! The colours are those of ColorBrewer's red-blue scale, which colour-blind people can tell apart.
//! The usual differential flame graph (the second profile's widths, coloured by a frame's own
//! change) shows nothing of what is gone, and paints sampling noise.
//! [`write_folded`](DiffGraph::write_folded) writes the two numbers of each stack for tools that
//! draw such graphs.

use std::io::{self, Write};

use inferno::flamegraph::color::{Color, PaletteMap};

use crate::model::change::{Change, Verdict};
use crate::model::measure::Measure;
use crate::model::printable::Printable;
use crate::naming::flame;
use crate::naming::paths::Paths;

/// See the module's text.
#[derive(Debug)]
pub struct DiffGraph<'a> {
    stacks: &'a Paths<Change>,
    measure: Measure,
}

impl<'a> DiffGraph<'a> {
    /// Creates the graph of the stacks of a difference, as
    /// [`Differences::by_stack`](crate::Differences::by_stack) gives them.
    pub fn of(stacks: &'a Paths<Change>, measure: Measure) -> Self {
        DiffGraph { stacks, measure }
    }

    /// Writes `stack before after` lines, for difffolded.pl's readers. Below zero is zero.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_folded(&self, out: &mut impl Write) -> io::Result<()> {
        let whole = |value: f64| (value * self.measure.in_unit()).round().max(0.0);
        for (stack, change) in self.stacks.lines() {
            let (before, after) = (whole(change.before), whole(change.after));
            if before > 0.0 || after > 0.0 {
                writeln!(out, "{stack} {before:.0} {after:.0}")?;
            }
        }
        Ok(())
    }

    /// Writes the picture (SVG).
    ///
    /// # Errors
    /// Those of `out`, and what inferno finds wrong with the stacks.
    pub fn write_svg(&self, title: &str, out: &mut impl Write) -> io::Result<()> {
        let mut total = Change::default();
        for change in self.stacks.values() {
            total.merge(change);
        }
        let mut palette = PaletteMap::default();
        // The frame below all others has no name of its own.
        palette.insert("", colour(&total));
        palette.insert("all", colour(&total));
        let width = |change: &Change| {
            let width = change.difference().abs() * self.measure.in_unit();
            width.round() as u64
        };
        let mut lines = flame::lines(self.stacks, width, |function, stacks| {
            let mut all = Change::default();
            for change in self.stacks.values_in(stacks) {
                all.merge(change);
            }
            let label = format!("{function} [{}]", self.describe(&all));
            palette.insert(&label, colour(&all));
            label
        });
        if lines.is_empty() {
            let label = "nothing differs";
            palette.insert(label, GREY);
            lines.push(format!("{label} 1"));
        }

        let mut look = flame::look(); // its colours are for what is not in the map: nothing
        look.title = Printable(title).to_string();
        look.subtitle = Some(format!(
            "{}: {}. Width: how much changed. Red grew, blue shrank, grey may be noise.",
            self.measure,
            self.describe(&total)
        ));
        look.count_name = format!("{} of change", self.measure.sample_type().1);
        look.palette_map = Some(&mut palette);
        flame::draw(&mut look, &lines, out)
    }

    /// `+1.5 MiB real`.
    fn describe(&self, change: &Change) -> String {
        let difference = change.difference();
        let sign = if difference < 0.0 { "-" } else { "+" };
        format!(
            "{sign}{} {}",
            self.measure.quantity(difference.abs()),
            change.verdict().name()
        )
    }
}

const GREY: Color = Color {
    r: 217,
    g: 217,
    b: 217,
};

fn colour(change: &Change) -> Color {
    let rgb = |r, g, b| Color { r, g, b };
    let grew = change.difference() > 0.0;
    match change.verdict() {
        _ if change.difference() == 0.0 => GREY,
        Verdict::Noise | Verdict::Small | Verdict::Past => GREY,
        Verdict::Exact | Verdict::Real | Verdict::Late if grew => rgb(239, 138, 98),
        Verdict::Exact | Verdict::Real | Verdict::Late => rgb(103, 169, 207),
        Verdict::Unknown if grew => rgb(253, 219, 199),
        Verdict::Unknown => rgb(209, 229, 240),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::amount::Amount;

    fn change(before: (f64, f64), after: (f64, f64)) -> Change {
        let amount = |(value, error): (f64, f64)| Amount {
            value,
            variance: error * error,
            samples: 1,
            ..Amount::default()
        };
        Change {
            before: before.0,
            after: after.0,
            plus: amount(after),
            minus: amount(before),
            ..Change::default()
        }
    }

    /// ```text
    ///   main ─┬─ grows    +9000 ± 100   real
    ///         ├─ shrinks  -5000 ± 100   real
    ///         └─ wavers   +1000 ± 900   noise
    /// ```
    #[test]
    fn colours_are_by_sign_and_noise_is_grey() {
        let stacks = Paths::of_texts(vec![
            ("main;grows", change((0.0, 0.0), (9000.0, 100.0))),
            ("main;shrinks", change((5000.0, 100.0), (0.0, 0.0))),
            ("main;wavers", change((3000.0, 640.0), (4000.0, 640.0))),
        ]);
        let mut svg = Vec::new();
        let graph = DiffGraph::of(&stacks, Measure::default());
        graph.write_svg("a difference", &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let fill = |function: &str| {
            let title = svg.find(&format!("<title>{function} [")).expect(function);
            let rest = &svg[title..];
            let fill = &rest[rest.find("fill=\"").unwrap() + 6..];
            (
                fill[..fill.find('"').unwrap()].to_owned(),
                rest[7..rest.find('(').unwrap()].trim().to_owned(),
            )
        };
        let of = |rgb: &str, told: &str| (rgb.to_owned(), told.to_owned());
        assert_eq!(
            fill("grows"),
            of("rgb(239,138,98)", "grows [+8.8 KiB real]")
        );
        assert_eq!(
            fill("shrinks"),
            of("rgb(103,169,207)", "shrinks [-4.9 KiB real]")
        );
        assert_eq!(
            fill("wavers"),
            of("rgb(217,217,217)", "wavers [+1000 B noise]")
        );
        let fills = svg
            .match_indices("fill=\"rgb(")
            .map(|(at, _)| &svg[at + 6..]);
        let fills: BTreeSet<&str> = fills.map(|rest| &rest[..rest.find('"').unwrap()]).collect();
        let ours = [
            "rgb(0,0,0)",
            "rgb(103,169,207)",
            "rgb(217,217,217)",
            "rgb(239,138,98)",
        ];
        assert_eq!(
            fills,
            BTreeSet::from(ours),
            "text, and no colour that means nothing"
        );
        // 9000 - 5000 + 1000 ± 920.
        assert_eq!(fill("main"), of("rgb(239,138,98)", "main [+4.9 KiB real]"));

        let mut folded = Vec::new();
        graph.write_folded(&mut folded).unwrap();
        let text = String::from_utf8(folded).unwrap();
        assert_eq!(
            text,
            "main;grows 0 9000\nmain;shrinks 5000 0\nmain;wavers 3000 4000\n"
        );
    }
}
