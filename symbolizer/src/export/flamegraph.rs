//! Flame graph: folded stacks as a picture (SVG) that can be zoomed and searched in a browser.

use std::io::{self, Write};

use crate::analysis::completeness::Recorded;
use crate::export::facts::{has_no_samples, in_a_line};
use crate::export::{Options, folded};
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::precision::Precision;
use crate::model::printable::Printable;
use crate::model::profile::Profile;
use crate::model::quantity::Bytes;
use crate::naming::flame;
use crate::naming::symbols::Symbols;

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
    let paths = folded::paths(profile, symbols, options);
    let mut lines = flame::lines(&paths, |&number| number, |name, _| name.to_owned());
    if lines.is_empty() {
        // inferno refuses to draw nothing; nothing is an answer, too.
        lines = vec![format!("({} is 0) 1", options.metric)];
    }
    let mut look = flame::look();
    look.title = match options.title.as_str() {
        "" => title(profile, options.metric),
        title => Printable(title).to_string(),
    };
    look.subtitle = Some(subtitle(profile, options) + &in_a_line(profile));
    look.count_name = match options.metric {
        Measure::Basic(metric) => metric.unit(),
        measure => measure.sample_type().1,
    }
    .into();
    look.hash = true;
    flame::draw(&mut look, &lines, out)
}

fn title(profile: &Profile, measure: Measure) -> String {
    let name = profile.run.name();
    let name = if name.is_empty() { "heap" } else { name };
    let what = match measure {
        Measure::Basic(Metric::InUseBytes) => "memory in use",
        Measure::Basic(Metric::InUseObjects) => "blocks in use",
        Measure::Basic(Metric::AllocatedBytes) => "memory allocated",
        Measure::Basic(Metric::AllocatedObjects) => "blocks allocated",
        Measure::PeakBytes => "memory in use at the peak",
        Measure::PeakObjects => "blocks in use at the peak",
        Measure::TemporaryBytes => "memory freed soon after it was allocated",
        Measure::TemporaryObjects => "blocks freed soon after they were allocated",
        Measure::HeaptimeBytes => "memory in use times time",
        Measure::HeaptimeObjects => "blocks in use times time",
        Measure::Slack => "memory beyond what was requested",
        Measure::Resident => "resident memory of blocks in use",
        Measure::Swapped => "blocks in use that are swapped out",
        Measure::Untouched => "memory of blocks in use that was never touched",
        Measure::Pinned => "free memory that blocks in use pin",
        Measure::GrowthBytes => "growth of memory in use (only what grew)",
        Measure::GrowthObjects => "growth of blocks in use (only what grew)",
        Measure::Mapped => "mapped memory",
        Measure::MappedResident => "resident memory of mappings",
        Measure::Lifetime => "lifetimes",
    };
    format!("{}: {what}", Printable(name))
}

fn subtitle(profile: &Profile, options: &Options) -> String {
    let measure = options.metric;
    let (value, error) = match measure {
        Measure::Basic(metric) => (profile.numbers().get(metric) as f64, profile.error(metric)),
        _ => {
            let all = measure.of_all(profile);
            (all.value, Some(all.error()))
        }
    };
    let shown = |value: f64| measure.quantity(value);
    let bound = profile.unseen_bytes(options.confidence);
    let is_exact = profile.precision() == Precision::Exact;
    match error {
        _ if has_no_samples(profile, measure) => format!(
            "no samples: blocks of less than {} in all ({} % confidence)",
            Bytes(bound.unwrap_or(f64::INFINITY)),
            options.confidence.percent()
        ),
        _ if is_exact && profile.recorded() == Recorded::InParts => {
            format!("{}, parts of the record are missing", shown(value))
        }
        _ if is_exact => format!("{} (exact)", shown(value)),
        Some(error) => format!(
            "{} ± {} ({} % interval)",
            shown(value),
            shown(error * options.confidence.standard_errors()),
            options.confidence.percent()
        ),
        None => shown(value),
    }
}
