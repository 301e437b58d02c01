//! Layout: where the fields of CPython's structures are, by version.
//!
//! A version from 3.13 on says so itself: `_PyRuntime` begins with a table, whose meaning is fixed
//! within a version (`_Py_DebugOffsets`). For 3.8 to 3.12 the numbers are written down here, for
//! 64-bit builds without `Py_TRACE_REFS`. A test of preload compares them with the structures of
//! the interpreter that is installed.

use heapprof_format::LineTableKind;

/// The oldest version whose frames can be read, as the minor number of Python 3.
pub const OLDEST_PYTHON: u8 = 8;
/// The newest version.
pub const NEWEST_PYTHON: u8 = 14;

/// Length of the table at the start of `_PyRuntime`, in words, as far as it is read.
pub const DEBUG_OFFSETS_WORDS: usize = 81;

/// The first word of the table: `xdebugpy`.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// No structure is longer: a larger offset is damage.
const LONGEST_STRUCTURE: u64 = 4096;

/// See the module's text. Offsets are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Minor number of the version.
    pub(super) minor: u8,
    pub(super) thread: ThreadLayout,
    pub(super) frame: FrameLayout,
    pub(super) code: CodeLayout,
    pub(super) text: TextLayout,
}

/// The state of a thread (`PyThreadState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadLayout {
    /// The number of the thread that `pthread_self` returns.
    pub(super) id: u32,
    pub(super) chain: Chain,
}

/// The way to the innermost frame, and to the borders between the interpreter's C frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chain {
    /// 3.8, 3.9: the state has the frame. Each frame has a C frame of its own.
    Frame { frame: u32 },
    /// 3.10: the same, and the state has a chain of structures in the C frames.
    FrameAndCFrames {
        frame: u32,
        cframe: u32,
        previous: u32,
    },
    /// 3.11: the state has the structure in the innermost C frame, which has the frame. A frame
    /// says whether it is the outermost of its C frame.
    CFrames {
        cframe: u32,
        current: u32,
        previous: u32,
        is_entry: u32,
    },
    /// 3.12: the state has the structure in the innermost C frame, which has the frame. Each C
    /// frame has a frame without code, at which the Python frames of the C frame end.
    CFrameAndEntries { cframe: u32, current: u32 },
    /// From 3.13 on: the state has the frame. Each C frame has a frame without code.
    Entries { frame: u32 },
}

/// A frame (`PyFrameObject` up to 3.10, then `_PyInterpreterFrame`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameLayout {
    pub(super) code: u32,
    pub(super) previous: u32,
    /// The place of the instruction: a number up to 3.10, then a pointer.
    pub(super) instruction: u32,
    /// The owner, from 3.11 on: a byte.
    pub(super) owner: u32,
}

/// A code object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeLayout {
    pub(super) filename: u32,
    /// The qualified name, from 3.11 on.
    pub(super) name: u32,
    pub(super) line_table: u32,
    pub(super) first_line: u32,
    /// The first instruction, from 3.11 on.
    pub(super) instructions: u32,
}

/// Objects of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextLayout {
    /// The characters of a text in ASCII.
    pub(super) ascii: u32,
    /// The characters of another text.
    pub(super) others: u32,
}

impl Layout {
    /// Returns the layout of a version without a table. `None`: there is no such version.
    pub fn of_version(minor: u8) -> Option<Layout> {
        let before_311 = CodeLayout {
            filename: 104,
            name: 112,
            line_table: 120,
            first_line: 40,
            instructions: 0,
        };
        let (thread, frame, code) = match minor {
            8 | 9 => (
                (176, Chain::Frame { frame: 24 }),
                FrameLayout {
                    code: 32,
                    previous: 24,
                    instruction: 104,
                    owner: 0,
                },
                before_311,
            ),
            10 => (
                (
                    176,
                    Chain::FrameAndCFrames {
                        frame: 24,
                        cframe: 48,
                        previous: 8,
                    },
                ),
                FrameLayout {
                    code: 32,
                    previous: 24,
                    instruction: 96,
                    owner: 0,
                },
                before_311,
            ),
            11 => (
                (
                    152,
                    Chain::CFrames {
                        cframe: 56,
                        current: 8,
                        previous: 16,
                        is_entry: 68,
                    },
                ),
                FrameLayout {
                    code: 32,
                    previous: 48,
                    instruction: 56,
                    owner: 69,
                },
                CodeLayout {
                    filename: 112,
                    name: 128,
                    line_table: 136,
                    first_line: 72,
                    instructions: 184,
                },
            ),
            12 => (
                (
                    136,
                    Chain::CFrameAndEntries {
                        cframe: 56,
                        current: 0,
                    },
                ),
                FrameLayout {
                    code: 0,
                    previous: 8,
                    instruction: 56,
                    owner: 70,
                },
                CodeLayout {
                    filename: 112,
                    name: 128,
                    line_table: 136,
                    first_line: 68,
                    instructions: 192,
                },
            ),
            _ => return None,
        };
        let (ascii, others) = if minor < 12 { (48, 72) } else { (40, 56) };
        Some(Layout {
            minor,
            thread: ThreadLayout {
                id: thread.0,
                chain: thread.1,
            },
            frame,
            code,
            text: TextLayout { ascii, others },
        })
    }

