//! Table: the lines of a state, with as many columns as there is room for.

use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use crate::model::fitted::{cut, cut_front, cut_function};
use crate::model::measure::Measure;
use crate::model::printable::Printable;
use crate::model::quantity::Count;
use crate::watch::snapshot::Snapshot;
use crate::watch::state::State;
use crate::watch::table::{By, Direction, Subject, TableLine, key_of};

use super::Screen;
use super::columns::{self, Filled};

/// Columns that names and places have at least, while there are numbers that may go.
const LEAST_FOR_NAMES: usize = 27;
/// The largest share of these columns for places, in percent.
const MOST_FOR_PLACES: usize = 45;

/// The subject of the lines, and their order.
pub(super) fn write_title(snapshot: &Snapshot, state: &State, area: Rect, screen: &mut Screen<'_>) {
    let palette = screen.palette;
    let choice = &state.choice;
    let mut parts = Vec::new();
    match &choice.focus {
        None => parts.push(("sites".to_owned(), palette.plain())),
        Some(focus) => {
            let (what, arrow) = match focus.direction {
                Direction::Callers => ("callers of ", " ← "),
                Direction::Callees => ("called by ", " → "),
            };
            parts.push((what.to_owned(), palette.plain()));
            for (step, &site) in focus.path.iter().enumerate() {
                if step > 0 {
                    parts.push((arrow.to_owned(), palette.aside()));
                }
                let key = key_of(snapshot, Subject::Site(site));
                let name = key.map_or("?", |key| key.function.as_str());
                parts.push((name.to_owned(), palette.strong()));
            }
        }
    }
    let by = match choice.by {
        By::Own => "",
        By::All => ", by cum",
        By::Rate => ", by alloc/s",
        By::Growth if snapshot.comparison.is_some() => ", by change",
        By::Growth => ", by growth",
    };
    let order = match choice.is_reversed {
        true => "smallest first",
        false => "largest first",
    };
    parts.push(("  ".into(), palette.plain()));
    parts.push((choice.measure.name().into(), palette.key()));
    if choice.measure != Measure::Lifetime {
        let whole = choice.measure.quantity(state.table.whole.value);
        parts.push((format!(" {whole}"), palette.strong()));
    }
    parts.push((format!("{by}, {order}"), palette.aside()));
    if !choice.filter.is_empty() {
        parts.push(("  filter ".into(), palette.plain()));
        parts.push((choice.filter.clone(), palette.key()));
        let hidden = Count(state.table.hidden as u64);
        parts.push((format!(" hides {hidden}"), palette.aside()));
    }
    let used = screen.write(area, &parts);
    let lines = state.table.lines.len();
    let numbers = match lines {
        0 => String::new(),
        _ => format!(
            "{} of {}",
            Count(state.selected as u64 + 1),
            Count(lines as u64)
        ),
    };
    if usize::from(used) + numbers.width() + 2 <= usize::from(area.width) {
        screen.write_right(area, &numbers, palette.aside());
    }
}

