//! Run: what ran, when, under which settings, what was in force at which times, and how it ended.

use heapprof_format::{
    ALLOCATOR, ATTACHED, Checkpoint, EMPTY_LOGS, EXECUTED_AS, EndReason, SLACK_UNKNOWN, Start,
    TAPPED, TITLE,
};

use crate::model::page_reading::PagesRead;
use crate::model::span::Cut;
use crate::model::span::{Outside, Span};

/// A run: its program, its time and its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// Path of the executable; empty when the input does not say.
    pub program: String,
    /// The name by which it was executed, where its file has another; else empty.
    pub executed_as: String,
    /// The last title of the process, where the program set one; else empty.
    pub title: String,
    /// The library whose allocator served the program: its path. Empty if heapprof's own did, or
    /// the input does not say.
    pub allocator: String,
    /// The allocators inside of the program that were recorded, too: each with its file.
    pub tapped: Vec<String>,
    /// The program's own description, by OpenTelemetry's process context: `service.name` and so
    /// on.
    pub resource: Vec<(String, String)>,
    /// True if heapprof was attached to a process that ran already: blocks from before are not
    /// known.
    pub is_attached: bool,
    /// The command line's words.
    pub args: Vec<String>,
    /// Process id, 0 when unknown.
    pub pid: u32,
    /// The parent that forked it, when the profile continues that process's.
    pub forked_from: u32,
    /// Wall clock at the start, nanoseconds since 1970; 0 when unknown.
    pub start_wall_ns: u64,
    /// The monotonic clock of the process's machine at the start; 0 when unknown.
    pub start_monotonic_ns: u64,
    /// From the start to the last event.
    pub duration_ns: u64,
    /// Mean sampling interval at the start, in bytes; `None` when the input does not say.
    pub interval: Option<u64>,
    /// Smallest and largest interval that a sample was taken under.
    pub intervals_seen: Option<(u64, u64)>,
    /// How it ended.
    pub ending: Ending,
    /// Version of the library that wrote the file.
    pub library: String,
    /// The settings in force.
    pub settings: Vec<(String, String)>,
    /// The checkpoint that the log begins with, when older segments are not there: what happened
    /// before its time is in the totals and the live set, and no more is known of it.
    pub checkpoint: Option<Checkpoint>,
    /// Named moments.
    pub markers: Vec<Marker>,
    /// The reading of the memory with the most resident bytes, the first one of equal ones.
    pub most_resident: Option<HighestReading>,
    /// Readings of the pages of sampled blocks.
    pub page_readings: Vec<PagesRead>,
    /// Notices of the library about the recording, in the order of the log.
    pub notices: Vec<Notice>,
    /// Changes of what was in force, in their order.
    pub regimes: Vec<Regime>,
    /// The part that the numbers are about; `None` for the whole.
    pub span: Option<Span>,
    /// For one of several processes: why it does not have the time that was asked for.
    pub outside: Option<Outside>,
    /// Why this profile was taken, for one that was taken on an occasion.
    pub reason: String,
    /// True if it is that of several processes whose logs were joined into one: with one clock and
    /// one heap, as if they were one.
    pub is_joined: bool,
}

/// The sampling parameters in force from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regime {
    /// Since when.
    pub time_ns: u64,
    /// Mean sampling interval in bytes; 0: recording was stopped.
    pub interval: u64,
    /// True if the budget for samples called for it, and not somebody.
    pub by_budget: bool,
}

/// A message of the library about the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// When the library noted it, since the log's start.
    pub time_ns: u64,
    /// The words, as the log has them.
    pub text: String,
}

/// A reading of the memory, as a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HighestReading {
    /// Number of its record, from 1.
    pub record: u64,
    /// When it was, since the log's start.
    pub time_ns: u64,
    /// Resident bytes.
    pub resident: u64,
}

/// The begin of the name of a moment at which a dump was written.
const DUMP: &str = "dump: ";

/// A named moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// When it was, since the log's start.
    pub time_ns: u64,
    /// Number of its record, from 1.
    pub record: u64,
    /// Its name.
    pub name: String,
}

impl Marker {
    /// Returns true if the library named it, for a dump.
    pub fn is_of_dump(&self) -> bool {
        self.name.starts_with(DUMP)
    }

    /// Returns the cut of the moment. A dump's cut is at its record: the writer takes a dump in the
    /// middle of events, and older events may still come. A moment that the program or a user named
    /// is at its time.
    pub fn cut(&self) -> Cut {
        match self.is_of_dump() {
            true => Cut::Record {
                number: self.record,
                time_ns: self.time_ns,
            },
            false => Cut::Time(self.time_ns),
        }
    }
}

/// Returns the name and the file of an entry of [`Run::tapped`]. The number of functions follows.
fn name_of_tapped(what: &str) -> &str {
    what.rsplit_once(" (").map_or(what, |(name, _)| name)
}

