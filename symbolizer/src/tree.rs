//! A tree: stacks that begin alike, told as one. From the root down, or from a function to its callers
//! or its callees.

use std::collections::BTreeMap;

use heapprof_core::Totals;

use crate::group::{By, parts};
use crate::metric::{Metric, Numbers};
use crate::profile::{CallStack, Profile};
use crate::symbols::Symbols;

/// Where a tree begins and where it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the root of each stack to the allocation.
    #[default]
    Down,
    /// From that function to those that called it.
    Callers(String),
    /// From that function to those it called.
    Callees(String),
}

/// A node: one frame (or group) below the same others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// What is called here.
    pub name: String,
    /// Of blocks whose path ends here.
    pub own: Numbers,
    /// Of blocks whose path leads here.
    pub total: Numbers,
    /// The same with errors.
    pub totals: Totals,
    /// Largest first.
    pub children: Vec<Node>,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// Holds the whole, without a name.
    pub root: Node,
}

#[derive(Default)]
struct Growing {
    own: Numbers,
    total: Numbers,
    totals: Totals,
    children: BTreeMap<String, Growing>,
}

impl Tree {
    /// The tree of a profile. Groupings that are not about frames are the first level, with the functions
    /// below. A function is meant by its whole name, or by the name without arguments.
    pub fn of(
        profile: &Profile,
        symbols: &Symbols,
        by: By,
        direction: &Direction,
        metric: Metric,
    ) -> Tree {
        let frames_by = if by.is_place() { by } else { By::Function };
        let paths: Vec<Vec<(String, bool)>> = profile
            .stacks
            .iter()
            .map(|stack| frames(profile, symbols, frames_by, direction, stack))
            .collect();
        let mut root = Growing::default();
        for (group, stack, totals) in parts(profile, symbols, by) {
            let numbers = Numbers::of(&totals);
            let Some(path) = paths.get(stack as usize) else {
                continue;
            };
            let Some(path) = walk(path, direction) else {
                continue;
            };
            if numbers.is_zero() {
                continue;
            }
            let mut node = &mut root;
            node.add(numbers, &totals);
            for name in group.iter().chain(path) {
                node = node.children.entry(name.clone()).or_default();
                node.add(numbers, &totals);
            }
            node.own += numbers;
        }
        Tree {
            root: root.grown(String::new(), metric),
        }
    }
}

impl Growing {
    fn add(&mut self, numbers: Numbers, totals: &Totals) {
        self.total += numbers;
        self.totals.merge(totals);
    }

    fn grown(self, name: String, metric: Metric) -> Node {
        let mut children: Vec<Node> = self
            .children
            .into_iter()
            .map(|(name, child)| child.grown(name, metric))
            .collect();
        // Stable: equal ones stay in the order of their names.
        children.sort_by_key(|child| std::cmp::Reverse(child.total.get(metric)));
        Node {
            name,
            own: self.own,
            total: self.total,
            totals: self.totals,
            children,
        }
    }
}

/// The frames of a stack, outermost first, and whether each is the function that was asked for.
fn frames(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
    direction: &Direction,
    stack: &CallStack,
) -> Vec<(String, bool)> {
    let mut frames: Vec<(String, bool)> = Vec::new();
    for place in profile.places(stack) {
        for frame in symbols.frames(place) {
            let asked = match direction {
                Direction::Down => false,
                Direction::Callers(wanted) | Direction::Callees(wanted) => {
                    is_called(&symbols.function(profile, place, frame), wanted)
                }
            };
            let name = by.of_frame(profile, symbols, place, frame);
            // By file, module or crate, what stays inside is one step.
            match frames.last_mut() {
                Some(last) if last.0 == name && matches!(by, By::File | By::Module | By::Crate) => {
                    last.1 |= asked;
                }
                _ => frames.push((name, asked)),
            }
        }
    }
    if frames.is_empty() {
        frames.push(("(no stack)".into(), false));
    }
    frames.reverse();
    frames
}

fn is_called(function: &str, wanted: &str) -> bool {
    let plain = function.split(['(', '<']).next().unwrap_or(function);
    function == wanted || (!plain.is_empty() && plain == wanted)
}

/// The part of a stack that the tree shows, in the order in which it shows it. Of a recursive function, the
/// outermost call has the callees and the innermost the callers, so that each block counts once.
fn walk<'a>(
    path: &'a [(String, bool)],
    direction: &Direction,
) -> Option<Box<dyn Iterator<Item = &'a String> + 'a>> {
    let name = |(name, _): &'a (String, bool)| name;
    Some(match direction {
        Direction::Down => Box::new(path.iter().map(name)),
        Direction::Callees(_) => {
            let at = path.iter().position(|(_, asked)| *asked)?;
            Box::new(path[at..].iter().map(name))
        }
        Direction::Callers(_) => {
            let at = path.iter().rposition(|(_, asked)| *asked)?;
            Box::new(path[..=at].iter().rev().map(name))
        }
    })
}
