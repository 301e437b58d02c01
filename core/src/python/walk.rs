//! Walk: from the state of a thread to its Python frames, innermost first.
//!
//! From 3.11 on, a call from Python to Python needs no call in C: several Python frames run in one
//! C frame of the interpreter. Each C frame has a structure of the interpreter on the stack, and
//! the chain of Python frames tells its borders:
//!
//! ```text
//!   C frames, by address                      Python frames
//!   malloc, list_resize, …
//!   _PyEval_EvalFrameDefault  [structure] <── leaf <─ middle        both run in this C frame
//!   PyObject_Call, sorted, …
//!   _PyEval_EvalFrameDefault  [structure] <── outer <─ <module>
//!   main
//! ```
//!
//! [`Merged`] puts the Python frames behind the C frame that has their structure.

use std::iter::FusedIterator;
use std::ops::Range;

use heapprof_format::{NO_INSTRUCTION, code_address, code_start};

use crate::python::code::{print_of_bytes, print_of_text};
use crate::python::layout::{Chain, Layout, OBJECT_TYPE};
use crate::python::memory::{Memory, half_of, word_of};
use crate::tables::number_hash::mix;

/// Most Python frames of a stack, the innermost ones.
pub const MOST_PYTHON_FRAMES: usize = 1024;

/// Most frames without code that are passed over.
const MOST_WITHOUT_CODE: usize = MOST_PYTHON_FRAMES;
/// Bytes of a frame that are read: up to its last field.
const FRAME_BYTES: usize = 112;
/// Bytes of a code object that are read: up to its last field.
const CODE_BYTES: usize = 144;
/// Bits of a reference to an object that are no address.
const REFERENCE_TAG: u64 = 3;
/// Bytes of an instruction.
const INSTRUCTION: u64 = 2;
/// The owner of a frame in a C frame of the interpreter, and later kinds without code.
const OWNED_BY_C: u8 = 3;

/// A frame of a Python function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PythonFrame {
    /// Address of its code object.
    pub code: u64,
    /// A number of the code object, which another object at its address does not have.
    pub identity: u64,
    /// The instruction that it executes, or [`NO_INSTRUCTION`].
    pub instruction: u32,
    /// An address in the C frame of the interpreter that runs it. 0: not known.
    pub in_c_frame: u64,
}

/// The reason why the frames could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonFault {
    /// The state is another thread's.
    OtherThread,
    /// A structure is in memory that is not readable.
    Unreadable,
    /// A structure is not what it should be.
    Odd,
}

/// Reads the Python frames of the thread with that state into `frames`, innermost first, and
/// returns their number. `thread` is the number that `pthread_self` returns, and `code_type` the
/// address of the type of code objects.
///
/// # Errors
/// The first oddity ends the walk; `frames` is then in any state.
pub fn python_frames(
    layout: &Layout,
    memory: &mut impl Memory,
    code_type: u64,
    state: u64,
    thread: u64,
    frames: &mut [PythonFrame],
) -> Result<usize, PythonFault> {
    let mut word = |address: u64, at: u32| {
        memory
            .word(address.wrapping_add(at.into()))
            .ok_or(PythonFault::Unreadable)
    };
    if word(state, layout.thread.id)? != thread {
        return Err(PythonFault::OtherThread);
    }
    let (mut place, mut c_frame) = match layout.thread.chain {
        Chain::Frame { frame } | Chain::Entries { frame } => (word(state, frame)?, 0),
        Chain::FrameAndCFrames { frame, cframe, .. } => (word(state, frame)?, word(state, cframe)?),
        Chain::CFrames {
            cframe, current, ..
        } => {
            let cframe = word(state, cframe)?;
            (word(cframe, current)?, cframe)
        }
        Chain::CFrameAndEntries { cframe, current } => {
            let cframe = word(state, cframe)?;
            (word(cframe, current)?, 0)
        }
    };
    let mut count = 0;
    let mut in_this_c_frame = 0;
    for _ in 0..frames.len() + MOST_WITHOUT_CODE {
        if place == 0 || count == frames.len() {
            return Ok(count);
        }
        let mut bytes = [0; FRAME_BYTES];
        if !memory.read(place, &mut bytes) {
            return Err(PythonFault::Unreadable);
        }
        let owner = bytes[layout.frame.owner as usize];
        let has_entries = matches!(
            layout.thread.chain,
            Chain::Entries { .. } | Chain::CFrameAndEntries { .. }
        );
        if has_entries && owner >= OWNED_BY_C {
            let run_here = &mut frames[in_this_c_frame..count];
            run_here.iter_mut().for_each(|it| it.in_c_frame = place);
            in_this_c_frame = count;
        } else {
            frames[count] = frame_of(layout, memory, code_type, &bytes, c_frame)?;
            count += 1;
        }
        match layout.thread.chain {
            Chain::FrameAndCFrames { previous, .. } => {
                c_frame = next_c_frame(memory, c_frame, previous)?;
            }
            Chain::CFrames {
                previous, is_entry, ..
            } if bytes[is_entry as usize] != 0 => {
                c_frame = next_c_frame(memory, c_frame, previous)?;
            }
            _ => {}
        }
        let next = word_of(&bytes, layout.frame.previous);
        if next == place {
            return Err(PythonFault::Odd);
        }
        place = next;
    }
    Err(PythonFault::Odd)
}

