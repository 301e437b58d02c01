//! Heritage: the sampled blocks that a process has from its ancestors, with their stacks.
//!
//! Glossary: heritage.
//!
//! The heritage is carried from each ancestor's log to the next. A log adds blocks, and frees
//! blocks of its own process and of its ancestors. At the fork, code that the child does not have
//! any more gets addresses of its own: other code may lie at its place by now.
//!
//! ```text
//!   log of the grandparent ──fork──> log of the parent ──fork──> the child
//!   a: in plugin.so         a, b     c, free(b)            a, c
//!                           plugin.so is gone: a's frames go to the shelf
//! ```
//!
//! Each log is read once, each stack is looked at once, and each frame is moved once at most. So
//! the cost is that of the logs, however many generations there are.
//!
//! Not here: finding the ancestors' logs (`parent_log`).

use std::collections::{HashMap, HashSet};

use heapprof_core::NumberMap;
use heapprof_format::{Alloc, Code, Module, Record, Segment, Stack};

use crate::model::loaded_module::LoadedModule;
use crate::model::module_index::ModuleIndex;
use crate::model::profile::LogAccount;
use crate::model::special_threads::BEFORE_THE_FORK;
use crate::read::log::RecordSink;

/// Inherited stacks are numbered from here: a writer never comes so far.
const FIRST_STACK: u32 = 1 << 31;

/// Modules that were unloaded before the fork are numbered from here.
const FIRST_MODULE: u32 = 1 << 31;

/// Modules that were unloaded lie from here on, above all that a process may map.
const SHELF: u64 = 1 << 47;
const PAGE: u64 = 4096;
/// No module is larger: what claims more is damage.
const LARGEST_MODULE: u64 = 1 << 40;

/// The identity of a module: its bias and its path.
type Identity = (u64, String);

fn identity(module: &Module) -> Identity {
    (module.bias, module.path.clone())
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Heritage {
    /// Blocks in use at the last fork, and the place of each one's stack in `stacks`.
    blocks: NumberMap<u64, (Alloc, Option<usize>)>,
    stacks: Vec<Stack>,
    /// The frames that lie in modules which the child still has: stack and frame.
    frames_of: HashMap<Identity, Moved>,
    shelf: Vec<Module>,
    /// The functions of interpreters in all these logs.
    codes: Vec<Code>,
    /// Where the shelf ends.
    shelved: u64,
    /// True if a log lacks its segments from before a fork. Then only the blocks are known that
    /// were in use later as well.
    is_cut: bool,
    log: Past,
}

/// A module and the frames that move with it.
struct Moved {
    module: Module,
    frames: Vec<(usize, usize)>,
}

/// The blocks, stacks and modules of the log that was read last, up to the fork.
#[derive(Default)]
struct Past {
    blocks: NumberMap<u64, Alloc>,
    stacks: NumberMap<u32, Stack>,
    /// When the first sample with a stack was taken.
    first_ns: NumberMap<u32, u64>,
    /// Modules, and when each was unloaded.
    modules: Vec<(Module, Option<u64>)>,
    /// The last module of each number.
    module_of: NumberMap<u32, usize>,
}

impl Past {
    fn took(&mut self, alloc: Alloc) {
        self.first_ns.entry(alloc.stack).or_insert(alloc.time_ns);
        self.blocks.insert(alloc.id, alloc);
    }

    fn loaded(&mut self, module: Module) {
        self.module_of.insert(module.number, self.modules.len());
        self.modules.push((module, None));
    }

    fn unloaded(&mut self, number: u32, time_ns: u64) {
        if let Some(&index) = self.module_of.get(&number) {
            self.modules[index].1 = Some(time_ns);
        }
    }
}

/// The sink that adds the records of an ancestor's log to the heritage.
pub(crate) struct HeritageSink<'a> {
    heritage: &'a mut Heritage,
    moment_ns: u64,
    /// When the log's process began.
    began_ns: u64,
    in_checkpoint: bool,
    is_over: bool,
}

impl HeritageSink<'_> {
    fn is_before(&self, time_ns: u64) -> bool {
        self.began_ns.saturating_add(time_ns) <= self.moment_ns
    }
}

