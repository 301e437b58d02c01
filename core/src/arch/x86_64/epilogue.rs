//! Epilogue analysis: finds a function's caller from the instructions between an address and the
//! function's return.
//!
//! It serves code that has no unwind tables and keeps no frame pointer, as a C library may be
//! built. A function undoes on its way out what it did to the stack. So the bytes that are added to
//! the stack pointer before the `ret` tell where the return address lies. If the frame pointer's
//! register is loaded from the stack on the way, that word is the caller's value.
//!
//! ```text
//!  call malloc
//!  test rax, rax       sp + 0
//!  jz   2f ─────────┐
//!  ...              │
//!  2: add rsp, 32 <─┘  sp + 32
//!  pop  rbp            sp + 40    bp: the word at sp + 32
//!  ret                            the return address: the word at sp + 40
//! ```
//!
//! The analysis follows every path, both sides of each branch, and all paths that end must agree. A
//! jump to another function in place of call and return (a tail call) is followed like any other
//! jump.
//!
//! Code can also run on behind the call of a function that never returns. That code is
//! another function, which undoes what this one has not done. Two checks find such a path:
//!
//! - The caller of the analysis tells the known functions that never return. A call of one ends the
//!   path.
//! - Stacks are aligned to 16 bytes at a call, and a callee undoes all that it did. So a wrong
//!   return leaves the stack pointer 8 bytes off.
//!
//! Not here: the contents of the stack at that place, and whose code the return address belongs to.

use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

use crate::unwind::rules::Rule;

/// The result of the analysis of a function's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// The code returns to its caller, which this rule finds.
    Returns(Rule),
    /// The code never returns: all paths end in functions that never return, or in loops. The
    /// caller cannot be found, and there may be none.
    Never,
    /// The caller is unknown: the paths disagree or are too many, or an instruction is not
    /// understood.
    Unknown,
}

/// Most instructions that are decoded, over all paths.
const MOST: usize = 1 << 14;
/// Most branch targets that are remembered.
const MOST_BRANCHES: usize = 1 << 10;

/// The stack pointer, relative to the start of the analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sp {
    /// That many bytes above its value at the start.
    Up(i32),
    /// That many bytes above the frame pointer.
    OfFrame(i32),
    /// Somewhere below: the code took stack memory by a number that was in a register.
    Below,
}

impl Sp {
    fn plus(self, bytes: i32) -> Option<Sp> {
        Some(match self {
            Sp::Up(at) => Sp::Up(at.checked_add(bytes)?),
            Sp::OfFrame(at) => Sp::OfFrame(at.checked_add(bytes)?),
            Sp::Below => Sp::Below,
        })
    }
}

/// The contents of the frame pointer's register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bp {
    /// Its value at the start.
    Same,
    /// The word at that place.
    WordAt(Sp),
    /// An address on the stack: the frame pointer of a function that was jumped to.
    Points(Sp),
    /// Another value.
    Changed,
}

/// The registers at one point of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    sp: Sp,
    bp: Bp,
    /// The place where a function that was jumped to saved the frame pointer's register, and the
    /// register's contents then.
    kept: Option<(Sp, Bp)>,
}

/// The effect of one instruction.
enum Step {
    /// Execution continues at the next instruction.
    Next(State),
    /// Execution continues at the next instruction, or that many bytes behind it.
    Branch(i64),
    /// Execution continues that many bytes behind the next instruction.
    Jump(i64),
    /// The function returns.
    Returns,
    /// Execution ends.
    Ends,
    /// Execution continues at an address that the code does not tell.
    Unknown,
}

/// Follows the code from `from` on and finds the function's caller.
///
/// `from` is an offset in `code` where an instruction begins, behind a call if `returns`.
/// `never_returns` is asked about the offset of each function that is called. `module` becomes the
/// rule's [`Rule::module`].
#[must_use]
pub fn find_epilogue(
    code: &[u8],
    from: usize,
    returns: bool,
    module: u32,
    never_returns: impl Fn(usize) -> bool,
) -> Epilogue {
    let mut paths = Paths {
        code,
        is_aligned: returns,
        branches: vec![(from, State::START)],
        left: MOST,
        found: None,
        is_complete: true,
    };
    let mut done = 0;
    while let Some(&(at, state)) = paths.branches.get(done) {
        done += 1;
        if paths.follow(at, state, module, &never_returns).is_none() {
            return Epilogue::Unknown;
        }
    }
    match paths.found {
        Some(rule) => Epilogue::Returns(rule),
        None if paths.is_complete => Epilogue::Never,
        None => Epilogue::Unknown,
    }
}

