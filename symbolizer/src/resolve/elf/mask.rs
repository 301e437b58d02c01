//! Masked table: one of an ELF file that a parser cannot read, declared to be plain data, so that
//! the parser reads the rest.
//!
//! The `object` crate parses the tables of symbols and of relocations with the headers, and refuses
//! a file whose table is malformed. A `.symtab` that is compressed is such a table for it. Names
//! mostly come from DWARF, which needs neither.

use object::elf::{
    FileHeader32, FileHeader64, SHT_DYNSYM, SHT_PROGBITS, SHT_REL, SHT_RELA, SHT_SYMTAB,
    SectionType,
};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endian, Endianness, FileKind};

/// The tables that can be done without, the least needed first.
const TABLES: [&[SectionType]; 3] = [&[SHT_SYMTAB], &[SHT_REL, SHT_RELA], &[SHT_DYNSYM]];

/// Masks tables until the file can be parsed. Returns false if it cannot be parsed without them
/// either.
pub(super) fn mask_unreadable_tables(bytes: &mut [u8]) -> bool {
    TABLES.into_iter().any(|kinds| {
        let headers = match FileKind::parse(&*bytes) {
            Ok(FileKind::Elf32) => headers_of::<FileHeader32<Endianness>>(bytes, kinds),
            Ok(FileKind::Elf64) => headers_of::<FileHeader64<Endianness>>(bytes, kinds),
            _ => None,
        };
        for (place, kind) in headers.into_iter().flatten() {
            if let Some(word) = bytes.get_mut(place..place + kind.len()) {
                word.copy_from_slice(&kind);
            }
        }
        object::File::parse(&*bytes).is_ok()
    })
}

/// Where the kind of each section of these kinds stands, and the bytes that make it data.
fn headers_of<Elf: FileHeader<Endian = Endianness>>(
    bytes: &[u8],
    kinds: &[SectionType],
) -> Option<Vec<(usize, [u8; 4])>> {
    /// Behind the section's name.
    const KIND: usize = 4;
    let header = Elf::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, bytes).ok()?;
    let table: usize = usize::try_from(header.e_shoff(endian).into()).ok()?;
    let data = endian.write_u32(SHT_PROGBITS.0);
    let places = sections.iter().enumerate().filter_map(|(index, section)| {
        let is_one = kinds.contains(&section.sh_type(endian));
        let place = table.checked_add(index * size_of::<Elf::SectionHeader>() + KIND)?;
        is_one.then_some((place, data))
    });
    Some(places.collect())
}
