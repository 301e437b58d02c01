//! Python: the frames of a thread of CPython, read from the interpreter's own memory.
//!
//! | concept | file |
//! | --- | --- |
//! | where the fields of a version's structures are | `layout.rs` |
//! | memory that is read with a check | `memory.rs` |
//! | the walk from a thread's state over its frames | `walk.rs` |
//! | the functions, files and lines of code objects | `code.rs` |
//!
//! Nothing here calls the interpreter, needs its lock or takes memory. A structure that looks odd
//! ends the walk.
//!
//! Imports: `tables` (a hash of numbers).
//!
//! Not here: how the interpreter and the state of a thread are found (`preload`), what a code
//! object is on disk (format's `code`).

pub(crate) mod code;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod walk;
