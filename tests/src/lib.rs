//! Harness of the end-to-end tests: runs a program under the release library, as a user would, and
//! reads the files that it left behind.
//!
//! ```text
//!  Run::fixture("truth").interval(1).prefix("t").run()
//!    └─> Finished ─> log, dumps, stdout, stderr, status
//!                     │           └ claims: the fixture's expected results
//!                     └ Named: profile with function names
//! ```
//!
//! It builds neither the library nor the program: `cargo build --release` comes first. The fixtures
//! are made on demand (`build`). Every program has a hard time limit. A program that hangs is shown
//! with the stacks of all its threads, and killed.

mod account;
mod attached_server;
mod build;
mod cgroup;
mod claims;
mod ends;
mod finished;
mod health;
mod json;
mod linked_truth;
mod lives;
mod log;
mod machine;
mod named;
mod pattern;
mod promise;
mod ranges;
mod run;
mod running;
mod sampled_truth;
mod service;
mod statistics;
mod watchdog;
mod waterfall;

pub use account::{Account, by_site};
pub use attached_server::{AttachedServer, blocks_in_use};
pub use build::{Build, is_glibc_before, is_over_musl, repository};
pub use cgroup::MemoryCgroup;
pub use claims::Claims;
pub use ends::{best, ended_after, exits, last, last_tick, tick_of};
pub use finished::Finished;
pub use health::assert_health;
pub use json::Json;
pub use linked_truth::{Archive, linked};
pub use lives::{Both, Bounds, Life, Lives};
pub use log::{Block, Log, notes};
pub use machine::{Swap, is_root, may_mount, now_ns};
pub use named::{Function, Named};
pub use pattern::Pattern;
pub use promise::{assert_claims, assert_truth};
pub use ranges::ranges_of;
pub use run::Run;
pub use running::Running;
pub use sampled_truth::{Sizes, SizesOfSite, estimate, spread, totals_by_site};
pub use service::{ctl, ctl_output, ended, refused, samples_so_far, service, started, writer_of};
pub use statistics::{Spread, worst_error};
pub use waterfall::{MIB, assert_near, waterfall_of};
