//! Table: the lines of a snapshot under a metric, a filter and a focus, in their order.
//!
//! Without a focus, a line is a site. With a focus, lines are the callers of a site, or what it
//! calls, step by step:
//!
//! ```text
//!   stack, innermost first    alloc  parse  read  main
//!   callers of parse                 ──┬──> read           a line for each that is there
//!   callers of parse < read            └──────────> main
//!   callees of parse          alloc <──┘
//! ```

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::history::lifetimes::Lifetimes;
use crate::model::amount::Amount;
use crate::model::measure::Measure;
use crate::naming::site::{SiteKey, SitePath};

use super::snapshot::Snapshot;

/// The subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A site, by its number.
    Site(u32),
    /// Nobody called it: it is the first of its thread.
    Root,
    /// It calls nothing: the blocks are its own.
    Own,
}

/// A way from a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Callers,
    Callees,
}

/// A site, and the way that was gone from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Focus {
    pub(super) direction: Direction,
    /// The site, and those that were entered from there.
    pub(super) path: Vec<u32>,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TableLine {
    pub(super) subject: Subject,
    /// The amount of blocks allocated there; with a focus, of all blocks that came this way.
    pub(super) own: Amount,
    /// The same with what is called from there.
    pub(super) all: Amount,
    /// Allocated a second.
    pub(super) rate: Amount,
    /// How fast it grows; if the user compares, its change since that moment.
    pub(super) growth: Amount,
    /// The lifetimes of its own blocks.
    pub(super) lifetimes: Lifetimes,
}

/// The order of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Own,
    All,
    Rate,
    Growth,
}

/// The choice of lines, and their order.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) measure: Measure,
    pub(super) by: By,
    pub(super) is_reversed: bool,
    /// Text that a line's function, file or module has.
    pub(super) filter: String,
    pub(super) focus: Option<Focus>,
}

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub(super) lines: Vec<TableLine>,
    /// The sum of what is shown, the filter aside.
    pub(super) whole: Amount,
    /// Number of lines that the filter hides.
    pub(super) hidden: usize,
}

impl Focus {
    /// The place in a stack where the way from the site leads on, if the stack goes this way.
    fn next(&self, stack: &SitePath) -> Option<Subject> {
        let sites = &stack.sites;
        let first = *self.path.first()?;
        // The innermost place for callers, the outermost for callees: a recursion is gone through.
        let start = match self.direction {
            Direction::Callers => sites.iter().position(|&site| site == first)?,
            Direction::Callees => sites.iter().rposition(|&site| site == first)?,
        };
        let at = |step: usize| match self.direction {
            Direction::Callers => sites.get(start + step),
            Direction::Callees => sites.get(start.checked_sub(step)?),
        };
        for (step, site) in self.path.iter().enumerate() {
            if at(step) != Some(site) {
                return None;
            }
        }
        Some(match (at(self.path.len()), self.direction) {
            (Some(&site), _) => Subject::Site(site),
            (None, Direction::Callers) => Subject::Root,
            (None, Direction::Callees) => Subject::Own,
        })
    }
}

impl Choice {
    /// The table of a snapshot.
    pub(super) fn table(&self, snapshot: &Snapshot) -> Table {
        let mut lines = TableLines::default();
        let mut whole = Amount::default();
        let mut is_done = vec![false; snapshot.profile.lifetimes.len()];
        let mut seen = Vec::new();
        for (index, row) in snapshot.profile.rows.iter().enumerate() {
            let Some(stack) = snapshot.paths.stacks.get(row.stack as usize) else {
                continue;
            };
            let amounts = Amounts::of(snapshot, index, self.measure);
            // A stack has several rows, and its lifetimes once.
            let is_new = (is_done.get_mut(row.stack as usize))
                .is_some_and(|is_done| !std::mem::replace(is_done, true));
            let lifetimes = snapshot.profile.lifetimes.get(row.stack as usize);
            let lifetimes = lifetimes.filter(|_| is_new);
            match &self.focus {
                None => {
                    lines.own(Subject::Site(stack.own), &amounts, lifetimes);
                    each_once(stack, &mut seen);
                    for &site in &seen {
                        lines.at(Subject::Site(site)).all += amounts.own;
                    }
                }
                Some(focus) => {
                    let Some(subject) = focus.next(stack) else {
                        continue;
                    };
                    lines.own(subject, &amounts, lifetimes);
                    lines.at(subject).all += amounts.own;
                }
            }
            whole += amounts.own;
        }
        let mut lines = lines.lines;
        lines.retain(|line| self.has_something(line));
        let before = lines.len();
        lines.retain(|line| self.lets_through(snapshot, line));
        let hidden = before - lines.len();
        lines.sort_by(|a, b| self.order(snapshot, a, b));
        Table {
            lines,
            whole,
            hidden,
        }
    }

