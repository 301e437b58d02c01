//! The loader's list of what is loaded, and the functions that each module defines.
//!
//! Danger: the loader's list and ELF's symbol tables, read by hand. `dlsym` says what the program would call, which may be a
//! function of its own; here the question is what one module defines. It is asked at boot and before, where nobody else can
//! change the list, and of libc, which is never unloaded. Nothing is allocated, and no function of the loader's is called but
//! `dladdr`.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// The loader's own account for debuggers.
    static _r_debug: RDebug;
}

#[cfg(target_env = "musl")]
unsafe extern "C" {
    /// Where that is, in musl's words.
    static _dl_debug_addr: &'static RDebug;
}

/// The loader's own account for debuggers.
fn account() -> &'static RDebug {
    // SAFETY: the loader's, set before it relocates anything (musl's: before it calls constructors).
    #[cfg(target_env = "gnu")]
    unsafe {
        &_r_debug
    }
    // SAFETY: as above.
    #[cfg(target_env = "musl")]
    unsafe {
        _dl_debug_addr
    }
}

/// The head of `struct r_debug`, the same in both libraries.
#[repr(C)]
struct RDebug {
    version: i32,
    map: *const Module,
    breakpoint: usize,
    state: i32,
    loader: usize,
}

// SAFETY: the loader's own; what is read of it is a pointer and an address that are set once.
unsafe impl Sync for RDebug {}

/// `struct link_map`, its public part.
#[repr(C)]
pub(crate) struct Module {
    bias: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Module,
}

/// What is loaded, in the order in which the loader looks for functions: the program first.
pub(crate) fn modules() -> impl Iterator<Item = &'static Module> {
    let mut next = account().map;
    std::iter::from_fn(move || {
        // SAFETY: the loader's list: a chain of nodes that ends with null. At boot and before, only the thread that is
        // here could change it.
        let module = unsafe { next.as_ref() }?;
        next = module.next;
        Some(module)
    })
}

/// The address of the first node of that list, the program's.
pub(crate) fn first() -> u64 {
    account().map as u64
}

/// An address in the program's memory: of its dynamic section.
pub(crate) fn address_in_program() -> u64 {
    // SAFETY: as in `modules`.
    unsafe { account().map.as_ref() }.map_or(0, |program| program.dynamic as u64)
}

/// An address in the loader's memory, where that begins.
pub(crate) fn start_of_loader() -> u64 {
    account().loader as u64
}

/// At boot or before: whether the program itself, or a library that stands before us, defines that function. What the loader
/// finds first does not tell: in a program that is not position-independent and takes a function's address, that is a
/// jump in the program to whoever defines it.
pub(crate) fn is_defined_before_us(name: &CStr) -> bool {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address of ours; writes one Dl_info, and zeros are one.
    let us = unsafe {
        libc::dladdr(is_defined_before_us as *const c_void, info.as_mut_ptr());
        info.assume_init().dli_fbase as usize
    };
    // A module whose table is of another kind is taken to define everything: nothing is then changed for it.
    let defines = |module: &Module| {
        let symbols = module.symbols();
        // SAFETY: as in `Module::function`.
        symbols.is_none_or(|symbols| unsafe { symbols.function(name) }.is_some())
    };
    modules()
        .take_while(|module| module.bias != us)
        .any(|module| module.path() != c"linux-vdso.so.1" && defines(module))
}

/// At boot: where a loaded library whose file's name begins in one of these ways defines that function. Not by dlopen and
/// dlsym: in our constructor, which is the first of all, dlopen of a library that is there already initialises what
/// that needs, libc itself, without arguments and environment.
pub(crate) fn in_library(begins: &[&[u8]], name: &CStr) -> Option<usize> {
    modules()
        .filter(|module| begins.iter().any(|begin| module.file().starts_with(begin)))
        .find_map(|module| module.function(name))
        .map(|code| code.start)
}

