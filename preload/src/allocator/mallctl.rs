//! jemalloc's values, by their names: its account of the process, and what gives memory back.
//!
//! Danger: `mallctl` writes as many bytes as the value of that name has, wherever it is told to. The names, and what they hold, are in
//! jemalloc(3), "MALLCTL NAMESPACE".
//!
//! The first of these calls makes what answers them, 450 KiB, of which some 40 pages are written to: as much as a tenth of what a short program takes to start with us.
//! So none is made before somebody wants the account, or memory back; what boot and threads need is in `allocator/own_arena.rs` and `allocator/tcache_policy.rs`.

use std::ffi::{CStr, c_int};
use std::io::Write as _;
use std::ptr::null_mut;

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::PAGE;
use crate::allocator::own_arena;

/// MALLCTL_ARENAS_ALL: all of them together.
const ALL_ARENAS: c_int = 4096;

/// The value of that name; `None`: jemalloc has no such value, or could not make it.
///
/// # Safety
/// It is a `T`, and nothing need be given to read it. A `T` is an integer or a raw pointer.
unsafe fn read<T>(name: &CStr, mut value: T) -> Option<T> {
    let mut len = size_of::<T>();
    let place = (&raw mut value).cast();
    // SAFETY: writes a T in place of a T, by the caller's promise, and reads nothing.
    let error = unsafe { sys::mallctl(name.as_ptr(), place, &raw mut len, null_mut(), 0) };
    (error == 0).then_some(value)
}

/// jemalloc's own account of the whole process, in bytes. What is ours is mapped, and not allocated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stats {
    /// In blocks that the program has.
    pub(crate) allocated: usize,
    /// In pages that hold such blocks.
    pub(crate) active: usize,
    /// In pages that are mapped for blocks.
    pub(crate) mapped: usize,
    /// In pages that the kernel holds for us.
    pub(crate) resident: usize,
}

impl Stats {
    /// Mapped, and in no block of the program's.
    pub(crate) fn free(&self) -> usize {
        self.mapped.saturating_sub(self.allocated)
    }
}

/// Has jemalloc draw its account up afresh: what it answers is of that moment until the next.
fn refresh() {
    let mut epoch = 1u64;
    let mut len = size_of::<u64>();
    let place = (&raw mut epoch).cast();
    // SAFETY: "epoch" reads and writes a u64.
    unsafe { sys::mallctl(c"epoch".as_ptr(), place, &raw mut len, place, len) };
}

/// Reads the account afresh.
pub(crate) fn stats() -> Stats {
    refresh();
    // SAFETY: what has these names is a size_t.
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

/// Bytes of the program's in pages that are unused and have not been given back to the kernel.
pub(crate) fn dirty_bytes() -> usize {
    refresh();
    let pages = |arena| of_arena(arena, "pdirty");
    let ours = own_arena::number().map_or(0, pages);
    pages(ALL_ARENAS).saturating_sub(ours).saturating_mul(PAGE)
}

/// What jemalloc counts of an arena under that name; 0: nothing, or it does not say.
fn of_arena(arena: c_int, what: &str) -> usize {
    let mut name = [0u8; 64]; // of which the last stays zero
    let mut rest = &mut name[..63];
    let _ = write!(rest, "stats.arenas.{arena}.{what}");
    let name = CStr::from_bytes_until_nul(&name);
    // SAFETY: what has these names is a size_t.
    let count = name.map(|name| unsafe { read(name, 0usize) });
    count.ok().flatten().unwrap_or(0)
}

/// Gives those unused pages of all arenas back to the kernel that have been unused for long enough, which else is done as threads allocate.
pub(crate) fn decay() {
    let all = c"arena.4096.decay"; // 4096 is MALLCTL_ARENAS_ALL
    // SAFETY: the call neither reads nor writes.
    unsafe { sys::mallctl(all.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}

/// Gives unused pages of all arenas back to the kernel.
pub(crate) fn purge() {
    let all = c"arena.4096.purge"; // 4096 is MALLCTL_ARENAS_ALL
    // SAFETY: the call neither reads nor writes.
    unsafe { sys::mallctl(all.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}