    fn has_something(&self, line: &TableLine) -> bool {
        let amount = match self.by {
            By::All => line.all,
            _ => line.own,
        };
        // All that a site had may be gone since the moment that is compared with.
        if self.by == By::Growth && line.growth.value != 0.0 {
            return true;
        }
        match self.measure {
            Measure::Lifetime => line.lifetimes != Lifetimes::default(),
            measure if measure.is_growth() => amount.value != 0.0,
            _ => amount.value > 0.0,
        }
    }

    fn lets_through(&self, snapshot: &Snapshot, line: &TableLine) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        // Capitals count if there are any.
        let is_exact = self.filter.chars().any(char::is_uppercase);
        let has = |text: &str| match is_exact {
            true => text.contains(&self.filter),
            false => text.to_lowercase().contains(&self.filter),
        };
        let key = key_of(snapshot, line.subject);
        key.is_some_and(|key| {
            has(&key.function) || key.file.as_deref().is_some_and(has) || has(&key.module)
        })
    }

    /// The largest first, unless reversed; equal ones by name.
    fn order(&self, snapshot: &Snapshot, a: &TableLine, b: &TableLine) -> Ordering {
        let number = |line: &TableLine| match (self.by, self.measure) {
            (By::Rate, _) => line.rate.value,
            (By::Growth, _) => line.growth.value,
            // Those with no median outlive all others.
            (_, Measure::Lifetime) => line.lifetimes.median().unwrap_or(f64::MAX),
            (By::All, _) => line.all.value,
            (By::Own, _) => line.own.value,
        };
        let by_number = number(b).total_cmp(&number(a));
        let by_number = match self.is_reversed {
            true => by_number.reverse(),
            false => by_number,
        };
        by_number.then_with(|| {
            let key = |line: &TableLine| key_of(snapshot, line.subject);
            key(a).cmp(&key(b))
        })
    }
}

/// The site of a line, if it is about one.
pub(super) fn key_of(snapshot: &Snapshot, subject: Subject) -> Option<&SiteKey> {
    match subject {
        Subject::Site(site) => snapshot.paths.keys.get(site as usize),
        Subject::Root | Subject::Own => None,
    }
}

/// The sites that a stack passes, each once.
fn each_once(stack: &SitePath, seen: &mut Vec<u32>) {
    seen.clear();
    seen.extend_from_slice(&stack.sites);
    seen.push(stack.own);
    seen.sort_unstable();
    seen.dedup();
}

/// The amounts of a row.
struct Amounts {
    own: Amount,
    rate: Amount,
    growth: Amount,
}

impl Amounts {
    fn of(snapshot: &Snapshot, row: usize, measure: Measure) -> Amounts {
        let profile = &snapshot.profile;
        // A lifetime is told of blocks, and is beside the bytes that these are.
        let is_bytes = measure.is_bytes() || measure == Measure::Lifetime;
        Amounts {
            own: match measure {
                _ if measure.is_growth() => snapshot.growth_of_row(row, is_bytes),
                Measure::Basic(metric) => Amount::of_metric(metric, &profile.rows[row].totals),
                _ => measure.of_row(profile, row),
            },
            rate: snapshot.rates.of_row(row, is_bytes),
            growth: match &snapshot.comparison {
                Some(comparison) => comparison.of_row(row, is_bytes),
                None => snapshot.growth_of_row(row, is_bytes),
            },
        }
    }
}

/// Lines while they are added up.
#[derive(Default)]
struct TableLines {
    lines: Vec<TableLine>,
    by_subject: HashMap<Subject, usize>,
}

impl TableLines {
    fn at(&mut self, subject: Subject) -> &mut TableLine {
        let index = *self.by_subject.entry(subject).or_insert_with(|| {
            self.lines.push(TableLine {
                subject,
                own: Amount::default(),
                all: Amount::default(),
                rate: Amount::default(),
                growth: Amount::default(),
                lifetimes: Lifetimes::default(),
            });
            self.lines.len() - 1
        });
        &mut self.lines[index]
    }

