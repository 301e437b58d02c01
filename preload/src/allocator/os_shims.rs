//! jemalloc's way to the kernel, past whatever the program exports.
//!
//! Danger: assembly under libc's names. jemalloc calls `mmap`, `munmap` and `madvise` while it holds its locks.
//! A program that exports functions of those names (to count them, to log them) would be called there, and
//! one that allocates would find jemalloc inside itself. So the names are defined here as plain system calls,
//! hidden: only this library's own calls reach them, and nothing is exported.
//!
//! `secure_getenv`, by which it asks for its options before its first allocation, is ours as well: see
//! [`options`].

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::allocator::spare_arena;
use crate::arch::system_call::{hidden_jump, hidden_mmap, hidden_system_calls};
use crate::os::environment::Environment;
use crate::os::sys;

// As the others, but that there is a spare for what the kernel refuses, and that jemalloc's MAP_NORESERVE is taken away: with
// it the kernel grants more than there is memory, and a program that would be refused, as it is under glibc, is killed later.
hidden_mmap! { flags = !libc::MAP_NORESERVE, refused = spare_arena::refused }

// errno is left alone: jemalloc does not ask for it here, and makes these calls in the middle of a free, which has to leave it alone. (The
// kernel refuses to take back locked memory, for one.)
hidden_system_calls! {
    keeps_errno:
    "mprotect" = libc::SYS_mprotect;
    "madvise" = libc::SYS_madvise;
}

// With errno set: a failure ends in a message of jemalloc's that has it. It keeps what it has mapped, and
// comes here with what it cut off of a new mapping only.
hidden_system_calls! {
    sets_errno:
    "munmap" = libc::SYS_munmap;
}

hidden_jump! { "secure_getenv" => options }

/// The environment that the loader passed to our constructor.
static ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(std::ptr::null_mut());

/// For a limited address space.
const ONE_ARENA: &CStr = c"narenas:1";

/// That, and `value` behind it, which has the last word. `None`: it is too long.
fn one_arena_and(value: &[u8]) -> Option<*const c_char> {
    static TOGETHER: [AtomicU8; 1024] = [const { AtomicU8::new(0) }; 1024];
    let words = [ONE_ARENA.to_bytes(), b",", value].into_iter().flatten();
    let mut places = TOGETHER[..TOGETHER.len() - 1].iter(); // the last stays zero
    for &byte in words {
        places.next()?.store(byte, Ordering::Relaxed);
    }
    places.next()?.store(0, Ordering::Relaxed);
    Some(TOGETHER.as_ptr().cast())
}

/// At boot, before anything is allocated: we are initialised before libc, which does not know its environment until it is.
pub(crate) fn remember_environment(environment: *const *const c_char) {
    ENVIRONMENT.store(environment.cast_mut(), Ordering::Relaxed);
}

/// The environment as libc knows it.
pub(crate) fn environment_of_libc() -> *const *const c_char {
    unsafe extern "C" {
        // The name by which libc itself knows it: `environ` may be another's.
        static __environ: *const *const c_char;
    }
    // SAFETY: a word of libc's, which the program may change, but not while the loader calls us.
    unsafe { __environ }
}

/// jemalloc's options from the environment, if there are any; and before them, where the address space is limited, one
/// arena. A thread whose new arena finds no room for itself crashes in jemalloc 5.3; threads that share one
/// never make another.
extern "C" fn options(name: *const c_char) -> *const c_char {
    // SAFETY: asks for one number of the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        let known = ENVIRONMENT.load(Ordering::Relaxed).cast_const();
        // SAFETY: jemalloc passes a C string, and this is before the program runs, or as early as another
        // library's constructor: nobody changes the environment meanwhile.
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
            let whole = value.as_ptr().cast(); // up to the zero that ends the entry
            return match sys::address_space_is_limited() {
                true => one_arena_and(value).unwrap_or(whole),
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
