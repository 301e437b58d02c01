//! jemalloc's control values (`mallctl`): statistics of the process, and commands that return
//! memory.
//!
//! Danger: `mallctl` writes as many bytes as the named value has, to the given address.
//! jemalloc(3), "MALLCTL NAMESPACE", has the names and their types.
//!
//! The first call allocates jemalloc's control structures, which is a large part of the start-up
//! cost of a short program. So no call happens before statistics or a purge are requested. Boot and
//! threads use direct calls of jemalloc's functions instead.

use std::ffi::{CStr, c_int};
use std::io::Write as _;
use std::ptr::null_mut;

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::PAGE;
use crate::allocator::own_arena;

/// MALLCTL_ARENAS_ALL: the sum of all arenas.
const ALL_ARENAS: c_int = 4096;

/// Returns the named value, or `None` if jemalloc has no such value or fails to compute it.
///
/// # Safety
/// The value is a `T`, and reading it needs no input. A `T` is an integer or a raw pointer.
unsafe fn read<T>(name: &CStr, mut value: T) -> Option<T> {
    let mut len = size_of::<T>();
    let place = (&raw mut value).cast();
    // SAFETY: writes a T in place of a T, by the caller's promise, and reads nothing.
    let error = unsafe { sys::mallctl(name.as_ptr(), place, &raw mut len, null_mut(), 0) };
    (error == 0).then_some(value)
}

/// jemalloc's statistics of the whole process, in bytes. Our own arena counts as mapped, but not as
/// allocated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stats {
    /// Bytes in live blocks of the program.
    pub(crate) allocated: usize,
    /// Bytes in pages that contain such blocks.
    pub(crate) active: usize,
    /// Bytes in pages that are mapped for blocks.
    pub(crate) mapped: usize,
    /// Bytes in pages that are resident.
    pub(crate) resident: usize,
}

impl Stats {
    /// Returns the mapped bytes that are in no block of the program.
    pub(crate) fn free(&self) -> usize {
        self.mapped.saturating_sub(self.allocated)
    }
}

/// Makes jemalloc recompute its statistics, which are otherwise those of the last refresh.
fn refresh() {
    let mut epoch = 1u64;
    let mut len = size_of::<u64>();
    let place = (&raw mut epoch).cast();
    // SAFETY: "epoch" reads and writes a u64.
    unsafe { sys::mallctl(c"epoch".as_ptr(), place, &raw mut len, place, len) };
}

/// Returns refreshed statistics.
pub(crate) fn stats() -> Stats {
    refresh();
    // SAFETY: the values of these names are of type size_t.
    let bytes = |name: &CStr| unsafe { read(name, 0usize) }.unwrap_or(0);
    let ours =
        |arena: c_int| of_arena(arena, "small.allocated") + of_arena(arena, "large.allocated");
    Stats {
        allocated: bytes(c"stats.allocated").saturating_sub(own_arena::number().map_or(0, ours)),
        active: bytes(c"stats.active"),
        mapped: bytes(c"stats.mapped"),
        resident: bytes(c"stats.resident"),
    }
}

/// Returns the numbers of free and of live blocks in the slab of a live block of our arena. `None`:
/// it is in no slab.
pub(crate) fn slab_of(block: *mut u8) -> Option<(u32, u32)> {
    let mut block = block;
    // Free blocks, all blocks, bytes (`inspect_extent_util_stats_t`).
    let mut found = [0usize; 3];
    let mut bytes = size_of_val(&found);
    let name = c"experimental.utilization.batch_query";
    // SAFETY: reads one address, and writes three numbers.
    let error = unsafe {
        sys::mallctl(
            name.as_ptr(),
            found.as_mut_ptr().cast(),
            &raw mut bytes,
            (&raw mut block).cast(),
            size_of::<*mut u8>(),
        )
    };
    let [free, blocks, _] = found;
    let live = blocks
        .checked_sub(free)
        .filter(|_| error == 0 && blocks > 1);
    Some((free as u32, live? as u32))
}

/// Returns the bytes in unused pages of the program that are not returned to the kernel.
pub(crate) fn dirty_bytes() -> usize {
    refresh();
    let pages = |arena| of_arena(arena, "pdirty");
    let ours = own_arena::number().map_or(0, pages);
    pages(ALL_ARENAS).saturating_sub(ours).saturating_mul(PAGE)
}

/// Returns jemalloc's count of that name for an arena, or 0 if there is none.
fn of_arena(arena: c_int, what: &str) -> usize {
    let mut name = [0u8; 64]; // the last byte stays zero
    let mut rest = &mut name[..63];
    let _ = write!(rest, "stats.arenas.{arena}.{what}");
    let name = CStr::from_bytes_until_nul(&name);
    // SAFETY: the values of these names are of type size_t.
    let count = name.map(|name| unsafe { read(name, 0usize) });
    count.ok().flatten().unwrap_or(0)
}

/// Returns the unused pages of all arenas to the kernel that have been unused long enough.
/// Otherwise this happens as threads allocate.
pub(crate) fn decay() {
    let all = c"arena.4096.decay"; // 4096 is MALLCTL_ARENAS_ALL
    // SAFETY: the call neither reads nor writes.
    unsafe { sys::mallctl(all.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}

/// Returns all unused pages of all arenas to the kernel.
pub(crate) fn purge() {
    let all = c"arena.4096.purge"; // 4096 is MALLCTL_ARENAS_ALL
    // SAFETY: the call neither reads nor writes.
    unsafe { sys::mallctl(all.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}
