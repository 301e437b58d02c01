//! Genuine functions: libc's own, whatever the program exports under their names.
//!
//! Danger: the loader's list and libc's symbol table, read by hand; assembly under libc's names. A program may export
//! a `pthread_mutex_lock` that counts, a `write` that logs, a `dlsym` that forwards. The loader binds our calls, and
//! those of jemalloc and of Rust's library inside us, to them: called in the middle of an allocation, by a thread that
//! the program does not know, before its constructors. So each of these names is defined here, hidden, as a jump
//! to what libc itself defines.
//!
//! The jump's target is found when it is first wanted; at the latest at boot, where the list that is read
//! cannot change. Functions without a state (`memcpy`, `strlen`) and libc's private ones are bound as usual.
//! `je_system.rs` does the same for the functions that are better made than found.

use std::arch::global_asm;
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where libc's functions are: since 2.34 all in the first.
const LIBC: [&[u8]; 3] = [b"libc.so.6", b"libpthread.so.0", b"libdl.so.2"];

macro_rules! genuine {
    ($($name:literal)*) => {
        /// Their names, in the order of `heapprof_genuine`.
        const NAMES: &[&CStr] = &[$({
            const NAME: &str = concat!($name, "\0");
            match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => name,
                // While compiling: this is a constant.
                Err(_) => panic!("a name without zeros"),
            }
        }),*];
        global_asm!(
            ".pushsection .data.heapprof_genuine, \"aw\", @progbits",
            ".balign 8",
            ".globl heapprof_genuine",
            ".hidden heapprof_genuine",
            "heapprof_genuine:",
            ".popsection",
            $(
                // At first the jump leads to the instruction after it, as in a PLT: the slot's address is what
                // is told of the function.
                ".pushsection .text.heapprof_genuine, \"ax\", @progbits",
                ".balign 16",
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                ".cfi_startproc",
                "jmp qword ptr [rip + 4f]",
                "3:",
                "lea r11, [rip + 4f]",
                "jmp heapprof_find_genuine",
                ".cfi_endproc",
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
                ".pushsection .data.heapprof_genuine, \"aw\", @progbits",
                "4:",
                ".quad 3b",
                ".popsection",
            )*
            ".pushsection .text.heapprof_genuine, \"ax\", @progbits",
            ".type heapprof_find_genuine, @function",
            "heapprof_find_genuine:",
            ".cfi_startproc",
            // None of these functions takes a vector register; seven pushes align the stack.
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
            ".cfi_adjust_cfa_offset 56",
            "mov rdi, r11",
            "cld",
            "call {find}",
            "mov r11, rax",
            "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            ".cfi_adjust_cfa_offset -56",
            "jmp r11",
            ".cfi_endproc",
            ".size heapprof_find_genuine, . - heapprof_find_genuine",
            ".popsection",
            find = sym find,
        );
    };
}

// Everything that this library imports from libc but for memory and string functions, `gettimeofday` (which libc
// chooses by a resolver), libc's private names (`__cxa_*`, `__errno_location`), the loader's
// data, and what Rust's library only uses where it exists (`gettid`, `statx`). A test compares.
genuine! {
    "abort" "clock_gettime" "close" "dl_iterate_phdr" "dladdr" "dlerror" "dlsym" "exit" "fputs" "fstat64" "getauxval" "getcwd" "getenv"
    "lseek64" "mmap64" "open64" "pthread_attr_destroy" "pthread_attr_init"
    "pthread_attr_setdetachstate" "pthread_attr_setstacksize" "pthread_cond_init" "pthread_cond_signal"
    "pthread_cond_timedwait" "pthread_cond_wait" "pthread_create" "pthread_join" "pthread_key_create"
    "pthread_key_delete" "pthread_mutex_init" "pthread_mutex_lock" "pthread_mutex_trylock" "pthread_mutex_unlock"
    "pthread_mutexattr_destroy" "pthread_mutexattr_init" "pthread_mutexattr_settype" "pthread_self"
    "pthread_setcanceltype" "pthread_setname_np" "pthread_setspecific" "pthread_sigmask" "read" "readlink" "realpath"
    "sbrk" "sched_getaffinity" "sched_getcpu" "sched_setaffinity" "sched_yield" "sigaction"
    "sigemptyset" "sigfillset" "stat64" "sysconf" "write" "writev"
}

