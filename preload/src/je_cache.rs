//! jemalloc's cache of each thread: small blocks out of it and back into it, in fewer instructions than jemalloc's own.
//!
//! Danger: memory laid out by another library, which does not promise how, changed by hand-written machine code on the way of
//! every allocation. A thread has a stack of blocks for each small class, a bin (jemalloc 5.3, `internal/cache_bin.h`; where bins and counts
//! are among a thread's words, `internal/tsd.h`, is that of the exact version in Cargo.lock). What is done here is what jemalloc calls the fast path of
//! malloc and free (`imalloc_fastpath`, `free_fastpath`), step for step: what is looked at, what is counted, and when it does not
//! suffice. Then nothing has been changed yet, and jemalloc's own function is called. At boot two blocks are
//! allocated and freed by jemalloc, and where that does not change those words as described here, all calls are jemalloc's. So they are in a thread without a
//! cache, and with options that want more done (`junk`, `tcache`): its limits are 0. Who takes another jemalloc is told by `scripts/count-instructions`,
//! whose ceilings are below what it takes to call jemalloc.
//!
//! Why it is faster: the thread pointer is added once, and not in each access through `fs`, which takes longer; a size leads to
//! bin and class in one step; what both hooks and jemalloc ask of a size is asked once; there is no jump to jemalloc. docs/performance.md has what that is worth.
//!
//! All of it is the thread's own. A signal handler that allocates, and came between two of these instructions, finds what it would find between two of jemalloc's.

use std::arch::asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::{je, je_control, je_map};

/// Where a thread's words have the usable bytes of all that it allocated, and what these must not reach without jemalloc being called;
/// the same of what it freed; and its first bin. While a limit is 0, nothing behind it may be used.
pub(crate) const ALLOCATED: usize = 0x3a0;
pub(crate) const ALLOCATED_LIMIT: usize = 0x3a8;
pub(crate) const FREED: usize = 0x3b0;
pub(crate) const FREED_LIMIT: usize = 0x3b8;
pub(crate) const BINS: usize = 0x3c8;

/// A bin of jemalloc's (`cache_bin_s`). Its stack grows downwards; addresses in it are told apart by their lowest 16 bits.
#[repr(C)]
#[derive(Clone, Copy)]
struct Bin {
    /// The last block that was put there.
    head: *const *mut c_void,
    /// How many were taken.
    requests: u64,
    /// The highest head since jemalloc last looked.
    low_water: u16,
    /// The head when there is room for no more.
    full: u16,
    /// The head when there is none.
    empty: u16,
    /// How many there is room for, at most.
    most: u16,
}

pub(crate) const REQUESTS: usize = std::mem::offset_of!(Bin, requests);
pub(crate) const LOW_WATER: usize = std::mem::offset_of!(Bin, low_water);
pub(crate) const FULL: usize = std::mem::offset_of!(Bin, full);
pub(crate) const EMPTY: usize = std::mem::offset_of!(Bin, empty);
const _: () = assert!(size_of::<Bin>() == 24); // `put_asm` multiplies by that

/// The classes of which several blocks share a slab, up to [`je::LARGEST_SMALL`] bytes (`SC_NBINS`). Those come first.
const SMALL_CLASSES: usize = 36;

/// The largest request that has a place in the table, as in jemalloc's (`SC_LOOKUP_MAXCLASS`).
const LARGEST: usize = 4096;
/// So many sizes are served, and eight that follow each other have a place in common: classes are multiples of eight.
const SIZES: usize = LARGEST - je::SMALLEST + 1;
const PLACES: usize = SIZES.div_ceil(8);
const _: () = assert!(je::SMALLEST % 8 == 1);

/// What is known of jemalloc; all zero until it is. In the order in which assembly reaches it with short instructions.
#[repr(C, align(64))]
pub(crate) struct Known {
    /// How many sizes are served, from [`je::SMALLEST`] on.
    sizes: AtomicUsize,
    /// The root of the map of addresses; null: no block is taken back.
    root: AtomicPtr<c_void>,
    /// By what a size is above the smallest, in eights: where the bin is among a thread's words, and, in the upper half, the usable bytes of its blocks.
    places: [AtomicU32; PLACES],
}

pub(crate) static KNOWN: Known = Known {
    sizes: AtomicUsize::new(0),
    root: AtomicPtr::new(std::ptr::null_mut()),
    places: [const { AtomicU32::new(0) }; PLACES],
};

pub(crate) const ROOT_AT: usize = std::mem::offset_of!(Known, root);
pub(crate) const PLACES_AT: usize = std::mem::offset_of!(Known, places);

