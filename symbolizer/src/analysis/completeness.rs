//! Completeness: what the numbers of a profile lack, because its record of the run has no end, is
//! damaged, or has gaps.
//!
//! "Exact", "nothing" and "within the limit" are said of complete profiles only.

use std::collections::HashMap;

use heapprof_format::{Counter, EndReason};

use crate::analysis::health::unsampled_bytes;
use crate::analysis::recording_conditions::{NAMED, seconds};
use crate::model::fork_remark::missing_from;
use crate::model::profile::Profile;
use crate::model::quantity::{Bytes, Count};
use crate::model::run::{Ending, Run};
use crate::model::span::{Cut, Span};

/// Records that a profile has of a run whose every allocation was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// All.
    All,
    /// All since the fork.
    SinceFork,
    /// All up to the last record of a log that has no end.
    UpToTheLast,
    /// Not all: the log is damaged, records were lost, or recording was stopped.
    InParts,
}

/// A remark on logs without an end.
struct NoEnd {
    words: String,
    /// False if the process still runs.
    is_a_lack: bool,
}

impl Profile {
    /// Returns true if nothing is missing from the record of the run.
    pub fn is_complete(&self) -> bool {
        self.lacks().is_empty() && self.stopped_ns() == 0
    }

    /// Returns which records of a run the profile has.
    pub fn recorded(&self) -> Recorded {
        if !self.lacks_from_forks().is_empty() {
            return Recorded::SinceFork;
        }
        let gaps = [
            self.damaged(),
            self.empty_logs(),
            self.lost(),
            self.unsampled(),
        ];
        if gaps.into_iter().any(|gap| gap.is_some()) || self.stopped_ns() > 0 {
            return Recorded::InParts;
        }
        match self.lacks_an_end() {
            true => Recorded::UpToTheLast,
            false => Recorded::All,
        }
    }

    /// Returns what the numbers lack, a sentence each, but for stops of the recording.
    pub fn lacks(&self) -> Vec<String> {
        let mut lacks = self.lacks_from_forks();
        lacks.extend(self.damaged());
        lacks.extend(self.empty_logs());
        let no_end = self.no_end().filter(|no_end| no_end.is_a_lack);
        lacks.extend(no_end.map(|no_end| no_end.words));
        lacks.extend(self.ends_early());
        lacks.extend(self.begins_late());
        lacks.extend(self.lost());
        lacks.extend(self.unsampled());
        lacks
    }

    /// Returns true if parts of the log are missing, or recording ended before the process did.
    pub(crate) fn lacks_parts(&self) -> bool {
        self.damaged().is_some() || self.empty_logs().is_some() || self.ends_early().is_some()
    }

    /// Says that the process of a log without an end still runs.
    pub fn still_runs(&self) -> Option<String> {
        let no_end = self.no_end().filter(|no_end| !no_end.is_a_lack)?;
        Some(no_end.words)
    }

    /// Says that the process has executed another program, which it then is.
    pub fn went_on(&self) -> Option<String> {
        let is_so = self.run.ending == Ending::Said(EndReason::Exec) && self.parts.is_empty();
        is_so.then(|| {
            "at its end the process executed another program, which has a log of its own".to_owned()
        })
    }

    /// Says which part of the heap at a fork the numbers lack, because the parent's log is missing
    /// or incomplete. It concerns each process whose parent is not among the added processes.
    pub fn lacks_from_forks(&self) -> Vec<String> {
        if self.parts.is_empty() {
            return missing_from(&self.run).into_iter().collect();
        }
        let runs = || self.parts.iter().map(|part| &part.run);
        let mut first_of: HashMap<u32, u64> = HashMap::new();
        for run in runs() {
            let first = first_of.entry(run.pid).or_insert(run.start_wall_ns);
            *first = run.start_wall_ns.min(*first);
        }
        let is_orphan = |run: &&Run| {
            let parent = first_of.get(&run.forked_from);
            parent.is_none_or(|began| *began > run.start_wall_ns)
        };
        let lacks = runs().filter(is_orphan).filter_map(|run| {
            let lack = missing_from(run)?;
            Some(format!("pid {}, {lack}", run.pid))
        });
        let mut lacks: Vec<String> = lacks.collect();
        let more = lacks.len().saturating_sub(NAMED);
        lacks.truncate(NAMED);
        if more > 0 {
            lacks.push(format!("the same holds for {more} more of the processes"));
        }
        lacks
    }

    /// Says how many logs of other processes have no record.
    fn empty_logs(&self) -> Option<String> {
        match self.account.empty_logs {
            0 => None,
            1 => Some("1 log has no record: what its process did is missing".into()),
            n => Some(format!(
                "{n} logs have no record: what their processes did is missing"
            )),
        }
    }

