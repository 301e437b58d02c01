//! x86-64, with the System V ABI and glibc.

pub(in crate::attach) mod borrowed_code;
pub(in crate::attach) mod jump;
pub(in crate::attach) mod program;
pub(in crate::attach) mod registers;
pub(in crate::attach) mod thread_descriptor;
