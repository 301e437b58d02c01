//! Recording conditions: which processes and which part of them a profile's numbers are about, and
//! when nothing was recorded.
//!
//! The numbers mislead without them, so every output that has room for words shows them.
//!
//! No line ends in a number: readers of folded stacks would take it for the number of a stack.

use std::collections::{BTreeMap, HashMap};

use heapprof_core::Fixed;
use heapprof_format::{Counter, EndReason, MemoryField};
use serde::Serialize;

use crate::model::fork_remark::{missing_from, remark_on};
use crate::model::part::Part;
use crate::model::peak::Peak;
use crate::model::precision::Precision;
use crate::model::printable::Printable;
use crate::model::profile::Profile;
use crate::model::quantity::Bytes;
use crate::model::run::{Ending, Run};
use crate::model::span::Outside;

/// Most processes that are named one by one in a line.
pub(super) const NAMED: usize = 8;

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Said of a recording that began in a running process.
const SINCE_ATTACH: &str = "since heapprof was attached: blocks from before are not known, and in use means allocated since";

impl Profile {
    /// Returns what ran, in a few words: `server, pid 77`, or `server, 4 processes`, or
    /// `make and 2 other programs, 9 processes`.
    pub fn process_name(&self) -> String {
        if self.parts.is_empty() {
            return self.run.process_name();
        }
        let name = self.run.known_name();
        let mut names: Vec<&str> = self
            .parts
            .iter()
            .map(|part| part.run.known_name())
            .collect();
        names.sort_unstable();
        names.dedup();
        let others = match names.len() - 1 {
            0 => String::new(),
            1 => " and 1 other program".into(),
            n => format!(" and {n} other programs"),
        };
        format!("{name}{others}, {}", self.processes_in_words())
    }

    /// Returns the number of processes that the parts are of, in words. A process that executes
    /// another program has a part for each program.
    fn processes_in_words(&self) -> String {
        let mut last: HashMap<u32, u64> = HashMap::new();
        for Part { run, .. } in &self.parts {
            let start = last.entry(run.pid).or_default();
            *start = run.start_wall_ns.max(*start);
        }
        let goes_on = |run: &Run| {
            run.ending == Ending::Said(EndReason::Exec)
                && last
                    .get(&run.pid)
                    .is_some_and(|&last| last > run.start_wall_ns)
        };
        let ended = self.parts.iter().filter(|part| !goes_on(&part.run));
        match ended.count() {
            1 => "1 process".to_owned(),
            n => format!("{n} processes"),
        }
    }

    /// For how long recording was stopped in what the numbers are about, in nanoseconds; of several
    /// processes, in sum.
    pub fn stopped_ns(&self) -> u64 {
        match self.parts.is_empty() {
            true => self.run.stopped_in_view_ns(),
            false => self.parts.iter().map(|p| p.run.stopped_in_view_ns()).sum(),
        }
    }

    /// The circumstances in words, a line each; none when there is nothing to say.
    pub fn circumstances(&self) -> Vec<String> {
        let mut lines = self.selection();
        lines.extend(self.still_runs());
        lines.extend(self.went_on());
        lines.extend(self.conditions());
        lines
    }

    /// Returns which part of the input the numbers are about, if not all.
    pub fn selection(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(span) = self.run.span {
            lines.push(format!("view: {}", span.describe()));
        }
        lines.extend(self.pages.map(|pages| pages.describe(&self.run)));
        if !self.filtered.is_empty() {
            let filter = Printable(&self.filtered);
            lines.push(format!(
                "filtered ({filter}): all numbers are of what this lets through"
            ));
        }
        lines
    }

    /// Returns the peak of a single process, if the numbers are of the whole run and nothing else.
    pub fn peak_of_run(&self) -> Option<Peak> {
        let is_whole = self.parts.is_empty() && self.selection().is_empty();
        self.peak
            .filter(|peak| is_whole && peak.bytes > Fixed::default())
    }

