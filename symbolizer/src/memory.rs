//! The bound on memory: how much one run of a reader takes, whatever its inputs say (Law 12).
//!
//! ```text
//!   bound = CONSTANT + MULTIPLE * bytes of the files that were opened, each counted once
//! ```
//!
//! A small file can claim anything: a section of gigabytes, a name for every byte. Each decoder has
//! limits of its own, and reports them. This bound is behind all decoders and also holds for inputs
//! that no limit covers. The program allocates through [`CountedAllocator`]. When the count passes
//! the bound, the handler given to [`bound`] ends the run with an error. A user of the library who
//! installs no such allocator has no bound.
//!
//! Honest inputs stay below the bound. The most memory per byte of a log is taken by a block in use
//! whose past is kept.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::collections::HashMap;
use std::error::Error;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

/// Bytes that a run may take even if it reads next to nothing.
pub const CONSTANT: usize = 256 << 20;

/// Further bytes that a run may take for each byte of its files.
pub const MULTIPLE: usize = 64;

/// Bytes that a run may take that follows logs without an end: what these say must not decide it.
pub const OF_SERVICES: usize = 2 << 30;

/// Bytes that a thread of parallel work takes as it begins: stacks, and its first blocks.
const OF_THREAD: usize = 4 << 20;
/// Bytes that the others may take meanwhile.
const ROOM: usize = 32 << 20;

/// Address space of a new arena of the system's allocator, for a moment: two heaps of 64 MiB.
const OF_ARENA: usize = 128 << 20;

/// Arenas of the system's allocator in a run with many threads.
const ARENAS: libc::c_int = 2;

/// The most that is kept to make the next answer faster: some hundred logs of a server.
const REUSED: u64 = 8 << 20;

/// A thread adds its count to [`TAKEN`] in steps of so many bytes: once for thousands of blocks.
const STEP: isize = 64 << 10;

/// Bytes in use, as far as threads have added their counts.
static TAKEN: AtomicIsize = AtomicIsize::new(0);
/// The most that may be in use. Grows with each file that is opened.
static BOUND: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Called in the thread that passes the bound; must not return, and must not allocate.
static HANDLER: OnceLock<fn(&Exceeded<'_>) -> !> = OnceLock::new();
/// Bytes of the files that were opened.
static READ: AtomicUsize = AtomicUsize::new(0);
/// The counted bytes of each of these files, by device and number.
static FILES: Mutex<Option<HashMap<(u64, u64), u64>>> = Mutex::new(None);

thread_local! {
    /// Bytes that this thread took, less those that it gave back, not yet added to [`TAKEN`].
    static UNCOUNTED: Cell<isize> = const { Cell::new(NEW_THREAD) };
}

/// The count of a thread that has not counted anything. No count comes near it.
const NEW_THREAD: isize = isize::MIN / 2;

/// True if the bound is what the user gave, which no file changes.
static IS_GIVEN: AtomicBool = AtomicBool::new(false);
/// Name of the profile that is being read, cut if it is too long. It is not on the heap: the
/// handler reads it when no more memory may be taken.
static READING: Mutex<ArrayString> = Mutex::new(ArrayString {
    bytes: [0; LONGEST_NAME],
    len: 0,
});

/// The longest name that an error repeats.
const LONGEST_NAME: usize = 300;

struct ArrayString {
    bytes: [u8; LONGEST_NAME],
    len: usize,
}

/// More memory was asked for than the bound allows, or than there is.
#[derive(Debug, Clone, Copy)]
pub struct Exceeded<'a> {
    /// The profile that is being read; empty before the first.
    pub name: &'a str,
    /// The bound, in bytes.
    pub bound: usize,
    /// Bytes of the files that were opened.
    pub read: usize,
    /// True if the user gave the bound.
    pub is_given: bool,
    /// True if the system refused the memory, below the bound.
    pub is_refused: bool,
}

