//! Group: what numbers are added up by.
//!
//! A group is a part of the code (function, line, file, module, crate) or a property of the block
//! (thread, size, type, allocator, label). In the first case, the block's own group is that of its
//! own site ([`Sites`](crate::Sites) says which frame that is), and its cumulative groups are those
//! of all its frames, each once. In the second case, a block has one group, and own and cumulative
//! are equal.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use heapprof_core::Totals;
use heapprof_format::Thread;

use crate::model::extras::ThreadRow;
use crate::model::labels::NO_LABEL;
use crate::model::mapped_memory::{ANONYMOUS_MAPPING, MAPPING};
use crate::model::metric::{Metric, Numbers};
use crate::model::profile::{Place, Profile};
use crate::model::quantity::Bytes;
use crate::model::special_threads::{name_of_thread, name_of_unknown_thread};
use crate::naming::allocator_name::{ARENAS, allocator_of, is_of_pymalloc};
use crate::naming::crate_name::{crate_of, crate_of_file};
use crate::naming::own_frame::OwnFrame;
use crate::naming::site::is_library_code;
use crate::naming::symbols::Symbols;
use crate::naming::type_name::{UNKNOWN, type_of};
use crate::resolve::Frame;

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
    /// The Rust crate, or the outermost namespace of C++; for names that have neither, the module's
    /// file name.
    Crate,
    /// The thread that allocated. Needs a profile read with
    /// [`WantedExtras::threads`](crate::WantedExtras::threads).
    Thread,
    /// The process that allocated, if there are several. Needs the same.
    Process,
    /// The size class of the request.
    Size,
    /// The type, as far as the names of functions tell.
    Type,
    /// The allocator that gave out the block.
    Allocator,
    /// The name of a mapping. Needs a profile read with
    /// [`ReadRequest::mappings`](crate::ReadRequest::mappings).
    Mapping,
    /// The value of a label of the program; see [`By::label`].
    Label(&'static str),
}

/// Beginning of the names of groupings by label.
const LABEL: &str = "label:";

impl By {
    /// All of them, without those by label.
    pub const ALL: [By; 11] = [
        By::Function,
        By::Line,
        By::File,
        By::Module,
        By::Crate,
        By::Thread,
        By::Process,
        By::Size,
        By::Type,
        By::Allocator,
        By::Mapping,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            By::Function => "function",
            By::Line => "line",
            By::File => "file",
            By::Module => "module",
            By::Crate => "crate",
            By::Thread => "thread",
            By::Process => "process",
            By::Size => "size",
            By::Type => "type",
            By::Allocator => "allocator",
            By::Mapping => "mapping",
            By::Label(name) => name,
        }
    }

    /// Returns the grouping by a label, by its name on the command line: `label:` and the key. Each
    /// call takes a few bytes for good, so it is for what a person asks for.
    pub fn label(name: &str) -> Option<By> {
        let key = name.strip_prefix(LABEL)?;
        (!key.is_empty()).then(|| By::Label(Box::leak(name.into())))
    }

    /// Returns true if it is about frames, and not about blocks.
    pub fn is_place(self) -> bool {
        !matches!(
            self,
            By::Thread
                | By::Process
                | By::Size
                | By::Type
                | By::Allocator
                | By::Mapping
                | By::Label(_)
        )
    }

    /// Returns true if the numbers of a row may be of several: it needs a profile read with
    /// [`WantedExtras::threads`](crate::WantedExtras::threads).
    pub fn divides_rows(self) -> bool {
        matches!(self, By::Thread | By::Process)
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
            (By::Crate, file, _) => match crate_of_frame(frame, file.as_deref()) {
                Some(name) => name.into_owned(),
                None => match profile.module_of(place) {
                    Some(module) => module.name().to_owned(),
                    None => module(),
                },
            },
            (By::File, Some(file), _) => file.to_string(),
            (By::File, None, _) => module(),
            (By::Line, Some(file), Some(line)) => {
                format!("{} {file}:{line}", symbols.function(profile, place, frame))
            }
            _ => symbols.function(profile, place, frame),
        }
    }
}

