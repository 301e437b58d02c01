//! The frame table (`.eh_frame`) of a module, without the entries whose evaluation might never end.
//!
//! An entry may contain an expression, a small program that may jump backwards. framehop evaluates
//! it to its end. A damaged or malicious entry may have no end, and the thread would stay in malloc
//! for ever. No compiler or linker makes an expression that jumps backwards. So an entry with such
//! an expression has no rule: the walk continues by the frame pointer, or ends with that reason.
//!
//! framehop has no option for this. But it reads the bytes of the header, which leads to entries,
//! exactly when it has no cached rule. At that time this file finds and checks the entry. It does
//! not use gimli, whose general decoding is slower. framehop gets a header for that
//! one entry, which it finds at once, or an empty header for a bad entry. The walk stores the
//! address in the thread's record, which also holds the header of one entry.
//!
//! ```text
//!  .eh_frame_hdr   version encodings.. pointer:4 count:4 | (first address, entry):4+4 ... in order
//!  .eh_frame       length:4 id:4 ... instructions         id 0: a CIE; else: distance back to it
//! ```

use std::ops::Deref;
use std::ops::Range;
use std::sync::Arc;

use gimli::constants as dw;

use crate::state::thread;

/// The header as every linker writes it: a version, and the encodings of its three parts. They are
/// a 32-bit distance from the field, 32 bits, and 32-bit distances from the header. For any other
/// form, framehop's own lookup is used.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// Offset of the header's list, and length of one pair in it, in bytes.
const LIST: usize = 12;
const PAIR: usize = 8;

/// A header for one entry, as words of 32 bits.
pub(crate) type Header = [u32; 5];

/// The frame table of a module; see the module's text.
pub(crate) struct FrameTable {
    /// First address of the module (avma).
    start: u64,
    /// `.eh_frame_hdr`.
    header: Table,
    header_at: u64,
    /// `.eh_frame`.
    table: Table,
    table_at: u64,
}

impl FrameTable {
    /// Returns the table of the module at these addresses. `header` and `table` come with their
    /// mapped addresses.
    pub(crate) fn new(
        module: &Range<u64>,
        (header, header_at): (Table, &Range<u64>),
        (table, table_at): (Table, &Range<u64>),
    ) -> FrameTable {
        FrameTable {
            start: module.start,
            header,
            header_at: header_at.start,
            table,
            table_at: table_at.start,
        }
    }

    /// Returns a header for the entry of the address that this thread's walk has reached. It is
    /// empty if that entry must not be used. It is the module's own header if the entry is not
    /// found.
    #[cold]
    pub(crate) fn header_for_wanted_rule(&self) -> &[u8] {
        let thread = thread::current();
        // No module that framehop searches is larger than the lower half can express.
        let offset = thread.rule_wanted_for.get().wrapping_sub(self.start as u32);
        let Some((header, at)) = self.entry_of(self.start + u64::from(offset)) else {
            return &self.header;
        };
        if self.jumps_back(at) == Some(true) {
            return &[];
        }
        thread.unwind_header.set(header);
        let bytes = thread.unwind_header.as_ptr().cast::<u8>().cast_const();
        // SAFETY: the thread's own words, which live as long as the thread. framehop reads them
        // before its one call returns. Nothing changes them meanwhile: a signal handler of this
        // thread starts no walk inside our code (`Thread::enter`).
        unsafe { std::slice::from_raw_parts(bytes, size_of::<Header>()) }
    }

    /// Returns true if an expression of the entry at `at` jumps backwards. `None`: the entry is
    /// damaged, which framehop will find, too.
    fn jumps_back(&self, at: usize) -> Option<bool> {
        let table: &[u8] = &self.table;
        let entry = FrameEntry::at(table, at)?;
        let common = FrameEntry::at(table, entry.common?)?;
        let (mut own, common) = (Bytes(table.get(entry.rest)?), table.get(common.rest)?);
        if !may_jump_back(own.0) && !may_jump_back(common) {
            return Some(false); // the frequent case, much cheaper than decoding
        }
        let Some((pointer, common)) = common_part(Bytes(common)) else {
            // The form is unusual, so a jump may be anywhere.
            return Some(may_jump_back(own.0) || may_jump_back(common));
        };
        // Skips the function's address and length, and the augmentation data.
        own.skip(2 * pointer)?;
        let added = own.number()?;
        own.skip(added)?;
        match any_jumps_back(common) {
            Some(true) => Some(true),
            _ => any_jumps_back(own),
        }
    }

    /// Returns the last entry that begins at or before the address: a header for it alone, and its
    /// offset in `.eh_frame`.
    fn entry_of(&self, address: u64) -> Option<(Header, usize)> {
        let header: &[u8] = &self.header;
        if header.get(..4)? != HEADER {
            return None;
        }
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?))
        };
        let list = header.get(LIST..)?.as_chunks::<PAIR>().0;
        let list = &list[..list.len().min(word(8)? as usize)];
        let wanted = i32::try_from(address.wrapping_sub(self.header_at) as i64).ok()?;
        let first = |pair: &[u8; PAIR]| i32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
        let after = list.partition_point(|pair| first(pair) <= wanted);
        let pair = list.get(after.checked_sub(1)?)?;
        let entry = i32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]);
        let alone = [word(0)?, word(4)?, 1, first(pair) as u32, entry as u32];
        let entry = self.header_at.wrapping_add_signed(entry.into());
        let at = usize::try_from(entry.checked_sub(self.table_at)?).ok()?;
        Some((alone, at))
    }
}

