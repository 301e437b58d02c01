//! The frames' table (`.eh_frame`) of a module, without the entries that would never end.
//!
//! An entry may hold an expression, a small program, and that may jump backwards. framehop evaluates it to its end,
//! which an entry that is damaged, or made to harm, need not have; the thread would stand in malloc for ever. No
//! compiler or linker makes one that jumps backwards, so an entry with such an expression has no rule: the walk goes on
//! by the frame pointer, or ends and says so.
//!
//! framehop cannot be told so. But it asks for the bytes of the header, which leads to entries, whenever it has no rule in its
//! cache, and only then. It is at that moment that the entry is looked for and looked at, without gimli, whose general
//! decoding takes several times as long. What framehop is given is a header of that one entry, which it finds at once, or for a
//! bad entry an empty one. For which address it asks is in a word of the thread's, where the walk put it; the header of one
//! entry is in the thread's words too.
//!
//! ```text
//! .eh_frame_hdr   version encodings.. pointer:4 count:4 | (first address, entry):4+4 ... in order
//! .eh_frame       length:4 id:4 ... instructions         id 0: common to several entries; else the distance back to that
//! ```

use std::ops::Deref;
use std::ops::Range;
use std::sync::Arc;

use gimli::constants as dw;

use crate::state::thread;

/// The header as every linker writes it: a version, then how the three parts are encoded: a 32-bit distance from the
/// field, 32 bits, and 32-bit distances from the header. In any other form framehop's own look-up decides alone.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// Where its list begins, and the length of one pair of it, in bytes.
const LIST: usize = 12;
const PAIR: usize = 8;

/// A header of one entry, as words of 32 bits.
pub(crate) type Header = [u32; 5];

/// See the module's text.
pub(crate) struct Frames {
    /// First address of the module (avma).
    start: u64,
    /// `.eh_frame_hdr`.
    header: Table,
    header_at: u64,
    /// `.eh_frame`.
    table: Table,
    table_at: u64,
}

impl Frames {
    /// Of the module at these addresses; `header` and `table` with the addresses where they are mapped.
    pub(crate) fn new(
        module: &Range<u64>,
        (header, header_at): (Table, &Range<u64>),
        (table, table_at): (Table, &Range<u64>),
    ) -> Frames {
        Frames {
            start: module.start,
            header,
            header_at: header_at.start,
            table,
            table_at: table_at.start,
        }
    }

    /// A header for the address that this thread's walk has come to: of its entry alone. Empty if that must not be
    /// used; the module's own if the entry was not found.
    #[cold]
    pub(crate) fn header_for_sought(&self) -> &[u8] {
        let thread = thread::current();
        // No module that framehop looks into is larger than the lower half can say.
        let offset = thread.rule_wanted_for.get().wrapping_sub(self.start as u32);
        let Some((header, at)) = self.entry_of(self.start + u64::from(offset)) else {
            return &self.header;
        };
        if self.jumps_back(at) == Some(true) {
            return &[];
        }
        thread.unwind_header.set(header);
        let bytes = thread.unwind_header.as_ptr().cast::<u8>().cast_const();
        // SAFETY: the thread's own words, which live as long as it does. framehop reads them before its
        // one call returns, in which nothing sets them again: a signal handler of this thread's takes no walk meanwhile
        // (`Thread::enter`).
        unsafe { std::slice::from_raw_parts(bytes, size_of::<Header>()) }
    }

    /// Whether an expression of the entry there jumps backwards. `None`: it is damaged, as framehop will find too.
    fn jumps_back(&self, at: usize) -> Option<bool> {
        let table: &[u8] = &self.table;
        let entry = Entry::at(table, at)?;
        let common = Entry::at(table, entry.common?)?;
        let (mut own, common) = (Bytes(table.get(entry.rest)?), table.get(common.rest)?);
        if !may_jump_back(own.0) && !may_jump_back(common) {
            return Some(false); // nearly always, and a tenth of the work of reading instructions
        }
        let Some((pointer, common)) = common_part(Bytes(common)) else {
            // Of an unusual form: a jump may be anywhere.
            return Some(may_jump_back(own.0) || may_jump_back(common));
        };
        // Where the function begins, how long it is, and what the language adds.
        own.skip(2 * pointer)?;
        let added = own.number()?;
        own.skip(added)?;
        match any_jumps_back(common) {
            Some(true) => Some(true),
            _ => any_jumps_back(own),
        }
    }

