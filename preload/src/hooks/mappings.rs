//! Mappings: the functions by which the program maps and unmaps memory.
//!
//! Each goes on to the next definition (Law 11), and records the change (`mapping_changes`).
//!
//! An end is sent before the call, so that it comes before the next mapping at the same address,
//! which another thread may make at once. A mapping is sent after the call, when its address is
//! known. The kernel's list of mappings shows what these functions do not see (`mapped_memory` in
//! the writer).
//!
//! Danger: the C boundary, and callers of all kinds. A loader's resolver calls before this library
//! is relocated.

use std::ffi::{c_int, c_void};

use crate::arch::entry_stubs::{with_caller, with_caller_on_stack};
use crate::hooks::early_heap;
use crate::hooks::entry::{entry, wrapped_entry};
use crate::hooks::mapping_changes::{on_mapped, on_moved_end, on_unmapped};
use crate::os::clock;
use crate::os::errno;
use crate::os::libc_trampolines::LibcFunction;
use crate::os::next_symbol::NextSymbol;
use crate::os::sys::{self, Errno};
use crate::state::thread::{self, RunningCode};
use crate::unwind::python;
use crate::unwind::walk::WalkStart;

const PAGE: usize = sys::PAGE as usize;

/// A function with the next definition and libc's own.
struct Function {
    next: NextSymbol,
    of_libc: LibcFunction,
    /// The system call that serves a call before boot.
    number: i64,
}

macro_rules! functions {
    ($($function:ident = $name:literal, $number:expr;)*) => {
        $(static $function: Function = Function {
            next: NextSymbol::new($name),
            of_libc: LibcFunction::new($name),
            number: $number,
        };)*
        static ALL: &[&Function] = &[$(&$function),*];
    };
}

functions! {
    MMAP = c"mmap", libc::SYS_mmap;
    MUNMAP = c"munmap", libc::SYS_munmap;
    MREMAP = c"mremap", libc::SYS_mremap;
    SBRK = c"sbrk", NO_CALL;
    BRK = c"brk", NO_CALL;
}
#[cfg(target_env = "gnu")]
static MMAP64: Function = Function {
    next: NextSymbol::new(c"mmap64"),
    of_libc: LibcFunction::new(c"mmap64"),
    number: libc::SYS_mmap,
};

/// Stands for a function that no system call equals.
const NO_CALL: i64 = -1;

/// Finds the next definitions, at boot.
pub(crate) fn prepare() {
    for function in ALL {
        let _ = function.next.address();
    }
    #[cfg(target_env = "gnu")]
    let _ = MMAP64.next.address();
}

impl Function {
    /// Calls the next definition with up to six words. This library's own calls go to libc's
    /// function.
    ///
    /// # Safety
    /// As the function of that name.
    #[inline(always)]
    unsafe fn call(&self, words: [usize; 6]) -> usize {
        let is_ours =
            !early_heap::is_active() && thread::current().running_code.get() == RunningCode::Ours;
        let real = match is_ours {
            true => self.of_libc.address(),
            false => self.next.known().map(|address| address as usize),
        };
        let Some(real) = real else {
            // SAFETY: the caller's promise.
            return unsafe { self.call_early(words) };
        };
        type Real = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;
        // SAFETY: a function with that many words or fewer, all in registers. A function of fewer
        // words does not read the others.
        let real: Real = unsafe { std::mem::transmute(real) };
        let [a, b, c, d, e, f] = words;
        // SAFETY: the caller's promise.
        unsafe { real(a, b, c, d, e, f) }
    }

    /// Serves a call before boot, when neither libc nor errno may be reachable.
    #[cold]
    unsafe fn call_early(&self, words: [usize; 6]) -> usize {
        if self.number == NO_CALL {
            return usize::MAX;
        }
        // SAFETY: the caller's promise.
        match unsafe { sys::syscall(self.number, words.map(|word| word as u64)) } {
            Ok(answer) => answer as usize,
            Err(Errno(error)) => {
                if !early_heap::is_active() {
                    errno::set(error);
                }
                usize::MAX
            }
        }
    }
}

with_caller_on_stack! {
    /// Maps memory, as mmap(2).
    ///
    /// # Safety
    /// As mmap(2).
    #[unsafe(no_mangle)]
    mmap(
        address: *mut c_void, len: usize, protection: c_int, flags: c_int, file: c_int, offset: i64
    ) -> *mut c_void => mmap_called_from
}

#[cfg(target_env = "gnu")]
with_caller_on_stack! {
    /// Maps memory, as mmap(2) with a large offset.
    ///
    /// # Safety
    /// As mmap(2).
    #[unsafe(no_mangle)]
    mmap64(
        address: *mut c_void, len: usize, protection: c_int, flags: c_int, file: c_int, offset: i64
    ) -> *mut c_void => mmap64_called_from
}