/// Sets the bound: the given one, or else the one that the opened files allow. `handler` ends the
/// run; it must not allocate.
pub fn bound(given: Option<usize>, handler: fn(&Exceeded<'_>) -> !) {
    let _ = HANDLER.set(handler);
    IS_GIVEN.store(given.is_some(), Relaxed);
    BOUND.store(given.unwrap_or(CONSTANT), Relaxed);
    grow(READ.load(Relaxed));
}

/// Returns how many bytes of followed logs may be in memory, and how many of one of them. The rest
/// is for answers and messages.
pub(crate) fn for_followers() -> (u64, u64) {
    (of_services() / 2, of_services() / 16)
}

/// Returns how many bytes may be kept that only make the next answer faster.
pub(crate) fn for_reuse() -> u64 {
    (of_services() / 8).min(REUSED)
}

/// The bound of a run that follows logs.
fn of_services() -> u64 {
    match IS_GIVEN.load(Relaxed) {
        true => BOUND.load(Relaxed) as u64,
        false => OF_SERVICES as u64,
    }
}

/// Returns how many bytes are taken, to some tens of kilobytes a thread.
pub(crate) fn taken() -> u64 {
    u64::try_from(TAKEN.load(Relaxed)).unwrap_or(0)
}

/// Returns how many bytes may still be taken, for a decoder that can leave its data out.
pub(crate) fn left() -> u64 {
    (BOUND.load(Relaxed) as u64).saturating_sub(taken())
}

/// Lets few threads have memory of their own in the system's allocator. A server has a thread for
/// each connection, and what one gave back, another could not take.
pub fn share_between_threads() {
    limit_arenas(ARENAS);
}

/// Sets the most arenas of the system's allocator, of which there is one at least.
#[cfg_attr(not(target_env = "gnu"), allow(unused_variables))]
fn limit_arenas(most: libc::c_int) {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number of the allocator, which takes any value at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, most);
    }
}

/// Gives free memory back to the system.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks only, and changes no block in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Notes which profile is read from now on.
pub(crate) fn reading(path: &Path) {
    let name = path.as_os_str().as_encoded_bytes();
    let len = name.len().min(LONGEST_NAME);
    let mut reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
    reading.bytes[..len].copy_from_slice(&name[..len]);
    reading.len = len;
}

/// Counts a file that was opened, and lets the bound grow by the bytes that are new.
pub(crate) fn read(meta: &Metadata) {
    // A file with holes has no more than its blocks.
    let bytes = meta.len().min(meta.blocks().saturating_mul(512));
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let counted = files
        .get_or_insert_default()
        .entry((meta.dev(), meta.ino()))
        .or_insert(0);
    let more = bytes.saturating_sub(*counted);
    *counted += more;
    drop(files);
    if more > 0 {
        let bytes = usize::try_from(more).unwrap_or(usize::MAX);
        grow(READ.fetch_add(bytes, Relaxed).saturating_add(bytes));
    }
}

/// Counts bytes that a file, which was opened and is read on, has gained.
pub(crate) fn appended(bytes: u64) {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    grow(READ.fetch_add(bytes, Relaxed).saturating_add(bytes));
}

/// Lets the bound grow to what so many bytes of files allow.
fn grow(read: usize) {
    if !IS_GIVEN.load(Relaxed) {
        let bound = CONSTANT.saturating_add(read.saturating_mul(MULTIPLE));
        BOUND.fetch_max(bound, Relaxed);
    }
}

/// An allocator that counts what it hands out, and holds the bound.
#[derive(Debug)]
pub struct CountedAllocator<A>(pub A);

