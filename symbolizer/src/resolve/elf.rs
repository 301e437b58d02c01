//! ELF file: a file that is opened and mapped, with its identity and its sections.
//!
//! The rest of `resolve` sees bytes, and opens no file.

mod mask;

use super::report::BuildId;
use crate::memory;
use crate::regular_file::{OpenError, RegularFile};
use crate::resolve::archive::{self, Archive};
use gimli::{DwarfPackageSections, DwarfSections, RunTimeEndian, SectionId};
use heapprof_format::FileStamp;
use lzma_rust2::XzReader;
use memmap2::{Mmap, MmapMut, UncheckedAdvice};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest section that is decompressed into memory, and the largest debug information file
/// inside a `.gnu_debugdata`: what a sane linker makes is below, what a small hostile file claims
/// may be anything.
const LARGEST_DECOMPRESSED: u64 = 16 << 30;
const LARGEST_MINI_DEBUG_INFO: u64 = 1 << 30;
/// How many times larger compressed data may become, and how many bytes it may have in any case.
/// Real sections stay below a third of that; data made for it becomes a thousand times larger.
const MOST_EXPANSION: u64 = 32;
const ALWAYS_ALLOWED: u64 = 4 << 20;
/// Memory that the xz decoder may take for itself. `xz -9` needs the most.
const XZ_DICTIONARY_KIB: u32 = 80 << 10;

/// Why a file could not be used as ELF.
#[derive(Debug, thiserror::Error)]
pub(super) enum ElfError {
    #[error("does not exist")]
    Missing,
    #[error("is not a regular file")]
    NotRegular,
    #[error("cannot be read")]
    Io(#[from] io::Error),
    #[error("is not an ELF file that can be read")]
    Parse(#[from] object::Error),
    #[error("holds a package of split DWARF that cannot be read")]
    Package(#[from] gimli::Error),
    #[error("section {section} cannot be read")]
    Section {
        section: &'static str,
        source: object::Error,
    },
    #[error(
        "section {section} claims {claimed} bytes when decompressed, and {allowed} are allowed for its size"
    )]
    TooLarge {
        section: &'static str,
        claimed: u64,
        allowed: u64,
    },
    #[error(
        ".gnu_debugdata has more bytes when decompressed than the {allowed} that are allowed for its size"
    )]
    MiniDebugInfoTooLarge { allowed: u64 },
    #[error(".gnu_debugdata cannot be decompressed")]
    MiniDebugInfo(#[source] io::Error),
}

/// The bytes of an ELF file, and where they came from.
pub(super) struct ElfFile {
    pub(super) path: PathBuf,
    bytes: Bytes,
    masked: Option<Masked>,
    /// The stamp of a file of the file system.
    stamp: Option<FileStamp>,
}

enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
    Member(Arc<Archive>, Range<usize>),
}

/// A file that can be read only in part: a parser refuses all of it because of a table that it has
/// no use for here (a symbol table that is compressed, relocations that are damaged).
struct Masked {
    /// The file's bytes, with those tables declared to be data.
    bytes: MaskedBytes,
    /// The error of the parser.
    why: object::Error,
}

enum MaskedBytes {
    Mapped(MmapMut),
    Owned(Vec<u8>),
}

impl Deref for MaskedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            MaskedBytes::Mapped(map) => map,
            MaskedBytes::Owned(bytes) => bytes,
        }
    }
}

impl DerefMut for MaskedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            MaskedBytes::Mapped(map) => map,
            MaskedBytes::Owned(bytes) => bytes,
        }
    }
}

impl ElfFile {
    /// Opens and maps a file, and looks at its headers.
    pub(super) fn open(path: &Path) -> Result<ElfFile, ElfError> {
        let file = match RegularFile::open(path) {
            Ok(file) => file,
            Err(OpenError::Folder | OpenError::NotRegular) => return Err(ElfError::NotRegular),
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => {
                // One of its folders is a file: perhaps a bundle.
                let (archive, range) = archive::member(path).ok_or(ElfError::Missing)?;
                return ElfFile::of_memory(path, Bytes::Member(archive, range));
            }
            Err(OpenError::Io(error)) if is_absent(&error) => return Err(ElfError::Missing),
            Err(OpenError::Io(error)) => return Err(ElfError::Io(error)),
        };
        let bytes = Bytes::Mapped(file.map()?);
        let copy = |_: &[u8]| Ok(MaskedBytes::Mapped(file.map_to_change()?));
        Ok(ElfFile {
            stamp: Some(file.stamp()),
            ..ElfFile::checked(path, bytes, copy)?
        })
    }

