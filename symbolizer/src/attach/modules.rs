//! Modules: the files that are mapped as code in another process, their symbols and unwind tables.
//!
//! Everything is read from the memory of the process, so no file must be found. The content
//! is not trusted: lengths are bounded, and each read may fail.

use std::fs;
use std::io;
use std::ops::Range;

use super::memory::Memory;

/// Most bytes of a table that is read at once.
const MOST_BYTES: u64 = 256 << 20;

/// One line of the memory map.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    pub(super) is_executable: bool,
    pub(super) offset: u64,
    pub(super) path: String,
}

/// Reads the memory map.
pub(super) fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(text.lines().filter_map(mapping).collect())
}

fn mapping(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (access, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let (_inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        range: hex(start)?..hex(end)?,
        is_executable: access.contains('x'),
        offset: hex(offset)?,
        path: path.trim_start().to_owned(),
    })
}

/// A module: one file, or the kernel's own.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) path: String,
    bias: u64,
    /// Addresses from the first segment to the last.
    pub(super) range: Range<u64>,
    /// The segments with code: addresses in memory.
    pub(super) code: Vec<Range<u64>>,
    segments: Vec<Range<u64>>,
    eh_frame_hdr: Option<Range<u64>>,
    dynamic: Option<Range<u64>>,
}

/// A symbol: a function and its addresses.
#[derive(Debug, Clone)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) code: Range<u64>,
}

/// The sections by which frames are unwound.
pub(super) struct UnwindSections {
    pub(super) header: Range<u64>,
    pub(super) header_bytes: Vec<u8>,
    pub(super) frames: Range<u64>,
    pub(super) frames_bytes: Vec<u8>,
}

