//! Merged address space: every file of the merged processes once, and what is taken by which file.
//!
//! A module of a process is put upon the same file of an earlier process. Otherwise it lies where
//! the process had it, or on the shelf if other files are there.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use heapprof_format::Segment;

use crate::model::loaded_module::LoadedModule;
use crate::model::merged_address::{ADDRESS_BITS, merged_address};
use crate::model::profile::{CallStack, Profile};

/// Files that cannot lie where they did lie from here on: above all that a process may map.
const SHELF: u64 = 1 << 47;
/// No file is larger: what claims more is damage.
const LARGEST_FILE: u64 = 1 << 40;
const PAGE: u64 = 4096;

/// See the module's text.
#[derive(Default)]
pub(super) struct AddressSpace {
    taken: Taken,
    /// The modules that may be one file, by their places.
    places_of: HashMap<FileKey, Vec<usize>>,
    shelf: u64,
}

impl AddressSpace {
    /// Places a module among the merged ones. Returns how far its addresses are from the merged
    /// ones; `None` for one that cannot be.
    pub(super) fn place(
        &mut self,
        modules: &mut Vec<LoadedModule>,
        module: &LoadedModule,
    ) -> Option<u64> {
        let key = FileKey::of(module);
        if module.code.is_some() {
            return Some(self.place_code(modules, key, module));
        }
        let candidates = self.places_of.get(&key).into_iter().flatten().copied();
        let joined = candidates
            .filter_map(|i| Some((i, shift_between(&modules[i], module)?)))
            .find_map(|(i, shift)| Some((i, shift, self.room(module, shift, Some(i))?)));
        if let Some((i, shift, room)) = joined {
            let known = &mut modules[i];
            known.unloaded_ns = None;
            known.loaded_ns = known.loaded_ns.min(module.loaded_ns);
            add_segments(known, &module.segments, shift);
            self.taken.take(room, i);
            return Some(shift);
        }
        let here = extent(module, 0)?;
        let (shift, room) = match self.room(module, 0, None) {
            Some(room) => (0, room),
            None => {
                let start = SHELF + self.shelf;
                self.shelf += here.end - here.start + PAGE;
                let shift = start.wrapping_sub(here.start);
                (shift, extent(module, shift)?)
            }
        };
        let mut segments = module.segments.clone();
        for segment in &mut segments {
            segment.start = segment.start.wrapping_add(shift);
        }
        let place = modules.len();
        self.taken.take(room, place);
        let places = self.places_of.entry(key).or_default();
        if places.len() < MOST_TRIED {
            places.push(place);
        }
        modules.push(LoadedModule {
            bias: module.bias.map(|bias| bias.wrapping_add(shift)),
            segments,
            // Nothing else is ever there.
            loaded_ns: module.loaded_ns,
            unloaded_ns: None,
            ..module.clone()
        });
        Some(shift)
    }

    /// Adds a function of an interpreter, once. Its addresses are the same in all processes.
    fn place_code(
        &mut self,
        modules: &mut Vec<LoadedModule>,
        key: FileKey,
        module: &LoadedModule,
    ) -> u64 {
        self.places_of.entry(key).or_insert_with(|| {
            modules.push(module.clone());
            vec![modules.len() - 1]
        });
        0
    }

    /// Where it would lie, moved so far, if that is on nothing but that one module.
    fn room(&self, module: &LoadedModule, shift: u64, own: Option<usize>) -> Option<Range<u64>> {
        extent(module, shift).filter(|wanted| self.taken.has_room(wanted, own))
    }
}

/// Key of modules that may be one file: the build-id, or without one the path and the number of
/// segments.
#[derive(Debug, PartialEq, Eq, Hash)]
enum FileKey {
    BuildId(Vec<u8>),
    Path(String, usize),
}

impl FileKey {
    fn of(module: &LoadedModule) -> FileKey {
        match module.build_id.is_empty() {
            true => FileKey::Path(module.path.clone(), module.segments.len()),
            false => FileKey::BuildId(module.build_id.clone()),
        }
    }
}

/// So many modules that may be the same file are tried. There are several where one could not be
/// put upon the other, which is so in a hostile log only.
const MOST_TRIED: usize = 8;

/// Ranges of the merged address space that are taken, which do not overlap, and their modules.
#[derive(Debug, Default)]
struct Taken(BTreeMap<u64, (u64, usize)>);

impl Taken {
    /// Returns true if there is nothing in the range, but for what is that module's own.
    fn has_room(&self, wanted: &Range<u64>, own: Option<usize>) -> bool {
        let before = self.0.range(..wanted.start).next_back();
        let before = before.filter(|(_, (end, _))| *end > wanted.start);
        let mut within = before.into_iter().chain(self.0.range(wanted.clone()));
        within.all(|(_, (_, module))| Some(*module) == own)
    }

