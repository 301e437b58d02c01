//! Allocators beside ours: a malloc of the program's own, functions that only another allocator has, valgrind.
//!
//! Boot asks here whether the program's allocations come to us at all, and says so if they do not.

use std::ffi::{CStr, c_void};

use crate::os::dl::{default_definition, module_of};
use crate::os::link_map;
use crate::state::thread::Entered;

/// Who serves the program's allocations.
pub(crate) enum Malloc {
    /// We do: at once, or behind a library that stands before us and hands on what it is asked.
    Ours,
    /// Its own; or that of the library of that path, which stands before us.
    Others(Option<String>),
}

/// At boot. `ours` is the address of our malloc.
pub(crate) fn malloc_of_program(entered: &Entered, ours: u64) -> Malloc {
    let found = default_definition(c"malloc");
    if found as u64 == ours {
        return Malloc::Ours;
    }
    let free = default_definition(c"free");
    if !found.is_null() && !free.is_null() {
        // SAFETY: the program's malloc, which the loader has been calling since it relocated it.
        let malloc: unsafe extern "C" fn(usize) -> *mut c_void =
            unsafe { std::mem::transmute(found) };
        // SAFETY: its free.
        let free: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(free) };
        // At this interval every block that comes to us is due.
        entered.thread.with_sampler(|sampler| sampler.draw(1));
        // SAFETY: as malloc(3).
        let block = unsafe { malloc(64) };
        let reached = entered.thread.with_sampler(|sampler| sampler.is_due());
        // SAFETY: from its malloc.
        unsafe { free(block) };
        if reached {
            return Malloc::Ours;
        }
    }
    Malloc::Others(file_of(found).filter(|path| path.contains(".so")))
}

/// Allocators whose own functions nobody can stand in for, since they know more than a size: how their files' names begin, and
/// the function without which none of them is of use.
const BESIDE_US: [(&[u8], &CStr); 3] = [
    (b"libjemalloc", c"mallocx"),
    (b"libmimalloc", c"mi_malloc"),
    (b"libtcmalloc", c"tc_malloc"),
];

/// At boot: a file that takes memory by another allocator's own functions, and such a function. Empty for the program itself.
pub(crate) fn allocates_beside_us() -> Option<(&'static CStr, &'static CStr)> {
    BESIDE_US.iter().find_map(|&(library, function)| {
        link_map::in_library(&[library], function)?;
        Some((link_map::caller_of(function)?, function))
    })
}

/// The path of the file that an address belongs to.
fn file_of(address: *mut c_void) -> Option<String> {
    let (_, path) = module_of(address)?;
    Some(path.to_string_lossy().into_owned())
}

/// Whether a tool of valgrind's that is the allocator itself (memcheck, dhat, …) runs the program, going by
/// what is preloaded: `vgpreload_<tool>`. Every tool brings `vgpreload_core`; cachegrind and its like
/// bring nothing else, and leave malloc alone.
pub(crate) fn valgrind_allocates(preloaded: &[u8]) -> bool {
    let mark = b"vgpreload_";
    let tools = preloaded.windows(mark.len() + 4);
    tools
        .filter(|part| part.starts_with(mark))
        .any(|part| !part.ends_with(b"core"))
}
