//! Commands: one file for each subcommand, with its arguments and what it prints.
//!
//! Imports: `cli::options`, `cli::inputs`, `cli::output`. No command imports another.
//!
//! Not here: an argument or a table that two commands share.

pub(crate) mod at;
pub(crate) mod attach;
pub(crate) mod bundle;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod compress;
pub(crate) mod ctl;
pub(crate) mod detach;
pub(crate) mod diff;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod info;
pub(crate) mod join;
pub(crate) mod man;
pub(crate) mod push;
pub(crate) mod report;
pub(crate) mod rss;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod symbolize;
pub(crate) mod timeline;
pub(crate) mod top;
pub(crate) mod tree;
pub(crate) mod watch;