    /// Returns the layout that the table at the start of `_PyRuntime` states. `None`: it is no
    /// table of a known version, or the build has no interpreter's lock, and other objects.
    pub fn of_table(words: &[u64; DEBUG_OFFSETS_WORDS]) -> Option<Layout> {
        let [cookie, version, free_threaded, ..] = *words;
        if cookie != COOKIE || free_threaded != 0 || version >> 24 != 3 {
            return None;
        }
        let minor = (version >> 16) as u8;
        // Where the parts of the table begin: thread state, frame, code, object, bytes, text.
        let [thread, frame, code, object, bytes, text] = match minor {
            13 => [19, 28, 34, 44, 64, 67],
            14 => [22, 31, 39, 50, 74, 77],
            _ => return None,
        };
        let is_usual = [
            (words[object + 1], OBJECT_TYPE),
            (words[bytes + 1], BYTES_LENGTH),
            (words[bytes + 2], BYTES_DATA),
            (words[text + 1], TEXT_STATE),
            (words[text + 2], TEXT_LENGTH),
        ];
        if is_usual
            .iter()
            .any(|&(stated, usual)| stated != u64::from(usual))
        {
            return None;
        }
        let offset = |at: usize| {
            let offset = words[at];
            (offset < LONGEST_STRUCTURE).then_some(offset as u32)
        };
        Some(Layout {
            minor,
            thread: ThreadLayout {
                id: offset(thread + 5)?,
                chain: Chain::Entries {
                    frame: offset(thread + 4)?,
                },
            },
            frame: FrameLayout {
                code: offset(frame + 2)?,
                previous: offset(frame + 1)?,
                instruction: offset(frame + 3)?,
                owner: offset(frame + 5)?,
            },
            code: CodeLayout {
                filename: offset(code + 1)?,
                name: offset(code + 3)?,
                line_table: offset(code + 4)?,
                first_line: offset(code + 5)?,
                instructions: offset(code + 9)?,
            },
            text: TextLayout {
                ascii: offset(text + 3)?,
                others: offset(text + 3)? + 16, // the length and the pointer of the UTF-8 form
            },
        })
    }

    /// Returns the minor number of the version.
    pub fn minor(&self) -> u8 {
        self.minor
    }

    /// Returns the kind of the line tables of the version.
    pub fn line_table_kind(&self) -> LineTableKind {
        match self.minor {
            ..10 => LineTableKind::Lnotab,
            10 => LineTableKind::Lines,
            _ => LineTableKind::Locations,
        }
    }
}

// Fields that are at the same place in all versions: of any object, of bytes, and of text.
pub(super) const OBJECT_TYPE: u32 = 8;
pub(super) const BYTES_LENGTH: u32 = 16;
pub(super) const BYTES_DATA: u32 = 32;
pub(super) const TEXT_LENGTH: u32 = 16;
pub(super) const TEXT_STATE: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of Debian's python3.13.
    fn table_of_313() -> [u64; DEBUG_OFFSETS_WORDS] {
        let words = [
            COOKIE,
            0x030d_05f0,
            0,
            283_376,
            608,
            632,
            194_976,
            7272,
            7264,
            7344,
            7400,
            7656,
            7640,
            7648,
            16,
            7752,
            0,
            7768,
            7760,
            304,
            0,
            8,
            16,
            72,
            152,
            160,
            232,
            32,
            80,
            8,
            0,
            56,
            72,
            70,
            208,
            112,
            120,
            128,
            136,
            68,
            52,
            96,
            104,
            200,
            16,
            8,
            416,
            24,
            88,
            168,
            32,
            24,
            16,
            40,
            24,
            16,
            48,
            32,
            40,
            24,
            16,
            32,
            16,
            24,
            40,
            16,
            32,
            64,
            32,
            16,
            40,
            240,
            200,
        ];
        let mut table = [0; DEBUG_OFFSETS_WORDS];
        table[..words.len()].copy_from_slice(&words);
        table
    }

    #[test]
    fn a_table_says_where_fields_are() {
        let layout = Layout::of_table(&table_of_313()).unwrap();
        assert_eq!(layout.minor(), 13);
        assert_eq!(layout.thread.chain, Chain::Entries { frame: 72 });
        assert_eq!(layout.thread.id, 152);
        let FrameLayout {
            code,
            previous,
            instruction,
            owner,
        } = layout.frame;
        assert_eq!([code, previous, instruction, owner], [0, 8, 56, 70]);
        let code = layout.code;
        assert_eq!([code.filename, code.name, code.line_table], [112, 128, 136]);
        assert_eq!([code.first_line, code.instructions], [68, 200]);
        assert_eq!((layout.text.ascii, layout.text.others), (40, 56));
    }

    #[test]
    fn a_table_that_is_unknown_or_odd_is_refused() {
        let change = |at: usize, value: u64| {
            let mut table = table_of_313();
            table[at] = value;
            Layout::of_table(&table)
        };
        assert!(change(0, 1).is_none(), "no cookie");
        assert!(change(1, 0x0310_00f0).is_none(), "a later version");
        assert!(change(2, 1).is_none(), "free-threaded");
        assert!(change(45, 16).is_none(), "another head of objects");
        assert!(
            change(23, LONGEST_STRUCTURE).is_none(),
            "a field beyond its structure"
        );
    }

    #[test]
    fn each_version_has_a_layout_or_a_table() {
        let written_down = |minor| Layout::of_version(minor).is_some();
        assert!((OLDEST_PYTHON..=12).all(written_down));
        assert!(!written_down(OLDEST_PYTHON - 1) && !written_down(13));
        let kind = |minor| Layout::of_version(minor).unwrap().line_table_kind();
        assert_eq!(kind(9), LineTableKind::Lnotab);
        assert_eq!(kind(10), LineTableKind::Lines);
        assert_eq!(kind(11), LineTableKind::Locations);
    }
}
