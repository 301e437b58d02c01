//! Thread-local blocks: where the variables of a loaded module lie in each thread.
//!
//! A module that a program starts with has its block at one distance from the thread pointer in
//! every thread. Some modules that are opened later have one, too. The blocks of any other module
//! lie where each thread's vector of blocks points to (the DTV of the ELF specification for
//! thread-local storage).
//! A thread may have no such block yet: the loader makes it at the thread's first use of it.
//!
//! glibc tells debuggers the layout of its structures, in constants for libthread_db. With a libc
//! that has none, such as musl or glibc before 2.34, only the blocks of the start are found.
//!
//! Danger: this file reads the loader's structures. The vector belongs to its thread, and only the
//! thread itself changes it. It may do so in the loader, which calls malloc at points where the old
//! vector is whole. A vector that realloc has just freed is read, too: its memory stays readable,
//! because small blocks are never unmapped, and the words that are found are checked by the caller.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use crate::arch::thread_block::thread_pointer;
use crate::os::link_map::{self, Module};

/// The place of a module's blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TlsBlock {
    /// In every thread at this distance from the thread pointer, in wrapping arithmetic.
    AtDistance(u64),
    /// In the vector of each thread.
    InVector(VectorEntry),
}

/// The entry of one module in the threads' vectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct VectorEntry {
    layout: Layout,
    /// The module's number, which is the index of its entry.
    number: u64,
    /// The loader's generation that gave the module this number. An older vector has the entry of
    /// another module there.
    generation: u64,
}

/// Offsets in glibc's structures, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    /// Distance of the vector's address from the thread pointer.
    vector: u64,
    /// Bytes of an entry of the vector, and the offsets of an address and of a count in it.
    entry_len: u64,
    address: u64,
    count: u64,
    /// Offsets of a module's number and of its block's distance in the loader's structure of it.
    number: u64,
    distance: u64,
    /// Address of the loader's list of modules with blocks, and offsets in a node of the list.
    slots: u64,
    slots_len: u64,
    slots_next: u64,
    slots_first: u64,
    /// Bytes of a slot, and offsets in it.
    slot_len: u64,
    slot_generation: u64,
    slot_module: u64,
}

/// A block's distance while none is chosen, and for a block that never lies at one distance.
const NO_DISTANCE: [u64; 2] = [0, u64::MAX];
/// The address of a block that the loader has not made yet. Zero: it is being made.
const NO_BLOCK: [u64; 2] = [0, u64::MAX];

/// A field of one of glibc's structures: its size in bits, its number of elements, its offset in
/// bytes.
type Field = [u32; 3];

static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();

impl Layout {
    /// Returns the layout, if libc tells it.
    fn of_libc() -> Option<Layout> {
        let in_library = |begin: &[u8], name: &CStr| {
            let mut modules = link_map::modules().filter(|module| module.file().starts_with(begin));
            modules.find_map(|module| module.object(name))
        };
        let field = |name: &CStr| {
            let at = in_library(b"libc.so.", name)? as *const Field;
            // SAFETY: glibc's constant of that name is three words, and libc is never unloaded.
            Some(unsafe { at.read_unaligned() })
        };
        let word = |name: &CStr| match field(name)? {
            [64, _, offset] => Some(u64::from(offset)),
            _ => None,
        };
        let slot_len = in_library(b"libc.so.", c"_thread_db_sizeof_dtv_slotinfo")? as *const u32;
        let list = word(c"_thread_db_rtld_global__dl_tls_dtv_slotinfo_list")?;
        let list = in_library(b"ld-linux", c"_rtld_global")? as u64 + list;
        let [entry_bits, _, 0] = field(c"_thread_db_dtv_dtv")? else {
            return None;
        };
        Some(Layout {
            vector: word(c"_thread_db_pthread_dtvp")?,
            entry_len: u64::from(entry_bits / 8),
            address: word(c"_thread_db_dtv_t_pointer_val")?,
            count: word(c"_thread_db_dtv_t_counter")?,
            number: word(c"_thread_db_link_map_l_tls_modid")?,
            distance: word(c"_thread_db_link_map_l_tls_offset")?,
            slots: list,
            slots_len: word(c"_thread_db_dtv_slotinfo_list_len")?,
            slots_next: word(c"_thread_db_dtv_slotinfo_list_next")?,
            slots_first: u64::from(field(c"_thread_db_dtv_slotinfo_list_slotinfo")?[2]),
            // SAFETY: glibc's constant of that name is one word.
            slot_len: u64::from(unsafe { slot_len.read_unaligned() }),
            slot_generation: word(c"_thread_db_dtv_slotinfo_gen")?,
            slot_module: word(c"_thread_db_dtv_slotinfo_map")?,
        })
    }

    /// Returns the generation that gave the module its number. Under the loader's lock.
    fn generation_of(&self, module: u64, number: u64) -> Option<u64> {
        let mut first = 0;
        // SAFETY: the loader's list, which ends with null and does not change under its lock. A
        // node has so many slots.
        unsafe {
            let mut node = word_at(self.slots);
            while node != 0 {
                let len = word_at(node + self.slots_len);
                if number < first + len {
                    let slot = node + self.slots_first + (number - first) * self.slot_len;
                    return (word_at(slot + self.slot_module) == module)
                        .then(|| word_at(slot + self.slot_generation));
                }
                first += len;
                node = word_at(node + self.slots_next);
            }
        }
        None
    }
}

