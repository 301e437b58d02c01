//! The program's heap as a source of this library's own memory.
//!
//! The functions are those that the program calls: the first definitions in the loader's order. If
//! they are tapped, the instructions that the taps moved take their place ([`redirect`]). So a call
//! from here never enters a hook.
//!
//! The allocator has its own locks and its own handlers around a fork. A hook runs before or behind
//! a call of it, and never within.
//!
//! Danger: functions are found in symbol tables and called by their documented types.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use heapprof_core::Sampler;

use crate::os::link_map;
use crate::state::thread::{self, RunningCode};

/// Addresses of the functions; 0: not found.
static MALLOC: AtomicUsize = AtomicUsize::new(0);
static CALLOC: AtomicUsize = AtomicUsize::new(0);
static REALLOC: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);
static POSIX_MEMALIGN: AtomicUsize = AtomicUsize::new(0);
/// The path of the library that defines `malloc`, or null.
static LIBRARY: AtomicPtr<std::ffi::c_char> = AtomicPtr::new(std::ptr::null_mut());

/// The alignment of every block of malloc.
const USUAL_ALIGNMENT: usize = 16;

fn all() -> [(&'static AtomicUsize, &'static CStr); 5] {
    [
        (&MALLOC, c"malloc"),
        (&CALLOC, c"calloc"),
        (&REALLOC, c"realloc"),
        (&FREE, c"free"),
        (&POSIX_MEMALIGN, c"posix_memalign"),
    ]
}

/// Finds the functions, in this library's constructor, under the loader's lock. Nothing is
/// allocated before.
pub(crate) fn prepare() {
    for (place, name) in all() {
        for module in link_map::modules().filter(|module| !module.is_ours()) {
            let Some(symbols) = module.symbols() else {
                continue;
            };
            let found = symbols.function(name).map(|code| code.start);
            // SAFETY: a module before this one is relocated.
            let found = found.or_else(|| unsafe { symbols.resolved_function(name) });
            if let Some(found) = found {
                place.store(found, Ordering::Release);
                if name == c"malloc" {
                    LIBRARY.store(module.path().as_ptr().cast_mut(), Ordering::Release);
                }
                break;
            }
        }
    }
}

/// Returns the path of the library whose allocator serves the program; it is empty for the program
/// itself.
pub(crate) fn library() -> Option<&'static CStr> {
    let path = LIBRARY.load(Ordering::Acquire);
    // SAFETY: null, or the loader's name of a module that the program started with.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// Makes calls from here enter a tapped function behind its tap: at `moved` instead of at `entry`.
pub(crate) fn redirect(entry: u64, moved: u64) {
    for (place, _) in all() {
        let _ = place.compare_exchange(
            entry as usize,
            moved as usize,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// Runs a call of the allocator for a block of our own. The allocator may call functions of its own
/// that are tapped (mimalloc does). Their blocks are not the program's: they are not recorded, lost
/// or laid on the thread's allocation axis.
fn for_us<T>(call: impl FnOnce() -> T) -> T {
    let thread = thread::current();
    let outer_code = thread.running_code.replace(RunningCode::Ours);
    let suspended = thread.with_sampler(Sampler::suspend);
    let answer = call();
    thread.with_sampler(|sampler| sampler.resume(suspended));
    thread.running_code.set(outer_code);
    answer
}

/// Returns a block of our own, or null.
pub(crate) fn allocate(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    for_us(|| allocate_here(size, alignment, zeroed))
}

fn allocate_here(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    let size = size.max(1);
    if alignment > USUAL_ALIGNMENT {
        let block = aligned(size, alignment);
        if zeroed && !block.is_null() {
            // SAFETY: a new block of that many bytes.
            unsafe { block.write_bytes(0, size) };
        }
        return block;
    }
    // SAFETY: null, or a function of that name, whose type this is (`prepare`).
    unsafe {
        if zeroed {
            let calloc = CALLOC.load(Ordering::Acquire);
            let calloc: Option<unsafe extern "C" fn(usize, usize) -> *mut u8> =
                std::mem::transmute(calloc);
            return calloc.map_or(std::ptr::null_mut(), |calloc| calloc(1, size));
        }
        let malloc = MALLOC.load(Ordering::Acquire);
        let malloc: Option<unsafe extern "C" fn(usize) -> *mut u8> = std::mem::transmute(malloc);
        malloc.map_or(std::ptr::null_mut(), |malloc| malloc(size))
    }
}

fn aligned(size: usize, alignment: usize) -> *mut u8 {
    let mut block = std::ptr::null_mut::<c_void>();
    // SAFETY: as in `allocate`; a place for the block, and a power of two.
    let status = unsafe {
        let function = POSIX_MEMALIGN.load(Ordering::Acquire);
        let function: Option<unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int> =
            std::mem::transmute(function);
        function.map_or(libc::ENOMEM, |function| {
            function(&raw mut block, alignment, size)
        })
    };
    match status {
        0 => block.cast(),
        _ => std::ptr::null_mut(),
    }
}

/// Resizes a block of our own, from `old` bytes.
///
/// # Safety
/// `ptr` is a live block from [`allocate`], with that alignment.
pub(crate) unsafe fn reallocate(
    ptr: *mut u8,
    old: usize,
    size: usize,
    alignment: usize,
) -> *mut u8 {
    if alignment > USUAL_ALIGNMENT {
        let block = allocate(size, alignment, false);
        if !block.is_null() {
            // SAFETY: two blocks that do not overlap, of at least that many bytes each.
            unsafe {
                ptr.copy_to_nonoverlapping(block, old.min(size));
                free(ptr);
            }
        }
        return block;
    }
    // SAFETY: as in `allocate`; the caller's promise.
    unsafe {
        let realloc = REALLOC.load(Ordering::Acquire);
        let realloc: Option<unsafe extern "C" fn(*mut u8, usize) -> *mut u8> =
            std::mem::transmute(realloc);
        realloc.map_or(std::ptr::null_mut(), |realloc| {
            for_us(|| realloc(ptr, size.max(1)))
        })
    }
}

/// Frees a block of our own.
///
/// # Safety
/// `ptr` is a live block from [`allocate`], not used afterwards.
pub(crate) unsafe fn free(ptr: *mut u8) {
    // SAFETY: as in `allocate`; the caller's promise.
    unsafe {
        let free = FREE.load(Ordering::Acquire);
        let free: Option<unsafe extern "C" fn(*mut u8)> = std::mem::transmute(free);
        if let Some(free) = free {
            for_us(|| free(ptr));
        }
    }
}