    /// An ELF file that was found inside another file or a process; `path` says where.
    pub(super) fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<ElfFile, ElfError> {
        ElfFile::of_memory(path, Bytes::Owned(bytes))
    }

    fn of_memory(path: &Path, bytes: Bytes) -> Result<ElfFile, ElfError> {
        ElfFile::checked(path, bytes, |data| Ok(MaskedBytes::Owned(data.to_vec())))
    }

    /// The file, if its headers can be parsed, perhaps without tables that cannot. `copy` makes a
    /// copy of it that can be changed.
    fn checked(
        path: &Path,
        bytes: Bytes,
        copy: impl FnOnce(&[u8]) -> Result<MaskedBytes, ElfError>,
    ) -> Result<ElfFile, ElfError> {
        let mut file = ElfFile {
            path: path.to_owned(),
            bytes,
            masked: None,
            stamp: None,
        };
        let why = match file.object() {
            Ok(_) => return Ok(file),
            Err(why) => why,
        };
        let mut bytes = copy(file.data())?;
        if !mask::mask_unreadable_tables(&mut bytes) {
            return Err(why.into());
        }
        file.masked = Some(Masked { bytes, why });
        Ok(file)
    }

    /// The file's own bytes.
    pub(super) fn data(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
            Bytes::Member(archive, range) => archive.data(range),
        }
    }

    /// The stamp of the file; `None` if it is in an archive or in memory.
    pub(super) fn stamp(&self) -> Option<FileStamp> {
        self.stamp
    }

    /// Why a table of it is passed over, if one is.
    pub(super) fn unreadable(&self) -> Option<&object::Error> {
        self.masked.as_ref().map(|masked| &masked.why)
    }

    /// Tells the kernel that `part`, a range of this file's bytes, will hardly be read again: a
    /// unit that has been read through need not stay in memory while a thousand others are. Nothing
    /// for a file that is not mapped.
    pub(super) fn forget(&self, part: &[u8]) {
        const PAGE: usize = 4096;
        let (Bytes::Mapped(map), None) = (&self.bytes, &self.masked) else {
            return;
        };
        // Where `part` is in the map; a decompressed section is elsewhere.
        let Some(begin) = (part.as_ptr() as usize).checked_sub(map.as_ptr() as usize) else {
            return;
        };
        let Some(end) = begin
            .checked_add(part.len())
            .filter(|&end| end <= map.len())
        else {
            return;
        };
        // Whole pages only: the units before and after are perhaps being read by other threads.
        let (begin, end) = (begin.next_multiple_of(PAGE), end / PAGE * PAGE);
        if begin < end {
            // SAFETY: what makes this advice unsafe is that pages which were written to lose their
            // content. This map is read only and private, so no page of it was ever written to: the
            // next access reads the same bytes from the file again, in this thread or any other.
            // `begin..end` lies inside the map and begins at a page, for the map does.
            let advised = unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, begin, end - begin)
            };
            let _ = advised; // it is advice: without it the pages stay, no more
        }
    }

    /// The headers, parsed; cheap, so it is done where needed instead of being stored beside what
    /// it borrows.
    pub(super) fn object(&self) -> Result<object::File<'_>, object::Error> {
        object::File::parse(match &self.masked {
            Some(masked) => &masked.bytes,
            None => self.data(),
        })
    }

    pub(super) fn build_id(&self) -> Option<BuildId> {
        let object = self.object().ok()?;
        let id = object.build_id().ok()??;
        (!id.is_empty()).then(|| BuildId(id.into()))
    }

    /// `.gnu_debuglink`: the file name of the detached debug information and its CRC.
    pub(super) fn debug_link(&self) -> Option<(Vec<u8>, u32)> {
        let object = self.object().ok()?;
        let (name, crc) = object.gnu_debuglink().ok()??;
        Some((name.to_vec(), crc))
    }

    /// `.gnu_debugaltlink`: the path of the dwz supplementary file and its build-id.
    pub(super) fn debug_alt_link(&self) -> Option<(Vec<u8>, BuildId)> {
        let object = self.object().ok()?;
        let (path, id) = object.gnu_debugaltlink().ok()??;
        Some((path.to_vec(), BuildId(id.into())))
    }

    pub(super) fn has_debug_info(&self) -> bool {
        let Ok(object) = self.object() else {
            return false;
        };
        // A section without bits is what objcopy leaves of it in the other half of a split pair.
        object
            .section_by_name(".debug_info")
            .is_some_and(|section| section.data().is_ok_and(|data| !data.is_empty()))
    }

    pub(super) fn has_symbols(&self) -> bool {
        self.object()
            .is_ok_and(|object| object.symbols().next().is_some())
    }

    /// The checksum that `.gnu_debuglink` states for a file.
    pub(super) fn debug_link_crc(&self) -> u32 {
        crc32fast::hash(self.data())
    }

    /// The ELF file inside `.gnu_debugdata`: symbols only, compressed with xz.
    pub(super) fn mini_debug_info(&self) -> Option<Result<ElfFile, ElfError>> {
        let object = self.object().ok()?;
        let section = object.section_by_name(".gnu_debugdata")?;
        let compressed = section.data().ok().filter(|data| !data.is_empty())?;
        Some(unpacked(compressed).and_then(|bytes| ElfFile::from_bytes(&self.path, bytes)))
    }

    pub(super) fn endian(&self) -> RunTimeEndian {
        match self.object() {
            Ok(object) if !object.is_little_endian() => RunTimeEndian::Big,
            _ => RunTimeEndian::Little,
        }
    }

    /// The DWARF sections, decompressed where they have to be. `name` picks the set: plain or
    /// `.dwo`. A section that cannot be read is left empty and told to `problem`: the others may be
    /// enough.
    pub(super) fn dwarf_sections(
        &self,
        name: fn(SectionId) -> Option<&'static str>,
        problem: impl Fn(ElfError),
    ) -> Result<DwarfSections<Cow<'_, [u8]>>, ElfError> {
        let object = self.object()?;
        let name = |id| name(id).filter(|_| gives_names_or_lines(id));
        DwarfSections::load(|id| Ok(section_or_empty(&object, name(id), &problem)))
    }

    /// As [`dwarf_sections`](Self::dwarf_sections), for a `.dwp` package. All of them: its index
    /// gives each unit a range of every section, and gimli takes a range of nothing for damage.
    pub(super) fn package_sections(
        &self,
        problem: impl Fn(ElfError),
    ) -> Result<DwarfPackageSections<Cow<'_, [u8]>>, ElfError> {
        let object = self.object()?;
        DwarfPackageSections::load(|id| Ok(section_or_empty(&object, id.dwo_name(), &problem)))
    }
}