/// Returns true if a module of that path was opened as `file`, which may be relative.
fn is_of(file: &str, path: &str) -> bool {
    let plain = |path: &str| {
        let parts = path.split('/').filter(|&part| part != ".");
        parts.collect::<Vec<_>>().join("/")
    };
    let (file, path) = (plain(file), plain(path));
    path == file || !file.starts_with('/') && path.ends_with(&format!("/{file}"))
}

impl Run {
    /// Returns the names of the allocators whose free pages nobody tells: the one that served the
    /// program in place of heapprof's, and those inside of the program.
    pub(crate) fn allocators_of_the_program(&self) -> Vec<&str> {
        let inside = self.tapped.iter().map(|what| name_of_tapped(what));
        let own = Some(self.allocator.as_str()).filter(|own| !own.is_empty());
        // The functions of an attached process's allocator are tapped, too.
        let is_other = |name: &&str| own.is_none_or(|own| !name.ends_with(&format!(" in {own}")));
        own.into_iter().chain(inside.filter(is_other)).collect()
    }

    /// Returns the names of the allocators in the module of that path that were recorded.
    pub fn tapped_in(&self, path: &str) -> impl Iterator<Item = &str> {
        let names = self.tapped.iter().map(|what| name_of_tapped(what));
        let parts = names.filter_map(|name| name.split_once(" in "));
        parts
            .filter(move |(_, file)| is_of(file, path))
            .map(|(name, _)| name)
    }

    /// Returns true if libc's allocator alone serves the program. Its mappings are not recorded.
    pub(crate) fn keeps_libc_allocator(&self) -> bool {
        let name = self.allocator.rsplit('/').next().unwrap_or_default();
        let is_libc = name.starts_with("libc.so") || name.starts_with("ld-musl");
        is_libc && self.allocators_of_the_program().len() == 1
    }

    /// Returns false if no mapping is recorded, by a setting or because it could not be.
    pub(crate) fn records_mappings(&self) -> bool {
        let mut settings = self.settings.iter();
        !settings.any(|(name, value)| name == "HEAPPROF_MMAP" && value == "0")
    }

    /// Returns the longest mean interval that samples were taken under, in bytes.
    pub(crate) fn longest_interval(&self) -> u64 {
        let seen = self.intervals_seen.map(|(_, longest)| longest);
        seen.or(self.interval).unwrap_or(1)
    }

    /// Returns the names of the allocators that do not tell the usable bytes of their blocks.
    pub(crate) fn allocators_without_slack(&self) -> Vec<&str> {
        let tapped = self.tapped.iter();
        let without = tapped.filter(|what| what.contains(SLACK_UNKNOWN));
        without.map(|what| name_of_tapped(what)).collect()
    }

    /// Takes the first record of the log.
    pub(crate) fn begin(&mut self, start: Start) {
        self.program = start.program;
        self.args = start.args;
        self.pid = start.pid;
        self.forked_from = start.forked_from;
        self.start_wall_ns = start.wall_ns;
        self.start_monotonic_ns = start.monotonic_ns;
        self.interval = Some(start.interval);
        self.library = start.library;
        self.settings = start.settings;
        self.executed_as = self.take_setting(EXECUTED_AS).unwrap_or_default();
        self.allocator = self.take_setting(ALLOCATOR).unwrap_or_default();
        self.title = self.take_setting(TITLE).unwrap_or_default();
        self.is_attached = self.take_setting(ATTACHED).is_some();
        self.tapped = std::iter::from_fn(|| self.take_setting(TAPPED)).collect();
    }

    /// Takes out of the settings how many logs without a record there are beside those that a log
    /// was joined from.
    pub(crate) fn take_empty_logs(&mut self) -> u64 {
        let number = self.take_setting(EMPTY_LOGS);
        number.map_or(0, |number| number.parse().unwrap_or(1))
    }

    /// Takes a value out of the settings that no user has set.
    fn take_setting(&mut self, wanted: &str) -> Option<String> {
        let mut named = (self.settings).extract_if(.., |(name, _)| name == wanted);
        named.next().map(|(_, value)| value)
    }

    /// The allocator that served the program, in words. `None`: the input does not say.
    pub fn allocator_in_words(&self) -> Option<String> {
        match self.allocator.as_str() {
            "" if self.library.is_empty() => None,
            "" => Some("heapprof's jemalloc".into()),
            library => Some(format!("the program's own, in {library}")),
        }
    }

    /// The name by which the program was executed, without folders; empty when the input does not
    /// say.
    pub fn name(&self) -> &str {
        match self.executed_as.as_str() {
            "" => self.program.rsplit('/').next().unwrap_or_default(),
            name => name,
        }
    }

    /// The name by which the program was executed, or words that say that it is unknown.
    pub(crate) fn known_name(&self) -> &str {
        match self.name() {
            "" => "unknown program",
            name => name,
        }
    }

