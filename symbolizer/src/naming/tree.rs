//! Tree: stacks that begin alike, drawn as one. It goes from the root down, or from a function to
//! its callers or callees.

use std::collections::HashMap;
use std::ops::Range;

use heapprof_core::Totals;

use crate::model::amount::Amount;
use crate::model::measure::Measure;
use crate::model::metric::Numbers;
use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::bare_name::BareName;
use crate::naming::crate_name::without_return_type;
use crate::naming::fold_library::fold;
use crate::naming::group::{By, parts};
use crate::naming::site::is_library_code;
use crate::naming::symbols::Symbols;

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

/// The part that a tree shows of the frames in standard libraries and allocators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LibraryFrames {
    /// The outermost one of the frames that call each other there. The program has called it.
    #[default]
    Folded,
    /// All frames.
    Shown,
}

/// A node: one frame (or group) below the same others.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The numbers of blocks whose path ends here.
    pub own: Numbers,
    /// The numbers of blocks whose path leads here.
    pub total: Numbers,
    /// The same with errors.
    pub totals: Totals,
    /// The amount that the tree is sorted by, of blocks whose path ends here.
    pub own_amount: Amount,
    /// The numbers of blocks whose path leads here.
    pub amount: Amount,
    /// Index of what is called here.
    name: u32,
    /// How many calls below the root.
    depth: u32,
    /// Indices of its children.
    children: Range<u32>,
}

/// See the module's text.
///
/// Stacks may be tens of thousands of calls deep once inlined ones are counted, so nothing here
/// recurses, and nodes lie in one list, which is also dropped without recursion:
///
/// ```text
///        (whole)              nodes: (whole) a b c d e       children of a: 3..5
///        a     b                            └┬─┘└┬┘ │
///       c d    e                      of (whole) of a of b
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    names: Vec<String>,
    /// Level by level, the root first; the children of a node side by side, largest first.
    nodes: Vec<Node>,
}

impl Tree {
    /// The tree of a profile. Groupings that are not about frames are the first level, with the
    /// functions below. A function is meant by its whole name; or by that without what it takes,
    /// what it returns, and the arguments of its template. Numbers of the past are unknown by
    /// thread and by process.
    pub fn of(
        profile: &Profile,
        symbols: &Symbols,
        by: By,
        direction: &Direction,
        measure: Measure,
        library_frames: LibraryFrames,
    ) -> Tree {
        let mut paths = Paths {
            profile,
            symbols,
            by: if by.is_place() { by } else { By::Function },
            direction,
            // Groups that are wider than a function say themselves what is the library's.
            folds: library_frames == LibraryFrames::Folded && !is_wide(by),
            names: Names::default(),
            frames: HashMap::new(),
        };
        let mut shape = Shape::default();
        let mut ends = Vec::new();
        let parts = parts(profile, symbols, by).into_iter().enumerate();
        for (part, (group, stack, totals)) in parts {
            let numbers = Numbers::of(&totals);
            let amount = match measure {
                Measure::Basic(metric) => Amount::of_metric(metric, &totals),
                // A part is no row then.
                _ if by.divides_rows() => Amount::default(),
                _ => measure.of_row(profile, part),
            };
            let Some(stack) = profile.stacks.get(stack as usize) else {
                continue;
            };
            let path = paths.of(stack);
            let Some(path) = walk(&path, direction) else {
                continue;
            };
            if numbers.is_zero() && amount == Amount::default() {
                continue;
            }
            let group = group.map(|group| paths.names.number(group));
            let end = shape.grow(group.into_iter().chain(path), amount.value);
            ends.push((end, numbers, totals, amount));
        }
        let names = paths.names.all;
        let (mut nodes, place_of) = shape.in_order(&names);
        for (end, numbers, totals, amount) in ends {
            let node = &mut nodes[place_of[end as usize] as usize];
            node.own += numbers;
            node.total += numbers;
            node.totals.merge(&totals);
            node.own_amount += amount;
            node.amount += amount;
        }
        // From the leaves up: children stand behind their parents.
        for parent in (0..nodes.len()).rev() {
            for child in nodes[parent].children.clone() {
                let child = nodes[child as usize].clone();
                nodes[parent].total += child.total;
                nodes[parent].totals.merge(&child.totals);
                nodes[parent].amount += child.amount;
            }
        }
        Tree { names, nodes }
    }

    /// Holds the whole, without a name.
    pub fn root(&self) -> &Node {
        &self.nodes[0]
    }

    /// Level by level, the root first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the name of a node.
    pub fn name(&self, node: &Node) -> &str {
        &self.names[node.name as usize]
    }

    /// Those below a node, largest first; equal ones by name.
    pub fn children(&self, node: &Node) -> &[Node] {
        &self.nodes[node.children.start as usize..node.children.end as usize]
    }
}

impl Node {
    /// How many calls below the root.
    pub fn depth(&self) -> usize {
        self.depth as usize
    }
}

