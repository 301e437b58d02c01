//! Entry patch: the plan to put a jump at a function's entry, and to run the replaced instructions
//! elsewhere.
//!
//! A jump with a 32-bit displacement replaces the first instructions of a function. These
//! instructions move to a trampoline: code nearby that ends with a jump to the first instruction
//! that stays. So a call of the trampoline is a call of the function as it is without the patch.
//!
//! ```text
//!  function                                     trampoline
//!        endbr64              stays
//!  at ─> push rbp           ┐                   push rbp
//!        mov  rbp, rsp      ├ moves ─────────>  mov  rbp, rsp
//!        mov  rax, [rip+x]  ┘                   mov  rax, [rip+y]   the same word
//!  resumes_at ─> ...         <────────────────  jmp  resumes_at
//! ```
//!
//! A plan is exact or refused. It holds if nothing but the entry leads into the replaced bytes. The
//! plan proves this for every direct branch and call of the code that it is given, in two passes.
//! The first marks where instructions begin, and the second checks that each branch inside the code
//! leads to such a place. So data between instructions cannot hide a branch.
//!
//! Three facts cannot be read from the function's own code, and are assumed:
//!
//! - A computed jump (through a jump table, or through a pointer in last position) never leads to
//!   the prologue: up to the last instruction that takes stack memory. A loop cannot run it twice.
//!   If other instructions are replaced, too, a function with such a jump is refused.
//! - No other code branches into the replaced bytes. A compiler may put rare paths of a function
//!   elsewhere (`name.cold`): [`EntryPatch::check_part`] checks such a part.
//! - No code reads the function's bytes as data.
//!
//! The moved instructions run with the same stack and the same registers as at the entry. So the
//! unwind rules of the entry's instructions hold for the same instructions in the trampoline.
//!
//! Not here: where a trampoline lies, how the bytes are written, and which threads run meanwhile.

mod moved_instruction;
mod refusal;
mod sweep;

pub use refusal::{Refusal, Unmovable};

use moved_instruction::{
    BRANCH_GROWTH, LONGEST_END, MovedInstruction, Output, displacement, write_jump,
};
use sweep::{Placed, Starts, Sweep, Transfer};

/// Bytes of a jump with a 32-bit displacement.
const JUMP: usize = 5;

/// Bytes of `endbr64`.
const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Most bytes of an instruction.
const LONGEST: usize = 15;

/// Most bytes that a patch replaces: the last moved instruction begins within the jump.
const MOST_REPLACED: usize = JUMP - 1 + LONGEST;

/// Functions are aligned to this many bytes at most, so padding between them ends there.
const ALIGNMENT: u64 = 16;

/// The plan to patch one function's entry. See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPatch {
    /// The function's first byte.
    entry: u64,
    at: u64,
    /// The replaced bytes. Those behind `len` are zero.
    bytes: [u8; MOST_REPLACED],
    len: u8,
    /// The moved instructions. Each takes a byte of the jump at least.
    moved: [Option<MovedInstruction>; JUMP],
    /// True if execution continues behind the moved instructions.
    continues: bool,
    /// True if moved instructions lie behind those that take stack memory.
    reaches_behind_prologue: bool,
    begins_with_jump: bool,
}

impl EntryPatch {
    /// Most bytes that [`EntryPatch::write_moved`] writes.
    ///
    /// At most three moved instructions are short branches, of two bytes each, which grow.
    pub const MOST_MOVED: usize = MOST_REPLACED + 3 * BRANCH_GROWTH + LONGEST_END;