    /// The name of the program with the title of the process, as far as the two are known:
    /// `postgres: checkpointer`, `python3 (worker 2)`.
    pub fn titled_name(&self) -> String {
        match (self.name(), self.title.as_str()) {
            (name, "") => name.to_owned(),
            (name, title) if title.contains(name) => title.to_owned(),
            (name, title) => format!("{name} ({title})"),
        }
    }

    /// The process in a few words: `server, pid 77`.
    pub fn process_name(&self) -> String {
        let titled = self.titled_name();
        let name = match titled.as_str() {
            "" => self.known_name(),
            titled => titled,
        };
        match self.pid {
            0 => name.to_owned(),
            pid => format!("{name}, pid {pid}"),
        }
    }

    /// Returns true if recording was stopped from the beginning on, and never started.
    pub fn was_never_recorded(&self) -> bool {
        !self.regimes.is_empty() && self.intervals().is_none()
    }

    /// Smallest and largest interval that was in force, in bytes, as far as is known. Blocks that
    /// were recorded for their size do not count.
    pub fn intervals(&self) -> Option<(u64, u64)> {
        let first = self.interval.filter(|_| {
            // Stopped from its very start: the interval of the settings was never in force.
            self.regimes.first().is_none_or(|regime| regime.time_ns > 0)
        });
        let later = self.regimes.iter().map(|regime| regime.interval);
        let all = first
            .into_iter()
            .chain(later)
            .filter(|&interval| interval > 0);
        let known = all.fold(None, |range: Option<(u64, u64)>, interval| {
            let (least, most) = range.unwrap_or((interval, interval));
            Some((least.min(interval), most.max(interval)))
        });
        match (known, self.intervals_seen) {
            (Some((least, most)), Some((seen_least, seen_most))) => {
                let for_size = self.record_over().is_some();
                let seen_least = if for_size { least } else { seen_least };
                Some((least.min(seen_least), most.max(seen_most)))
            }
            (known, seen) => known.or(seen),
        }
    }

    /// From which size on all blocks were recorded, in bytes, if that was so.
    pub fn record_over(&self) -> Option<u64> {
        let mut settings = self.settings.iter();
        let (_, value) = settings.find(|(name, _)| name == "HEAPPROF_RECORD_OVER")?;
        value.parse().ok()
    }

    /// When recording was stopped in the part that the numbers are about: beginnings and ends.
    pub fn stops_in_view(&self) -> Vec<(u64, u64)> {
        if matches!(self.outside, Some(Outside::NotBegun)) {
            return Vec::new();
        }
        let (from_ns, to_ns) = self.span.map_or((0, self.duration_ns), |span| {
            (span.from.time_ns(), span.to.time_ns())
        });
        self.stops(from_ns, to_ns)
    }

    /// For how long that was.
    pub fn stopped_in_view_ns(&self) -> u64 {
        let stops = self.stops_in_view();
        stops.iter().map(|(from, to)| to - from).sum()
    }

    /// When recording was stopped between two moments: beginnings and ends.
    pub fn stops(&self, from_ns: u64, to_ns: u64) -> Vec<(u64, u64)> {
        let ends = self.regimes.iter().skip(1).map(|regime| regime.time_ns);
        let spans = self.regimes.iter().zip(ends.chain([u64::MAX]));
        spans
            .filter(|(regime, _)| regime.interval == 0)
            .map(|(regime, end)| (regime.time_ns.max(from_ns), end.min(to_ns)))
            .filter(|(from, to)| from < to)
            .collect()
    }

    /// For how long recording was stopped between two moments.
    pub fn stopped_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let stops = self.stops(from_ns, to_ns);
        stops.iter().map(|(from, to)| to - from).sum()
    }
}

/// How a profile ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ending {
    /// The log says so.
    Said(EndReason),
    /// The log has no end: the process was killed, or runs where it is not seen.
    #[default]
    CutOff,
    /// The log has no end yet: the process is seen to run.
    Running,
    /// A dump, taken while the process ran or at its end.
    Snapshot,
}

impl Ending {
    /// Returns true if the log's last records may be missing: the process went on after them, or
    /// ended without them.
    pub fn is_cut(self) -> bool {
        matches!(
            self,
            Ending::CutOff | Ending::Running | Ending::Said(EndReason::Cut)
        )
    }

    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Ending::Said(reason) => reason.describe(),
            Ending::CutOff => {
                "cut off: the process is not seen here: it was killed, ended or became another program past libc (as in Go), \
                 or runs on another machine or in another container"
            }
            Ending::Running => "still runs",
            Ending::Snapshot => "a dump: the heap at one moment",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_module_may_be_opened_by_a_relative_path() {
        let path = "/srv/app/./plug.so";
        for file in [
            "/srv/app/./plug.so",
            "/srv/app/plug.so",
            "./plug.so",
            "app/plug.so",
        ] {
            assert!(is_of(file, path), "{file}");
        }
        for file in ["/srv/app/plug.so.1", "./lug.so", "/app/plug.so"] {
            assert!(!is_of(file, path), "{file}");
        }
    }
}
