//! The lookup of a module that was loaded after boot: the loader is queried without its lock, and
//! the kernel reads the module's memory.
//!
//! Danger: `_dl_find_object`, glibc's function for unwinders, returns pointers to memory that
//! another thread may be unmapping. So they are followed only by checked reads. An older glibc
//! lacks the function; there the loader's list is scanned.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arch::page::PAGE;
use crate::os::link_map;
use crate::unwind::checked_read::{Memory, PlainData};
use crate::unwind::elf_image::Image;

mod link_map_scan;

pub(crate) use link_map_scan::note_dlopen;

/// `_dl_find_object`, or 0 if glibc is older than 2.35.
static FIND_OBJECT: AtomicU64 = AtomicU64::new(0);

/// At boot: finds libc's function.
pub(crate) fn prepare() {
    // RTLD_NEXT excludes a function of that name in the program.
    // SAFETY: RTLD_NEXT and a C string; a null result means that glibc has no such function.
    let find = unsafe { libc::dlsym(libc::RTLD_NEXT, c"_dl_find_object".as_ptr()) } as u64;
    // This check excludes a later library's function that knows no modules: libc's own knows this
    // code.
    if find != 0 && query(find, prepare as *const () as u64).is_some() {
        FIND_OBJECT.store(find, Ordering::Relaxed);
    }
}

/// Returns a guard if a lookup of the module at an unknown address is worthwhile. The caller keeps
/// the guard during the lookup.
pub(crate) fn begin_lookup(address: u64) -> Option<link_map_scan::Scan> {
    match FIND_OBJECT.load(Ordering::Relaxed) {
        0 => link_map_scan::begin_scan_if_due(),
        find => query(find, address).map(|_| link_map_scan::no_scan()),
    }
}

/// Returns true if there may be a module whose start address is not known.
pub(crate) fn has_unknown_module(is_known: impl Fn(u64) -> bool) -> bool {
    FIND_OBJECT.load(Ordering::Relaxed) != 0 || link_map_scan::has_unknown_module(is_known)
}

/// The loader's answers, for one lookup.
pub(crate) enum Loader {
    /// The loader has `_dl_find_object`, at that address.
    FindObject(u64),
    LinkMapScan(link_map_scan::List),
}

impl Loader {
    /// Returns the loader. `None`: another thread is changing its list.
    pub(crate) fn open(memory: &Memory) -> Option<Loader> {
        match FIND_OBJECT.load(Ordering::Relaxed) {
            0 => link_map_scan::List::read(memory).map(Loader::LinkMapScan),
            find => Some(Loader::FindObject(find)),
        }
    }

    /// Returns the module of an address.
    pub(crate) fn at(&self, address: u64) -> Option<FoundModule> {
        match self {
            Loader::FindObject(find) => query(*find, address),
            Loader::LinkMapScan(list) => list.at(address),
        }
    }

    /// Returns the module of an address, and all other modules of a list, because a list is scanned
    /// seldom.
    pub(crate) fn around(self, address: u64) -> Vec<FoundModule> {
        match self {
            Loader::FindObject(find) => query(find, address).into_iter().collect(),
            Loader::LinkMapScan(list) => list.all(),
        }
    }
}

/// Reports the result of a lookup for which [`begin_lookup`] has given a guard.
pub(crate) fn end_lookup(found: bool, lost: bool) {
    if lost {
        link_map_scan::note_change();
    }
    if found {
        link_map_scan::reset_wait();
    }
}

/// A module as glibc describes it: its `struct dl_find_object` on x86-64.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FoundModule {
    flags: u64,
    /// First mapped address (avma) of the module, and the end of its memory.
    pub(crate) map_start: u64,
    pub(crate) map_end: u64,
    link_map: *const link_map::Module,
    /// Address (avma) of the table; 0: the module has none.
    pub(crate) eh_frame_hdr: u64,
    reserved: [u64; 7],
}

// SAFETY: integers and raw pointers.
unsafe impl PlainData for link_map::Module {}
// SAFETY: integers.
unsafe impl PlainData for libc::Elf64_Ehdr {}
// SAFETY: integers.
unsafe impl PlainData for libc::Elf64_Phdr {}

/// Asks the loader for the module of an address, without a lock. `find` is the address of
/// `_dl_find_object`.
fn query(find: u64, address: u64) -> Option<FoundModule> {
    // SAFETY: the function has this type.
    let find: unsafe extern "C" fn(u64, *mut FoundModule) -> c_int =
        unsafe { std::mem::transmute(find) };
    let mut found = std::mem::MaybeUninit::zeroed();
    // SAFETY: the function fills the structure if it returns 0; it takes no lock and may be called
    // anywhere.
    if unsafe { find(address, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed, then filled: integers and raw pointers.
    Some(unsafe { found.assume_init() })
}

impl FoundModule {
    /// Returns true if this is the same module at the same address.
    pub(crate) fn is_same(&self, before: &FoundModule) -> bool {
        self.link_map == before.link_map
            && self.map_start == before.map_start
            && self.eh_frame_hdr == before.eh_frame_hdr
    }

    /// Reads the module's present image. `None`: it is no module, or is being unloaded.
    pub(crate) fn read_image<R>(
        &self,
        memory: &Memory,
        read: impl FnOnce(&Image) -> Option<R>,
    ) -> Option<R> {
        let map: link_map::Module = memory.value(self.link_map as u64)?;
        let bias = map.bias as u64;
        let name = memory.c_string(map.name as u64)?;
        let header: libc::Elf64_Ehdr = memory.value(self.map_start)?;
        let headers = program_headers(self, bias, memory, &header);
        let headers = headers.unwrap_or_else(|| vec![single_segment(self, bias)]);
        read(&Image {
            bias,
            headers: &headers,
            name: &name,
            memory: Some(memory),
        })
    }
}

/// Returns the program headers of a module. `None`: they are not near the start of its memory,
/// where linkers put them by default. A linker script may omit them, and a tool that rewrites the
/// file may move them.
fn program_headers(
    found: &FoundModule,
    bias: u64,
    memory: &Memory,
    header: &libc::Elf64_Ehdr,
) -> Option<Vec<libc::Elf64_Phdr>> {
    let headers = headers_at(found.map_start, memory, header)?;
    let is_first = |header: &libc::Elf64_Phdr| {
        let start = bias.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && start & !4095 == found.map_start
    };
    headers.iter().any(is_first).then_some(headers)
}

/// Returns the headers that the ELF header of a file at `start` names.
fn headers_at(
    start: u64,
    memory: &Memory,
    header: &libc::Elf64_Ehdr,
) -> Option<Vec<libc::Elf64_Phdr>> {
    if &header.e_ident[..4] != b"\x7fELF"
        || usize::from(header.e_phentsize) != size_of::<libc::Elf64_Phdr>()
    {
        return None;
    }
    memory.values(start.checked_add(header.e_phoff)?, header.e_phnum.into())
}

/// Returns one segment for a module whose program headers are not found. The module's names then
/// stay available, and its frames are unwound by frame pointers. If the module stayed unknown, each
/// walk would look it up again.
fn single_segment(found: &FoundModule, bias: u64) -> libc::Elf64_Phdr {
    let (start, len) = (
        found.map_start.wrapping_sub(bias),
        found.map_end.saturating_sub(found.map_start),
    );
    libc::Elf64_Phdr {
        p_type: libc::PT_LOAD,
        p_flags: libc::PF_R | libc::PF_X,
        p_offset: start, // usually
        p_vaddr: start,
        p_paddr: start,
        p_filesz: len,
        p_memsz: len,
        p_align: PAGE,
    }
}