/// At boot: the path of the first module that calls that function, as the loader knows it; that of the program is empty.
pub(crate) fn caller_of(name: &CStr) -> Option<&'static CStr> {
    modules()
        .find(|module| module.calls(name))
        .map(Module::path)
}

impl Module {
    /// Its path as the loader knows it; that of the program is empty.
    fn path(&self) -> &CStr {
        // SAFETY: the loader's C string.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// Whether it is the loader's.
    #[cfg(target_env = "musl")]
    pub(crate) fn is_loader(&self) -> bool {
        self.bias as u64 == start_of_loader()
    }

    /// The name of its file, without folders.
    pub(crate) fn file(&self) -> &[u8] {
        let path = self.path().to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// The code of a function, in its default version, if it is defined here.
    pub(crate) fn function(&self, name: &CStr) -> Option<Range<usize>> {
        let symbols = self.symbols()?;
        // SAFETY: the loader has mapped the module, and does not unload what it begins a program with.
        unsafe { symbols.function(name) }
    }

    /// Whether it asks the loader for that function. By its relocations: GNU's table of symbols is one of what is defined, and
    /// does not say how many there are besides.
    fn calls(&self, name: &CStr) -> bool {
        let (mut tables, mut bytes) = ([0; 2], [0; 2]);
        let (mut symbols, mut strings) = (0, 0);
        // SAFETY: as above.
        for entry in unsafe { entries(self) } {
            match entry.tag {
                DT_JMPREL => tables[0] = address(self, entry.value),
                DT_PLTRELSZ => bytes[0] = entry.value,
                DT_RELA => tables[1] = address(self, entry.value),
                DT_RELASZ => bytes[1] = entry.value,
                DT_SYMTAB => symbols = address(self, entry.value),
                DT_STRTAB => strings = address(self, entry.value),
                _ => {}
            }
        }
        let symbols = symbols as *const libc::Elf64_Sym;
        let strings = strings as *const c_char;
        tables.iter().zip(bytes).any(|(&table, bytes)| {
            let table = table as *const libc::Elf64_Rela;
            (0..bytes / size_of::<libc::Elf64_Rela>()).any(|index| {
                // SAFETY: as above; within a table as the dynamic section says, which has no bytes where there is none. What
                // is asked for is one of the module's symbols, with a name among its strings; the first symbol is none.
                unsafe {
                    let symbol = &*symbols.add(((*table.add(index)).r_info >> 32) as usize);
                    symbol.st_shndx == 0
                        && symbol.st_name != 0
                        && CStr::from_ptr(strings.add(symbol.st_name as usize)) == name
                }
            })
        })
    }

    /// `None`: its table is of another kind than GNU's.
    fn symbols(&self) -> Option<Symbols> {
        // SAFETY: as above.
        unsafe { Symbols::of(self) }
    }
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
unsafe fn entries<'a>(module: &Module) -> impl Iterator<Item = &'a Dynamic> + Clone {
    let first = module.dynamic;
    // SAFETY: a dynamic section ends with an entry of tag 0, beyond which nothing is read.
    (0..)
        .map(move |index| unsafe { &*first.add(index) })
        .take_while(|entry| entry.tag != 0)
}

/// An address in a dynamic section; glibc has added the bias to it, other loaders have not.
fn address(module: &Module, value: usize) -> usize {
    if value < module.bias {
        value + module.bias
    } else {
        value
    }
}

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
/// Bit of a version: not the one that new programs are bound to.
const HIDDEN: u16 = 0x8000;
/// Type of a symbol: an ordinary function. One that a resolver chooses (`STT_GNU_IFUNC`) is not asked for.
const STT_FUNC: u8 = 2;

impl Symbols {
    /// # Safety
    /// The module is mapped.
    unsafe fn of(module: &Module) -> Option<Symbols> {
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

    /// The code of the function's default version.
    ///
    /// # Safety
    /// The module is mapped.
    unsafe fn function(&self, name: &CStr) -> Option<Range<usize>> {
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