// SAFETY: each call is passed on unchanged to an allocator that fulfils the trait's obligations.
// Counting touches a thread-local word without a destructor, and atomics; it neither allocates nor
// panics. The handler does not return.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountedAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's obligations are those of the trait.
        or_end_run(unsafe { self.0.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        or_end_run(unsafe { self.0.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { self.0.dealloc(ptr, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: as above.
        or_end_run(unsafe { self.0.realloc(ptr, layout, new_size) })
    }
}

/// Returns the block of the allocator below. If that is null, the run ends.
#[inline]
fn or_end_run(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        end_run(BOUND.load(Relaxed), true);
    }
    block
}

#[inline]
fn count(bytes: isize) {
    // Not to be had while the thread ends, says std; a word without a destructor always is.
    let _ = UNCOUNTED.try_with(|uncounted| {
        let sum = uncounted.get().wrapping_add(bytes);
        if sum.unsigned_abs() < STEP as usize {
            uncounted.set(sum);
        } else {
            step(uncounted, bytes);
        }
    });
}

/// Counts bytes in a thread that is new, or has a step full.
#[cold]
fn step(uncounted: &Cell<isize>, bytes: isize) {
    let before = match uncounted.replace(0) {
        NEW_THREAD => {
            settle_at_the_end();
            0
        }
        before => before,
    };
    add(before.wrapping_add(bytes));
}

/// Lets the thread add the rest of its count at its end. A server has a thread for each connection,
/// and what each leaves uncounted would add up.
fn settle_at_the_end() {
    /// A key whose values have a destructor; `None`: the system has no key left.
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    extern "C" fn settle(_: *mut libc::c_void) {
        // It runs behind all destructors of Rust's, and the word has none.
        let _ = UNCOUNTED.try_with(|uncounted| match uncounted.replace(0) {
            NEW_THREAD => {}
            left => add(left),
        });
    }
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: room for the key; the destructor is a function that takes any value.
        let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(settle)) };
        (failed == 0).then_some(key)
    });
    if let Some(key) = *key {
        // SAFETY: the key exists for ever. The value is only told from null, which has no
        // destructor. The first keys of a process need no memory; what a later one needs comes
        // from libc, not from the allocator that counts.
        unsafe {
            libc::pthread_setspecific(key, std::ptr::dangling::<u8>().cast());
        }
    }
}

#[cold]
fn add(bytes: isize) {
    let taken = TAKEN.fetch_add(bytes, Relaxed).saturating_add(bytes);
    let bound = BOUND.load(Relaxed);
    if bytes > 0 && usize::try_from(taken).is_ok_and(|taken| taken > bound) {
        end_run(bound, false);
    }
}

/// Starts the threads of parallel work, if they do not run yet. Call it before any such work. Their
/// stacks take memory: if the system refuses it, the run ends as without memory for a block.
pub(crate) fn start_threads() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let start = || rayon::ThreadPoolBuilder::new().build_global();
        let room = ROOM + threads * OF_THREAD;
        // The address space of a thread's own arena would be missing elsewhere.
        if !has_room(room + threads * OF_ARENA) {
            limit_arenas(1);
        }
        // A thread that lacks memory as it begins ends the process, so there must be enough before.
        // An error without a source says that they run already.
        if !has_room(room) || start().is_err_and(|error| error.source().is_some()) {
            end_run(BOUND.load(Relaxed), true);
        }
    });
}

/// Returns true if the system maps so many bytes. The allocator is not asked: it may take them from
/// address space that it has kept, which a thread's stack cannot have.
fn has_room(bytes: usize) -> bool {
    // SAFETY: a mapping at a place that the kernel chooses, which nobody uses before it goes.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mapped = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        mapped != libc::MAP_FAILED && libc::munmap(mapped, bytes) == 0
    }
}

#[cold]
fn end_run(bound: usize, is_refused: bool) {
    let Some(handler) = HANDLER.get() else { return };
    // No thread allocates while it holds this lock, so waiting for it ends.
    let reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
    let name = reading.bytes.get(..reading.len).unwrap_or_default();
    let name = match std::str::from_utf8(name) {
        Ok(name) => name,
        // Cut inside of a character, or not UTF-8 from there on.
        Err(error) => std::str::from_utf8(&name[..error.valid_up_to()]).unwrap_or_default(),
    };
    handler(&Exceeded {
        name,
        bound,
        read: READ.load(Relaxed),
        is_given: IS_GIVEN.load(Relaxed),
        is_refused,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that take and give back a little each: nothing is left uncounted.
    #[test]
    fn the_count_of_a_thread_is_settled_at_its_end() {
        let in_thread = |bytes: isize| {
            std::thread::spawn(move || {
                count(bytes);
                count(bytes);
            })
            .join()
            .unwrap();
        };
        let before = TAKEN.load(Relaxed);
        for _ in 0..100 {
            in_thread(1000);
        }
        assert_eq!(TAKEN.load(Relaxed), before + 200_000);
        for _ in 0..100 {
            in_thread(-1000);
        }
        assert_eq!(TAKEN.load(Relaxed), before);
        in_thread(STEP * 3);
        in_thread(-3 * STEP);
        assert_eq!(TAKEN.load(Relaxed), before);
    }
}
