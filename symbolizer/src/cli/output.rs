//! Output: tables, headings, notes and files, as the commands print them.
//!
//! Imports: no other folder of `cli`.
//!
//! Not here: formats of other programs (`heapprof_symbolizer::export`).

pub(crate) mod colour;
pub(crate) mod coverage;
pub(crate) mod destination;
pub(crate) mod detached;
pub(crate) mod document;
pub(crate) mod exchanged_log;
pub(crate) mod failure;
pub(crate) mod heading;
pub(crate) mod kept_names;
pub(crate) mod label;
pub(crate) mod memory_bound;
pub(crate) mod notes;
pub(crate) mod other_allocators;
pub(crate) mod partial_file;
pub(crate) mod processes;
pub(crate) mod progress;
pub(crate) mod say;
pub(crate) mod shell_quote;
pub(crate) mod site_table;
pub(crate) mod table;
pub(crate) mod width;
pub(crate) mod wrapped;