    fn own(&mut self, subject: Subject, amounts: &Amounts, lifetimes: Option<&Lifetimes>) {
        let line = self.at(subject);
        line.own += amounts.own;
        line.rate += amounts.rate;
        line.growth += amounts.growth;
        if let Some(lifetimes) = lifetimes {
            line.lifetimes.merge(lifetimes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metric::Metric;
    use crate::watch::test_snapshots::{MAIN, PARSE, READ, TestSnapshots, VECTOR};

    fn choice() -> Choice {
        Choice {
            measure: Metric::InUseBytes.into(),
            by: By::Own,
            is_reversed: false,
            filter: String::new(),
            focus: None,
        }
    }

    /// Subjects and their amounts.
    fn shown(choice: &Choice, snapshot: &Snapshot) -> Vec<(Subject, f64, f64)> {
        let table = choice.table(snapshot);
        let lines = table.lines.iter();
        lines
            .map(|line| (line.subject, line.own.value, line.all.value))
            .collect()
    }

    /// parse and read allocate, main calls both, and parse calls itself once.
    fn snapshot() -> Snapshot {
        TestSnapshots::default()
            .stack(&[PARSE, READ, MAIN], 100, 10)
            .stack(&[PARSE, PARSE, MAIN], 300, 1)
            .stack(&[READ, MAIN], 50, 0)
            .snapshot()
    }

    #[test]
    fn a_line_is_a_site_with_its_own_and_all_that_is_called_from_there() {
        let snapshot = snapshot();
        let site = Subject::Site;
        assert_eq!(shown(&choice(), &snapshot), [(site(PARSE), 1300.0, 1300.0)]);
        let mut cumulative = choice();
        cumulative.by = By::All;
        assert_eq!(
            shown(&cumulative, &snapshot),
            [
                (site(MAIN), 0.0, 1300.0),
                (site(PARSE), 1300.0, 1300.0),
                (site(READ), 0.0, 1000.0),
            ]
        );
        cumulative.is_reversed = true;
        let last = shown(&cumulative, &snapshot).pop().unwrap();
        assert_eq!(
            last.0,
            site(PARSE),
            "equal ones are by name, reversed or not"
        );
        let mut allocated = choice();
        allocated.measure = Metric::AllocatedObjects.into();
        let lines = shown(&allocated, &snapshot);
        assert_eq!(lines[0], (site(PARSE), 13.0, 13.0));
        assert_eq!(lines[1], (site(READ), 1.0, 12.0));
    }

    #[test]
    fn callers_are_followed_outwards_and_callees_inwards() {
        let snapshot = snapshot();
        let ways = |direction, path: &[u32]| {
            let mut choice = choice();
            choice.focus = Some(Focus {
                direction,
                path: path.into(),
            });
            let lines = shown(&choice, &snapshot).into_iter();
            lines
                .map(|(subject, own, _)| (subject, own))
                .collect::<Vec<_>>()
        };
        let site = Subject::Site;
        let callers = |path: &[u32]| ways(Direction::Callers, path);
        assert_eq!(
            callers(&[PARSE]),
            [(site(READ), 1000.0), (site(PARSE), 300.0)]
        );
        assert_eq!(callers(&[PARSE, PARSE]), [(site(MAIN), 300.0)]);
        assert_eq!(callers(&[PARSE, READ, MAIN]), [(Subject::Root, 1000.0)]);
        assert_eq!(callers(&[VECTOR]), []);
        let callees = |path: &[u32]| ways(Direction::Callees, path);
        assert_eq!(
            callees(&[MAIN]),
            [(site(READ), 1000.0), (site(PARSE), 300.0)]
        );
        assert_eq!(callees(&[MAIN, READ]), [(site(PARSE), 1000.0)]);
        assert_eq!(callees(&[MAIN, READ, PARSE]), [(Subject::Own, 1000.0)]);
        // From the outermost call of a recursion.
        assert_eq!(callees(&[MAIN, PARSE]), [(site(PARSE), 300.0)]);
    }

    #[test]
    fn a_filter_is_text_of_a_function_a_file_or_a_module() {
        let snapshot = snapshot();
        let with = |filter: &str| {
            let mut choice = choice();
            choice.by = By::All;
            choice.filter = filter.into();
            let table = choice.table(&snapshot);
            (table.lines.len(), table.hidden, table.whole.value)
        };
        assert_eq!(with(""), (3, 0, 1300.0));
        assert_eq!(with("pars"), (1, 2, 1300.0));
        assert_eq!(with("reader.c"), (1, 2, 1300.0));
        assert_eq!(with("/bin/server"), (3, 0, 1300.0));
        assert_eq!(with("Pars"), (0, 3, 1300.0), "capitals count");
    }
}
