//! Address map: owners of ranges of addresses, as mappings are made, replaced and cut.
//!
//! ```text
//!   map a      ├────────── a ──────────┤
//!   map b              ├── b ──┤              a mapping replaces what it covers (MAP_FIXED)
//!   unmap           ├──────┤                  a hole may begin and end anywhere
//!   ranges     ├ a ─┤      ├ b ┤├─ a ──┤      sorted; they never overlap
//! ```
//!
//! Ranges of one owner that touch are one range, as the kernel merges equal mappings. The number of
//! ranges has a bound. A range that would exceed it has no owner, so it is as if it were
//! unknown, and the caller learns of that.

use std::collections::BTreeMap;
use std::ops::Range;

/// A range of addresses with its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tail<T> {
    end: u64,
    owner: T,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct AddressMap<T> {
    /// By start. Not empty, sorted, disjoint; ranges that touch have different owners.
    ranges: BTreeMap<u64, Tail<T>>,
    most: usize,
}

impl<T: Copy + Eq> AddressMap<T> {
    /// Returns an empty map that holds at most so many ranges.
    #[must_use]
    pub fn new(most: usize) -> Self {
        AddressMap {
            ranges: BTreeMap::new(),
            most,
        }
    }

    /// Gives a range to an owner. Returns false if there is no room: then the range has no owner.
    pub fn map(&mut self, range: Range<u64>, owner: T) -> bool {
        if range.is_empty() {
            return true;
        }
        self.unmap(range.clone());
        let Range { mut start, mut end } = range;
        if let Some((&before, tail)) = self.ranges.range(..start).next_back()
            && tail.end == start
            && tail.owner == owner
        {
            start = before;
        }
        if let Some(after) = self.ranges.get(&end)
            && after.owner == owner
        {
            let removed = end;
            end = after.end;
            self.ranges.remove(&removed);
        }
        if self.ranges.len() >= self.most && !self.ranges.contains_key(&start) {
            return false;
        }
        self.ranges.insert(start, Tail { end, owner });
        true
    }

    /// Takes a range from all owners. If it cuts another in two, that may exceed the bound by one.
    pub fn unmap(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((&start, &tail)) = self.ranges.range(..range.start).next_back()
            && tail.end > range.start
        {
            let end = range.start;
            self.ranges.insert(start, Tail { end, ..tail });
            if tail.end > range.end {
                self.ranges.insert(range.end, tail);
            }
        }
        while let Some((&start, &tail)) = self.ranges.range(range.clone()).next() {
            self.ranges.remove(&start);
            if tail.end > range.end {
                self.ranges.insert(range.end, tail);
            }
        }
    }

    /// Passes the parts of a range to `visit`, in ascending order, each with its owner, if it has
    /// one. Together they are the range.
    pub fn divide(&self, range: Range<u64>, visit: &mut dyn FnMut(Range<u64>, Option<T>)) {
        if range.is_empty() {
            return;
        }
        let mut at = range.start;
        let before = self.ranges.range(..at).next_back();
        let ranges = before.into_iter().chain(self.ranges.range(range.clone()));
        for (&start, tail) in ranges {
            let (start, end) = (start.max(at), tail.end.min(range.end));
            if end <= start {
                continue;
            }
            if at < start {
                visit(at..start, None);
            }
            visit(start..end, Some(tail.owner));
            at = end;
        }
        if at < range.end {
            visit(at..range.end, None);
        }
    }

