//! Offline half of heapprof: from the files of a profiled process to what people read.
//!
//! ```text
//!  .heaplog ─> log, fold ─┐                          ┌─> sites ─> top, run's summary
//!                         ├─> Profile ─> Symbols ────┼─> export/* ─> gperftools, pprof, folded, …
//!  .heap ────> dump ──────┘              (resolve)   └─> info
//! ```
//!
//! You give [`Input::open`] a path and get a [`Profile`], which holds all numbers and no names. You
//! give the profile and a [`SearchPath`](resolve::SearchPath) to [`Symbols::of`] and get the names.
//! An exporter takes both and a `Write`. This library neither speaks to the user nor picks a file
//! to write to: the binary does (`main.rs`, `cli`).
//!
//! Numbers are computed in one place each: unsampled in `heapprof_core` (Law 8), rounded in
//! [`Numbers::of`]. A total is the sum of its rounded rows, so every output states the same total.
//!
//! | folder | what it holds | may import |
//! | --- | --- | --- |
//! | [`memory`] | the bound on memory | |
//! | `access` | the users that may read what is made from the opened profiles | |
//! | `presence` | whether a log's process runs here | |
//! | `regular_file` | a regular file, mapped or read | `memory` |
//! | `compressed` | a file as zstd frames | up to `regular_file` |
//! | [`resolve`] | names for addresses, from ELF files and DWARF | up to `compressed` |
//! | `history` | a fold of events into peak, lifetimes, growth and the like | |
//! | `model` | the profile as a value | `compressed`, `resolve`, `history` |
//! | `read` | one reader for each form of input | up to `model` |
//! | `naming` | names of a profile, groups, filters, trees | up to `model` |
//! | `analysis` | numbers and judgements from whole profiles | up to `read`, `naming` |
//! | [`export`], `report`, `join` | other programs' formats, a page, one log | up to `analysis` |
//! | `input` | a file of any form | up to `join` |
//! | [`push`] | messages for a store of profiles, and their delivery | up to `input` |
//! | [`attach`] | heapprof's library in a process that runs already | |
//! | [`control`] | the control page of a running program | |
//! | [`serve`] | the HTTP server: logs that grow, as profiles, metrics and pages | up to `input` |
//! | [`watch`] | a log that grows, in a terminal | up to `input` |
//! | `cli` (the binary) | the command line | all |
//!
//! `scripts/check-layers` keeps this order. docs/glossary.md defines the words that are this
//! project's own.

pub mod attach;
pub mod control;
pub mod export;
pub mod memory;
pub mod push;
pub mod resolve;
pub mod serve;
pub mod watch;

mod access;
mod analysis;
mod compressed;
mod history;
mod input;
mod join;
mod model;
mod naming;
mod presence;
mod read;
mod regular_file;
mod report;

