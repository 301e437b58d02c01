//! Curve: bytes in use over time in cells, eight heights a cell, with the marks below it.

use ratatui::layout::Rect;

use unicode_width::UnicodeWidthStr;

use crate::model::fitted::cut;
use crate::model::quantity::Bytes;
use crate::model::run::Marker;
use crate::watch::snapshot::Snapshot;
use crate::watch::state::Zoom;

use super::Screen;
use super::heading::clock;

/// Columns for the numbers at the left.
const SCALE: u16 = 12;
/// Columns that the name of a mark may have.
const LONGEST_MARK: usize = 20;
/// A cell that is filled up to so many eighths.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws it in an area whose last line is the axis.
pub(super) fn draw(snapshot: &Snapshot, zoom: Zoom, area: Rect, screen: &mut Screen<'_>) {
    if area.width <= SCALE + 10 || area.height < 2 {
        return;
    }
    let until_ns = snapshot.profile.run.duration_ns;
    let begin_ns = snapshot.curve.begin_ns().min(until_ns);
    let from_ns = match zoom {
        Zoom::Whole => begin_ns,
        Zoom::Last(seconds) => until_ns
            .saturating_sub(seconds.saturating_mul(1_000_000_000))
            .max(begin_ns),
    };
    let plot = Rect {
        x: area.x + SCALE,
        width: area.width - SCALE,
        height: area.height - 1,
        ..area
    };
    let parts = snapshot
        .curve
        .parts(from_ns, until_ns.max(from_ns + 1), usize::from(plot.width));
    let most = parts.iter().copied().fold(0.0, f64::max);
    draw_scale(most, area, screen);
    let style = screen.palette.curve();
    for (column, part) in (plot.x..).zip(&parts) {
        let mut eighths = height(*part, most, plot.height);
        for y in (plot.y..plot.bottom()).rev() {
            let filled = eighths.min(8);
            eighths -= filled;
            if filled > 0 {
                screen.buffer.set_string(column, y, EIGHTHS[filled], style);
            }
        }
    }
    let axis = Rect {
        y: plot.bottom(),
        height: 1,
        ..plot
    };
    draw_axis(snapshot, (from_ns, until_ns), axis, screen);
}

/// The height of a part, in eighths of cells. Every part above zero is seen.
fn height(part: f64, most: f64, cells: u16) -> usize {
    if part <= 0.0 || most <= 0.0 {
        return 0;
    }
    let all = f64::from(cells) * 8.0;
    ((part / most * all).round() as usize).clamp(1, usize::from(cells) * 8)
}

fn draw_scale(most: f64, area: Rect, screen: &mut Screen<'_>) {
    let style = screen.palette.aside();
    for y in area.y..area.bottom() {
        let is_axis = y + 1 == area.bottom();
        let (text, line) = match (y == area.y, is_axis) {
            (true, _) => (Bytes(most).to_string(), "┤"),
            (_, true) => ("0".to_owned(), "┴"),
            _ => (String::new(), "│"),
        };
        let text = format!("{text:>width$} {line}", width = usize::from(SCALE) - 2);
        let at = Rect {
            y,
            width: SCALE,
            height: 1,
            ..area
        };
        screen.write(at, &[(text, style)]);
    }
}

/// The line below: its times at both ends, and marks where they are.
fn draw_axis(snapshot: &Snapshot, span: (u64, u64), axis: Rect, screen: &mut Screen<'_>) {
    let (from_ns, until_ns) = span;
    let style = screen.palette.aside();
    screen
        .buffer
        .set_string(axis.x, axis.y, "─".repeat(usize::from(axis.width)), style);
    let begin = format!("{} ", clock(from_ns));
    let end = format!(" {}", clock(until_ns));
    screen.write(axis, &[(begin.clone(), style)]);
    screen.write_right(axis, &end, style);
    let (begin, end) = (
        begin.width(),
        usize::from(axis.width).saturating_sub(end.width()),
    );
    let mut row = MarkRow {
        is_taken: vec![false; end.saturating_sub(begin)],
        area: Rect {
            x: axis.x + begin as u16,
            width: end.saturating_sub(begin) as u16,
            ..axis
        },
    };
    let is_in_span = |it: &&Marker| (from_ns..=until_ns).contains(&it.time_ns);
    let markers = snapshot.profile.run.markers.iter().filter(is_in_span);
    let (of_dumps, named): (Vec<&Marker>, Vec<&Marker>) = markers.partition(|it| it.is_of_dump());
    let column = |marker: &Marker| {
        let part = (marker.time_ns - from_ns) as f64 / (until_ns - from_ns).max(1) as f64;
        (part * f64::from(axis.width.saturating_sub(1))) as usize
    };
    // Marks that somebody named come first, the newest before others: the user looks for it. The
    // marks of dumps may fill the line.
    for markers in [named, of_dumps] {
        let signs: Vec<(Option<usize>, &Marker)> = (markers.into_iter().rev())
            .map(|it| (row.write_sign(column(it).saturating_sub(begin), screen), it))
            .collect();
        for (at, marker) in signs {
            if let Some(at) = at {
                row.write_name(at, &cut(&marker.name, LONGEST_MARK), screen);
            }
        }
    }
}

/// The marks of an axis, between the times at its ends: none lies upon another one.
struct MarkRow {
    area: Rect,
    /// By column.
    is_taken: Vec<bool>,
}

impl MarkRow {
    /// Writes the sign of a mark in a column, or in the last one if the time at the end is there.
    /// Returns the column; `None`: another mark is there.
    fn write_sign(&mut self, column: usize, screen: &mut Screen<'_>) -> Option<usize> {
        let column = column.min(self.is_taken.len().checked_sub(1)?);
        self.write(column, "▲", screen)
    }

    /// Writes the name of a mark behind its sign, or in front of it, if there is room.
    fn write_name(&mut self, sign: usize, name: &str, screen: &mut Screen<'_>) {
        let in_front = || sign.checked_sub(name.width() + 1);
        if self.write(sign + 1, &format!("{name} "), screen).is_none()
            && let Some(column) = in_front()
        {
            self.write(column, &format!(" {name}"), screen);
        }
    }

    /// Writes a text if nothing is there. Returns its column.
    fn write(&mut self, column: usize, text: &str, screen: &mut Screen<'_>) -> Option<usize> {
        let columns = self.is_taken.get_mut(column..column + text.width())?;
        if columns.contains(&true) {
            return None;
        }
        columns.fill(true);
        let room = Rect {
            x: self.area.x + column as u16,
            width: text.width() as u16,
            ..self.area
        };
        let style = screen.palette.mark();
        screen.write(room, &[(text.to_owned(), style)]);
        Some(column)
    }
}