    /// Returns the ranges with their owners, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, T)> + '_ {
        let ranges = self.ranges.iter();
        ranges.map(|(&start, tail)| (start..tail.end, tail.owner))
    }

    /// Returns the number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns true if no range has an owner.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: usize = usize::MAX;

    fn ranges_of(map: &AddressMap<char>) -> Vec<(u64, u64, char)> {
        let ranges = map.iter();
        ranges
            .map(|(range, owner)| (range.start, range.end, owner))
            .collect()
    }

    #[test]
    fn a_hole_cuts_a_mapping_in_two() {
        let mut map = AddressMap::new(ALL);
        map.map(10..50, 'a');
        map.unmap(20..30);
        assert_eq!(ranges_of(&map), [(10, 20, 'a'), (30, 50, 'a')]);
        map.unmap(0..15);
        map.unmap(45..99);
        assert_eq!(ranges_of(&map), [(15, 20, 'a'), (30, 45, 'a')]);
        map.unmap(0..99);
        assert!(map.is_empty());
    }

    #[test]
    fn a_fixed_mapping_replaces_what_it_covers() {
        let mut map = AddressMap::new(ALL);
        map.map(10..50, 'a');
        map.map(20..30, 'b');
        assert_eq!(
            ranges_of(&map),
            [(10, 20, 'a'), (20, 30, 'b'), (30, 50, 'a')]
        );
        map.map(15..60, 'c');
        assert_eq!(ranges_of(&map), [(10, 15, 'a'), (15, 60, 'c')]);
    }

    #[test]
    fn a_moved_mapping_is_one_unmapped_and_one_mapped() {
        let mut map = AddressMap::new(ALL);
        map.map(10..20, 'a');
        map.map(20..30, 'b');
        // mremap grows the first one, which must move.
        map.unmap(10..20);
        map.map(40..60, 'c');
        assert_eq!(ranges_of(&map), [(20, 30, 'b'), (40, 60, 'c')]);
    }

    #[test]
    fn equal_neighbours_are_one_range() {
        let mut map = AddressMap::new(ALL);
        map.map(10..20, 'a');
        map.map(30..40, 'a');
        map.map(20..30, 'a');
        assert_eq!(ranges_of(&map), [(10, 40, 'a')]);
        map.map(40..50, 'b');
        assert_eq!(ranges_of(&map), [(10, 40, 'a'), (40, 50, 'b')]);
    }

    #[test]
    fn a_full_map_takes_no_more_ranges_and_says_so() {
        let mut map = AddressMap::new(2);
        assert!(map.map(10..20, 'a') && map.map(30..40, 'a'));
        assert!(!map.map(50..60, 'a'));
        assert!(map.map(20..25, 'a'), "a neighbour takes no place");
        assert!(map.map(10..20, 'a'));
        assert_eq!(ranges_of(&map), [(10, 25, 'a'), (30, 40, 'a')]);
        assert!(!map.map(32..34, 'b'), "and leaves no wrong owner");
        assert_eq!(
            ranges_of(&map),
            [(10, 25, 'a'), (30, 32, 'a'), (34, 40, 'a')]
        );
    }

    #[test]
    fn a_range_is_divided_by_owner() {
        let mut map = AddressMap::new(ALL);
        map.map(10..20, 'a');
        map.map(20..30, 'b');
        let divided = |range| {
            let mut parts = Vec::new();
            map.divide(range, &mut |part, owner| parts.push((part, owner)));
            parts
        };
        let (a, b) = (Some('a'), Some('b'));
        assert_eq!(
            divided(5..40),
            [(5..10, None), (10..20, a), (20..30, b), (30..40, None)]
        );
        assert_eq!(divided(12..25), [(12..20, a), (20..25, b)]);
        assert_eq!(divided(40..45), [(40..45, None)]);
        assert_eq!(divided(7..7), []);
    }

    proptest! {
        /// Against an owner for each address.
        #[test]
        fn it_is_as_if_each_address_had_its_owner(
            steps in prop::collection::vec((0u64..64, 0u64..24, prop::option::of(0u8..4)), 0..60),
            asked in (0u64..64, 0u64..64),
        ) {
            const END: usize = 96;
            let mut map = AddressMap::new(ALL);
            let mut owners = [None; END];
            for (start, len, owner) in steps {
                let range = start..start + len;
                match owner {
                    Some(owner) => {
                        prop_assert!(map.map(range.clone(), owner));
                    }
                    None => map.unmap(range.clone()),
                }
                owners[start as usize..(start + len) as usize].fill(owner);
            }
            let mut found = [None; END];
            let mut last: Option<(Range<u64>, u8)> = None;
            for (range, owner) in map.iter() {
                prop_assert!(!range.is_empty());
                if let Some((before, of)) = last {
                    prop_assert!(before.end < range.start || before.end == range.start && of != owner);
                }
                found[range.start as usize..range.end as usize].fill(Some(owner));
                last = Some((range, owner));
            }
            prop_assert_eq!(found, owners);
            let (start, len) = asked;
            let asked = start..(start + len).min(END as u64);
            let mut at = asked.start;
            let mut wrong = 0;
            map.divide(asked.clone(), &mut |part, owner| {
                let in_order = part.start == at && !part.is_empty();
                at = part.end;
                let parts = &owners[part.start as usize..part.end as usize];
                wrong += usize::from(!in_order || parts.iter().any(|it| *it != owner));
            });
            prop_assert_eq!((at, wrong), (asked.end.max(asked.start), 0));
        }
    }
}
