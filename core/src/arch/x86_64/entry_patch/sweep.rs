//! Sweep: the instructions of a range of code, one behind the other.
//!
//! Not here: the meaning of a branch for a patch.

use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec, register_class};

use super::refusal::Refusal;

/// Most bytes of a range of code whose branches can be checked. Their starts take an eighth of this
/// on the stack.
const MOST_CODE: usize = 1 << 16;

/// An instruction and its place.
pub(super) struct Placed {
    pub(super) address: u64,
    pub(super) len: usize,
    pub(super) instruction: Instruction,
}

/// The way in which an instruction may transfer control.
pub(super) enum Transfer {
    /// A jump, conditional or not, to an address that the code tells.
    Branch(u64),
    /// A call of an address that the code tells.
    Call(u64),
    /// A jump to an address that is computed.
    Computed,
}

impl Placed {
    /// Decodes the instruction at the start of `code`, which runs at `address`.
    pub(super) fn decode(code: &[u8], address: u64) -> Result<Placed, Refusal> {
        let instruction = InstDecoder::default()
            .decode_slice(code)
            .map_err(|_| Refusal::NotDecodable { at: address })?;
        Ok(Placed {
            address,
            len: instruction.len().to_const() as usize,
            instruction,
        })
    }

    /// Returns the address behind the instruction.
    pub(super) fn end(&self) -> u64 {
        self.address.wrapping_add(self.len as u64)
    }

    /// Returns the target of a branch or call that the code tells.
    pub(super) fn target(&self) -> Option<u64> {
        let distance = match self.instruction.operand(0) {
            Operand::ImmediateI8 { imm } => i64::from(imm),
            Operand::ImmediateI16 { imm } => i64::from(imm),
            Operand::ImmediateI32 { imm } => i64::from(imm),
            _ => return None,
        };
        Some(self.end().wrapping_add_signed(distance))
    }

    /// Returns the way in which the instruction may transfer control, if it does.
    pub(super) fn transfer(&self) -> Option<Transfer> {
        match self.instruction.opcode() {
            Opcode::CALL => self.target().map(Transfer::Call),
            Opcode::JMP => match self.instruction.operand(0) {
                // A word that is read without an index is a pointer to a function.
                Operand::MemDeref { .. } | Operand::Disp { .. } => None,
                _ => Some(self.target().map_or(Transfer::Computed, Transfer::Branch)),
            },
            opcode if opcode.is_jcc() || is_short_branch(opcode) || opcode == Opcode::XBEGIN => {
                self.target().map(Transfer::Branch)
            }
            _ => None,
        }
    }

    /// Returns true if an operand is relative to the instruction's own address.
    pub(super) fn is_relative(&self) -> bool {
        (0..self.instruction.operand_count())
            .any(|index| is_relative(&self.instruction.operand(index)))
    }

    /// Returns true if the instruction is a jump to another function than the one at `entry`, of
    /// `len` bytes.
    pub(super) fn jumps_out_of(&self, entry: u64, len: usize) -> bool {
        let is_outside = |target: u64| target.wrapping_sub(entry) >= len as u64;
        self.instruction.opcode() == Opcode::JMP
            && (self.is_relative() || self.target().is_some_and(is_outside))
    }

    /// Returns true if the instruction fills gaps between functions.
    pub(super) fn is_filler(&self) -> bool {
        let is_breakpoint = self.instruction.opcode() == Opcode::INT && self.len == 1;
        is_breakpoint || self.instruction.opcode() == Opcode::NOP
    }

    /// Returns true if the instruction takes stack memory, as those of a prologue do.
    pub(super) fn takes_stack_memory(&self) -> bool {
        let is_stack_pointer =
            || self.instruction.operand(0) == Operand::Register { reg: RegSpec::q(4) };
        match self.instruction.opcode() {
            Opcode::PUSH | Opcode::PUSHF | Opcode::ENTER => true,
            Opcode::SUB | Opcode::ADD | Opcode::LEA | Opcode::AND => is_stack_pointer(),
            _ => false,
        }
    }

    /// Returns the register that holds the target of a jump.
    fn target_register(&self) -> Option<RegSpec> {
        match self.instruction.operand(0) {
            Operand::Register { reg } if self.instruction.opcode() == Opcode::JMP => Some(reg),
            _ => None,
        }
    }

    /// Returns true if the instruction reads a word into the register, without an index.
    fn loads(&self, register: RegSpec) -> bool {
        let is_word = matches!(
            self.instruction.operand(1),
            Operand::MemDeref { .. } | Operand::Disp { .. }
        );
        let to = Operand::Register { reg: register };
        self.instruction.opcode() == Opcode::MOV && is_word && self.instruction.operand(0) == to
    }

