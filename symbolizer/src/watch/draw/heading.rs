//! Heading: what runs, and what all of it has.

use ratatui::style::Style;

use crate::model::confidence::Confidence;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::quantity::{Bytes, Count};
use crate::presence::Life;
use crate::watch::snapshot::Snapshot;
use crate::watch::state::State;

use super::Screen;

/// Caveats that are shown; of further ones only their number is.
const MOST_CAVEATS: usize = 2;

/// The screen before there is anything to show.
pub(super) fn write_reading(state: &State, screen: &mut Screen<'_>) {
    let line = screen.take_top(1);
    let text = format!("reading {} …", state.log.display());
    let style = screen.palette.plain();
    screen.write(line, &[(text, style)]);
}

pub(super) fn write(snapshot: &Snapshot, state: &State, now_ns: u64, screen: &mut Screen<'_>) {
    write_who(snapshot, state, now_ns, screen);
    write_in_use(snapshot, screen);
    write_allocated(snapshot, screen);
    let caveats = snapshot.caveats();
    let style = screen.palette.caveat();
    for caveat in caveats.iter().take(MOST_CAVEATS) {
        let line = screen.take_top(1);
        screen.write(line, &[(caveat.clone(), style)]);
    }
    if caveats.len() > MOST_CAVEATS {
        let line = screen.take_top(1);
        let more = caveats.len() - MOST_CAVEATS;
        let text = format!("… and {more} more: `heapprof info {}`", state.log.display());
        screen.write(line, &[(text, style)]);
    }
}

fn write_who(snapshot: &Snapshot, state: &State, now_ns: u64, screen: &mut Screen<'_>) {
    let palette = screen.palette;
    let line = screen.take_top(1);
    let run = &snapshot.profile.run;
    let life = match snapshot.life {
        Life::Running => (
            format!("running for {}", clock(elapsed_ns(snapshot, now_ns))),
            palette.good(),
        ),
        life => (
            format!("{} after {}", life.name(), clock(run.duration_ns)),
            palette.caveat(),
        ),
    };
    let aside = palette.aside();
    let groups = vec![
        vec![(run.process_name(), palette.strong())],
        vec![life],
        vec![(snapshot.exactness(), aside)],
        vec![(format!("log {}", Bytes(snapshot.log_bytes as f64)), aside)],
    ];
    screen.write_groups(line, groups);
    if state.is_paused() {
        let style = palette.selected();
        screen.write_right(line, " PAUSED: space goes on ", style);
    }
}

/// How long the process runs.
fn elapsed_ns(snapshot: &Snapshot, now_ns: u64) -> u64 {
    let run = &snapshot.profile.run;
    match run.start_wall_ns {
        0 => run.duration_ns,
        start => now_ns.saturating_sub(start).max(run.duration_ns),
    }
}

/// `87.0 MiB ± 12.8 MiB`.
fn bytes_of(snapshot: &Snapshot, metric: Metric, screen: &Screen<'_>) -> Vec<(String, Style)> {
    let palette = screen.palette;
    let bytes = snapshot.profile.numbers().get(metric) as f64;
    let mut parts = vec![(Bytes(bytes).to_string(), palette.strong())];
    if let Some(half) = snapshot.half_width(metric) {
        parts.push((format!(" ± {}", Bytes(half)), palette.aside()));
    }
    parts
}

/// `in 342,018 blocks`.
fn blocks_of(snapshot: &Snapshot, metric: Metric, screen: &Screen<'_>) -> Vec<(String, Style)> {
    let blocks = Count(snapshot.profile.numbers().get(metric));
    vec![(format!("in {blocks} blocks"), screen.palette.plain())]
}

fn write_in_use(snapshot: &Snapshot, screen: &mut Screen<'_>) {
    let palette = screen.palette;
    let plain = palette.plain();
    let line = screen.take_top(1);
    let mut in_use = vec![("in use     ".to_owned(), plain)];
    in_use.extend(bytes_of(snapshot, Metric::InUseBytes, screen));
    let measure = Measure::GrowthBytes;
    let (amount, what) = match &snapshot.comparison {
        Some(comparison) => {
            let since = format!("since {} ", clock(comparison.since_ns));
            (comparison.of_all(), since)
        }
        None => (snapshot.growth_of_all(true), "growth ".to_owned()),
    };
    let quantity = |value: f64| match snapshot.comparison {
        Some(_) => Bytes(value).to_string(),
        None => measure.quantity(value),
    };
    let verdict = snapshot.scale(true).verdict(&amount);
    let style = palette.growth(&amount, verdict);
    let is_too_early = snapshot.comparison.is_none() && snapshot.is_too_early();
    let mut growth = match is_too_early {
        true => vec![(what, plain), ("too early".to_owned(), palette.aside())],
        false => vec![(what, plain), (quantity(amount.value), style)],
    };
    if snapshot.is_sampled() && !is_too_early {
        let half = amount.error() * Confidence::default().standard_errors();
        growth.push((format!(" ± {}", quantity(half)), palette.aside()));
        growth.push((format!(" {}", verdict.name()), style));
    }
    let mut groups = vec![in_use, growth];
    if let Some(peak) = snapshot.profile.peak {
        let bytes = Bytes(peak.bytes.to_f64());
        groups.push(vec![(format!("peak {bytes}"), plain)]);
    }
    if let Some(resident) = snapshot.resident {
        groups.push(vec![(
            format!("resident {}", Bytes(resident as f64)),
            plain,
        )]);
    }
    groups.push(blocks_of(snapshot, Metric::InUseObjects, screen));
    screen.write_groups(line, groups);
}

fn write_allocated(snapshot: &Snapshot, screen: &mut Screen<'_>) {
    let palette = screen.palette;
    let line = screen.take_top(1);
    let mut sum = vec![("allocated  ".to_owned(), palette.plain())];
    sum.extend(bytes_of(snapshot, Metric::AllocatedBytes, screen));
    let (allocated, freed) = snapshot.rates.of_all();
    let rates = vec![
        (
            format!("+{}/s -{}/s", Bytes(allocated), Bytes(freed)),
            palette.strong(),
        ),
        (format!(" {}", span_of_rates(snapshot)), palette.aside()),
    ];
    let groups = vec![
        sum,
        rates,
        blocks_of(snapshot, Metric::AllocatedObjects, screen),
    ];
    screen.write_groups(line, groups);
}

/// The time that rates are of.
fn span_of_rates(snapshot: &Snapshot) -> String {
    let rates = &snapshot.rates;
    match rates.is_whole_run {
        true => "over the run".into(),
        false => format!("over {:.0} s", rates.seconds),
    }
}

/// A time as clocks show it: `1:23`, `4:05:06`, `2d 3:04:05`.
pub(super) fn clock(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    let (days, hours, minutes, seconds) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}d {hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::clock;

    #[test]
    fn times_are_read_like_clocks() {
        for (seconds, text) in [
            (0, "0:00"),
            (83, "1:23"),
            (14_706, "4:05:06"),
            (183_845, "2d 3:04:05"),
        ] {
            assert_eq!(clock(seconds * 1_000_000_000), text);
        }
    }
}
