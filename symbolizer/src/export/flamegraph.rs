//! A flame graph: the folded stacks as a picture (SVG) that a browser lets one zoom and search.

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Palette};
use inferno::flamegraph::{self, Direction};

use crate::export::{Options, folded};
use crate::metric::Metric;
use crate::printable::Printable;
use crate::profile::{Precision, Profile};
use crate::quantity::{Bytes, Count};
use crate::symbols::Symbols;

/// Draws the metric that was chosen.
///
/// # Errors
/// Those of `out`, and what inferno finds wrong with the stacks.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let stacks = folded::stacks(profile, symbols, options);
    let lines: Vec<String> = if stacks.is_empty() {
        // inferno refuses to draw nothing; nothing is an answer, too.
        vec![format!("({} is 0) 1", options.metric)]
    } else {
        stacks
            .iter()
            .map(|(stack, number)| format!("{stack} {number}"))
            .collect()
    };

    let mut look = flamegraph::Options::default();
    look.title = match options.title.as_str() {
        "" => title(profile, options.metric),
        title => Printable(title).to_string(),
    };
    look.subtitle = Some(subtitle(profile, options.metric));
    look.count_name = options.metric.unit().into();
    look.name_type = "Function:".into();
    look.colors = Palette::Basic(BasicPalette::Mem);
    look.bgcolors = Some(BackgroundColor::Flat((255, 255, 255).into()));
    look.direction = Direction::Straight;
    look.hash = true;
    look.deterministic = true;
    look.font_type = "sans-serif".into();
    look.font_size = 12;
    look.frame_height = 17;
    look.image_width = Some(1400);
    // In percent: one in a thousand is a pixel or so, which no eye can use; left in, a deep thin
    // stack would make the picture many times as high.
    look.min_width = 0.1;
    flamegraph::from_lines(&mut look, lines.iter().map(String::as_str), out)
        .map_err(io::Error::other)
}

fn title(profile: &Profile, metric: Metric) -> String {
    let name = profile.run.program.rsplit('/').next().unwrap_or_default();
    let name = if name.is_empty() { "heap" } else { name };
    let what = match metric {
        Metric::InUseBytes => "memory in use",
        Metric::InUseObjects => "blocks in use",
        Metric::AllocatedBytes => "memory allocated",
        Metric::AllocatedObjects => "blocks allocated",
    };
    format!("{}: {what}", Printable(name))
}

fn subtitle(profile: &Profile, metric: Metric) -> String {
    let number = profile.numbers().get(metric);
    let shown = |value: f64| {
        if metric.is_bytes() {
            Bytes(value).to_string()
        } else {
            Count(value.round() as u64).to_string()
        }
    };
    match profile.error(metric) {
        _ if profile.precision() == Precision::Exact => format!("{} (exact)", shown(number as f64)),
        Some(error) => format!(
            "{} ± {} (standard error)",
            shown(number as f64),
            shown(error)
        ),
        None => shown(number as f64),
    }
}