/// The names of a tree, each once.
struct Names {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Default for Names {
    /// The root's is the first.
    fn default() -> Self {
        Names {
            all: vec![String::new()],
            numbers: HashMap::new(),
        }
    }
}

impl Names {
    fn number(&mut self, name: String) -> u32 {
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.all.push(name.clone());
            self.all.len() as u32 - 1
        })
    }
}

/// A tree while it grows: of each node only what says where it will stand.
struct Shape {
    drafts: Vec<DraftNode>,
    /// By parent and name.
    below: HashMap<(u32, u32), u32>,
}

struct DraftNode {
    parent: u32,
    name: u32,
    /// The value that it is sorted by.
    value: f64,
}

impl Default for Shape {
    fn default() -> Self {
        let root = DraftNode {
            parent: 0,
            name: 0,
            value: 0.0,
        };
        Shape {
            drafts: vec![root],
            below: HashMap::new(),
        }
    }
}

impl Shape {
    /// Adds a path of names; returns its end.
    fn grow(&mut self, path: impl Iterator<Item = u32>, value: f64) -> u32 {
        let mut node = 0;
        for name in path {
            let drafts = &mut self.drafts;
            node = *self.below.entry((node, name)).or_insert_with(|| {
                drafts.push(DraftNode {
                    parent: node,
                    name,
                    value: 0.0,
                });
                drafts.len() as u32 - 1
            });
            self.drafts[node as usize].value += value;
        }
        node
    }

    /// The nodes as a tree has them, without numbers, and where each draft stands among them.
    fn in_order(self, names: &[String]) -> (Vec<Node>, Vec<u32>) {
        let Shape { drafts, below } = self;
        drop(below);
        let of = |draft: u32| &drafts[draft as usize];
        let mut sorted: Vec<u32> = (1..drafts.len() as u32).collect();
        sorted.sort_unstable_by(|&a, &b| {
            let name = |draft: &DraftNode| &names[draft.name as usize];
            let (a, b) = (of(a), of(b));
            (a.parent.cmp(&b.parent))
                .then_with(|| b.value.total_cmp(&a.value))
                .then_with(|| name(a).cmp(name(b)))
        });
        // Where in `sorted` the children of each begin; one more for the last one's end.
        let mut begins = vec![0; drafts.len() + 1];
        for &child in &sorted {
            begins[of(child).parent as usize + 1] += 1;
        }
        for parent in 0..drafts.len() {
            begins[parent + 1] += begins[parent];
        }
        let mut standing: Vec<u32> = vec![0];
        let mut place_of = vec![0; drafts.len()];
        let mut nodes: Vec<Node> = Vec::with_capacity(drafts.len());
        while let Some(&draft) = standing.get(nodes.len()) {
            place_of[draft as usize] = nodes.len() as u32;
            let parent = &nodes.get(place_of[of(draft).parent as usize] as usize);
            let depth = parent.map_or(0, |parent| parent.depth + 1);
            let first = standing.len() as u32;
            standing.extend(&sorted[begins[draft as usize]..begins[draft as usize + 1]]);
            nodes.push(Node {
                own: Numbers::default(),
                total: Numbers::default(),
                totals: Totals::default(),
                own_amount: Amount::default(),
                amount: Amount::default(),
                name: of(draft).name,
                depth,
                children: first..standing.len() as u32,
            });
        }
        (nodes, place_of)
    }
}

/// A frame in a path.
#[derive(Debug, Clone, Copy)]
struct Step {
    name: u32,
    /// True for the function that was asked for.
    asked: bool,
    /// True for internal code of a standard library, and for an allocation function.
    is_library_code: bool,
}

/// Returns true for groups by which all frames that stay inside are one step.
fn is_wide(by: By) -> bool {
    matches!(by, By::File | By::Module | By::Crate)
}

/// Gives the paths of stacks.
struct Paths<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    by: By,
    direction: &'a Direction,
    /// True if only the outermost one of library frames that call each other is a step.
    folds: bool,
    names: Names,
    /// The steps of each place, innermost first: stacks share most places.
    frames: HashMap<Place, Vec<Step>>,
}

impl Paths<'_> {
    /// The frames of a stack, outermost first.
    fn of(&mut self, stack: &CallStack) -> Vec<Step> {
        let profile = self.profile;
        let is_wide = is_wide(self.by);
        let mut path: Vec<Step> = Vec::new();
        for place in profile.places(stack) {
            for &step in self.frames_of(place) {
                match path.last_mut() {
                    Some(last) if is_wide && last.name == step.name => last.asked |= step.asked,
                    _ => path.push(step),
                }
            }
        }
        if path.is_empty() {
            path.push(Step {
                name: self.names.number("(no stack)".into()),
                asked: false,
                is_library_code: false,
            });
        }
        path.reverse();
        if self.folds {
            fold(&mut path, |step| step.is_library_code, |step| step.asked);
        }
        path
    }

    fn frames_of(&mut self, place: Place) -> &[Step] {
        let Paths {
            profile,
            symbols,
            by,
            direction,
            names,
            frames,
            ..
        } = self;
        frames.entry(place).or_insert_with(|| {
            let frames = symbols.frames(place).iter();
            frames
                .map(|frame| {
                    let asked = match direction {
                        Direction::Down => false,
                        Direction::Callers(wanted) | Direction::Callees(wanted) => {
                            is_called(&symbols.function(profile, place, frame), wanted)
                        }
                    };
                    let function = symbols.function(profile, place, frame);
                    let module = profile.module_of(place);
                    Step {
                        name: names.number(by.of_frame(profile, symbols, place, frame)),
                        asked,
                        is_library_code: is_library_code(module, &function, frame.file.as_deref()),
                    }
                })
                .collect()
        })
    }
}

