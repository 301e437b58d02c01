//! Code text: what a code object says of itself, read from the interpreter's memory into words.
//!
//! ```text
//!   lengths: name | file << 16 | table << 32 │ first line | kind of the table << 32
//!   │ name ... │ file ... │ table ...
//! ```
//!
//! Each of the three begins at a word. The words go through a lane, and come out as a
//! [`Code`].

use heapprof_format::{Code, LineTableKind, MAX_LINE_TABLE};

use crate::python::layout::{BYTES_DATA, BYTES_LENGTH, Layout, TEXT_LENGTH, TEXT_STATE};
use crate::python::memory::{Memory, half_of, word_of};

/// Longest name and longest path that are read, in bytes; the rest is left out.
const LONGEST_NAME: usize = 256;
const LONGEST_FILE: usize = 1024;
/// Most characters of a text that are read at once.
const CHUNK: usize = 64;

const HEAD: usize = 2;
const NAME_BITS: u32 = 16;
const TABLE_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 32;

/// Most words of a code text.
pub const MOST_CODE_WORDS: usize =
    HEAD + (LONGEST_NAME + LONGEST_FILE + MAX_LINE_TABLE).div_ceil(8) + 1;

/// Reads what a code object says of itself. Returns the number of words. `None`: a part of it is
/// not readable, or odd.
pub fn read_code(
    layout: &Layout,
    memory: &mut impl Memory,
    code: u64,
    words: &mut [u64; MOST_CODE_WORDS],
) -> Option<usize> {
    let fields = layout.code;
    let mut field = |at: u32| memory.word(code.wrapping_add(at.into()));
    let name = field(fields.name)?;
    let file = field(fields.filename)?;
    let table = field(fields.line_table)?;
    let first_line = memory.half(code.wrapping_add(fields.first_line.into()))?;
    let mut at = HEAD;
    let mut lengths = [0; 3];
    for (length, (text, most)) in lengths
        .iter_mut()
        .zip([(name, LONGEST_NAME), (file, LONGEST_FILE)])
    {
        let mut out = Bytes::new(&mut words[at..], most);
        read_text(layout, memory, text, &mut out)?;
        *length = out.len;
        at += out.len.div_ceil(8);
    }
    let size = memory.word(table.wrapping_add(BYTES_LENGTH.into()))?;
    let size = usize::try_from(size).ok()?.min(MAX_LINE_TABLE);
    let mut out = Bytes::new(&mut words[at..], MAX_LINE_TABLE);
    read_bytes(
        memory,
        table.wrapping_add(BYTES_DATA.into()),
        size,
        &mut out,
    )?;
    lengths[2] = size;
    at += size.div_ceil(8);
    let [name, file, table] = lengths.map(|length| length as u64);
    words[0] = name | file << NAME_BITS | table << TABLE_SHIFT;
    words[1] = u64::from(first_line) | (layout.line_table_kind() as u64) << KIND_SHIFT;
    Some(at)
}

/// Returns the code object that words say something of. For the writer. `None`: the words are cut.
pub fn code_of_words(words: &[u64]) -> Option<Code> {
    let (&[lengths, first_line], rest) = words.split_first_chunk::<HEAD>()?;
    let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut at = 0_usize;
    let mut part = |length: u64| {
        let length = length as usize;
        let part = bytes.get(at..at.checked_add(length)?)?;
        at += length.next_multiple_of(8);
        Some(part)
    };
    let name = part(lengths & 0xffff)?;
    let file = part(lengths >> NAME_BITS & 0xffff)?;
    let table = part(lengths >> TABLE_SHIFT)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let kind = LineTableKind::from_u8((first_line >> KIND_SHIFT) as u8);
    let first_line = first_line as u32;
    Some(Code::new(
        text(name),
        text(file),
        first_line,
        kind,
        table.to_vec(),
    ))
}

/// Bytes that are written into words, up to a limit.
struct Bytes<'a> {
    words: &'a mut [u64],
    len: usize,
    most: usize,
}

