//! Code: a function of an interpreted language, whose frames stand in stacks beside native ones.
//!
//! The interpreter runs the function; no module has instructions of it. So each function gets
//! addresses that no memory has, one for each instruction:
//!
//! ```text
//!   63      56 55                      16 15           0
//!   │ CODE_TAG │ hash of what it says    │ instruction  │
//! ```
//!
//! The hash is of the names, the line and the table, so that all processes and all logs have the
//! same addresses for the same function. A frame's address is that of the instruction itself, so
//! its stack lists it under [`interrupted`](crate::Stack::interrupted).

use crate::field::{put_bytes, take_byte, take_bytes, take_string, take_u32};
use crate::varint::{put, take};

/// The highest byte of all such addresses. No address of a process begins with it.
const CODE_TAG: u64 = 0xc0;
const TAG_SHIFT: u32 = 56;
const INSTRUCTION_BITS: u32 = 16;

/// Number of addresses of a function.
pub const CODE_LEN: u64 = 1 << INSTRUCTION_BITS;

/// The instruction of a frame that is not known, or whose number is too large.
pub const NO_INSTRUCTION: u32 = (CODE_LEN - 1) as u32;

/// Most bytes of a line table. The lines of later instructions are not known.
pub const MAX_LINE_TABLE: usize = 16 << 10;

/// Returns true if the address is that of an instruction of an interpreted function.
pub fn is_code_address(address: u64) -> bool {
    address >> TAG_SHIFT == CODE_TAG
}

/// Returns the first address of the function with that hash.
pub fn code_start(hash: u64) -> u64 {
    let hash = hash & ((1 << (TAG_SHIFT - INSTRUCTION_BITS)) - 1);
    CODE_TAG << TAG_SHIFT | hash << INSTRUCTION_BITS
}

/// Returns the address of an instruction of the function that begins at that address.
pub fn code_address(start: u64, instruction: u32) -> u64 {
    start | u64::from(instruction.min(NO_INSTRUCTION))
}

/// A function of an interpreted language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// The address of its first instruction.
    pub start: u64,
    /// Its name, with the classes and functions around it where the interpreter knows them.
    pub name: String,
    /// The file of its source, as the interpreter names it.
    pub file: String,
    /// The line in which it begins.
    pub first_line: u32,
    /// The kind of its line table.
    pub kind: LineTableKind,
    /// The table from instructions to lines, or its first [`MAX_LINE_TABLE`] bytes.
    pub line_table: Vec<u8>,
}

/// The form of a table from instructions to lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum LineTableKind {
    /// No table that is known: only the function's first line is.
    #[default]
    None = 0,
    /// `co_lnotab` of CPython up to 3.9: steps of bytes and of lines.
    Lnotab = 1,
    /// `co_linetable` of CPython 3.10: ranges of bytes, with steps of lines.
    Lines = 2,
    /// `co_linetable` of CPython from 3.11 on: ranges of instructions, with locations.
    Locations = 3,
}

impl LineTableKind {
    /// Returns the kind of that number in a log; [`LineTableKind::None`] for one of a later
    /// version.
    pub fn from_u8(number: u8) -> LineTableKind {
        match number {
            1 => LineTableKind::Lnotab,
            2 => LineTableKind::Lines,
            3 => LineTableKind::Locations,
            _ => LineTableKind::None,
        }
    }
}

impl Code {
    /// Returns the function with its addresses, from what the interpreter says of it.
    pub fn new(
        name: String,
        file: String,
        first_line: u32,
        kind: LineTableKind,
        mut line_table: Vec<u8>,
    ) -> Code {
        line_table.truncate(MAX_LINE_TABLE);
        let numbers = [u64::from(first_line), kind as u64];
        let hash = [name.as_bytes(), file.as_bytes(), &line_table]
            .into_iter()
            .fold(mix(numbers[0], numbers[1]), hash_with);
        Code {
            start: code_start(hash),
            name,
            file,
            first_line,
            kind,
            line_table,
        }
    }

    /// Returns the line of an instruction, by its address. `None`: it has no line, or the function
    /// has no such instruction.
    pub fn line_at(&self, address: u64) -> Option<u32> {
        let instruction = address
            .checked_sub(self.start)
            .filter(|&it| it < CODE_LEN)? as u32;
        if instruction == NO_INSTRUCTION {
            return Some(self.first_line).filter(|&line| line > 0);
        }
        let line = match self.kind {
            LineTableKind::None => Some(i64::from(self.first_line)),
            LineTableKind::Lnotab => Some(self.line_by_lnotab(instruction)),
            LineTableKind::Lines => self.line_by_ranges(instruction),
            LineTableKind::Locations => self.line_by_locations(instruction),
        };
        line.and_then(|line| u32::try_from(line).ok())
            .filter(|&line| line > 0)
    }