pub use access::Access;
pub use analysis::coarse_past::{CoarsePast, CoarseRow, CoarseSite, CoarseSpan};
pub use analysis::completeness::Recorded;
pub use analysis::diff::{Comparability, Diff, DiffSite, Differences, SourceLine, SourcePlace};
pub use analysis::dump_triggers::{DumpTriggers, dumps_of_log};
pub use analysis::explain::forecast::{Forecast, LONGEST_S, Outlook};
pub use analysis::explain::kind::Kind;
pub use analysis::explain::readings::MappedGrowth;
pub use analysis::explain::statement::Statement;
pub use analysis::explain::whole_run::PastBeforeDetail;
pub use analysis::explain::{Churn, Explanation, Finding};
pub use analysis::growth::Scale;
pub use analysis::health::{Health, unsampled_bytes};
pub use analysis::heights::Heights;
pub use analysis::held_address::SlabPlace;
pub use analysis::limit::{Limit, Ruling};
pub use analysis::merge::merged;
pub use analysis::moment::{Moment, MomentError};
pub use analysis::pinning::PinningSite;
pub use analysis::recording_conditions::RecordingConditions;
pub use analysis::resident_memory::{
    BlocksInUse, ResidentLine, ResidentMemory, has_blocks_in_mappings,
};
pub use analysis::rows::Rows;
pub use analysis::timeline::mapped_course::MappedSeries;
pub use analysis::timeline::memory_moments::MemoryMoment;
pub use analysis::timeline::{
    Groups, Looks, Step, Surroundings, Timeline, timeline_of_log, timeline_with_surroundings,
};
pub use analysis::view::{ReadRequest, View, ViewError, paired_difference_of_log, profile_of_view};
pub use compressed::{
    Damaged, PlainError, UnpackError, Unpacked, is_compressed, on_unpacking, pack, unpack,
};
pub use export::bundle::{BundleError, Bundled, write_bundle};
pub use export::diff_graph::DiffGraph;
pub use history::Past;
pub use history::courses::{Course, CourseStep, Courses, StackCourse, Sum};
pub use history::lifetimes::Lifetimes;
pub use history::over_time::OverTime;
pub use history::pages::Pages;
pub use history::past_numbers::PastNumbers;
pub use history::slope::Slope;
pub use history::spikes::{Point, Spike, highest};
pub use history::steps::Steps;
pub use history::temporary::Temporary;
pub use input::growing::may_grow;
pub use input::{Input, InputError};
pub use join::{Join, JoinError};
pub use model::amount::Amount;
pub use model::calendar::{duration_ns, utc};
pub use model::change::{Change, REAL, Verdict};
pub use model::confidence::{Confidence, FEW_SAMPLES};
pub use model::counted::Counted;
pub use model::extras::{Block, Event, Extras, ThreadRow, WantedExtras};
pub use model::fitted::{cut, cut_front, cut_function, cut_middle};
pub use model::held_address::{AddressBlock, HeldAddress, HeldAddresses};
pub use model::labels::{Labels, NO_LABEL};
pub use model::loaded_module::LoadedModule;
pub use model::mapped_memory::{MAPPING, MappedLine, Mappings};
pub use model::measure::Measure;
pub use model::metric::{Metric, Numbers};
pub use model::pace::Pace;
pub use model::page_reading::PagesRead;
pub use model::part::Part;
pub use model::peak::Peak;
pub use model::precision::Precision;
pub use model::printable::{Json, Printable};
pub use model::profile::{CallStack, Damage, LogAccount, MISSING_FRAMES, Place, Profile};
pub use model::quantity::{Bytes, Count, Percent};
pub use model::run::{Ending, Marker, Notice, Regime, Run};
pub use model::span::{Cut, Outside, Span};
pub use naming::allocator_name::name_arenas;
pub use naming::coverage::{Coverage, Share as CoverageShare};
pub use naming::filter::{Filter, retain_stacks};
pub use naming::fold_library::fold_library;
pub use naming::group::{By, Group, GroupMap, groups};
pub use naming::growing::GrowingNames;
pub use naming::paths::Paths;
pub use naming::pattern::Pattern;
pub use naming::selection::Subject;
pub use naming::site::{Site, SiteKey, SiteMap, Sites, is_allocator};
pub use naming::suppressions::{Suppression, Suppressions};
pub use naming::symbols::{Symbols, Unnamed};
pub use naming::tree::{Direction, LibraryFrames, Node, Tree};
pub use naming::type_name::type_of;
pub use presence::raise_limit_of_files;
pub use read::address_search::search_addresses;
pub use read::beginning::{is_log_file, start_of_file};
pub use read::dump::profile_of_dump;
pub use read::ending::end_of_file;
pub use read::fold::{Fold, LARGEST_INTERVAL};
pub use read::jemalloc::{JemallocError, profile_of_jemalloc};
pub use read::labelled::LogPart;
pub use read::life::note_life;
pub use read::log::{profile_of_log, profile_of_log_with};
pub use read::midway::Midway;
pub use read::pprof::{PprofError, profile_of_pprof};
pub use read::segments::{newest_of, segments_of};
pub use regular_file::{OpenError, RegularFile};
pub use report::runs::{RUNS_WITHIN, is_page_of, runs_of};
pub use report::{BlockTypes, Dimensions, Kept, Moment as ReportMoment, Report, SitePasts};
