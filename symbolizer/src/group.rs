//! A group: what the numbers are added up by. By where in the code (function, line, file, module), or by
//! what a block is (thread, size, type).
//!
//! Of the first kind, a block's own group is that of its own site ([`Sites`](crate::Sites) says which
//! frame that is) and its cumulative ones are those of all its frames, each once. Of the second kind, a
//! block has one group, and own and cumulative are the same.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use heapprof_core::Totals;

use crate::metric::{Metric, Numbers};
use crate::profile::{Ending, Place, Profile};
use crate::quantity::Bytes;
use crate::resolve::Frame;
use crate::site::{is_allocator, is_library};
use crate::symbols::Symbols;
use crate::type_name::{UNKNOWN, type_of};

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum By {
    /// The function.
    #[default]
    Function,
    /// The function and the line in it.
    Line,
    /// The source file.
    File,
    /// The program or library.
    Module,
    /// The thread that allocated. Needs a profile read with [`Detail::threads`](crate::Detail::threads).
    Thread,
    /// The size class of the request.
    Size,
    /// The type, as far as the names of functions tell.
    Type,
}

impl By {
    /// All of them.
    pub const ALL: [By; 7] = [
        By::Function,
        By::Line,
        By::File,
        By::Module,
        By::Thread,
        By::Size,
        By::Type,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            By::Function => "function",
            By::Line => "line",
            By::File => "file",
            By::Module => "module",
            By::Thread => "thread",
            By::Size => "size",
            By::Type => "type",
        }
    }

    /// Whether it is about frames, and not about blocks.
    pub fn is_place(self) -> bool {
        matches!(self, By::Function | By::Line | By::File | By::Module)
    }

    /// The group of a frame, for those that are about frames.
    pub fn of_frame(
        self,
        profile: &Profile,
        symbols: &Symbols,
        place: Place,
        frame: &Frame,
    ) -> String {
        let module = || {
            profile
                .module_of(place)
                .map_or("[no module]", |module| &module.path)
                .to_owned()
        };
        match (self, &frame.file, frame.line) {
            (By::Module, ..) => module(),
            (By::File, Some(file), _) => file.to_string(),
            (By::File, None, _) => module(),
            (By::Line, Some(file), Some(line)) => {
                format!("{} {file}:{line}", symbols.function(profile, place, frame))
            }
            _ => symbols.function(profile, place, frame),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A group with its numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// Of blocks whose own group it is.
    pub own: Numbers,
    /// The same with errors.
    pub own_totals: Totals,
    /// Of blocks that have to do with it.
    pub cumulative: Numbers,
    /// The same with errors.
    pub cumulative_totals: Totals,
}

/// The groups of a profile, largest first by own numbers of the metric, or by cumulative ones; equal ones by
/// name.
pub fn groups(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
    metric: Metric,
    cumulative: bool,
) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut add = |own: &str, all: &[String], totals: &Totals| {
        let numbers = Numbers::of(totals);
        let group = groups.entry(own.to_owned()).or_default();
        group.own += numbers;
        group.own_totals.merge(totals);
        for name in all {
            let group = groups.entry(name.clone()).or_default();
            group.cumulative += numbers;
            group.cumulative_totals.merge(totals);
        }
    };
    if by.is_place() {
        let mut of_stack: HashMap<u32, (String, Vec<String>)> = HashMap::new();
        for row in &profile.rows {
            let (own, all) = of_stack
                .entry(row.stack)
                .or_insert_with(|| names_of_stack(profile, symbols, by, row.stack));
            add(own, all, &row.totals);
        }
    } else {
        for (name, totals) in blocks(profile, symbols, by) {
            add(&name, std::slice::from_ref(&name), &totals);
        }
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|(name, group)| Group { name, ..group })
        .collect();
    groups.sort_by_key(|group| {
        let (own, all) = (group.own.get(metric), group.cumulative.get(metric));
        std::cmp::Reverse(if cumulative { (all, own) } else { (own, all) })
    });
    groups
}