    fn line_by_lnotab(&self, instruction: u32) -> i64 {
        let (mut at, mut line) = (0_u64, i64::from(self.first_line));
        for step in self.line_table.chunks_exact(2) {
            at += u64::from(step[0]);
            if at > u64::from(instruction) * BYTES_OF_INSTRUCTION {
                break;
            }
            line += i64::from(step[1].cast_signed());
        }
        line
    }

    fn line_by_ranges(&self, instruction: u32) -> Option<i64> {
        let wanted = u64::from(instruction) * BYTES_OF_INSTRUCTION;
        let (mut end, mut line) = (0_u64, i64::from(self.first_line));
        for step in self.line_table.chunks_exact(2) {
            end += u64::from(step[0]);
            let lines = step[1].cast_signed();
            let has_line = lines != i8::MIN;
            if has_line {
                line += i64::from(lines);
            }
            if wanted < end {
                return has_line.then_some(line);
            }
        }
        None
    }

    fn line_by_locations(&self, instruction: u32) -> Option<i64> {
        const NO_COLUMNS: u8 = 13;
        const LONG: u8 = 14;
        const NO_LOCATION: u8 = 15;
        let (mut end, mut line) = (0_u32, i64::from(self.first_line));
        let mut rest = &self.line_table[..];
        while let Some((&head, after)) = rest.split_first() {
            let len = after.iter().position(|&byte| byte & 0x80 != 0);
            let (mut entry, next) = after.split_at(len.unwrap_or(after.len()));
            rest = next;
            let form = head >> 3 & 15;
            line += match form {
                10..=12 => i64::from(form - 10),
                NO_COLUMNS | LONG => take_signed_six_bits(&mut entry)?,
                _ => 0,
            };
            end += u32::from(head & 7) + 1;
            if instruction < end {
                return (form != NO_LOCATION).then_some(line);
            }
        }
        None
    }

    pub(crate) fn put(&self, body: &mut Vec<u8>) {
        put(body, self.start);
        put_bytes(body, self.name.as_bytes());
        put_bytes(body, self.file.as_bytes());
        put(body, u64::from(self.first_line));
        body.push(self.kind as u8);
        put_bytes(body, &self.line_table);
    }

    /// Takes a function. `None`: it is malformed, or its addresses could be those of memory.
    pub(crate) fn take(body: &mut &[u8]) -> Option<Code> {
        let start = take(body)?;
        if !is_code_address(start) || start % CODE_LEN != 0 {
            return None;
        }
        Some(Code {
            start,
            name: take_string(body)?,
            file: take_string(body)?,
            first_line: take_u32(body)?,
            kind: LineTableKind::from_u8(take_byte(body)?),
            line_table: {
                let table = take_bytes(body)?;
                table[..table.len().min(MAX_LINE_TABLE)].to_vec()
            },
        })
    }
}

/// Bytes of one instruction in the tables of older versions.
const BYTES_OF_INSTRUCTION: u64 = 2;

/// Takes a number whose bytes have six bits each, the least first, with the sign in the lowest bit.
fn take_signed_six_bits(bytes: &mut &[u8]) -> Option<i64> {
    const LONGEST: usize = 9; // as many as fit
    let (mut value, mut shift) = (0_i64, 0);
    for (index, &byte) in bytes.iter().take(LONGEST).enumerate() {
        value |= i64::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 {
            *bytes = &bytes[index + 1..];
            let magnitude = value >> 1;
            return Some(if value & 1 == 0 {
                magnitude
            } else {
                -magnitude
            });
        }
    }
    None
}

/// Mixes two numbers (the form of MurmurHash3's finalizer, Appleby).
fn mix(first: u64, second: u64) -> u64 {
    let mut z = first ^ second.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z = (z ^ (z >> 29)).wrapping_mul(0xd1b5_4a32_d192_ed03);
    z ^ (z >> 32)
}

