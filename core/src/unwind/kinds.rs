//! Kinds of frames, with the registers and stack words by which a frame leads to its caller.
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
    /// True if it is a return address.
    pub returns: bool,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer's register.
    pub bp: u64,
}

/// The way in which a frame's caller is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// None of the three ways, or an unknown way.
    Other,
    /// See the module's text.
    PassesOn,
    /// See the module's text. It is the only kind that does not depend on the frame pointer's
    /// register.
    Restores,
    /// See the module's text.
    ByRegister,
}

/// A word of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Its address.
    pub at: u64,
    /// Its value.
    pub value: u64,
}

/// Words of the stack, outermost first, all of whose bytes lie from `start` on, and before `end`.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// The words with the values that they must have.
    pub words: &'a [Word],
    /// The lowest address of a byte.
    pub start: u64,
    /// The end of the highest word.
    pub end: u64,
}
