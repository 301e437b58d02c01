//! Genuine functions: libc's own, whatever the program exports under their names.
//!
//! Danger: assembly under libc's names. A program may export
//! a `pthread_mutex_lock` that counts, a `write` that logs, a `dlsym` that forwards. The loader binds our calls, and
//! those of jemalloc and of Rust's library inside us, to them: called in the middle of an allocation, by a thread that
//! the program does not know, before its constructors. So each of these names is defined here, hidden, as a jump
//! to what libc itself defines (`os/link_map.rs`).
//!
//! The jump's target is found when it is first wanted; at the latest at boot, where the list that is read
//! cannot change. Functions without a state (`memcpy`, `strlen`) and libc's private ones are bound as usual.
//! `allocator/os_shims.rs`, `allocator/string_shims.rs` and `os/std_shims.rs` do the same for the functions that are better made than found.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::trampolines::define_trampolines;
use crate::os::link_map::{self, Module};

/// Where glibc's functions are: since 2.34 all in the second. Before, those of the first come first: the second has some of them as well, which do
/// nothing as long as the first is not initialised, and some not, so that a mutex would be locked and never unlocked.
#[cfg(target_env = "gnu")]
const LIBC: [&[u8]; PARTS] = [b"libpthread.so.0", b"libc.so.6", b"libdl.so.2"];
#[cfg(target_env = "gnu")]
const PARTS: usize = 3;
/// musl is one file.
#[cfg(target_env = "musl")]
const PARTS: usize = 1;

/// Which part of libc that is.
#[cfg(target_env = "gnu")]
fn part(module: &Module) -> Option<usize> {
    LIBC.iter().position(|file| *file == module.file())
}

/// The same of musl: it is the loader, by whatever name that is there.
#[cfg(target_env = "musl")]
fn part(module: &Module) -> Option<usize> {
    module.is_loader().then_some(0)
}

macro_rules! genuine {
    ($($name:literal)*) => {
        /// Their names, in the order of `heapprof_trampolines`.
        const NAMES: &[&CStr] = &[$({
            const NAME: &str = concat!($name, "\0");
            match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => name,
                // While compiling: this is a constant.
                Err(_) => panic!("a name without zeros"),
            }
        }),*];
        define_trampolines! { find: $($name)* }
    };
}

// Everything that this library imports from libc but for memory and string functions, `gettimeofday` (which libc
// chooses by a resolver), libc's private names (`__cxa_*`, `__errno_location`), and the loader's
// data. A test compares.
macro_rules! genuine_and {
    ($($of_one:literal)*) => {
        genuine! {
            "abort" "clock_gettime" "close" "dl_iterate_phdr" "dladdr" "dlerror" "dlsym" "exit" "fputs" "getauxval" "getcwd" "getenv"
            "pthread_attr_destroy" "pthread_attr_init"
            "pthread_attr_setdetachstate" "pthread_attr_setstacksize" "pthread_cond_init" "pthread_cond_signal"
            "pthread_cond_timedwait" "pthread_cond_wait" "pthread_create" "pthread_join" "pthread_key_create"
            "pthread_key_delete" "pthread_mutex_init" "pthread_mutex_lock" "pthread_mutex_trylock" "pthread_mutex_unlock"
            "pthread_mutexattr_destroy" "pthread_mutexattr_init" "pthread_mutexattr_settype" "pthread_self"
            "pthread_setcanceltype" "pthread_setname_np" "pthread_setspecific" "pthread_sigmask" "read" "readlink" "realpath"
            "sbrk" "sched_getaffinity" "sched_getcpu" "sched_setaffinity" "sched_yield" "sigaction"
            "sigemptyset" "sigfillset" "sysconf" "write" "writev"
            $($of_one)*
        }
    };
}

#[cfg(target_env = "gnu")]
genuine_and! { "gnu_get_libc_version" "lseek64" "mmap64" "open64" }

// Rust's library has other names there, and its unwinder is part of ours (`build.rs`).
#[cfg(target_env = "musl")]
genuine_and! {
    "at_quick_exit" "atexit" "fflush" "fprintf" "fstat" "fwrite" "lseek" "open"
    "pthread_rwlock_rdlock" "pthread_rwlock_unlock" "pthread_rwlock_wrlock" "snprintf" "stat"
}

unsafe extern "C" {
    /// One word for each name: where the jump of that name leads. Ours, above.
    static heapprof_trampolines: [AtomicUsize; NAMES.len()];
}

/// At boot: finds all, while nobody can change the loader's list.
pub(crate) fn prepare() {
    let libc = libc();
    // SAFETY: ours, above: so many words.
    for (slot, name) in unsafe { &heapprof_trampolines }.iter().zip(NAMES) {
        lead(slot, function(&libc, name));
    }
}

/// Finds the function whose jump leads over `slot`, and lets it lead there. Two threads that come here at once find
/// the same.
extern "C" fn find(slot: &AtomicUsize) -> usize {
    let first = (&raw const heapprof_trampolines) as usize;
    let index = (std::ptr::from_ref(slot) as usize - first) / size_of::<AtomicUsize>();
    lead(slot, NAMES.get(index).and_then(|name| code_in_libc(name)))
}

/// Lets a jump lead to that function, and returns where it is.
fn lead(slot: &AtomicUsize, code: Option<Range<usize>>) -> usize {
    let start = code.map_or(missing as *const () as usize, |code| code.start);
    slot.store(start, Ordering::Release);
    start
}

/// In place of a function that this libc does not have.
extern "C" fn missing() -> isize {
    -1
}

/// Where libc defines that function.
pub(crate) fn in_libc(name: &CStr) -> Option<usize> {
    code_in_libc(name).map(|code| code.start)
}

/// The code of that function in libc.
pub(crate) fn code_in_libc(name: &CStr) -> Option<Range<usize>> {
    function(&libc(), name)
}

/// Those of [`LIBC`] that are loaded, in that order. The loader's is another: of a program that is linked with libc alone, libc comes first.
fn libc() -> [Option<&'static Module>; PARTS] {
    let mut found = [None; PARTS];
    for module in link_map::modules() {
        if let Some(at) = part(module) {
            found[at].get_or_insert(module);
        }
    }
    found
}

/// The code of a function in the first of these that has it.
fn function(libc: &[Option<&Module>], name: &CStr) -> Option<Range<usize>> {
    let mut loaded = libc.iter().flatten();
    loaded.find_map(|module| module.function(name))
}