unsafe extern "C" {
    /// One word for each name: where the jump of that name leads. Ours, above.
    static heapprof_genuine: [AtomicUsize; NAMES.len()];
    /// The loader's own account for debuggers.
    static _r_debug: RDebug;
}

/// The head of glibc's `struct r_debug`.
#[repr(C)]
struct RDebug {
    version: i32,
    map: *const LinkMap,
}

// SAFETY: the loader's own; what is read of it is a pointer that is set once.
unsafe impl Sync for RDebug {}

/// glibc's `struct link_map`, its public part.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
}

/// At boot: finds all, while nobody can change the loader's list.
pub(crate) fn prepare() {
    // SAFETY: ours, above: so many words.
    for slot in unsafe { &heapprof_genuine } {
        find(slot);
    }
}

/// At boot or before: whether the program itself, or a library that stands before us, defines that function. What the loader
/// finds first does not tell: in a program that is not position-independent and takes a function's address, that is a
/// jump in the program to whoever defines it.
pub(crate) fn is_defined_before_us(name: &CStr) -> bool {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address of ours; writes one Dl_info, and zeros are one.
    let us = unsafe {
        libc::dladdr(prepare as *const c_void, info.as_mut_ptr());
        info.assume_init().dli_fbase as usize
    };
    // SAFETY: as in `code_in_libc`.
    let mut map = unsafe { _r_debug.map };
    // SAFETY: as in `code_in_libc`.
    while let Some(module) = unsafe { map.as_ref() }.filter(|module| module.bias != us) {
        // SAFETY: the loader's C string.
        let path = unsafe { CStr::from_ptr(module.name) };
        // A module whose table is of another kind is taken to define everything: nothing is then changed for it.
        // SAFETY: the loader has mapped it, and does not unload what it begins a program with.
        let defines =
            || unsafe { Symbols::of(module).is_none_or(|symbols| symbols.find(name).is_some()) };
        if path != c"linux-vdso.so.1" && defines() {
            return true;
        }
        map = module.next;
    }
    false
}

/// At boot: the definition of a function in a loaded library whose file's name begins in one of these ways. Not by dlopen and
/// dlsym: in our constructor, which is the first of all, dlopen of a library that is there already initialises what
/// that needs, libc itself, without arguments and environment.
pub(crate) fn in_library(begins: &[&[u8]], name: &CStr) -> Option<usize> {
    // SAFETY: as in `code_in_libc`.
    let mut map = unsafe { _r_debug.map };
    // SAFETY: as in `code_in_libc`.
    while let Some(module) = unsafe { map.as_ref() } {
        // SAFETY: the loader's C string.
        let path = unsafe { CStr::from_ptr(module.name) }.to_bytes();
        let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        if begins.iter().any(|begin| file.starts_with(begin)) {
            // SAFETY: the loader has mapped it, and does not unload what it begins a program with.
            let found = unsafe { Symbols::of(module) }.and_then(|symbols| {
                // SAFETY: as above.
                unsafe { symbols.find(name) }
            });
            if found.is_some() {
                return found;
            }
        }
        map = module.next;
    }
    None
}

/// Finds the function whose jump leads over `slot`, and lets it lead there. Two threads that come here at once find
/// the same.
extern "C" fn find(slot: &AtomicUsize) -> usize {
    let first = (&raw const heapprof_genuine) as usize;
    let index = (std::ptr::from_ref(slot) as usize - first) / size_of::<AtomicUsize>();
    let found = NAMES.get(index).and_then(|name| in_libc(name));
    let found = found.unwrap_or(missing as *const () as usize);
    slot.store(found, Ordering::Release);
    found
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
    // SAFETY: the loader's, set before it relocates anything.
    let mut map = unsafe { _r_debug.map };
    // SAFETY: the loader's list: a chain of nodes that ends with null. At boot and before, only the thread that is
    // here could change it.
    while let Some(module) = unsafe { map.as_ref() } {
        // SAFETY: the loader's C string.
        let path = unsafe { CStr::from_ptr(module.name) }.to_bytes();
        let file = path.rsplit(|&byte| byte == b'/').next();
        if file.is_some_and(|file| LIBC.contains(&file)) {
            // SAFETY: a module that the loader has mapped, and that is never unloaded.
            let found = unsafe { Symbols::of(module) }.and_then(|symbols| {
                // SAFETY: as above.
                unsafe { symbols.extent(name) }
            });
            if found.is_some() {
                return found;
            }
        }
        map = module.next;
    }
    None
}

