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

mod archive;
mod bundle;
mod calendar;
mod circumstances;
mod confidence;
mod contrast;
mod coverage;
mod crate_name;
mod detail;
mod diff;
mod diff_graph;
mod dump;
mod filter;
mod flame;
mod fold;
mod group;
mod health;
mod heritage;
mod input;
mod jemalloc;
mod join;
mod limit;
mod log;
mod measure;
mod merge;
mod metric;
mod module_index;
mod moment;
mod noise;
mod occasions;
mod paths;
mod pprof;
mod printable;
mod profile;
mod quantity;
mod report;
mod run;
mod segments;
mod site;
mod symbols;
mod timeline;
mod tree;
mod type_name;
mod view;

pub use bundle::{BundleError, write_bundle};
pub use calendar::{duration_ns, utc};
pub use circumstances::Circumstances;
pub use confidence::{Confidence, FEW_SAMPLES};
pub use coverage::{Coverage, Share as CoverageShare};
pub use detail::{Block, Detail, Detailed, Event, ThreadRow};
pub use diff::{Change, Diff, Differences, Place as DiffPlace, REAL, Unlike, Verdict};
pub use diff_graph::DiffGraph;
pub use dump::profile_of_dump;
pub use filter::Filter;
pub use fold::{Fold, LARGEST_INTERVAL, Peak};
pub use group::{By, Group, GroupMap, groups};
pub use health::{Counted, Health};
pub use input::{Input, InputError};
pub use jemalloc::{JemallocError, profile_of_jemalloc};
pub use join::{Join, JoinError};
pub use limit::{Limit, Ruling};
pub use log::{detailed_profile_of_log, profile_of_log};
pub use measure::{Amount, Measure, Pace};
pub use merge::{Part, merged};
pub use metric::{Metric, Numbers};
pub use moment::{Cut, Moment, MomentError};
pub use occasions::{Occasions, dumps_of_log};
pub use paths::Paths;
pub use pprof::{PprofError, profile_of_pprof};
pub use printable::{Json, Printable};
pub use profile::{
    Account, CallStack, Damage, Ending, LoadedModule, Marker, Place, Precision, Profile, Regime,
    Run,
};
pub use quantity::{Bytes, Count, Percent};
pub use report::{Kept, Moment as ReportMoment, Report};
pub use segments::newest_of;
pub use site::{Site, SiteKey, SiteMap, Sites, is_allocator};
pub use symbols::{Symbols, Unnamed};
pub use timeline::{Groups, Rows, Step, Timeline, rows_at_peak, timeline_of_log};
pub use tree::{Direction, Node, Tree};
pub use type_name::type_of;
pub use view::{Outside, Reading, Span, View, ViewError, contrast_of_log, profile_of_view};
