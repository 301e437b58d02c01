//! Drawing: a state on the cells of a screen, whatever its size.
//!
//! ```text
//!   what runs, since when, how exact             heading
//!   in use, allocated, rates, caveats
//!   150 MiB ┤   ▂▄▆█                             curve, if there is room
//!         0 ┴─────▲ mark ───── 20 s
//!   sites by in-use-bytes, largest first         title
//!      self    ±    alloc/s  growth  function    lines
//!   ? help  s metric  / filter …                 foot: keys, a question, or an answer
//! ```
//!
//! Text from outside is made harmless where it becomes cells.

mod boxes;
mod columns;
mod curve;
mod heading;
pub(super) mod palette;
mod table;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use crate::model::fitted::cut;
use crate::model::printable::Printable;

use super::state::{Mode, State};
use super::table::Direction;
use palette::Palette;

/// Below so many lines there is no curve.
const LEAST_FOR_CURVE: u16 = 16;

/// Draws the state. `now_ns` is the time since 1970.
pub(super) fn draw(state: &mut State, palette: Palette, now_ns: u64, frame: &mut Frame<'_>) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    buffer.set_style(area, Style::new());
    let mut screen = Screen {
        buffer,
        palette,
        left: area,
    };
    let foot = screen.take_bottom(1);
    let Some(snapshot) = &state.snapshot else {
        heading::write_reading(state, &mut screen);
        write_foot(state, foot, &mut screen);
        return;
    };
    heading::write(snapshot, state, now_ns, &mut screen);
    if area.height >= LEAST_FOR_CURVE {
        let height = (area.height / 5).clamp(3, 8);
        let room = screen.take_top(height + 1);
        curve::draw(snapshot, state.zoom, room, &mut screen);
    }
    let title = screen.take_top(1);
    table::write_title(snapshot, state, title, &mut screen);
    let room = screen.left;
    state.has_room_for(usize::from(room.height.saturating_sub(1)));
    // Borrowed anew: the state has changed.
    if let Some(snapshot) = &state.snapshot {
        table::draw(snapshot, state, room, &mut screen);
    }
    write_foot(state, foot, &mut screen);
    match state.mode {
        Mode::Metric(at) => boxes::draw_metrics(at, area, &mut screen),
        Mode::Help => boxes::draw_help(area, &mut screen),
        _ => {}
    }
}

/// The cells that are drawn on, and the area that is left.
struct Screen<'a> {
    buffer: &'a mut Buffer,
    palette: Palette,
    left: Rect,
}

impl Screen<'_> {
    fn take_top(&mut self, lines: u16) -> Rect {
        let lines = lines.min(self.left.height);
        let taken = Rect {
            height: lines,
            ..self.left
        };
        self.left.y += lines;
        self.left.height -= lines;
        taken
    }

    fn take_bottom(&mut self, lines: u16) -> Rect {
        let lines = lines.min(self.left.height);
        self.left.height -= lines;
        Rect {
            y: self.left.y + self.left.height,
            height: lines,
            ..self.left
        }
    }

    /// Writes parts of a line one after another, as far as there is room. Returns the columns that
    /// are used.
    fn write(&mut self, area: Rect, parts: &[(String, Style)]) -> u16 {
        let mut x = area.x;
        if area.height == 0 {
            return 0;
        }
        for (text, style) in parts {
            let room = usize::from(area.right().saturating_sub(x));
            let text = cut(&Printable(text).to_string(), room);
            (x, _) = self.buffer.set_stringn(x, area.y, text, room, *style);
        }
        x - area.x
    }

    /// Writes groups of parts, two columns apart, as many as there is room for. The first is always
    /// written.
    fn write_groups(&mut self, area: Rect, groups: Vec<Vec<(String, Style)>>) -> u16 {
        let mut parts = Vec::new();
        let mut used = 0;
        for group in groups {
            let gap = if parts.is_empty() { "" } else { "  " };
            let width: usize = group.iter().map(|(text, _)| text.width()).sum();
            if used > 0 && used + gap.len() + width > usize::from(area.width) {
                continue;
            }
            used += gap.len() + width;
            parts.push((gap.to_owned(), Style::new()));
            parts.extend(group);
        }
        self.write(area, &parts)
    }

    /// Writes text at the right end of a line.
    fn write_right(&mut self, area: Rect, text: &str, style: Style) {
        let width = text.width().min(usize::from(area.width)) as u16;
        let at = Rect {
            x: area.right() - width,
            width,
            ..area
        };
        self.write(at, &[(text.to_owned(), style)]);
    }
}

