//! Trampolines to libc: libc's own functions, even if the program exports functions with their
//! names.
//!
//! Danger: assembly with libc's names. A program may export a `pthread_mutex_lock` that counts, a
//! `write` that logs, a `dlsym` that forwards. The loader would bind our calls, and those of
//! jemalloc and Rust's library inside this library, to them. They would run in the middle of an
//! allocation, in a thread that the program does not know, before its constructors. So each of
//! these names is defined here, hidden, as a jump to libc's own definition in the [link
//! map](crate::os::link_map).
//!
//! The target of a jump is found at the first call, and at the latest at boot, when the loader's
//! list cannot change. Functions for memory and strings (`memcpy`, `strlen`) have plain targets of
//! our own until boot: the code that finds the targets calls these functions itself. Shims in the
//! allocator folder and in this one replace further functions by our own definitions.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::trampolines::{define_memory_trampolines, define_trampolines};
use crate::os::link_map::{self, Module, Symbols};

/// The files of glibc's functions. From 2.34 on, all are in libc.so.6. Before, libpthread must be
/// searched first. libc.so.6 has some of its functions as well, which do nothing until libpthread
/// is initialized, and lacks others. A mix would lock a mutex and never unlock it.
#[cfg(target_env = "gnu")]
const LIBC: [&[u8]; PARTS] = [b"libpthread.so.0", b"libc.so.6", b"libdl.so.2"];
#[cfg(target_env = "gnu")]
const PARTS: usize = 3;
/// musl is one file.
#[cfg(target_env = "musl")]
const PARTS: usize = 1;

/// Returns the index of the module among libc's files.
#[cfg(target_env = "gnu")]
fn part(module: &Module) -> Option<usize> {
    LIBC.iter().position(|file| *file == module.file())
}

/// Returns the index of the module among libc's files. musl is the loader, under any file name.
#[cfg(target_env = "musl")]
fn part(module: &Module) -> Option<usize> {
    module.is_loader().then_some(0)
}

macro_rules! trampolines {
    ($($name:literal)*) => {
        /// The names, in the order of `heapprof_trampolines`.
        const NAMES: &[&CStr] = &[$({
            const NAME: &str = concat!($name, "\0");
            match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => name,
                // At compile time: this is a constant.
                Err(_) => panic!("a name without zeros"),
            }
        }),*];
        define_trampolines! { find: $($name)* }
    };
}

macro_rules! memory_trampolines {
    ($($name:literal)*) => {
        /// The names, in the order of `heapprof_memory_slots`.
        const MEMORY_NAMES: &[&CStr] = &[$({
            const NAME: &str = concat!($name, "\0");
            match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => name,
                // At compile time: this is a constant.
                Err(_) => panic!("a name without zeros"),
            }
        }),*];
        define_memory_trampolines! { $($name)* }
    };
}

memory_trampolines! {
    "bcmp" "memchr" "memcmp" "memcpy" "memmove" "memrchr" "memset" "strlen" "strncpy"
}

// All other imports from libc, except data of libc and the loader. A test compares this list with
// the library.
macro_rules! trampolines_and {
    ($($of_one:literal)*) => {
        trampolines! {
            "__cxa_atexit" "__cxa_finalize" "__errno_location"
            "abort" "clock_gettime" "close" "dl_iterate_phdr" "dladdr" "dlerror" "dlsym" "exit" "fputs" "getauxval" "getcwd" "getenv"
            "gettimeofday"
            "pthread_attr_destroy" "pthread_attr_getstack" "pthread_attr_init"
            "pthread_attr_setdetachstate" "pthread_attr_setstack" "pthread_attr_setstacksize" "pthread_cond_init" "pthread_cond_signal"
            "pthread_cond_timedwait" "pthread_cond_wait" "pthread_join" "pthread_key_create"
            "pthread_key_delete" "pthread_mutex_init" "pthread_mutex_lock" "pthread_mutex_trylock" "pthread_mutex_unlock"
            "pthread_mutexattr_destroy" "pthread_mutexattr_init" "pthread_mutexattr_settype" "pthread_self"
            "pthread_setcanceltype" "pthread_setname_np" "pthread_setspecific" "pthread_sigmask" "read" "readlink" "realpath"
            "sched_getaffinity" "sched_getcpu" "sched_setaffinity" "sched_yield" "sigaction"
            "sigemptyset" "sigfillset" "strerror_r" "sysconf" "write" "writev"
            $($of_one)*
        }
    };
}

#[cfg(target_env = "gnu")]
trampolines_and! {
    "__cxa_at_quick_exit" "__libc_current_sigrtmax" "__sched_cpucount" "__xpg_strerror_r"
    "gnu_get_libc_version" "lseek64" "open64"
}

