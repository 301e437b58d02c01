//! jemalloc's cache of each thread: blocks of up to 32 KiB out of it and back into it, in fewer instructions than jemalloc's own.
//!
//! Danger: memory laid out by another library, which does not promise how, changed by hand-written machine code on the way of
//! every allocation. A thread has a stack of blocks for each class, small ones and those of up to eight pages, a bin (jemalloc 5.3, `internal/cache_bin.h`; where bins and counts
//! are among a thread's words, `internal/tsd.h`, is that of the exact version in Cargo.lock). What is done here is what jemalloc calls the fast path of
//! malloc and free (`imalloc_fastpath`, `free_fastpath`): what is looked at, and when it does not
//! suffice; but jemalloc's ends at 4 KiB for malloc, and with small classes for free. Then nothing has been changed yet, and jemalloc's own function is called. At boot two blocks are
//! allocated and freed by jemalloc, and where that does not change those words as described here, all calls are jemalloc's. So they are with options that want
//! more done (`junk`, `tcache`): its limits are 0; and in a thread without a cache: its bins are all zero, empty and full at once. Who takes another jemalloc is told by
//! `scripts/count-instructions`, whose ceilings are below what it takes to call jemalloc.
//!
//! What is not done is counting: jemalloc adds up what a thread allocates and frees, in bytes, and requests by class, which nobody here asks for, and looks through
//! the cache every 64 KiB of them, which is done at the end of each of the sampler's strides ([`look_through_now_and_then`]) and
//! where a bin is full.
//!
//! Why it is faster: a size leads to its bin in one step, from the thread-local word that is needed anyway; what both hooks and jemalloc ask of a size is asked once;
//! one count is kept, and not four; there is no jump to jemalloc. docs/lab-notes/fast-path.md has what that is worth.
//!
//! All of it is the thread's own. A signal handler that allocates, and came between two of these instructions, finds what it would find between two of jemalloc's.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use heapprof_core::STRIDE;
use tikv_jemalloc_sys as sys;

use crate::allocator::{heap, large, rtree};
use crate::os::{clock, errno};
use crate::state::phase;
use crate::state::thread::{self, Thread};

/// Where a thread's words have the usable bytes of all that it allocated, and what these must not reach without jemalloc being called;
/// the same of what it freed; and its first bin. Limits are 0 while jemalloc wants every call.
pub(crate) const ALLOCATED: usize = 0x3a0;
pub(crate) const ALLOCATED_LIMIT: usize = 0x3a8;
pub(crate) const FREED: usize = 0x3b0;
pub(crate) const FREED_LIMIT: usize = 0x3b8;
pub(crate) const BINS: usize = 0x3c8;

/// A bin of jemalloc's (`cache_bin_s`). Its stack grows downwards; addresses in it are told apart by their lowest 16 bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Bin {
    /// The last block that was put there.
    pub(crate) head: *const *mut c_void,
    /// How many were taken.
    pub(crate) requests: u64,
    /// The highest head since jemalloc last looked.
    pub(crate) low_water: u16,
    /// The head when there is room for no more.
    pub(crate) full: u16,
    /// The head when there is none.
    pub(crate) empty: u16,
    /// How many there is room for, at most.
    pub(crate) most: u16,
}

/// The bin of a class in a thread's words.
pub(crate) fn bin(thread: *mut u8, class: usize) -> *mut Bin {
    thread.wrapping_add(BINS).cast::<Bin>().wrapping_add(class)
}

pub(crate) const LOW_WATER: usize = std::mem::offset_of!(Bin, low_water);
pub(crate) const FULL: usize = std::mem::offset_of!(Bin, full);
pub(crate) const EMPTY: usize = std::mem::offset_of!(Bin, empty);
pub(crate) const MOST: usize = std::mem::offset_of!(Bin, most);
const _: () = assert!(size_of::<Bin>() == 24); // `put_asm` multiplies by that
const _: () = assert!(rtree::CLASS_AT == 48); // and reads the class as a word's last two bytes

