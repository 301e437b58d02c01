//! The frames' table (`.eh_frame`) of a module, without the entries that would never end.
//!
//! An entry may hold an expression, a small program, and that may jump backwards. framehop evaluates it to its end,
//! which an entry that is damaged, or made to harm, need not have; the thread would stand in malloc for ever. No
//! compiler or linker makes one that jumps backwards, so an entry with such an expression has no rule: the walk goes on
//! by the frame pointer, or ends and says so.
//!
//! framehop cannot be told so. But it asks for the table's bytes whenever it has no rule in its cache, and only
//! then; it is at that moment that the entry is looked at, which takes about as long as its own look-up, and that for
//! a bad one there are no bytes. For which address it asks is in a word of the thread's, where the walk put it.

use std::ops::Range;

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, EhFrame, EhFrameHdr,
    EndianSlice, LittleEndian, UnwindSection,
};

use crate::modules::Table;
use crate::tls;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// See the module's text.
pub(crate) struct Frames {
    /// First address of the module (avma).
    start: u64,
    /// `.eh_frame_hdr`: leads from addresses to entries.
    header: Table,
    /// `.eh_frame`.
    table: Table,
    bases: BaseAddresses,
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
            table,
            bases: BaseAddresses::default()
                .set_eh_frame_hdr(header_at.start)
                .set_eh_frame(table_at.start)
                .set_text(0)
                .set_got(0),
        }
    }

    /// The table for the address that this thread's walk has come to; empty if that one's entry must not be used.
    #[cold]
    pub(crate) fn for_sought(&self) -> &[u8] {
        let sought = tls::current().sought.get();
        // No module that framehop looks into is larger than the lower half can say.
        let address = self.start + u64::from(sought.wrapping_sub(self.start as u32));
        if self.jumps_back(address) == Some(true) {
            &[]
        } else {
            &self.table
        }
    }

    /// Whether an expression of the address's entry jumps backwards. `None`: it has no entry, or a damaged one, as
    /// framehop will find too.
    fn jumps_back(&self, address: u64) -> Option<bool> {
        let header = EhFrameHdr::new(&self.header, LittleEndian);
        let header = header.parse(&self.bases, 8).ok()?;
        let table = header.table()?;
        let pointer = table.lookup(address, &self.bases).ok()?;
        let at = table.pointer_to_offset(pointer).ok()?;
        let bytes: &[u8] = &self.table;
        // Most have no bytes that could be a jump.
        let (entry, common) = entry(bytes, at.0)?;
        if !may_jump_back(entry) && !may_jump_back(common) {
            return Some(false);
        }
        self.expression_jumps_back(bytes, at)
    }

    #[cold]
    #[inline(never)]
    fn expression_jumps_back(&self, bytes: &[u8], at: gimli::EhFrameOffset) -> Option<bool> {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let fde = section
            .fde_from_offset(&self.bases, at, EhFrame::cie_from_offset)
            .ok()?;
        Some(
            any_jumps_back(fde.instructions(&section, &self.bases), &section)
                || any_jumps_back(fde.cie().instructions(&section, &self.bases), &section),
        )
    }
}

/// Whether an expression among these instructions jumps backwards. Up to the first that cannot be read, for which
/// framehop gives up as well.
fn any_jumps_back(
    mut instructions: CallFrameInstructionIter<'_, Bytes<'_>>,
    section: &EhFrame<Bytes<'_>>,
) -> bool {
    while let Ok(Some(instruction)) = instructions.next() {
        let (CallFrameInstruction::DefCfaExpression { expression }
        | CallFrameInstruction::Expression { expression, .. }
        | CallFrameInstruction::ValExpression { expression, .. }) = instruction
        else {
            continue;
        };
        if expression
            .get(section)
            .is_ok_and(|expression| may_jump_back(expression.0.slice()))
        {
            return true;
        }
    }
    false
}

/// Whether a backward jump is somewhere in these bytes. Wherever: a jump forwards may lead into the middle of an
/// operation.
fn may_jump_back(bytes: &[u8]) -> bool {
    // The operation, then a signed distance of two bytes.
    let is_jump = |byte| byte == gimli::DW_OP_bra.0 || byte == gimli::DW_OP_skip.0;
    bytes.windows(3).any(|w| is_jump(w[0]) && w[2] >= 0x80)
}

/// The bytes of the entry there and of the one that it shares with others; `None`: there is none.
fn entry(table: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    let word = |at: usize| {
        let bytes = table.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let body = |at: usize| {
        let (begin, len) = match word(at)? {
            // The long form: the length follows, in eight bytes. Which, framehop sees.
            0xffff_ffff => (at + 12, table.len()),
            len => (at + 4, len),
        };
        Some(begin..begin.saturating_add(len).min(table.len()))
    };
    let own = body(at)?;
    // It begins with the distance back to the other.
    let common = body(own.start.checked_sub(word(own.start)?)?)?;
    Some((table.get(own)?, table.get(common)?))
}
