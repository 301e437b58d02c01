//! Room for unwinding: how much the evaluation of one unwind table entry may hold.
//!
//! framehop's own allocation-free policy holds 192 register rules a row. A row is made on the stack of the thread that
//! is sampled, 4.6 KB of it, and one with 6 KiB left must be able to allocate. x86-64 has 17 registers in its
//! tables. An entry that wants more room than there is here has no rule: the walk goes on by the frame pointer, or
//! ends and says so.

use framehop::AllocationPolicy;
use gimli::{
    EvaluationStorage, Piece, Reader, ReaderOffset, Register, RegisterRule, UnwindContextStorage,
    UnwindTableRow, Value,
};

/// See the module's text. Nothing is allocated.
pub(crate) struct Room;

/// Registers for which a row may have a rule: the 17 of the psABI (16 and the return address), and some that a strange
/// table may name.
const REGISTERS: usize = 24;

/// Rows: the one that is built, the common entry's, and two that `DW_CFA_remember_state` put by. Compilers nest it once.
const ROWS: usize = 4;

/// Values on the stack of an expression. Those of glibc and of linkers use three.
const VALUES: usize = 16;

impl<O: ReaderOffset> UnwindContextStorage<O> for Room {
    type Rules = [(Register, RegisterRule<O>); REGISTERS];
    type Stack = [UnwindTableRow<O, Self>; ROWS];
}

impl<R: Reader> EvaluationStorage<R> for Room {
    type Stack = [Value; VALUES];
    type ExpressionStack = [(R, R); 1];
    type Result = [Piece<R>; 1];
}

impl AllocationPolicy for Room {
    type GimliUnwindContextStorage<O: ReaderOffset> = Room;
    type GimliEvaluationStorage<R: Reader> = Room;
}