/// ELF's `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// The dynamic symbols of a loaded module.
struct Symbols {
    bias: usize,
    hash: *const u32,
    symbols: *const libc::Elf64_Sym,
    strings: *const c_char,
    /// Null in a module that names no versions.
    versions: *const u16,
}

/// The dynamic section of a module.
///
/// # Safety
/// The module is mapped.
unsafe fn entries<'a>(module: &LinkMap) -> impl Iterator<Item = &'a Dynamic> + Clone {
    let first = module.dynamic;
    // SAFETY: a dynamic section ends with an entry of tag 0, beyond which nothing is read.
    (0..)
        .map(move |index| unsafe { &*first.add(index) })
        .take_while(|entry| entry.tag != 0)
}

/// An address in a dynamic section; glibc has added the bias to it, other loaders have not.
fn address(module: &LinkMap, value: usize) -> usize {
    if value < module.bias {
        value + module.bias
    } else {
        value
    }
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
/// Bit of a version: not the one that new programs are bound to.
const HIDDEN: u16 = 0x8000;
/// Type of a symbol: an ordinary function. One that a resolver chooses (`STT_GNU_IFUNC`) is not asked for.
const STT_FUNC: u8 = 2;

impl Symbols {
    /// # Safety
    /// The module is mapped.
    unsafe fn of(module: &LinkMap) -> Option<Symbols> {
        let (mut hash, mut symbols, mut strings, mut versions) = (0, 0, 0, 0);
        // SAFETY: the caller's promise.
        for entry in unsafe { entries(module) } {
            let address = address(module, entry.value);
            match entry.tag {
                DT_GNU_HASH => hash = address,
                DT_SYMTAB => symbols = address,
                DT_STRTAB => strings = address,
                DT_VERSYM => versions = address,
                _ => {}
            }
        }
        (hash != 0 && symbols != 0 && strings != 0).then_some(Symbols {
            bias: module.bias,
            hash: hash as *const u32,
            symbols: symbols as *const libc::Elf64_Sym,
            strings: strings as *const c_char,
            versions: versions as *const u16,
        })
    }

    /// Where the function's default version begins.
    ///
    /// # Safety
    /// The module is mapped.
    unsafe fn find(&self, name: &CStr) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.extent(name) }.map(|code| code.start)
    }

    /// The code of the function's default version.
    ///
    /// # Safety
    /// The module is mapped.
    unsafe fn extent(&self, name: &CStr) -> Option<Range<usize>> {
        let wanted = name.to_bytes().iter().fold(5381u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        // SAFETY: a GNU hash table: four words of head, `bloom` 8-byte words, `buckets` words, and a word for each
        // symbol from `first` on; the lowest bit of that word ends a chain.
        unsafe {
            let (buckets, first, bloom) = (*self.hash, *self.hash.add(1), *self.hash.add(2));
            let bucket = self.hash.add(4 + 2 * bloom as usize);
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((wanted % buckets.max(1)) as usize);
            if index < first {
                return None;
            }
            loop {
                let hash = *chain.add((index - first) as usize);
                let symbol = &*self.symbols.add(index as usize);
                if (hash ^ wanted) >> 1 == 0
                    && (self.versions.is_null() || *self.versions.add(index as usize) & HIDDEN == 0)
                    && symbol.st_info & 15 == STT_FUNC
                    && symbol.st_value != 0
                    && symbol.st_shndx != 0
                    && CStr::from_ptr(self.strings.add(symbol.st_name as usize)) == name
                {
                    let start = self.bias + symbol.st_value as usize;
                    return Some(start..start + symbol.st_size as usize);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}
