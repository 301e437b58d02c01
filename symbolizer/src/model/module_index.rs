//! The module index: which module has an address at a time.
//!
//! There are hundreds of modules, tens of thousands where plug-ins come and go, and each frame of
//! each stack asks. Modules follow each other at one place, and their places overlap. So segments
//! are kept in a segment tree over the addresses:
//!
//! ```text
//!   borders     1000      2000      3000      4000        where segments begin or end
//!   leaves        0         1         2
//!   a           [1000 ─────────────────── 4000)           in the node of 0 and 1, and in leaf 2
//!   b                     [2000 ─── 3000)                 in leaf 1
//! ```
//!
//! A segment is in as few nodes as cover it, of which those of an address are a leaf and the nodes
//! above it. In each node the modules are in the order in which they were loaded. At a
//! given time only the last module that was loaded by then can have an address: an earlier one had
//! to go.

use std::sync::OnceLock;

use crate::model::loaded_module::LoadedModule;

/// See the module's text. Made when it is first asked.
#[derive(Debug, Default)]
pub(crate) struct ModuleIndex(OnceLock<SegmentTree>);

#[derive(Debug)]
struct SegmentTree {
    /// Ascending. A leaf is between two of them.
    borders: Vec<u64>,
    /// By node, where its modules begin in `modules`; one more entry for the end of the last. Node
    /// 1 is the root, the children of node n are 2n and 2n + 1, and the leaves come last.
    begins: Vec<usize>,
    /// Places in `by_time`.
    modules: Vec<u32>,
    /// The first node with a module: above it is nothing.
    first: usize,
    /// When each module was loaded, and its place in the list, by both.
    by_time: Vec<(u64, u32)>,
    /// How many modules there were.
    of: usize,
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
        let tree = self.0.get_or_init(|| SegmentTree::of(modules));
        debug_assert_eq!(tree.of, modules.len(), "the modules are others by now");
        let leaf = tree.borders.partition_point(|&border| border <= avma);
        let leaf = leaf
            .checked_sub(1)
            .filter(|&leaf| leaf < tree.leaf_count())?;
        let loaded = tree.by_time.partition_point(|&(ns, _)| ns <= time_ns) as u32;
        let (mut then, mut ever) = (None, None);
        let mut node = tree.leaf_count() + leaf;
        while node >= tree.first {
            let there = tree.in_node(node);
            let by_then = there.partition_point(|&place| place < loaded);
            then = then.max(there[..by_then].last());
            ever = ever.max(there.last());
            node /= 2;
        }
        let module = |place: &u32| tree.by_time[*place as usize].1;
        let is_there = |&module: &u32| modules[module as usize].was_loaded_at(time_ns);
        then.map(module)
            .filter(is_there)
            .or_else(|| ever.map(module))
    }
}

impl SegmentTree {
    fn of(modules: &[LoadedModule]) -> SegmentTree {
        let mut by_time: Vec<(u64, u32)> = Vec::with_capacity(modules.len());
        let mut borders = Vec::new();
        for (module, number) in modules.iter().zip(0u32..) {
            by_time.push((module.loaded_ns, number));
            borders.extend(ranges(module).flatten());
        }
        by_time.sort_unstable();
        borders.sort_unstable();
        borders.dedup();
        let mut tree = SegmentTree {
            borders,
            begins: Vec::new(),
            modules: Vec::new(),
            first: usize::MAX,
            by_time,
            of: modules.len(),
        };
        // How many modules each node has, then where they begin, then which they are.
        let mut counts = vec![0; 2 * tree.leaf_count() + 1];
        tree.each_place(modules, |node, _| counts[node] += 1);
        let mut next = Vec::with_capacity(counts.len());
        let mut all = 0;
        for count in counts {
            next.push(all);
            all += count;
        }
        tree.begins.clone_from(&next);
        let mut places = vec![0; all];
        tree.each_place(modules, |node, place| {
            places[next[node]] = place;
            next[node] += 1;
        });
        tree.modules = places;
        let filled = tree.begins.windows(2).position(|span| span[0] < span[1]);
        tree.first = filled.unwrap_or(usize::MAX).max(1);
        tree
    }

    fn leaf_count(&self) -> usize {
        self.borders.len().saturating_sub(1)
    }

    fn in_node(&self, node: usize) -> &[u32] {
        &self.modules[self.begins[node]..self.begins[node + 1]]
    }