/// The classes of which several blocks share a slab, up to [`heap::LARGEST_SMALL`] bytes (`SC_NBINS`). Those come first.
pub(crate) const SMALL_CLASSES: usize = 36;

/// The largest request that has a place in the table: what a thread's cache has. (jemalloc's own ends at a page, `SC_LOOKUP_MAXCLASS`.)
const LARGEST: usize = large::LARGEST_CACHED;
/// So many sizes are served, and eight that follow each other have a place in common: classes are multiples of eight.
const SIZES: usize = LARGEST - heap::SMALLEST + 1;
const PLACES: usize = SIZES.div_ceil(8);
const _: () = assert!(heap::SMALLEST % 8 == 1);

/// What is known of jemalloc; all zero until it is. In the order in which assembly reaches it with short instructions.
#[repr(C, align(64))]
pub(crate) struct Known {
    /// How many sizes are served, from [`heap::SMALLEST`] on.
    sizes: AtomicUsize,
    /// The root of the map of addresses; null: no block is taken back.
    root: AtomicPtr<c_void>,
    /// Where the first block is, as the root counts addresses, and the leaf of the map for that. Most blocks of most programs are there, in a gibibyte, and their class is
    /// found without waiting for the root: until a free knows its bin, no later malloc can be sure of its own.
    home: AtomicUsize,
    home_leaf: AtomicPtr<c_void>,
    /// By what a size is above the smallest, in eights: where the bin is, from `heapprof_thread` on (`state/thread.rs`). In the one block of thread-local
    /// memory that a library has, the same in all threads.
    places: [AtomicI32; PLACES],
}

pub(crate) static KNOWN: Known = Known {
    sizes: AtomicUsize::new(0),
    root: AtomicPtr::new(std::ptr::null_mut()),
    home: AtomicUsize::new(usize::MAX), // no address
    home_leaf: AtomicPtr::new(std::ptr::null_mut()),
    places: [const { AtomicI32::new(0) }; PLACES],
};

pub(crate) const ROOT_AT: usize = std::mem::offset_of!(Known, root);
pub(crate) const HOME_AT: usize = std::mem::offset_of!(Known, home);
pub(crate) const HOME_LEAF_AT: usize = std::mem::offset_of!(Known, home_leaf);
pub(crate) const PLACES_AT: usize = std::mem::offset_of!(Known, places);

/// The assembly of a naked function that takes a block of `rdi` bytes out of its bin and returns it: the lines before, the question whether such
/// sizes are served, the lines between, the taking, the lines after, and operands for those lines.
///
/// Labels 6, 7 and 9 are its own. Among the lines after must be label 2, where it goes on with a size that is not served, and label 3, with one whose bin has no block;
/// `rdi` and the stack are as they were. For the lines between, and after label 2, `rax` is the distance of `heapprof_thread` from the thread pointer.
/// Registers that are changed: that, and `rcx` and `rdx`, which the lines between leave alone; behind them `rsi`, too.
macro_rules! take_asm {
    ([$($before:expr,)*] [$($between:expr,)*] [$($after:expr,)*] $($operands:tt)*) => {
        std::arch::naked_asm!(
            $($before,)*
            "mov rax, qword ptr [rip + heapprof_thread@GOTTPOFF]",
            "lea rcx, [rdi - {smallest}]",
            "lea rdx, [rip + {known}]",
            "cmp rcx, qword ptr [rdx]",
            "jae 2f",
            $($between,)*
            "shr ecx, 3",
            "movsxd rsi, dword ptr [rdx + 4*rcx + {places}]",
            "add rsi, rax",
            "mov rcx, qword ptr fs:[rsi]",
            "cmp cx, word ptr fs:[rsi + {low_water}]",
            "je 7f",
            "mov rax, qword ptr [rcx]",
            "add rcx, 8",
            "mov qword ptr fs:[rsi], rcx",
            "ret",
            "7:",
            "cmp cx, word ptr fs:[rsi + {empty}]", // so are both where there is no cache
            "je 6f",
            "mov rax, qword ptr [rcx]",
            "add rcx, 8",
            "mov qword ptr fs:[rsi], rcx",
            "mov word ptr fs:[rsi + {low_water}], cx",
            "ret",
            "6:",
            "mov rcx, qword ptr [rip + _rjem_je_tsd_tls@GOTTPOFF]",
            "add rcx, qword ptr fs:[0]",
            $crate::allocator::tcache_policy::unless_cached_asm!("3f"),
            $($after,)*
            comes_without = sym $crate::allocator::tcache_policy::comes_without,
            enough = const $crate::allocator::tcache_policy::ENOUGH,
            freed = const $crate::allocator::fast_path::FREED,
            smallest = const $crate::allocator::heap::SMALLEST,
            known = sym $crate::allocator::fast_path::KNOWN,
            places = const $crate::allocator::fast_path::PLACES_AT,
            allocated = const $crate::allocator::fast_path::ALLOCATED,
            allocated_limit = const $crate::allocator::fast_path::ALLOCATED_LIMIT,
            low_water = const $crate::allocator::fast_path::LOW_WATER,
            empty = const $crate::allocator::fast_path::EMPTY,
            malloc = sym tikv_jemalloc_sys::malloc,
            large = const $crate::allocator::large::LARGEST_CACHED,
            malloc_large = sym $crate::allocator::large::malloc,
            $($operands)*
        )
    };
}