    /// Gives the range, in which there is nothing of another's, to a module.
    fn take(&mut self, mut range: Range<u64>, module: usize) {
        if range.is_empty() {
            return;
        }
        // Ranges that the module had there become one with it.
        if let Some((&start, &(end, _))) = self.0.range(..range.start).next_back()
            && end > range.start
        {
            range = start..range.end.max(end);
        }
        while let Some((&start, &(end, _))) = self.0.range(range.clone()).next() {
            self.0.remove(&start);
            range.end = range.end.max(end);
        }
        self.0.insert(range.start, (range.end, module));
    }
}

/// Adds those of the segments, moved so far, of which a module has none that begins on the same
/// page: a dump's are whole pages, a log's are not.
fn add_segments(known: &mut LoadedModule, segments: &[Segment], shift: u64) {
    let page = |segment: &Segment| segment.start / PAGE;
    let mut added: Vec<Segment> = Vec::new();
    for segment in segments {
        let start = segment.start.wrapping_add(shift);
        let moved = Segment { start, ..*segment };
        let at = known
            .segments
            .partition_point(|there| page(there) < page(&moved));
        let mut there = known.segments.get(at).into_iter().chain(added.last());
        if there.all(|there| page(there) != page(&moved)) {
            added.push(moved);
        }
    }
    known.segments.extend(added);
    known.segments.sort_by_key(|segment| segment.start);
}

/// A process's addresses, and where they went.
pub(super) struct Moved<'a> {
    pub(super) part: &'a Profile,
    pub(super) index: usize,
    /// By module.
    pub(super) shifts: Vec<Option<u64>>,
}

impl Moved<'_> {
    pub(super) fn stack(&self, stack: &CallStack) -> CallStack {
        let frames = stack.frames.iter().zip(stack.calls());
        CallStack {
            frames: frames
                .map(|(&frame, call)| self.address(frame, call, stack.time_ns))
                .collect(),
            interrupted: stack.interrupted.clone(),
            end: stack.end,
            time_ns: 0,
            begins_with_ours: stack.begins_with_ours,
            labels: stack.labels.clone(),
        }
    }

    /// Where an address went that belongs to that call.
    pub(super) fn address(&self, avma: u64, call: u64, time_ns: u64) -> u64 {
        let module = self.part.place(call, time_ns).module;
        let shift = module.and_then(|module| self.shifts[module as usize]);
        match shift {
            Some(shift) => avma.wrapping_add(shift),
            None => merged_address(self.index, avma),
        }
    }
}

/// From its first byte to behind its last, in whole pages, when moved so far; `None` when that is
/// absurd.
fn extent(module: &LoadedModule, shift: u64) -> Option<Range<u64>> {
    let start = module.segments.iter().map(|s| s.start).min()?;
    let end = module
        .segments
        .iter()
        .map(|s| s.start.saturating_add(s.len));
    let size = end.max()?.checked_sub(start)?;
    let start = start.wrapping_add(shift);
    let end = start.checked_add(size)?.checked_next_multiple_of(PAGE)?;
    (size <= LARGEST_FILE && end <= 1 << ADDRESS_BITS).then_some(start - start % PAGE..end)
}

/// If they are the same file, how far `module` is to be moved so that it lies on `known`.
fn shift_between(known: &LoadedModule, module: &LoadedModule) -> Option<u64> {
    if known.build_id != module.build_id {
        return None;
    }
    let shift = match (known.bias, module.bias) {
        (Some(known), Some(bias)) => known.wrapping_sub(bias),
        // A dump says where parts of the file are.
        _ => {
            let code = |m: &LoadedModule| m.segments.iter().find(|s| s.flags & 1 != 0).copied();
            let (known, code) = (code(known)?, code(module)?);
            let base = |s: Segment| s.start.wrapping_sub(s.file_offset);
            base(known).wrapping_sub(base(code))
        }
    };
    if module.build_id.is_empty() {
        let is_equal = |(a, b): (&Segment, &Segment)| {
            let moved = b.start.wrapping_add(shift);
            (a.start, a.len, a.file_offset) == (moved, b.len, b.file_offset)
        };
        let is_same = known.path == module.path
            && known.segments.len() == module.segments.len()
            && known.segments.iter().zip(&module.segments).all(is_equal);
        return is_same.then_some(shift);
    }
    Some(shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of the addresses that each module has.
        #[test]
        fn what_is_taken_leaves_room_for_what_does_not_overlap(
            wanted in prop::collection::vec((0u64..40, 1u64..6, 0usize..4), 0..30)
        ) {
            let mut taken = Taken::default();
            let mut owners: BTreeMap<u64, usize> = BTreeMap::new();
            for (start, length, module) in wanted {
                let range = start..start + length;
                let mut within = owners.range(range.clone());
                let is_free = within.all(|(_, owner)| *owner == module);
                prop_assert_eq!(taken.has_room(&range, Some(module)), is_free);
                let is_empty = owners.range(range.clone()).next().is_none();
                prop_assert_eq!(taken.has_room(&range, None), is_empty);
                if is_free {
                    owners.extend(range.clone().map(|address| (address, module)));
                    taken.take(range, module);
                }
            }
        }
    }
}