    /// The others of the circumstances.
    pub fn conditions(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.parts.is_empty() {
            let how = match self.run.is_joined {
                true => "joined, as if they were one",
                false => "added up",
            };
            lines.push(format!(
                "{how}: {} ({})",
                self.processes_in_words(),
                self.processes()
            ));
        }
        if !self.run.allocator.is_empty() {
            let library = Printable(&self.run.allocator);
            lines.push(format!("allocator: the program's own, in {library}"));
        }
        let tapped = self.run.tapped.iter();
        lines.extend(tapped.map(|what| format!("also recorded: {}", Printable(what))));
        lines.extend(self.views());
        lines.extend(self.outside());
        if self.account.inherited_elsewhere > 0 {
            lines.push(format!(
                "what {} of them had from before their fork is counted in the parent's log alone",
                self.account.inherited_elsewhere
            ));
        }
        lines.extend(self.counted_in_each());
        lines.extend(self.caveats());
        lines.extend(self.stopped());
        lines
    }

    /// For several processes: says how many have blocks from a parent whose log is not read.
    fn counted_in_each(&self) -> Option<String> {
        let orphans = self.parts.iter().filter(|part| {
            let has_some = !part.without_inherited && !remark_on(&part.run).is_empty();
            has_some && missing_from(&part.run).is_none()
        });
        let number = orphans.count();
        (number > 0).then(|| {
            format!("what {number} of them had from before their fork is counted in each: the parent's log is not among these")
        })
    }

    /// The resident memory of the processes: malloc's, and what is mapped past malloc, or another
    /// allocator's. For several processes, it is the most at one time. Nothing for a part of the
    /// time.
    pub fn resident(&self) -> Option<String> {
        let spans = self.parts.iter().map(|part| part.run.span);
        if spans.chain([self.run.span]).any(|span| span.is_some()) {
            return None;
        }
        let counted = |wanted| self.account.counter(wanted);
        // The kernel's count lags behind.
        let read = self.run.most_resident.map_or(0, |reading| reading.resident);
        let most = Bytes(counted(Counter::MostResidentBytes)?.max(read) as f64);
        let what = "resident memory (RSS), from malloc and elsewhere";
        if !self.parts.is_empty() {
            return Some(format!(
                "{what}: {most} at most, which is the sum over processes that lived at the same time"
            ));
        }
        // After a kill, the last counters may be older than the last reading.
        let last = self.memory.and_then(|it| it.get(MemoryField::Resident));
        let last = Bytes(last.or(counted(Counter::ResidentBytes))? as f64);
        Some(format!(
            "{what}: {last} at the last reading, {most} at most"
        ))
    }

    /// Says what the library noted about the recording.
    fn noted(&self) -> Vec<String> {
        if !self.parts.is_empty() && !self.run.is_joined {
            return self.noted_of_parts();
        }
        let notices = &self.run.notices;
        let shown = notices.iter().take(NAMED).map(|notice| {
            let (time_s, text) = (seconds(notice.time_ns), Printable(&notice.text));
            format!("noted at {time_s:.3} s: \"{text}\"")
        });
        let mut lines: Vec<String> = shown.collect();
        if notices.len() > NAMED {
            let more = notices.len() - NAMED;
            lines.push(format!(
                "and {more} more of these (`heapprof info` lists them)"
            ));
        }
        lines
    }

    /// For several processes: says what the library noted about them. Processes of one program
    /// often have the same notice, which is said once.
    fn noted_of_parts(&self) -> Vec<String> {
        let mut notices: Vec<(&str, Vec<&Part>)> = Vec::new();
        for part in &self.parts {
            for notice in &part.run.notices {
                match notices.iter_mut().find(|(text, _)| *text == notice.text) {
                    Some((_, parts)) => parts.push(part),
                    None => notices.push((&notice.text, vec![part])),
                }
            }
        }
        let shown = notices.iter().take(NAMED).map(|(text, parts)| {
            let text = Printable(text);
            match &parts[..] {
                [part] => format!("noted of {}: \"{text}\"", part.run.process_name()),
                parts => format!("noted of {} processes: \"{text}\"", parts.len()),
            }
        });
        let mut lines: Vec<String> = shown.collect();
        if notices.len() > NAMED {
            let more = notices.len() - NAMED;
            lines.push(format!(
                "and {more} more of these (`heapprof info` of each log lists them)"
            ));
        }
        lines
    }

