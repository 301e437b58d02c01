//! Mapping call: a call of a libc function that maps or unmaps memory, in a running process.
//!
//! A preloaded library defines these functions itself (`hooks/mappings.rs`). In a running process
//! they are tapped, and their records are the same. libc calls them for its allocator and for its
//! threads, too. Such calls do not come here: no definition of a preloaded library sees them
//! either. This library's own calls go past the tap (`os/mapping_shims.rs`).
//!
//! Danger: callers of all kinds, as in `hooks/mapping_changes.rs`.

use super::functions::MappingCall;
use crate::arch::tap_stubs::Registers;
use crate::hooks::mapping_changes::{on_mapped, on_moved_end, on_unmapped};
use crate::os::clock;
use crate::os::sys;
use crate::unwind::walk::WalkStart;

/// The result of a call that has failed, as a word.
const FAILED: usize = usize::MAX;

/// Serves a call by `proceed`, which calls the function, and returns its result. `pc` is in the
/// function, and `here` is where its walk begins.
pub(super) fn serve(
    call: MappingCall,
    pc: u64,
    registers: &Registers,
    here: WalkStart,
    proceed: impl FnOnce() -> usize,
) -> usize {
    let argument = |number| registers.argument(number);
    match call {
        MappingCall::Mmap => {
            let mapping = proceed();
            if mapping != FAILED {
                let replaces = argument(3) as i32 & libc::MAP_FIXED != 0;
                on_mapped(pc, mapping, argument(1), replaces, here);
            }
            mapping
        }
        MappingCall::Munmap => {
            if argument(0).is_multiple_of(sys::PAGE as usize) {
                on_unmapped(argument(0), argument(1), clock::ticks());
            }
            proceed()
        }
        MappingCall::Mremap => {
            let at = clock::ticks();
            let mapping = proceed();
            if mapping != FAILED {
                if argument(3) as i32 & libc::MREMAP_DONTUNMAP == 0 {
                    on_unmapped(argument(0), argument(1), at);
                }
                on_mapped(pc, mapping, argument(2), true, here);
            }
            mapping
        }
        MappingCall::Sbrk => {
            let before = proceed();
            if before != FAILED {
                on_moved_end(pc, before, before.wrapping_add(argument(0)), here);
            }
            before
        }
    }
}
