//! Block map: a map from the ids of blocks in use, which lie near each other as the ids do.
//!
//! A lane gives ids that rise by one, and programs free blocks of about the same time together. So
//! the values of 64 ids in a row are a page, and a run of events reads the same pages. A hash map
//! of all ids would read two lines of memory at random for each event, which is most of what an
//! event of a long log costs.
//!
//! ```text
//!  id / 64 ──> page ──> 64 values, and a bit for each that is there
//!  id ──> value          if its page is gone, or never was
//! ```
//!
//! An id that begins a page makes it. A page is open until [`OPEN`] others have come, so that each
//! lane can fill its own. A closed page with few values is given up, and these go to the hash map.
//! So a value takes 61 bytes at most if it has 16 itself, about as much as in a hash map.

use std::collections::VecDeque;

use crate::tables::number_hash::NumberMap;

/// Ids of a page.
const PAGE: u64 = 64;
/// Pages that may be filled at once: two for each lane.
const OPEN: usize = 128;
/// Most values of a closed page that is given up.
const FEW: u32 = 16;
/// Pages of a range. A lane gives ids of as many in a row.
const RANGE: u64 = 1 << 10;
/// The number of no page.
const NONE: u64 = u64::MAX;

/// Values of ids in a row.
#[derive(Debug, Clone)]
struct Page<T> {
    number: u64,
    /// A bit for each value that is there.
    present: u64,
    is_closed: bool,
    values: [T; PAGE as usize],
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct BlockMap<T> {
    pages: Vec<Page<T>>,
    /// Places in `pages` that no page needs.
    unused: Vec<u32>,
    /// The place of a page, by its number.
    places: NumberMap<u64, u32>,
    /// The numbers of open pages, oldest first.
    open: VecDeque<u64>,
    others: NumberMap<u64, T>,
    /// The number behind the last page of each range of which an id came. From there on, `others`
    /// has no value.
    next_page: NumberMap<u64, u64>,
    /// The page that a value came to last, and the one that a value left last, with their places.
    filled: (u64, u32),
    emptied: (u64, u32),
    len: usize,
}

impl<T> Default for BlockMap<T> {
    fn default() -> Self {
        BlockMap {
            pages: Vec::new(),
            unused: Vec::new(),
            places: NumberMap::default(),
            open: VecDeque::new(),
            others: NumberMap::default(),
            next_page: NumberMap::default(),
            filled: (NONE, 0),
            emptied: (NONE, 0),
            len: 0,
        }
    }
}

/// Returns the number of the page of an id, and the id's place in it.
#[inline]
fn place_of(id: u64) -> (u64, usize) {
    (id / PAGE, (id % PAGE) as usize)
}

impl<T: Copy + Default> BlockMap<T> {
    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of an id.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&T> {
        let (number, index) = place_of(id);
        if let Some(&place) = self.places.get(&number) {
            let page = &self.pages[place as usize];
            if page.present >> index & 1 != 0 {
                return Some(&page.values[index]);
            }
        }
        self.others.get(&id)
    }

    /// Returns the value of an id, to be changed.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let (number, index) = place_of(id);
        if let Some(&place) = self.places.get(&number)
            && self.pages[place as usize].present >> index & 1 != 0
        {
            return Some(&mut self.pages[place as usize].values[index]);
        }
        self.others.get_mut(&id)
    }

    /// Sets the value of an id.
    #[inline]
    pub fn insert(&mut self, id: u64, value: T) {
        let (number, index) = place_of(id);
        if self.filled.0 != number {
            match self.places.get(&number) {
                Some(&place) => self.filled = (number, place),
                None if index == 0 => self.filled = (number, self.add_page(number)),
                None => return self.insert_other(id, value),
            }
        }
        let page = &mut self.pages[self.filled.1 as usize];
        let bit = 1 << index;
        self.len += usize::from(page.present & bit == 0);
        page.present |= bit;
        page.values[index] = value;
    }

    fn insert_other(&mut self, id: u64, value: T) {
        self.is_new(place_of(id).0);
        if self.others.insert(id, value).is_none() {
            self.len += 1;
        }
    }

    /// Returns true if no id of the page or of a later one in its range has come yet. From now on,
    /// one has.
    fn is_new(&mut self, number: u64) -> bool {
        let next = self.next_page.entry(number / RANGE).or_default();
        let is_new = number >= *next;
        *next = (*next).max(number.saturating_add(1));
        is_new
    }

