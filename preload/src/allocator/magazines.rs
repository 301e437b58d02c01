//! Magazines: bins with blocks in them, lent to threads that have no cache of jemalloc's, and left by each to the next.
//!
//! A thread of a hundred blocks is done before a cache of its own has earned what it costs (`allocator/tcache_policy.rs`), and without one each malloc and each free takes a
//! lock, three hundred instructions and more. So it is lent what a thread before it had: some freed blocks of each class up to [`LARGEST`] bytes. What it frees it puts
//! there, what it asks for comes from there, by the instructions that serve all threads (`allocator/fast_path.rs`), and at its end, or when it is given
//! a cache, the next one has them. That nothing is given back to jemalloc in between is the point.
//!
//! What is lent is in use for jemalloc, so it must be little: [`ROOM`] bytes of a class, in [`MAGAZINES`] of the threads. What no thread has goes back by `malloc_trim`, and when the program does nothing, if there is much
//! to give back (`writer/idle_purge.rs`).
//!
//! Danger: jemalloc's words of the thread, its bins, of which jemalloc reads and writes nothing while the thread has no cache. They change while a signal handler may
//! allocate between any two instructions: so a bin comes into its place, and is taken out, by one store of 32 bytes; processors that have none (AVX) lend
//! nothing.

use std::arch::asm;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::fast_path::{self, Bin};
use crate::allocator::rtree;
use crate::state::thread::Thread;

/// How many there are: a bit of [`LENT`] for each.
const MAGAZINES: usize = u32::BITS as usize;

/// Bytes of one class that one may hold, and how many blocks, at least and at most.
const ROOM: usize = 4096;
const LEAST: usize = 4;
const MOST: usize = 64;

/// The first class that programs ask for, and those up to 1,024 bytes. The bin of eight bytes stays as it is: empty and full.
const FIRST: usize = 1;
const CLASSES: usize = 21;

/// Places below a bin's full one, in words: see [`Magazine::take_from`].
const SLACK: usize = 8;

/// jemalloc's classes: multiples of sixteen up to 128, and then four to each doubling (`SC_LG_NGROUP`, `LG_QUANTUM`). Only for how many of them are worth having: what is
/// in a bin is of its class, whatever that has.
const fn size(class: usize) -> usize {
    if class <= 8 {
        return 16 * class;
    }
    let (doublings, quarters) = ((class - 9) / 4, (class - 9) % 4 + 1);
    (128 << doublings) + quarters * (32 << doublings)
}

const LARGEST: usize = size(CLASSES - 1);
const _: () = assert!(LARGEST == 1024);

/// By class: how many blocks.
const ROOMS: [usize; CLASSES] = {
    let mut rooms = [0; CLASSES];
    let mut class = FIRST;
    while class < CLASSES {
        let blocks = ROOM / size(class);
        rooms[class] = if blocks < LEAST {
            LEAST
        } else if blocks > MOST {
            MOST
        } else {
            blocks
        };
        class += 1;
    }
    rooms
};

/// By class: the place at which its stack is empty. It grows downwards from there.
const EMPTY: [usize; CLASSES] = {
    let mut places = [0; CLASSES];
    let mut class = FIRST;
    while class < CLASSES {
        places[class] = places[class - 1] + SLACK + ROOMS[class];
        class += 1;
    }
    places
};
const PLACES: usize = EMPTY[CLASSES - 1];
/// A bin tells places apart by the lowest sixteen bits of their addresses.
const _: () = assert!(PLACES * size_of::<*mut c_void>() < 1 << 16);

#[repr(C, align(64))]
struct Magazine {
    /// How many blocks there are of each class while nobody has it.
    counts: [AtomicU16; CLASSES],
    blocks: UnsafeCell<[*mut c_void; PLACES]>,
}

// SAFETY: whoever has set its bit in `LENT` is the only one to read and write it, until the bit is taken back with `Release`; it is set with `Acquire`.
unsafe impl Sync for Magazine {}

static ALL: [Magazine; MAGAZINES] = [const {
    Magazine {
        counts: [const { AtomicU16::new(0) }; CLASSES],
        blocks: UnsafeCell::new([null_mut(); PLACES]),
    }
}; MAGAZINES];

