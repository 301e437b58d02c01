//! Keys: the effect of each key on a state.

use crate::model::measure::Measure;
use crate::presence::Life;
use crate::watch::table::{By, Direction, Focus, Subject};

use super::{Action, Key, Mode, State, Zoom};

/// The longest text that may be typed.
const LONGEST_TEXT: usize = 200;

/// Parts of the run that may be chosen for the curve.
const ZOOMS: [Zoom; 4] = [
    Zoom::Whole,
    Zoom::Last(3600),
    Zoom::Last(600),
    Zoom::Last(60),
];

impl State {
    /// A key was pressed.
    pub(in crate::watch) fn press(&mut self, key: Key) -> Option<Action> {
        match key {
            Key::Interrupt => return Some(Action::Quit),
            Key::Suspend => return Some(Action::Suspend),
            Key::Redraw => return Some(Action::Redraw),
            _ => {}
        }
        if self.asked.is_none() {
            self.message = None;
        }
        match self.mode.clone() {
            Mode::Table => return self.press_in_table(key),
            Mode::Filter(before) => self.press_in_filter(key, &before),
            Mode::Mark(name) => return self.press_in_mark(key, name),
            Mode::Metric(at) => self.press_in_metrics(key, at),
            // Any key leaves it.
            Mode::Help => self.mode = Mode::Table,
        }
        None
    }

