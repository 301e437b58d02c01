//! Writer of dumps as text, with everything that the readers need.

use std::fmt::Write as _;

use crate::harmless::is_harmless;

use super::{Dump, DumpLine, DumpNumbers, DumpText, Symbols};

/// Most frames of a stack in a dump. At 19 characters each, they are far below the 64 KiB of a
/// line.
pub const MAX_FRAMES: usize = 2000;

impl DumpLine {
    /// Returns the four numbers of the line.
    pub fn numbers(&self) -> DumpNumbers {
        DumpNumbers {
            in_use_objects: self.in_use_objects,
            in_use_bytes: self.in_use_bytes,
            allocated_objects: self.allocated_objects,
            allocated_bytes: self.allocated_bytes,
        }
    }
}

impl Dump {
    /// Appends the dump to `out`, in the form that every reader accepts; see the module's text. A
    /// [`Sampling::Poisson`](super::Sampling::Poisson) dump keeps its numbers and its kind.
    pub fn write(&self, out: &mut Vec<u8>) {
        if let Some(symbols) = &self.symbols {
            let mut text = String::new();
            symbols.write(&mut text);
            out.extend_from_slice(text.as_bytes());
        }
        let mut order: Vec<&DumpLine> = self.lines.iter().collect();
        order.sort_by(|a, b| {
            (b.in_use_bytes, b.allocated_bytes)
                .cmp(&(a.in_use_bytes, a.allocated_bytes))
                .then_with(|| a.frames.cmp(&b.frames))
        });
        let mut sum = DumpNumbers::default();
        for line in &order {
            sum.add_line(&line.numbers());
        }
        let mut text = DumpText::after(std::mem::take(out));
        text.head(self.sampling, &sum, &self.comments);
        for line in order {
            text.line(&line.numbers(), line.frames.iter().copied());
        }
        text.tail(&self.mappings);
        *out = text.into_bytes();
    }
}

impl Symbols {
    fn write(&self, text: &mut String) {
        text.push_str("--- symbol\nbinary=");
        push_on_one_line(text, &self.binary);
        text.push('\n');
        for (address, names) in &self.names {
            let _ = write!(text, "0x{address:08x} ");
            for (i, name) in names.iter().enumerate() {
                if i > 0 {
                    text.push_str("--");
                }
                push_name(text, name);
            }
            text.push('\n');
        }
        text.push_str("---\n");
    }
}

/// Appends a name. Readers split names at `--`. A space keeps it together; readers show it, and
/// people overlook it.
fn push_name(text: &mut String, name: &str) {
    if name.is_empty() {
        text.push_str("??");
        return;
    }
    let mut parts = name.split('-');
    push_on_one_line(text, parts.next().unwrap_or_default());
    for part in parts {
        text.push('-');
        match part {
            // Another dash follows, or the one that the next name begins with.
            "" => text.push(' '),
            part => push_on_one_line(text, part),
        }
    }
}