impl RecordSink for HeritageSink<'_> {
    fn take(&mut self, record: Record) {
        if self.is_over {
            return;
        }
        match record {
            Record::Start(start) => self.began_ns = start.monotonic_ns,
            Record::Stack(stack) => {
                self.heritage.log.stacks.insert(stack.number, stack);
            }
            Record::Module(module) if self.is_before(module.time_ns) => {
                self.heritage.log.loaded(module);
            }
            Record::ModuleGone { module, time_ns } if self.is_before(time_ns) => {
                self.heritage.log.unloaded(module, time_ns);
            }
            Record::Code(code) => self.heritage.codes.push(code),
            Record::Checkpoint(checkpoint) => {
                self.heritage.is_cut |= !self.is_before(checkpoint.time_ns);
                self.in_checkpoint = true;
            }
            Record::CheckpointEnd { .. } => self.in_checkpoint = false,
            Record::Alloc(alloc) if self.is_before(alloc.time_ns) => {
                self.heritage.log.took(alloc);
            }
            Record::Free(free) if self.is_before(free.time_ns) => {
                let own = self.heritage.log.blocks.remove(&free.id);
                if own.is_none() {
                    self.heritage.blocks.remove(&free.id);
                }
            }
            // Behind a checkpoint, records are in the order of time.
            Record::Alloc(_) | Record::Free(_) if !self.in_checkpoint => self.is_over = true,
            _ => {}
        }
    }

    fn account(&mut self, _: LogAccount) {}

    fn has_enough(&self) -> bool {
        self.is_over
    }
}

impl Heritage {
    /// How many samples it has.
    pub(super) fn samples(&self) -> usize {
        self.blocks.len()
    }

    /// Returns true if these are all.
    pub(super) fn is_complete(&self) -> bool {
        !self.is_cut
    }

