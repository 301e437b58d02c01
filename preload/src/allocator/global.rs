//! Our own memory: everything Rust allocates in this library.
//!
//! It comes from an arena of its own, so it cannot enter the hooks, is not mixed with the program's
//! blocks, and can be told apart in jemalloc's statistics.
//!
//! A program at its limit (`ulimit -v`) may see a malloc fail and know what to do. Rust, in our place, would end
//! the process. So when the arena has nothing left, we give up: the phase turns, what is under way is
//! finished with a small reserve, and the writer ends the log. It may need more than the reserve has; then it
//! stops where it is, and the log ends with its last append.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::allocator::own_arena;
use crate::os::sys;
use crate::state::phase;

struct OwnArena;

// SAFETY: jemalloc's mallocx family returns blocks of at least the asked size and alignment, or
// null; blocks are disjoint and stay until freed. The reserve's are disjoint and stay for ever.
unsafe impl GlobalAlloc for OwnArena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        or_reserve(
            own_arena::allocate(layout.size(), layout.align(), false),
            layout,
        )
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        or_reserve(
            own_arena::allocate(layout.size(), layout.align(), true),
            layout,
        )
    }
    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        if !RESERVE.holds(ptr) {
            // SAFETY: the caller passes a block of this allocator, and it is not of the reserve.
            unsafe { own_arena::free(ptr) }
        }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !RESERVE.holds(ptr) {
            // SAFETY: as in `dealloc`.
            let moved = unsafe { own_arena::reallocate(ptr, new_size, layout.align()) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the alignment is that of a layout, and the caller promises that the new size is one with it.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let block = or_reserve(std::ptr::null_mut(), new);
        if !block.is_null() {
            // SAFETY: two blocks that do not overlap, of at least that many bytes each. The old one is
            // not given back, should it be jemalloc's: there is no hurry any more.
            unsafe { ptr.copy_to_nonoverlapping(block, layout.size().min(new_size)) };
        }
        block
    }
}

#[global_allocator]
static OWN: OwnArena = OwnArena;

/// Bytes for what is under way in the program's threads and for the writer's last words. A stack of the largest
/// depth takes 16 KiB.
const RESERVE_BYTES: usize = 256 << 10;

/// Memory that is there from the start, given out once.
#[repr(align(64))]
struct Reserve {
    bytes: UnsafeCell<[u8; RESERVE_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: each byte is given to one caller only, by the atomic count of those that are used.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve {
    bytes: UnsafeCell::new([0; RESERVE_BYTES]),
    used: AtomicUsize::new(0),
};

static IS_SHORT: AtomicBool = AtomicBool::new(false);

impl Reserve {
    fn holds(&self, ptr: *mut u8) -> bool {
        (ptr as usize).wrapping_sub(self.bytes.get() as usize) < RESERVE_BYTES
    }

    /// A zeroed block; null when it does not hold so much.
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

/// Whether our memory came to an end.
pub(crate) fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed)
}

/// Whether that many bytes can be had. For a program's thread, before it begins something large. If not, that is
/// the end, and the caller says so.
pub(crate) fn can_have(bytes: usize) -> bool {
    let block = own_arena::allocate(bytes, 64, false);
    if !block.is_null() {
        // SAFETY: allocated just now.
        unsafe { own_arena::free(block) };
        return true;
    }
    be_short()
}

/// Whether so much address space is left that is not ours yet. As [`can_have`].
pub(crate) fn can_map(bytes: usize) -> bool {
    sys::can_map(bytes) || be_short()
}

/// Gives up where there was too little memory from the beginning.
pub(crate) fn give_up_for_want_of_memory() {
    phase::give_up(format_args!(
        "there is no memory for us (is it limited, as by ulimit -v?); nothing is recorded"
    ));
}

/// What the writer does when it finds no memory, instead of returning; 0: there is no writer yet.
static IN_THE_WRITER: AtomicUsize = AtomicUsize::new(0);

/// At boot. `stop` does not return in the writer's thread, and does nothing in others.
pub(crate) fn prepare(stop: fn()) {
    IN_THE_WRITER.store(stop as usize, Ordering::Release);
}

fn be_short() -> bool {
    IS_SHORT.store(true, Ordering::Relaxed);
    phase::end();
    false
}

#[inline]
fn or_reserve(block: *mut u8, layout: Layout) -> *mut u8 {
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
        let stop = IN_THE_WRITER.load(Ordering::Acquire);
        if stop != 0 {
            // SAFETY: the address of a function of that type, which `prepare` stored.
            unsafe { std::mem::transmute::<usize, fn()>(stop)() };
        }
    }
    block
}