fn next_c_frame(memory: &mut impl Memory, at: u64, previous: u32) -> Result<u64, PythonFault> {
    let next = memory.word(at.wrapping_add(previous.into()));
    next.ok_or(PythonFault::Unreadable)
}

fn frame_of(
    layout: &Layout,
    memory: &mut impl Memory,
    code_type: u64,
    frame: &[u8; FRAME_BYTES],
    in_c_frame: u64,
) -> Result<PythonFrame, PythonFault> {
    let code = word_of(frame, layout.frame.code) & !REFERENCE_TAG;
    let mut object = [0; CODE_BYTES];
    if !memory.read(code, &mut object) {
        return Err(PythonFault::Unreadable);
    }
    if word_of(&object, OBJECT_TYPE) != code_type {
        return Err(PythonFault::Odd);
    }
    Ok(PythonFrame {
        code,
        identity: identity_of(layout, memory, code, &object).ok_or(PythonFault::Unreadable)?,
        instruction: instruction_of(layout, code, frame),
        in_c_frame,
    })
}

fn identity_of(
    layout: &Layout,
    memory: &mut impl Memory,
    code: u64,
    object: &[u8; CODE_BYTES],
) -> Option<u64> {
    let fields = layout.code;
    let (name, file, table) = (
        word_of(object, fields.name),
        word_of(object, fields.filename),
        word_of(object, fields.line_table),
    );
    let words = [
        code,
        half_of(object, fields.first_line).into(),
        name,
        file,
        table,
        print_of_text(layout, memory, name)?,
        print_of_text(layout, memory, file)?,
        print_of_bytes(memory, table)?,
    ];
    Some(words.into_iter().fold(1, mix))
}

/// Returns the number of the instruction that a frame executes.
fn instruction_of(layout: &Layout, code: u64, frame: &[u8; FRAME_BYTES]) -> u32 {
    let at = layout.frame.instruction;
    let number = match layout.minor {
        // Bytes; -1 before the first instruction.
        ..10 => i64::from(half_of(frame, at).cast_signed()).div_euclid(INSTRUCTION as i64),
        10 => half_of(frame, at).cast_signed().into(),
        _ => {
            let first = code.wrapping_add(layout.code.instructions.into());
            let bytes = word_of(frame, at).wrapping_sub(first).cast_signed();
            bytes.div_euclid(INSTRUCTION as i64)
        }
    };
    let number = u32::try_from(number).unwrap_or(NO_INSTRUCTION);
    number.min(NO_INSTRUCTION)
}

