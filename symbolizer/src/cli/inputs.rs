//! Inputs: from the files on the command line to a profile with names.
//!
//! Imports: `cli::options`, `cli::output`.
//!
//! Not here: reading one file (`heapprof_symbolizer::Input`).

pub(crate) mod joined;
pub(crate) mod logs;
pub(crate) mod missing;
pub(crate) mod process;
pub(crate) mod several;
pub(crate) mod signals;
pub(crate) mod single_file;
pub(crate) mod source;