macro_rules! second_half_of_mmap {
    ($name:ident, $function:ident, $entry:literal) => {
        #[allow(
            clippy::too_many_arguments,
            reason = "those of mmap, and the caller's registers"
        )]
        unsafe extern "C-unwind" fn $name(
            address: *mut c_void,
            len: usize,
            protection: c_int,
            flags: c_int,
            file: c_int,
            offset: i64,
            sp: *const u64,
            bp: u64,
        ) -> *mut c_void {
            let words = [
                address as usize,
                len,
                protection as usize,
                flags as usize,
                file as usize,
                offset as usize,
            ];
            // SAFETY: the caller's promise.
            let mapping = unsafe { $function.call(words) } as *mut c_void;
            if mapping != libc::MAP_FAILED {
                // SAFETY: the first half passed its own registers.
                let here = unsafe { WalkStart::caller(sp, bp) };
                let replaces = flags & libc::MAP_FIXED != 0;
                let entry = wrapped_entry!($entry);
                on_mapped(entry, mapping as usize, len, replaces, here);
            }
            mapping
        }
    };
}

second_half_of_mmap!(mmap_called_from, MMAP, "__real_mmap");
#[cfg(target_env = "gnu")]
second_half_of_mmap!(mmap64_called_from, MMAP64, "__real_mmap64");

/// Unmaps memory, as munmap(2).
///
/// # Safety
/// As munmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn munmap(address: *mut c_void, len: usize) -> c_int {
    if (address as usize).is_multiple_of(PAGE) {
        on_unmapped(address as usize, len, clock::ticks());
    }
    python::before_unmap();
    // SAFETY: the caller's promise.
    unsafe { MUNMAP.call([address as usize, len, 0, 0, 0, 0]) as c_int }
}

with_caller_on_stack! {
    /// Resizes or moves a mapping, as mremap(2). The new address follows the flags if they ask for
    /// one.
    ///
    /// # Safety
    /// As mremap(2).
    #[unsafe(no_mangle)]
    mremap(
        old: *mut c_void, old_len: usize, len: usize, flags: c_int, place: *mut c_void, _none: usize
    ) -> *mut c_void => mremap_called_from
}

#[allow(
    clippy::too_many_arguments,
    reason = "those of mremap, and the caller's registers"
)]
unsafe extern "C-unwind" fn mremap_called_from(
    old: *mut c_void,
    old_len: usize,
    len: usize,
    flags: c_int,
    place: *mut c_void,
    _none: usize,
    sp: *const u64,
    bp: u64,
) -> *mut c_void {
    let words = [
        old as usize,
        old_len,
        len,
        flags as usize,
        place as usize,
        0,
    ];
    python::before_unmap();
    let at = clock::ticks();
    // SAFETY: the caller's promise.
    let mapping = unsafe { MREMAP.call(words) } as *mut c_void;
    if mapping != libc::MAP_FAILED {
        if flags & libc::MREMAP_DONTUNMAP == 0 {
            on_unmapped(old as usize, old_len, at);
        }
        // SAFETY: the first half passed its own registers.
        let here = unsafe { WalkStart::caller(sp, bp) };
        on_mapped(entry!(mremap), mapping as usize, len, true, here);
    }
    mapping
}

with_caller! {
    /// Moves the end of the heap by so many bytes, as sbrk(2). Returns the end before.
    ///
    /// # Safety
    /// As sbrk(2).
    #[unsafe(no_mangle)]
    sbrk(increment: isize) -> *mut c_void => sbrk_called_from
}

unsafe extern "C-unwind" fn sbrk_called_from(
    increment: isize,
    sp: *const u64,
    bp: u64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let before = unsafe { SBRK.call([increment as usize, 0, 0, 0, 0, 0]) };
    if before != usize::MAX {
        // SAFETY: the first half passed its own registers.
        let here = unsafe { WalkStart::caller(sp, bp) };
        on_moved_end(
            wrapped_entry!("__real_sbrk"),
            before,
            before.wrapping_add_signed(increment),
            here,
        );
    }
    before as *mut c_void
}

with_caller! {
    /// Moves the end of the heap there, as brk(2).
    ///
    /// # Safety
    /// As brk(2).
    #[unsafe(no_mangle)]
    brk(end: *mut c_void) -> c_int => brk_called_from
}

unsafe extern "C-unwind" fn brk_called_from(end: *mut c_void, sp: *const u64, bp: u64) -> c_int {
    // SAFETY: asks for the end.
    let before = unsafe { SBRK.call([0; 6]) };
    // SAFETY: the caller's promise.
    let answer = unsafe { BRK.call([end as usize, 0, 0, 0, 0, 0]) } as c_int;
    if answer == 0 && before != usize::MAX {
        // SAFETY: the first half passed its own registers.
        let here = unsafe { WalkStart::caller(sp, bp) };
        on_moved_end(entry!(brk), before, end as usize, here);
    }
    answer
}