/// Which of them somebody has.
static LENT: AtomicU32 = AtomicU32::new(0);
/// Which of them somebody ever had. In others there is nothing, and looking there would make it memory.
static USED: AtomicU32 = AtomicU32::new(0);

/// Lends one to a thread that has no cache, for the first time.
pub(crate) fn lend(thread: &Thread) {
    let words = fast_path::thread();
    // SAFETY: this thread's own word. A cache's bins have heads, whatever is in them: they are not ours to write over.
    let has_bins = unsafe { !(*fast_path::bin(words, FIRST)).head.is_null() };
    if has_bins || !std::is_x86_feature_detected!("avx") {
        return;
    }
    // Only then does jemalloc, and so do we, hear of the thread's end; its first allocation may have failed before that.
    // SAFETY: any size but 0 may be asked for.
    unsafe { sys::nallocx(1, 0) };
    let Some(number) = borrow(!0) else { return };
    if USED.load(Ordering::Relaxed) & 1 << number == 0 {
        USED.fetch_or(1 << number, Ordering::Relaxed);
    }
    thread.magazine.set(number as u8 + 1);
    for class in FIRST..CLASSES {
        ALL[number].put_into(words, class);
    }
}

/// A thread ends, or is to have a cache: what it was lent is there for the next. Its bins are as they were before.
pub(crate) fn give_back(thread: &Thread) {
    let Some(number) = usize::from(thread.magazine.replace(0)).checked_sub(1) else {
        return;
    };
    let words = fast_path::thread();
    // Each store has the head of the next bin as well, which by then is null again.
    for class in (FIRST..CLASSES).rev() {
        ALL[number].take_from(words, class);
    }
    is_back(number);
}

/// Gives back to jemalloc what is in those that no thread has.
pub(crate) fn empty_all() {
    let mut left = USED.load(Ordering::Relaxed);
    while let Some(number) = borrow(left) {
        left &= !(1 << number);
        ALL[number].empty();
        is_back(number);
    }
}

/// Bytes in those that no thread has: about, while threads come and go.
pub(crate) fn bytes() -> usize {
    let there = USED.load(Ordering::Relaxed) & !LENT.load(Ordering::Relaxed);
    let there = (0..MAGAZINES).filter(|number| there & 1 << number != 0);
    let classes = there.flat_map(|number| ALL[number].counts.iter().enumerate());
    classes
        .map(|(class, count)| {
            usize::from(count.load(Ordering::Relaxed)) * rtree::size_of_class(class)
        })
        .sum()
}

/// In a forked child, where this thread is the only one. Which blocks were in those of others was in their words: they are lost.
pub(crate) fn after_fork(thread: &Thread) {
    let own = match thread.magazine.get() {
        0 => 0,
        number => 1 << (number - 1),
    };
    let lost = LENT.load(Ordering::Relaxed) & !own;
    for number in (0..MAGAZINES).filter(|number| lost & 1 << number != 0) {
        for count in &ALL[number].counts {
            count.store(0, Ordering::Relaxed);
        }
    }
    LENT.store(own, Ordering::Relaxed);
}

/// One of those `among` which nobody has; the first, which was there most lately.
fn borrow(among: u32) -> Option<usize> {
    let mut lent = LENT.load(Ordering::Relaxed);
    loop {
        let free = !lent & among;
        if free == 0 {
            return None;
        }
        let bit = free & free.wrapping_neg();
        match LENT.compare_exchange_weak(lent, lent | bit, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(bit.trailing_zeros() as usize),
            Err(is) => lent = is,
        }
    }
}

fn is_back(number: usize) {
    LENT.fetch_and(!(1 << number), Ordering::Release);
}

impl Magazine {
    fn empty_at(&self, class: usize) -> *mut *mut c_void {
        self.blocks
            .get()
            .cast::<*mut c_void>()
            .wrapping_add(EMPTY[class])
    }

