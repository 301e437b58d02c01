//! Kinds of frames, and the registers and stack words by which frames lead to their callers.
//!
//! | kind | the caller's stack pointer | the caller's frame pointer |
//! | --- | --- | --- |
//! | [`PassesOn`](Kind::PassesOn) | `sp + 8 * up` | the frame's own |
//! | [`Restores`](Kind::Restores) | `sp + 8 * up` | the word at `sp + 8 * saved` |
//! | [`ByRegister`](Kind::ByRegister) | `bp + 16` | the word at `bp` |
//!
//! The return address is the word below the caller's stack pointer.

/// Registers at which a walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The program counter.
    pub address: u64,
    /// Whether it is a return address.
    pub returns: bool,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer's register.
    pub bp: u64,
}

/// How a frame's caller is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// In none of the three ways, or it is not known how.
    Other,
    /// See the module's text.
    PassesOn,
    /// See the module's text. The only one that does not depend on the frame pointer's register.
    Restores,
    /// See the module's text.
    ByRegister,
}

/// A word of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Where it is.
    pub at: u64,
    /// The value that it had.
    pub value: u64,
}

/// Words of the stack, outermost first, all of whose bytes lie from `start` on, and before `end`.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// The words that must be unchanged.
    pub words: &'a [Word],
    /// No byte is at a lower address.
    pub start: u64,
    /// No byte is at that one, or a higher one.
    pub end: u64,
}