    /// Says what the numbers lack, and what a metric does not mean although one might think so.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.run.is_attached {
            caveats.push(SINCE_ATTACH.to_owned());
        }
        caveats.extend(self.lacks());
        caveats.extend(self.account.lost_names.iter().cloned());
        caveats.extend(self.noted());
        if self.pasts.is_empty() {
            return caveats;
        }
        if !self.parts.is_empty() && !self.run.is_joined {
            caveats.push(
                "peak is the sum of each process's own, which need not have been at one time; with --joined it is that of all together"
                    .into(),
            );
        }
        let before = self.temporary.and_then(|t| t.before_allocations);
        if let (Some(n), Precision::Sampled) = (before, self.precision()) {
            let allocated = self.totals().allocated;
            let each = allocated.objects_f64() / allocated.samples.max(1) as f64;
            caveats.push(format!(
                "temporary has no valid interval: which blocks were freed before {n} further allocations of their thread is \
                 itself estimated, a sample stands for {each:.0} of these on average, and fewer are not told from none; ± and \
                 standard errors are those of the sum, given these blocks"
            ));
        }
        caveats
    }

    /// `server: pid 12, 14; cc1: pid 20`, as many as a line holds.
    fn processes(&self) -> String {
        let mut of_program: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for part in self.parts.iter().take(NAMED) {
            let pids = of_program.entry(part.run.known_name()).or_default();
            pids.push(match part.run.is_joined {
                true => "(a join)".to_owned(),
                false => part.run.pid.to_string(),
            });
        }
        let programs: Vec<String> = of_program
            .into_iter()
            .map(|(name, pids)| format!("{name}: pid {}", pids.join(", ")))
            .collect();
        let more = match self.parts.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        format!("{}{more}", programs.join("; "))
    }

    /// Says which part of each process is shown, if the parts differ.
    fn views(&self) -> Vec<String> {
        let spans = || self.parts.iter().filter_map(|part| part.run.span);
        if self.run.span.is_some() || spans().next().is_none() {
            return Vec::new();
        }
        let shown = self.parts.iter().filter(|part| part.run.span.is_some());
        let shown = shown.take(NAMED);
        let mut lines: Vec<String> = shown
            .filter_map(|part| {
                let (pid, view) = (part.run.pid, part.run.span?.describe());
                Some(format!("view of pid {pid}, since its own start: {view}"))
            })
            .collect();
        if spans().count() > NAMED {
            lines.push("and so on for the other processes".into());
        }
        lines
    }

    /// Says which processes do not have the time that was asked for.
    fn outside(&self) -> Vec<String> {
        let number = |outside: Outside| {
            let those = self.parts.iter();
            those.filter(|p| p.run.outside == Some(outside)).count()
        };
        [
            (Outside::NotBegun, "had not begun then, and show nothing"),
            (Outside::Over, "had ended before, and have nothing in use"),
            (
                Outside::Silent,
                "have no record so late, and no end: for all that is known, nothing has changed since",
            ),
        ]
        .into_iter()
        .filter(|(outside, _)| number(*outside) > 0)
        .map(|(outside, what)| format!("{} of the processes {what}", number(outside)))
        .collect()
    }

    pub(super) fn stopped(&self) -> Option<String> {
        let stopped_s = seconds(self.stopped_ns());
        let were = self.parts.iter();
        let were = were.filter(|p| p.run.stopped_in_view_ns() > 0).count();
        match (stopped_s > 0.0, self.parts.is_empty()) {
            (false, _) => None,
            (true, true) => Some(format!(
                "recording was stopped for {stopped_s:.3} s of it: what was allocated then is missing"
            )),
            (true, false) => Some(format!(
                "recording was stopped for {stopped_s:.3} s, in sum over {were} of the processes: what was allocated then \
                 is missing"
            )),
        }
    }
}

