//! Boxes: the choice of a metric and the help, in front of everything else.

use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use crate::model::fitted::cut;
use crate::model::measure::Measure;

use super::Screen;

/// A line of a box: parts with their looks.
type Text = Vec<(String, Style)>;

/// The keys and what these do.
const HELP: [(&str, &str); 19] = [
    (
        "↑ ↓ PgUp PgDn",
        "select a line; Home, g: the first; End, G: the last",
    ),
    (
        "Enter →",
        "go to the callers of the selected line, and on to theirs",
    ),
    ("Tab", "callers or callees"),
    ("← Esc Backspace", "go back"),
    (
        "s",
        "choose the metric; < and > go to the one before and behind",
    ),
    ("o", "sort by self, cum, alloc/s or growth"),
    (
        "c",
        "compare from now on: changes, no growth; again: no longer",
    ),
    ("r", "reverse the order"),
    (
        "/",
        "filter by function, file, module; capitals count if typed",
    ),
    (
        "z",
        "the curve: the whole run, its last hour, 10 minutes, minute",
    ),
    ("space", "pause the view (the program goes on)"),
    ("m", "mark this moment by name, for --at, --from, --to"),
    ("d", "write a heap dump"),
    ("q  Ctrl-C", "quit (the program goes on)"),
    ("", ""),
    ("±", "the 95 % interval; ~ rests on fewer than 10 samples"),
    (
        "growth",
        "the slope behind the set-up; real: over 3 standard errors,",
    ),
    (
        "",
        "over 1 % of what the line and 0.1 % of what all have in use",
    ),
    (
        "alloc/s",
        "allocated a second: of late; of an ended run, over all of it",
    ),
];

/// The metrics, of which one is pointed at.
pub(super) fn draw_metrics(at: usize, area: Rect, screen: &mut Screen<'_>) {
    let palette = screen.palette;
    let lines = Measure::OF_BLOCKS
        .iter()
        .enumerate()
        .map(|(number, measure)| {
            let (name, words) = match number == at {
                true => (palette.selected(), palette.selected()),
                false => (palette.strong(), palette.aside()),
            };
            vec![
                (format!("{:<18}", measure.name()), name),
                (measure.explain().to_owned(), words),
            ]
        });
    draw(
        "metric: ↑ ↓ Enter",
        at,
        &lines.collect::<Vec<Text>>(),
        area,
        screen,
    );
}

pub(super) fn draw_help(area: Rect, screen: &mut Screen<'_>) {
    let palette = screen.palette;
    let lines = HELP.iter().map(|(key, what)| {
        vec![
            (format!("{key:<16}"), palette.key()),
            ((*what).to_owned(), palette.plain()),
        ]
    });
    draw(
        "help: any key leaves it",
        0,
        &lines.collect::<Vec<Text>>(),
        area,
        screen,
    );
}

/// A box in the middle, as large as its lines are and the screen allows. The line `at` is seen.
fn draw(title: &str, at: usize, lines: &[Text], area: Rect, screen: &mut Screen<'_>) {
    let width_of = |line: &Text| line.iter().map(|(text, _)| text.width()).sum::<usize>();
    let inner = lines
        .iter()
        .map(width_of)
        .max()
        .unwrap_or(0)
        .max(title.width() + 2);
    let inner = inner.min(usize::from(area.width).saturating_sub(4));
    let height = lines.len().min(usize::from(area.height).saturating_sub(2));
    if inner == 0 || height == 0 {
        return;
    }
    let first = (at + 1).saturating_sub(height);
    let whole = Rect {
        x: area.x + (area.width - inner as u16 - 4) / 2,
        y: area.y + (area.height - height as u16 - 2) / 2,
        width: inner as u16 + 4,
        height: height as u16 + 2,
    };
    let palette = screen.palette;
    let (frame, plain) = (palette.aside(), palette.plain());
    let line_at = |line: usize| Rect {
        y: whole.y + line as u16,
        height: 1,
        ..whole
    };
    let blank = " ".repeat(usize::from(whole.width));
    for line in 0..usize::from(whole.height) {
        // The screen below shows through neither as text nor as a look.
        screen.buffer.set_style(line_at(line), Style::reset());
        screen.write(line_at(line), &[(blank.clone(), plain)]);
    }
    let title = cut(title, inner);
    let rest = "─".repeat((inner + 1).saturating_sub(title.width() + 1));
    let top = [
        ("┌ ".to_owned(), frame),
        (title, palette.strong()),
        (format!(" {rest}┐"), frame),
    ];
    screen.write(line_at(0), &top);
    for (line, text) in lines.iter().skip(first).take(height).enumerate() {
        let area = line_at(line + 1);
        let within = Rect {
            x: area.x + 2,
            width: area.width - 4,
            ..area
        };
        screen.write(area, &[("│".to_owned(), frame)]);
        screen.write(within, text);
        screen.write_right(area, "│", frame);
    }
    let bottom = format!("└{}┘", "─".repeat(inner + 2));
    screen.write(line_at(usize::from(whole.height) - 1), &[(bottom, frame)]);
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::HELP;

    /// The box has 76 columns then, and the keys take 16 of these.
    #[test]
    fn help_fits_80_columns() {
        for (key, what) in HELP {
            assert!(key.width() < 16 && what.width() <= 60, "{key}: {what}");
        }
    }
}