    /// Plans the patch of a function.
    ///
    /// `code` is the whole function and runs at `address`. If the function is shorter than a jump,
    /// `code` may include the bytes up to the next multiple of 16: they count if they are padding.
    ///
    /// # Errors
    /// If the patch is not exact, or this cannot be proved.
    pub fn plan(code: &[u8], address: u64) -> Result<EntryPatch, Refusal> {
        let first = match code.starts_with(&LANDING_PAD) {
            true => LANDING_PAD.len(),
            false => 0,
        };
        let at = address.wrapping_add(first as u64);
        let mut patch = EntryPatch {
            entry: address,
            at,
            bytes: [0; MOST_REPLACED],
            len: 0,
            moved: [None; JUMP],
            continues: true,
            reaches_behind_prologue: false,
            begins_with_jump: false,
        };
        patch.take_instructions(code, first)?;
        patch.check(code, address, patch.begins_with_jump)?;
        Ok(patch)
    }

    /// Checks another piece of the same function: a part that the compiler puts elsewhere.
    ///
    /// # Errors
    /// If the part leads back into the replaced bytes, or this cannot be decided.
    pub fn check_part(&self, code: &[u8], address: u64) -> Result<(), Refusal> {
        self.check(code, address, false)
    }

    /// Returns the address at which the jump is written: the function's, or that behind `endbr64`.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns how many bytes are replaced: those of the jump, and the rest of the last
    /// instruction, which nothing executes any more.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Returns the bytes that are replaced.
    #[must_use]
    pub fn replaced(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Returns the address of the first instruction that stays, if execution reaches it: `None` if
    /// the moved instructions return or jump.
    #[must_use]
    pub fn resumes_at(&self) -> Option<u64> {
        let behind = self.at.wrapping_add(self.len.into());
        self.continues.then_some(behind)
    }

    /// Returns true if a single instruction moves. Then no thread can stand between two of them.
    #[must_use]
    pub fn is_one_instruction(&self) -> bool {
        self.moved.iter().flatten().count() == 1
    }

    /// Returns true if the jump lies within one aligned word of 8 bytes, which one store can write.
    #[must_use]
    pub fn is_in_one_word(&self) -> bool {
        self.at % 8 + JUMP as u64 <= 8
    }

    /// Returns true if a call moves. The trampoline pushes the return address and jumps, so that
    /// the callee returns into the function. A thread with a shadow stack cannot return this way.
    #[must_use]
    pub fn moves_call(&self) -> bool {
        (self.moved.iter().flatten()).any(MovedInstruction::is_call)
    }

    /// Returns true if the function begins with a jump out of it: it is patched already, or it is
    /// another name of that function.
    #[must_use]
    pub fn begins_with_jump(&self) -> bool {
        self.begins_with_jump
    }

    /// Returns the jump to `target`, to be written at [`EntryPatch::at`].
    ///
    /// # Errors
    /// If the target is out of reach.
    pub fn jump(&self, target: u64) -> Result<[u8; JUMP], Refusal> {
        let [a, b, c, d] = displacement(self.at, JUMP, target)?.to_le_bytes();
        Ok([0xe9, a, b, c, d])
    }

    /// Writes the moved instructions, as they run at `trampoline`, and the jump to the first
    /// instruction that stays. Returns the number of bytes, at most [`EntryPatch::MOST_MOVED`].
    ///
    /// # Errors
    /// If an operand or the target of a branch is out of reach, or `out` is too small.
    pub fn write_moved(&self, trampoline: u64, out: &mut [u8]) -> Result<usize, Refusal> {
        let mut out = Output::new(out, trampoline);
        let mut bytes = &self.bytes[..];
        for moved in self.moved.iter().flatten() {
            moved.write(bytes, &mut out)?;
            bytes = &bytes[moved.len()..];
        }
        if let Some(resumes_at) = self.resumes_at().filter(|_| !self.moves_call()) {
            write_jump(resumes_at, &mut out)?;
        }
        Ok(out.len())
    }

    /// Takes the instructions behind offset `first` of the function until a jump has room.
    fn take_instructions(&mut self, code: &[u8], first: usize) -> Result<(), Refusal> {
        let rest = &code[first..];
        let mut room = 0;
        for slot in &mut self.moved {
            if room >= JUMP || !self.continues {
                break;
            }
            let bytes = &rest[room..];
            if bytes.is_empty() {
                return Err(Refusal::TooShort { room });
            }
            let placed = Placed::decode(bytes, self.at.wrapping_add(room as u64))?;
            if room == 0 {
                self.begins_with_jump = placed.jumps_out_of(self.entry, code.len());
            }
            *slot = Some(MovedInstruction::read(&placed, &bytes[..placed.len])?);
            self.reaches_behind_prologue = !placed.takes_stack_memory();
            self.continues = !placed.ends_the_line();
            room += placed.len;
        }
        if room < JUMP {
            room += padding(&rest[room..], self.at.wrapping_add(room as u64));
        }
        let replaced = &rest[..room];
        if room < JUMP {
            return Err(Refusal::TooShort { room });
        }
        self.bytes[..room].copy_from_slice(replaced);
        self.len = room as u8;
        Ok(())
    }

    /// Checks that a piece of code does not lead into the replaced bytes. If `is_cut`, the code may
    /// hold the rest of an instruction that another patch has cut.
    fn check(&self, code: &[u8], address: u64, is_cut: bool) -> Result<(), Refusal> {
        let starts = match Starts::mark(code, address) {
            Ok(starts) => Some(starts),
            Err(Refusal::NotDecodable { .. }) if is_cut => None,
            Err(refusal) => return Err(refusal),
        };
        for placed in Sweep::new(code, address) {
            let at = placed.address;
            let target = match placed.transfer() {
                None => continue,
                Some(Transfer::Computed) if self.is_last_moved(&placed) => continue,
                Some(Transfer::Computed) if !self.reaches_behind_prologue => continue,
                Some(Transfer::Computed) => return Err(Refusal::ComputedJump { at }),
                // A recursive call is a call like any other.
                Some(Transfer::Call(target)) if target == self.entry || target == self.at => {
                    continue;
                }
                Some(Transfer::Call(target) | Transfer::Branch(target)) => target,
            };
            let replaced_end = self.at.wrapping_add(self.len.into());
            if offset_in(target, self.entry, replaced_end).is_some() {
                return Err(Refusal::BranchBack { at, target });
            }
            let inside = offset_in(target, address, address.wrapping_add(code.len() as u64));
            let overlaps = |offset| starts.as_ref().is_some_and(|starts| !starts.has(offset));
            if !is_cut && inside.is_some_and(overlaps) {
                return Err(Refusal::Overlap { at, target });
            }
        }
        Ok(())
    }

    /// Returns true if an instruction is the last one that moves.
    fn is_last_moved(&self, placed: &Placed) -> bool {
        let last = self.moved.iter().flatten().last();
        last.is_some_and(|last| last.address() == placed.address)
    }
}

/// Returns the offset of `address` behind `start`, if it lies before `end`.
fn offset_in(address: u64, start: u64, end: u64) -> Option<usize> {
    let offset = address.wrapping_sub(start);
    (offset < end.wrapping_sub(start)).then_some(offset as usize)
}

/// Returns the bytes of padding at the end of a straight line, as far as a jump needs them.
///
/// Nothing falls through to these bytes, and the check finds a branch that leads to them. They are
/// padding if instructions that compilers fill gaps with reach up to the end of the code, or to the
/// next place where functions are aligned.
fn padding(code: &[u8], address: u64) -> usize {
    let gap = (address.wrapping_neg() % ALIGNMENT) as usize;
    let gap = &code[..code.len().min(gap)];
    let fillers = || Sweep::new(gap, address).take_while(Placed::is_filler);
    if fillers().map(|filler| filler.len).sum::<usize>() < gap.len() {
        return 0;
    }
    let mut len = 0;
    for filler in fillers().take_while(|filler| filler.address.wrapping_sub(address) < JUMP as u64)
    {
        len += filler.len;
    }
    len
}