    /// Returns false if the instruction is known to leave the register as it is.
    fn may_change(&self, register: RegSpec) -> bool {
        let opcode = self.instruction.opcode();
        let changes_first_operand = match opcode {
            Opcode::TEST | Opcode::CMP | Opcode::PUSH | Opcode::NOP | Opcode::JMP => false,
            Opcode::MOV | Opcode::LEA | Opcode::POP | Opcode::XOR | Opcode::ADD | Opcode::SUB => {
                true
            }
            // The registers that other instructions change are not all operands.
            _ => return !opcode.is_jcc(),
        };
        let is_other = |reg: RegSpec| {
            // The registers of a byte have numbers of their own.
            reg.class() != register_class::B && reg.num() != register.num()
        };
        match self.instruction.operand(0) {
            Operand::Register { reg } if changes_first_operand => !is_other(reg),
            _ => false,
        }
    }

    /// Returns true if no execution goes on behind the instruction.
    pub(super) fn has_no_fall_through(&self) -> bool {
        matches!(self.instruction.opcode(), Opcode::JMP | Opcode::RETURN)
    }
}

/// Returns true for a conditional branch that has no form with a 32-bit displacement.
pub(super) fn is_short_branch(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::LOOP | Opcode::LOOPZ | Opcode::LOOPNZ | Opcode::JRCXZ | Opcode::JECXZ
    )
}

/// Returns true if an operand is relative to the instruction's own address.
pub(super) fn is_relative(operand: &Operand) -> bool {
    match operand {
        Operand::MemDeref { base }
        | Operand::Disp { base, .. }
        | Operand::MemDerefMasked { base, .. }
        | Operand::DispMasked { base, .. } => *base == RegSpec::rip() || *base == RegSpec::eip(),
        _ => false,
    }
}

/// Iterator over the instructions of a range of code. It ends at bytes that cannot be decoded.
pub(super) struct Sweep<'a> {
    code: &'a [u8],
    address: u64,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(code: &'a [u8], address: u64) -> Sweep<'a> {
        Sweep { code, address }
    }
}

impl Iterator for Sweep<'_> {
    type Item = Placed;

    fn next(&mut self) -> Option<Placed> {
        let placed = Placed::decode(self.code, self.address).ok()?;
        self.code = self.code.get(placed.len..)?;
        self.address = placed.end();
        Some(placed)
    }
}

/// Returns true if a jump in the code leads to a word that was read into a register without an
/// index, and no branch of the code leads between both.
pub(super) fn jumps_to_read_word(code: &[u8], address: u64, jump: &Placed) -> bool {
    let Some(register) = jump.target_register() else {
        return false;
    };
    let mut read_at = None;
    let before = Sweep::new(code, address).take_while(|placed| placed.address != jump.address);
    for placed in before {
        if placed.loads(register) {
            read_at = Some(placed.end());
        } else if placed.may_change(register) || placed.has_no_fall_through() {
            read_at = None;
        }
    }
    let Some(read_at) = read_at else {
        return false;
    };
    let is_between = |placed: Placed| {
        let branch = placed.transfer();
        matches!(branch, Some(Transfer::Branch(to)) if (read_at..=jump.address).contains(&to))
    };
    !Sweep::new(code, address).any(is_between)
}

/// The places at which instructions begin: one bit for each byte of the code.
pub(super) struct Starts {
    bits: [u64; MOST_CODE / 64],
}

impl Starts {
    /// Finds the starts of all instructions.
    ///
    /// # Errors
    /// If the code is too long, or cannot be decoded up to its end.
    pub(super) fn find(code: &[u8], address: u64) -> Result<Starts, Refusal> {
        if code.len() > MOST_CODE {
            return Err(Refusal::TooLong { len: code.len() });
        }
        let mut bits = [0; MOST_CODE / 64];
        let mut offset = 0;
        for placed in Sweep::new(code, address) {
            bits[offset / 64] |= 1 << (offset % 64);
            offset += placed.len;
        }
        if offset < code.len() {
            let at = address.wrapping_add(offset as u64);
            return Err(Refusal::NotDecodable { at });
        }
        Ok(Starts { bits })
    }

    /// Returns true if an instruction begins at that offset.
    pub(super) fn has(&self, offset: usize) -> bool {
        self.bits
            .get(offset / 64)
            .is_some_and(|bits| bits >> (offset % 64) & 1 == 1)
    }
}