/// The last line: a question that is being answered, the last answer, or the keys.
fn write_foot(state: &State, area: Rect, screen: &mut Screen<'_>) {
    let palette = screen.palette;
    let plain = palette.plain();
    let typed = |what: &str, text: &str, hint: &str| {
        vec![
            (format!("{what}: "), palette.key()),
            (format!("{text}▏"), plain),
            (format!("  {hint}"), palette.aside()),
        ]
    };
    let parts = match (&state.mode, &state.message, &state.asked) {
        (Mode::Filter(_), _, _) => typed(
            "filter",
            &state.choice.filter,
            "Enter keeps it, Esc undoes it",
        ),
        (Mode::Mark(name), _, _) => typed("name of the mark", name, "Enter sets it, Esc does not"),
        (_, Some((text, true)), _) => vec![(text.clone(), palette.warning())],
        (_, Some((text, false)), _) => vec![(text.clone(), palette.good())],
        (_, _, Some(command)) => vec![(
            format!("{command}: waiting for the program …"),
            palette.aside(),
        )],
        _ => {
            screen.write_groups(area, keys(state, palette));
            return;
        }
    };
    screen.write(area, &parts);
}

/// The keys that are of use now, the most useful first.
fn keys(state: &State, palette: Palette) -> Vec<Vec<(String, Style)>> {
    let mut keys = vec![
        ("?", "help"),
        ("q", "quit"),
        ("s", "metric"),
        ("/", "filter"),
    ];
    match state.choice.focus.as_ref().map(|focus| focus.direction) {
        None => keys.push(("⏎", "callers")),
        Some(Direction::Callers) => keys.extend([("⏎", "on"), ("←", "back"), ("Tab", "callees")]),
        Some(Direction::Callees) => keys.extend([("⏎", "on"), ("←", "back"), ("Tab", "callers")]),
    }
    keys.extend([
        ("m", "mark"),
        ("d", "dump"),
        ("c", "compare"),
        ("space", "pause"),
        ("r", "reverse"),
        ("o", "order"),
        ("z", "zoom"),
    ]);
    let group = |(key, what): (&str, &str)| {
        vec![
            (key.to_owned(), palette.key()),
            (format!(" {what}"), palette.aside()),
        ]
    };
    keys.into_iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;

    use super::*;
    use crate::model::measure::Measure;
    use crate::watch::snapshot::Snapshot;
    use crate::watch::state::Key;
    use crate::watch::test_snapshots::{MAIN, PARSE, READ, TestSnapshots};

    const PLAIN: Palette = Palette { is_coloured: false };

    fn given() -> TestSnapshots {
        TestSnapshots::default()
            .stack(&[PARSE, READ, MAIN], 100, 10)
            .stack(&[READ, MAIN], 50, 5)
            .mark(50, "half")
    }

    fn state(snapshot: Snapshot) -> State {
        let mut state = State::new("a.heaplog".into(), Measure::default(), String::new());
        state.take(Box::new(snapshot));
        state
    }

    fn drawn_in(state: &mut State, palette: Palette, width: u16, height: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw(state, palette, 0, frame))
            .unwrap();
        terminal.backend().buffer().clone()
    }

    fn lines_of(buffer: &Buffer) -> Vec<String> {
        let area = buffer.area;
        (0..area.height)
            .map(|y| {
                let cells = (0..area.width).map(|x| buffer[(x, y)].symbol());
                cells.collect::<String>().trim_end().to_owned()
            })
            .collect()
    }

    fn drawn(state: &mut State, width: u16, height: u16) -> Vec<String> {
        lines_of(&drawn_in(state, PLAIN, width, height))
    }

    #[test]
    fn a_screen_of_80_columns_has_everything_that_matters() {
        let mut state = state(given().snapshot());
        let lines = drawn(&mut state, 80, 18);
        assert_eq!(
            lines,
            [
                "server, pid 77  running for 1:40  every allocation recorded  log 2.0 KiB",
                "in use     1.2 KiB  growth 125 B/s  in 15 blocks",
                "allocated  1.4 KiB  +14 B/s -2 B/s over the run  in 17 blocks",
                " 100.0 KiB ┤                                              ▁▁▁▂▂▂▂▃▃▄▄▄▅▅▅▆▆▇▇▇██",
                "           │                        ▁▁▁▂▂▃▃▃▄▄▄▄▅▅▆▆▆▇▇▇████████████████████████",
                "           │▁▁▁▁▂▂▂▃▃▃▄▄▅▅▅▆▆▆▆▇▇███████████████████████████████████████████████",
                "         0 ┴0:00 ────────────────────────────▲half ──────────────────────── 1:40",
                "sites  in-use-bytes 1.2 KiB, largest first                                1 of 2",
                "    ▼self           alloc/s   growth/s         function         where",
                "   1000 B  80.0%       11 B      100 B  exact  parse            /src/parser.c:10",
                "    250 B  20.0%        3 B       25 B  exact  read_request     /src/reader.c:11",
                "",
                "",
                "",
                "",
                "",
                "",
                "? help  q quit  s metric  / filter  ⏎ callers  m mark  d dump  c compare  z zoom",
            ]
        );
    }

    #[test]
    fn wide_screens_have_more_columns_and_narrow_ones_never_overflow() {
        let sampled = TestSnapshots::default().sampled(&[PARSE, READ, MAIN], 100_000, 30);
        let mut state = state(sampled.snapshot());
        let wide = drawn(&mut state, 200, 30);
        let heading = wide.iter().find(|line| line.contains("function")).unwrap();
        for column in ["▼self", "±", "cum", "alloc/s", "growth/s", "where"] {
            assert!(heading.contains(column), "{column}: {heading}");
        }
        let line = wide.iter().find(|line| line.contains("parse")).unwrap();
        assert!(
            line.contains("/src/parser.c:10") && line.contains("real"),
            "{line}"
        );
        for keys in ["", "s", "?", "/", "m", "oooo", ">>>>>>>>>>>", "<"] {
            for letter in keys.chars() {
                state.press(Key::Char(letter));
            }
            for (width, height) in [(1, 1), (5, 3), (20, 6), (40, 15), (63, 16), (300, 100)] {
                drawn(&mut state, width, height);
            }
            state.press(Key::Escape);
        }
    }

    #[test]
    fn a_way_is_named_and_lines_are_its_ends() {
        let mut state = state(given().snapshot());
        state.press(Key::Enter);
        let lines = drawn(&mut state, 90, 12);
        assert_eq!(
            lines[3],
            "callers of parse  in-use-bytes 1000 B, largest first                                1 of 1"
        );
        assert!(lines[5].contains("read_request") && lines[5].contains("1000 B"));
        state.press(Key::Enter);
        state.press(Key::Enter);
        let lines = drawn(&mut state, 90, 12);
        assert!(lines[3].starts_with("callers of parse ← read_request ← main  "));
        assert!(
            lines[5].contains("(nothing: the stack begins here)"),
            "{lines:?}"
        );
    }

    #[test]
    fn questions_answers_and_states_are_seen() {
        let mut state = state(given().snapshot());
        for letter in "mnow".chars() {
            state.press(Key::Char(letter));
        }
        let foot = drawn(&mut state, 80, 20).pop().unwrap();
        assert!(foot.starts_with("name of the mark: now▏"), "{foot}");
        state.press(Key::Enter);
        assert!(
            drawn(&mut state, 80, 20)
                .pop()
                .unwrap()
                .contains("mark now: waiting")
        );
        state.answered(Ok("marked as \"now\"\u{1b}[31m".into()));
        let foot = drawn(&mut state, 80, 20).pop().unwrap();
        assert_eq!(foot, "marked as \"now\"\\x1b[31m");
        state.press(Key::Char(' '));
        assert!(drawn(&mut state, 120, 20)[0].ends_with("PAUSED: space goes on"));
        state.press(Key::Char('/'));
        state.press(Key::Char('ä'));
        let lines = drawn(&mut state, 80, 20);
        assert!(
            lines
                .iter()
                .any(|line| line.contains("no line has what the filter asks for"))
        );
        state.press(Key::Escape);
        state.press(Key::Char('s'));
        let lines = drawn(&mut state, 80, 24).join("\n");
        assert!(
            lines.contains("┌ metric") && lines.contains("lifetime"),
            "{lines}"
        );
        state.press(Key::Escape);
        state.press(Key::Char('?'));
        assert!(
            drawn(&mut state, 100, 24)
                .join("\n")
                .contains("write a heap dump")
        );
    }

    #[test]
    fn what_the_numbers_lack_is_said() {
        let mut snapshot = given().snapshot();
        snapshot.problem = Some("the log is gone".into());
        snapshot.profile.account.missing_frames = 2;
        snapshot.profile.account.counters = vec![(heapprof_format::Counter::LostQueueFull, 5)];
        let mut state = state(snapshot);
        let lines = drawn(&mut state, 80, 24);
        assert_eq!(lines[3], "the log is gone");
        let damage = "2 parts of the log are missing between others, with all that was in them";
        assert_eq!(lines[4], damage);
        assert_eq!(lines[5], "… and 1 more: `heapprof info a.heaplog`");
    }

    /// Dumps may be at every column. The marks that somebody named are seen, and the newest has its
    /// name, wherever it is.
    #[test]
    fn marks_are_not_lost_to_those_of_dumps() {
        let axis = |mut given: TestSnapshots, marks: &[(u64, &str)], width| {
            for second in 0..=100 {
                let of_second = marks.iter().filter(|(at, _)| *at == second);
                given = of_second
                    .fold(given.mark(second, "dump: 1 MB allocated"), |given, mark| {
                        given.mark(mark.0, mark.1)
                    });
            }
            let lines = drawn(&mut state(given.snapshot()), width, 24);
            let axis = lines.into_iter().find(|line| line.contains('┴'));
            axis.unwrap()
        };
        for width in [80, 120] {
            for at in [0, 1, 50, 97, 100] {
                let line = axis(given(), &[(at, "deploy")], width);
                let is_seen = line.contains("▲deploy ") || line.contains(" deploy▲");
                assert!(is_seen, "at {at} of {width}: {line}");
                assert!(line.ends_with("1:40"), "{line}");
            }
            let line = axis(
                given(),
                &[(48, "older"), (53, "newer"), (100, "last")],
                width,
            );
            assert!(
                line.contains("▲newer ") && line.contains(" last▲"),
                "{line}"
            );
            assert!(
                line.contains("▲older ") || line.contains("▲▲newer") || line.contains(" older▲"),
                "{line}"
            );
        }
        // Without others, a dump has its name.
        let quiet = TestSnapshots::default().mark(20, "dump: signal").snapshot();
        let lines = drawn(&mut state(quiet), 80, 24);
        assert!(
            lines.iter().any(|line| line.contains("▲dump: signal ")),
            "{lines:?}"
        );
    }

    #[test]
    fn without_colour_there_is_none() {
        let sampled = || TestSnapshots::default().sampled(&[PARSE, READ, MAIN], 100_000, 30);
        let colours = |palette| {
            let mut state = state(sampled().mark(50, "half").snapshot());
            state.press(Key::Char('s'));
            let buffer = drawn_in(&mut state, palette, 100, 30);
            let cells = buffer.content.iter();
            cells
                .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
                .count()
        };
        assert_eq!(colours(PLAIN), 0);
        assert!(colours(Palette { is_coloured: true }) > 100);
    }

    #[test]
    fn a_log_that_is_being_read_is_told_of() {
        let mut state = State::new("a.heaplog".into(), Measure::default(), String::new());
        let lines = drawn(&mut state, 80, 10);
        assert_eq!(lines[0], "reading a.heaplog …");
    }
}
