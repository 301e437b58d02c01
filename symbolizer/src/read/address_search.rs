//! Address search: a log is read once, and the blocks that held given addresses are noted.
//!
//! ```text
//!   event      alloc 1   alloc 2   free 1                alloc 3   free 2
//!   reading                                  2 at 0x40                      3 at 0x80
//!   of 0x48                                  2 held it             freed    neighbour: 3, above
//! ```
//!
//! A reading of pages has the address of each block, and an allocation has all else. Each part of a
//! reading counts for the blocks that it names. The nearest blocks are those of a complete reading,
//! because a block that is missing from a part would be a wrong neighbour.

use heapprof_core::NumberMap;
use heapprof_format::{Alloc, Event, Free, PageReading, PagesOfBlock, ReadError, Record};

use crate::model::held_address::{AddressBlock, HeldAddress, HeldAddresses};
use crate::model::profile::{LogAccount, Profile};
use crate::model::special_threads::is_inherited;
use crate::read::fold::pages::PagesFold;
use crate::read::fold::{Fold, LARGEST_BLOCK};
use crate::read::log::{RecordSink, each_record};

/// Reads a log. Returns its profile, and what its readings say about these addresses. `progress` is
/// told, now and then, how far reading is.
///
/// # Errors
/// When the bytes are not a log of a version that is known, or hold no intact record.
pub fn search_addresses(
    bytes: &[u8],
    addresses: &[u64],
    mut progress: impl FnMut(u64),
) -> Result<(Profile, HeldAddresses), ReadError> {
    let mut search = Search::of(addresses);
    each_record(bytes, &mut progress, &mut search)?;
    Ok(search.finish())
}

/// See the module's text.
#[derive(Default)]
struct Search {
    fold: Fold,
    /// The addresses, ascending, each once.
    wanted: Vec<u64>,
    live: NumberMap<u64, Alloc>,
    readings: PagesFold,
    /// True between the parts of a reading, and the blocks that were freed there.
    is_reading: bool,
    gone: NumberMap<u64, (Alloc, Free)>,
    /// By address, the blocks nearest to it in the parts so far.
    pending: Vec<Neighbours>,
    /// The blocks that held an address, by id.
    held: NumberMap<u64, AddressBlock>,
    /// By address, the nearest blocks at the last complete reading, and these by id.
    near: Vec<Neighbours>,
    neighbours: NumberMap<u64, AddressBlock>,
    found: HeldAddresses,
}

/// The blocks below and above an address.
#[derive(Debug, Clone, Copy, Default)]
struct Neighbours {
    below: Option<AddressBlock>,
    above: Option<AddressBlock>,
}

impl RecordSink for Search {
    fn take(&mut self, record: Record) {
        match &record {
            Record::Alloc(alloc) => self.alloc(alloc),
            Record::Free(free) => self.free(free),
            Record::Pages(part) => self.part(part),
            _ => {}
        }
        self.fold.record(record);
    }

    fn take_event(&mut self, event: Event) {
        match &event {
            Event::Alloc(alloc) => self.alloc(alloc),
            Event::Free(free) => self.free(free),
        }
        self.fold.event(event);
    }

    fn account(&mut self, account: LogAccount) {
        self.fold.account(account);
    }
}

impl Search {
    fn of(addresses: &[u64]) -> Search {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        Search {
            near: vec![Neighbours::default(); wanted.len()],
            wanted,
            ..Search::default()
        }
    }

    fn alloc(&mut self, alloc: &Alloc) {
        if alloc.size <= LARGEST_BLOCK {
            self.live.insert(alloc.id, *alloc);
        }
    }

    fn free(&mut self, free: &Free) {
        if let Some(alloc) = self.live.remove(&free.id)
            && self.is_reading
        {
            self.gone.insert(free.id, (alloc, *free));
        }
        for blocks in [&mut self.held, &mut self.neighbours] {
            if let Some(block) = blocks.get_mut(&free.id) {
                block.freed = Some((free.time_ns, free.thread));
            }
        }
    }