    /// The nodes that each module is in, with its place in `by_time`, in the order of those.
    fn each_place(&self, modules: &[LoadedModule], mut visit: impl FnMut(usize, u32)) {
        let leaf = |border| self.borders.partition_point(|&known| known < border);
        for (&(_, module), place) in self.by_time.iter().zip(0u32..) {
            for [start, end] in ranges(&modules[module as usize]) {
                let mut from = self.leaf_count() + leaf(start);
                let mut to = self.leaf_count() + leaf(end);
                while from < to {
                    if from % 2 == 1 {
                        visit(from, place);
                        from += 1;
                    }
                    if to % 2 == 1 {
                        to -= 1;
                        visit(to, place);
                    }
                    from /= 2;
                    to /= 2;
                }
            }
        }
    }
}

/// Where the segments of a module begin and end.
fn ranges(module: &LoadedModule) -> impl Iterator<Item = [u64; 2]> + '_ {
    let segments = module.segments.iter().filter(|segment| segment.len > 0);
    segments.map(|segment| [segment.start, segment.start.saturating_add(segment.len)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_format::Segment;
    use proptest::prelude::*;

    fn module(loaded_ns: u64, unloaded_ns: Option<u64>, ranges: &[(u64, u64)]) -> LoadedModule {
        let segment = |&(start, end): &(u64, u64)| Segment {
            start,
            len: end - start,
            file_offset: 0,
            flags: 5,
        };
        LoadedModule {
            segments: ranges.iter().map(segment).collect(),
            loaded_ns,
            unloaded_ns,
            ..LoadedModule::default()
        }
    }

    /// ```text
    ///   time    0        10       20       30
    ///   1000    a─────────────────x                a has two segments, and goes at 20
    ///   2000    .                 b────────>       b comes at 20 at the place of a part of it
    ///   3000    a─────────────────x
    /// ```
    #[test]
    fn a_smaller_module_takes_the_place_of_a_part_of_a_larger_one() {
        let modules = [
            module(0, Some(19), &[(0x1000, 0x3000), (0x3000, 0x4000)]),
            module(20, None, &[(0x2000, 0x3000)]),
        ];
        let index = ModuleIndex::default();
        let find = |avma, time_ns| index.find(&modules, avma, time_ns);
        assert_eq!(
            [find(0x1800, 5), find(0x2800, 5), find(0x3800, 5)],
            [Some(0); 3]
        );
        // The last module there is named where there is none.
        assert_eq!(
            [find(0x1800, 30), find(0x2800, 30), find(0x3800, 30)],
            [Some(0), Some(1), Some(0)]
        );
        assert_eq!(
            [find(0xfff, 5), find(0x4000, 5), find(u64::MAX, 5)],
            [None; 3]
        );
        assert_eq!(ModuleIndex::default().find(&[], 0x1000, 0), None);
    }

    proptest! {
        /// Against looking through all modules.
        #[test]
        fn it_finds_what_a_search_of_all_finds(
            all in prop::collection::vec((0u64..20, prop::option::of(0u64..20), 0u64..64, 0u64..24), 0..40),
            asked in prop::collection::vec((0u64..90, 0u64..24), 1..20),
        ) {
            let modules: Vec<LoadedModule> = all
                .iter()
                .map(|&(loaded, lived, start, len)| {
                    module(loaded, lived.map(|ns| loaded + ns), &[(start, start + len), (start + len, start + len + 2)])
                })
                .collect();
            let index = ModuleIndex::default();
            for (avma, time_ns) in asked {
                let has = |m: &LoadedModule| m.segments.iter().any(|s| avma.wrapping_sub(s.start) < s.len);
                let mut those: Vec<(u64, u32)> = modules
                    .iter()
                    .zip(0u32..)
                    .filter(|(module, _)| has(module))
                    .map(|(module, number)| (module.loaded_ns, number))
                    .collect();
                those.sort_unstable();
                let then = those.iter().rfind(|(ns, _)| *ns <= time_ns).map(|(_, number)| *number);
                let then = then.filter(|&number| modules[number as usize].was_loaded_at(time_ns));
                let expected = then.or(those.last().map(|(_, number)| *number));
                prop_assert_eq!(index.find(&modules, avma, time_ns), expected);
            }
        }
    }
}
