//! Mapping: a mapped part of a file, in both forms that a dump has: that of `/proc/self/maps`, and
//! go's short form.

use std::fmt::Write as _;

use super::parse::parse_hex;
use super::write::push_on_one_line;
use crate::record::Module;

/// Mappings are whole pages.
const PAGE: u64 = 4096;

/// A mapped part of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Permissions, as in `/proc/self/maps`: `r-xp`.
    pub perms: String,
    /// Offset in the file of `start`.
    pub offset: u64,
    /// Device, as in `/proc/self/maps`: `fe:00`; empty is written as `00:00`.
    pub device: String,
    /// Inode, as in `/proc/self/maps`.
    pub inode: u64,
    /// Build-id of the file, empty if there is none or it is unknown.
    pub build_id: Vec<u8>,
    /// The file, `[vdso]` and its like, or empty.
    pub path: String,
}

impl Mapping {
    /// Returns the mappings of a loaded module, one for each segment, extended to whole pages.
    pub fn of_module(module: &Module) -> Vec<Mapping> {
        let flag = |flags: u32, bit: u32, letter: char| if flags & bit != 0 { letter } else { '-' };
        let mappings = module.segments.iter().map(|segment| {
            let lead = segment.start % PAGE;
            let end = segment.start.saturating_add(segment.len);
            Mapping {
                start: segment.start - lead,
                end: end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX),
                perms: [
                    flag(segment.flags, 4, 'r'),
                    flag(segment.flags, 2, 'w'),
                    flag(segment.flags, 1, 'x'),
                    'p',
                ]
                .iter()
                .collect(),
                offset: segment.file_offset.saturating_sub(lead),
                build_id: module.build_id.clone(),
                path: module.path.clone(),
                ..Mapping::default()
            }
        });
        mappings.collect()
    }

    /// Parses a line of `/proc/self/maps`.
    pub fn parse(line: &str) -> Option<Mapping> {
        // The path is the rest behind the fifth word, and may have spaces.
        let mut rest = line;
        let mut word = || {
            rest = rest.trim_start_matches(' ');
            let end = rest.find(' ').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            word
        };
        let (start, end) = parse_range(word())?;
        let perms = word();
        if !(3..=4).contains(&perms.len()) || !perms.chars().all(|c| "rwxps-".contains(c)) {
            return None;
        }
        let offset = u64::from_str_radix(word(), 16).ok()?;
        let device = word();
        if !device.contains(':') {
            return None;
        }
        let inode = word().parse().ok()?;
        Some(Mapping {
            start,
            end,
            perms: perms.into(),
            offset,
            device: device.into(),
            inode,
            build_id: Vec::new(),
            path: rest.trim_start_matches(' ').into(),
        })
    }

    /// Parses the short form: `0xSTART-0xEND: PATH (@OFFSET) BUILDID`.
    pub(super) fn parse_short(line: &str) -> Option<Mapping> {
        let (range, rest) = line.split_once(": ")?;
        let (start, end) = parse_range(range.trim())?;
        let (path, rest) = rest.rsplit_once(" (@")?;
        let (offset, build_id) = rest.split_once(')')?;
        Some(Mapping {
            start,
            end,
            perms: "r-xp".into(),
            offset: u64::from_str_radix(offset, 16).ok()?,
            build_id: parse_bytes(build_id.trim())?,
            path: path.trim().into(),
            ..Mapping::default()
        })
    }

    /// Returns the path for other programs. A deleted file with a build-id can be found under its
    /// old name and verified. A deleted file without one must stay marked: a successor would be
    /// taken for it.
    fn shown_path(&self) -> &str {
        match self.path.strip_suffix(" (deleted)") {
            Some(path) if !self.build_id.is_empty() => path,
            _ => &self.path,
        }
    }

    pub(super) fn is_executable(&self) -> bool {
        self.perms.as_bytes().get(2) == Some(&b'x')
    }

    pub(super) fn write_short(&self, text: &mut String) {
        let (start, end, offset) = (self.start, self.end, self.offset);
        let _ = write!(text, "0x{start:08x}-0x{end:08x}: ");
        push_on_one_line(text, self.shown_path());
        let _ = write!(text, " (@{offset:08x}) ");
        for byte in &self.build_id {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }

    pub(super) fn write_long(&self, text: &mut String) {
        let from = text.len();
        let perms = if self.perms.is_empty() {
            "r-xp"
        } else {
            &self.perms
        };
        let device = if self.device.is_empty() {
            "00:00"
        } else {
            &self.device
        };
        let (start, end, offset, inode) = (self.start, self.end, self.offset, self.inode);
        let _ = write!(
            text,
            "{start:08x}-{end:08x} {perms} {offset:08x} {device} {inode} "
        );
        // The kernel's column for the path.
        while text.len() < from + 73 {
            text.push(' ');
        }
        push_on_one_line(text, self.shown_path());
        text.push('\n');
    }
}