    /// Makes the thread with those words use this bin.
    fn put_into(&self, words: *mut u8, class: usize) {
        let empty = self.empty_at(class);
        let count = usize::from(self.counts[class].load(Ordering::Relaxed));
        let head = empty.wrapping_sub(count);
        let bin = Bin {
            head: head.cast_const(),
            requests: 0,
            low_water: head.addr() as u16,
            full: empty.wrapping_sub(ROOMS[class]).addr() as u16,
            empty: empty.addr() as u16,
            most: 0, // nothing is counted where it is full: jemalloc is called for each block, and counts
        };
        store(fast_path::bin(words, class), bin);
    }

    /// Takes the bin out again, with what is in it.
    fn take_from(&self, words: *mut u8, class: usize) {
        let empty = self.empty_at(class);
        let bin = fast_path::bin(words, class);
        let end = u64::from(empty.addr() as u16);
        // SAFETY: this thread's words, as `put_into` left them for hooks. No references: a signal handler's hooks change them, too.
        let head = unsafe {
            // Full and empty where its head comes next. Until it is there, what a handler takes is taken, and what it frees is put below, where
            // it may be more than there is room for: there are places for `SLACK` more.
            (&raw mut (*bin).low_water)
                .cast::<u64>()
                .write_volatile(end | end << 16 | end << 32);
            loop {
                let head = (&raw const (*bin).head).read_volatile();
                if is_exchanged(&raw mut (*bin).head, head, empty) {
                    break head;
                }
            }
        };
        store(bin, Bin::NONE);
        let count = (empty.addr() - head.addr()) / size_of::<*mut c_void>();
        for at in ROOMS[class]..count {
            self.free(class, at);
        }
        self.counts[class].store(count.min(ROOMS[class]) as u16, Ordering::Relaxed);
    }

    fn empty(&self) {
        for (class, count) in self.counts.iter().enumerate().skip(FIRST) {
            for at in 0..usize::from(count.swap(0, Ordering::Relaxed)) {
                self.free(class, at);
            }
        }
    }

    /// Frees the block at that place of a bin's, from the lowest on.
    fn free(&self, class: usize, at: usize) {
        // SAFETY: a place with a block that the program has freed, and that nobody else has: the caller takes it out of the count. Not by way of this
        // thread's cache, where it would stay.
        unsafe {
            let block = *self.empty_at(class).wrapping_sub(at + 1);
            sys::dallocx(block, sys::MALLOCX_TCACHE_NONE);
        }
    }
}

/// Writes a bin, of which nothing was taken, and the head of the next as it is, which is null, by one instruction. Not out of memory: what was just written there in
/// parts a processor cannot read as a whole before it is in its cache.
fn store(to: *mut Bin, bin: Bin) {
    const { assert!(offset_of!(Bin, head) == 0 && fast_path::LOW_WATER == 16 && size_of::<Bin>() == 24) };
    let Bin {
        low_water,
        full,
        empty,
        most,
        ..
    } = bin;
    let limits = [low_water, full, empty, most].map(u64::from);
    let limits = limits[0] | limits[1] << 16 | limits[2] << 32 | limits[3] << 48;
    // SAFETY: this thread's own words, to which nobody holds a reference; the caller knows that the next bin's head is null. That the processor has the
    // instructions was asked before anything was lent. The upper halves of these registers, which code that does not know them finds slow while there is something in them, are
    // nobody's: a function need not preserve them.
    unsafe {
        asm!(
            "vmovq xmm0, {head}",
            "vmovq xmm1, {limits}",
            "vinsertf128 ymm0, ymm0, xmm1, 1",
            "vmovups ymmword ptr [{to}], ymm0",
            "vzeroupper",
            head = in(reg) bin.head,
            limits = in(reg) limits,
            to = in(reg) to,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Writes `new` if `old` is there, by one instruction: no signal's handler comes between. Another thread could, but none writes there, so there is no `lock`.
fn is_exchanged(
    place: *mut *const *mut c_void,
    old: *const *mut c_void,
    new: *mut *mut c_void,
) -> bool {
    let is_old: u8;
    // SAFETY: this thread's own word, to which nobody holds a reference.
    unsafe {
        asm!(
            "cmpxchg qword ptr [{place}], {new}",
            "sete {is_old}",
            place = in(reg) place,
            new = in(reg) new,
            is_old = lateout(reg_byte) is_old,
            inout("rax") old => _,
            options(nostack),
        );
    }
    is_old != 0
}
