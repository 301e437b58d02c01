//! jemalloc's system calls and environment, independent of functions that the program exports.
//!
//! Danger: assembly with libc's names. jemalloc calls `mmap`, `munmap` and `madvise` while it holds
//! its locks. A program may export functions with those names (to count or log calls). They would
//! run under jemalloc's locks, and one that allocates would re-enter jemalloc. So the names are
//! defined here as plain system calls. They are hidden: only this library's own calls reach them,
//! and nothing is exported.
//!
//! `secure_getenv`, by which jemalloc reads its options before its first allocation, is defined
//! here, too: see [`jemalloc_options`].

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::allocator::spare_arena;
use crate::arch::system_call::{hidden_jump, hidden_mmap, hidden_system_calls};
use crate::os::environment::Environment;
use crate::os::sys;

// Unlike the other calls, mmap falls back to a reserve if the kernel refuses, and clears jemalloc's
// MAP_NORESERVE. With that flag the kernel grants more memory than exists. A program that glibc
// would refuse memory would then be killed later.
hidden_mmap! { flags = !libc::MAP_NORESERVE, refused = spare_arena::map_from_spare }

// errno is unchanged: jemalloc does not read it after these calls, and makes them in the middle of
// a free, which must keep errno. (The kernel refuses to discard locked memory, for example.)
hidden_system_calls! {
    keeps_errno:
    "mprotect" = libc::SYS_mprotect;
    "madvise" = libc::SYS_madvise;
}

// errno is set, because jemalloc prints it if the call fails. jemalloc keeps its mappings, and
// unmaps only what it trims from a new one.
hidden_system_calls! {
    sets_errno:
    "munmap" = libc::SYS_munmap;
}

hidden_jump! { "secure_getenv" => jemalloc_options }

/// The environment that the loader passes to our constructor.
static ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(std::ptr::null_mut());

/// The option for a limited address space.
const ONE_ARENA: &CStr = c"narenas:1";

/// Returns that option followed by `value`, which takes precedence. `None`: the text is too long.
fn one_arena_with(value: &[u8]) -> Option<*const c_char> {
    static TOGETHER: [AtomicU8; 1024] = [const { AtomicU8::new(0) }; 1024];
    let words = [ONE_ARENA.to_bytes(), b",", value].into_iter().flatten();
    let mut places = TOGETHER[..TOGETHER.len() - 1].iter(); // the last byte stays zero
    for &byte in words {
        places.next()?.store(byte, Ordering::Relaxed);
    }
    places.next()?.store(0, Ordering::Relaxed);
    Some(TOGETHER.as_ptr().cast())
}

/// At boot, before anything is allocated. This library is initialized before libc, which does not
/// know its environment until then.
pub(crate) fn remember_environment(environment: *const *const c_char) {
    ENVIRONMENT.store(environment.cast_mut(), Ordering::Relaxed);
}

/// Returns the environment as libc knows it.
pub(crate) fn environment_of_libc() -> *const *const c_char {
    unsafe extern "C" {
        // libc's own name for it: `environ` may be another library's.
        static __environ: *const *const c_char;
    }
    // SAFETY: a word of libc, which the program does not change while the loader calls us.
    unsafe { __environ }
}

/// Returns jemalloc's options from the environment, or null. If the address space is limited, the
/// option for one arena precedes them. A thread whose new arena finds no memory crashes in jemalloc
/// 5.3; threads that share one arena never create another.
extern "C" fn jemalloc_options(name: *const c_char) -> *const c_char {
    // SAFETY: reads a number of the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        let known = ENVIRONMENT.load(Ordering::Relaxed).cast_const();
        // SAFETY: jemalloc passes a C string. This runs before the program, or in another library's
        // constructor, so no thread changes the environment meanwhile.
        let (name, environment) = unsafe {
            let block = if known.is_null() {
                environment_of_libc()
            } else {
                known
            };
            (CStr::from_ptr(name), Environment::new(block))
        };
        let value = name.to_str().ok().and_then(|name| environment.get(name));
        if let Some(value) = value {
            let whole = value.as_ptr().cast(); // up to the terminator of the entry
            return match sys::address_space_is_limited() {
                true => one_arena_with(value).unwrap_or(whole),
                false => whole,
            };
        }
    }
    if sys::address_space_is_limited() {
        ONE_ARENA.as_ptr()
    } else {
        std::ptr::null()
    }
}