/// Appends text from outside, which must not begin a new line, control a terminal, or look like
/// another text.
pub(super) fn push_on_one_line(text: &mut String, from: &str) {
    for c in from.chars() {
        if is_harmless(c) {
            text.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            // As /proc/self/maps has newlines.
            let _ = write!(text, "\\{byte:03o}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::Mapping;
    use crate::dump::tests::{line, text};

    #[test]
    fn a_dump_looks_so() {
        let dump = Dump {
            comments: vec!["interval: 524288".into()],
            lines: vec![
                line([1, 1000, 1, 1000], &[0x5614cbe73185, 0x5614cbe731c9]),
                line([2, 2000, 4, 4000], &[0x5614cbe73185, 0x5614cbe731a1]),
            ],
            mappings: vec![Mapping {
                start: 0x5614cbe73000,
                end: 0x5614cbe74000,
                perms: "r-xp".into(),
                offset: 0x1000,
                build_id: vec![0x08, 0xff],
                path: "/bin/server".into(),
                ..Mapping::default()
            }],
            ..Dump::default()
        };
        assert_eq!(
            text(&dump),
            "heap profile:      3:     3000 [     5:     5000] @ heapprofile\n\
             # interval: 524288\n     \
                  2:     2000 [     4:     4000] @ 0x5614cbe73185 0x5614cbe731a1\n     \
                  1:     1000 [     1:     1000] @ 0x5614cbe73185 0x5614cbe731c9\n\
             \n\
             MAPPED_LIBRARIES:\n\
             0x5614cbe73000-0x5614cbe74000: /bin/server (@00001000) 08ff\n\
             5614cbe73000-5614cbe74000 r-xp 00001000 00:00 0                          /bin/server\n"
        );
    }

    #[test]
    fn the_header_alone_is_bumped_when_nothing_was_freed() {
        let dump = Dump {
            lines: vec![line([3, 3000, 3, 3000], &[1])],
            ..Dump::default()
        };
        let text = text(&dump);
        assert!(
            text.starts_with("heap profile:      3:     3000 [     3:     3001] @ heapprofile\n")
        );
        assert!(text.contains("\n     3:     3000 [     3:     3000] @ 0x00000001\n"));
        assert!(Dump::parse(text.as_bytes()).unwrap().remarks.is_empty());
    }

    #[test]
    fn bytes_never_come_without_objects() {
        let dump = Dump {
            lines: vec![line([0, 40, 0, 50], &[1])],
            ..Dump::default()
        };
        let parsed = Dump::parse(text(&dump).as_bytes()).unwrap();
        assert_eq!(parsed.lines[0], line([1, 40, 1, 50], &[1]));
    }

    #[test]
    fn no_line_is_longer_than_readers_bear() {
        let frames: Vec<u64> = (0..10_000).map(|i| u64::MAX - i).collect();
        let dump = Dump {
            lines: vec![line([u64::MAX; 4], &frames)],
            ..Dump::default()
        };
        let text = text(&dump);
        assert!(text.lines().all(|line| line.len() < 1 << 16));
        let parsed = Dump::parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.lines[0].frames, frames[..MAX_FRAMES]);
    }

    #[test]
    fn what_comes_from_outside_stays_on_its_line() {
        let dump = Dump {
            comments: vec!["command: a\nb\u{1b}[2J".into()],
            mappings: vec![Mapping {
                path: "/tmp/a\nb".into(),
                ..Mapping::default()
            }],
            symbols: Some(Symbols {
                binary: "/tmp/x\ny".into(),
                names: vec![(
                    0x10,
                    vec![
                        "main".into(),
                        "operator--(int)".into(),
                        "a\n---\nb-".into(),
                        "c".into(),
                    ],
                )],
            }),
            ..Dump::default()
        };
        let text = text(&dump);
        assert_eq!(text.lines().filter(|line| *line == "---").count(), 1);
        assert!(text.contains("# command: a\\012b\\033[2J\n"));
        assert!(
            text.contains("0x00000010 main--operator- -(int)--a\\012- - -\\012b- --c\n"),
            "{text}"
        );
        let parsed = Dump::parse(text.as_bytes()).unwrap();
        assert_eq!(
            parsed.symbols.unwrap().names[0].1[..2],
            ["main".to_string(), "operator--(int)".to_string()]
        );
    }

    #[test]
    fn the_largest_come_first_and_equals_in_the_order_of_their_frames() {
        let dump = Dump {
            lines: vec![
                line([1, 10, 1, 10], &[3]),
                line([1, 10, 1, 10], &[2, 9]),
                line([1, 10, 2, 20], &[4]),
                line([1, 30, 1, 30], &[5]),
            ],
            ..Dump::default()
        };
        let parsed = Dump::parse(text(&dump).as_bytes()).unwrap();
        let first: Vec<u64> = parsed.lines.iter().map(|line| line.frames[0]).collect();
        assert_eq!(first, [5, 4, 2, 3]);
    }

    #[test]
    fn a_name_has_its_place_whatever_it_is() {
        let name = |name: &str| {
            let mut text = String::from("--");
            push_name(&mut text, name);
            text
        };
        assert_eq!(name(""), "--??");
        assert_eq!(name("a--b--"), "--a- -b- - ");
        assert_eq!(name("-x-"), "---x- ");
        assert_eq!(
            name("a\u{2028}b\u{2029}c\u{7f}"),
            "--a\\342\\200\\250b\\342\\200\\251c\\177"
        );
    }

    #[test]
    fn names_are_those_of_the_file_they_are_said_to_be_of() {
        let dump = Dump {
            symbols: Some(Symbols {
                binary: "/a\nb".into(),
                names: vec![(0x1f, vec!["main".into(), String::new()])],
            }),
            ..Dump::default()
        };
        let text = text(&dump);
        assert!(
            text.starts_with("--- symbol\nbinary=/a\\012b\n0x0000001f main--??\n---\n"),
            "{text}"
        );
    }
}
