//! CFI storage: fixed-size memory for the evaluation of one unwind table entry.
//!
//! framehop's own allocation-free policy has room for many more rules in a row than tables use, and
//! takes kilobytes. A row lies on the stack of the sampled thread, and a thread with little stack
//! left must be able to allocate. An entry that needs more room than there is here
//! ([`UNWIND_REGISTERS`]) has no rule: the walk continues by the frame pointer, or ends with that
//! reason.

use framehop::AllocationPolicy;
use gimli::{
    EvaluationStorage, Piece, Reader, ReaderOffset, Register, RegisterRule, UnwindContextStorage,
    UnwindTableRow, Value,
};

use crate::arch::registers::UNWIND_REGISTERS;

/// The storage policy; see the module's text. Allocates nothing.
pub(crate) struct CfiStorage;

/// Rows: the current row, the row of the CIE, and two that `DW_CFA_remember_state` saves. Compilers
/// nest it once.
const ROWS: usize = 4;

/// Values on the stack of an expression. glibc's and linkers' expressions use three.
const VALUES: usize = 16;

impl<O: ReaderOffset> UnwindContextStorage<O> for CfiStorage {
    type Rules = [(Register, RegisterRule<O>); UNWIND_REGISTERS];
    type Stack = [UnwindTableRow<O, Self>; ROWS];
}

impl<R: Reader> EvaluationStorage<R> for CfiStorage {
    type Stack = [Value; VALUES];
    type ExpressionStack = [(R, R); 1];
    type Result = [Piece<R>; 1];
}

impl AllocationPolicy for CfiStorage {
    type GimliUnwindContextStorage<O: ReaderOffset> = CfiStorage;
    type GimliEvaluationStorage<R: Reader> = CfiStorage;
}
