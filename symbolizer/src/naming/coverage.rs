//! Coverage: the part of a profile's bytes that has names.
//!
//! A stack is fully named if each of its frames has a function. The share of a module counts the
//! bytes whose stacks pass through it, and only its own frames need names.

use std::collections::BTreeMap;

use crate::model::metric::Numbers;
use crate::model::profile::Profile;
use crate::naming::symbols::Symbols;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Of all stacks.
    pub whole: Share,
    /// By index of the module; `None` is what lies outside every module.
    pub modules: BTreeMap<Option<u32>, Share>,
    /// Bytes whose stacks were cut: their walk ended elsewhere than at the thread's first function.
    pub cut_bytes: u64,
}

/// Bytes allocated in stacks, and how many of them have names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// All, unsampled.
    pub bytes: u64,
    /// Those in which every frame has a function.
    pub named_bytes: u64,
    /// Those in which every frame has a function and a line.
    pub lines_bytes: u64,
}

/// The names of one stack, worst frame first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StackNames {
    Nothing,
    Names,
    Lines,
}

impl Coverage {
    /// Returns the coverage of everything allocated in the profile.
    pub fn of(profile: &Profile, symbols: &Symbols) -> Coverage {
        let mut coverage = Coverage::default();
        let mut passed: Vec<(Option<u32>, StackNames)> = Vec::new();
        for row in &profile.rows {
            let stack = profile.stack_of(row);
            let bytes = Numbers::of(&row.totals).allocated_bytes;
            passed.clear();
            passed.extend(profile.places(stack).map(|place| {
                let frames = symbols.frames(place);
                // Our own entry points are named by what people call; no line of ours concerns
                // them.
                let is_ours = profile.module_of(place).is_some_and(|m| m.is_profiler());
                let has = if frames.iter().any(|frame| frame.function.is_none()) {
                    StackNames::Nothing
                } else if !is_ours && frames.iter().any(|frame| frame.line.is_none()) {
                    StackNames::Names
                } else {
                    StackNames::Lines
                };
                (place.module, has)
            }));
            // The worst of each module comes first.
            passed.sort_unstable();
            passed.dedup_by_key(|(module, _)| *module);
            let worst = passed.iter().map(|&(_, has)| has).min();
            coverage
                .whole
                .add(bytes, worst.unwrap_or(StackNames::Nothing));
            let is_file = |module: Option<u32>| {
                let module = module.and_then(|it| profile.modules.get(it as usize));
                module.is_none_or(|it| it.code.is_none())
            };
            for &(module, has) in passed.iter().filter(|(module, _)| is_file(*module)) {
                coverage.modules.entry(module).or_default().add(bytes, has);
            }
            if stack
                .end
                .is_some_and(|end| end != heapprof_format::WalkEnd::Root)
            {
                coverage.cut_bytes = coverage.cut_bytes.saturating_add(bytes);
            }
        }
        coverage
    }

    /// The modules, those that miss the most names first, then those that miss the most lines.
    pub fn worst_first(&self) -> Vec<(Option<u32>, Share)> {
        let mut all: Vec<_> = self.modules.iter().map(|(&m, &share)| (m, share)).collect();
        all.sort_by_key(|(module, share)| {
            let unnamed = share.bytes - share.named_bytes;
            let without_lines = share.bytes - share.lines_bytes;
            (std::cmp::Reverse((unnamed, without_lines)), *module)
        });
        all
    }
}

impl Share {
    fn add(&mut self, bytes: u64, has: StackNames) {
        self.bytes = self.bytes.saturating_add(bytes);
        if has >= StackNames::Names {
            self.named_bytes = self.named_bytes.saturating_add(bytes);
        }
        if has == StackNames::Lines {
            self.lines_bytes = self.lines_bytes.saturating_add(bytes);
        }
    }
}