/// Returns a hash of frames, for the hash of the stack that has them.
pub fn hash_of_python(frames: &[PythonFrame]) -> u64 {
    frames.iter().fold(frames.len() as u64, |hash, frame| {
        mix(mix(hash, frame.identity), frame.instruction.into())
    })
}

/// A native frame to be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeFrame {
    /// Its address: a return address, or of an instruction if `is_exact`.
    pub address: u64,
    /// True if the address is that of the instruction itself.
    pub is_exact: bool,
    /// The stack pointer in it: the lowest address of its C frame.
    pub sp: u64,
}

/// Native frames with the Python frames that run in them, innermost first. An item is an address,
/// and true if it is that of the instruction itself. The address of a Python frame has the hash of
/// its code's identity.
#[derive(Debug, Clone)]
pub struct Merged<'a, I: Iterator> {
    native: I,
    /// The native frame that comes next.
    next: Option<I::Item>,
    python: &'a [PythonFrame],
    /// The code of the interpreter's loop, where Python frames do not tell their C frame.
    eval: Range<u64>,
    /// True if the last native frame is one of the loop.
    is_in_eval: bool,
}

impl<'a, I: ExactSizeIterator<Item = NativeFrame>> Merged<'a, I> {
    /// Returns the merged frames. `eval` is the code of the interpreter's loop.
    pub fn new(mut native: I, python: &'a [PythonFrame], eval: Range<u64>) -> Merged<'a, I> {
        Merged {
            next: native.next(),
            native,
            python,
            eval,
            is_in_eval: false,
        }
    }
}

impl<I: ExactSizeIterator<Item = NativeFrame>> Iterator for Merged<'_, I> {
    type Item = (u64, bool);

    fn next(&mut self) -> Option<(u64, bool)> {
        if let Some((python, rest)) = self.python.split_first() {
            let is_here = match self.next {
                None => true,
                Some(_) if python.in_c_frame == 0 => self.is_in_eval,
                Some(outer) => python.in_c_frame < outer.sp,
            };
            if is_here {
                self.python = rest;
                self.is_in_eval = false;
                let start = code_start(python.identity);
                return Some((code_address(start, python.instruction), true));
            }
        }
        let native = std::mem::replace(&mut self.next, self.native.next())?;
        self.is_in_eval = self.eval.contains(&native.address);
        Some((native.address, native.is_exact))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.native.len() + usize::from(self.next.is_some()) + self.python.len();
        (len, Some(len))
    }
}