/// The crate or the namespace by the function's name, or else by its file.
fn crate_of_frame<'a>(frame: &'a Frame, file: Option<&'a str>) -> Option<Cow<'a, str>> {
    let by_name = frame.function.as_deref().and_then(crate_of);
    (by_name.map(Cow::Borrowed)).or_else(|| crate_of_file(file?))
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A group with its numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The numbers of blocks whose own group it is.
    pub own: Numbers,
    /// The same with errors.
    pub own_totals: Totals,
    /// The numbers of all blocks that belong to it.
    pub cumulative: Numbers,
    /// The same with errors.
    pub cumulative_totals: Totals,
}

/// The groups of a profile, largest first by own numbers of the metric, or by cumulative ones;
/// equal ones by name.
pub fn groups(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
    metric: Metric,
    cumulative: bool,
) -> Vec<Group> {
    let map = GroupMap::of(profile, symbols, by);
    let mut groups: Vec<Group> = Vec::new();
    groups.extend(map.names.iter().map(|name| Group {
        name: name.clone(),
        ..Group::default()
    }));
    for (part, totals) in map.totals(profile).into_iter().enumerate() {
        let numbers = Numbers::of(&totals);
        let own = &mut groups[map.own(part)];
        own.own += numbers;
        own.own_totals.merge(&totals);
        for &group in map.all(part) {
            let group = &mut groups[group as usize];
            group.cumulative += numbers;
            group.cumulative_totals.merge(&totals);
        }
    }
    groups.sort_by(|a, b| {
        let of = |group: &Group| {
            let (own, all) = (group.own.get(metric), group.cumulative.get(metric));
            if cumulative { (all, own) } else { (own, all) }
        };
        of(b).cmp(&of(a)).then_with(|| a.name.cmp(&b.name))
    });
    groups
}

/// The groups that the blocks of each row belong to. Only by thread and by process may a row belong
/// to several groups: its parts are then those of [`Extras::threads`](crate::Extras::threads).
#[derive(Debug)]
pub struct GroupMap {
    by: By,
    names: Vec<String>,
    /// Own group and all groups, each once.
    sets: Vec<(u32, Vec<u32>)>,
    /// By part, the index of its set.
    of_part: Vec<u32>,
}

impl GroupMap {
    /// That of a profile.
    pub fn of(profile: &Profile, symbols: &Symbols, by: By) -> GroupMap {
        let mut map = GroupMap {
            by,
            names: Vec::new(),
            sets: Vec::new(),
            of_part: Vec::new(),
        };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut set_of: HashMap<Key, u32> = HashMap::new();
        let owners = Owners::of(profile, by);
        let keys: Vec<Key> = match (by, &profile.extras.threads) {
            (By::Thread, Some(threads)) => threads.iter().map(|t| Key::Thread(t.thread)).collect(),
            (By::Process, Some(threads)) => {
                let process = |t: &ThreadRow| owners.process_of(t.thread);
                threads.iter().map(process).collect()
            }
            (By::Process, None) if profile.parts.is_empty() => {
                profile.rows.iter().map(|_| Key::Process(None)).collect()
            }
            (By::Thread | By::Process, None) => {
                profile.rows.iter().map(|_| Key::NoThreads).collect()
            }
            (By::Size, _) => {
                let upper = |row: &heapprof_core::Row| Key::Size(row.class.upper());
                profile.rows.iter().map(upper).collect()
            }
            _ => profile
                .rows
                .iter()
                .map(|row| Key::Stack(row.stack))
                .collect(),
        };
        for key in keys {
            let set = *set_of.entry(key).or_insert_with(|| {
                let (own, all) = key.groups(profile, symbols, &owners, by);
                let mut number = |name: String| {
                    let names = &mut map.names;
                    *numbers.entry(name).or_insert_with_key(|name| {
                        names.push(name.clone());
                        names.len() as u32 - 1
                    })
                };
                let own = number(own);
                let mut all: Vec<u32> = all.into_iter().map(number).chain([own]).collect();
                all.sort_unstable();
                all.dedup();
                map.sets.push((own, all));
                map.sets.len() as u32 - 1
            });
            map.of_part.push(set);
        }
        map
    }

