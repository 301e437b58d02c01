//! The sampled blocks of this process: may a sample live at this address, and which?
//!
//! Danger: every free of the program asks here, in assembly (`hooks/malloc_fast.rs`), and what is wrong here is a phantom leak or a block freed
//! twice. Order matters: a block's sample is put in before its address is handed out, and taken out before the block is
//! freed (Law 2).
//!
//! The filter is asked first, the table only where the filter says "perhaps". A sample that is taken out leaves its [`Spot`]:
//! whoever records everything keeps it for the next block, which mostly gets the address that was freed last.

use std::ffi::c_void;

use heapprof_core::{Filter, Growth, Levels, SampleTable, Vacant};

use crate::arch::memory::prefetch_to_write;
use crate::recording::mapped_levels::Mapped;

/// May there be a sample at this address?
pub(crate) static FILTER: Filter = Filter::new();
/// Which sample is at this address?
static TABLE: SampleTable<Mapped> = SampleTable::new(Mapped::new());

/// Whether a sample may live at `ptr`. If so, [`take`] must be called before the block is freed. `free` asks the first half of it in
/// assembly.
#[inline(always)]
pub(crate) fn may_be_sampled(ptr: *mut c_void) -> bool {
    FILTER.may_hold(ptr as u64)
}

/// Lets a block of `hooks/early_heap.rs` be asked for in every free of it.
pub(crate) fn mark_early(address: u64) {
    FILTER.add(address);
}

/// At boot, before there is any sample: what will be asked suits samples `interval` bytes apart. `early`:
/// addresses of the blocks from before, all of which stay marked.
pub(crate) fn prepare_filter(interval: u64, early: impl Iterator<Item = u64>) {
    FILTER.set_unit(Filter::unit_for(interval), early);
}

/// Whether there is room for a first sample. For a session that begins.
pub(crate) fn make_table() -> bool {
    let levels = TABLE.levels();
    levels.count() > 0 || levels.grow(0) != Growth::Refused
}

/// In a forked child.
pub(crate) fn after_fork() {
    TABLE.levels().after_fork();
}

/// A sample will be [inserted](insert) at `ptr` soon: asks for the lines of the cache that it takes. Of few samples they are in no cache by then,
/// nor the addresses of their pages, and the locked instructions there would wait for them.
#[inline(always)]
pub(crate) fn fetch(ptr: *mut c_void) {
    prefetch_to_write(FILTER.place_of(ptr as u64));
    if let Some(place) = TABLE.place_of(ptr as u64) {
        prefetch_to_write(place);
    }
}

/// Has sample `id` live at `ptr`, a block that has not been handed out. False: there is no room.
#[inline(always)]
pub(crate) fn insert(ptr: *mut c_void, id: u64) -> bool {
    FILTER.add(ptr as u64);
    let has_room = TABLE.insert(ptr as u64, id);
    if !has_room {
        FILTER.remove(ptr as u64);
    }
    has_room
}

/// Has the sample at `ptr`, if there is one, be `id` from now on. Returns which it was.
#[inline(always)]
pub(crate) fn replace(ptr: *mut c_void, id: u64) -> Option<u64> {
    if !may_be_sampled(ptr) {
        return None;
    }
    TABLE.replace(ptr as u64, id)
}

/// A sample that was taken out. Nothing happens when it is dropped: a thread may be cancelled while it has one, between any two
/// instructions, and such a thread cannot be unwound through a function that has something to drop.
#[must_use = "its place in the table is nobody else's until it is left"]
pub(crate) struct Taken {
    pub(crate) id: u64,
    pub(crate) vacant: Vacant,
}

impl Taken {
    /// The block is still there (a realloc that failed), and so is its sample (Law 3).
    pub(crate) fn put_back(self) {
        self.vacant.fill(self.id);
    }

    /// Where it was. To be asked for where the thread cannot be cancelled.
    #[inline(always)]
    pub(crate) fn spot(self) -> Spot {
        Spot(Some(self.vacant))
    }
}

/// Takes the sample at `ptr` out, if there is one. Right always, and slow where [`may_be_sampled`] would have said that there is none.
#[inline(always)]
pub(crate) fn take(ptr: *mut c_void) -> Option<Taken> {
    let (id, vacant) = TABLE.take(ptr as u64)?;
    Some(Taken { id, vacant })
}

/// Where a sample was: its place in the table, and its count in the filter, as if it were still there. Given back when it is dropped.
pub(crate) struct Spot(Option<Vacant>);

impl Spot {
    /// Of a sample that was [taken](take). To be called where the thread cannot be cancelled.
    #[inline(always)]
    pub(crate) fn of(vacant: Vacant) -> Spot {
        Spot(Some(vacant))
    }

    /// Whether it is that of `ptr`.
    #[inline(always)]
    pub(crate) fn is_at(&self, ptr: *mut c_void) -> bool {
        let vacant = self.0.as_ref();
        vacant.is_some_and(|vacant| vacant.address() == ptr as u64)
    }

    /// Has sample `id` live there.
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
            FILTER.remove(address);
        }
    }
}
