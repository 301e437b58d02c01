//! ELF symbols: the functions that the symbol table of a file names.
//!
//! The file is mapped and not trusted: each offset is checked against its length.

use std::ffi::CString;
use std::mem::size_of;
use std::ops::Range;

use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr, Elf64_Sym};

use crate::os::sys::{File, MappedFile};

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const SHN_UNDEF: u16 = 0;
const STT_FUNC: u8 = 2;

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a [u8],
    /// The address in the file's own address space.
    pub(crate) value: u64,
    /// Length of the code in bytes; 0: unknown.
    pub(crate) size: u64,
}

/// The symbol table of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElfSymbols<'a> {
    symbols: &'a [u8],
    strings: &'a [u8],
}

/// Returns the range of addresses, in the file's own address space, from its first executable
/// segment to the end of its last. `None`: there is none, or the file is damaged.
pub(crate) fn code_range(file: &[u8]) -> Option<Range<u64>> {
    let header: Elf64_Ehdr = read(file, 0)?;
    let segments = (0..u64::from(header.e_phnum)).filter_map(|index| -> Option<Elf64_Phdr> {
        let at = index.checked_mul(header.e_phentsize.into())?;
        read(file, header.e_phoff.checked_add(at)?)
    });
    let code = segments.filter(|it| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_X != 0);
    code.filter_map(|it| Some(it.p_vaddr..it.p_vaddr.checked_add(it.p_memsz)?))
        .reduce(|all, each| all.start.min(each.start)..all.end.max(each.end))
}

/// Maps the file with the debug information of a file, where distributions install it: by the
/// build-id. `None`: there is none.
pub(crate) fn debug_file(file: &[u8]) -> Option<MappedFile> {
    let id = build_id(file)?;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = hex.split_at_checked(2)?;
    let path = format!("/usr/lib/debug/.build-id/{folder}/{name}.debug");
    let path = CString::new(path).ok()?;
    MappedFile::of(&File::open(&path, libc::O_RDONLY, 0).ok()?)
}

/// Returns the build-id of a file: the content of its note of type `NT_GNU_BUILD_ID`.
fn build_id(file: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let header: Elf64_Ehdr = read(file, 0)?;
    let segments = (0..u64::from(header.e_phnum)).filter_map(|index| -> Option<Elf64_Phdr> {
        let at = index.checked_mul(header.e_phentsize.into())?;
        read(file, header.e_phoff.checked_add(at)?)
    });
    for segment in segments.filter(|it| it.p_type == libc::PT_NOTE) {
        let mut notes = bytes(file, segment.p_offset, segment.p_filesz)?;
        // Lengths of name and content, the type, the name, and the content, each padded to a word.
        while let Some((head, rest)) = notes.split_first_chunk::<12>() {
            let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|index| head[at + index]));
            let padded = |len: u32| (len as usize).next_multiple_of(4);
            let content = rest.get(padded(word(0))..)?;
            if word(8) == NT_GNU_BUILD_ID && rest.starts_with(b"GNU\0") {
                return content.get(..word(4) as usize);
            }
            notes = content.get(padded(word(4))..)?;
        }
    }
    None
}

impl<'a> ElfSymbols<'a> {
    /// Returns the full symbol table of a 64-bit file. `None`: it is stripped, or damaged.
    pub(crate) fn full(file: &'a [u8]) -> Option<ElfSymbols<'a>> {
        ElfSymbols::of_kind(file, SHT_SYMTAB)
    }

    /// Returns the dynamic symbol table of a 64-bit file. `None`: it has none, or is damaged.
    pub(crate) fn dynamic(file: &'a [u8]) -> Option<ElfSymbols<'a>> {
        ElfSymbols::of_kind(file, SHT_DYNSYM)
    }

    fn of_kind(file: &'a [u8], kind: u32) -> Option<ElfSymbols<'a>> {
        let header: Elf64_Ehdr = read(file, 0)?;
        if !header.e_ident.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let section = |index: u64| -> Option<Elf64_Shdr> {
            let at = index.checked_mul(header.e_shentsize.into())?;
            read(file, header.e_shoff.checked_add(at)?)
        };
        let mut sections = (0..header.e_shnum.into()).filter_map(section);
        let table = sections.find(|it| it.sh_type == kind)?;
        let strings = section(table.sh_link.into())?;
        Some(ElfSymbols {
            symbols: bytes(file, table.sh_offset, table.sh_size)?,
            strings: bytes(file, strings.sh_offset, strings.sh_size)?,
        })
    }

    /// Yields the functions that the file defines.
    pub(crate) fn functions(&self) -> impl Iterator<Item = Function<'a>> + use<'a> {
        let ElfSymbols { symbols, strings } = *self;
        symbols
            .chunks_exact(size_of::<Elf64_Sym>())
            .filter_map(move |entry| {
                let symbol: Elf64_Sym = read(entry, 0)?;
                if symbol.st_info & 15 != STT_FUNC || symbol.st_shndx == SHN_UNDEF {
                    return None;
                }
                let name = strings.get(symbol.st_name as usize..)?;
                let len = name.iter().position(|&byte| byte == 0)?;
                Some(Function {
                    name: &name[..len],
                    value: symbol.st_value,
                    size: symbol.st_size,
                })
            })
    }
}

/// Returns the bytes at an offset.
fn bytes(file: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    let len = usize::try_from(len).ok()?;
    file.get(at..at.checked_add(len)?)
}

/// Reads a structure of integers at an offset, which need not be aligned.
fn read<T: Integers>(file: &[u8], at: u64) -> Option<T> {
    let bytes = bytes(file, at, size_of::<T>() as u64)?;
    // SAFETY: so many bytes, of which every pattern is a valid `T`.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Structures of which every bit pattern is valid.
trait Integers {}
impl Integers for Elf64_Ehdr {}
impl Integers for Elf64_Phdr {}
impl Integers for Elf64_Shdr {}
impl Integers for Elf64_Sym {}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn a_program_names_its_functions() {
        let file = own();
        let symbols = ElfSymbols::full(&file).unwrap();
        let mut functions = symbols.functions();
        let main = functions.find(|function| function.name == b"main").unwrap();
        assert!(main.size > 0);
    }

    #[test]
    fn a_program_has_a_build_id() {
        let file = own();
        assert_eq!(build_id(&file).map(<[u8]>::len), Some(20));
        assert_eq!(build_id(&file[..64]), None);
    }

    /// Whatever the headers say, only bytes of the file are read.
    #[test]
    fn damaged_headers_are_refused_or_read_as_they_are() {
        let mut file = own();
        let header: Elf64_Ehdr = read(&file, 0).unwrap();
        let table = header.e_shoff as usize;
        let places = (0..64).chain(table..table + 40 * 64);
        for at in places {
            let before = file[at];
            for value in [0, 1, 0x7f, 0xff] {
                file[at] = value;
                for symbols in [ElfSymbols::full(&file), ElfSymbols::dynamic(&file)]
                    .into_iter()
                    .flatten()
                {
                    // The whole table, of many thousands, takes a minute.
                    assert!(symbols.functions().take(100).count() <= 100);
                }
                assert!(build_id(&file).is_none_or(|id| id.len() < file.len()));
            }
            file[at] = before;
        }
        for len in [0, 3, 15, 63, 64, 1000] {
            assert!(ElfSymbols::full(&file[..len]).is_none());
        }
    }
}