fn parse_range(word: &str) -> Option<(u64, u64)> {
    let (start, end) = word.split_once('-')?;
    let (start, end) = (parse_hex(start)?, parse_hex(end)?);
    (start <= end).then_some((start, end))
}

fn parse_bytes(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.is_ascii() {
        return None;
    }
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::Dump;
    use crate::dump::tests::text;
    use crate::record::Segment;

    #[test]
    fn a_deleted_file_with_a_build_id_can_be_found() {
        let with = |build_id: Vec<u8>| Dump {
            mappings: vec![Mapping {
                perms: "r-xp".into(),
                build_id,
                path: "/tmp/a (deleted)".into(),
                ..Mapping::default()
            }],
            ..Dump::default()
        };
        assert!(!text(&with(vec![1])).contains("deleted"));
        assert!(text(&with(vec![])).contains("/tmp/a (deleted)\n"));
    }

    #[test]
    fn segments_become_whole_pages() {
        let module = Module {
            number: 0,
            time_ns: 0,
            path: "/lib/libx.so".into(),
            build_id: vec![1],
            stamp: None,
            bias: 0x7f00_0000_0000,
            segments: vec![Segment {
                start: 0x7f00_0000_1234,
                len: 0x100,
                file_offset: 0x234,
                flags: 5,
            }],
        };
        let mapping = &Mapping::of_module(&module)[0];
        assert_eq!(
            (mapping.start, mapping.end),
            (0x7f00_0000_1000, 0x7f00_0000_2000)
        );
        assert_eq!((mapping.offset, mapping.perms.as_str()), (0, "r-xp"));
    }

    /// The text begins in the middle of a page and ends at the start of the next one; the data lies
    /// before its contents in the file.
    #[test]
    fn each_segment_has_its_letters_and_its_pages() {
        let segment = |start, len, file_offset, flags| Segment {
            start,
            len,
            file_offset,
            flags,
        };
        let module = Module {
            number: 0,
            time_ns: 0,
            path: "/lib/libx.so".into(),
            build_id: vec![1],
            stamp: None,
            bias: 0,
            segments: vec![
                segment(0x1800, 0x800, 0x2800, 1),
                segment(0x3000, 0x1001, 0x4000, 4),
                segment(0x6abc, 0x10, 0, 6),
                segment(u64::MAX - 0x10, u64::MAX, 0, 7),
            ],
        };
        let mappings = Mapping::of_module(&module);
        let is: Vec<_> = mappings
            .iter()
            .map(|m| (m.start, m.end, m.offset, &*m.perms))
            .collect();
        assert_eq!(
            is,
            [
                (0x1000, 0x2000, 0x2000, "--xp"),
                (0x3000, 0x5000, 0x4000, "r--p"),
                (0x6000, 0x7000, 0, "rw-p"),
                (u64::MAX - 0xfff, u64::MAX, 0, "rwxp"),
            ]
        );
    }

    #[test]
    fn a_line_of_maps_is_a_mapping_and_nothing_else_is() {
        let line = "7f00-8000 r-xp 00000010 fe:00 42                     /a b-c: (@d)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(
            mapping,
            Mapping {
                start: 0x7f00,
                end: 0x8000,
                perms: "r-xp".into(),
                offset: 0x10,
                device: "fe:00".into(),
                inode: 42,
                build_id: Vec::new(),
                path: "/a b-c: (@d)".into(),
            }
        );
        assert!(mapping.is_executable());
        // Three letters, as old kernels and others write them; nothing at the end, and an empty
        // range.
        for (line, path) in [
            ("1000-2000 rw- 0 00:00 0", ""),
            ("0x1000-0x1000 ---p 0 00:00 0 [heap]", "[heap]"),
        ] {
            let mapping = Mapping::parse(line).unwrap();
            assert_eq!(
                (mapping.path.as_str(), mapping.is_executable()),
                (path, false)
            );
        }
        for line in [
            "1000 r-xp 0 00:00 0 /a",
            "2000-1000 r-xp 0 00:00 0 /a",
            "1000-2000 rx 0 00:00 0 /a",
            "1000-2000 r-xpp 0 00:00 0 /a",
            "1000-2000 text 0 00:00 0 /a",
            "1000-2000 r-xp 0 0000 0 /a",
            "1000-2000 r-xp x 00:00 0 /a",
            "1000-2000 r-xp 0 00:00 x /a",
        ] {
            assert_eq!(Mapping::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_with_a_build_id_is_a_mapping_in_short() {
        let short = |line: &str| {
            let m = Mapping::parse_short(line)?;
            Some((m.start, m.end, m.offset, m.build_id, m.path))
        };
        assert_eq!(
            short(" 0x1000-0x2000: /a: b (@c) d (@0000abcd) 00ff10 "),
            Some((
                0x1000,
                0x2000,
                0xabcd,
                vec![0, 0xff, 0x10],
                "/a: b (@c) d".into()
            ))
        );
        for line in [
            "0x1000-0x2000 /a (@0) 00",
            "0x1000-0x2000: /a 00",
            "0x1000-0x2000: /a (@0 00",
            "0x1000-0x2000: /a (@0) 0ff",
            "0x1000-0x2000: /a (@0) éa",
            "0x1000-0x2000: /a (@0) xy",
        ] {
            assert_eq!(short(line), None, "{line}");
        }
    }

    /// A dump that is read again has the same mappings.
    #[test]
    fn mappings_come_back() {
        let dump = Dump {
            mappings: vec![
                Mapping {
                    start: 0x1000,
                    end: 0x2000,
                    perms: "r-xp".into(),
                    device: "00:00".into(),
                    build_id: vec![1, 2],
                    path: "/a".into(),
                    ..Mapping::default()
                },
                // It has no short form of its own, and is of the same file.
                Mapping {
                    start: 0x2000,
                    end: 0x3000,
                    perms: "rw-p".into(),
                    device: "00:00".into(),
                    build_id: vec![1, 2],
                    path: "/a".into(),
                    ..Mapping::default()
                },
                Mapping {
                    start: 0x5000,
                    end: 0x6000,
                    perms: "r-xp".into(),
                    device: "00:00".into(),
                    path: "/without".into(),
                    ..Mapping::default()
                },
                Mapping {
                    start: 0x7000,
                    end: 0x8000,
                    perms: "rw-p".into(),
                    device: "00:00".into(),
                    ..Mapping::default()
                },
            ],
            ..Dump::default()
        };
        let text = text(&dump);
        let short = text.lines().filter(|line| line.contains("(@")).count();
        assert_eq!(short, 1, "{text}");
        assert_eq!(
            Dump::parse(text.as_bytes()).unwrap().mappings,
            dump.mappings
        );
    }

    /// Two files of one path: the build-id of a range is that range's.
    #[test]
    fn a_build_id_stands_for_its_range_first_and_then_for_its_path() {
        let text = "heap profile: 0: 0 [0: 1] @ heapprofile\n\nMAPPED_LIBRARIES:\n\
            0x1000-0x2000: /a (@0) 01\n0x3000-0x4000: /a (@0) 02\n0x9000-0xa000: /b (@10) 03\n\
            1000-2000 r-xp 0 00:00 0 /a\n2000-3000 rw-p 0 00:00 0 /a\n3000-4000 r-xp 0 00:00 0 /a\n5000-6000 rw-p 0 00:00 0\n";
        let dump = Dump::parse(text.as_bytes()).unwrap();
        let is: Vec<_> = dump
            .mappings
            .iter()
            .map(|m| (m.start, &m.build_id[..], &*m.path))
            .collect();
        assert_eq!(
            is,
            [
                (0x1000, &[1][..], "/a"),
                (0x2000, &[1], "/a"),
                (0x3000, &[2], "/a"),
                (0x5000, &[], ""),
                (0x9000, &[3], "/b"),
            ]
        );
        assert!(dump.remarks.is_empty(), "{:?}", dump.remarks);
    }
}