    /// Takes the value of an id out.
    #[inline]
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let (number, index) = place_of(id);
        if self.emptied.0 != number {
            match self.places.get(&number) {
                Some(&place) => self.emptied = (number, place),
                None => return self.remove_other(id),
            }
        }
        let page = &mut self.pages[self.emptied.1 as usize];
        let bit = 1 << index;
        if page.present & bit == 0 {
            return self.remove_other(id);
        }
        page.present &= !bit;
        let value = page.values[index];
        self.len -= 1;
        if page.is_closed && page.present.count_ones() <= FEW {
            self.give_up_page(number);
        }
        Some(value)
    }

    fn remove_other(&mut self, id: u64) -> Option<T> {
        let value = self.others.remove(&id)?;
        self.len -= 1;
        Some(value)
    }

    /// Returns the ids with their values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let of_page = |page: &Page<T>| (page.number * PAGE, page.present);
        let in_pages = self.places.values().flat_map(move |&place| {
            let page = &self.pages[place as usize];
            let (first, present) = of_page(page);
            let values = page.values.iter().enumerate();
            values
                .filter(move |(index, _)| present >> index & 1 != 0)
                .map(move |(index, value)| (first + index as u64, value))
        });
        in_pages.chain(self.others.iter().map(|(&id, value)| (id, value)))
    }

    /// Adds a page with the values that there are of it, at the place that is returned. Closes the
    /// oldest open one if there are too many.
    fn add_page(&mut self, number: u64) -> u32 {
        if self.open.len() == OPEN
            && let Some(oldest) = self.open.pop_front()
        {
            self.close_page(oldest);
        }
        self.open.push_back(number);
        let mut page = Page {
            number,
            present: 0,
            is_closed: false,
            values: [T::default(); PAGE as usize],
        };
        if !self.is_new(number) && !self.others.is_empty() {
            for index in 0..PAGE as usize {
                if let Some(value) = self.others.remove(&(number * PAGE + index as u64)) {
                    page.present |= 1 << index;
                    page.values[index] = value;
                }
            }
        }
        let place = match self.unused.pop() {
            Some(place) => {
                self.pages[place as usize] = page;
                place
            }
            None => {
                self.pages.push(page);
                // Each has an id of its own in the log, which no memory holds 2^32 * 64 of.
                (self.pages.len() - 1) as u32
            }
        };
        self.places.insert(number, place);
        place
    }

    fn close_page(&mut self, number: u64) {
        let Some(&place) = self.places.get(&number) else {
            return;
        };
        let page = &mut self.pages[place as usize];
        page.is_closed = true;
        if page.present.count_ones() <= FEW {
            self.give_up_page(number);
        }
    }

    /// Moves the values of a page to the hash map.
    #[inline(never)]
    fn give_up_page(&mut self, number: u64) {
        let Some(place) = self.places.remove(&number) else {
            return;
        };
        let page = &self.pages[place as usize];
        let mut present = page.present;
        while present != 0 {
            let index = present.trailing_zeros() as usize;
            self.others
                .insert(number * PAGE + index as u64, page.values[index]);
            present &= present - 1;
        }
        self.unused.push(place);
        for last in [&mut self.filled, &mut self.emptied] {
            if last.0 == number {
                last.0 = NONE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn sorted(map: &BlockMap<u64>) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = map.iter().map(|(id, &value)| (id, value)).collect();
        all.sort_unstable();
        all
    }

    proptest! {
        /// Lanes that give ids in turns, some of which begin within a page, blocks that are freed
        /// early, late, twice or never, and ids that come again.
        #[test]
        fn it_is_a_map(
            lanes in prop::collection::vec(0u64..200, 1..4),
            steps in prop::collection::vec((0usize..4, 0u64..40, any::<prop::sample::Index>()), 0..3000),
        ) {
            let (mut map, mut known) = (BlockMap::default(), BTreeMap::new());
            let mut next: Vec<u64> = (0..).zip(&lanes).map(|(lane, &at)| lane * 100_000 + at).collect();
            for (value, (lane, kind, which)) in (0..).zip(steps) {
                let lane = lane % next.len();
                match kind {
                    // A burst, so that pages are closed.
                    0 => {
                        for id in next[lane]..next[lane] + 500 {
                            map.insert(id, value);
                            known.insert(id, value);
                        }
                        next[lane] += 500;
                    }
                    1..25 if !known.is_empty() => {
                        let ids: Vec<u64> = known.keys().copied().collect();
                        let at = which.index(ids.len());
                        // A run of ids.
                        for id in &ids[at..(at + kind as usize * 3).min(ids.len())] {
                            prop_assert_eq!(map.get(*id).copied(), known.get(id).copied());
                            prop_assert_eq!(map.get_mut(*id).copied(), known.get(id).copied());
                            prop_assert_eq!(map.remove(*id), known.remove(id));
                            prop_assert_eq!(map.remove(*id), None);
                            prop_assert_eq!(map.get(*id), None);
                        }
                    }
                    25..28 if next[lane] > 0 => {
                        // Ids that were given already, from the begin of a page or not.
                        let from = which.index(next[lane] as usize) as u64 / kind * kind;
                        for id in from..from + 10 {
                            map.insert(id, value);
                            known.insert(id, value);
                        }
                    }
                    _ => {
                        map.insert(next[lane], value);
                        known.insert(next[lane], value);
                        next[lane] += 1;
                    }
                }
                prop_assert_eq!(map.len(), known.len());
            }
            prop_assert_eq!(sorted(&map), known.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn few_blocks_of_many_need_no_pages() {
        let mut map = BlockMap::default();
        for id in 0..1_000_000u64 {
            map.insert(id, id);
            if id % 100 != 0 {
                map.remove(id);
            }
        }
        assert_eq!((map.len(), map.pages.len() <= OPEN + 1), (10_000, true));
        // Survivors that a checkpoint tells begin few pages, which are given up.
        let mut survivors = BlockMap::default();
        for id in (0..100_000_000u64).step_by(1000) {
            survivors.insert(id, id);
        }
        assert_eq!((survivors.len(), survivors.pages.len()), (100_000, OPEN));
        assert_eq!(survivors.get(99_999_000), Some(&99_999_000));
    }

    #[test]
    fn blocks_of_one_time_are_in_pages() {
        let mut map = BlockMap::default();
        (0..1_000_000u64).for_each(|id| map.insert(id, id));
        assert!(map.others.is_empty());
        (0..1_000_000u64).for_each(|id| assert_eq!(map.remove(id), Some(id)));
        assert!(map.is_empty() && map.pages.len() <= 1_000_000 / 64);
    }
}
