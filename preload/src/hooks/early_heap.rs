//! Early blocks: what is allocated before the loader has made this library ready.
//!
//! Danger: our own code without relocations. The loader calls the program's and its libraries' IFUNC resolvers while
//! it relocates, and they may call malloc (libc's own is ready by then). Our functions can already be found, but
//! for the resolvers of libraries nothing in them that goes through the GOT works, no libc, no jemalloc, no
//! thread-local; and for the program's, thread-local words do not have their first values yet (`thread::is_ready`). So
//! these blocks are cut from a piece of our own zeroed data, and never given back.
//!
//! Later they must be told from jemalloc's. They are marked in the filter for ever, so that the frequent free
//! does not ask; only the cold way does. The fast question itself is asked before it is known that we are not
//! relocated: see `thread_block::RECORD_AT`.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::memory::copy_without_a_call;
use crate::arch::thread_block::is_ready;
use crate::recording::sampled_blocks;

/// Bytes for early blocks: a resolver that reads /proc/cpuinfo through a FILE takes six thousand.
const ROOM: usize = 64 << 10;

/// Before each block: its size, and so much that the block is aligned.
const HEAD: usize = 16;

#[repr(C, align(4096))]
struct Room(UnsafeCell<[u8; ROOM]>);

// SAFETY: handed out in pieces that do not overlap (`USED` only grows), each of which is its owner's.
unsafe impl Sync for Room {}

static MEMORY: Room = Room(UnsafeCell::new([0; ROOM]));
/// Bytes of it that are handed out.
static USED: AtomicUsize = AtomicUsize::new(0);

fn start() -> usize {
    MEMORY.0.get() as usize
}

/// Whether we are not ready yet. To be asked on the sampled way only: until then every call goes there.
#[inline(always)]
pub(crate) fn is_now() -> bool {
    !is_ready()
}

/// Whether that is an early block.
#[inline(always)]
pub(crate) fn owns(ptr: *mut c_void) -> bool {
    (ptr as usize).wrapping_sub(start()) < ROOM
}

/// Where early blocks may begin, as far as there are any.
pub(crate) fn addresses() -> impl Iterator<Item = u64> {
    let used = USED.load(Ordering::Relaxed).min(ROOM);
    (0..used).step_by(HEAD).map(|at| (start() + at) as u64)
}

/// Bytes of an early block.
pub(crate) fn usable(ptr: *mut c_void) -> usize {
    debug_assert!(owns(ptr));
    // SAFETY: `allocate` put the size there.
    unsafe { *(ptr as *const usize).byte_sub(HEAD) }
}

/// A zeroed block, or null when there is no more room. errno is left alone: it is out of reach.
#[cold]
pub(crate) fn allocate(alignment: usize, size: usize) -> *mut c_void {
    let alignment = if alignment > HEAD { alignment } else { HEAD };
    if size > ROOM || alignment > ROOM {
        return null_mut();
    }
    let size = (size + HEAD - 1) & !(HEAD - 1);
    let taken = USED.fetch_add(size + alignment + HEAD, Ordering::Relaxed);
    let block = (start() + taken + HEAD + alignment - 1) & !(alignment - 1);
    if block + size > start() + ROOM {
        return null_mut();
    }
    // SAFETY: the head and the block lie in the piece that `taken` reserved, which is within the memory.
    unsafe { *(block as *mut usize).byte_sub(HEAD) = size };
    sampled_blocks::mark_early(block as u64);
    block as *mut c_void
}

/// Copies the contents of an early block to where it moves, which has room for `size` bytes.
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
    unsafe { copy_without_a_call(from.cast(), to.cast(), len) };
}
