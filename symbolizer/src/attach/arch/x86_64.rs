//! x86-64: its machine code.

pub(in crate::attach) mod borrowed_code;
