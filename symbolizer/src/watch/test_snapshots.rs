//! Test snapshots: stacks of a few sites, with exact numbers.

use std::sync::Arc;

use heapprof_core::{Row, SizeClass, Totals, Weight};
use heapprof_format::EndReason;

use crate::history::Past;
use crate::history::lifetimes::Lifetimes;
use crate::history::slope::Slope;
use crate::model::profile::{CallStack, Profile};
use crate::model::run::{Ending, Marker};
use crate::naming::site::{SiteKey, SitePath, SitePaths};
use crate::presence::Life;

use super::rates::RecentLooks;
use super::snapshot::Snapshot;

pub(super) const PARSE: u32 = 0;
pub(super) const READ: u32 = 1;
pub(super) const MAIN: u32 = 2;
/// A site that no given stack passes.
pub(super) const VECTOR: u32 = 3;

/// The functions of the sites, and their files.
const SITES: [(&str, &str); 4] = [
    ("parse", "/src/parser.c"),
    ("read_request", "/src/reader.c"),
    ("main", "/src/main.c"),
    ("std::vector<int>::push_back", "/usr/include/vector"),
];

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct TestSnapshots {
    profile: Profile,
    paths: SitePaths,
}

impl TestSnapshots {
    /// A stack, innermost first. So many blocks of that size are in use, and as many and one more
    /// were allocated.
    pub(super) fn stack(mut self, sites: &[u32], size: u64, in_use: u64) -> TestSnapshots {
        self.row(sites, &Weight::of(size, 1), in_use);
        self
    }

    /// Adds a row of samples, one for each 512 KiB.
    pub(super) fn sampled(mut self, sites: &[u32], size: u64, in_use: u64) -> TestSnapshots {
        self.profile.run.interval = Some(512 << 10);
        self.row(sites, &Weight::of(size, 512 << 10), in_use);
        self
    }

    fn row(&mut self, sites: &[u32], weight: &Weight, in_use: u64) {
        let mut totals = Totals::default();
        for _ in 0..in_use {
            totals.in_use.add(weight);
        }
        for _ in 0..=in_use {
            totals.allocated.add(weight);
        }
        self.profile.rows.push(Row {
            stack: self.profile.stacks.len() as u32,
            class: SizeClass::of(1),
            totals,
        });
        self.profile.pasts.push(Past {
            growth: Slope {
                samples: in_use,
                bytes_per_second: totals.in_use.bytes_f64() / 10.0,
                bytes_error: totals.in_use.bytes_error() / 10.0,
                ..Slope::default()
            },
            ..Past::default()
        });
        let mut lifetimes = Lifetimes::default();
        lifetimes.died(2_000_000_000, 1.0);
        self.profile.lifetimes.push(lifetimes);
        self.profile.stacks.push(CallStack::default());
        self.paths.stacks.push(SitePath {
            own: sites[0],
            sites: sites.into(),
        });
    }

    /// A mark at so many seconds.
    pub(super) fn mark(mut self, seconds: u64, name: &str) -> TestSnapshots {
        self.profile.run.markers.push(Marker {
            time_ns: seconds * 1_000_000_000,
            record: 1,
            name: name.into(),
        });
        self
    }

    /// The snapshot of a program that runs for 100 s, and grew all the time.
    pub(super) fn snapshot(mut self) -> Snapshot {
        let run = &mut self.profile.run;
        run.program = "/bin/server".into();
        run.pid = 77;
        run.duration_ns = 100_000_000_000;
        run.ending = Ending::Running;
        let keys = SITES
            .iter()
            .zip(10..)
            .map(|((function, file), line)| SiteKey {
                function: (*function).into(),
                file: Some((*file).into()),
                line: Some(line),
                module: "/bin/server".into(),
            });
        self.paths.keys = keys.collect();
        let mut snapshot = Snapshot {
            rates: RecentLooks::default().rates(
                std::time::Duration::ZERO,
                &self.profile,
                Life::Running,
            ),
            profile: self.profile,
            paths: Arc::new(self.paths),
            life: Life::Running,
            log_bytes: 2048,
            generation: 1,
            ..Snapshot::default()
        };
        for second in 0..=100 {
            snapshot
                .curve
                .at(second * 1_000_000_000, second as f64 * 1024.0);
        }
        snapshot
    }

    /// The snapshot of a program that ended.
    pub(super) fn ended(self) -> Snapshot {
        let mut snapshot = self.snapshot();
        snapshot.life = Life::Ended;
        snapshot.profile.run.ending = Ending::Said(EndReason::Exit);
        snapshot
    }
}