/// The paths from one place.
struct Paths<'a> {
    code: &'a [u8],
    /// True if the stack pointer is a multiple of 16 at the start.
    is_aligned: bool,
    /// Starts of paths and the registers there. Paths that were followed come first.
    branches: Vec<(usize, State)>,
    /// Instructions that may still be decoded.
    left: usize,
    found: Option<Rule>,
    /// True if every path is followed to its end.
    is_complete: bool,
}

impl Paths<'_> {
    /// Follows one path to its end. Returns `None` if the analysis has to give up.
    fn follow(
        &mut self,
        mut at: usize,
        mut state: State,
        module: u32,
        never_returns: impl Fn(usize) -> bool,
    ) -> Option<()> {
        let decoder = InstDecoder::default();
        loop {
            self.left = self.left.checked_sub(1)?;
            let instruction = decoder.decode_slice(self.code.get(at..)?).ok()?;
            let next = at + usize::try_from(instruction.len().to_const()).ok()?;
            match state.after(&instruction)? {
                Step::Next(after) => {
                    let called =
                        (instruction.opcode() == Opcode::CALL).then(|| distance(&instruction));
                    let called = called
                        .flatten()
                        .and_then(|distance| next.checked_add_signed(distance as isize));
                    if called.is_some_and(&never_returns) {
                        return Some(());
                    }
                    state = after;
                }
                Step::Branch(distance) => self.add_branch(next, distance, state)?,
                Step::Jump(distance) => return self.add_branch(next, distance, state),
                Step::Returns if self.is_aligned && state.is_in_another_function() => {
                    self.is_complete = false;
                    return Some(());
                }
                Step::Returns => {
                    let rule = state.rule(module)?;
                    return (*self.found.get_or_insert(rule) == rule).then_some(());
                }
                Step::Ends => return Some(()),
                Step::Unknown => {
                    self.is_complete = false;
                    return Some(());
                }
            }
            at = next;
        }
    }

    /// Adds the path that begins that many bytes behind `next`. Returns `None` if another path
    /// reached that place with another stack pointer, or if there are too many paths.
    fn add_branch(&mut self, next: usize, distance: i64, state: State) -> Option<()> {
        let target = next.checked_add_signed(distance as isize);
        let Some(target) = target.filter(|&target| target < self.code.len()) else {
            self.is_complete = false;
            return Some(());
        };
        let mut there = self.branches.iter().filter(|(seen, _)| *seen == target);
        if there.clone().any(|(_, before)| before.sp != state.sp) {
            return None;
        }
        // The frame pointer's register may differ between paths: a function that uses it for other
        // values restores it at its end.
        if !there.any(|(_, before)| *before == state) {
            if self.branches.len() == MOST_BRANCHES {
                return None;
            }
            self.branches.push((target, state));
        }
        Some(())
    }
}

impl State {
    const START: State = State {
        sp: Sp::Up(0),
        bp: Bp::Same,
        kept: None,
    };

    /// Returns the effect of an instruction, or `None` if it is unknown.
    fn after(self, instruction: &Instruction) -> Option<Step> {
        Some(match instruction.opcode() {
            Opcode::RETURN => Step::Returns,
            Opcode::JMP => distance(instruction).map_or(Step::Unknown, Step::Jump),
            opcode if is_conditional(opcode) => Step::Branch(distance(instruction)?),
            Opcode::HLT | Opcode::UD2 | Opcode::INT => Step::Ends,
            Opcode::RETF | Opcode::IRET | Opcode::IRETD | Opcode::IRETQ => return None,
            Opcode::CALLF | Opcode::JMPF => return None,
            Opcode::CALL => Step::Next(self),
            _ => Step::Next(self.registers_after(instruction)?),
        })
    }

