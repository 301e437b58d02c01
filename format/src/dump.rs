//! Dump: the heap at one moment in the text form of gperftools, which three other programs read.
//!
//! ```text
//! heap profile:      2:     2000 [     4:     4001] @ heapprofile       in use [allocated]
//! # interval: 524288                                                    comments
//!      2:     2000 [     4:     4000] @ 0x5614cbe73185 0x5614cbe731a1   one line each, leaf first
//!
//! MAPPED_LIBRARIES:
//! 0x5614cbe73000-0x5614cbe74000: /bin/server (@00001000) 08065e9c…      for go tool pprof
//! 5614cbe73000-5614cbe74000 r-xp 00001000 fe:00 1001                   /bin/server
//! ```
//!
//! Numbers are estimates of the truth, already unsampled; the word `heapprofile` tells the readers
//! so. Each oddity of the form exists because a reader needs it (docs/format.md, and tests that run
//! all three):
//!
//! * `go tool pprof` shows allocations only if the header's allocated bytes differ from those in
//!   use. So the header, and only the header, may have one byte more.
//! * It rejects a line of 0 objects with some bytes: bytes without objects get one object.
//! * It reads no line beyond 64 KiB: stacks are cut to [`MAX_FRAMES`], keeping the innermost.
//! * It takes a build-id from the short form of a mapping only. The perl readers take the file
//!   offset from the long form only, and misread a short form. So executable mappings come in both
//!   forms. The short one is first and begins with `0x`, which hides it from perl.
//!
//! [`Dump::write`] and [`Dump::parse`] are inverses. The parser also takes dumps of gperftools and
//! tcmalloc, sampled ones (`heap_v2`) included. Their numbers stay as written, with the
//! [`Sampling`] that describes them, because unsampling is done elsewhere and once (Law 8).

mod error;
mod mapping;
mod parse;
mod text;
mod write;

pub use error::{DumpError, DumpErrorKind};
pub use mapping::Mapping;
pub use text::{DumpNumbers, DumpText};
pub use write::MAX_FRAMES;

/// The contents of a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dump {
    /// The meaning of the numbers.
    pub sampling: Sampling,
    /// Lines for people and for our own reader, without the `# `. The form `key: value` lets the
    /// reader find `program`, `command`, `pid`, `interval`.
    pub comments: Vec<String>,
    /// The account, in any order: `write` sorts.
    pub lines: Vec<DumpLine>,
    /// The mapped files.
    pub mappings: Vec<Mapping>,
    /// Names, in front of a symbolized dump.
    pub symbols: Option<Symbols>,
    /// Lines that the parser skipped. They are never written.
    pub remarks: Vec<String>,
}

/// The sampling of a dump's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sampling {
    /// `heapprofile`: the numbers are unsampled. [`Dump::write`] writes this form.
    #[default]
    Unsampled,
    /// `heap_v2/N`: numbers of samples, of a Poisson process over bytes with that mean interval.
    Poisson {
        /// Mean interval in bytes.
        interval: u64,
    },
}

/// One line: a call stack and its allocations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpLine {
    /// Blocks not yet freed.
    pub in_use_objects: u64,
    /// Bytes not yet freed.
    pub in_use_bytes: u64,
    /// Blocks ever allocated.
    pub allocated_objects: u64,
    /// Bytes ever allocated.
    pub allocated_bytes: u64,
    /// Addresses as written, innermost first: a PC inside an allocation function, then return
    /// addresses. An address that a signal interrupted is written plus one, because readers
    /// subtract one from all but the first.
    pub frames: Vec<u64>,
}

/// The `--- symbol` section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Path of the program.
    pub binary: String,
    /// An address as a reader asks for it, and its functions, outermost first.
    pub names: Vec<(u64, Vec<String>)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn line(numbers: [u64; 4], frames: &[u64]) -> DumpLine {
        let [
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
        ] = numbers;
        DumpLine {
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
            frames: frames.into(),
        }
    }

    pub(super) fn text(dump: &Dump) -> String {
        let mut out = Vec::new();
        dump.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Any dump, with names without the characters that have to be replaced.
    fn any_dump() -> impl Strategy<Value = Dump> {
        let number = || (0u32..63, any::<u64>()).prop_map(|(shift, v)| (v >> 1) >> shift);
        let pair = move || {
            (number(), number()).prop_map(|(n, b)| if b > 0 { (n.max(1), b) } else { (n, b) })
        };
        let lines = prop::collection::vec(
            (pair(), pair(), prop::collection::vec(any::<u64>(), 0..6)).prop_map(
                |((a, b), (c, d), frames)| line([a >> 8, b >> 8, c >> 8, d >> 8], &frames),
            ),
            0..8,
        );
        let mapping = (
            any::<u32>(),
            1u64..9,
            "[r-][w-][x-]p",
            any::<u32>(),
            "(/[a-z .]{0,8}[a-z])?",
        );
        let mappings = prop::collection::vec(mapping, 0..4).prop_map(|all| {
            all.into_iter()
                .enumerate()
                .map(|(i, (start, pages, perms, offset, path))| Mapping {
                    start: u64::from(start) << 12,
                    end: (u64::from(start) + pages) << 12,
                    perms,
                    offset: offset.into(),
                    device: "fe:00".into(),
                    inode: i as u64,
                    build_id: Vec::new(),
                    path,
                })
                .collect()
        });
        (
            lines,
            mappings,
            prop::collection::vec("[a-z]([a-z :]{0,10}[a-z])?", 0..3),
        )
            .prop_map(|(lines, mappings, comments)| Dump {
                lines,
                mappings,
                comments,
                ..Dump::default()
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(dump in any_dump()) {
            // The writer changes bytes without objects, and the order: so it writes twice.
            let once = Dump::parse(text(&dump).as_bytes()).unwrap();
            let twice = Dump::parse(text(&once).as_bytes()).unwrap();
            prop_assert_eq!(&once, &twice);
            prop_assert_eq!(once.lines.len(), dump.lines.len());
            prop_assert_eq!(once.mappings, dump.mappings);
            prop_assert_eq!(once.comments, dump.comments);
            prop_assert!(once.remarks.is_empty());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Dump::parse(&bytes);
        }

        #[test]
        fn no_damage_panics(dump in any_dump(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = text(&dump).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Dump::parse(&bytes);
            let cut = cut.index(bytes.len());
            let _ = Dump::parse(&bytes[..cut]);
        }
    }
}
