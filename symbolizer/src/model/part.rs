//! Part: one of the processes that a merged profile adds up.

use std::ops::Range;

use heapprof_format::{Process, Start, TITLE};

use crate::model::fork_remark::remark_on;
use crate::model::peak::Peak;
use crate::model::precision::Precision;
use crate::model::run::{Ending, Marker, Regime, Run};

/// One of the processes that a merged profile adds up.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its file, as the user named it.
    pub file: String,
    /// The run of the process.
    pub run: Run,
    /// How exact its numbers are.
    pub precision: Precision,
    /// True if its file was read to its end without a doubt.
    pub is_whole: bool,
    /// True if what it had from its parent is left out, because the parent's log is read as well.
    pub without_inherited: bool,
    /// The numbers that its threads have in the merged profile.
    pub threads: Range<u32>,
    /// When it had the most bytes in use; `None` for a dump, and if the logs were joined.
    pub peak: Option<Peak>,
    /// The most bytes that were resident, as far as they were read.
    pub most_resident: u64,
}

impl Part {
    /// One of those whose logs were joined into one, as that says.
    pub(crate) fn joined(process: Process) -> Part {
        let interval = process.start.interval;
        let regimes = process.stops.iter().flat_map(|&(from_ns, to_ns)| {
            [(from_ns, 0), (to_ns, interval)].map(|(time_ns, interval)| Regime {
                time_ns,
                interval,
                by_budget: false,
            })
        });
        let remark = Some(process.fork_remark).filter(|remark| !remark.is_empty());
        let remark = remark.into_iter().map(|name| Marker {
            time_ns: 0,
            record: 0,
            name,
        });
        let mut run = Run {
            duration_ns: process.duration_ns,
            ending: process.end.map_or(Ending::CutOff, Ending::Said),
            intervals_seen: Some(process.intervals).filter(|&seen| seen != (0, 0)),
            regimes: regimes.collect(),
            markers: remark.collect(),
            ..Run::default()
        };
        run.begin(process.start);
        let is_sampled = run.intervals().is_some_and(|(_, most)| most > 1);
        Part {
            file: process.file,
            precision: match is_sampled {
                true => Precision::Sampled,
                false => Precision::Exact,
            },
            is_whole: process.is_whole,
            without_inherited: process.without_inherited,
            threads: process.threads.0..process.threads.0.saturating_add(process.threads.1),
            peak: None,
            most_resident: 0,
            run,
        }
    }

    /// The record of it in a log that it is joined into. `start` is what its own log began with;
    /// its threads have these numbers there, the first of so many.
    pub(crate) fn process(&self, mut start: Start, threads: (u32, u32)) -> Process {
        if !self.run.title.is_empty() {
            let title = (TITLE.to_owned(), self.run.title.clone());
            start.settings.push(title);
        }
        Process {
            file: self.file.clone(),
            start,
            duration_ns: self.run.duration_ns,
            end: match self.run.ending {
                Ending::Said(reason) => Some(reason),
                Ending::CutOff | Ending::Running | Ending::Snapshot => None,
            },
            is_whole: self.is_whole,
            intervals: self.run.intervals_seen.unwrap_or_default(),
            stops: self.run.stops(0, self.run.duration_ns),
            fork_remark: remark_on(&self.run).to_owned(),
            threads,
            without_inherited: self.without_inherited,
        }
    }
}