/// The circumstances in JSON, flattened into a document.
#[derive(Debug, Serialize)]
pub struct RecordingConditions<'a> {
    /// The part of the time that the numbers are about, in words; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<String>,
    /// The reading of pages that the numbers are of, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<String>,
    /// The filter that they passed; empty for none.
    #[serde(skip_serializing_if = "str::is_empty")]
    filter: &'a str,
    /// For how long nothing was recorded in what the numbers are about; of several processes, in
    /// sum.
    stopped_s: f64,
    /// When that was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stops: Vec<Stop>,
    /// The processes, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processes: Vec<Process<'a>>,
    /// Caveats in words: what the numbers lack, and meanings that a metric does not have although
    /// one might think so.
    caveats: Vec<String>,
    /// Samples from before forks that the parent's log has.
    #[serde(skip_serializing_if = "is_none")]
    inherited_elsewhere: u64,
}

fn is_none(n: &u64) -> bool {
    *n == 0
}

#[derive(Debug, Serialize)]
struct Stop {
    from_s: f64,
    to_s: f64,
}

#[derive(Debug, Serialize)]
struct Process<'a> {
    file: &'a str,
    program: &'a str,
    pid: u32,
    start_unix_ns: u64,
    duration_ns: u64,
    interval_bytes: Option<u64>,
    ended: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<String>,
    /// Why it does not have the time that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<&'static str>,
    stopped_s: f64,
    stops: Vec<Stop>,
}

fn stops(run: &Run) -> Vec<Stop> {
    let stops = run.stops_in_view().into_iter();
    stops
        .map(|(from_ns, to_ns)| Stop {
            from_s: seconds(from_ns),
            to_s: seconds(to_ns),
        })
        .collect()
}

impl<'a> RecordingConditions<'a> {
    /// Those of a profile.
    pub fn of(profile: &'a Profile) -> RecordingConditions<'a> {
        let processes = profile.parts.iter().map(|part| Process {
            file: &part.file,
            program: &part.run.program,
            pid: part.run.pid,
            start_unix_ns: part.run.start_wall_ns,
            duration_ns: part.run.duration_ns,
            interval_bytes: part.run.interval,
            ended: part.run.ending.describe(),
            view: part.run.span.map(|span| span.describe()),
            outside: part.run.outside.map(|outside| match outside {
                Outside::NotBegun => "not begun",
                Outside::Over => "ended",
                Outside::Silent => "no record",
            }),
            stopped_s: seconds(part.run.stopped_in_view_ns()),
            stops: stops(&part.run),
        });
        RecordingConditions {
            view: profile.run.span.map(|span| span.describe()),
            pages: profile.pages.map(|pages| pages.describe(&profile.run)),
            filter: &profile.filtered,
            stopped_s: seconds(profile.stopped_ns()),
            stops: stops(&profile.run),
            processes: processes.collect(),
            caveats: profile.caveats(),
            inherited_elsewhere: profile.account.inherited_elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::{Process, Start};

    use super::*;

    #[test]
    fn a_process_that_executes_another_program_counts_once() {
        let part = |pid, wall_ns, end| {
            Part::joined(Process {
                start: Start {
                    pid,
                    wall_ns,
                    program: "/bin/sh".into(),
                    ..Start::default()
                },
                end: Some(end),
                ..Process::default()
            })
        };
        let mut profile = Profile {
            parts: vec![part(5, 1, EndReason::Exec), part(5, 2, EndReason::Exit)],
            ..Profile::default()
        };
        assert!(profile.process_name().ends_with(", 1 process"));
        // The log of the program that process 6 has executed is not read.
        profile.parts.push(part(6, 3, EndReason::Exec));
        assert!(profile.process_name().ends_with(", 2 processes"));
    }
}