    /// Returns the registers after an instruction that continues at the next one.
    fn registers_after(self, instruction: &Instruction) -> Option<State> {
        // A missing operand is an operand, too.
        let (first, second) = (&instruction.operand(0), &instruction.operand(1));
        match instruction.opcode() {
            Opcode::PUSH if is_whole(first, RBP) => {
                let sp = self.sp.plus(-8)?;
                let kept = Some((sp, self.bp));
                Some(State { sp, kept, ..self })
            }
            Opcode::PUSH | Opcode::PUSHF => self.with_sp(self.sp.plus(-8)?),
            Opcode::POP if is_register(first, RBP) => self
                .with_bp(self.word_at(self.sp))
                .with_sp(self.sp.plus(8)?),
            Opcode::POP if !is_register(first, RSP) => self.with_sp(self.sp.plus(8)?),
            Opcode::POPF => self.with_sp(self.sp.plus(8)?),
            Opcode::LEAVE => {
                let frame = self.frame()?;
                self.with_bp(self.word_at(frame)).with_sp(frame.plus(8)?)
            }
            opcode if is_whole(first, RSP) => self.with_sp(match (opcode, second) {
                (Opcode::ADD, added) if constant(added).is_some() => {
                    self.sp.plus(constant(added)?)?
                }
                (Opcode::SUB, taken) if constant(taken).is_some() => {
                    self.sp.plus(constant(taken)?.checked_neg()?)?
                }
                (Opcode::MOV, from) if is_whole(from, RBP) => self.frame()?,
                (Opcode::LEA, Operand::Disp { base, disp }) if *base == RegSpec::q(RSP) => {
                    self.sp.plus(*disp)?
                }
                (Opcode::LEA, Operand::Disp { base, disp }) if *base == RegSpec::q(RBP) => {
                    self.frame()?.plus(*disp)?
                }
                (Opcode::SUB | Opcode::AND | Opcode::MOV | Opcode::LEA, _) => Sp::Below,
                (Opcode::CMP | Opcode::TEST, _) => self.sp,
                _ => return None,
            }),
            opcode if is_whole(first, RBP) => Some(self.with_bp(match (opcode, second) {
                (Opcode::MOV, from) if is_whole(from, RSP) => Bp::Points(self.sp),
                (Opcode::MOV, Operand::MemDeref { base }) if *base == RegSpec::q(RSP) => {
                    self.word_at(self.sp)
                }
                (Opcode::MOV, Operand::Disp { base, disp }) if *base == RegSpec::q(RSP) => {
                    self.word_at(self.sp.plus(*disp)?)
                }
                (Opcode::CMP | Opcode::TEST | Opcode::BT, _) => self.bp,
                _ => Bp::Changed,
            })),
            Opcode::ENTER => None,
            Opcode::CMP | Opcode::TEST | Opcode::BT => Some(self),
            // Other instructions that may write to a part of these registers.
            _ if writes_to(instruction, RSP) => None,
            _ if writes_to(instruction, RBP) => Some(self.with_bp(Bp::Changed)),
            _ => Some(self),
        }
    }

    fn with_sp(self, sp: Sp) -> Option<State> {
        Some(State { sp, ..self })
    }

    fn with_bp(self, bp: Bp) -> State {
        State { bp, ..self }
    }

    /// Returns the contents of the frame pointer's register when it is loaded from `place`.
    fn word_at(self, place: Sp) -> Bp {
        match self.kept {
            Some((kept, bp)) if kept == place && place != Sp::Below => bp,
            _ if place == Sp::Below => Bp::Changed,
            _ => Bp::WordAt(place),
        }
    }

    /// Returns the place that the frame pointer points to.
    fn frame(self) -> Option<Sp> {
        match self.bp {
            Bp::Same => Some(Sp::OfFrame(0)),
            Bp::Points(there) => Some(there),
            _ => None,
        }
    }

    /// Returns true if this return belongs to another function than the code that began with an
    /// aligned stack pointer.
    fn is_in_another_function(self) -> bool {
        matches!(self.sp, Sp::Up(up) if up.rem_euclid(16) != 8)
    }

    /// Returns the rule for a return in this state.
    fn rule(self, module: u32) -> Option<Rule> {
        match (self.sp, self.bp) {
            (Sp::OfFrame(8), Bp::WordAt(Sp::OfFrame(0))) => Some(Rule::by_register(module)),
            (Sp::Up(up), Bp::Same) => Rule::by_stack(module, up.checked_add(8)?, None),
            (Sp::Up(up), Bp::WordAt(Sp::Up(saved))) => {
                Rule::by_stack(module, up.checked_add(8)?, Some(saved))
            }
            _ => None,
        }
    }
}

