//! State: what the user sees and does, without a terminal and without a clock.
//!
//! ```text
//!   key ─> press ─┬─> state changes                   snapshot ─> take ─> table, selection
//!                 └─> Action, for the edge to do
//! ```
//!
//! A selection stays with its site while lines change their places, once the user has moved it.
//! Until then it stays at the first line.

mod keys;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::model::measure::Measure;
use crate::presence::Life;

use super::snapshot::Snapshot;
use super::table::{By, Choice, Subject, Table};

/// Lines of a page, until the first drawing says how many there are.
const PAGE: usize = 10;

/// A key, whatever the terminal sends for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Tab,
    /// Ctrl-U: what is typed goes.
    Clear,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
    Char(char),
}

/// A task for the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Leave a command for the program, as `heapprof ctl` does.
    Ask(String),
    Suspend,
    /// Compare with the heap of now, or no longer.
    Compare(bool),
    /// Draw all, also what has not changed.
    Redraw,
}

/// The purpose of keys now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Table,
    /// The filter is typed; this one was there before.
    Filter(String),
    /// The name of a mark is typed.
    Mark(String),
    /// A metric is chosen: the number of the one that is pointed at.
    Metric(usize),
    Help,
}

/// The part of the run that the curve shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zoom {
    Whole,
    /// The last so many seconds.
    Last(u64),
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct State {
    /// The log's path, to be named.
    pub(super) log: PathBuf,
    /// The newest; `None` before the first.
    pub(super) snapshot: Option<Box<Snapshot>>,
    pub(super) choice: Choice,
    /// The choices and selections to go back to.
    ways_back: Vec<(Choice, Option<Subject>)>,
    pub(super) table: Table,
    /// Index of the selected line.
    pub(super) selected: usize,
    /// The subject that the selection stays with.
    follows: Option<Subject>,
    /// Index of the first line that is shown.
    pub(super) first: usize,
    /// Lines that there is room for.
    page: usize,
    pub(super) mode: Mode,
    /// The snapshot that came while the view is paused; `None`: it is not paused.
    paused: Option<Option<Box<Snapshot>>>,
    /// Whether the user asked to compare, or no longer to, and no snapshot shows it yet.
    awaits_comparison: Option<bool>,
    pub(super) zoom: Zoom,
    /// The last answer or refusal; true: a refusal.
    pub(super) message: Option<(String, bool)>,
    /// A command that has no answer yet.
    pub(super) asked: Option<String>,
}

impl State {
    pub(super) fn new(log: PathBuf, measure: Measure, filter: String) -> State {
        State {
            log,
            snapshot: None,
            choice: Choice {
                measure,
                by: By::Own,
                is_reversed: false,
                filter,
                focus: None,
            },
            ways_back: Vec::new(),
            table: Table::default(),
            selected: 0,
            follows: None,
            first: 0,
            page: PAGE,
            mode: Mode::Table,
            paused: None,
            awaits_comparison: None,
            zoom: Zoom::Whole,
            message: None,
            asked: None,
        }
    }

    /// Whether changes since a moment are shown.
    pub(super) fn is_compared(&self) -> bool {
        let snapshot = self.snapshot.as_ref();
        snapshot.is_some_and(|snapshot| snapshot.comparison.is_some())
    }

    /// Whether the process runs, as far as is known.
    pub(super) fn is_running(&self) -> bool {
        let snapshot = self.snapshot.as_ref();
        snapshot.is_some_and(|snapshot| snapshot.life == Life::Running)
    }

    /// The number of the process in its log; 0: not known.
    pub(super) fn pid(&self) -> u32 {
        let snapshot = self.snapshot.as_ref();
        snapshot.map_or(0, |snapshot| snapshot.profile.run.pid)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Takes a newer snapshot. While the view is paused it waits, unless it is the first one, or
    /// shows the comparison that the user asked for.
    pub(super) fn take(&mut self, snapshot: Box<Snapshot>) {
        let is_compared = self.awaits_comparison == Some(snapshot.comparison.is_some());
        let is_awaited = is_compared || self.snapshot.is_none();
        if is_compared {
            self.awaits_comparison = None;
        }
        if is_awaited {
            self.paused = self.paused.take().map(|_| None);
        } else if let Some(waiting) = &mut self.paused {
            *waiting = Some(snapshot);
            return;
        }
        let generation = self.snapshot.as_ref().map(|it| it.generation);
        if generation.is_some_and(|it| it != snapshot.generation) {
            self.choice.focus = None;
            self.ways_back.clear();
            self.follows = None;
            self.message = Some(("the log began anew".into(), false));
        }
        self.snapshot = Some(snapshot);
        self.sort();
    }

    /// Takes the program's answer to a command.
    pub(super) fn answered(&mut self, answer: Result<String, String>) {
        self.asked = None;
        self.message = Some(match answer {
            Ok(answer) => (answer, false),
            Err(why) => (why, true),
        });
    }

    /// Says how many lines there is room for.
    pub(super) fn has_room_for(&mut self, lines: usize) {
        self.page = lines.max(1);
        self.keep_in_sight();
    }

    /// Makes the table anew, and finds the selected line in it.
    fn sort(&mut self) {
        let Some(snapshot) = &self.snapshot else {
            return;
        };
        self.table = self.choice.table(snapshot);
        let lines = &self.table.lines;
        if let Some(subject) = self.follows {
            let found = lines.iter().position(|line| line.subject == subject);
            self.selected = found.unwrap_or(self.selected);
        } else {
            self.selected = 0;
        }
        self.keep_in_sight();
    }

    fn keep_in_sight(&mut self) {
        let lines = self.table.lines.len();
        self.selected = self.selected.min(lines.saturating_sub(1));
        let last_first = lines.saturating_sub(self.page);
        let least = (self.selected + 1).saturating_sub(self.page);
        self.first = self
            .first
            .clamp(least, self.selected)
            .min(last_first.max(least));
    }

    /// Moves the selection to a line.
    fn select(&mut self, line: usize) {
        self.selected = line.min(self.table.lines.len().saturating_sub(1));
        self.follows = match self.selected {
            0 => None,
            at => self.table.lines.get(at).map(|line| line.subject),
        };
        self.keep_in_sight();
    }
}