/// Returns the hash with a text more.
fn hash_with(hash: u64, text: &[u8]) -> u64 {
    let words = text.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(mix(hash, text.len() as u64), mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(kind: LineTableKind, first_line: u32, table: &[u8]) -> Code {
        Code::new("f".into(), "a.py".into(), first_line, kind, table.to_vec())
    }

    fn lines(code: &Code, instructions: u32) -> Vec<Option<u32>> {
        let line = |at| code.line_at(code_address(code.start, at));
        (0..instructions).map(line).collect()
    }

    /// `co_lnotab` of CPython 3.9 for a function that begins in line 7:
    ///
    /// ```text
    ///   bytes    0..8    8..12    12..
    ///   line     8       9        8         a loop goes back
    /// ```
    #[test]
    fn an_lnotab_steps_forward_and_back() {
        let code = code(LineTableKind::Lnotab, 7, &[0, 1, 8, 1, 4, 0xff]);
        let expected = [8, 8, 8, 8, 9, 9, 8, 8].map(Some);
        assert_eq!(lines(&code, 8), expected);
    }

    #[test]
    fn a_range_without_a_line_has_none() {
        let none = i8::MIN.cast_unsigned();
        let code = code(LineTableKind::Lines, 20, &[4, 1, 4, none, 2, 2]);
        let expected = [Some(21), Some(21), None, None, Some(23), None];
        assert_eq!(lines(&code, 6), expected);
    }

    /// Entries of each form: a short one, one line, no columns with 5 lines back, none, a long one
    /// with 200 lines forward.
    #[test]
    fn a_location_table_has_entries_of_five_forms() {
        let head = |form: u8, len: u8| 0x80 | form << 3 | (len - 1);
        let table = [
            &[head(0, 2), 0x11][..],
            &[head(11, 1), 4, 9],
            &[head(13, 1), 11],
            &[head(15, 1)],
            // 400 in six bits, then the end line and the columns
            &[head(14, 2), 0x50, 0x06, 0, 1, 2],
        ]
        .concat();
        let code = code(LineTableKind::Locations, 30, &table);
        let expected = [
            Some(30),
            Some(30),
            Some(31),
            Some(26),
            None,
            Some(226),
            Some(226),
            None,
        ];
        assert_eq!(lines(&code, 8), expected);
    }

    #[test]
    fn an_instruction_that_is_not_known_is_in_the_first_line() {
        let code = code(LineTableKind::Locations, 30, &[]);
        let at = |instruction| code.line_at(code_address(code.start, instruction));
        assert_eq!(at(NO_INSTRUCTION), Some(30));
        assert_eq!(at(u32::MAX), Some(30));
        assert_eq!(at(0), None);
        assert_eq!(code.line_at(code.start - 1), None);
        assert_eq!(code.line_at(code.start + CODE_LEN), None);
    }

    #[test]
    fn the_same_function_has_the_same_addresses_and_no_other_has() {
        let first = code(LineTableKind::Lnotab, 7, &[0, 1]);
        assert_eq!(code(LineTableKind::Lnotab, 7, &[0, 1]), first);
        assert!(is_code_address(first.start) && !is_code_address(0x7fff_ffff_f000));
        let others = [
            code(LineTableKind::Lnotab, 8, &[0, 1]),
            code(LineTableKind::Lines, 7, &[0, 1]),
            code(LineTableKind::Lnotab, 7, &[0, 1, 0]),
            Code::new(
                "g".into(),
                "a.py".into(),
                7,
                LineTableKind::Lnotab,
                vec![0, 1],
            ),
            Code::new(
                "fa".into(),
                ".py".into(),
                7,
                LineTableKind::Lnotab,
                vec![0, 1],
            ),
        ];
        for other in others {
            assert_ne!(other.start, first.start, "{other:?}");
        }
    }

    #[test]
    fn no_table_panics() {
        let bytes: Vec<u8> = (0..=u8::MAX).rev().chain(0..=u8::MAX).collect();
        for kind in 0..5 {
            for from in 0..bytes.len() {
                let code = code(LineTableKind::from_u8(kind), 1, &bytes[from..]);
                lines(&code, 64);
            }
        }
    }

    #[test]
    fn a_function_at_addresses_of_memory_is_refused() {
        let mut body = Vec::new();
        let known = code(LineTableKind::Lines, 7, &[0, 1]);
        known.put(&mut body);
        assert_eq!(Code::take(&mut &body[..]), Some(known.clone()));
        for start in [0x1000, known.start + 1] {
            let mut body = Vec::new();
            Code {
                start,
                ..known.clone()
            }
            .put(&mut body);
            assert_eq!(Code::take(&mut &body[..]), None);
        }
    }
}