fn section_or_empty<'a>(
    object: &object::File<'a>,
    name: Option<&'static str>,
    problem: &impl Fn(ElfError),
) -> Cow<'a, [u8]> {
    let empty = Cow::Borrowed(&[][..]);
    let Some(name) = name else { return empty };
    section_bytes(object, name).unwrap_or_else(|error| {
        problem(error);
        empty
    })
}

/// Types, macros and variable locations are most of the debug information and never asked for: not
/// decompressing them is most of the speed on compressed files.
fn gives_names_or_lines(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

fn section_bytes<'a>(
    object: &object::File<'a>,
    name: &'static str,
) -> Result<Cow<'a, [u8]>, ElfError> {
    let Some(section) = object.section_by_name(name) else {
        return Ok(Cow::Borrowed(&[]));
    };
    let of = |source| ElfError::Section {
        section: name,
        source,
    };
    let data = section.compressed_data().map_err(of)?;
    if data.format != object::CompressionFormat::None {
        // The claimed size is allocated before the first byte is decompressed.
        let allowed = allowed(data.data.len()).min(LARGEST_DECOMPRESSED);
        if data.uncompressed_size > allowed {
            return Err(ElfError::TooLarge {
                section: name,
                claimed: data.uncompressed_size,
                allowed,
            });
        }
    }
    data.decompress().map_err(of)
}

/// Returns the content of a `.gnu_debugdata`. Its size is not known before, so reading stops at a
/// limit.
fn unpacked(compressed: &[u8]) -> Result<Vec<u8>, ElfError> {
    let allowed = allowed(compressed.len()).min(LARGEST_MINI_DEBUG_INFO);
    let mut bytes = Vec::new();
    XzReader::new_mem_limit(compressed, false, XZ_DICTIONARY_KIB)
        .take(allowed + 1)
        .read_to_end(&mut bytes)
        .map_err(ElfError::MiniDebugInfo)?;
    match bytes.len() as u64 > allowed {
        true => Err(ElfError::MiniDebugInfoTooLarge { allowed }),
        false => Ok(bytes),
    }
}

/// Returns how many bytes a number of compressed bytes may become.
fn allowed(compressed: usize) -> u64 {
    (compressed as u64)
        .saturating_mul(MOST_EXPANSION)
        .saturating_add(ALWAYS_ALLOWED)
        .min(memory::left() / 2)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
    )
}