/// Returns the modules of the memory map. A file that is mapped to be read, as debuggers and
/// backtraces do with libraries, is none.
pub(super) fn modules(memory: &Memory, map: &[Mapping]) -> Vec<Module> {
    let mut found: Vec<Module> = Vec::new();
    for mapping in map {
        let is_first = mapping.offset == 0
            && !mapping.path.is_empty()
            && (!mapping.path.starts_with('[') || mapping.path == "[vdso]");
        if is_first
            && !found
                .iter()
                .any(|module| module.range.contains(&mapping.range.start))
            && let Some(module) = Module::read(memory, mapping)
            && module.is_loaded(map)
        {
            found.push(module);
        }
    }
    found
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Module {
    fn read(memory: &Memory, mapping: &Mapping) -> Option<Module> {
        let start = mapping.range.start;
        let header = memory.bytes(start, 64).ok()?;
        if !header.starts_with(b"\x7fELF\x02\x01") || half(&header, 18)? != 62 {
            return None;
        }
        let (at, size, count) = (word(&header, 32)?, half(&header, 54)?, half(&header, 56)?);
        let size = usize::from(size);
        let headers = memory
            .bytes(start.checked_add(at)?, size * usize::from(count))
            .ok()?;
        let mut module = Module {
            path: mapping.path.clone(),
            bias: 0,
            range: start..start,
            code: Vec::new(),
            segments: Vec::new(),
            eh_frame_hdr: None,
            dynamic: None,
        };
        let mut first = None;
        for at in (0..usize::from(count)).map(|number| number * size) {
            let (kind, flags) = (long(&headers, at)?, long(&headers, at + 4)?);
            let address = word(&headers, at + 16)?;
            let len = word(&headers, at + 40)?;
            if kind == 1 && first.is_none() {
                first = Some(address & !4095);
                module.bias = start.wrapping_sub(address & !4095);
            }
            let range_at = module.bias.wrapping_add(address);
            let range = range_at..range_at.checked_add(len)?;
            match kind {
                1 => {
                    module.range.end = module.range.end.max(range.end);
                    if flags & 1 != 0 {
                        module.code.push(range.clone());
                    }
                    module.segments.push(range);
                }
                2 => module.dynamic = Some(range),
                0x6474_e550 => module.eh_frame_hdr = Some(range),
                _ => {}
            }
        }
        first.map(|_| module)
    }

    /// Returns true if the segments with code are executable.
    fn is_loaded(&self, map: &[Mapping]) -> bool {
        self.code.iter().all(|code| {
            let mut there = map.iter().filter(|it| it.range.contains(&code.start));
            there.any(|mapping| mapping.is_executable)
        })
    }

    /// Returns the file's name without folders, and without the kernel's remark about its end.
    pub(super) fn file(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit(['/', ':']).next().unwrap_or(path)
    }

    pub(super) fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    /// Returns the defined functions of the dynamic symbol table, and data if `with_data`.
    pub(super) fn symbols(&self, memory: &Memory, with_data: bool) -> Vec<Function> {
        self.read_symbols(memory, with_data).unwrap_or_default()
    }

    fn read_symbols(&self, memory: &Memory, with_data: bool) -> Option<Vec<Function>> {
        let dynamic = self.dynamic.clone()?;
        let len = (dynamic.end - dynamic.start).min(1 << 16);
        let dynamic = memory.bytes(dynamic.start, len as usize).ok()?;
        let (mut hash, mut symbols, mut strings, mut strings_len) = (0, 0, 0, 0);
        for entry in dynamic.chunks_exact(16) {
            let (tag, value) = (word(entry, 0)?, word(entry, 8)?);
            // glibc has added the bias to these already.
            let address = match value < self.bias {
                true => value.wrapping_add(self.bias),
                false => value,
            };
            match tag {
                0 => break,
                5 => strings = address,
                6 => symbols = address,
                10 => strings_len = value,
                0x6fff_fef5 => hash = address,
                _ => {}
            }
        }
        if hash == 0 || symbols == 0 || strings == 0 {
            return None;
        }
        let strings = memory
            .bytes(strings, strings_len.min(MOST_BYTES) as usize)
            .ok()?;
        let count = count_of_gnu_hash(memory, hash)?;
        let table = memory
            .bytes(symbols, count.min(1 << 20) as usize * 24)
            .ok()?;
        let mut found = Vec::new();
        for symbol in table.chunks_exact(24) {
            let (name, info, section) = (long(symbol, 0)?, symbol[4], half(symbol, 6)?);
            let is_wanted = matches!(info & 15, 2 | 10) || with_data && info & 15 == 1;
            if section == 0 || !is_wanted {
                continue;
            }
            let start = self.bias.wrapping_add(word(symbol, 8)?);
            let name = strings.get(name as usize..)?;
            let name = name.split(|&byte| byte == 0).next()?;
            found.push(Function {
                name: String::from_utf8_lossy(name).into_owned(),
                code: start..start.wrapping_add(word(symbol, 16)?),
            });
        }
        Some(found)
    }

    /// Returns the unwind tables.
    pub(super) fn unwind_sections(&self, memory: &Memory) -> Option<UnwindSections> {
        let header = self.eh_frame_hdr.clone()?;
        let len = (header.end - header.start).min(MOST_BYTES);
        let header_bytes = memory.bytes(header.start, len as usize).ok()?;
        // The pointer to the frames is relative to its own place, in four bytes.
        if header_bytes.get(1) != Some(&0x1b) {
            return None;
        }
        let distance = long(&header_bytes, 4)?.cast_signed();
        let start = (header.start + 4).wrapping_add_signed(distance.into());
        let segment = self.segments.iter().find(|it| it.contains(&start))?;
        let len = (segment.end - start).min(MOST_BYTES);
        Some(UnwindSections {
            header,
            header_bytes,
            frames: start..start + len,
            frames_bytes: memory.some_bytes(start, len as usize),
        })
    }
}

/// Returns the number of symbols, which the table of hashes tells.
fn count_of_gnu_hash(memory: &Memory, hash: u64) -> Option<u64> {
    let header = memory.bytes(hash, 16).ok()?;
    let (buckets, first, bloom) = (long(&header, 0)?, long(&header, 4)?, long(&header, 8)?);
    if buckets > 1 << 20 || bloom > 1 << 20 {
        return None;
    }
    let table = hash + 16 + u64::from(bloom) * 8;
    let heads = memory.bytes(table, buckets as usize * 4).ok()?;
    let last = heads
        .chunks_exact(4)
        .filter_map(|head| long(head, 0))
        .max()?;
    if last < first {
        return Some(first.into());
    }
    let chains = table + u64::from(buckets) * 4;
    let mut number = u64::from(last);
    loop {
        let at = chains + (number - u64::from(first)) * 4;
        let chain = memory.bytes(at, 4).ok()?;
        number += 1;
        if long(&chain, 0)? & 1 != 0 || number > 1 << 20 {
            return Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_map_is_read() {
        let line =
            "7f01a000-7f01b000 r-xp 00002000 08:01 77                         /usr/lib/a b.so";
        let mapping = mapping(line).expect("a line");
        assert_eq!(mapping.range, 0x7f01_a000..0x7f01_b000);
        assert!(mapping.is_executable);
        assert_eq!(
            (mapping.offset, &mapping.path[..]),
            (0x2000, "/usr/lib/a b.so")
        );
        let nameless = super::mapping("1000-2000 rw-p 00000000 00:00 0 ").expect("a line");
        assert_eq!((&nameless.path[..], nameless.is_executable), ("", false));
    }

    #[test]
    fn this_programs_own_libc_has_its_symbols() {
        let pid = std::process::id();
        let memory = Memory::open(pid).expect("our own memory");
        let modules = modules(&memory, &mappings(pid).expect("our own map"));
        let own = this_programs_own_libc_has_its_symbols as *const () as u64;
        assert!(modules.iter().any(|module| module.is_code(own)));
        let Some(libc) = modules.iter().find(|module| module.file() == "libc.so.6") else {
            return; // over musl
        };
        let symbols = libc.symbols(&memory, false);
        let malloc = symbols.iter().find(|symbol| symbol.name == "malloc");
        assert_eq!(
            malloc.expect("malloc").code.start,
            libc::malloc as *const () as u64
        );
        assert!(libc.unwind_sections(&memory).is_some());
    }

    /// The kernel puts the copy below the library, so it comes first in the map.
    #[test]
    fn a_library_that_is_mapped_to_be_read_is_no_module() {
        let pid = std::process::id();
        let memory = Memory::open(pid).expect("our own memory");
        let of = || {
            let map = mappings(pid).expect("our own map");
            let all = modules(&memory, &map).into_iter();
            let mut libcs = all.filter(|module| module.file() == "libc.so.6");
            (libcs.next(), libcs.count())
        };
        let (Some(libc), 0) = of() else {
            return; // over musl
        };
        let file = fs::File::open(&libc.path).expect("libc's file");
        // SAFETY: nobody changes the file meanwhile.
        let copy = unsafe { memmap2::Mmap::map(&file) }.expect("a mapping");
        let (found, others) = of();
        assert_eq!((found.map(|it| it.range), others), (Some(libc.range), 0));
        drop(copy);
    }
}