/// Numbers of two registers.
const RSP: u8 = 4;
const RBP: u8 = 5;

/// Returns true if an operand is that register or a part of it.
fn is_register(operand: &Operand, number: u8) -> bool {
    let &Operand::Register { reg } = operand else {
        return false;
    };
    let parts = [
        RegSpec::q(number),
        RegSpec::d(number),
        RegSpec::w(number),
        RegSpec::rb(number),
    ];
    parts.contains(&reg)
}

/// Returns true if an operand is the whole of that register.
fn is_whole(operand: &Operand, number: u8) -> bool {
    matches!(operand, Operand::Register { reg } if *reg == RegSpec::q(number))
}

/// Returns true if an instruction may write to that register.
fn writes_to(instruction: &Instruction, number: u8) -> bool {
    let writes_second = matches!(
        instruction.opcode(),
        Opcode::XCHG | Opcode::XADD | Opcode::MULX
    );
    let written = if writes_second { 2 } else { 1 };
    (0..written).any(|index| is_register(&instruction.operand(index), number))
}

fn constant(operand: &Operand) -> Option<i32> {
    match *operand {
        Operand::ImmediateI8 { imm } => Some(imm.into()),
        Operand::ImmediateI32 { imm } => Some(imm),
        Operand::ImmediateI64 { imm } => i32::try_from(imm).ok(),
        _ => None,
    }
}

/// Returns how far behind its end an instruction jumps, or `None` if a register or a word has the
/// target.
fn distance(instruction: &Instruction) -> Option<i64> {
    constant(&instruction.operand(0)).map(i64::from)
}