/// The same that puts the block at `rdi` into its bin, calls jemalloc for null, and where the bin is full, and `allocator/large.rs` for what has no bin: the lines before, the
/// putting, the lines after. Labels 2, 3, 5, 7, 9, 14 and 16 are its own. Changes `rax`, `rcx`, `rsi`, and `r8` to `r10`.
///
/// jemalloc empties a full bin by half. How many bytes that are it is told at once, where its own free tells it of each block: so a thread that only frees
/// has its cache looked through, as one that allocates has in [`look_through`]. Up to a byte below the limit: that it is reached jemalloc sees only as it
/// counts on itself, and would not from beyond. (Without a cache that limit is 0, and there is nothing to tell.)
///
/// The map is read as in `allocator/rtree.rs`, but for addresses of more than 48 bits, which are nobody's: whoever frees one has the fault
/// here, and not in jemalloc.
macro_rules! put_asm {
    ([$($before:expr,)*] [$($after:expr,)*] $($operands:tt)*) => {
        std::arch::naked_asm!(
            $($before,)*
            "mov rax, rdi",
            "shr rax, {page_bits} + {leaf_bits}",
            "mov rcx, qword ptr [rip + _rjem_je_tsd_tls@GOTTPOFF]",
            "mov rsi, rdi",
            "shr rsi, {page_bits}",
            "and esi, (1 << {leaf_bits}) - 1",
            "cmp rax, qword ptr [rip + {known} + {home}]",
            "jne 16f",
            "mov r8, qword ptr [rip + {known} + {home_leaf}]", // in this order: see `learn`
            "14:",
            "add rcx, qword ptr fs:[0]",
            "test byte ptr [r8 + 8*rsi], {is_small}",
            "movzx eax, word ptr [r8 + 8*rsi + {class_at} / 8]",
            "jz 7f",
            "5:",
            "lea rsi, [rax + 2*rax]",
            "mov r10, qword ptr [rcx + 8*rsi + {bins}]",
            "cmp r10w, word ptr [rcx + 8*rsi + {bins} + {full}]", // so are both where there is no cache
            "je 2f",
            "mov qword ptr [r10 - 8], rdi",
            "sub r10, 8",
            "mov qword ptr [rcx + 8*rsi + {bins}], r10",
            "ret",
            "16:",
            "mov r8, qword ptr [rip + {known} + {root}]",
            "test r8, r8",
            "jz 3f",
            "mov r8, qword ptr [r8 + 8*rax]",
            "test r8, r8",
            "jnz 14b",
            "3:",
            "jmp {free}",
            "7:",
            "cmp eax, {small_classes}", // null, where blocks are near to it
            "jb 3b",
            "cmp eax, dword ptr [rip + {first_large}]",
            "jb 5b",
            "cmp qword ptr [rcx + {allocated_limit}], 0",
            "je 9f", // a cache that ends has the arena's free pages given back: whoever frees large blocks is to have one
            "mov rsi, qword ptr [r8 + 8*rsi]",
            "jmp {free_large}",
            "2:",
            "lea r8, [rip + {sizes}]",
            "movzx r9d, word ptr [rcx + 8*rsi + {bins} + {most}]",
            "mov rax, qword ptr [r8 + 8*rax]",
            "shr r9d, 1",
            "mov r8, qword ptr [rcx + {freed_limit}]",
            "imul rax, r9",
            "sub r8, 1",
            "add rax, qword ptr [rcx + {freed}]",
            "cmp rax, r8",
            "cmova rax, r8",
            "mov qword ptr [rcx + {freed}], rax",
            $crate::allocator::tcache_policy::unless_cached_asm!("3b"),
            $($after,)*
            comes_without = sym $crate::allocator::tcache_policy::comes_without,
            enough = const $crate::allocator::tcache_policy::ENOUGH,
            allocated = const $crate::allocator::fast_path::ALLOCATED,
            allocated_limit = const $crate::allocator::fast_path::ALLOCATED_LIMIT,
            known = sym $crate::allocator::fast_path::KNOWN,
            root = const $crate::allocator::fast_path::ROOT_AT,
            home = const $crate::allocator::fast_path::HOME_AT,
            home_leaf = const $crate::allocator::fast_path::HOME_LEAF_AT,
            page_bits = const $crate::allocator::rtree::PAGE_BITS,
            leaf_bits = const $crate::allocator::rtree::LEAF_BITS,
            is_small = const $crate::allocator::rtree::IS_SMALL,
            class_at = const $crate::allocator::rtree::CLASS_AT,
            sizes = sym $crate::allocator::rtree::_rjem_je_sz_index2size_tab,
            freed = const $crate::allocator::fast_path::FREED,
            freed_limit = const $crate::allocator::fast_path::FREED_LIMIT,
            bins = const $crate::allocator::fast_path::BINS,
            full = const $crate::allocator::fast_path::FULL,
            most = const $crate::allocator::fast_path::MOST,
            free = sym tikv_jemalloc_sys::free,
            small_classes = const $crate::allocator::fast_path::SMALL_CLASSES,
            first_large = sym $crate::allocator::large::FIRST_CLASS,
            free_large = sym $crate::allocator::large::free,
            $($operands)*
        )
    };
}

