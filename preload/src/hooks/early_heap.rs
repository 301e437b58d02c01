//! Early heap: blocks that are allocated before the loader has relocated this library and the
//! program.
//!
//! Danger: our own code runs without relocations. The loader calls IFUNC resolvers of the program
//! and its libraries while it relocates, and they may call malloc (libc's own is ready by then).
//! Our functions can already be found. In resolvers of libraries, no access through the GOT works,
//! so there is no libc, no jemalloc and no thread-local variable. In resolvers of the program,
//! thread-local variables do not have their initial values yet. So early blocks come from a static
//! array and are never given back.
//!
//! Later, `free` must distinguish them from the allocator's blocks. Their addresses stay marked in
//! the Bloom filter for ever, so only the slow path has to check. The fast path itself reads the
//! thread's record before it is known that we are relocated: see `thread_block::RECORD_AT`.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::memory::copy_inline;
use crate::arch::thread_block::is_ready;
use crate::recording::sampled_blocks;

/// Bytes for early blocks: room for a resolver that reads /proc/cpuinfo through a FILE, many times.
const CAPACITY: usize = 64 << 10;

/// Bytes in front of each block. They hold its size and keep the block aligned.
const HEADER: usize = 16;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; CAPACITY]>);

// SAFETY: handed out in ranges that do not overlap (`USED` only grows), each of which is its
// owner's.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; CAPACITY]));
/// How many bytes are handed out.
static USED: AtomicUsize = AtomicUsize::new(0);

fn start() -> usize {
    MEMORY.0.get() as usize
}

/// Returns true while the library is not ready. Called on slow paths only: until then, every call
/// takes a slow path.
#[inline(always)]
pub(crate) fn is_active() -> bool {
    !is_ready()
}

/// Returns true if `ptr` is an early block.
#[inline(always)]
pub(crate) fn owns(ptr: *mut c_void) -> bool {
    (ptr as usize).wrapping_sub(start()) < CAPACITY
}

/// Returns every address at which an early block may begin.
pub(crate) fn addresses() -> impl Iterator<Item = u64> {
    let used = USED.load(Ordering::Relaxed).min(CAPACITY);
    (0..used).step_by(HEADER).map(|at| (start() + at) as u64)
}

/// Returns the bytes of an early block.
pub(crate) fn usable(ptr: *mut c_void) -> usize {
    debug_assert!(owns(ptr));
    // SAFETY: `allocate` put the size there.
    unsafe { *(ptr as *const usize).byte_sub(HEADER) }
}

/// Allocates a zeroed block. Null if the array is full. errno is not set, because it cannot be
/// reached.
#[cold]
pub(crate) fn allocate(alignment: usize, size: usize) -> *mut c_void {
    let alignment = if alignment > HEADER {
        alignment
    } else {
        HEADER
    };
    if size > CAPACITY || alignment > CAPACITY {
        return null_mut();
    }
    let size = (size + HEADER - 1) & !(HEADER - 1);
    let taken = USED.fetch_add(size + alignment + HEADER, Ordering::Relaxed);
    let block = (start() + taken + HEADER + alignment - 1) & !(alignment - 1);
    if block + size > start() + CAPACITY {
        return null_mut();
    }
    // SAFETY: the header and the block lie in the range that `taken` reserved, which is within the
    // memory.
    unsafe { *(block as *mut usize).byte_sub(HEADER) = size };
    sampled_blocks::mark_early(block as u64);
    block as *mut c_void
}

/// Copies the contents of an early block to the block `to`, which has room for `size` bytes.
///
/// # Safety
/// `from` is an early block, `to` a block of `size` bytes or null.
pub(crate) unsafe fn copy(from: *mut c_void, to: *mut c_void, size: usize) {
    if to.is_null() {
        return;
    }
    let known = usable(from);
    let len = if size < known { size } else { known };
    // SAFETY: both blocks have so many bytes and do not overlap.
    unsafe { copy_inline(from.cast(), to.cast(), len) };
}