    /// The last entry that begins at or before the address: a header of it alone, and its offset in `.eh_frame`.
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
        let rule_wanted_for = i32::try_from(address.wrapping_sub(self.header_at) as i64).ok()?;
        let first = |pair: &[u8; PAIR]| i32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
        let after = list.partition_point(|pair| first(pair) <= rule_wanted_for);
        let pair = list.get(after.checked_sub(1)?)?;
        let entry = i32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]);
        let alone = [word(0)?, word(4)?, 1, first(pair) as u32, entry as u32];
        let entry = self.header_at.wrapping_add_signed(entry.into());
        let at = usize::try_from(entry.checked_sub(self.table_at)?).ok()?;
        Some((alone, at))
    }
}

/// Where an entry's parts are in the table.
struct Entry {
    /// Behind its length and its id.
    rest: Range<usize>,
    /// The one that it shares with others; `None`: it is such a one itself.
    common: Option<usize>,
}

impl Entry {
    fn at(table: &[u8], at: usize) -> Option<Entry> {
        let word = |at: usize| -> Option<usize> {
            let bytes = table.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let (id_at, len) = match word(at)? {
            // The long form: the length follows, in eight bytes. It is longer than any table here.
            0xffff_ffff => (at + 12, word(at + 4)?),
            len => (at + 4, len),
        };
        let common = match word(id_at)? {
            0 => None,
            distance => Some(id_at.checked_sub(distance)?),
        };
        let end = id_at.saturating_add(len).min(table.len());
        Some(Entry {
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

    /// A LEB128 number, of whatever sign.
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

/// Of an entry that others share: how many bytes their addresses take, and its instructions. `None`: it is damaged, or of a form
/// that compilers do not make.
fn common_part(mut entry: Bytes<'_>) -> Option<(u64, Bytes<'_>)> {
    let version = entry.byte()?;
    let len = entry.0.iter().position(|&byte| byte == 0)?;
    let forms = entry.skip(len as u64)?;
    entry.byte()?;
    entry.number()?; // of the code's alignment
    entry.number()?; // of the data's
    if version == 1 {
        entry.byte()?; // the return address's register
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

/// Whether an expression among these instructions jumps backwards. `None`: they cannot be read on, and none did
/// before; framehop gives up there as well.
fn any_jumps_back(mut instructions: Bytes<'_>) -> Option<bool> {
    while let Some(byte) = instructions.byte() {
        let instruction = match byte & 0xc0 {
            0 => dw::DwCfa(byte),
            high => dw::DwCfa(high), // the operand is in the other bits
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
            // Of what follows nothing is known: a jump may be anywhere.
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

/// Whether a backward jump is somewhere in these bytes. Wherever: a jump forwards may lead into the middle of an
/// operation.
fn may_jump_back(bytes: &[u8]) -> bool {
    // The operation, then a signed distance of two bytes. No byte decides whether the next is looked at, so that many are at once.
    let operations = bytes.iter().zip(bytes.get(2..).unwrap_or(&[]));
    operations.fold(false, |found, (&operation, &high)| {
        let is_jump = (operation == dw::DW_OP_bra.0) | (operation == dw::DW_OP_skip.0);
        found | (is_jump & (high >= 0x80))
    })
}

/// Bytes of an unwind table: in place, or a copy; or a header's, which are made for each look-up.
#[derive(Clone)]
pub(crate) enum Table {
    InPlace(&'static [u8]),
    Copied(Arc<Vec<u8>>),
    Header(Arc<Frames>),
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
            Table::Header(frames) => frames.header_for_sought(),
        }
    }
}
