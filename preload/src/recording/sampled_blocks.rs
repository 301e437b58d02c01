//! Sampled blocks: the table of live samples by address, and the Bloom filter in front of it.
//!
//! Glossary: spot.
//!
//! Danger: every free of the program reads the Bloom filter, in assembly. A mistake here is a
//! phantom leak or a double free. Order matters: a sample is inserted before its address is
//! returned, and removed before the block is freed (Law 2).
//!
//! The Bloom filter is read first, and the table only if the filter says "perhaps". A sample that
//! is taken out leaves its [`Spot`]. If everything is recorded, the seat keeps the spot for the
//! next block, because the allocator mostly returns the address that was freed last.

use std::ffi::c_void;

use heapprof_core::{BloomFilter, Growth, Levels, SampleTable, Vacant};

use crate::arch::memory::prefetch_to_write;
use crate::recording::mapped_levels::MappedLevels;

/// The Bloom filter: may a sample live at this address?
pub(crate) static BLOOM_FILTER: BloomFilter = BloomFilter::new();
/// The table: which sample lives at this address?
static TABLE: SampleTable<MappedLevels> = SampleTable::new(MappedLevels::new());

/// The bit in which the number of a pool's block differs from its address. No address of a process
/// has it.
const REPORTED: u64 = 1 << 63;

/// Returns the number by which a block that a pool reported is known here.
pub(crate) fn reported_number(ptr: *mut c_void) -> *mut c_void {
    ptr.wrapping_byte_add(REPORTED as usize)
}

/// Returns the address of a block. `number` is the number of a pool's block, or the address of
/// another block.
pub(crate) fn address_of(number: u64) -> u64 {
    number & !REPORTED
}

/// Returns true if a sample may live at `ptr`. Then [`take`] must be called before the block is
/// freed. The assembly of `free` has the first half of this check.
#[inline(always)]
pub(crate) fn may_be_sampled(ptr: *mut c_void) -> bool {
    BLOOM_FILTER.may_hold(ptr as u64)
}

/// Marks the address of an early block, so that every free of it takes the slow path.
pub(crate) fn mark_early(address: u64) {
    BLOOM_FILTER.add(address);
}

/// Fits the Bloom filter to samples that are `interval` bytes apart. Called at boot, before there
/// is any sample. The addresses of early blocks, `early`, stay marked.
pub(crate) fn prepare_bloom_filter(interval: u64, early: impl Iterator<Item = u64>) {
    BLOOM_FILTER.set_unit(BloomFilter::unit_for(interval), early);
}

/// Makes the table's first level, for a session that begins. Returns false if there is no memory.
pub(crate) fn make_table() -> bool {
    let levels = TABLE.levels();
    levels.count() > 0 || levels.grow(0) != Growth::Refused
}

/// Before another recording in this process: forgets all samples. No hook runs, and no seat keeps a
/// spot.
#[cfg(feature = "attach")]
pub(crate) fn renew() {
    TABLE.levels().clear();
    BLOOM_FILTER.clear();
}

/// Resets the table's growth in a forked child.
pub(crate) fn after_fork() {
    TABLE.levels().after_fork();
}

/// Prefetches the cache lines that an [`insert`] at `ptr` writes to. If samples are rare, neither
/// the lines nor their address translations are cached, and the locked instructions would wait for
/// them.
#[inline(always)]
pub(crate) fn prefetch(ptr: *mut c_void) {
    prefetch_to_write(BLOOM_FILTER.place_of(ptr as u64));
    if let Some(place) = TABLE.place_of(ptr as u64) {
        prefetch_to_write(place);
    }
}

/// Inserts sample `id` at `ptr`, a block that has not been returned. False: there is no room.
#[inline(always)]
pub(crate) fn insert(ptr: *mut c_void, id: u64) -> bool {
    BLOOM_FILTER.add(ptr as u64);
    let has_room = TABLE.insert(ptr as u64, id);
    if !has_room {
        BLOOM_FILTER.remove(ptr as u64);
    }
    has_room
}

/// Replaces the sample at `ptr` by `id`. Returns the id of the old one, if there is one.
#[inline(always)]
pub(crate) fn replace(ptr: *mut c_void, id: u64) -> Option<u64> {
    if !may_be_sampled(ptr) {
        return None;
    }
    TABLE.replace(ptr as u64, id)
}

/// A sample that was taken out of the table. It has no destructor: a thread may be cancelled at any
/// instruction while it has one, and cannot be unwound through a function that has something to
/// drop.
#[must_use = "its slot in the table stays reserved until it is given back"]
pub(crate) struct TakenSample {
    pub(crate) id: u64,
    pub(crate) vacant: Vacant,
}

impl TakenSample {
    /// Puts the sample back, for a block that still exists because its realloc failed (Law 3).
    pub(crate) fn put_back(self) {
        self.vacant.fill(self.id);
    }

    /// Returns the spot of the sample. Call it only while the thread cannot be cancelled.
    #[inline(always)]
    pub(crate) fn spot(self) -> Spot {
        Spot(Some(self.vacant))
    }
}

/// Passes the address of each live sample, whether a pool reported it, and its id, until `visit`
/// returns false. Samples come and go meanwhile. For the writer.
pub(crate) fn each(visit: &mut dyn FnMut(u64, bool, u64) -> bool) {
    TABLE.each(&mut |number, id| visit(address_of(number), number & REPORTED != 0, id));
}

/// Takes the sample at `ptr` out, if there is one. Correct for every address, and slow for
/// addresses that [`may_be_sampled`] rejects.
#[inline(always)]
pub(crate) fn take(ptr: *mut c_void) -> Option<TakenSample> {
    let (id, vacant) = TABLE.take(ptr as u64)?;
    Some(TakenSample { id, vacant })
}

/// The spot of a freed sample: its slot in the table and its count in the Bloom filter, both still
/// reserved. Dropping the spot gives both back.
pub(crate) struct Spot(Option<Vacant>);

impl Spot {
    /// Makes the spot of a sample that was [taken](take) out. Call it only while the thread cannot
    /// be cancelled.
    #[inline(always)]
    pub(crate) fn of(vacant: Vacant) -> Spot {
        Spot(Some(vacant))
    }

    /// Returns true if the spot belongs to `ptr`.
    #[inline(always)]
    pub(crate) fn is_at(&self, ptr: *mut c_void) -> bool {
        let vacant = self.0.as_ref();
        vacant.is_some_and(|vacant| vacant.address() == ptr as u64)
    }

    /// Returns the address of the block.
    pub(crate) fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Vacant::address)
    }

    /// Inserts sample `id` there.
    #[inline(always)]
    pub(crate) fn fill(mut self, id: u64) {
        if let Some(vacant) = self.0.take() {
            vacant.fill(id);
        }
    }
}

impl Drop for Spot {
    #[inline]
    fn drop(&mut self) {
        if let Some(vacant) = self.0.take() {
            let address = vacant.address();
            vacant.leave();
            BLOOM_FILTER.remove(address);
        }
    }
}
