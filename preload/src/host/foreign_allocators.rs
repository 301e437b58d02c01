//! Foreign allocators: a malloc of the program's own, valgrind.
//!
//! Boot checks here if the program's allocations reach us, and reports it if they do not.

use std::ffi::c_void;

use crate::os::dl::{default_definition, module_of};
use crate::state::thread::Entered;

/// The owner of the program's `malloc`.
pub(crate) enum MallocOwner {
    /// We are, directly or through a library in front of us that passes the calls on.
    Ours,
    /// The program is, or the library of that path, which is in front of us.
    Other(Option<String>),
}

/// Determines the owner of the program's `malloc`, at boot. `ours` is the address of our malloc.
pub(crate) fn owner_of_malloc(entered: &Entered, ours: u64) -> MallocOwner {
    let found = default_definition(c"malloc");
    if found as u64 == ours {
        return MallocOwner::Ours;
    }
    let free = default_definition(c"free");
    if !found.is_null() && !free.is_null() {
        // SAFETY: the program's malloc, which the loader itself calls from relocation on.
        let malloc: unsafe extern "C" fn(usize) -> *mut c_void =
            unsafe { std::mem::transmute(found) };
        // SAFETY: the free that belongs to that malloc.
        let free: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(free) };
        // At this interval, every block that reaches us expires the countdown.
        entered.thread.with_sampler(|sampler| sampler.draw(1));
        // SAFETY: as malloc(3).
        let block = unsafe { malloc(64) };
        let reached = entered.thread.with_sampler(|sampler| sampler.is_due());
        // SAFETY: from the program's malloc.
        unsafe { free(block) };
        if reached {
            return MallocOwner::Ours;
        }
    }
    MallocOwner::Other(file_of(found).filter(|path| path.contains(".so")))
}

/// Returns the path of the file that an address belongs to.
fn file_of(address: *mut c_void) -> Option<String> {
    let (_, path) = module_of(address)?;
    Some(path.to_string_lossy().into_owned())
}

/// Returns true if a tool of valgrind that replaces the allocator (memcheck, dhat, …) runs the
/// program. The preloaded files tell: each such tool preloads `vgpreload_<tool>`. Every tool
/// preloads `vgpreload_core`; cachegrind and similar tools preload nothing else, and do not touch
/// malloc.
pub(crate) fn is_valgrind_allocating(preloaded: &[u8]) -> bool {
    let prefix = b"vgpreload_";
    let tools = preloaded.windows(prefix.len() + 4);
    tools
        .filter(|part| part.starts_with(prefix))
        .any(|part| !part.ends_with(b"core"))
}