fn is_called(function: &str, wanted: &str) -> bool {
    let named = without_return_type(without_parameters(function));
    let plain = without_brackets(named, '<', '>');
    function == wanted
        || [without_parameters(function), named, plain].contains(&wanted)
        || is_without_parameters_of(function, wanted)
}

/// Returns true if the function is the wanted one, but has lost its parameters.
fn is_without_parameters_of(function: &str, wanted: &str) -> bool {
    let wanted = BareName::of(wanted);
    if !wanted.is_detailed {
        return false;
    }
    let function = BareName::of(function);
    !function.is_detailed && function.text == wanted.text
}

/// `f` of `f(int) const`.
fn without_parameters(function: &str) -> &str {
    let mut name = function;
    // GCC splits a function: `f(int) [clone .cold]`.
    if name.ends_with(']') {
        name = name.rfind(" [").map_or(name, |at| &name[..at]);
    }
    let qualifiers = [" const", " volatile", " &&", " &", " noexcept"];
    while let Some(rest) = (qualifiers.iter()).find_map(|qualifier| name.strip_suffix(qualifier)) {
        name = rest;
    }
    let rest = without_brackets(name, '(', ')');
    // `operator()` without parameters, and a name of nothing but a remark, such as `(no stack)`.
    let is_name = rest.len() < name.len() && !rest.is_empty() && !rest.ends_with("operator");
    match is_name && !name.ends_with("(anonymous namespace)") {
        true => rest,
        false => function,
    }
}

/// The name without the brackets that it ends with, if it does.
fn without_brackets(name: &str, open: char, close: char) -> &str {
    if !name.ends_with(close) || name.ends_with("->") || name.ends_with("operator>") {
        return name;
    }
    let mut depth = 0usize;
    for (at, c) in name.char_indices().rev() {
        if c == close {
            depth += 1;
        } else if c == open {
            depth -= 1;
        }
        if depth == 0 {
            // Rust's `<Type as Trait>` is no template.
            return if at > 0 { &name[..at] } else { name };
        }
    }
    name
}

/// The part of a stack that the tree shows, in the order in which it shows it. For a recursive
/// function, the outermost call has the callees and the innermost the callers, so that each block
/// counts once.
fn walk<'a>(path: &'a [Step], direction: &Direction) -> Option<Box<dyn Iterator<Item = u32> + 'a>> {
    let name = |step: &Step| step.name;
    Some(match direction {
        Direction::Down => Box::new(path.iter().map(name)),
        Direction::Callees(_) => {
            let at = path.iter().position(|step| step.asked)?;
            Box::new(path[at..].iter().map(name))
        }
        Direction::Callers(_) => {
            let at = path.iter().rposition(|step| step.asked)?;
            Box::new(path[..=at].iter().rev().map(name))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_meant_by_their_names() {
        for (function, names) in [
            ("demo::init(int)", &["demo::init"][..]),
            ("Tpl<Item, 3>::make()", &["Tpl<Item, 3>::make"]),
            (
                "ns::(anonymous namespace)::anon(unsigned long)",
                &["ns::(anonymous namespace)::anon"],
            ),
            ("void* site<9>()", &["site", "site<9>", "void* site<9>"]),
            ("site<9>", &["site"]),
            ("Cache::get(int) const", &["Cache::get"]),
            ("f(int) [clone .cold]", &["f"]),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                &["main::{lambda(int)#1}::operator()"],
            ),
            ("take(void (*)(int), int)", &["take"]),
            ("alloc::vec::Vec<T>::push", &[]),
            ("<u8 as Clone>::clone", &[]),
            ("operator new(unsigned long)", &["operator new"]),
            ("P::operator->() const", &["P::operator->"]),
            ("operator>(A const&, A const&)", &["operator>"]),
            ("(no stack)", &[]),
            // Inlined functions with internal linkage have no parameters.
            ("register_user", &["register_user(int)"]),
        ] {
            for name in names.iter().chain([&function]) {
                assert!(is_called(function, name), "{name} of {function}");
            }
            for part in [
                "", "Tpl", "ns::", "demo", "Cache", "main", "alloc", "operator", "void*", "P",
            ] {
                assert!(!is_called(function, part), "{part} of {function}");
            }
        }
    }
}