/// The offsets of an entry's parts in the table.
struct FrameEntry {
    /// The part after its length and its id.
    rest: Range<usize>,
    /// The entry's CIE, which it shares with others; `None`: the entry is a CIE itself.
    common: Option<usize>,
}

impl FrameEntry {
    fn at(table: &[u8], at: usize) -> Option<FrameEntry> {
        let word = |at: usize| -> Option<usize> {
            let bytes = table.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let (id_at, len) = match word(at)? {
            // The long form: eight bytes of length follow. This length exceeds any table here.
            0xffff_ffff => (at + 12, word(at + 4)?),
            len => (at + 4, len),
        };
        let common = match word(id_at)? {
            0 => None,
            distance => Some(id_at.checked_sub(distance)?),
        };
        let end = id_at.saturating_add(len).min(table.len());
        Some(FrameEntry {
            rest: id_at + 4..end,
            common,
        })
    }
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn skip(&mut self, count: u64) -> Option<&'a [u8]> {
        let (skipped, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(skipped)
    }

    /// Reads a LEB128 number of either sign.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Some(number);
            }
            shift = shift.saturating_add(7);
        }
    }
}

/// Decodes a CIE: returns the size of its entries' addresses in bytes, and its instructions.
/// `None`: it is damaged, or of a form that compilers do not make.
fn common_part(mut entry: Bytes<'_>) -> Option<(u64, Bytes<'_>)> {
    let version = entry.byte()?;
    let len = entry.0.iter().position(|&byte| byte == 0)?;
    let forms = entry.skip(len as u64)?;
    entry.byte()?;
    entry.number()?; // the code alignment
    entry.number()?; // the data alignment
    if version == 1 {
        entry.byte()?; // the return address register
    } else {
        entry.number()?;
    }
    let (&b'z', forms) = forms.split_first()? else {
        return None;
    };
    let added = entry.number()?;
    let mut added = Bytes(entry.skip(added)?);
    let size = |encoding: u8| match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    };
    let mut pointer = 8;
    for form in forms {
        match form {
            b'R' => pointer = size(added.byte()?)?,
            b'L' => _ = added.byte()?,
            b'P' => {
                let personality = size(added.byte()?)?;
                added.skip(personality)?;
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some((pointer, entry))
}

/// Returns true if an expression among these instructions jumps backwards. `None`: they cannot be
/// decoded further, and no earlier one jumps; framehop stops there, too.
fn any_jumps_back(mut instructions: Bytes<'_>) -> Option<bool> {
    while let Some(byte) = instructions.byte() {
        let instruction = match byte & 0xc0 {
            0 => dw::DwCfa(byte),
            high => dw::DwCfa(high), // the other bits have the operand
        };
        let (numbers, fixed, expression) = match instruction {
            dw::DW_CFA_nop
            | dw::DW_CFA_advance_loc
            | dw::DW_CFA_restore
            | dw::DW_CFA_remember_state
            | dw::DW_CFA_restore_state => (0, 0, false),
            dw::DW_CFA_advance_loc1 => (0, 1, false),
            dw::DW_CFA_advance_loc2 => (0, 2, false),
            dw::DW_CFA_advance_loc4 => (0, 4, false),
            dw::DW_CFA_offset
            | dw::DW_CFA_restore_extended
            | dw::DW_CFA_undefined
            | dw::DW_CFA_same_value
            | dw::DW_CFA_def_cfa_register
            | dw::DW_CFA_def_cfa_offset
            | dw::DW_CFA_def_cfa_offset_sf
            | dw::DW_CFA_GNU_args_size => (1, 0, false),
            dw::DW_CFA_offset_extended
            | dw::DW_CFA_offset_extended_sf
            | dw::DW_CFA_register
            | dw::DW_CFA_def_cfa
            | dw::DW_CFA_def_cfa_sf
            | dw::DW_CFA_val_offset
            | dw::DW_CFA_val_offset_sf => (2, 0, false),
            dw::DW_CFA_def_cfa_expression => (0, 0, true),
            dw::DW_CFA_expression | dw::DW_CFA_val_expression => (1, 0, true),
            // The rest cannot be decoded, so a jump may be anywhere.
            _ => return Some(may_jump_back(instructions.0)),
        };
        for _ in 0..numbers {
            instructions.number()?;
        }
        instructions.skip(fixed)?;
        if expression {
            let len = instructions.number()?;
            if may_jump_back(instructions.skip(len)?) {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// Returns true if there may be a backward jump anywhere in these bytes. Any offset counts, because
/// a forward jump may lead into the middle of an operation.
fn may_jump_back(bytes: &[u8]) -> bool {
    // The operation, then a signed distance of two bytes. No byte decides whether the next is read,
    // so the compiler can vectorize the loop.
    let operations = bytes.iter().zip(bytes.get(2..).unwrap_or(&[]));
    operations.fold(false, |found, (&operation, &high)| {
        let is_jump = (operation == dw::DW_OP_bra.0) | (operation == dw::DW_OP_skip.0);
        found | (is_jump & (high >= 0x80))
    })
}

/// Bytes of an unwind table: in place, or a copy, or a header that is made for each lookup.
#[derive(Clone)]
pub(crate) enum Table {
    InPlace(&'static [u8]),
    Copied(Arc<Vec<u8>>),
    Header(Arc<FrameTable>),
}

impl Default for Table {
    fn default() -> Self {
        Table::InPlace(&[])
    }
}

impl Deref for Table {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Table::InPlace(bytes) => bytes,
            Table::Copied(bytes) => bytes,
            Table::Header(frames) => frames.header_for_wanted_rule(),
        }
    }
}