/// The headings and the lines that there is room for.
pub(super) fn draw(snapshot: &Snapshot, state: &State, area: Rect, screen: &mut Screen<'_>) {
    if area.height == 0 {
        return;
    }
    let palette = screen.palette;
    let end = state.table.lines.len();
    let room = usize::from(area.height) - 1;
    let seen = &state.table.lines[state.first.min(end)..(state.first + room).min(end)];
    let width = usize::from(area.width);
    let for_numbers = width.saturating_sub(LEAST_FOR_NAMES);
    let columns = columns::fill(snapshot, state, seen, for_numbers, palette);
    let names: Vec<(String, String)> = seen.iter().map(|line| names_of(snapshot, line)).collect();
    let used: usize = columns.iter().map(|column| column.width + 2).sum();
    let (name, place) = shared(width.saturating_sub(used), &names);
    let at = |line: u16| Rect {
        y: area.y + line,
        height: 1,
        ..area
    };
    write_headings(&columns, name, place, state, at(0), screen);
    for (line, (function, where_)) in names.iter().enumerate() {
        let is_selected = state.first + line == state.selected;
        let style = |style: Style| match is_selected {
            true => palette.selected(),
            false => style,
        };
        let mut parts = Vec::new();
        for column in &columns {
            let (text, of_cell) = &column.cells[line];
            let gap = column.width.saturating_sub(text.width());
            parts.push((format!("{}{text}  ", " ".repeat(gap)), style(*of_cell)));
        }
        parts.push((
            padded(&cut_function(function, name), name),
            style(palette.strong()),
        ));
        if place > 0 {
            let text = padded(&fitting(where_, place), place);
            parts.push((format!("  {text}"), style(palette.aside())));
        }
        screen.write(at(line as u16 + 1), &parts);
    }
    if seen.is_empty() && room > 0 {
        let why = match state.table.hidden {
            0 => format!("nothing: {} is 0", state.choice.measure),
            _ => "no line has what the filter asks for: Esc takes it away".into(),
        };
        screen.write(at(1), &[(format!("  {why}"), palette.aside())]);
    }
}

fn write_headings(
    columns: &[Filled],
    name: usize,
    place: usize,
    state: &State,
    area: Rect,
    screen: &mut Screen<'_>,
) {
    let palette = screen.palette;
    let mut parts = Vec::new();
    for column in columns {
        let arrow = match (column.is_sorted_by, state.choice.is_reversed) {
            (true, false) => "▼",
            (true, true) => "▲",
            _ => "",
        };
        let text = format!("{arrow}{}", column.heading);
        let style = match column.is_sorted_by {
            true => palette.sorted(),
            false => palette.heading(),
        };
        let gap = column.width.saturating_sub(text.width());
        parts.push((format!("{}{text}  ", " ".repeat(gap)), style));
    }
    parts.push((padded(&cut("function", name), name), palette.heading()));
    if place > 0 {
        parts.push((
            format!("  {}", padded(&cut("where", place), place)),
            palette.heading(),
        ));
    }
    screen.write(area, &parts);
}

/// The function and the place of a line, harmless.
fn names_of(snapshot: &Snapshot, line: &TableLine) -> (String, String) {
    let key = key_of(snapshot, line.subject);
    let (function, place) = match (key, line.subject) {
        (Some(key), _) => (key.function.clone(), key.place()),
        (None, Subject::Own) => ("(allocated here)".into(), String::new()),
        _ => ("(nothing: the stack begins here)".into(), String::new()),
    };
    let harmless = |text: &str| Printable(text).to_string();
    (harmless(&function), harmless(&place))
}

/// Divides the columns between names and places: to each what it needs, if there is enough.
fn shared(room: usize, names: &[(String, String)]) -> (usize, usize) {
    let widest = |of: fn(&(String, String)) -> &String| {
        let widths = names.iter().map(|names| of(names).width());
        widths.max().unwrap_or(0)
    };
    let name = widest(|names| &names.0).max("function".len());
    let place = widest(|names| &names.1).max("where".len());
    if room < LEAST_FOR_NAMES * 2 / 3 {
        return (room, 0);
    }
    let between = room - 2;
    if name + place <= between {
        return (between - place, place);
    }
    // Without its folders, a place is still found.
    let files = names.iter().map(|(_, place)| file_name(place).width());
    let file = files.max().unwrap_or(0).max("where".len());
    let most = between * MOST_FOR_PLACES / 100;
    let place = file.min(most).max(between.saturating_sub(name));
    (between - place, place)
}

/// A path, or its file name if there is no room for more, or the end of that.
fn fitting(path: &str, width: usize) -> String {
    let name = file_name(path);
    match path.width() <= width || name.width() + 2 <= width {
        true => cut_front(path, width),
        false => cut_front(name, width),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn padded(text: &str, width: usize) -> String {
    let gap = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(gap))
}