fn is_conditional(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::JO
            | Opcode::JNO
            | Opcode::JB
            | Opcode::JNB
            | Opcode::JZ
            | Opcode::JNZ
            | Opcode::JA
            | Opcode::JNA
            | Opcode::JS
            | Opcode::JNS
            | Opcode::JP
            | Opcode::JNP
            | Opcode::JL
            | Opcode::JGE
            | Opcode::JLE
            | Opcode::JG
            | Opcode::LOOP
            | Opcode::LOOPZ
            | Opcode::LOOPNZ
            | Opcode::JRCXZ
            | Opcode::JECXZ
            | Opcode::XBEGIN
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::kinds::Kind;
    use proptest::prelude::*;

    const MODULE: u32 = 7;

    /// Analyses code from its first byte on. The function at `exit` never returns.
    fn out_of(code: &[u8], exit: Option<usize>) -> Epilogue {
        find_epilogue(code, 0, true, MODULE, |called| Some(called) == exit)
    }

    fn by_stack(up: i32, saved: Option<i32>) -> Epilogue {
        Epilogue::Returns(Rule::by_stack(MODULE, up, saved).expect("a rule"))
    }

    /// The drawing in the module's text.
    #[test]
    fn an_epilogue_undoes_the_prologue() {
        let code = [
            0x48, 0x85, 0xc0, // test rax, rax
            0x74, 0x03, // jz +3
            0xc6, 0x00, 0x01, // mov byte [rax], 1
            0x48, 0x83, 0xc4, 0x20, // add rsp, 32
            0x5d, // pop rbp
            0xc3, // ret
        ];
        assert_eq!(out_of(&code, None), by_stack(48, Some(32)));
    }

    #[test]
    fn saved_registers() {
        let code = [
            0x48, 0x8d, 0x64, 0x24, 0x18, // lea rsp, [rsp + 24]
            0x5b, // pop rbx
            0x41, 0x5c, // pop r12
            0xc3, // ret
        ];
        assert_eq!(out_of(&code, None), by_stack(48, None));
        // The register is loaded from where it was saved, without a pop.
        // mov rbp, [rsp + 8]; add rsp, 24; ret
        let code = [0x48, 0x8b, 0x6c, 0x24, 0x08, 0x48, 0x83, 0xc4, 0x18, 0xc3];
        assert_eq!(out_of(&code, None), by_stack(32, Some(8)));
    }

    #[test]
    fn a_frame_pointer() {
        let Epilogue::Returns(rule) = out_of(&[0xc9, 0xc3], None) else {
            // leave; ret
            panic!("no way out");
        };
        assert_eq!((rule.kind(), rule.module()), (Kind::ByRegister, MODULE));
        // lea rsp, [rbp - 8]; pop rbx; pop rbp; ret
        assert_eq!(
            out_of(&[0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3], None),
            Epilogue::Returns(rule)
        );
    }

    #[test]
    fn loops_and_jumps_to_other_functions() {
        let code = [
            0x48, 0xff, 0xc8, // dec rax
            0x75, 0xfb, // jnz -5
            0x48, 0x83, 0xc4, 0x08, // add rsp, 8
            0xeb, 0x01, // jmp +1
            0xcc, // int3
            0x53, // push rbx: another function
            0xe8, 0, 0, 0, 0,    // call
            0x5b, // pop rbx
            0xc3, // ret
        ];
        assert_eq!(out_of(&code, None), by_stack(16, None));
    }

    #[test]
    fn functions_that_never_return() {
        let code = [
            0x89, 0xc7, // mov edi, eax
            0xe8, 0x02, 0, 0, 0, // call 9
            0xcc, 0xcc, // int3
            0x48, 0x83, 0xc4, 0x08,
            0xc3, // add rsp, 8; ret: that function, if one falls into it
        ];
        assert_eq!(out_of(&code, Some(9)), Epilogue::Never);
        assert_eq!(out_of(&[0xeb, 0xfe], None), Epilogue::Never); // jmp -2
        assert_eq!(out_of(&[0xf4], None), Epilogue::Never); // hlt
    }

    /// Another function lies behind a call of a function that is not known to never return.
    #[test]
    fn ways_into_other_functions() {
        let code = [
            0x85, 0xc0, // test eax, eax
            0x75, 0x05, // jnz +5
            0x48, 0x83, 0xc4, 0x08, // add rsp, 8
            0xc3, // ret
            0xe8, 0, 0, 0, 0, // call abort
            0x53, 0x5b, 0xc3, // push rbx; pop rbx; ret: the next function
        ];
        assert_eq!(out_of(&code, None), by_stack(16, None));
        assert_eq!(out_of(&code, Some(14)), by_stack(16, None));
        assert_eq!(out_of(&code[9..], None), Epilogue::Unknown);
        assert_eq!(out_of(&code[9..], Some(5)), Epilogue::Never);
        // At an interrupted instruction the stack may have any alignment.
        let interrupted = |from| find_epilogue(&code, from, false, MODULE, |_| false);
        assert_eq!(
            (interrupted(0), interrupted(4)),
            (Epilogue::Unknown, by_stack(16, None))
        );
        assert_eq!(interrupted(8), by_stack(8, None));
    }

    #[test]
    fn paths_that_disagree() {
        let code = [
            0x75, 0x05, // jnz +5
            0x48, 0x83, 0xc4, 0x08, 0xc3, // add rsp, 8; ret
            0x48, 0x83, 0xc4, 0x18, 0xc3, // add rsp, 24; ret
        ];
        assert_eq!(out_of(&code, None), Epilogue::Unknown);
    }

    #[test]
    fn code_that_is_not_understood() {
        assert_eq!(
            out_of(&[0x48, 0x83, 0xe4, 0xf0, 0xc3], None),
            Epilogue::Unknown
        ); // and rsp, -16; ret
        assert_eq!(out_of(&[0x48, 0x89, 0xc5, 0xc3], None), Epilogue::Unknown); // mov rbp, rax; ret
        assert_eq!(out_of(&[0x48, 0x95, 0xc3], None), Epilogue::Unknown); // xchg rax, rbp; ret
        assert_eq!(out_of(&[0xff, 0xe0], None), Epilogue::Unknown); // jmp rax
        assert_eq!(out_of(&[0x50, 0xc3], None), Epilogue::Unknown); // push rax; ret
        assert_eq!(out_of(&[0x48], None), Epilogue::Unknown); // half an instruction
        assert_eq!(out_of(&[], None), Epilogue::Unknown);
    }

    proptest! {
        /// Any bytes: the analysis ends, and reads nothing beyond them.
        #[test]
        fn any_bytes(code in prop::collection::vec(any::<u8>(), 0..200), from in 0usize..250, returns: bool) {
            let _ = find_epilogue(&code, from, returns, MODULE, |called| called % 3 == 0);
        }
    }
}
