//! The link map: the loader's list of loaded modules, and the functions that each module defines.
//!
//! Danger: this file reads the loader's list and ELF symbol tables directly. `dlsym` finds the
//! definition that the program would call, which may be the program's own; here the question is
//! what one module defines. It is asked at boot and before, when no other thread can change the
//! list, about libc, which is never unloaded, and under the loader's lock ([`while_unchanged`]).
//! Nothing is allocated.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;

use crate::arch::ifunc;

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// The loader's structure for debuggers.
    static _r_debug: RDebug;
}

#[cfg(target_env = "musl")]
unsafe extern "C" {
    /// The address of the loader's structure for debuggers, in musl.
    static _dl_debug_addr: &'static RDebug;
}

unsafe extern "C" {
    /// The first byte of this library's ELF header, by the linker.
    static __ehdr_start: u8;
}

/// Returns the loader's structure for debuggers.
fn debug_structure() -> &'static RDebug {
    // SAFETY: the loader's structure, set before it relocates anything (in musl: before it calls
    // constructors).
    #[cfg(target_env = "gnu")]
    unsafe {
        &_r_debug
    }
    // SAFETY: the same argument.
    #[cfg(target_env = "musl")]
    unsafe {
        _dl_debug_addr
    }
}

/// The head of `struct r_debug`, which is equal in both libraries.
#[repr(C)]
struct RDebug {
    version: i32,
    map: *const Module,
    breakpoint: usize,
    state: i32,
    loader: usize,
}

// SAFETY: the loader's own structure; the pointer and the address that are read are set once.
unsafe impl Sync for RDebug {}

/// The public head of the loader's `struct link_map`. Copies of it are read where the loader may
/// change the list.
#[repr(C)]
pub(crate) struct Module {
    /// The number that is added to an address of the file.
    pub(crate) bias: usize,
    /// The path, a C string.
    pub(crate) name: *const c_char,
    dynamic: *const Dynamic,
    pub(crate) next: *const Module,
}

/// Returns the loaded modules in the order of the loader's symbol search: the program is first.
pub(crate) fn modules() -> impl Iterator<Item = &'static Module> {
    let mut next = debug_structure().map;
    std::iter::from_fn(move || {
        // SAFETY: the loader's list is a chain of nodes that ends with null. At boot and before,
        // only this thread could change it.
        let module = unsafe { next.as_ref() }?;
        next = module.next;
        Some(module)
    })
}

/// Calls `look` while the list does not change: under the loader's lock in glibc, while musl never
/// removes a module. `look` calls no function of the loader.
pub(crate) fn while_unchanged(look: &mut dyn FnMut()) {
    /// Calls the closure for the first module, and ends the iteration.
    unsafe extern "C" fn visit(_: *mut libc::dl_phdr_info, _: usize, look: *mut c_void) -> i32 {
        // SAFETY: the pointer below, to a closure that lives until the iteration ends.
        unsafe { (*look.cast::<&mut dyn FnMut()>())() };
        1
    }
    let mut look = look;
    // SAFETY: `visit` has the type of a callback, and gets the pointer that it casts back.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut look).cast()) };
}

/// Returns true if the loader has just announced that it has changed its list, and false if it is
/// about to. The caller is called by the loader, which has its lock.
#[cfg(feature = "attach")]
pub(crate) fn is_consistent() -> bool {
    // SAFETY: a word of the loader's structure, which the loader changes in this thread only while
    // it has its lock.
    unsafe { (&raw const debug_structure().state).read_volatile() == 0 }
}

/// Returns the address of the list's first node, which is the program's.
pub(crate) fn first() -> u64 {
    debug_structure().map as u64
}

/// Returns an address in the program's memory: that of its dynamic section.
pub(crate) fn address_in_program() -> u64 {
    // SAFETY: the argument of `modules`.
    unsafe { debug_structure().map.as_ref() }.map_or(0, |program| program.dynamic as u64)
}

/// Returns the address at which the loader's memory begins.
pub(crate) fn start_of_loader() -> u64 {
    debug_structure().loader as u64
}

/// At boot or before: returns true if the program, or a library that precedes this one, defines the
/// function. The address that the loader finds first does not tell. In a program that is not
/// position-independent and takes the function's address, it is a jump in the program to the
/// definition.
pub(crate) fn is_defined_before_us(name: &CStr) -> bool {
    let us = our_bias();
    modules()
        .take_while(|module| module.bias != us)
        .any(|module| module.may_define(name))
}

/// At boot or before: returns false if no module defines the function.
pub(crate) fn may_be_defined(name: &CStr) -> bool {
    modules().any(|module| module.may_define(name))
}