    fn part(&mut self, part: &PageReading) {
        let complete = self.readings.part(part, 0);
        let Some(addresses) = &part.addresses else {
            self.found.without += u64::from(complete.is_some());
            return;
        };
        if part.part == 0 {
            self.pending = vec![Neighbours::default(); self.wanted.len()];
        }
        self.is_reading = true;
        for (block, &address) in part.blocks.iter().zip(addresses) {
            match self.block(block, address, part.time_ns) {
                Some(block) => self.place(block),
                None => self.found.is_partial = true,
            }
        }
        if part.is_last {
            self.is_reading = false;
            self.gone.clear();
        }
        if let Some(reading) = complete {
            if self.found.readings == 0 {
                self.found.first_ns = reading.time_ns;
            }
            self.found.readings += 1;
            self.found.is_partial |= reading.is_cut || reading.left_out > 0;
            self.found.last = Some(reading);
            self.end_reading();
        }
    }

    /// The block of a reading. `None`: the log does not have its allocation.
    fn block(&self, block: &PagesOfBlock, address: u64, time_ns: u64) -> Option<AddressBlock> {
        let (alloc, free) = match self.live.get(&block.id) {
            Some(alloc) => (alloc, None),
            None => self
                .gone
                .get(&block.id)
                .map(|(alloc, free)| (alloc, Some(free)))?,
        };
        Some(AddressBlock {
            id: block.id,
            address,
            size: alloc.size,
            slack: alloc.slack.min(LARGEST_BLOCK),
            stack: Some(alloc.stack), // its number, up to the end
            thread: alloc.thread,
            time_ns: alloc.time_ns,
            is_inherited: is_inherited(alloc),
            freed: free.map(|free| (free.time_ns, free.thread)),
            slab: block.slab,
            seen_ns: (time_ns, time_ns),
        })
    }

    /// Notes a block of a reading where it holds an address, or is the nearest to one so far.
    fn place(&mut self, block: AddressBlock) {
        let at = |address: u64| self.wanted.partition_point(|wanted| *wanted < address);
        let (from, to) = (at(block.address), at(block.end()));
        if from < to {
            let held = self.held.entry(block.id).or_insert(block);
            held.seen_ns.1 = block.seen_ns.1;
        }
        // The addresses behind this one follow at the reading's end.
        if let Some(near) = self.pending.get_mut(from)
            && near.below.is_none_or(|it| it.address <= block.address)
        {
            near.below = Some(block);
        }
        if let Some(near) = from.checked_sub(1).and_then(|at| self.pending.get_mut(at))
            && near.above.is_none_or(|it| it.address > block.address)
        {
            near.above = Some(block);
        }
    }

    /// The blocks nearest to an address may be those nearest to another one.
    fn end_reading(&mut self) {
        self.near = std::mem::take(&mut self.pending);
        let mut below: Option<AddressBlock> = None;
        for near in &mut self.near {
            below = near.below.or(below);
            near.below = below;
        }
        let mut above: Option<AddressBlock> = None;
        for near in self.near.iter_mut().rev() {
            above = near.above.or(above);
            near.above = above;
        }
        let blocks = self.near.iter().flat_map(|near| [near.below, near.above]);
        self.neighbours = blocks.flatten().map(|block| (block.id, block)).collect();
    }

    fn finish(mut self) -> (Profile, HeldAddresses) {
        let stacks = self.fold.stack_numbers();
        let indexed = |mut block: AddressBlock| {
            block.stack = block.stack.and_then(|number| stacks.get(&number).copied());
            block
        };
        let mut held: Vec<_> = self.held.into_values().map(indexed).collect();
        held.sort_unstable_by_key(|block| {
            let until_ns = block.freed.map_or(u64::MAX, |(time_ns, _)| time_ns);
            std::cmp::Reverse((until_ns, block.address, block.id))
        });
        let neighbours = self.neighbours;
        // As it is by now, and not as it was at the reading.
        let now = |near: Option<AddressBlock>| Some(indexed(*neighbours.get(&near?.id)?));
        let answers = self.wanted.iter().zip(&self.near);
        let mut answers: Vec<_> = answers
            .map(|(&address, near)| HeldAddress {
                address,
                blocks: Vec::new(),
                below: now(near.below),
                above: now(near.above),
            })
            .collect();
        let at = |address: u64| self.wanted.partition_point(|wanted| *wanted < address);
        for block in held {
            for answer in &mut answers[at(block.address)..at(block.end())] {
                answer.blocks.push(block);
            }
        }
        self.found.addresses = answers;
        self.found.is_partial |= self.found.readings == 0;
        (self.fold.finish(), self.found)
    }
}
