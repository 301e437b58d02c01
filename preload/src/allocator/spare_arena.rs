//! The spare: reserved address space for two more arenas, for when the kernel refuses memory.
//!
//! Danger: a private variable of jemalloc. A program may limit its own address space while it runs,
//! or exhaust it, and then start a thread. jemalloc 5.3 wants an arena for such a thread, and
//! dereferences null if there is no memory for one. So the linker redirects its call for an arena's
//! first block to [`first_block`] (`--wrap`, build script).
//!
//! If the allocation fails, [`first_block`] declares the existing arenas and this one to be all
//! that can exist; later threads share them. This arena is made from address space that is reserved
//! at boot.
//!
//! A second arena is reserved for one case. A thread that waited for its turn meanwhile has already
//! read the old number of arenas. It takes the next number as free, which is that of the arena for
//! large blocks, and creates that arena.
//!
//! If the address space is limited from the start, there is only one arena, and no spare is needed.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::allocator::{heap, layout};
use crate::arch::system_call::hidden_jump;
use crate::os::sys;
use crate::state::thread::{self, Thread};

/// Size and alignment of an arena's first block, in bytes.
const BLOCK: usize = 2 << 20;
/// Bytes to map for an aligned block, before trimming.
const REGION: usize = 2 * BLOCK;
/// Number of reserved arenas; see the module's text.
const REGIONS: usize = 2;

/// Start of the reserved address space; 0: none.
static START: AtomicUsize = AtomicUsize::new(0);
/// Number of unused regions.
static REGIONS_LEFT: AtomicUsize = AtomicUsize::new(0);
/// Number of the arena for large blocks: the original number of arenas for threads.
static LARGE_ARENA: AtomicU32 = AtomicU32::new(0);
/// The thread that creates an arena from a reserved region.
static MAKER: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());

/// At boot: reserves the address space.
pub(crate) fn prepare() {
    heap::initialize();
    if !sys::address_space_is_limited()
        && let Some(start) = sys::map_zeroed(REGIONS * REGION)
    {
        // SAFETY: the argument of `first_block`; jemalloc is initialized.
        let large = unsafe { layout::ARENAS_FOR_THREADS.load(Ordering::Relaxed) };
        LARGE_ARENA.store(large, Ordering::Relaxed);
        START.store(start as usize, Ordering::Relaxed);
        REGIONS_LEFT.store(REGIONS, Ordering::Release);
    }
}

hidden_jump! { "__wrap__rjem_je_base_new" => first_block }

/// In jemalloc, with its lock of the arena list held if the arena is for threads: allocates an
/// arena's first block. Returns null if there is no memory.
extern "C" fn first_block(
    thread: *mut c_void,
    arena: c_uint,
    hooks: *const c_void,
    flags: bool,
) -> *mut c_void {
    // SAFETY: jemalloc's own arguments, passed on.
    let block = unsafe { layout::base_new(thread, arena, hooks, flags) };
    // SAFETY: a 32-bit variable in this library. jemalloc writes it at initialization, and reads it
    // for threads' arenas under the lock that this call holds.
    let for_threads = unsafe { &layout::ARENAS_FOR_THREADS };
    if !block.is_null() || arena == 0 || arena > LARGE_ARENA.load(Ordering::Relaxed) {
        return block; // an explicitly created arena may fail
    }
    if arena < for_threads.load(Ordering::Relaxed) {
        // Arenas with smaller numbers exist: jemalloc creates them in order.
        for_threads.store(arena + 1, Ordering::Relaxed);
    }
    MAKER.store(
        std::ptr::from_ref(thread::current()).cast_mut(),
        Ordering::Relaxed,
    );
    // SAFETY: jemalloc's own arguments, passed on.
    let block = unsafe { layout::base_new(thread, arena, hooks, flags) };
    MAKER.store(std::ptr::null_mut(), Ordering::Relaxed);
    block
}

/// Returns a reserved region in place of a mapping that the kernel refused, if the mapping is for
/// an arena that this thread makes.
pub(crate) fn region_for(len: usize) -> Option<*mut c_void> {
    if !std::ptr::eq(MAKER.load(Ordering::Relaxed), thread::current()) || len > REGION {
        return None;
    }
    // jemalloc's lock admits only one thread at a time.
    let left = REGIONS_LEFT.load(Ordering::Acquire).checked_sub(1)?;
    REGIONS_LEFT.store(left, Ordering::Relaxed);
    let start = START.load(Ordering::Relaxed) + left * REGION;
    // A block must have a block's alignment. jemalloc itself trims larger mappings.
    let start = if len > BLOCK {
        start
    } else {
        start.next_multiple_of(BLOCK)
    };
    Some(start as *mut c_void)
}
