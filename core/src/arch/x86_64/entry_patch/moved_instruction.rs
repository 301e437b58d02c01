//! Moved instruction: an instruction that can run at another address, and how it is written there.
//!
//! An instruction depends on its address in three ways: it is a branch or call, it has an operand
//! relative to its address, or it shows its address to a handler (a trap). The first two are
//! rewritten, and the third is refused. Another instruction is copied if it is known to do nothing
//! but compute and access memory.
//!
//! A call is written as its two halves, a push and a jump:
//!
//! ```text
//!  call target     ──>     push [1f]
//!  r: ...                  jmp  target
//!                      1:  .quad r
//! ```
//!
//! So the return address is that in the function: the callee returns there, and unwinding finds the
//! function. A thread with a shadow stack cannot run this (see `EntryPatch::moves_call`).

use yaxpeax_x86::long_mode::{Instruction, Opcode, Operand, RegSpec, register_class};

use super::refusal::{Refusal, Unmovable};
use super::sweep::{Placed, is_relative, is_short_branch};

/// Bytes of an instruction with an operand relative to its address, no prefix and no immediate.
const RELATIVE: usize = 6;

/// Bytes of an address.
const WORD: usize = 8;

/// Bytes of a jump to a 64-bit address: `jmp [rip + 0]` and the address.
const FAR_JUMP: usize = RELATIVE + WORD;

/// Most bytes by which a short branch grows.
pub(super) const BRANCH_GROWTH: usize = 4;

/// Most bytes of the end of a trampoline: a call of a 64-bit address.
pub(super) const LONGEST_END: usize = RELATIVE + FAR_JUMP + WORD;

/// An instruction that can run at another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MovedInstruction {
    /// The address at which it lies in the function.
    address: u64,
    len: u8,
    form: Form,
}

/// How an instruction is written at another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is.
    Copy,
    /// With another displacement, which lies at this offset in the instruction.
    Relative { offset: u8 },
    /// As a jump to this address.
    Jump { target: u64 },
    /// As a conditional branch to this address. The condition is the low half of the opcode.
    Branch { condition: u8, target: u64 },
    /// As a push of the return address and a jump to this address.
    Call { target: u64 },
    /// As a push of the return address and a jump to the address in the word at this address.
    CallThrough { word: u64 },
}

impl MovedInstruction {
    /// Finds how an instruction is written at another address. `bytes` are the instruction's.
    pub(super) fn read(placed: &Placed, bytes: &[u8]) -> Result<MovedInstruction, Refusal> {
        let form = Form::read(placed, bytes).map_err(|why| Refusal::Unmovable {
            at: placed.address,
            why,
        })?;
        Ok(MovedInstruction {
            address: placed.address,
            len: placed.len as u8,
            form,
        })
    }

    /// Returns the address at which the instruction lies in the function.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the bytes of the instruction in the function.
    pub(super) fn len(&self) -> usize {
        self.len.into()
    }

    /// Returns true if the instruction is a call.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.form, Form::Call { .. } | Form::CallThrough { .. })
    }

    /// Writes the instruction. `bytes` are those from the instruction's start in the function on.
    pub(super) fn write(&self, bytes: &[u8], out: &mut Output<'_>) -> Result<(), Refusal> {
        let bytes = &bytes[..usize::from(self.len)];
        match self.form {
            Form::Copy => out.put(bytes),
            Form::Relative { offset } => {
                let place = usize::from(offset)..usize::from(offset) + 4;
                let mut moved = [0; super::LONGEST];
                let moved = &mut moved[..bytes.len()];
                moved.copy_from_slice(bytes);
                let target = relative_address(self.end(), &bytes[place.clone()]);
                let new = out.displacement(bytes.len(), target)?;
                moved[place].copy_from_slice(&new.to_le_bytes());
                out.put(moved)
            }
            Form::Jump { target } => write_jump(target, out),
            Form::Branch { condition, target } => {
                let [a, b, c, d] = out.displacement(6, target)?.to_le_bytes();
                out.put(&[0x0f, 0x80 | condition, a, b, c, d])
            }
            Form::Call { target } => {
                out.put(&push_word_behind(out.jump_len(target)))?;
                write_jump(target, out)?;
                out.put(&self.end().to_le_bytes())
            }
            Form::CallThrough { word } => {
                out.put(&push_word_behind(RELATIVE))?;
                let [a, b, c, d] = out.displacement(RELATIVE, word)?.to_le_bytes();
                out.put(&[0xff, 0x25, a, b, c, d])?;
                out.put(&self.end().to_le_bytes())
            }
        }
    }

    /// Returns the address behind the instruction in the function.
    fn end(&self) -> u64 {
        self.address.wrapping_add(self.len.into())
    }
}

