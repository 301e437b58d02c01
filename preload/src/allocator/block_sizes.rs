//! Block size: the usable bytes of a block that another thread may free meanwhile.
//!
//! Danger: private memory of another library, read while other threads change it. jemalloc's own
//! query (`malloc_usable_size`) is for live blocks alone. So this file loads each word once. A
//! block that is gone has any size, or none.
//!
//! No lock is taken, and no block is read.

use std::ffi::c_void;

use crate::allocator::{large, next, rtree};

/// Returns the usable bytes of a block of that address. `None`: the block is gone, or it is not
/// jemalloc's.
pub(crate) fn of_block(address: u64) -> Option<u64> {
    if next::is_chosen() {
        return None; // jemalloc has no block of the program
    }
    let block = std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
    // SAFETY: the address was that of a block in use, or of another allocator's block, so it is
    // within the 48 bits of the map. Leaves are never freed, and an entry is one word.
    let entry = unsafe { rtree::entry(block) }.filter(|&entry| entry != 0)?;
    match rtree::class_of_entry(entry).bytes() {
        0 => large::bytes_of_entry(entry),
        bytes => Some(bytes as u64),
    }
}