/// Rows with the group of their blocks, for groupings that are not about frames.
fn blocks(profile: &Profile, symbols: &Symbols, by: By) -> Vec<(String, Totals)> {
    if let (By::Thread, Some(threads)) = (by, &profile.detail.threads) {
        return threads
            .iter()
            .map(|part| (thread_name(profile, part.thread), part.row.totals))
            .collect();
    }
    let mut types: HashMap<u32, String> = HashMap::new();
    let rows = profile.rows.iter().map(|row| {
        let name = match by {
            By::Size => format!("up to {}", Bytes(row.class.upper() as f64)),
            By::Thread => "(threads are not in this file)".into(),
            _ => types
                .entry(row.stack)
                .or_insert_with(|| block_type(profile, symbols, row.stack))
                .clone(),
        };
        (name, row.totals)
    });
    rows.collect()
}

/// Of each row of the profile, the group of its blocks; `None` for groupings about frames. By thread a row may
/// be of several: those that hold it with each one's part.
pub(crate) fn parts(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
) -> Vec<(Option<String>, u32, Totals)> {
    if by.is_place() {
        let rows = profile.rows.iter();
        return rows.map(|row| (None, row.stack, row.totals)).collect();
    }
    let stacks: Vec<u32> = match (by, &profile.detail.threads) {
        (By::Thread, Some(threads)) => threads.iter().map(|part| part.row.stack).collect(),
        _ => profile.rows.iter().map(|row| row.stack).collect(),
    };
    let blocks = blocks(profile, symbols, by);
    let with_stack = blocks.into_iter().zip(stacks);
    with_stack
        .map(|((name, totals), stack)| (Some(name), stack, totals))
        .collect()
}

/// `server (tid 77)`.
fn thread_name(profile: &Profile, number: u32) -> String {
    match profile.threads.iter().find(|t| t.number == number) {
        Some(thread) if thread.name.is_empty() => format!("tid {}", thread.tid),
        Some(thread) => format!("{} (tid {})", thread.name, thread.tid),
        None => format!("thread {number}"),
    }
}

fn block_type(profile: &Profile, symbols: &Symbols, stack: u32) -> String {
    let mut functions: Vec<String> = Vec::new();
    if let Some(stack) = profile.stacks.get(stack as usize) {
        for place in profile.places(stack) {
            for frame in symbols.frames(place) {
                functions.push(symbols.function(profile, place, frame));
            }
        }
    }
    type_of(functions.iter().map(String::as_str)).unwrap_or_else(|| UNKNOWN.into())
}

/// The own group and all groups of a stack, each once.
fn names_of_stack(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
    stack: u32,
) -> (String, Vec<String>) {
    let mut all = Vec::new();
    let (mut own, mut innermost) = (None, None);
    if let Some(stack) = profile.stacks.get(stack as usize) {
        // As for sites: a log's first address is of the profiler's own malloc, whatever its name.
        let first_is_ours = profile.run.ending != Ending::Snapshot;
        for (depth, place) in profile.places(stack).enumerate() {
            let is_ours = profile.module_of(place).is_some_and(|m| m.is_allocator());
            for frame in symbols.frames(place) {
                let name = by.of_frame(profile, symbols, place, frame);
                let function = symbols.function(profile, place, frame);
                let is_plumbing = is_ours
                    || depth == 0 && first_is_ours
                    || is_allocator(&function)
                    || is_library(&function);
                innermost.get_or_insert_with(|| name.clone());
                if !is_plumbing {
                    own.get_or_insert_with(|| name.clone());
                }
                all.push(name);
            }
        }
    }
    let own = own.or(innermost).unwrap_or_else(|| "(no stack)".into());
    all.push(own.clone());
    all.sort_unstable();
    all.dedup();
    (own, all)
}
