//! Refusal: the reason why an entry cannot be patched, or a trampoline cannot be written.

use std::fmt;

/// The reason of a refusal. Addresses are those of the function's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// These bytes are no instruction that the decoder knows, or the code ends within one.
    NotDecodable {
        /// Where the bytes are.
        at: u64,
    },
    /// The function ends before there is room for a jump.
    TooShort {
        /// Bytes between the patch's place and the function's end.
        room: usize,
    },
    /// The code is longer than the check of branches can take.
    TooLong {
        /// Bytes of the code.
        len: usize,
    },
    /// A branch or call leads into the replaced bytes.
    BranchBack {
        /// The branch.
        at: u64,
        /// The place to which the branch leads.
        target: u64,
    },
    /// A branch leads into the middle of an instruction. So the code holds data, or overlapping
    /// instructions, and other branches may be hidden.
    Overlap {
        /// The branch.
        at: u64,
        /// The place to which the branch leads.
        target: u64,
    },
    /// The target of a jump is computed, and the replaced bytes may be among the targets.
    ComputedJump {
        /// The jump.
        at: u64,
    },
    /// An instruction in the replaced bytes cannot move.
    Unmovable {
        /// The instruction.
        at: u64,
        /// The reason.
        why: Unmovable,
    },
    /// A 32-bit displacement does not reach the target.
    OutOfReach {
        /// The place of the instruction with the displacement.
        from: u64,
        /// The target.
        target: u64,
    },
    /// The buffer for the moved instructions is too small.
    NoRoom {
        /// Bytes of the buffer.
        len: usize,
    },
}

/// The reason why an instruction cannot move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmovable {
    /// A call through a register or a structure stores its return address, which would lie in the
    /// trampoline.
    Call,
    /// A branch that has only a form with an 8-bit displacement: `loop`, `jrcxz` and their kin.
    ShortBranch,
    /// The start of a transaction, whose fallback is a branch target.
    Transaction,
    /// An interrupt, a trap, or a system call: the kernel and handlers see the address.
    Trap,
    /// A branch with a prefix.
    PrefixedBranch,
    /// An operand relative to the instruction's address whose displacement cannot be rewritten.
    Relative,
    /// An instruction that is not known to be independent of its address.
    Unknown,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotDecodable { at } => write!(f, "the code at {at:#x} cannot be decoded"),
            Refusal::TooShort { room } => write!(
                f,
                "the function is too short: it has room for {room} bytes of a jump"
            ),
            Refusal::TooLong { len } => {
                write!(f, "the function is too long to check: {len} bytes")
            }
            Refusal::BranchBack { at, target } => write!(
                f,
                "the branch at {at:#x} leads to {target:#x}, into the bytes that a jump replaces"
            ),
            Refusal::Overlap { at, target } => write!(
                f,
                "the branch at {at:#x} leads to {target:#x}, into the middle of an instruction"
            ),
            Refusal::ComputedJump { at } => write!(
                f,
                "the jump at {at:#x} has a computed target, which may lie in the bytes that a jump \
                 replaces"
            ),
            Refusal::Unmovable { at, why } => {
                write!(f, "the instruction at {at:#x} cannot move: {why}")
            }
            Refusal::OutOfReach { from, target } => write!(
                f,
                "a displacement of 32 bits does not reach from {from:#x} to {target:#x}"
            ),
            Refusal::NoRoom { len } => write!(
                f,
                "the moved instructions do not fit into a buffer of {len} bytes"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Unmovable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unmovable::Call => "a call stores its own address",
            Unmovable::ShortBranch => "this branch has only a short form",
            Unmovable::Transaction => "it begins a transaction",
            Unmovable::Trap => "it enters the kernel or a handler",
            Unmovable::PrefixedBranch => "it is a branch with a prefix",
            Unmovable::Relative => "its displacement cannot be rewritten",
            Unmovable::Unknown => "it may depend on its own address",
        })
    }
}
