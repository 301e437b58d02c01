//! The spare: room for two more arenas, for when the kernel has none.
//!
//! Danger: a variable of jemalloc's that is not meant for others. A program may limit its own address space
//! while it runs, or use up what there is, and then start a thread. jemalloc 5.3 wants an arena for such a thread, and
//! when that finds no room, dereferences null. So the linker leads its call for an arena's first block through
//! [`first_block`] (`--wrap`, build.rs). If that fails, the arenas that exist, and this one, are said to be all
//! there can be: threads share them from then on. And this one is made of address space that was laid by at boot.
//! So is one other: a thread that was waiting for its turn meanwhile had read how many arenas there can be, takes
//! the next number for free, which is that of the arena for large blocks, and makes that one.
//!
//! Where the address space is limited from the start there is one arena only (`allocator/os_shims.rs`), and no need of
//! a spare.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::allocator::{heap, layout};
use crate::arch::system_call::hidden_jump;
use crate::os::{errno, sys};
use crate::state::thread::{self, Thread};

/// Size and alignment of an arena's first block, in bytes.
const BLOCK: usize = 2 << 20;
/// What is mapped to have an aligned one, before it is trimmed.
const PIECE: usize = 2 * BLOCK;
/// See the module's text.
const PIECES: usize = 2;

/// Where the rest of the spare begins; 0: there is none.
static START: AtomicUsize = AtomicUsize::new(0);
/// Pieces that are left.
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// Number of the arena for large blocks: that of arenas for threads, when there was no want.
static LARGE: AtomicU32 = AtomicU32::new(0);
/// The thread that makes an arena of a piece.
static MAKING: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());

/// At boot: lays the spare by.
pub(crate) fn prepare() {
    // Has jemalloc begin, if nobody has allocated yet: with musl nobody has. (With glibc a name that the loader does not find costs it a block.)
    // SAFETY: a block that nobody else has.
    unsafe { heap::free(heap::malloc(1)) };
    if !sys::address_space_is_limited()
        && let Some(start) = sys::map_zeroed(PIECES * PIECE)
    {
        // SAFETY: as in `first_block`; jemalloc is initialised.
        let large = unsafe { layout::ARENAS_FOR_THREADS.load(Ordering::Relaxed) };
        LARGE.store(large, Ordering::Relaxed);
        START.store(start as usize, Ordering::Relaxed);
        LEFT.store(PIECES, Ordering::Release);
    }
}

hidden_jump! { "__wrap__rjem_je_base_new" => first_block }

/// In jemalloc, with its lock of the list of arenas held where the arena is for threads: makes the first block of an
/// arena; null when there is no memory.
extern "C" fn first_block(
    thread: *mut c_void,
    arena: c_uint,
    hooks: *const c_void,
    flags: bool,
) -> *mut c_void {
    // SAFETY: jemalloc's own arguments, handed on.
    let block = unsafe { layout::base_new(thread, arena, hooks, flags) };
    // SAFETY: a variable of this library's of 32 bits. jemalloc writes it at initialisation, and reads it for threads'
    // arenas under the lock that this call holds.
    let for_threads = unsafe { &layout::ARENAS_FOR_THREADS };
    if !block.is_null() || arena == 0 || arena > LARGE.load(Ordering::Relaxed) {
        return block; // an arena made by hand may fail
    }
    if arena < for_threads.load(Ordering::Relaxed) {
        // Those with smaller numbers exist: jemalloc makes them in order.
        for_threads.store(arena + 1, Ordering::Relaxed);
    }
    MAKING.store(
        std::ptr::from_ref(thread::current()).cast_mut(),
        Ordering::Relaxed,
    );
    // SAFETY: as above.
    let block = unsafe { layout::base_new(thread, arena, hooks, flags) };
    MAKING.store(std::ptr::null_mut(), Ordering::Relaxed);
    block
}

/// When the kernel has refused jemalloc a mapping with this negative `error`: the mapping, if it is for an arena of the spare,
/// or -1 with errno set.
pub(crate) extern "C" fn refused(
    _: *mut c_void,
    len: usize,
    _: c_int,
    _: c_int,
    _: c_int,
    error: i64,
) -> *mut c_void {
    if std::ptr::eq(MAKING.load(Ordering::Relaxed), thread::current()) && len <= PIECE {
        // Only one thread at a time comes here, by jemalloc's lock.
        let left = LEFT.load(Ordering::Acquire);
        if left > 0 {
            LEFT.store(left - 1, Ordering::Relaxed);
            let start = START.load(Ordering::Relaxed) + (left - 1) * PIECE;
            // A block must lie as blocks do. What is larger is trimmed by jemalloc itself.
            let whole = len > BLOCK;
            let start = if whole {
                start
            } else {
                start.next_multiple_of(BLOCK)
            };
            return start as *mut c_void;
        }
    }
    errno::set(-error as c_int);
    libc::MAP_FAILED
}