impl<I: ExactSizeIterator<Item = NativeFrame>> ExactSizeIterator for Merged<'_, I> {}
impl<I: ExactSizeIterator<Item = NativeFrame>> FusedIterator for Merged<'_, I> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::code::{MOST_CODE_WORDS, code_of_words, read_code};
    use heapprof_format::is_code_address;
    use std::collections::BTreeMap;

    const CODE_TYPE: u64 = 0xc0de_0000;
    const THREAD: u64 = 0x7f00_1234;
    const STATE: u64 = 0x10_0000;

    /// Memory in which a test places words; bytes around them are not readable.
    #[derive(Default)]
    struct World(BTreeMap<u64, u8>);

    impl Memory for World {
        fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
            (0..).zip(into).all(|(offset, byte)| {
                let there = self.0.get(&address.wrapping_add(offset));
                there.map(|it| *byte = *it).is_some()
            })
        }
    }

    impl World {
        fn put(&mut self, address: u64, bytes: &[u8]) {
            self.0.extend((address..).zip(bytes.iter().copied()));
        }

        fn put_word(&mut self, address: u64, word: u64) {
            self.put(address, &word.to_le_bytes());
        }

        /// A structure of zeros, with words at some places.
        fn place(&mut self, address: u64, len: usize, words: &[(u32, u64)]) {
            self.put(address, &vec![0; len]);
            for &(at, word) in words {
                self.put_word(address + u64::from(at), word);
            }
        }

        /// A text in ASCII, as 3.11 has it.
        fn place_text(&mut self, layout: &Layout, address: u64, text: &str) {
            const COMPACT_ASCII: u64 = 1 | 1 << 2 | 1 << 5 | 1 << 6;
            let words = [(16, text.len() as u64), (32, COMPACT_ASCII)];
            self.place(address, 48, &words);
            self.put(address + u64::from(layout.text.ascii), text.as_bytes());
        }

        /// A code object with its texts and its table.
        fn place_code(&mut self, layout: &Layout, address: u64, name: &str, first_line: u64) {
            let (name_at, file, table) = (address + 0x1000, address + 0x2000, address + 0x3000);
            let fields = layout.code;
            self.place(
                address,
                CODE_BYTES,
                &[
                    (OBJECT_TYPE, CODE_TYPE),
                    (fields.name, name_at),
                    (fields.filename, file),
                    (fields.line_table, table),
                    (fields.first_line, first_line),
                ],
            );
            self.place_text(layout, name_at, name);
            self.place_text(layout, file, "/app/work.py");
            self.place(table, 48, &[(16, 2)]);
            self.put(table + 32, &[0x80, 0]);
        }

        fn place_frame(&mut self, layout: &Layout, address: u64, code: u64, previous: u64) {
            let frame = layout.frame;
            let instruction = match layout.minor {
                ..10 => 6,
                10 => 3,
                _ => code + u64::from(layout.code.instructions) + 6,
            };
            let words = [
                (frame.instruction, instruction),
                (frame.code, code),
                (frame.previous, previous),
            ];
            self.place(address, FRAME_BYTES, &words);
        }
    }

    fn layout(minor: u8) -> Layout {
        Layout::of_version(minor).unwrap()
    }

    fn frames(layout: &Layout, world: &mut World) -> Result<Vec<PythonFrame>, PythonFault> {
        let mut frames = [PythonFrame::default(); 8];
        let count = python_frames(layout, world, CODE_TYPE, STATE, THREAD, &mut frames)?;
        Ok(frames[..count].to_vec())
    }

    const LEAF: u64 = 0x20_0000;
    const OUTER: u64 = 0x30_0000;

    /// The world of 3.11:
    ///
    /// ```text
    ///   state ─> cframe 0x7000 ─> leaf ─> leaf (entry) ─┐
    ///               └> cframe 0x7800                    └> outer (entry) ─> 0
    /// ```
    fn world_of_311() -> World {
        let layout = layout(11);
        let mut world = World::default();
        world.place(STATE, 200, &[(152, THREAD), (56, 0x7000)]);
        world.place(0x7000, 24, &[(8, 0x40_0000), (16, 0x7800)]);
        world.place(0x7800, 24, &[]);
        world.place_code(&layout, LEAF, "leaf", 10);
        world.place_code(&layout, OUTER, "outer", 20);
        world.place_frame(&layout, 0x40_0000, LEAF, 0x40_1000);
        world.place_frame(&layout, 0x40_1000, LEAF, 0x40_2000);
        world.place_frame(&layout, 0x40_2000, OUTER, 0);
        world.put(0x40_1000 + 68, &[1]);
        world.put(0x40_2000 + 68, &[1]);
        world
    }

    #[test]
    fn frames_of_311_tell_the_c_frame_they_run_in() {
        let found = frames(&layout(11), &mut world_of_311()).unwrap();
        let codes: Vec<_> = found.iter().map(|it| (it.code, it.in_c_frame)).collect();
        assert_eq!(codes, [(LEAF, 0x7000), (LEAF, 0x7000), (OUTER, 0x7800)]);
        assert!(found.iter().all(|it| it.instruction == 3));
        assert_eq!(found[0].identity, found[1].identity);
        assert_ne!(found[0].identity, found[2].identity);
    }

    /// 3.12: the frames of a C frame end at the frame without code, which lies in it.
    #[test]
    fn frames_of_312_end_at_the_entry_of_their_c_frame() {
        let layout = layout(12);
        let mut world = World::default();
        world.place(STATE, 200, &[(136, THREAD), (56, 0x6000)]);
        world.place(0x6000, 16, &[(0, 0x40_0000)]);
        world.place_code(&layout, LEAF, "leaf", 10);
        world.place_frame(&layout, 0x40_0000, LEAF, 0x40_1000);
        world.place_frame(&layout, 0x40_1000, LEAF, 0x7100);
        for (entry, previous) in [(0x7100, 0x40_2000), (0x7900, 0)] {
            world.place_frame(&layout, entry, LEAF, previous);
            world.put(entry + u64::from(layout.frame.owner), &[OWNED_BY_C]);
        }
        world.place_frame(&layout, 0x40_2000, LEAF, 0x7900);
        let found = frames(&layout, &mut world).unwrap();
        let in_c: Vec<_> = found.iter().map(|it| it.in_c_frame).collect();
        assert_eq!(in_c, [0x7100, 0x7100, 0x7900]);
    }

    #[test]
    fn frames_of_older_versions_have_a_c_frame_each() {
        for minor in 8..=10 {
            let layout = layout(minor);
            let mut world = World::default();
            world.place(STATE, 200, &[(176, THREAD), (24, 0x40_0000), (48, 0x7000)]);
            world.place(0x7000, 16, &[(8, 0x7800)]);
            world.place(0x7800, 16, &[]);
            world.place_code(&layout, LEAF, "leaf", 10);
            world.place_frame(&layout, 0x40_0000, LEAF, 0x40_1000);
            world.place_frame(&layout, 0x40_1000, LEAF, 0);
            let found = frames(&layout, &mut world).unwrap();
            let seen: Vec<_> = found
                .iter()
                .map(|it| (it.instruction, it.in_c_frame))
                .collect();
            match minor {
                10 => assert_eq!(seen, [(3, 0x7000), (3, 0x7800)]),
                _ => assert_eq!(seen, [(3, 0), (3, 0)]),
            }
        }
    }

    #[test]
    fn what_is_odd_ends_the_walk() {
        let layout = layout(11);
        let fault = |change: &dyn Fn(&mut World)| {
            let mut world = world_of_311();
            change(&mut world);
            frames(&layout, &mut world).unwrap_err()
        };
        let other_thread = fault(&|world| world.put_word(STATE + 152, 1));
        assert_eq!(other_thread, PythonFault::OtherThread);
        let no_code = fault(&|world| world.put_word(LEAF + 8, 0x1234));
        assert_eq!(no_code, PythonFault::Odd);
        let circle = fault(&|world| world.put_word(0x40_1000 + 48, 0x40_1000));
        assert_eq!(circle, PythonFault::Odd);
        let wild = fault(&|world| world.put_word(0x40_1000 + 48, 0xdead_0000));
        assert_eq!(wild, PythonFault::Unreadable);
    }

    #[test]
    fn a_long_circle_ends() {
        let mut world = world_of_311();
        world.put_word(0x40_2000 + 48, 0x40_0000);
        world.put(0x7800, &[0; 24]);
        world.place(0, 24, &[]); // the chain of C frames ends at null
        let found = frames(&layout(11), &mut world).unwrap();
        assert_eq!(found.len(), 8);
    }

    /// Another code object at the same address: its file's name has another end.
    #[test]
    fn a_code_object_in_the_place_of_another_has_another_identity() {
        let layout = layout(11);
        let before = frames(&layout, &mut world_of_311()).unwrap();
        let mut world = world_of_311();
        world.place_text(&layout, LEAF + 0x2000, "/app/walk.py");
        let after = frames(&layout, &mut world).unwrap();
        assert_eq!(before[0].code, after[0].code);
        assert_ne!(before[0].identity, after[0].identity);
        assert_ne!(hash_of_python(&before), hash_of_python(&after));
    }

    #[test]
    fn a_code_object_comes_back_from_its_words() {
        let layout = layout(11);
        let mut words = [u64::MAX; MOST_CODE_WORDS];
        let len = read_code(&layout, &mut world_of_311(), LEAF, &mut words).unwrap();
        let code = code_of_words(&words[..len]).unwrap();
        assert_eq!(
            (code.name.as_str(), code.file.as_str()),
            ("leaf", "/app/work.py")
        );
        assert_eq!(
            (code.first_line, &code.line_table[..]),
            (10, &[0x80, 0][..])
        );
        assert_eq!(code.kind, layout.line_table_kind());
        assert!(code_of_words(&words[..len - 1]).is_none());
    }

    /// Texts of one, two and four bytes a character, in the forms of the state of all versions.
    #[test]
    fn a_text_of_any_width_is_read_as_utf_8() {
        let layout = layout(11);
        for (width, below) in [(1, 2), (2, 2), (4, 8), (2, 16)] {
            let mut world = world_of_311();
            let name = if width == 1 { "é" } else { "日é" };
            let characters: Vec<u8> = name
                .chars()
                .flat_map(|it| u32::from(it).to_le_bytes()[..width].to_vec())
                .collect();
            let state = 1 | (width as u64) << below | 1 << (below + 3);
            let count = name.chars().count() as u64;
            world.place(LEAF + 0x1000, 72, &[(16, count), (32, state)]);
            world.put(LEAF + 0x1000 + 72, &characters);
            let mut words = [0; MOST_CODE_WORDS];
            let len = read_code(&layout, &mut world, LEAF, &mut words).unwrap();
            let code = code_of_words(&words[..len]).unwrap();
            assert_eq!(code.name, name);
        }
    }

    fn native(address: u64, sp: u64) -> NativeFrame {
        NativeFrame {
            address,
            is_exact: false,
            sp,
        }
    }

    fn python(identity: u64, in_c_frame: u64) -> PythonFrame {
        PythonFrame {
            identity,
            in_c_frame,
            ..PythonFrame::default()
        }
    }

    /// Native addresses as they are, Python frames by their identity.
    fn merged(native: &[NativeFrame], python: &[PythonFrame], eval: Range<u64>) -> Vec<u64> {
        let merged = Merged::new(native.iter().copied(), python, eval);
        assert_eq!(merged.len(), native.len() + python.len());
        merged
            .map(|(address, is_exact)| {
                assert_eq!(is_exact, is_code_address(address));
                match is_exact {
                    true => address >> 16 & 0xffff,
                    false => address,
                }
            })
            .collect()
    }

    /// ```text
    ///   sp      0x100       0x200      0x300      0x400
    ///   frame   list        eval       sorted     eval        main
    ///   Python              1, 2                  3
    /// ```
    #[test]
    fn python_frames_stand_behind_the_c_frame_that_runs_them() {
        let natives = [
            native(10, 0x100),
            native(50, 0x200),
            native(20, 0x300),
            native(51, 0x400),
            native(30, 0x500),
        ];
        let pythons = [python(1, 0x240), python(2, 0x240), python(3, 0x480)];
        assert_eq!(
            merged(&natives, &pythons, 0..0),
            [10, 50, 1, 2, 20, 51, 3, 30]
        );
    }

    #[test]
    fn without_an_address_each_frame_of_the_loop_takes_one() {
        let natives = [10, 50, 20, 51, 30].map(|address| native(address, 0x100));
        let pythons = [1, 2].map(|identity| python(identity, 0));
        assert_eq!(
            merged(&natives, &pythons, 50..60),
            [10, 50, 1, 20, 51, 2, 30]
        );
    }

    /// A native walk that ended early, or met a stack elsewhere, loses no Python frame.
    #[test]
    fn python_frames_without_their_c_frame_come_last() {
        let natives = [native(10, 0x100)];
        let pythons = [python(1, 0x9000), python(2, 0x9900)];
        assert_eq!(merged(&natives, &pythons, 0..0), [10, 1, 2]);
        assert_eq!(merged(&[], &pythons, 0..0), [1, 2]);
    }
}
