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
//! The first finds where instructions begin, and the second checks that each branch inside the code
//! leads to such a place. So data between instructions cannot hide a branch.
//!
//! Three facts cannot be read from the function's own code, and are assumed:
//!
//! - A computed jump (through a jump table, or to an address in a register) never leads to the
//!   prologue: the instructions up to one that takes stack memory. No loop runs a prologue twice.
//!   If the last replaced instruction takes no stack memory, a function with such a jump is
//!   refused. A jump through a word that is read without an index, into a register or not, is a
//!   call in last position.
//! - No other code branches into the replaced bytes. A compiler may put rare paths of a function
//!   elsewhere (`name.cold`): [`EntryPatch::check_part`] checks such a part. Functions in assembly
//!   may share their ends: [`EntryPatch::check_other`] checks other functions.
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
use sweep::{Placed, Starts, Sweep, Transfer, jumps_to_read_word};

/// Bytes of a jump with a 32-bit displacement.
const JUMP: usize = 5;

/// Bytes of `endbr64`.
const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Most bytes of an instruction.
const LONGEST: usize = 15;

/// Most bytes that a patch replaces: the last moved instruction begins within the jump.
const MOST_REPLACED: usize = JUMP - 1 + LONGEST;

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

    /// Functions are aligned to this many bytes at most, so padding between them ends there.
    pub const ALIGNMENT: u64 = 16;

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

    /// Checks another part of the same function, which the compiler puts elsewhere.
    ///
    /// # Errors
    /// If the part leads back into the replaced bytes, or this cannot be decided.
    pub fn check_part(&self, code: &[u8], address: u64) -> Result<(), Refusal> {
        self.check(code, address, false)
    }

    /// Checks code of other functions, which may be as much as all code of a module. Such code may
    /// jump to the function's entry, as it may call it. Bytes that cannot be decoded are skipped.
    ///
    /// # Errors
    /// If the code leads into the replaced bytes.
    pub fn check_other(&self, code: &[u8], address: u64) -> Result<(), Refusal> {
        let mut offset = 0;
        while offset < code.len() {
            let at = address.wrapping_add(offset as u64);
            let Ok(placed) = Placed::decode(&code[offset..], at) else {
                offset += 1;
                continue;
            };
            match placed.transfer() {
                Some(Transfer::Branch(target) | Transfer::Call(target))
                    if !self.is_entry(target) && self.replaces(target) =>
                {
                    return Err(Refusal::BranchBack { at, target });
                }
                _ => offset += placed.len,
            }
        }
        Ok(())
    }

    /// Returns the address at which the jump is written: the function's, or that behind `endbr64`.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns how many bytes are replaced: those of the jump, and the rest of the last
    /// instruction. Nothing executes that rest any more.
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

    /// Returns true if a call moves. The trampoline pushes the return address and jumps, so the
    /// callee returns into the function. A thread with a shadow stack cannot return this way.
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
            self.continues = !placed.has_no_fall_through();
            room += placed.len;
        }
        if room < JUMP {
            let behind = self.at.wrapping_add(room as u64);
            room += padding(&rest[room..], behind, JUMP - room);
        }
        let replaced = &rest[..room];
        if room < JUMP {
            return Err(Refusal::TooShort { room });
        }
        self.bytes[..room].copy_from_slice(replaced);
        self.len = room as u8;
        Ok(())
    }

    /// Checks that a range of code does not lead into the replaced bytes. If `is_cut`, the code may
    /// hold the rest of an instruction that another patch has cut.
    fn check(&self, code: &[u8], address: u64, is_cut: bool) -> Result<(), Refusal> {
        let starts = match Starts::find(code, address) {
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
                Some(Transfer::Computed) if jumps_to_read_word(code, address, &placed) => continue,
                Some(Transfer::Computed) => return Err(Refusal::ComputedJump { at }),
                // A recursive call is a call like any other.
                Some(Transfer::Call(target)) if self.is_entry(target) => continue,
                Some(Transfer::Call(target) | Transfer::Branch(target)) => target,
            };
            if self.replaces(target) {
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

    /// Returns true for an address at which callers enter the function.
    fn is_entry(&self, address: u64) -> bool {
        address == self.entry || address == self.at
    }

    /// Returns true for the address of a replaced byte, or of one that leads to these.
    fn replaces(&self, address: u64) -> bool {
        let end = self.at.wrapping_add(self.len.into());
        offset_in(address, self.entry, end).is_some()
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

/// Returns how many bytes of padding behind an instruction without fall-through are replaced, if a
/// jump needs `needed`.
///
/// Nothing falls through to these bytes, and the check finds a branch that leads to them. They are
/// padding if instructions that compilers fill gaps with reach up to the end of the code, or to the
/// next place where functions are aligned.
fn padding(code: &[u8], address: u64, needed: usize) -> usize {
    let gap = (address.wrapping_neg() % EntryPatch::ALIGNMENT) as usize;
    let gap = &code[..code.len().min(gap)];
    let fillers = || Sweep::new(gap, address).take_while(Placed::is_filler);
    if fillers().map(|filler| filler.len).sum::<usize>() < gap.len() {
        return 0;
    }
    let mut len = 0;
    for filler in fillers() {
        if len >= needed {
            break;
        }
        len += filler.len;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where the functions run, on an aligned address as compilers place them, and where their
    /// instructions move to.
    const AT: u64 = 0x40_1000;
    const TRAMPOLINE: u64 = 0x50_0000;

    fn plan(code: &[u8]) -> EntryPatch {
        EntryPatch::plan(code, AT).expect("a plan")
    }

    fn refusal(code: &[u8]) -> Refusal {
        EntryPatch::plan(code, AT).expect_err("a refusal")
    }

    fn why(code: &[u8]) -> Unmovable {
        match refusal(code) {
            Refusal::Unmovable { why, .. } => why,
            other => panic!("{other}"),
        }
    }

    fn moved_to(trampoline: u64, patch: &EntryPatch) -> Vec<u8> {
        let mut out = [0; EntryPatch::MOST_MOVED];
        let len = patch.write_moved(trampoline, &mut out).expect("in reach");
        out[..len].to_vec()
    }

    /// Returns the moved instructions, without the jump back.
    fn moved(code: &[u8]) -> Vec<u8> {
        let patch = plan(code);
        let mut moved = moved_to(TRAMPOLINE, &patch);
        let back = moved.split_off(moved.len() - JUMP);
        let from = TRAMPOLINE + moved.len() as u64 + JUMP as u64;
        let resumes_at = patch.resumes_at().expect("execution continues");
        assert_eq!(back, [&[0xe9][..], &near(from, resumes_at)].concat());
        moved
    }

    /// Returns the displacement from the end of an instruction to a target.
    fn near(end: u64, target: u64) -> [u8; 4] {
        (target.wrapping_sub(end) as i32).to_le_bytes()
    }

    fn joined(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    /// The drawing in the module's text.
    #[test]
    fn a_prologue_moves_and_the_landing_pad_stays() {
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, // endbr64
            0x55, // push rbp
            0x48, 0x89, 0xe5, // mov rbp, rsp
            0x48, 0x8b, 0x05, 0x00, 0x01, 0x00, 0x00, // mov rax, [rip + 0x100]
            0x5d, 0xc3, // pop rbp; ret
        ];
        let patch = plan(&code);
        assert_eq!((patch.at(), patch.len()), (AT + 4, 11));
        assert_eq!(patch.replaced(), &code[4..15]);
        assert_eq!(patch.resumes_at(), Some(AT + 15));
        assert!(!patch.is_one_instruction() && !patch.begins_with_jump() && !patch.moves_call());
        // Bytes 4 to 8 of a word.
        assert!(!patch.is_in_one_word());
        let word = AT + 15 + 0x100;
        let same = joined(&[
            &code[4..8],
            &[0x48, 0x8b, 0x05],
            &near(TRAMPOLINE + 11, word),
        ]);
        assert_eq!(moved(&code), same);
    }

    #[test]
    fn a_jump_reaches_as_far_as_its_displacement() {
        let patch = plan(&[0x48, 0x83, 0xec, 0x18, 0x90, 0xc3]); // sub rsp, 24; nop; ret
        let reach = i64::from(i32::MAX);
        let last = (AT + 5).wrapping_add_signed(reach);
        assert_eq!(patch.jump(last), Ok([0xe9, 0xff, 0xff, 0xff, 0x7f]));
        assert_eq!(patch.jump(AT), Ok([0xe9, 0xfb, 0xff, 0xff, 0xff]));
        let (from, target) = (AT, last + 1);
        assert_eq!(
            patch.jump(target),
            Err(Refusal::OutOfReach { from, target })
        );
    }

    #[test]
    fn places_in_a_word() {
        let code = [0xb8, 1, 0, 0, 0, 0xc3]; // mov eax, 1; ret
        let in_one = |offset| {
            let patch = EntryPatch::plan(&code, AT + offset).expect("a plan");
            assert!(patch.is_one_instruction());
            patch.is_in_one_word()
        };
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7].map(in_one),
            [true, true, true, true, false, false, false, false]
        );
    }

    #[test]
    fn displacements_before_an_immediate() {
        // The instruction without its displacement, its displacement's place, and the rest.
        for (head, tail) in [
            (&[0x80, 0x3d][..], &[0x00][..]),        // cmp byte [rip + x], 0
            (&[0x48, 0xc7, 0x05], &[5, 0, 0, 0]),    // mov qword [rip + x], 5
            (&[0x66, 0xc7, 0x05], &[5, 0]),          // mov word [rip + x], 5
            (&[0x64, 0x48, 0x8b, 0x05], &[]),        // mov rax, fs:[rip + x]
            (&[0xf0, 0x0f, 0xb1, 0x0d], &[]),        // lock cmpxchg [rip + x], ecx
            (&[0x0f, 0x28, 0x05], &[]),              // movaps xmm0, [rip + x]
            (&[0xc5, 0xf9, 0x6f, 0x05], &[]),        // vmovdqa xmm0, [rip + x]
            (&[0xc4, 0xe3, 0x79, 0x0f, 0x05], &[4]), // vpalignr xmm0, xmm0, [rip + x], 4
            (&[0x62, 0xf1, 0x7c, 0x48, 0x28, 0x05], &[]), // vmovaps zmm0, [rip + x]
        ] {
            for displacement in [0, -1, 0x1234_5678, i32::from_le_bytes([5; 4])] {
                let code = joined(&[head, &displacement.to_le_bytes(), tail, &[0xc3]]);
                let len = code.len() as u64 - 1;
                let word = (AT + len).wrapping_add_signed(displacement.into());
                let new = near(TRAMPOLINE + len, word);
                assert_eq!(moved(&code), joined(&[head, &new, tail]), "{code:x?}");
            }
        }
    }

    #[test]
    fn short_branches_grow() {
        let code = [
            0x85, 0xff, // test edi, edi
            0x74, 0x05, // jz +5
            0x31, 0xc0, // xor eax, eax
            0xc3, 0x90, 0x90, // ret
            0x90, 0xc3,
        ];
        let target = AT + 9;
        let jz = joined(&[&[0x0f, 0x84], &near(TRAMPOLINE + 8, target)]);
        assert_eq!(moved(&code), joined(&[&code[..2], &jz, &code[4..6]]));
    }

    #[test]
    fn long_branches_keep_their_target() {
        let code = [0x0f, 0x8f, 0x10, 0, 0, 0, 0xc3]; // jg +16; ret
        let jg = joined(&[&[0x0f, 0x8f], &near(TRAMPOLINE + 6, AT + 22)]);
        assert_eq!(moved(&code), jg);
    }

    #[test]
    fn a_function_that_is_a_jump_needs_no_way_back() {
        // jmp +0x100, and the rest of an instruction that a patch has cut.
        for rest in [&[][..], &[0x0f], &[0xcc, 0xcc], &[0x06, 0x07]] {
            let code = joined(&[&[0xe9, 0, 1, 0, 0], rest]);
            let patch = plan(&code);
            assert!(patch.begins_with_jump() && patch.is_one_instruction());
            assert_eq!((patch.len(), patch.resumes_at()), (5, None));
            let jump = joined(&[&[0xe9], &near(TRAMPOLINE + 5, AT + 0x105)]);
            assert_eq!(moved_to(TRAMPOLINE, &patch), jump);
        }
        // Far away, with a 64-bit address.
        let patch = plan(&[0xe9, 0, 1, 0, 0]);
        let far = joined(&[&[0xff, 0x25, 0, 0, 0, 0], &(AT + 0x105).to_le_bytes()]);
        assert_eq!(moved_to(1 << 40, &patch), far);
        // jmp [rip + 0], and the address.
        let code = joined(&[
            &[0xff, 0x25, 0, 0, 0, 0],
            &0x7fff_0706_0606_0606_u64.to_le_bytes(),
        ]);
        let patch = plan(&code);
        assert!(patch.begins_with_jump() && patch.resumes_at().is_none());
        let same_word = joined(&[&[0xff, 0x25], &near(TRAMPOLINE + 6, AT + 6)]);
        assert_eq!(moved_to(TRAMPOLINE, &patch), same_word);
        // A jump within the function is not a jump to another one.
        let code = [0xe9, 1, 0, 0, 0, 0xcc, 0xc3];
        assert!(!plan(&code).begins_with_jump());
    }

    #[test]
    fn a_far_trampoline_returns_by_a_long_address() {
        let patch = plan(&[0x48, 0x83, 0xec, 0x18, 0x90, 0xc3]); // sub rsp, 24; nop; ret
        let moved = moved_to(1 << 40, &patch);
        assert_eq!(moved[..7], [0x48, 0x83, 0xec, 0x18, 0x90, 0xff, 0x25]);
        assert_eq!(moved[11..], (AT + 5).to_le_bytes());
        // A relative operand cannot follow so far.
        let patch = plan(&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xc3]);
        let mut out = [0; EntryPatch::MOST_MOVED];
        assert_eq!(
            patch.write_moved(1 << 40, &mut out),
            Err(Refusal::OutOfReach {
                from: 1 << 40,
                target: AT + 0x107
            })
        );
    }

    #[test]
    fn a_moved_call_returns_into_the_function() {
        // push rbx; mov rbx, rdi; call +0x100; pop rbx; ret
        let code = [0x53, 0x48, 0x89, 0xfb, 0xe8, 0, 1, 0, 0, 0x5b, 0xc3];
        let patch = plan(&code);
        assert!(patch.moves_call());
        assert_eq!(patch.resumes_at(), Some(AT + 9));
        let pushed = [0xff, 0x35, 5, 0, 0, 0]; // push [rip + 5]
        let jump = joined(&[&[0xe9], &near(TRAMPOLINE + 15, AT + 0x109)]);
        let word = (AT + 9).to_le_bytes();
        let moved = moved_to(TRAMPOLINE, &patch);
        assert_eq!(moved, joined(&[&code[..4], &pushed, &jump, &word]));
        // Far away, both addresses take a word.
        let moved = moved_to(1 << 40, &patch);
        let pushed = [0xff, 0x35, 14, 0, 0, 0];
        let jump = joined(&[&[0xff, 0x25, 0, 0, 0, 0], &(AT + 0x109).to_le_bytes()]);
        assert_eq!(moved, joined(&[&code[..4], &pushed, &jump, &word]));
        // call [rip + 0x100]; ret
        let code = [0xff, 0x15, 0, 1, 0, 0, 0xc3];
        let jump = joined(&[&[0xff, 0x25], &near(TRAMPOLINE + 12, AT + 0x106)]);
        let word = (AT + 6).to_le_bytes();
        let moved = moved_to(TRAMPOLINE, &plan(&code));
        assert_eq!(moved, joined(&[&[0xff, 0x35, 6, 0, 0, 0], &jump, &word]));
    }

    #[test]
    fn instructions_that_cannot_move() {
        let nops = [0x90; 8];
        let cases: [(&[u8], Unmovable); 14] = [
            (&[0xff, 0xd0], Unmovable::Call),                       // call rax
            (&[0xff, 0x50, 0x18], Unmovable::Call),                 // call [rax + 24]
            (&[0xe2, 0x04], Unmovable::ShortBranch),                // loop +4
            (&[0xe3, 0x04], Unmovable::ShortBranch),                // jrcxz +4
            (&[0xc7, 0xf8, 0, 0, 0, 0], Unmovable::Transaction),    // xbegin
            (&[0x0f, 0x05], Unmovable::Trap),                       // syscall
            (&[0xcc], Unmovable::Trap),                             // int3
            (&[0xcd, 0x80], Unmovable::Trap),                       // int 0x80
            (&[0x0f, 0x0b], Unmovable::Trap),                       // ud2
            (&[0xf4], Unmovable::Trap),                             // hlt
            (&[0xf2, 0xe9, 0, 1, 0, 0], Unmovable::PrefixedBranch), // bnd jmp
            (&[0x67, 0x8b, 0x05, 0, 1, 0, 0], Unmovable::Relative), // mov eax, [eip + x]
            (&[0xd9, 0x30], Unmovable::Unknown),                    // fnstenv [rax]
            (&[0x0f, 0xa2], Unmovable::Unknown),                    // cpuid
        ];
        for (code, reason) in cases {
            assert_eq!(why(&joined(&[code, &nops, &[0xc3]])), reason, "{code:x?}");
            // Behind the first instruction, too.
            let behind = joined(&[&[0x53], code, &nops, &[0xc3]]);
            assert_eq!(why(&behind), reason, "{behind:x?}");
        }
        // Behind the jump they stay.
        assert_eq!(plan(&joined(&[&nops, &[0xff, 0xd0, 0xc3]])).len(), 5);
    }

    #[test]
    fn branches_back_into_the_moved_bytes() {
        // nop * 4; inc eax; jnz to the place; ret. The jump replaces 6 bytes.
        let back_to = |place: u8| {
            let distance = place.wrapping_sub(8);
            [0x90, 0x90, 0x90, 0x90, 0xff, 0xc0, 0x75, distance, 0xc3]
        };
        for place in [0, 1, 4] {
            let (at, target) = (AT + 6, AT + u64::from(place));
            assert_eq!(refusal(&back_to(place)), Refusal::BranchBack { at, target });
        }
        assert_eq!(plan(&back_to(6)).len(), 6);
        // Into the middle of `inc eax`, and of the branch itself.
        assert_eq!(
            refusal(&back_to(5)),
            Refusal::BranchBack {
                at: AT + 6,
                target: AT + 5
            }
        );
        assert_eq!(
            refusal(&back_to(7)),
            Refusal::Overlap {
                at: AT + 6,
                target: AT + 7
            }
        );
        // The landing pad leads to the patch, too: endbr64; mov eax, 1; jmp to it.
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 1, 0, 0, 0, 0xeb, 0xf5];
        assert!(matches!(
            refusal(&code),
            Refusal::BranchBack { target: AT, .. }
        ));
        // A moved branch to a moved instruction: jz +1; nop * 4; ret.
        let code = [0x74, 0x01, 0x90, 0x90, 0x90, 0x90, 0xc3];
        assert!(matches!(refusal(&code), Refusal::BranchBack { at: AT, .. }));
        // A loop of the short kind, and a transaction's fallback.
        let code = [0xb8, 1, 0, 0, 0, 0xe2, 0xf9, 0xc3];
        assert!(matches!(refusal(&code), Refusal::BranchBack { .. }));
        let code = [0xb8, 1, 0, 0, 0, 0xc7, 0xf8, 0xf5, 0xff, 0xff, 0xff, 0xc3];
        assert!(matches!(refusal(&code), Refusal::BranchBack { .. }));
    }

    #[test]
    fn recursion_goes_through_the_jump() {
        // sub rsp, 24; nop; call to the entry; ret
        let call_to = |place: i32| {
            let call = joined(&[&[0xe8], &(place - 10).to_le_bytes()]);
            joined(&[&[0x48, 0x83, 0xec, 0x18, 0x90], &call, &[0xc3]])
        };
        assert_eq!(plan(&call_to(0)).len(), 5);
        assert!(matches!(refusal(&call_to(4)), Refusal::BranchBack { .. }));
    }

    #[test]
    fn a_part_elsewhere_is_checked() {
        let patch = plan(&[0x48, 0x83, 0xec, 0x18, 0x90, 0xc3]);
        let part = AT + 0x1000;
        let jump_to = |place: u64| joined(&[&[0x90, 0xe9], &near(part + 6, place)]);
        assert_eq!(patch.check_part(&jump_to(AT + 5), part), Ok(()));
        let (at, target) = (part + 1, AT + 4);
        let back = Refusal::BranchBack { at, target };
        assert_eq!(patch.check_part(&jump_to(target), part), Err(back));
        let half = Refusal::NotDecodable { at: part };
        assert_eq!(patch.check_part(&[0xe9], part), Err(half));
    }

    #[test]
    fn other_functions_are_checked() {
        let patch = plan(&[0x48, 0x83, 0xec, 0x18, 0x90, 0xc3]);
        let other = AT + 0x1000;
        // Data; nop; jmp to the place.
        let jump_to = |place: u64| joined(&[&[0x06, 0x90, 0xe9], &near(other + 7, place)]);
        for place in [AT, AT + 5, AT - 1] {
            assert_eq!(patch.check_other(&jump_to(place), other), Ok(()));
        }
        let (at, target) = (other + 2, AT + 4);
        let into = Refusal::BranchBack { at, target };
        assert_eq!(patch.check_other(&jump_to(target), other), Err(into));
    }

    #[test]
    fn computed_jumps_do_not_lead_to_a_prologue() {
        let table_jump = [0xff, 0x24, 0xc5, 0, 0, 0, 0]; // jmp [rax * 8]
        // push r12; push rbx; sub rsp, 8: all of it runs once.
        let prologue = [0x41, 0x54, 0x53, 0x48, 0x83, 0xec, 0x08];
        assert_eq!(plan(&joined(&[&prologue, &table_jump])).len(), 7);
        // push r12; mov r12, rdi; ...: a loop may begin behind the push.
        let code = joined(&[&[0x41, 0x54, 0x49, 0x89, 0xfc], &table_jump]);
        assert_eq!(refusal(&code), Refusal::ComputedJump { at: AT + 5 });
        let code = [0xb8, 1, 0, 0, 0, 0xff, 0xe2]; // mov eax, 1; jmp rdx
        assert_eq!(refusal(&code), Refusal::ComputedJump { at: AT + 5 });
        // Moved, it has no fall-through.
        assert_eq!(plan(&table_jump).resumes_at(), None);
        // mov rax, [rdi]; jmp [rax + 32]: a pointer to a function.
        assert_eq!(plan(&[0x48, 0x8b, 0x07, 0xff, 0x60, 0x20]).len(), 6);
    }

    /// An allocator that calls another one in last position, by a table of functions.
    #[test]
    fn a_jump_to_a_word_that_a_register_holds_is_a_call() {
        const PUSH: [u8; 4] = [0x55, 0x48, 0x89, 0xe5]; // push rbp; mov rbp, rsp
        const LOAD: [u8; 7] = [0x48, 0x8b, 0x05, 0, 1, 0, 0]; // mov rax, [rip + 256]
        const READ: [u8; 4] = [0x48, 0x8b, 0x40, 0x50]; // mov rax, [rax + 80]
        const END: [u8; 5] = [0x31, 0xc9, 0x5d, 0xff, 0xe0]; // xor ecx, ecx; pop rbp; jmp rax
        let code = |between: &[u8]| joined(&[&PUSH, &LOAD, &READ, between, &END]);
        assert_eq!(plan(&code(&[])).len(), 11);
        // test rdi, rdi; mov rdx, rdi
        assert_eq!(plan(&code(&[0x48, 0x85, 0xff, 0x48, 0x89, 0xfa])).len(), 11);
        let refused = |between: &[u8]| {
            let at = AT + 15 + between.len() as u64 + 3;
            assert_eq!(refusal(&code(between)), Refusal::ComputedJump { at });
        };
        refused(&[0x48, 0x01, 0xd0]); // add rax, rdx
        refused(&[0xb0, 0x01]); // mov al, 1
        refused(&[0x0f, 0xa2]); // cpuid
        refused(&[0x48, 0x8b, 0x04, 0xc8]); // mov rax, [rax + rcx * 8]
        refused(&[0xff, 0xd2]); // call rdx
        refused(&[0x75, 0x00]); // jne, to the next instruction
    }

    #[test]
    fn too_short() {
        assert_eq!(refusal(&[]), Refusal::TooShort { room: 0 });
        assert_eq!(refusal(&LANDING_PAD), Refusal::TooShort { room: 0 });
        assert_eq!(refusal(&[0xc3]), Refusal::TooShort { room: 1 });
        assert_eq!(refusal(&[0x90, 0x90]), Refusal::TooShort { room: 2 });
        assert_eq!(
            refusal(&[0x31, 0xc0, 0xc3, 0x53, 0x5b]),
            Refusal::TooShort { room: 3 }
        );
    }

    #[test]
    fn padding_is_room() {
        let fill = |byte: u8, len: usize| joined(&[&[0x31, 0xc0, 0xc3], &vec![byte; len]]);
        for filler in [0xcc, 0x90] {
            let patch = plan(&fill(filler, 13));
            assert_eq!((patch.len(), patch.resumes_at()), (5, None));
            assert_eq!(moved_to(TRAMPOLINE, &patch), [0x31, 0xc0, 0xc3]);
        }
        // A long nop is replaced as a whole: ret; nop word cs:[rax + rax]; int3 * 5.
        let nop = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let patch = plan(&joined(&[&[0xc3], &nop, &[0xcc; 5]]));
        assert_eq!((patch.len(), patch.is_one_instruction()), (11, true));
        // The next function begins before the next multiple of 16.
        let code = joined(&[&fill(0x90, 4), &[0x55, 0x5d, 0xc3]]);
        assert_eq!(refusal(&code), Refusal::TooShort { room: 3 });
        // Behind the multiple of 16.
        let high = |len| EntryPatch::plan(&fill(0xcc, len), AT + 12);
        assert_eq!(high(4), Err(Refusal::TooShort { room: 3 + 1 }));
        // A branch leads to it.
        let code = joined(&[&[0xeb, 0x01], &[0x90; 14]]);
        assert!(matches!(refusal(&code), Refusal::BranchBack { .. }));
    }

    #[test]
    fn code_that_cannot_be_decoded() {
        let half = Refusal::NotDecodable { at: AT };
        assert_eq!(refusal(&[0x48]), half);
        assert_eq!(refusal(&[0x06, 0x90, 0x90, 0x90, 0x90]), half);
        let behind = [0x90, 0x90, 0x90, 0x90, 0x90, 0x06];
        assert_eq!(refusal(&behind), Refusal::NotDecodable { at: AT + 5 });
        let long = vec![0x90; (1 << 16) + 1];
        assert_eq!(refusal(&long), Refusal::TooLong { len: long.len() });
        assert_eq!(plan(&long[1..]).len(), 5);
    }

    #[test]
    fn a_buffer_that_is_too_small() {
        let patch = plan(&[0x48, 0x83, 0xec, 0x18, 0x90, 0xc3]);
        for len in 0..10 {
            let mut out = vec![0; len];
            assert_eq!(
                patch.write_moved(TRAMPOLINE, &mut out),
                Err(Refusal::NoRoom { len })
            );
        }
        assert_eq!(patch.write_moved(TRAMPOLINE, &mut [0; 10]), Ok(10));
    }

    /// Instructions that lie at entries, to which random bytes are rarely similar.
    fn instruction() -> impl Strategy<Value = Vec<u8>> {
        let known: Vec<Vec<u8>> = [
            &[0x53][..],
            &[0x48, 0x89, 0xe5],
            &[0x48, 0x8b, 0x05, 0x10, 0, 0, 0],
            &[0x83, 0x3d, 0x10, 0, 0, 0, 1],
            &[0x74, 0x08],
            &[0x0f, 0x85, 0x20, 0, 0, 0],
            &[0xeb, 0x03],
            &[0xe8, 0, 1, 0, 0],
            &[0xff, 0x15, 0, 1, 0, 0],
            &[0xc3],
            &[0x90],
            &[0xcc],
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        prop_oneof![
            4 => prop::sample::select(known),
            1 => prop::collection::vec(any::<u8>(), 1..8),
        ]
    }

    proptest! {
        /// Any bytes at any address: no panic, and what is written fits.
        #[test]
        fn any_code(
            parts in prop::collection::vec(instruction(), 0..30),
            pad: bool,
            address: u64,
            trampoline: u64,
        ) {
            let mut code = if pad { LANDING_PAD.to_vec() } else { Vec::new() };
            code.extend(parts.concat());
            let Ok(patch) = EntryPatch::plan(&code, address) else { return Ok(()) };
            let first = (patch.at().wrapping_sub(address)) as usize;
            prop_assert!(patch.len() >= JUMP);
            prop_assert_eq!(patch.replaced(), &code[first..first + patch.len()]);
            let mut out = [0; EntryPatch::MOST_MOVED];
            for place in [trampoline, address.wrapping_add(0x1000)] {
                match patch.write_moved(place, &mut out) {
                    Ok(_) | Err(Refusal::OutOfReach { .. }) => {}
                    Err(refusal) => prop_assert!(false, "{}", refusal),
                }
            }
            let _ = patch.jump(trampoline);
            let _ = patch.check_part(&code, trampoline);
            let _ = patch.check_other(&code, trampoline);
        }
    }
}
