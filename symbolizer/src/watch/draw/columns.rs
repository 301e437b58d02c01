//! Columns: the numbers of a line, those that there is room for.

use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use crate::analysis::growth::Scale;
use crate::model::amount::Amount;
use crate::model::confidence::{Confidence, FEW_SAMPLES};
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::pace::Pace;
use crate::model::quantity::{Bytes, Count, Percent};
use crate::watch::snapshot::Snapshot;
use crate::watch::state::State;
use crate::watch::table::{By, TableLine};

use super::heading::clock;
use super::palette::Palette;

/// A column of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Own,
    OwnError,
    OwnShare,
    All,
    AllShare,
    Rate,
    RateError,
    Growth,
    GrowthError,
    Verdict,
    Median,
    MostDied,
    Mean,
    Freed,
    Live,
}

/// Columns that make room for names, the first to go first. The others stay.
const TO_GO: [Column; 11] = [
    Column::RateError,
    Column::AllShare,
    Column::GrowthError,
    Column::Mean,
    Column::All,
    Column::OwnShare,
    Column::Live,
    Column::Freed,
    Column::OwnError,
    Column::Rate,
    Column::Verdict,
];

/// The columns of a metric, from the left.
fn of(state: &State, is_sampled: bool) -> Vec<Column> {
    let measure = state.choice.measure;
    let in_focus = state.choice.focus.is_some();
    if measure == Measure::Lifetime {
        return vec![
            Column::Median,
            Column::MostDied,
            Column::Mean,
            Column::Freed,
            Column::Live,
            Column::Rate,
        ];
    }
    let mut columns = vec![
        Column::Own,
        Column::OwnError,
        Column::OwnShare,
        Column::All,
        Column::AllShare,
        Column::Rate,
        Column::RateError,
        Column::Growth,
        Column::GrowthError,
        Column::Verdict,
    ];
    columns.retain(|column| match column {
        Column::OwnError | Column::RateError | Column::GrowthError => is_sampled,
        // A way has one amount.
        Column::All | Column::AllShare => !in_focus,
        _ => true,
    });
    if measure.is_growth() && !state.is_compared() {
        // It is the number itself, and parts of what grew and what shrank are none of a whole.
        columns.retain(|column| {
            !matches!(
                column,
                Column::Growth | Column::GrowthError | Column::OwnShare | Column::AllShare
            )
        });
    }
    columns
}

/// A column with its cells.
pub(super) struct Filled {
    column: Column,
    pub(super) heading: String,
    /// True if lines are sorted by it.
    pub(super) is_sorted_by: bool,
    pub(super) cells: Vec<(String, Style)>,
    pub(super) width: usize,
}

/// The columns of the lines that are seen, as many as leave so much room for names.
pub(super) fn fill(
    snapshot: &Snapshot,
    state: &State,
    seen: &[TableLine],
    room: usize,
    palette: Palette,
) -> Vec<Filled> {
    let cells = Cells {
        state,
        palette,
        pace: pace_of(state),
        since_ns: snapshot.comparison.as_ref().map(|it| it.since_ns),
        standard_errors: Confidence::default().standard_errors(),
        scale: snapshot.scale(is_of_bytes(state.choice.measure)),
        is_too_early: snapshot.comparison.is_none() && snapshot.is_too_early(),
    };
    let columns = of(state, snapshot.is_sampled()).into_iter();
    let mut filled: Vec<Filled> = columns.map(|column| cells.fill(column, seen)).collect();
    let needed = |filled: &[Filled]| -> usize { filled.iter().map(|it| it.width + 2).sum() };
    for column in TO_GO {
        if needed(&filled) <= room {
            break;
        }
        filled.retain(|it| it.column != column);
    }
    filled
}

/// One unit of time for all lines, or these could not be compared at a glance.
fn pace_of(state: &State) -> Pace {
    let lines = &state.table.lines;
    let most = lines.iter().map(|line| line.growth.value.abs());
    Pace::of(most.fold(0.0, f64::max))
}

/// Whether rates and growth beside the metric are in bytes.
fn is_of_bytes(measure: Measure) -> bool {
    measure.is_bytes() || measure == Measure::Lifetime
}

struct Cells<'a> {
    state: &'a State,
    palette: Palette,
    pace: Pace,
    /// The moment that is compared with, if the user compares.
    since_ns: Option<u64>,
    standard_errors: f64,
    /// The scale that growth is judged by.
    scale: Scale,
    /// True if growth is shown, and it is too early to tell any.
    is_too_early: bool,
}