pub(crate) use {put_asm, take_asm};

/// A block of `size` bytes, which are [`heap::SMALLEST`] at least; null with ENOMEM.
///
/// # Safety
/// As malloc(3).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    take_asm!(
        [".cfi_startproc",]
        []
        [
            "2:",
            "cmp rdi, {large}",
            "ja {malloc_large}",
            "3:",
            "jmp {malloc}",
            ".cfi_endproc",
            ".p2align 6",
        ]
    )
}

/// Frees a block; null is nothing. errno is left alone.
///
/// # Safety
/// As free(3).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn free(ptr: *mut c_void) {
    put_asm!(
        [".cfi_startproc",]
        [".cfi_endproc", ".p2align 6",]
    )
}

/// At boot, after [`rtree::learn`]: whether jemalloc is as described here.
pub(crate) fn learn() {
    let Some(root) = rtree::root() else { return };
    let thread = thread();
    if ![32, 64].into_iter().all(|size| agrees(thread, size)) {
        return;
    }
    let mut class = 0;
    for (eights, place) in KNOWN.places.iter().enumerate() {
        while rtree::size_of_class(class) < heap::SMALLEST + 7 + eights * 8 {
            class += 1;
        }
        let distance = bin(thread, class)
            .addr()
            .wrapping_sub(thread::block().addr()) as isize;
        place.store(distance as i32, Ordering::Relaxed);
    }
    KNOWN.root.store(root, Ordering::Relaxed);
    // SAFETY: a new block, which may be null, asked about and freed once.
    let home = unsafe {
        let block = sys::malloc(64);
        let home = rtree::leaf_of(block);
        sys::free(block);
        home
    };
    if let Some((home, leaf)) = home {
        // The leaf first, and `put_asm` reads it last: another library may have threads by now, and who sees the address sees its leaf.
        KNOWN.home_leaf.store(leaf, Ordering::Relaxed);
        KNOWN.home.store(home, Ordering::Release);
    }
    KNOWN.sizes.store(SIZES, Ordering::Release);
}