impl Form {
    fn read(placed: &Placed, bytes: &[u8]) -> Result<Form, Unmovable> {
        let opcode = placed.instruction.opcode();
        match opcode {
            Opcode::CALL => match (placed.target(), bytes) {
                (Some(target), [0xe8, ..]) => Ok(Form::Call { target }),
                (None, [0xff, 0x15, displacement @ ..]) => Ok(Form::CallThrough {
                    word: relative_address(placed.end(), displacement),
                }),
                _ => Err(Unmovable::Call),
            },
            Opcode::XBEGIN => Err(Unmovable::Transaction),
            Opcode::INT | Opcode::INTO | Opcode::HLT => Err(Unmovable::Trap),
            Opcode::UD0 | Opcode::UD1 | Opcode::UD2 => Err(Unmovable::Trap),
            Opcode::SYSCALL | Opcode::SYSENTER => Err(Unmovable::Trap),
            _ if is_short_branch(opcode) => Err(Unmovable::ShortBranch),
            _ => match (placed.target(), bytes) {
                (Some(target), [0xeb, _] | [0xe9, _, _, _, _]) => Ok(Form::Jump { target }),
                (
                    Some(target),
                    [code @ 0x70..=0x7f, _] | [0x0f, code @ 0x80..=0x8f, _, _, _, _],
                ) => {
                    let condition = code & 0xf;
                    Ok(Form::Branch { condition, target })
                }
                (Some(_), _) if opcode == Opcode::JMP || opcode.is_jcc() => {
                    Err(Unmovable::PrefixedBranch)
                }
                _ if !is_plain(&placed.instruction) => Err(Unmovable::Unknown),
                _ if placed.is_relative() => place_of_displacement(placed, bytes)
                    .map(|offset| Form::Relative { offset })
                    .ok_or(Unmovable::Relative),
                _ => Ok(Form::Copy),
            },
        }
    }
}

/// Returns the address that a displacement of 32 bits has behind `end`.
fn relative_address(end: u64, displacement: &[u8]) -> u64 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(displacement);
    end.wrapping_add_signed(i32::from_le_bytes(bytes).into())
}

/// Returns a push of the word that lies `len` bytes behind it.
fn push_word_behind(len: usize) -> [u8; RELATIVE] {
    [0xff, 0x35, len as u8, 0, 0, 0]
}

/// Finds the displacement in the bytes of an instruction with an operand relative to its address.
///
/// The place is found by trial: another displacement is written there, and the decoder must see the
/// same instruction with that displacement. This needs no knowledge of prefixes and opcodes.
fn place_of_displacement(placed: &Placed, bytes: &[u8]) -> Option<u8> {
    /// A displacement of four different bytes. So it reads as another if it is written over a part
    /// of the real place.
    const TRIAL: i32 = 0x1234_5678;
    // Behind the displacement, there may be an immediate.
    (0..=4).find_map(|immediate| {
        let offset = bytes.len().checked_sub(4 + immediate)?;
        let mut changed = [0; super::LONGEST];
        let changed = changed.get_mut(..bytes.len())?;
        changed.copy_from_slice(bytes);
        changed[offset..offset + 4].copy_from_slice(&TRIAL.to_le_bytes());
        let changed = Placed::decode(changed, placed.address).ok()?;
        is_same_but_for(placed, &changed, TRIAL).then_some(offset as u8)
    })
}

/// Returns true if an instruction differs from another by nothing but that displacement.
fn is_same_but_for(placed: &Placed, changed: &Placed, displacement: i32) -> bool {
    let (old, new) = (&placed.instruction, &changed.instruction);
    let base = RegSpec::rip();
    let disp = displacement;
    old.opcode() == new.opcode()
        && placed.len == changed.len
        && old.prefixes == new.prefixes
        && old.operand_count() == new.operand_count()
        && (0..old.operand_count()).all(|index| match (old.operand(index), new.operand(index)) {
            (old, new) if is_relative(&old) => new == Operand::Disp { base, disp },
            (old, new) => old == new,
        })
}