impl Cells<'_> {
    fn style_of(&self, growth: &Amount) -> Style {
        self.palette.growth(growth, self.scale.verdict(growth))
    }

    fn fill(&self, column: Column, seen: &[TableLine]) -> Filled {
        let cells: Vec<(String, Style)> = seen.iter().map(|line| self.cell(column, line)).collect();
        let heading = self.heading(column);
        let widest = cells.iter().map(|(text, _)| text.width()).max();
        let is_sorted_by = self.is_sorted_by(column);
        let arrow = usize::from(is_sorted_by);
        let width = widest
            .unwrap_or(0)
            .max(heading.width() + arrow)
            .max(self.least(column));
        Filled {
            column,
            heading,
            is_sorted_by,
            cells,
            width,
        }
    }

    fn is_sorted_by(&self, column: Column) -> bool {
        match self.state.choice.by {
            By::Own => matches!(column, Column::Own | Column::Median),
            By::All => column == Column::All,
            By::Rate => column == Column::Rate,
            By::Growth => column == Column::Growth,
        }
    }

    /// The unit of rates and growth beside the metric.
    fn is_bytes(&self) -> bool {
        is_of_bytes(self.measure())
    }

    fn heading(&self, column: Column) -> String {
        match column {
            Column::Own if self.measure().is_growth() => {
                return format!("growth/{}", self.pace.name());
            }
            Column::Own if self.state.choice.focus.is_some() => "this way",
            Column::Own => "self",
            Column::OwnError | Column::RateError | Column::GrowthError => "±",
            Column::OwnShare | Column::AllShare | Column::Verdict => "",
            Column::All => "cum",
            Column::Rate => "alloc/s",
            Column::Growth => match self.since_ns {
                Some(since_ns) => return format!("since {}", clock(since_ns)),
                None => return format!("growth/{}", self.pace.name()),
            },
            Column::Median => "median",
            Column::MostDied => "90 %",
            Column::Mean => "mean",
            Column::Freed => "freed",
            Column::Live => "live",
        }
        .into()
    }

    /// A width that columns have whatever they show, so that lines do not jump from side to side.
    fn least(&self, column: Column) -> usize {
        match column {
            Column::Own | Column::All => 9,
            Column::OwnError => 9,
            Column::OwnShare | Column::AllShare => 5,
            Column::Rate | Column::RateError => 9,
            Column::Growth | Column::GrowthError => 9,
            Column::Verdict => 5,
            Column::Median | Column::MostDied | Column::Mean => 9,
            Column::Freed | Column::Live => 6,
        }
    }

    fn cell(&self, column: Column, line: &TableLine) -> (String, Style) {
        let (palette, measure) = (self.palette, self.state.choice.measure);
        let whole = self.state.table.whole.value;
        let (plain, aside) = (palette.plain(), palette.aside());
        let share = |part: f64| {
            let style = palette.share(part, whole);
            (Percent { part, whole }.to_string(), style)
        };
        let lifetimes = &line.lifetimes;
        match column {
            Column::Growth | Column::GrowthError if self.is_too_early => (String::new(), plain),
            Column::Verdict if self.is_too_early => ("early".into(), aside),
            Column::Own if measure.is_growth() => {
                (self.growth(line.own.value), self.style_of(&line.own))
            }
            Column::Own => {
                let style = palette.share(line.own.value, whole);
                (measure.quantity(line.own.value), style)
            }
            Column::OwnError => (self.half(&line.own, |value| self.amount(value)), aside),
            Column::OwnShare => share(line.own.value),
            Column::All => (self.amount(line.all.value), plain),
            Column::AllShare => share(line.all.value),
            Column::Rate => (self.rate(line.rate.value), plain),
            Column::RateError => (self.half(&line.rate, |value| self.rate(value)), aside),
            Column::Growth => (
                self.growth_or_change(line.growth.value),
                self.style_of(&line.growth),
            ),
            Column::GrowthError => (
                self.half(&line.growth, |value| self.growth_or_change(value)),
                aside,
            ),
            Column::Verdict => {
                let name = self.scale.verdict(&line.growth).name();
                (name.into(), self.style_of(&line.growth))
            }
            Column::Median => (or_longer(lifetimes.median()), plain),
            Column::MostDied => (or_longer(lifetimes.quantile(0.9)), plain),
            Column::Mean => (or_longer(lifetimes.mean()), plain),
            Column::Freed => (Count(lifetimes.died_samples()).to_string(), plain),
            Column::Live => (Count(lifetimes.live_samples()).to_string(), plain),
        }
    }

    fn measure(&self) -> Measure {
        self.state.choice.measure
    }

    fn amount(&self, value: f64) -> String {
        match self.measure().is_growth() {
            true => self.growth(value),
            false => self.measure().quantity(value),
        }
    }

    fn rate(&self, value: f64) -> String {
        let metric = match self.is_bytes() {
            true => Metric::AllocatedBytes,
            false => Metric::AllocatedObjects,
        };
        Measure::from(metric).quantity(value)
    }

    fn growth_or_change(&self, value: f64) -> String {
        match (self.since_ns, self.is_bytes()) {
            (None, _) => self.growth(value),
            (Some(_), true) => Bytes(value).to_string(),
            (Some(_), false) => format!("{value:.0}"),
        }
    }

    /// A speed, whose unit of time is in the heading.
    fn growth(&self, value: f64) -> String {
        let value = value * self.pace.seconds();
        match self.is_bytes() {
            true => Bytes(value).to_string(),
            false => format!("{value:.1}"),
        }
    }

    /// The half width of an interval; marked if it says no more than an order of magnitude.
    fn half(&self, amount: &Amount, shown: impl Fn(f64) -> String) -> String {
        let half = amount.error() * self.standard_errors;
        let is_few = (1..FEW_SAMPLES).contains(&amount.samples) && half > 0.1 * amount.value.abs();
        let mark = if is_few { "~" } else { "" };
        format!("{mark}{}", shown(half))
    }
}

/// A lifetime; without a number most blocks outlive all that was seen.
fn or_longer(seconds: Option<f64>) -> String {
    match seconds {
        None => "outlives".into(),
        Some(s) if s >= 1.0 => format!("{s:.2} s"),
        Some(s) if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        Some(s) => format!("{:.0} µs", s * 1e6),
    }
}