    /// The groups' names; the indices below are theirs.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.of_part.len()
    }

    /// The group whose own the blocks of a part are.
    pub fn own(&self, part: usize) -> usize {
        self.sets[self.of_part[part] as usize].0 as usize
    }

    /// The groups that they have to do with, each once.
    pub fn all(&self, part: usize) -> &[u32] {
        &self.sets[self.of_part[part] as usize].1
    }

    /// The numbers of each part.
    fn totals(&self, profile: &Profile) -> Vec<Totals> {
        match &profile.extras.threads {
            Some(threads) if self.by.divides_rows() => {
                threads.iter().map(|part| part.row.totals).collect()
            }
            _ => profile.rows.iter().map(|row| row.totals).collect(),
        }
    }
}

/// The property that decides the groups of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Stack(u32),
    /// The largest request of a size class.
    Size(u64),
    Thread(u32),
    /// By its place among those that were added up or joined; of one alone there is none.
    Process(Option<usize>),
    NoThreads,
}

impl Key {
    fn groups(
        self,
        profile: &Profile,
        symbols: &Symbols,
        owners: &Owners<'_>,
        by: By,
    ) -> (String, Vec<String>) {
        match self {
            Key::Stack(stack) => match by {
                By::Type => (block_type(profile, symbols, stack), vec![]),
                By::Allocator => (allocator_of(profile, symbols, stack), vec![]),
                By::Mapping => (mapping_of(profile, symbols, stack), vec![]),
                By::Label(name) => (label_of(profile, name, stack), vec![]),
                _ => names_of_stack(profile, symbols, by, stack),
            },
            Key::Size(upper) => (format!("up to {}", Bytes(upper as f64)), vec![]),
            Key::Thread(thread) => (owners.thread_name(thread), vec![]),
            Key::Process(place) => (owners.process_name(place), vec![]),
            Key::NoThreads => ("(threads are not in this file)".into(), vec![]),
        }
    }
}

/// The threads and processes of a profile by their numbers: each of as many rows asks for one of as
/// many.
struct Owners<'a> {
    profile: &'a Profile,
    threads: HashMap<u32, &'a Thread>,
    /// Where the threads of each process begin, ascending, and its place among the processes.
    begins: Vec<(u32, usize)>,
    /// How many processes have that number and name.
    namesakes: HashMap<(u32, &'a str), usize>,
}