/// At boot: returns the modules behind this library, in the order of the loader's symbol search.
pub(crate) fn behind_us() -> impl Iterator<Item = &'static Module> {
    let us = our_bias();
    modules()
        .skip_while(move |module| module.bias != us)
        .skip(1)
}

/// Returns the bias of this library: its first segment is linked to address 0. Calls no function of
/// the loader (`dladdr` takes another lock than [`while_unchanged`], and `dlopen` takes both in the
/// opposite order).
fn our_bias() -> usize {
    (&raw const __ehdr_start).addr()
}

/// At boot: returns the address of a function in a loaded library whose file name begins with one
/// of `begins`. dlopen and dlsym are unsafe here: in our constructor, which runs first, dlopen of a
/// loaded library initializes its dependencies. That includes libc itself, without arguments and
/// environment.
pub(crate) fn in_library(begins: &[&[u8]], name: &CStr) -> Option<usize> {
    modules()
        .filter(|module| begins.iter().any(|begin| module.file().starts_with(begin)))
        .find_map(|module| module.function(name))
        .map(|code| code.start)
}

/// glibc's name of the module that the kernel maps into every process.
const VDSO: &CStr = c"linux-vdso.so.1";

impl Module {
    /// Returns the address of the module's dynamic section, which no other loaded module has.
    pub(crate) fn identity(&self) -> usize {
        self.dynamic.addr()
    }

    /// Returns the module's path in the loader's spelling. The program's path is empty. The names
    /// of the program and of the vDSO are glibc's: musl has the program's first argument for the
    /// program, and an empty name for the vDSO.
    pub(crate) fn path(&self) -> &CStr {
        if self.is_program() {
            return c"";
        }
        // SAFETY: asks for one number of the auxiliary vector.
        if self.bias as u64 == unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } {
            return VDSO;
        }
        self.spelled_path()
    }

    /// Returns the path as the loader spells it.
    fn spelled_path(&self) -> &CStr {
        // SAFETY: the loader's C string.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// Returns true if the module is the program.
    pub(crate) fn is_program(&self) -> bool {
        std::ptr::from_ref(self) as u64 == first()
    }

    /// Returns true if the module is this library.
    pub(crate) fn is_ours(&self) -> bool {
        self.bias == our_bias()
    }

    /// Returns the address at which the byte with that address in the file's own space is loaded.
    pub(crate) fn address(&self, value: u64) -> u64 {
        (self.bias as u64).wrapping_add(value)
    }

    /// Returns true if the loader changes the module's code when it relocates the module.
    #[cfg(feature = "attach")]
    pub(crate) fn has_text_relocations(&self) -> bool {
        // SAFETY: the argument of `function`.
        let mut entries = unsafe { entries(self) };
        entries.any(|entry| {
            entry.tag == DT_TEXTREL || entry.tag == DT_FLAGS && entry.value & DF_TEXTREL != 0
        })
    }

    /// Returns true if the module is the loader.
    #[cfg(target_env = "musl")]
    pub(crate) fn is_loader(&self) -> bool {
        self.bias as u64 == start_of_loader()
    }

    /// Returns the name of the module's file, without folders. Empty for the program. Calls no
    /// function that is looked up in libc: that look-up asks for files.
    pub(crate) fn file(&self) -> &[u8] {
        if self.is_program() {
            return b"";
        }
        let path = self.spelled_path().to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// Returns the code of a function's default version, if the module defines it.
    pub(crate) fn function(&self, name: &CStr) -> Option<Range<usize>> {
        self.symbols()?.function(name)
    }

    /// Returns false if the module certainly lacks the function. A module without a GNU hash table
    /// counts as having it. The kernel's own module (vDSO) does not.
    fn may_define(&self, name: &CStr) -> bool {
        let defines = |symbols: Symbols| symbols.function(name).is_some();
        self.path() != VDSO && self.symbols().is_none_or(defines)
    }

    /// Returns the place of a thread-local variable in the module's thread-local block, if the
    /// module defines it.
    pub(crate) fn thread_local(&self, name: &CStr) -> Option<u64> {
        let symbols = self.symbols()?;
        let symbol = symbols.symbol(name, |it| it.st_info & 15 == STT_TLS)?;
        Some(symbol.st_value)
    }

    /// Returns the address of a variable, if the module defines it.
    pub(crate) fn object(&self, name: &CStr) -> Option<usize> {
        let symbols = self.symbols()?;
        let symbol = symbols.symbol(name, |it| it.st_info & 15 == STT_OBJECT)?;
        Some(symbols.bias.wrapping_add(symbol.st_value as usize))
    }

    /// Returns the names of the symbols that the module imports, some more than once. They are
    /// those of its relocations, because GNU's hash table lists only the defined symbols and does
    /// not tell the number of the others.
    pub(crate) fn imported(&self) -> impl Iterator<Item = &'static CStr> {
        let (mut tables, mut bytes) = ([0; 2], [0; 2]);
        let (mut symbols, mut strings) = (0, 0);
        // SAFETY: the argument of `function`.
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
        tables
            .into_iter()
            .zip(bytes)
            .flat_map(move |(table, bytes)| {
                let table = table as *const libc::Elf64_Rela;
                (0..bytes / size_of::<libc::Elf64_Rela>()).filter_map(move |index| {
                    // SAFETY: the module stays mapped, as above. Each index is within the table,
                    // whose size the dynamic section contains; a missing table has size 0. Each
                    // relocation refers to one of the module's symbols, whose name is in its string
                    // table. The first symbol is no symbol.
                    unsafe {
                        let symbol = &*symbols.add(((*table.add(index)).r_info >> 32) as usize);
                        (symbol.st_shndx == 0 && symbol.st_name != 0)
                            .then(|| CStr::from_ptr(strings.add(symbol.st_name as usize)))
                    }
                })
            })
    }

    /// Returns the module's symbols, or `None` if its table is not GNU's kind. A caller that looks
    /// up many names keeps them.
    pub(crate) fn symbols(&self) -> Option<Symbols> {
        // SAFETY: the loader has mapped the module, and never unloads the modules that a program
        // starts with.
        unsafe { Symbols::of(self) }
    }
}