    /// Says where the file is damaged or cut off.
    fn damaged(&self) -> Option<String> {
        if !self.parts.is_empty() {
            let damaged = self.parts.iter().filter(|part| !part.is_whole).count();
            let when = match self.run.is_joined {
                true => " when they were joined",
                false => "",
            };
            return (damaged > 0).then(|| {
                format!("the logs of {damaged} of the processes were damaged or cut off{when}: what was in those parts is missing")
            });
        }
        let account = &self.account;
        let places = account.damage.len() as u64;
        let torn = account.torn.map(|(offset, _)| {
            let unchecked = account.unchecked_in_words();
            format!(
                "the file is cut off at offset {offset}: what was behind it is missing{unchecked}"
            )
        });
        let damaged = (places > 0).then(|| {
            let places = match places {
                1 => "1 place".to_owned(),
                n => format!("{} places", Count(n)),
            };
            format!("the log is damaged in {places}: what was there is missing")
        });
        let cut = (account.cut_bytes > 0).then(|| {
            let bytes = Bytes(account.cut_bytes as f64);
            format!("the log was cut while it was followed: {bytes} that were read are gone")
        });
        let missing = (account.missing_frames > 0).then(|| {
            let parts = match account.missing_frames {
                1 => "1 part of the log is".to_owned(),
                n => format!("{} parts of the log are", Count(n)),
            };
            format!("{parts} missing between others, with all that was in them")
        });
        let all = [damaged, missing, torn, cut];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Says which logs have no end, and whether their processes still run.
    fn no_end(&self) -> Option<NoEnd> {
        const UNSEEN: &str =
            "not seen here (killed, ended past libc as in Go, or of another machine or container)";
        const OF_THE_LAST: &str = "numbers are those of its last record";
        let runs = self.parts.iter().map(|part| &part.run);
        let number = |ending| runs.clone().filter(|run| run.ending == ending).count();
        let (gone, running) = (number(Ending::CutOff), number(Ending::Running));
        if self.parts.is_empty() {
            return match self.run.ending {
                Ending::Running => Some(NoEnd {
                    words: format!("process {} still runs: {OF_THE_LAST} so far", self.run.pid),
                    is_a_lack: false,
                }),
                Ending::CutOff => Some(NoEnd {
                    words: format!(
                        "the log has no end, and its process is {UNSEEN}: {OF_THE_LAST}"
                    ),
                    is_a_lack: true,
                }),
                _ => None,
            };
        }
        let whose = match gone {
            1 => "its process is",
            _ => "their processes are",
        };
        let words = match (gone, running) {
            (0, 0) => return None,
            (0, n) => format!(
                "still running: {n} of the processes, with the numbers of their last records so far"
            ),
            (n, 0) => format!(
                "logs without an end: {n}, and {whose} {UNSEEN}; with the numbers of their last records"
            ),
            (n, running) => format!(
                "logs without an end: {n}, and {whose} {UNSEEN}, and {running} of processes that still run; with the numbers of \
                 their last records"
            ),
        };
        Some(NoEnd {
            words,
            is_a_lack: gone > 0,
        })
    }

    /// From when on there is detail, where something is shown that needs it and is not limited to a
    /// time that has it.
    fn begins_late(&self) -> Option<String> {
        const WHAT: &str = "peak, temporary, lifetimes, heaptime and growth are of the time since";
        if self.pasts.is_empty() && self.extras.events.is_none() {
            return None;
        }
        let late = |run: &Run| {
            let is_whole = run.span.is_none_or(|span| span.from == Cut::Nothing);
            run.checkpoint.filter(|_| is_whole)
        };
        if self.parts.is_empty() || self.run.is_joined {
            let begins = seconds(late(&self.run)?.time_ns);
            return Some(format!(
                "the log rotated, detail begins at {begins:.3} s: {WHAT}"
            ));
        }
        let of_parts = self.parts.iter().filter_map(|part| late(&part.run));
        let number = of_parts.count();
        (number > 0).then(|| {
            format!("the logs of {number} of the processes rotated: of these, {WHAT} their detail begins")
        })
    }

    /// Where recording ended before the process did, or the log before it was complete, in what is
    /// shown.
    fn ends_early(&self) -> Option<String> {
        let why = |run: &Run| {
            let is_to_the_end = |span: Span| span.to.time_ns() >= run.duration_ns;
            match run.ending {
                Ending::Said(
                    reason @ (EndReason::GaveUp | EndReason::LogFailed | EndReason::Cut),
                ) => Some(reason),
                _ => None,
            }
            .filter(|_| run.span.is_none_or(is_to_the_end))
        };
        if self.parts.is_empty() {
            let ended_s = seconds(self.run.duration_ns);
            if self.run.ending == Ending::Said(EndReason::Cut) && self.lacks_an_end() {
                return Some(format!(
                    "the process ended at {ended_s:.3} s, before its log was complete: the last records are missing, \
                     and blocks that were freed in them seem to be in use"
                ));
            }
            let why = why(&self.run)?.describe();
            return Some(format!(
                "recording ended at {ended_s:.3} s, before the process did ({why}): what came after is missing"
            ));
        }
        let early = self.parts.iter().filter(|part| why(&part.run).is_some());
        let number = early.count();
        (number > 0).then(|| {
            format!("recording of {number} of the processes ended before they did (`heapprof info` says why): what came after is missing")
        })
    }

    /// Says that records were lost, or could not be used.
    fn lost(&self) -> Option<String> {
        let account = &self.account;
        // A dump that was not written can be made from the log.
        let of_records = (account.losses()).filter(|(counter, _)| *counter != Counter::LostDumps);
        let counted: u64 = of_records.map(|(_, n)| n).sum();
        let unusable = [
            account.unknown_stacks,
            account.implausible,
            account.without_room,
        ];
        let lost = unusable.into_iter().fold(counted, u64::saturating_add);
        (lost > 0).then(|| "losses were counted: see `heapprof info`".to_owned())
    }

    /// Says that samples are missing, because the allocator had memory in use and there is none.
    fn unsampled(&self) -> Option<String> {
        let bytes = Bytes(unsampled_bytes(self)? as f64);
        Some(format!(
            "no sample came of the {bytes} that the allocator had in use at the end: its blocks are missing"
        ))
    }
}