impl<'a> Owners<'a> {
    /// Those of a profile; none where rows are not divided by them.
    fn of(profile: &'a Profile, by: By) -> Owners<'a> {
        let mut owners = Owners {
            profile,
            threads: HashMap::new(),
            begins: Vec::new(),
            namesakes: HashMap::new(),
        };
        if !by.divides_rows() {
            return owners;
        }
        for thread in &profile.threads {
            owners.threads.entry(thread.number).or_insert(thread);
        }
        for (place, part) in profile.parts.iter().enumerate() {
            if !part.threads.is_empty() {
                owners.begins.push((part.threads.start, place));
            }
            let same = (part.run.pid, part.run.name());
            *owners.namesakes.entry(same).or_default() += 1;
        }
        owners.begins.sort_unstable();
        owners
    }

    /// Returns the process of a thread. Blocks from before a fork, or from before the kept part of
    /// a log, belong to no process, and stay with the thread that the log names.
    fn process_of(&self, thread: u32) -> Key {
        let parts = &self.profile.parts;
        let after = self.begins.partition_point(|(begin, _)| *begin <= thread);
        let last = after.checked_sub(1).map(|before| self.begins[before].1);
        match last.filter(|&place| parts[place].threads.contains(&thread)) {
            None if !parts.is_empty() => Key::Thread(thread),
            place => Key::Process(place),
        }
    }

    /// `server, pid 77`, with its log where there are several of that number: of processes that
    /// became another program, or of containers.
    fn process_name(&self, place: Option<usize>) -> String {
        let Some(part) = place.and_then(|place| self.profile.parts.get(place)) else {
            return self.profile.process_name();
        };
        match self.namesakes.get(&(part.run.pid, part.run.name())) {
            Some(2..) => format!("{} ({})", part.run.process_name(), part.file),
            _ => part.run.process_name(),
        }
    }

    /// `server (tid 77)`.
    fn thread_name(&self, number: u32) -> String {
        match self.threads.get(&number) {
            Some(thread) => name_of_thread(thread),
            None => name_of_unknown_thread(number),
        }
    }
}

/// Returns the group of the blocks of each row; `None` for groupings by frames. By thread and by
/// process a row may have several groups, each with its part.
pub(crate) fn parts(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
) -> Vec<(Option<String>, u32, Totals)> {
    if by.is_place() {
        let rows = profile.rows.iter();
        return rows.map(|row| (None, row.stack, row.totals)).collect();
    }
    let map = GroupMap::of(profile, symbols, by);
    let stacks: Vec<u32> = match &profile.extras.threads {
        Some(threads) if by.divides_rows() => threads.iter().map(|part| part.row.stack).collect(),
        _ => profile.rows.iter().map(|row| row.stack).collect(),
    };
    let parts = map.totals(profile).into_iter().zip(stacks).enumerate();
    parts
        .map(|(part, (totals, stack))| {
            let name = map.names[map.own(part)].clone();
            (Some(name), stack, totals)
        })
        .collect()
}

fn block_type(profile: &Profile, symbols: &Symbols, stack: u32) -> String {
    let mut functions: Vec<(String, Option<&str>)> = Vec::new();
    if let Some(stack) = profile.stacks.get(stack as usize) {
        for place in profile.places(stack) {
            for frame in symbols.frames(place) {
                let function = symbols.function(profile, place, frame);
                let name = frame.function.as_deref();
                functions.push((function, name.and_then(|name| name.generic_arguments())));
            }
        }
    }
    let functions = functions
        .iter()
        .map(|(name, generic)| (name.as_str(), *generic));
    type_of(functions).unwrap_or_else(|| UNKNOWN.into())
}

/// Returns the name of a mapping.
fn mapping_of(profile: &Profile, symbols: &Symbols, stack: u32) -> String {
    let stack = profile.stacks.get(stack as usize);
    let name = stack.and_then(|stack| stack.labels.get(MAPPING));
    let name = name.unwrap_or(NO_LABEL);
    let is_nameless = name == ANONYMOUS_MAPPING;
    match stack.filter(|stack| is_nameless && is_of_pymalloc(profile, symbols, stack)) {
        Some(_) => ARENAS.to_owned(),
        None => name.to_owned(),
    }
}

/// The value of a label. `name` is that of the grouping.
pub(crate) fn label_of(profile: &Profile, name: &str, stack: u32) -> String {
    let labels = profile
        .stacks
        .get(stack as usize)
        .map(|stack| &stack.labels);
    let key = name.strip_prefix(LABEL).unwrap_or(name);
    labels.map_or(NO_LABEL, |labels| labels.value(key)).into()
}

/// The own group and all groups of a stack.
fn names_of_stack(
    profile: &Profile,
    symbols: &Symbols,
    by: By,
    stack: u32,
) -> (String, Vec<String>) {
    let mut all = Vec::new();
    let mut own = OwnFrame::new();
    if let Some(stack) = profile.stacks.get(stack as usize) {
        for (depth, place) in profile.places(stack).enumerate() {
            let module = profile.module_of(place);
            for frame in symbols.frames(place) {
                let name = by.of_frame(profile, symbols, place, frame);
                let function = symbols.function(profile, place, frame);
                let is_library_code = is_library_code(module, &function, frame.file.as_deref());
                own.add(profile, stack, (depth, place), is_library_code, &name);
                all.push(name);
            }
        }
    }
    let own = own.finish().unwrap_or_else(|| "(no stack)".into());
    (own, all)
}
