//! The ELF image: a module's file as it lies in memory, with its headers, segments, build id and
//! unwind table.
//!
//! The loader tells the place of the program headers. `PT_GNU_EH_FRAME` leads to `.eh_frame_hdr`,
//! whose first field leads to `.eh_frame`. A module without this header has no unwind table.
//!
//! Danger: reads of other libraries' mapped files through the loader's pointers. A module that
//! stays is read in place. A module that may be unloaded meanwhile is copied by checked reads.

use std::hash::Hasher as _;
use std::ops::Range;
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use heapprof_core::NumberHasher;
use heapprof_format::Segment;

use crate::os::seccomp::AvoidableCall;
use crate::os::{executable, sys};
use crate::unwind::checked_read::Memory;
use crate::unwind::eh_frame::{FrameTable, Table};

/// A module as the loader describes it.
pub(crate) struct Image<'a> {
    pub(crate) bias: u64,
    pub(crate) headers: &'a [libc::Elf64_Phdr],
    pub(crate) name: &'a [u8],
    /// How to read a module found after boot, which may be unmapped meanwhile. `None`: the module
    /// stays.
    pub(crate) memory: Option<&'a Memory>,
}

impl Image<'_> {
    fn headers_of(&self, kind: u32) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        self.headers.iter().filter(move |h| h.p_type == kind)
    }

    /// Returns the mapped segments of the file, in the order of addresses.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let mut segments: Vec<Segment> = self
            .headers_of(libc::PT_LOAD)
            .filter(|h| h.p_memsz > 0)
            .map(|h| Segment {
                start: self.bias.wrapping_add(h.p_vaddr),
                len: h.p_memsz,
                file_offset: h.p_offset,
                flags: h.p_flags,
            })
            .collect();
        segments.sort_by_key(|s| s.start);
        segments
    }

    /// Returns the address of `.eh_frame_hdr`, and the section data for framehop. All addresses are
    /// avmas, even where framehop expects svmas. The tables are read as they lie in memory, so
    /// their relative pointers lead to avmas.
    ///
    /// # Safety
    /// The module is loaded and stays for ever, or `memory` is set.
    pub(crate) unsafe fn unwind_sections(
        &self,
        range: &Range<u64>,
        segments: &[Segment],
    ) -> (u64, ExplicitModuleSectionInfo<Table>) {
        let mut info = ExplicitModuleSectionInfo {
            base_svma: range.start,
            ..Default::default()
        };
        let Some(header) = self.headers_of(libc::PT_GNU_EH_FRAME).next() else {
            return (0, info);
        };
        let start = self.bias.wrapping_add(header.p_vaddr);
        let inside = |at: u64| {
            segments
                .iter()
                .find(|s| s.start <= at && at < s.start + s.len)
        };
        // The header may be damaged, so only its place, which the loader tells, is trusted.
        let end = start.checked_add(header.p_memsz).filter(|&end| {
            header.p_memsz >= 8 && inside(start).is_some_and(|s| end <= s.start + s.len)
        });
        let Some(end) = end else {
            return (start, info);
        };
        let hdr = start..end;
        // The second byte is the encoding of the address of .eh_frame. Every linker writes 0x1b: a
        // signed 32-bit distance from the field itself, which is at offset 4.
        // SAFETY: the caller's promise, here and below: within a loaded segment of the module.
        let head = unsafe { self.table(&(hdr.start..hdr.start + 8)) };
        let Some(&[_, 0x1b, _, _, a, b, c, d]) = head.as_deref() else {
            return (hdr.start, info);
        };
        let distance = i32::from_le_bytes([a, b, c, d]);
        let frame = (hdr.start + 4).wrapping_add_signed(distance.into());
        // The end of .eh_frame is not recorded. The end of its segment suffices, because entries
        // are reached by address, and a zero entry ends the table.
        let Some(segment) = inside(frame) else {
            return (hdr.start, info);
        };
        let frame = frame..segment.start + segment.len;
        // SAFETY: the same argument.
        if let (Some(head), Some(table)) = unsafe { (self.table(&hdr), self.table(&frame)) } {
            let frames = FrameTable::new(range, (head, &hdr), (table.clone(), &frame));
            info.eh_frame_hdr = Some(Table::Header(Arc::new(frames)));
            info.eh_frame = Some(table);
            info.eh_frame_hdr_svma = Some(hdr.clone());
            info.eh_frame_svma = Some(frame);
        }
        (hdr.start, info)
    }

    /// Returns the bytes at these addresses, or `None` if they are unmapped.
    ///
    /// # Safety
    /// In a module that stays, they lie within a loaded segment.
    unsafe fn table(&self, part: &Range<u64>) -> Option<Table> {
        let len = (part.end - part.start) as usize;
        match self.memory {
            Some(memory) => Some(Table::Copied(memory.bytes(part.start, len)?.into())),
            // SAFETY: the caller's promise.
            None => Some(Table::InPlace(unsafe {
                std::slice::from_raw_parts(part.start as *const u8, len)
            })),
        }
    }

    /// Returns the build id, or an empty one if the module has none.
    ///
    /// # Safety
    /// The condition of [`unwind_sections`](Self::unwind_sections).
    pub(crate) unsafe fn build_id(&self, segments: &[Segment]) -> Vec<u8> {
        for header in self.headers_of(libc::PT_NOTE) {
            let start = self.bias.wrapping_add(header.p_vaddr);
            let Some(end) = start.checked_add(header.p_memsz) else {
                continue;
            };
            if !segments
                .iter()
                .any(|s| s.start <= start && end <= s.start + s.len)
            {
                continue;
            }
            // SAFETY: the caller's promise, and within a loaded segment.
            let Some(notes) = (unsafe { self.table(&(start..end)) }) else {
                continue;
            };
            if let Some(id) = build_id_note(&notes, header.p_align as usize) {
                return id.to_vec();
            }
        }
        Vec::new()
    }

    /// Returns a number that distinguishes this file from others with the same layout, such as a
    /// plug-in that is built again, or a similar one.
    ///
    /// # Safety
    /// The condition of [`unwind_sections`](Self::unwind_sections).
    pub(crate) unsafe fn identity(&self, segments: &[Segment]) -> u64 {
        let mut hasher = NumberHasher::default();
        hasher.write(self.name);
        // SAFETY: the caller's promise.
        hasher.write(&unsafe { self.build_id(segments) });
        for segment in segments {
            hasher.write_u64(segment.start);
            hasher.write_u64(segment.len);
        }
        hasher.finish()
    }

    /// Returns the file's absolute path, if a seccomp filter allows the query of the working
    /// directory.
    pub(crate) fn path(&self) -> Vec<u8> {
        match self.name {
            b"" => executable::path(),
            b"linux-vdso.so.1" | b"linux-gate.so.1" => b"[vdso]".to_vec(),
            [b'/', ..] => self.name.to_vec(),
            relative if !AvoidableCall::WorkingDirectory.is_allowed() => relative.to_vec(),
            relative => {
                let mut path = sys::getcwd().unwrap_or_default();
                path.push(b'/');
                path.extend_from_slice(relative);
                path.shrink_to_fit(); // kept for ever, with room for the longest path
                path
            }
        }
    }
}

/// Returns the build id among notes: type 3, owner "GNU".
fn build_id_note(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    let align = if align == 8 { 8 } else { 4 };
    let padded = |len: usize| len.checked_add(align - 1).map(|n| n & !(align - 1));
    while notes.len() >= 12 {
        let word = |at: usize| {
            u32::from_le_bytes([notes[at], notes[at + 1], notes[at + 2], notes[at + 3]])
        };
        let (name_len, len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let name = notes.get(12..12usize.checked_add(name_len)?)?;
        let start = padded(12 + name_len)?;
        let body = notes.get(start..start.checked_add(len)?)?;
        if kind == 3 && name == b"GNU\0" {
            return Some(body);
        }
        notes = notes.get(padded(start + len)?..)?;
    }
    None
}