/// The assembly of a naked function that takes a block of `rdi` bytes out of its bin and returns it: the lines before, the question whether such
/// sizes are served, the lines between, the taking, the lines after, and operands for those lines.
///
/// Labels 7 and 9 are its own. Among the lines after must be label 2, where it goes on with a size that is not served, and label 3, with one whose bin has no block, or
/// jemalloc wants to be called; `rdi` and the stack are as they were. Registers that are changed: `rdx` and `r8` before the lines between, which leave
/// them alone; `rax`, `rcx`, `rsi`, `r9` and `r10` after them.
macro_rules! take_asm {
    ([$($before:expr,)*] [$($between:expr,)*] [$($after:expr,)*] $($operands:tt)*) => {
        std::arch::naked_asm!(
            $($before,)*
            "lea r8, [rdi - {smallest}]",
            "lea rdx, [rip + {known}]",
            "cmp r8, qword ptr [rdx]",
            "jae 2f",
            $($between,)*
            "mov rcx, qword ptr [rip + _rjem_je_tsd_tls@GOTTPOFF]",
            "add rcx, qword ptr fs:[0]",
            "shr r8, 3",
            "mov r9, qword ptr [rcx + {allocated}]",
            "movzx eax, word ptr [rdx + 4*r8 + {places} + 2]",
            "movzx esi, word ptr [rdx + 4*r8 + {places}]",
            "add r9, rax",
            "cmp r9, qword ptr [rcx + {allocated_limit}]",
            "jae 9f",
            "add rsi, rcx",
            "mov r10, qword ptr [rsi]",
            "mov rax, qword ptr [r10]", // of an empty bin, a word that is there and is nobody's
            "cmp r10w, word ptr [rsi + {low_water}]",
            "je 7f",
            "add r10, 8",
            "mov qword ptr [rsi], r10",
            "mov qword ptr [rcx + {allocated}], r9",
            "inc qword ptr [rsi + {requests}]",
            "ret",
            "7:",
            "cmp r10w, word ptr [rsi + {empty}]",
            "je 3f",
            "add r10, 8",
            "mov qword ptr [rsi], r10",
            "mov word ptr [rsi + {low_water}], r10w",
            "mov qword ptr [rcx + {allocated}], r9",
            "inc qword ptr [rsi + {requests}]",
            "ret",
            $crate::je_threads::unless_cached_asm!(),
            $($after,)*
            comes_without = sym $crate::je_threads::comes_without,
            enough = const $crate::je_threads::ENOUGH,
            freed = const $crate::je_cache::FREED,
            smallest = const $crate::je::SMALLEST,
            known = sym $crate::je_cache::KNOWN,
            places = const $crate::je_cache::PLACES_AT,
            allocated = const $crate::je_cache::ALLOCATED,
            allocated_limit = const $crate::je_cache::ALLOCATED_LIMIT,
            requests = const $crate::je_cache::REQUESTS,
            low_water = const $crate::je_cache::LOW_WATER,
            empty = const $crate::je_cache::EMPTY,
            malloc = sym tikv_jemalloc_sys::malloc,
            $($operands)*
        )
    };
}

/// The same that puts the block at `rdi` into its bin: the lines before, the putting, the lines after, with label 3 for null, for what is
/// not small, and where the bin is full, or jemalloc wants to be called; `rdi` and the stack are as they were. Label 9 is its own. Changes `rax`, `rcx`, `rsi`, and `r8` to `r10`.
///
/// The map is read as in `je_map.rs`, but for addresses of more than 48 bits, which are nobody's: whoever frees one has the fault
/// here, and not in jemalloc.
macro_rules! put_asm {
    ([$($before:expr,)*] [$($after:expr,)*] $($operands:tt)*) => {
        std::arch::naked_asm!(
            $($before,)*
            "mov r8, qword ptr [rip + {known} + {root}]",
            "mov rax, rdi",
            "mov rcx, qword ptr [rip + _rjem_je_tsd_tls@GOTTPOFF]",
            "test r8, r8",
            "jz 3f",
            "shr rax, {page_bits} + {leaf_bits}",
            "mov rsi, rdi",
            "add rcx, qword ptr fs:[0]",
            "shr rsi, {page_bits}",
            "mov r8, qword ptr [r8 + 8*rax]",
            "and esi, (1 << {leaf_bits}) - 1",
            "test r8, r8",
            "jz 3f",
            "mov rax, qword ptr [r8 + 8*rsi]",
            "lea r8, [rip + {sizes}]",
            "test al, {is_small}",
            "jz 9f", // a cache that ends has the arena's free pages given back: whoever frees large blocks is to have one
            "shr rax, {class_at}",
            "mov r9, qword ptr [rcx + {freed}]",
            "lea rsi, [rax + 2*rax]",
            "add r9, qword ptr [r8 + 8*rax]",
            "lea rsi, [rcx + 8*rsi]",
            "mov r10, qword ptr [rsi + {bins}]",
            "cmp r9, qword ptr [rcx + {freed_limit}]",
            "jae 9f",
            "cmp r10w, word ptr [rsi + {bins} + {full}]",
            "je 3f",
            "mov qword ptr [r10 - 8], rdi",
            "sub r10, 8",
            "mov qword ptr [rsi + {bins}], r10",
            "mov qword ptr [rcx + {freed}], r9",
            "ret",
            $crate::je_threads::unless_cached_asm!(),
            $($after,)*
            comes_without = sym $crate::je_threads::comes_without,
            enough = const $crate::je_threads::ENOUGH,
            allocated = const $crate::je_cache::ALLOCATED,
            allocated_limit = const $crate::je_cache::ALLOCATED_LIMIT,
            known = sym $crate::je_cache::KNOWN,
            root = const $crate::je_cache::ROOT_AT,
            page_bits = const $crate::je_map::PAGE_BITS,
            leaf_bits = const $crate::je_map::LEAF_BITS,
            is_small = const $crate::je_map::IS_SMALL,
            class_at = const $crate::je_map::CLASS_AT,
            sizes = sym $crate::je_map::_rjem_je_sz_index2size_tab,
            freed = const $crate::je_cache::FREED,
            freed_limit = const $crate::je_cache::FREED_LIMIT,
            bins = const $crate::je_cache::BINS,
            full = const $crate::je_cache::FULL,
            free = sym tikv_jemalloc_sys::free,
            $($operands)*
        )
    };
}