    /// Begins to read the next ancestor's log, up to a moment of the monotonic clock.
    pub(super) fn sink(&mut self, moment_ns: u64) -> HeritageSink<'_> {
        HeritageSink {
            heritage: self,
            moment_ns,
            began_ns: 0,
            in_checkpoint: false,
            is_over: false,
        }
    }

    /// The fork: the child begins with those modules. `is_last`: no log is read behind this one.
    pub(super) fn fork(&mut self, there: Vec<Module>, is_last: bool) {
        let there: HashSet<Identity> = there.iter().map(identity).collect();
        let mut log = std::mem::take(&mut self.log);
        // A module that the child does not have was unloaded, even if the log does not say so.
        for (module, gone) in &mut log.modules {
            if gone.is_none() && !there.contains(&identity(module)) {
                *gone = Some(u64::MAX);
            }
        }
        let is_there =
            |(module, gone): &(Module, Option<u64>)| gone.is_none() && module.number < FIRST_MODULE;
        let all_are_there = log.modules.iter().all(is_there);
        self.add(log, is_last && all_are_there, is_there);
        let gone = self.frames_of.keys();
        let gone = gone.filter(|module| !there.contains(*module));
        let mut gone: Vec<Identity> = gone.cloned().collect();
        // A map has no order, and the addresses on the shelf must not change from run to run.
        gone.sort_unstable();
        for module in gone {
            if let Some(moved) = self.frames_of.remove(&module) {
                self.put_on_shelf(moved);
            }
        }
    }

    /// Adds the blocks of a log. `stay`: none of their frames is ever moved.
    fn add(&mut self, log: Past, stay: bool, is_there: impl Fn(&(Module, Option<u64>)) -> bool) {
        let loaded: Vec<LoadedModule> = log.modules.iter().map(loaded).collect();
        let index = ModuleIndex::default();
        let mut stack_of: NumberMap<u32, usize> = NumberMap::default();
        let mut gone: Vec<Moved> = Vec::new();
        let mut gone_at: NumberMap<u32, usize> = NumberMap::default();
        let mut blocks: Vec<Alloc> = log.blocks.into_values().collect();
        blocks.sort_unstable_by_key(|alloc| alloc.id);
        for alloc in blocks {
            let known = stack_of.get(&alloc.stack).copied();
            let place = known.or_else(|| {
                let stack = log.stacks.get(&alloc.stack)?.clone();
                let place = self.stacks.len();
                let then = log.first_ns.get(&alloc.stack).copied().unwrap_or(0);
                for (i, address) in stack.frames.iter().enumerate().filter(|_| !stay) {
                    // A call may be the last instruction of its module.
                    let call = address.saturating_sub(u64::from(i > 0));
                    let Some(number) = index.find(&loaded, call, then) else {
                        continue;
                    };
                    let module = &log.modules[number as usize];
                    let moved = || Moved {
                        module: module.0.clone(),
                        frames: Vec::new(),
                    };
                    let users = match is_there(module) {
                        true => self
                            .frames_of
                            .entry(identity(&module.0))
                            .or_insert_with(moved),
                        false => {
                            let at = *gone_at.entry(number).or_insert_with(|| {
                                gone.push(moved());
                                gone.len() - 1
                            });
                            &mut gone[at]
                        }
                    };
                    users.frames.push((place, i));
                }
                self.stacks.push(stack);
                stack_of.insert(alloc.stack, place);
                Some(place)
            });
            self.blocks.insert(alloc.id, (alloc, place));
        }
        gone.into_iter().for_each(|moved| self.put_on_shelf(moved));
    }

    /// Moves a module that is gone, and the frames in it.
    fn put_on_shelf(&mut self, moved: Moved) {
        let Moved { mut module, frames } = moved;
        let starts = module.segments.iter().map(|s| s.start);
        let start = starts.min().unwrap_or(0) & !(PAGE - 1);
        let end = |s: &Segment| s.start.saturating_add(s.len);
        let ends = module.segments.iter().map(end);
        let length = ends.max().unwrap_or(0).saturating_sub(start);
        if length >= LARGEST_MODULE || self.shelved >= SHELF - LARGEST_MODULE {
            return;
        }
        let by = (SHELF + self.shelved).wrapping_sub(start);
        self.shelved += length.next_multiple_of(PAGE) + PAGE;
        module.number = FIRST_MODULE + self.shelf.len() as u32;
        module.time_ns = 0;
        module.bias = module.bias.wrapping_add(by);
        for segment in &mut module.segments {
            segment.start = segment.start.wrapping_add(by);
        }
        self.shelf.push(module);
        for (stack, frame) in frames {
            let address = &mut self.stacks[stack].frames[frame];
            *address = address.wrapping_add(by);
        }
    }

    /// The records by which the child has those samples from its start on.
    pub(super) fn records(self) -> Vec<Record> {
        let modules = self.shelf.into_iter().map(Record::Module);
        let codes = self.codes.into_iter().map(Record::Code);
        let mut records: Vec<Record> = codes.chain(modules).collect();
        let mut blocks: Vec<(Alloc, Option<usize>)> = self.blocks.into_values().collect();
        blocks.sort_unstable_by_key(|(alloc, _)| alloc.id);
        let mut stacks: Vec<Option<Stack>> = self.stacks.into_iter().map(Some).collect();
        let mut number_of = vec![0; stacks.len()];
        // One more number, for blocks of which no log has the stack.
        let mut next = FIRST_STACK + 1;
        for (alloc, stack) in blocks {
            if let Some(mut stack_record) = stack.and_then(|place| stacks[place].take()) {
                stack_record.number = next;
                number_of[stack.unwrap_or_default()] = next;
                next += 1;
                records.push(Record::Stack(stack_record));
            }
            records.push(Record::Alloc(Alloc {
                time_ns: 0,
                thread: BEFORE_THE_FORK,
                stack: stack.map_or(FIRST_STACK, |place| number_of[place]),
                ..alloc
            }));
        }
        records
    }
}

fn loaded((module, gone): &(Module, Option<u64>)) -> LoadedModule {
    let mut segments = module.segments.clone();
    segments.sort_by_key(|segment| segment.start);
    LoadedModule {
        segments,
        loaded_ns: module.time_ns,
        unloaded_ns: *gone,
        ..LoadedModule::default()
    }
}