impl<'a> Bytes<'a> {
    fn new(words: &'a mut [u64], most: usize) -> Bytes<'a> {
        Bytes {
            words,
            len: 0,
            most,
        }
    }

    /// Appends all of these bytes. Returns false if they do not fit.
    fn push(&mut self, bytes: &[u8]) -> bool {
        if self.len + bytes.len() > self.most.min(self.words.len() * 8) {
            return false;
        }
        for &byte in bytes {
            let (word, shift) = (self.len / 8, self.len % 8 * 8);
            if shift == 0 {
                self.words[word] = 0;
            }
            self.words[word] |= u64::from(byte) << shift;
            self.len += 1;
        }
        true
    }
}

fn read_bytes(
    memory: &mut impl Memory,
    address: u64,
    len: usize,
    out: &mut Bytes<'_>,
) -> Option<()> {
    let mut chunk = [0; CHUNK];
    for from in (0..len).step_by(CHUNK) {
        let chunk = &mut chunk[..CHUNK.min(len - from)];
        if !memory.read(address.wrapping_add(from as u64), chunk) {
            return None;
        }
        out.push(chunk);
    }
    Some(())
}

/// Where the characters of a text are.
struct Characters {
    address: u64,
    count: u64,
    /// Bytes of a character: 1, 2 or 4.
    width: u8,
}

/// Returns where the characters of a text are. `None`: it is no text of a known form.
fn characters(layout: &Layout, memory: &mut impl Memory, text: u64) -> Option<Characters> {
    let mut head = [0; TEXT_STATE as usize + 4];
    if !memory.read(text, &mut head) {
        return None;
    }
    let count = word_of(&head, TEXT_LENGTH);
    let state = half_of(&head, TEXT_STATE);
    let (width, is_ascii) = form_of(state)?;
    let offset = match is_ascii {
        true => layout.text.ascii,
        false => layout.text.others,
    };
    Some(Characters {
        address: text.wrapping_add(offset.into()),
        count,
        width,
    })
}

/// Returns the bytes of a character, and whether all are ASCII, from the state of a text. Below
/// these fields are 2, 8 or 16 bits about interning, by version. `None`: the characters are
/// elsewhere, or the state is odd.
fn form_of(state: u32) -> Option<(u8, bool)> {
    const INTERNED_BITS: [u32; 3] = [2, 8, 16];
    let form = |below: u32| {
        let (width, flags) = (state >> below & 7, state >> (below + 3));
        let (is_compact, is_ascii) = (flags & 1 != 0, flags & 2 != 0);
        let is_known = is_compact && matches!(width, 1 | 2 | 4) && (width == 1 || !is_ascii);
        is_known.then_some((width as u8, is_ascii))
    };
    INTERNED_BITS.into_iter().find_map(form)
}

/// Reads a text as UTF-8.
fn read_text(
    layout: &Layout,
    memory: &mut impl Memory,
    text: u64,
    out: &mut Bytes<'_>,
) -> Option<()> {
    let Characters {
        address,
        count,
        width,
    } = characters(layout, memory, text)?;
    let width = usize::from(width);
    let count = usize::try_from(count).ok()?.min(out.most);
    let mut chunk = [0; CHUNK];
    for from in (0..count).step_by(CHUNK / width) {
        let chunk = &mut chunk[..(CHUNK / width).min(count - from) * width];
        if !memory.read(address.wrapping_add((from * width) as u64), chunk) {
            return None;
        }
        for bytes in chunk.chunks_exact(width) {
            let number = bytes
                .iter()
                .rev()
                .fold(0, |all, &byte| all << 8 | u32::from(byte));
            // A surrogate stands for a byte of a path that is no UTF-8.
            let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            if !out.push(character.encode_utf8(&mut [0; 4]).as_bytes()) {
                return Some(());
            }
        }
    }
    Some(())
}

/// Returns a number that another text at the same address hardly has: from its length and its last
/// characters.
pub(super) fn print_of_text(layout: &Layout, memory: &mut impl Memory, text: u64) -> Option<u64> {
    let Characters {
        address,
        count,
        width,
    } = characters(layout, memory, text)?;
    let bytes = count.checked_mul(width.into())?;
    print_of(memory, address, bytes)
}

/// Returns such a number of an object of bytes.
pub(super) fn print_of_bytes(memory: &mut impl Memory, bytes: u64) -> Option<u64> {
    let len = memory.word(bytes.wrapping_add(BYTES_LENGTH.into()))?;
    print_of(memory, bytes.wrapping_add(BYTES_DATA.into()), len)
}

fn print_of(memory: &mut impl Memory, address: u64, len: u64) -> Option<u64> {
    let mut last = [0; 16];
    let count = last.len().min(usize::try_from(len).ok()?);
    let from = address.wrapping_add(len - count as u64);
    if !memory.read(from, &mut last[..count]) {
        return None;
    }
    Some(word_of(&last, 0) ^ word_of(&last, 8).rotate_left(17) ^ len.rotate_left(40))
}