pub(crate) use {put_asm, take_asm};

/// A block of `size` bytes, which are [`je::SMALLEST`] at least; null with ENOMEM.
///
/// # Safety
/// As malloc(3).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    take_asm!(
        [".cfi_startproc",]
        []
        ["2:", "3:", "jmp {malloc}", ".cfi_endproc", ".p2align 6",]
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
        ["3:", "jmp {free}", ".cfi_endproc", ".p2align 6",]
    )
}

/// At boot, after [`je_map::learn`]: whether jemalloc is as described here.
pub(crate) fn learn() {
    let Some(root) = je_map::root() else { return };
    let thread = thread();
    if !counts_at(thread) || ![32, 64].into_iter().all(|size| agrees(thread, size)) {
        return;
    }
    let mut class = 0;
    for (eights, place) in KNOWN.places.iter().enumerate() {
        while je_map::size_of_class(class) < je::SMALLEST + 7 + eights * 8 {
            class += 1;
        }
        let bytes = je_map::size_of_class(class) as u32;
        let bin = (BINS + class * size_of::<Bin>()) as u32;
        place.store(bytes << 16 | bin, Ordering::Relaxed);
    }
    KNOWN.root.store(root, Ordering::Relaxed);
    KNOWN.sizes.store(SIZES, Ordering::Release);
}

/// Whether jemalloc is as described here.
pub(crate) fn is_known() -> bool {
    KNOWN.sizes.load(Ordering::Acquire) != 0
}

/// The bins of small classes from which a thread, with its words there, has taken nothing since jemalloc last counted that, and which hold nothing.
pub(crate) fn unused_bins(thread: *mut u8) -> impl Iterator<Item = *mut c_void> {
    let classes = if is_known() { SMALL_CLASSES } else { 0 };
    let bins =
        (0..classes).map(move |class| thread.wrapping_add(BINS).cast::<Bin>().wrapping_add(class));
    let unused = bins.filter(|&bin| {
        // SAFETY: the thread's own, as in `Look::at`.
        let bin = unsafe { bin.read() };
        // Of a thread without a cache they are all zero.
        !bin.head.is_null() && bin.requests == 0 && bin.head.addr() as u16 == bin.empty
    });
    unused.map(|bin| bin.cast())
}

/// jemalloc's words of this thread.
fn thread() -> *mut u8 {
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

/// Whether jemalloc counts where we do.
fn counts_at(thread: *mut u8) -> bool {
    let at = |offset| thread.wrapping_add(offset).cast_const().cast();
    je_control::allocated_counter() == at(ALLOCATED) && je_control::freed_counter() == at(FREED)
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
        let class = (0..).find(|&class| je_map::size_of_class(class) >= size);
        let bin = BINS + class.unwrap_or(0) * size_of::<Bin>();
        // SAFETY: words of this thread's, more than 1,000 bytes of them, to which nobody holds a reference; as numbers they have no invalid values.
        unsafe {
            Look {
                bin: thread.add(bin).cast::<Bin>().read(),
                allocated: thread.add(ALLOCATED).cast::<u64>().read(),
                allocated_limit: thread.add(ALLOCATED_LIMIT).cast::<u64>().read(),
                freed: thread.add(FREED).cast::<u64>().read(),
                freed_limit: thread.add(FREED_LIMIT).cast::<u64>().read(),
            }
        }
    }
}