/// Whether jemalloc is as described here.
pub(crate) fn is_known() -> bool {
    KNOWN.sizes.load(Ordering::Acquire) != 0
}

/// The bins of small classes from which a thread, with its words there, has taken nothing since jemalloc last counted that, and which hold nothing.
pub(crate) fn unused_bins(thread: *mut u8) -> impl Iterator<Item = *mut c_void> {
    let classes = if is_known() { SMALL_CLASSES } else { 0 };
    let bins = (0..classes).map(move |class| bin(thread, class));
    let unused = bins.filter(|&bin| {
        // SAFETY: the thread's own, as in `Look::at`.
        let bin = unsafe { bin.read() };
        // Of a thread without a cache they are all zero.
        !bin.head.is_null() && bin.requests == 0 && bin.head.addr() as u16 == bin.empty
    });
    unused.map(|bin| bin.cast())
}

/// What jemalloc does for its own sake as threads allocate (`te_base_cb_s`, `internal/thread_event_registry.h`).
#[repr(C)]
struct Event {
    is_enabled: extern "C" fn() -> c_int,
    next_wait: extern "C" fn(*mut c_void) -> u64,
    postponed_wait: extern "C" fn(*mut c_void) -> u64,
    happens: unsafe extern "C" fn(*mut c_void),
}

unsafe extern "C" {
    /// Looks through a thread's cache, if that was not done in the last 10 ms: gives back half and more of what was not used meanwhile.
    #[link_name = "_rjem_je_tcache_gc_te_handler"]
    static LOOKS_THROUGH: Event;
}

/// To be called where a thread that allocates is asked anyway, at the end of a stride at the latest: has jemalloc look through its cache, as jemalloc
/// would every 64 KiB, had it counted them.
#[inline(always)]
pub(crate) fn look_through_now_and_then(thread: &Thread) {
    let laid = thread.with_sampler(|sampler| sampler.laid());
    if laid.wrapping_sub(thread.strode_at.get()) >= STRIDE {
        thread.strode_at.set(laid);
        // The counter may be a program's no more (prctl(2), PR_SET_TSC), and then nothing is recorded.
        let now = match phase::is_recording() {
            true => clock::ticks().raw() >> LOOK_BITS,
            false => clock::coarse_ns() >> LOOK_BITS_OF_NS,
        } as u32;
        if thread.looked_through_at.replace(now) != now {
            look_through(thread);
        }
    }
}

/// Of the clock's ticks those bits that say nothing to that: 2^25 are some ten milliseconds of a counter. jemalloc looks no more often, and asks a clock
/// that takes longer.
const LOOK_BITS: u32 = 25;
/// And of nanoseconds.
const LOOK_BITS_OF_NS: u32 = 24;