    fn press_in_table(&mut self, key: Key) -> Option<Action> {
        let at = self.selected;
        match key {
            Key::Up | Key::Char('k') => self.select(at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(at + 1),
            Key::PageUp => self.select(at.saturating_sub(self.page)),
            Key::PageDown => self.select(at + self.page),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.select(usize::MAX),
            Key::Enter | Key::Right | Key::Char('l') => self.enter(),
            Key::Left | Key::Backspace | Key::Escape => self.back(),
            Key::Tab => self.turn(),
            Key::Char('q') => return Some(Action::Quit),
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('s') => self.mode = Mode::Metric(self.number_of_metric()),
            Key::Char('>') => self.choose_metric(self.number_of_metric() + 1),
            Key::Char('<') => {
                self.choose_metric(self.number_of_metric() + Measure::OF_BLOCKS.len() - 1);
            }
            Key::Char('o') => self.order_by(match self.choice.by {
                By::Own => By::All,
                By::All => By::Rate,
                By::Rate => By::Growth,
                By::Growth => By::Own,
            }),
            Key::Char('r' | 'R') => {
                self.choice.is_reversed = !self.choice.is_reversed;
                self.sort();
            }
            Key::Char('/' | 'f') => {
                self.mode = Mode::Filter(self.choice.filter.clone());
            }
            Key::Char('z') => self.zoom_in(),
            Key::Char('c') => return self.compare(),
            Key::Char(' ' | 'p') => self.pause_or_go_on(),
            Key::Char('m') if self.may_ask() => self.mode = Mode::Mark(String::new()),
            Key::Char('d') if self.may_ask() => return Some(self.ask("dump")),
            _ => {}
        }
        None
    }

    /// Whether there is a program that can be asked. If not, that is said.
    fn may_ask(&mut self) -> bool {
        let why = match (&self.snapshot, &self.asked) {
            (None, _) => "the log is not read yet",
            (Some(snapshot), _) if snapshot.life != Life::Running => {
                "the process has ended: it can be asked for nothing"
            }
            (_, Some(_)) => "the program has not answered yet",
            _ => return true,
        };
        self.message = Some((why.into(), true));
        false
    }

    fn ask(&mut self, command: &str) -> Action {
        self.asked = Some(command.into());
        Action::Ask(command.into())
    }

    /// Compares with now and sorts by the change, or goes back to the growth.
    fn compare(&mut self) -> Option<Action> {
        self.snapshot.as_ref()?;
        let with_now = !self.awaits_comparison.unwrap_or(self.is_compared());
        self.awaits_comparison = Some(with_now);
        self.order_by(match with_now {
            true => By::Growth,
            false => By::Own,
        });
        Some(Action::Compare(with_now))
    }

    fn order_by(&mut self, by: By) {
        self.choice.by = by;
        self.sort();
    }

    /// Goes on from the selected line: to its callers, or further along the way.
    fn enter(&mut self) {
        let selected = self.table.lines.get(self.selected);
        let Some(subject) = selected.map(|line| line.subject) else {
            return;
        };
        let Subject::Site(site) = subject else {
            let words = match subject {
                Subject::Root => "nothing called it: the stack begins there",
                _ => "it calls nothing: the blocks are its own",
            };
            self.message = Some((words.into(), false));
            return;
        };
        self.ways_back.push((self.choice.clone(), self.follows));
        let mut focus = self.choice.focus.clone().unwrap_or(Focus {
            direction: Direction::Callers,
            path: Vec::new(),
        });
        focus.path.push(site);
        self.choice.focus = Some(focus);
        // The filter chose the line that was entered.
        self.choice.filter.clear();
        self.follows = None;
        self.sort();
    }

    /// Goes back by one step; without a focus, the filter goes.
    fn back(&mut self) {
        match self.ways_back.pop() {
            Some((choice, follows)) => {
                self.choice.focus = choice.focus;
                self.choice.filter = choice.filter;
                self.follows = follows;
            }
            None => self.choice.filter.clear(),
        }
        self.sort();
    }

    /// From callers to callees of the site, and back. Without a focus, into the selected site's
    /// callees.
    fn turn(&mut self) {
        if self.choice.focus.is_none() {
            self.enter();
        }
        let Some(focus) = &mut self.choice.focus else {
            return;
        };
        focus.direction = match focus.direction {
            Direction::Callers => Direction::Callees,
            Direction::Callees => Direction::Callers,
        };
        // The way that was gone is one of the other direction.
        focus.path.truncate(1);
        self.ways_back.truncate(1);
        self.follows = None;
        self.sort();
    }

    fn zoom_in(&mut self) {
        let run_s = self.snapshot.as_ref().map_or(0, |snapshot| {
            snapshot.profile.run.duration_ns / 1_000_000_000
        });
        let is_part = |zoom: &&Zoom| match zoom {
            Zoom::Whole => true,
            Zoom::Last(seconds) => *seconds < run_s,
        };
        let at = ZOOMS.iter().position(|zoom| *zoom == self.zoom);
        let later = ZOOMS.iter().skip(at.map_or(0, |at| at + 1)).find(is_part);
        self.zoom = later.copied().unwrap_or(Zoom::Whole);
    }

    fn pause_or_go_on(&mut self) {
        match self.paused.take() {
            None => self.paused = Some(None),
            Some(None) => {}
            Some(Some(snapshot)) => self.take(snapshot),
        }
    }

    fn number_of_metric(&self) -> usize {
        let measure = self.choice.measure;
        Measure::OF_BLOCKS
            .iter()
            .position(|&it| it == measure)
            .unwrap_or(0)
    }

    fn choose_metric(&mut self, number: usize) {
        self.choice.measure = Measure::OF_BLOCKS[number % Measure::OF_BLOCKS.len()];
        self.choice.by = By::Own;
        self.sort();
    }

    fn press_in_metrics(&mut self, key: Key, at: usize) {
        let all = Measure::OF_BLOCKS.len();
        match key {
            Key::Up | Key::Char('k') => self.mode = Mode::Metric((at + all - 1) % all),
            Key::Down | Key::Char('j') => self.mode = Mode::Metric((at + 1) % all),
            Key::Home => self.mode = Mode::Metric(0),
            Key::End => self.mode = Mode::Metric(all - 1),
            Key::Enter => {
                self.mode = Mode::Table;
                self.choose_metric(at);
            }
            _ => self.mode = Mode::Table,
        }
    }

    /// A key while the filter is typed, which is at work at once.
    fn press_in_filter(&mut self, key: Key, before: &str) {
        match key {
            Key::Enter => self.mode = Mode::Table,
            Key::Escape => {
                self.choice.filter = before.to_owned();
                self.mode = Mode::Table;
            }
            Key::Backspace if self.choice.filter.is_empty() => self.mode = Mode::Table,
            _ => edit(&mut self.choice.filter, key),
        }
        self.sort();
    }

    fn press_in_mark(&mut self, key: Key, mut name: String) -> Option<Action> {
        match key {
            Key::Enter => {
                self.mode = Mode::Table;
                let name = name.trim();
                if name.is_empty() {
                    self.message = Some(("a marker needs a name: nothing is marked".into(), true));
                    return None;
                }
                return Some(self.ask(&format!("mark {name}")));
            }
            Key::Escape => self.mode = Mode::Table,
            Key::Backspace if name.is_empty() => self.mode = Mode::Table,
            _ => {
                edit(&mut name, key);
                self.mode = Mode::Mark(name);
            }
        }
        None
    }
}

/// Types a key at the end of a text.
fn edit(text: &mut String, key: Key) {
    match key {
        Key::Char(letter) if !letter.is_control() && text.len() < LONGEST_TEXT => {
            text.push(letter);
        }
        Key::Backspace => {
            text.pop();
        }
        Key::Clear => text.clear(),
        _ => {}
    }
}
