//! What heapprof's offline program is made of: from a file of the profiled process to what people
//! read.
//!
//! ```text
//!  .heaplog ─> log, fold ─┐                          ┌─> sites ─> top, run's summary
//!                         ├─> Profile ─> Symbols ────┼─> export/* ─> gperftools, pprof, folded, …
//!  .heap ────> dump ──────┘              (resolve)   └─> info
//! ```
//!
//! You give [`Input::open`] a path and get a [`Profile`], which holds all numbers and no names; you
//! give that and a [`SearchPath`](resolve::SearchPath) to [`Symbols::of`] and get the names; an
//! exporter takes both and a `Write`. Nothing here speaks to the user or picks a file to write to:
//! that is the binary's part (`main.rs`, `cli/`).
//!
//! Numbers are made in one place each: unsampled in `heapprof_core` (Law 8), rounded in
//! [`Numbers::of`]. A total is the sum of its rounded rows, so every output states the same one.

pub mod export;
pub mod resolve;

mod dump;
mod fold;
mod input;
mod log;
mod metric;
mod printable;
mod profile;
mod quantity;
mod site;
mod symbols;

pub use dump::profile_of_dump;
pub use fold::Fold;
pub use input::{Input, InputError};
pub use log::profile_of_log;
pub use metric::{Metric, Numbers};
pub use printable::Printable;
pub use profile::{
    Account, CallStack, Damage, Ending, LoadedModule, Place, Precision, Profile, Run,
};
pub use quantity::{Bytes, Count, Percent};
pub use site::{Site, SiteKey, Sites, is_allocator};
pub use symbols::{Symbols, Unnamed};
