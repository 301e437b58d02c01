//! A module that was found after boot: asked of the loader without its lock, and read by the kernel.
//!
//! Danger: `_dl_find_object`, glibc's question for unwinders, answers with pointers into what another thread may be unloading. So
//! nothing is read through them but by way of `unwind/checked_read.rs`. An older glibc has no such question; there its list is read (`listed.rs`).

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::unwind::checked_read::{Memory, Plain};
use crate::unwind::elf_image::Image;

mod link_map_scan;

pub(crate) use link_map_scan::something_opens;

/// `_dl_find_object`, or 0 where glibc is older than 2.35.
static FIND_OBJECT: AtomicU64 = AtomicU64::new(0);

/// At boot: finds libc's function.
pub(crate) fn prepare() {
    // Not the program's, should it have one of that name.
    // SAFETY: RTLD_NEXT and a C string; a null answer means that glibc has no such function.
    let find = unsafe { libc::dlsym(libc::RTLD_NEXT, c"_dl_find_object".as_ptr()) } as u64;
    // Nor that of a library after us that knows nothing: libc's knows this code.
    if find != 0 && ask(find, prepare as *const () as u64).is_some() {
        FIND_OBJECT.store(find, Ordering::Relaxed);
    }
}

/// Whether it is worth while to ask for the module at an address of which nothing is known yet; what comes back is to be kept meanwhile.
pub(crate) fn may_be_at(address: u64) -> Option<link_map_scan::Look> {
    match FIND_OBJECT.load(Ordering::Relaxed) {
        0 => link_map_scan::is_worth_a_look(),
        find => ask(find, address).map(|_| link_map_scan::no_look()),
    }
}

/// Whether there is a module whose beginning is not known.
pub(crate) fn has_news(is_known: impl Fn(u64) -> bool) -> bool {
    FIND_OBJECT.load(Ordering::Relaxed) != 0 || link_map_scan::has_news(is_known)
}

/// The loader, for as long as one look takes.
pub(crate) enum Loader {
    /// Has `_dl_find_object`, at that address.
    Answers(u64),
    Listed(link_map_scan::List),
}

impl Loader {
    /// `None`: another thread is changing its list.
    pub(crate) fn now(memory: &Memory) -> Option<Loader> {
        match FIND_OBJECT.load(Ordering::Relaxed) {
            0 => link_map_scan::List::read(memory).map(Loader::Listed),
            find => Some(Loader::Answers(find)),
        }
    }

    /// The module that an address belongs to.
    pub(crate) fn at(&self, address: u64) -> Option<Found> {
        match self {
            Loader::Answers(find) => ask(*find, address),
            Loader::Listed(list) => list.at(address),
        }
    }

    /// The same, and whatever else is known now: of a list all of it, which is read seldom.
    pub(crate) fn around(self, address: u64) -> Vec<Found> {
        match self {
            Loader::Answers(find) => ask(find, address).into_iter().collect(),
            Loader::Listed(list) => list.all(),
        }
    }
}

/// What came of it when [`may_be_at`] had said that it is worth while.
pub(crate) fn came_of_it(found: bool, lost: bool) {
    if lost {
        link_map_scan::is_changing();
    }
    if found {
        link_map_scan::was_worth_it();
    }
}

/// A module as glibc tells of it: its `struct dl_find_object` on x86-64.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Found {
    flags: u64,
    /// First address (avma) of what is mapped of it, and the one behind the last.
    pub(crate) map_start: u64,
    pub(crate) map_end: u64,
    link_map: *const LinkMap,
    /// Where that is mapped (avma); 0: it has none.
    pub(crate) eh_frame_hdr: u64,
    reserved: [u64; 7],
}

/// The public head of the loader's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: u64,
    name: *const c_char,
    dynamic: u64,
    next: *const LinkMap,
}

// SAFETY: integers and raw pointers.
unsafe impl Plain for LinkMap {}
// SAFETY: integers.
unsafe impl Plain for libc::Elf64_Ehdr {}
// SAFETY: integers.
unsafe impl Plain for libc::Elf64_Phdr {}

/// Asks the loader, without a lock, which module an address belongs to. `find` is the address of `_dl_find_object`.
fn ask(find: u64, address: u64) -> Option<Found> {
    // SAFETY: that function has this type.
    let find: unsafe extern "C" fn(u64, *mut Found) -> c_int = unsafe { std::mem::transmute(find) };
    let mut found = std::mem::MaybeUninit::zeroed();
    // SAFETY: it fills the structure when it returns 0; it takes no lock and may be called anywhere.
    if unsafe { find(address, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed, then filled: integers and raw pointers.
    Some(unsafe { found.assume_init() })
}

impl Found {
    /// Whether the same module is still at the same place.
    pub(crate) fn is_same(&self, before: &Found) -> bool {
        self.link_map == before.link_map
            && self.map_start == before.map_start
            && self.eh_frame_hdr == before.eh_frame_hdr
    }

    /// Looks at it as it is now. `None`: it is no module, or is being unloaded.
    pub(crate) fn look<R>(
        &self,
        memory: &Memory,
        look: impl FnOnce(&Image) -> Option<R>,
    ) -> Option<R> {
        let map: LinkMap = memory.value(self.link_map as u64)?;
        let name = memory.c_string(map.name as u64)?;
        let header: libc::Elf64_Ehdr = memory.value(self.map_start)?;
        let headers = program_headers(self, map.bias, memory, &header);
        let headers = headers.unwrap_or_else(|| vec![as_one_piece(self, map.bias)]);
        look(&Image {
            bias: map.bias,
            headers: &headers,
            name: &name,
            later: Some(memory),
        })
    }
}

/// The program headers of a module. `None`: they are not where linkers put them of their own accord, near the beginning of its memory.
/// A linker script may leave them out, and who rewrites a file that is linked may put them elsewhere.
fn program_headers(
    found: &Found,
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

/// Those that a file's header names, if it is one and lies at `start`.
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

/// In place of program headers that are not found: the module is known, and so are its names; its frames are unwound by frame pointers.
/// Were it left unknown, each walk would look for it again.
fn as_one_piece(found: &Found, bias: u64) -> libc::Elf64_Phdr {
    let (start, len) = (
        found.map_start.wrapping_sub(bias),
        found.map_end.saturating_sub(found.map_start),
    );
    libc::Elf64_Phdr {
        p_type: libc::PT_LOAD,
        p_flags: libc::PF_R | libc::PF_X,
        p_offset: start, // as a rule
        p_vaddr: start,
        p_paddr: start,
        p_filesz: len,
        p_memsz: len,
        p_align: 4096,
    }
}