// Rust's library uses other names there, and its unwinder is linked into ours by the build script.
#[cfg(target_env = "musl")]
trampolines_and! {
    "at_quick_exit" "atexit" "fflush" "fprintf" "fstat" "fwrite" "lseek" "open"
    "pthread_rwlock_rdlock" "pthread_rwlock_unlock" "pthread_rwlock_wrlock" "snprintf" "stat"
}

unsafe extern "C" {
    /// One word for each name: the target of its jump. Defined by the macro above.
    static heapprof_trampolines: [AtomicUsize; NAMES.len()];
    /// The same for each of the memory names.
    static heapprof_memory_slots: [AtomicUsize; MEMORY_NAMES.len()];
}

/// At boot: finds all targets while the loader's list cannot change.
pub(crate) fn prepare() {
    let libc = libc_symbols();
    // SAFETY: defined above, with this number of words.
    for (slot, name) in unsafe { &heapprof_trampolines }.iter().zip(NAMES) {
        set_target(slot, function(&libc, name));
    }
    // SAFETY: ours, above: so many words.
    for (slot, name) in unsafe { &heapprof_memory_slots }.iter().zip(MEMORY_NAMES) {
        if let Some(start) = function(&libc, name) {
            slot.store(start, Ordering::Release); // else the plain one stays
        }
    }
}

/// Finds the target of the jump over `slot`, and stores it there. Two threads that do so at once
/// find the same target.
extern "C" fn find(slot: &AtomicUsize) -> usize {
    let first = (&raw const heapprof_trampolines) as usize;
    let index = (std::ptr::from_ref(slot) as usize - first) / size_of::<AtomicUsize>();
    set_target(slot, NAMES.get(index).and_then(|name| in_libc(name)))
}

/// Sets the target of a jump, and returns its address.
fn set_target(slot: &AtomicUsize, start: Option<usize>) -> usize {
    let start = start.unwrap_or(missing as *const () as usize);
    slot.store(start, Ordering::Release);
    start
}

/// Takes the place of a function that this libc lacks.
extern "C" fn missing() -> isize {
    -1
}

/// A function of libc's own, which is found at its first call.
pub(crate) struct LibcFunction {
    /// The address; 0: not found yet.
    found: AtomicUsize,
    name: &'static CStr,
}

impl LibcFunction {
    pub(crate) const fn new(name: &'static CStr) -> LibcFunction {
        LibcFunction {
            found: AtomicUsize::new(0),
            name,
        }
    }

    /// Returns its address, if libc has it.
    pub(crate) fn address(&self) -> Option<usize> {
        let mut found = self.found.load(Ordering::Acquire);
        if found == 0 {
            found = in_libc(self.name)?;
            self.found.store(found, Ordering::Release);
        }
        Some(found)
    }
}

#[cfg(feature = "attach")]
impl LibcFunction {
    /// Lets calls go to `moved`, if the function is the one at `entry`.
    pub(crate) fn redirect(&self, entry: usize, moved: usize) {
        if self.address() == Some(entry) {
            self.found.store(moved, Ordering::Release);
        }
    }
}

/// Returns true if the module is one of libc's files.
pub(crate) fn is_libc(module: &Module) -> bool {
    part(module).is_some()
}

/// Returns the address of libc's definition of a function.
pub(crate) fn in_libc(name: &CStr) -> Option<usize> {
    function(&libc_symbols(), name)
}

/// Returns the code of a function in libc. `None`: libc does not have it, or selects it by a
/// resolver.
pub(crate) fn code_in_libc(name: &CStr) -> Option<Range<usize>> {
    let libc = libc();
    let mut loaded = libc.iter().flatten();
    loaded.find_map(|module| module.function(name))
}

/// Returns the loaded modules of [`LIBC`], in the order of that list. The loader's order differs:
/// in a program that is linked with libc alone, libc comes first.
fn libc() -> [Option<&'static Module>; PARTS] {
    let mut found = [None; PARTS];
    for module in link_map::modules() {
        if let Some(at) = part(module) {
            found[at].get_or_insert(module);
        }
    }
    found
}

/// Returns the symbols of these modules.
fn libc_symbols() -> [Option<Symbols>; PARTS] {
    libc().map(|module| module.and_then(Module::symbols))
}

/// Returns the address of a function in the first of these modules that defines it.
fn function(libc: &[Option<Symbols>], name: &CStr) -> Option<usize> {
    let mut loaded = libc.iter().flatten();
    loaded.find_map(|symbols| {
        let code = symbols.function(name).map(|code| code.start);
        // SAFETY: libc is relocated before what depends on it, as we do; until we are relocated,
        // nobody comes here.
        code.or_else(|| unsafe { symbols.resolved_function(name) })
    })
}
