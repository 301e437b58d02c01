//! The global allocator: all memory that Rust code allocates in this library.
//!
//! It comes from an arena of its own. So it cannot enter the hooks, is not mixed with the program's
//! blocks, and is separate in jemalloc's statistics. The writer allocates here as it needs.
//! Hooks allocate on rare paths only: labels, a module that a walk learns, the start of a session.
//! The fast paths allocate nothing. A forked child allocates one seat, if none is free. Lanes and
//! tables are mapped by system calls.
//!
//! A program at its limit (`ulimit -v`) may see a malloc fail and handle it; Rust code would end
//! the process. So if the arena has no memory left, the recording ends. Work in progress is
//! completed with a small reserve, and the writer ends the log. If the writer needs more than the
//! reserve has, it stops, and the log ends with its last append.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::allocator::own_arena;
use crate::os::sys;
use crate::state::phase;

struct OwnArena;

// SAFETY: jemalloc's mallocx family returns blocks of at least the requested size and alignment, or
// null; blocks are disjoint and stay until freed. The reserve's blocks are disjoint and stay for
// ever.
unsafe impl GlobalAlloc for OwnArena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        or_from_reserve(
            own_arena::allocate(layout.size(), layout.align(), false),
            layout,
        )
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        or_from_reserve(
            own_arena::allocate(layout.size(), layout.align(), true),
            layout,
        )
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if !RESERVE.contains(ptr) {
            // SAFETY: the caller passes a block of this allocator, and it is not in the reserve.
            unsafe { own_arena::free_sized(ptr, layout.size(), layout.align()) }
        }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !RESERVE.contains(ptr) {
            // SAFETY: the argument of `dealloc`.
            let moved =
                unsafe { own_arena::reallocate(ptr, layout.size(), new_size, layout.align()) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the alignment is that of a layout, and the caller promises that the new size is
        // valid with it.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let block = or_from_reserve(std::ptr::null_mut(), new);
        if !block.is_null() {
            // SAFETY: two blocks that do not overlap, of at least that many bytes each. The old one
            // is leaked even if it is jemalloc's, because the recording ends.
            unsafe { ptr.copy_to_nonoverlapping(block, layout.size().min(new_size)) };
        }
        block
    }
}

#[global_allocator]
static OWN: OwnArena = OwnArena;

/// Bytes for work in progress in the program's threads, and for the end of the log. They suffice
/// for several stacks of the greatest depth.
const RESERVE_BYTES: usize = 256 << 10;

/// Static memory, each byte of which is given out once.
#[repr(align(64))]
struct Reserve {
    bytes: UnsafeCell<[u8; RESERVE_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: each byte is given to one caller only, by the atomic count of used bytes.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve {
    bytes: UnsafeCell::new([0; RESERVE_BYTES]),
    used: AtomicUsize::new(0),
};

static IS_SHORT: AtomicBool = AtomicBool::new(false);

impl Reserve {
    fn contains(&self, ptr: *mut u8) -> bool {
        (ptr as usize).wrapping_sub(self.bytes.get() as usize) < RESERVE_BYTES
    }

    /// Returns a zeroed block, or null if the rest is too small.
    fn take(&self, layout: Layout) -> *mut u8 {
        let first = self.bytes.get() as usize;
        let start_after = |used: usize| {
            (first + used)
                .checked_next_multiple_of(layout.align())
                .map(|at| at - first)
        };
        let end_after = |used: usize| start_after(used)?.checked_add(layout.size());
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                end_after(used).filter(|&end| end <= RESERVE_BYTES)
            });
        match taken.ok().and_then(start_after) {
            // SAFETY: `start` and the bytes after it lie in the array, by the check above.
            Some(start) => unsafe { self.bytes.get().cast::<u8>().add(start) },
            None => std::ptr::null_mut(),
        }
    }
}

/// Returns true if our memory is exhausted.
pub(crate) fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed)
}

/// Returns true if that many bytes can be allocated. Called in the program's threads before large
/// work. If false, the recording has ended, and the caller prints the reason.
pub(crate) fn can_allocate(bytes: usize) -> bool {
    const ALIGNMENT: usize = 64;
    let block = own_arena::allocate(bytes, ALIGNMENT, false);
    if !block.is_null() {
        // SAFETY: allocated just now.
        unsafe { own_arena::free_sized(block, bytes, ALIGNMENT) };
        return true;
    }
    end_for_shortage()
}

/// Returns true if that much address space can still be mapped. If false, the recording has ended,
/// as after [`can_allocate`].
pub(crate) fn can_map(bytes: usize) -> bool {
    sys::can_map(bytes) || end_for_shortage()
}

/// Gives up because memory is too scarce from the start.
pub(crate) fn give_up_without_memory() {
    phase::give_up(format_args!(
        "there is no memory for us (is it limited, as by ulimit -v?); nothing is recorded"
    ));
}

/// Function that the writer calls if it finds no memory, and that does not return; 0: there is no
/// writer yet.
static STOP_WRITER: AtomicUsize = AtomicUsize::new(0);

/// At boot: sets the function for the writer. `stop` does not return in the writer's thread, and
/// does nothing in other threads.
pub(crate) fn prepare(stop: fn()) {
    STOP_WRITER.store(stop as usize, Ordering::Release);
}

fn end_for_shortage() -> bool {
    IS_SHORT.store(true, Ordering::Relaxed);
    phase::end();
    false
}

#[inline]
fn or_from_reserve(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() {
        from_reserve(layout)
    } else {
        block
    }
}

#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    if !IS_SHORT.swap(true, Ordering::Relaxed) {
        phase::give_up(format_args!(
            "there is no memory left for us; recording ends here, the program runs on"
        ));
    }
    let block = RESERVE.take(layout);
    if block.is_null() {
        let stop = STOP_WRITER.load(Ordering::Acquire);
        if stop != 0 {
            // SAFETY: the address of a function of that type, stored by `prepare`.
            unsafe { std::mem::transmute::<usize, fn()>(stop)() };
        }
    }
    block
}