#[cold]
#[inline(never)]
fn look_through(of: &Thread) {
    if !is_known() {
        return; // jemalloc counts by itself
    }
    let thread = thread();
    // SAFETY: this thread's own words, as in `Look::at`.
    let word = |at| unsafe { thread.add(at).cast::<u64>().read() };
    let counted = word(ALLOCATED);
    let counted_since = counted.wrapping_sub(of.counted_then.replace(counted));
    if word(ALLOCATED_LIMIT) == 0 {
        return; // there is no cache, or it is not to be touched now
    }
    if counted_since >= STRIDE / 2 {
        return; // most of it was not out of the cache, and jemalloc has looked
    }
    // SAFETY: a table that jemalloc never changes, and its function for this thread, called from where jemalloc would: in an allocation.
    // None of its locks is held but by code that a signal handler interrupted, and there jemalloc's malloc would take them as well, and look.
    errno::left_alone(|| unsafe { (LOOKS_THROUGH.happens)(thread.cast()) });
}

/// Whether a thread, with its words there, has a cache, and jemalloc does not want every call.
#[inline(always)]
pub(crate) fn has_cache(thread: *mut u8) -> bool {
    // SAFETY: this thread's own word, as in `Look::at`.
    unsafe { thread.add(ALLOCATED_LIMIT).cast::<u64>().read() != 0 }
}

/// jemalloc's words of this thread.
#[inline(always)]
pub(crate) fn thread() -> *mut u8 {
    let words: *mut u8;
    // SAFETY: reads the GOT entry that the static linker made for an initial-exec symbol of this library, and the thread pointer.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + _rjem_je_tsd_tls@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) words,
            options(pure, nomem, nostack),
        );
    }
    words
}

/// Whether a block of `size` bytes, a class, is taken and put back as described here. The program's own, of a class that every program
/// uses: nothing else of its heap's lies elsewhere for it.
fn agrees(thread: *mut u8, size: usize) -> bool {
    // SAFETY: a new block, which may be null, and is freed.
    unsafe { sys::free(sys::malloc(size)) };
    let before = Look::at(thread, size);
    // SAFETY: any size is allowed.
    let ptr = unsafe { sys::malloc(size) };
    let taken = Look::at(thread, size);
    // SAFETY: just allocated, or null.
    unsafe { sys::free(ptr) };
    let after = Look::at(thread, size);
    let behind = |look: &Look| look.bin.head.wrapping_add(1);
    let bytes = |look: &Look| look.bin.empty.wrapping_sub(look.bin.head.addr() as u16);
    let low = before.bin.empty.wrapping_sub(before.bin.low_water);
    let room = before.bin.empty.wrapping_sub(before.bin.full);
    !ptr.is_null()
        && taken.bin.head == behind(&before)
        && after.bin.head == before.bin.head
        // SAFETY: a stack's head, since it moved as one: the word below it is another block.
        && unsafe { *after.bin.head } == ptr
        && taken.bin.requests == before.bin.requests.wrapping_add(1)
        && taken.allocated == before.allocated.wrapping_add(size as u64)
        && after.freed == taken.freed.wrapping_add(size as u64)
        && low <= bytes(&before)
        && bytes(&before) <= room
        && usize::from(room) == usize::from(before.bin.most) * size_of::<usize>()
        && after.allocated < after.allocated_limit
        && after.freed < after.freed_limit
}

/// What was looked at.
struct Look {
    bin: Bin,
    allocated: u64,
    allocated_limit: u64,
    freed: u64,
    freed_limit: u64,
}

impl Look {
    /// At the bin of blocks of `size` bytes.
    fn at(thread: *mut u8, size: usize) -> Look {
        let class = (0..).find(|&class| rtree::size_of_class(class) >= size);
        let bin = bin(thread, class.unwrap_or(0));
        // SAFETY: words of this thread's, more than 1,000 bytes of them, to which nobody holds a reference; as numbers they have no invalid values.
        unsafe {
            Look {
                bin: bin.read(),
                allocated: thread.add(ALLOCATED).cast::<u64>().read(),
                allocated_limit: thread.add(ALLOCATED_LIMIT).cast::<u64>().read(),
                freed: thread.add(FREED).cast::<u64>().read(),
                freed_limit: thread.add(FREED_LIMIT).cast::<u64>().read(),
            }
        }
    }
}