/// The place to which moved instructions are written.
pub(super) struct Output<'a> {
    bytes: &'a mut [u8],
    len: usize,
    /// The address of the first byte.
    address: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(bytes: &'a mut [u8], address: u64) -> Output<'a> {
        Output {
            bytes,
            len: 0,
            address,
        }
    }

    /// Returns the number of bytes that are written.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let all = self.bytes.len();
        let there = (self.bytes.get_mut(self.len..))
            .and_then(|rest| rest.get_mut(..bytes.len()))
            .ok_or(Refusal::NoRoom { len: all })?;
        there.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Returns the bytes of a jump that is written next.
    fn jump_len(&self, target: u64) -> usize {
        match self.displacement(super::JUMP, target) {
            Ok(_) => super::JUMP,
            Err(_) => FAR_JUMP,
        }
    }

    /// Returns the displacement to `target` in the next instruction, of `len` bytes.
    fn displacement(&self, len: usize, target: u64) -> Result<i32, Refusal> {
        let from = self.address.wrapping_add(self.len as u64);
        displacement(from, len, target)
    }
}

/// Returns the displacement to `target` in an instruction of `len` bytes at `from`.
pub(super) fn displacement(from: u64, len: usize, target: u64) -> Result<i32, Refusal> {
    let distance = target.wrapping_sub(from.wrapping_add(len as u64)) as i64;
    i32::try_from(distance).map_err(|_| Refusal::OutOfReach { from, target })
}

/// Writes a jump to an address: with a 32-bit displacement if that reaches.
pub(super) fn write_jump(target: u64, out: &mut Output<'_>) -> Result<(), Refusal> {
    if let Ok(near) = out.displacement(super::JUMP, target) {
        let [a, b, c, d] = near.to_le_bytes();
        return out.put(&[0xe9, a, b, c, d]);
    }
    let mut far = [0; FAR_JUMP];
    far[..2].copy_from_slice(&[0xff, 0x25]);
    far[6..].copy_from_slice(&target.to_le_bytes());
    out.put(&far)
}

/// Returns true for a jump or return, and for an instruction that does nothing but compute and
/// access registers, flags and memory. No such instruction makes its own address known.
fn is_plain(instruction: &Instruction) -> bool {
    let opcode = instruction.opcode();
    let has_vector =
        || (0..instruction.operand_count()).any(|index| is_vector(&instruction.operand(index)));
    is_general(opcode) || opcode.is_cmovcc() || opcode.is_setcc() || has_vector()
}

/// Returns true for a vector register. All instructions that have one compute, or move data.
fn is_vector(operand: &Operand) -> bool {
    let (Operand::Register { reg } | Operand::RegisterMaskMerge { reg, .. }) = operand else {
        return false;
    };
    [register_class::X, register_class::Y, register_class::Z].contains(&reg.class())
}

/// Returns true for an instruction on general registers.
#[rustfmt::skip]
fn is_general(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        // Data.
        MOV | MOVZX | MOVSX | MOVSXD | MOVBE | XCHG | BSWAP | LEA | PUSH | POP | LEAVE | CBW | CWDE
            | CDQE | CWD | CDQ | CQO
        // Arithmetic.
            | ADD | ADC | SUB | SBB | INC | DEC | NEG | CMP | MUL | IMUL | DIV | IDIV | MULX
        // Bits.
            | AND | OR | XOR | NOT | TEST | ANDN | SHL | SAL | SHR | SAR | SHLD | SHRD | ROL | ROR
            | RCL | RCR | RORX | SARX | SHLX | SHRX | BT | BTS | BTR | BTC | BSF | BSR | TZCNT
            | LZCNT | POPCNT | BEXTR | BLSI | BLSMSK | BLSR | BZHI | PDEP | PEXT
        // Flags.
            | CLC | STC | CMC | CLD
        // Strings.
            | MOVS | STOS | LODS | SCAS | CMPS
        // Memory that threads share.
            | XADD | CMPXCHG | CMPXCHG8B | CMPXCHG16B | LFENCE | MFENCE | SFENCE
        // Hints, and the whole of the vector registers.
            | NOP | ENDBR64 | PREFETCH0 | PREFETCH1 | PREFETCH2 | PREFETCHNTA | PREFETCHW
            | VZEROUPPER | VZEROALL
        // No fall-through.
            | JMP | RETURN
    )
}
