//! Options: arguments that several commands share, as clap reads them.
//!
//! Imports: `cli::output`.
//!
//! Not here: reading the files that are named on the command line (`cli::inputs`).

pub(crate) mod address;
pub(crate) mod age;
pub(crate) mod choice;
pub(crate) mod confidence;
pub(crate) mod debuginfod;
pub(crate) mod filter;
pub(crate) mod fold_library;
pub(crate) mod limit;
pub(crate) mod measure;
pub(crate) mod quantity;
pub(crate) mod suppressions;
pub(crate) mod symbols;
pub(crate) mod taps;
pub(crate) mod time;
pub(crate) mod variables;