/// ELF's `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// The dynamic symbols of a loaded module, which stays mapped.
pub(crate) struct Symbols {
    bias: usize,
    hash: *const u32,
    symbols: *const libc::Elf64_Sym,
    strings: *const c_char,
    /// Null in a module without symbol versions.
    versions: *const u16,
}

/// Returns the entries of the module's dynamic section.
///
/// # Safety
/// The module is mapped.
unsafe fn entries<'a>(module: &Module) -> impl Iterator<Item = &'a Dynamic> + Clone {
    let first = module.dynamic;
    // SAFETY: a dynamic section ends with an entry of tag 0, and nothing beyond it is read.
    (0..)
        .map(move |index| unsafe { &*first.add(index) })
        .take_while(|entry| entry.tag != 0)
}

/// Returns the address for a value in a dynamic section. glibc has already added the bias; other
/// loaders have not.
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
#[cfg(feature = "attach")]
const DT_TEXTREL: i64 = 22;
const DT_JMPREL: i64 = 23;
#[cfg(feature = "attach")]
const DT_FLAGS: i64 = 30;
/// Flag of a module whose code is relocated.
#[cfg(feature = "attach")]
const DF_TEXTREL: usize = 4;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
/// Bit of a version that new programs are not bound to.
const HIDDEN: u16 = 0x8000;
/// Types of symbols: a variable, an ordinary function, a thread-local variable.
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_TLS: u8 = 6;
/// Type of a symbol: a resolver, which chooses the function.
const STT_GNU_IFUNC: u8 = 10;

impl Symbols {
    /// # Safety
    /// The module is mapped and stays so.
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

    /// Returns the code of the default version of a function.
    pub(crate) fn function(&self, name: &CStr) -> Option<Range<usize>> {
        self.code(name, STT_FUNC)
    }

    /// Returns the function of that name that a resolver of this module selects (`STT_GNU_IFUNC`).
    ///
    /// # Safety
    /// The loader has relocated the module.
    pub(crate) unsafe fn resolved_function(&self, name: &CStr) -> Option<usize> {
        let resolver = self.code(name, STT_GNU_IFUNC)?.start;
        // SAFETY: the symbol's type, and the caller's promise.
        Some(unsafe { ifunc::selected_by(resolver) })
    }

    /// Returns the code of the default version of a symbol of that type.
    fn code(&self, name: &CStr, kind: u8) -> Option<Range<usize>> {
        let is_it = |it: &libc::Elf64_Sym| it.st_info & 15 == kind && it.st_value != 0;
        let symbol = self.symbol(name, is_it)?;
        let start = self.bias + symbol.st_value as usize;
        Some(start..start + symbol.st_size as usize)
    }

    /// Returns the default version of a symbol that the module defines, if `is_it` accepts it.
    fn symbol(
        &self,
        name: &CStr,
        is_it: impl Fn(&libc::Elf64_Sym) -> bool,
    ) -> Option<&libc::Elf64_Sym> {
        let wanted = name.to_bytes().iter().fold(5381u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        // SAFETY: a GNU hash table has four header words, `bloom` 8-byte words, `buckets` words,
        // and one word for each symbol from `first` on. The lowest bit of that word ends a chain.
        // The module stays mapped.
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
                    && is_it(symbol)
                    && symbol.st_shndx != 0
                    && CStr::from_ptr(self.strings.add(symbol.st_name as usize)) == name
                {
                    return Some(symbol);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}
