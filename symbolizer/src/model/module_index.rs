//! Module index: which module lies at an address at a time.
//!
//! It is made at the first question. Each frame of each stack asks, and a program with plug-ins has
//! very many modules.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::model::loaded_module::LoadedModule;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ModuleIndex(OnceLock<Ranges>);

#[derive(Debug)]
struct Ranges {
    /// By start.
    ranges: Vec<ModuleRange>,
    /// How many modules there were.
    of: usize,
}

/// Addresses at which one segment of a module was, or of several one after the other.
#[derive(Debug)]
struct ModuleRange {
    start: u64,
    end: u64,
    /// The highest end of this and all ranges before.
    reach: u64,
    /// Their time of loading and place in the list, by both.
    modules: Vec<(u64, u32)>,
}

impl Clone for ModuleIndex {
    /// An empty index: the clone's modules may change.
    fn clone(&self) -> Self {
        ModuleIndex::default()
    }
}

impl PartialEq for ModuleIndex {
    /// It says nothing that the modules do not.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl ModuleIndex {
    /// The last module that has an address and was loaded at that time, or else the last that ever
    /// had it.
    pub(crate) fn find(&self, modules: &[LoadedModule], avma: u64, time_ns: u64) -> Option<u32> {
        let Ranges { ranges, of } = self.0.get_or_init(|| Self::ranges(modules));
        debug_assert_eq!(*of, modules.len(), "the modules are others by now");
        let after = ranges.partition_point(|range| range.start <= avma);
        let before = ranges[..after].iter().rev();
        let (mut then, mut ever) = (None, None);
        for range in before.take_while(|range| range.reach > avma) {
            if range.end <= avma {
                continue;
            }
            ever = ever.max(range.modules.iter().map(|&(_, module)| module).next_back());
            let came = range.modules.partition_point(|&(ns, _)| ns <= time_ns);
            // One after the other: it is the last, or none.
            let mut there = range.modules[..came].iter().map(|&(_, module)| module);
            let found = there.rfind(|&module| {
                let module = modules.get(module as usize);
                module.is_some_and(|module| module.was_loaded_at(time_ns))
            });
            then = then.max(found);
        }
        then.or(ever)
    }

    fn ranges(modules: &[LoadedModule]) -> Ranges {
        let mut at: BTreeMap<(u64, u64), Vec<(u64, u32)>> = BTreeMap::new();
        for (module, number) in modules.iter().zip(0u32..) {
            for segment in module.segments.iter().filter(|segment| segment.len > 0) {
                let end = segment.start.saturating_add(segment.len);
                let those = at.entry((segment.start, end)).or_default();
                those.push((module.loaded_ns, number));
            }
        }
        let mut reach = 0;
        let ranges = at.into_iter().map(|((start, end), mut modules)| {
            modules.sort_unstable();
            reach = reach.max(end);
            ModuleRange {
                start,
                end,
                reach,
                modules,
            }
        });
        Ranges {
            ranges: ranges.collect(),
            of: modules.len(),
        }
    }
}