/// Returns the place of the module's blocks. `None`: it has none, or libc does not tell it. Called
/// at boot, or under the loader's lock ([`link_map::while_unchanged`]). `is_of_start`: the program
/// started with the module.
pub(crate) fn block_of(module: &Module, is_of_start: bool) -> Option<TlsBlock> {
    let Some(layout) = *LAYOUT.get_or_init(Layout::of_libc) else {
        return is_of_start.then(|| block_here(module)).flatten();
    };
    let at = std::ptr::from_ref(module) as u64;
    // SAFETY: the loader's structure of the module, of which libc tells these offsets.
    let [number, distance] =
        [layout.number, layout.distance].map(|offset| unsafe { word_at(at + offset) });
    if number == 0 {
        return None;
    }
    if !NO_DISTANCE.contains(&distance) {
        // Blocks at one distance lie below the thread pointer.
        return Some(TlsBlock::AtDistance(distance.wrapping_neg()));
    }
    let generation = layout.generation_of(at, number)?;
    Some(TlsBlock::InVector(VectorEntry {
        layout,
        number,
        generation,
    }))
}

/// Returns the place of the blocks of a module of the start, whose distance is that of this thread.
fn block_here(module: &Module) -> Option<TlsBlock> {
    struct SearchedBlock {
        bias: u64,
        block: u64,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        here: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes an info that is valid for the call, and returns our own data.
        let (info, here) = unsafe { (&*info, &mut *here.cast::<SearchedBlock>()) };
        if info.dlpi_addr == here.bias {
            here.block = info.dlpi_tls_data as u64;
        }
        0
    }
    let bias = module.address(0);
    let mut here = SearchedBlock { bias, block: 0 };
    // SAFETY: the callback's data is the structure above, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut here).cast()) };
    let distance = here.block.wrapping_sub(thread_pointer() as u64);
    (here.block != 0).then_some(TlsBlock::AtDistance(distance))
}

impl TlsBlock {
    /// Returns true if the block has one distance from the thread pointer in every thread. Its
    /// memory stays when the module goes.
    pub(crate) fn is_at_one_distance(&self) -> bool {
        matches!(self, TlsBlock::AtDistance(_))
    }

    /// Returns the address of this thread's block. `None`: the thread has none yet.
    pub(crate) fn of_this_thread(&self) -> Option<u64> {
        match self {
            TlsBlock::AtDistance(distance) => {
                Some((thread_pointer() as u64).wrapping_add(*distance))
            }
            TlsBlock::InVector(entry) => entry.of_this_thread(),
        }
    }
}

impl VectorEntry {
    fn of_this_thread(&self) -> Option<u64> {
        let layout = &self.layout;
        // SAFETY: this thread's vector, by the layout that libc tells. Entry 0 is the vector's
        // generation. The entry before it is the number of the entries that follow.
        let address = unsafe {
            let vector = word_at(thread_pointer() as u64 + layout.vector);
            let len = word_at(vector - layout.entry_len + layout.count);
            let generation = word_at(vector + layout.count);
            if self.number > len || generation < self.generation {
                return None;
            }
            word_at(vector + self.number * layout.entry_len + layout.address)
        };
        (!NO_BLOCK.contains(&address)).then_some(address)
    }
}

/// Reads a word that this thread's other code, or the loader, may change later.
///
/// # Safety
/// The word is readable.
unsafe fn word_at(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u64).read_volatile() }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    std::thread_local! {
        static VARIABLE: u64 = const { 7 };
    }

    /// Returns the module of this code: the program, whose blocks are at one distance.
    fn program() -> &'static Module {
        link_map::modules().next().unwrap()
    }

    #[test]
    fn blocks_of_the_program_are_at_one_distance() {
        let look = || {
            let block = block_of(program(), true).unwrap();
            let distance = VARIABLE
                .with(|it| std::ptr::from_ref(it) as u64)
                .wrapping_sub(block.of_this_thread().unwrap());
            assert!(distance < 1 << 20, "{distance:#x}");
            (block, distance)
        };
        let here = look();
        assert_eq!(block_here(program()), Some(here.0));
        assert_eq!(std::thread::spawn(look).join().unwrap(), here);
    }

    /// The vector has an entry for every module, also for one whose block is at one distance.
    #[test]
    fn the_vector_leads_to_the_same_block() {
        std::thread::spawn(|| {
            let module = program();
            let layout = Layout::of_libc().unwrap();
            let at = std::ptr::from_ref(module) as u64;
            // SAFETY: the offset is libc's.
            let number = unsafe { word_at(at + layout.number) };
            let generation = layout.generation_of(at, number).unwrap();
            let entry = VectorEntry {
                layout,
                number,
                generation,
            };
            let block = block_of(module, false).unwrap();
            assert_eq!(entry.of_this_thread(), block.of_this_thread());
            let later = VectorEntry {
                generation: generation + 1000,
                ..entry
            };
            assert_eq!(later.of_this_thread(), None);
            let beyond = VectorEntry {
                number: 1 << 30,
                ..entry
            };
            assert_eq!(beyond.of_this_thread(), None);
        })
        .join()
        .unwrap();
    }
}
