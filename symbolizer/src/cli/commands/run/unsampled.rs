//! Unsampled log: the log of a process that ended in an orderly way and never had a sample.
//!
//! A shell script starts many such processes. Their logs add nothing to a profile, because every
//! sum is a sum over samples. So `heapprof run` counts them and removes their files at its end.
//!
//! The library makes each log at boot, and does not wait for the first sample: the program may
//! later lack the rights, the descriptors or the folder, and `serve` and `watch` find a process by
//! its log. Only the reader sees at the end that a log is not needed.
//!
//! A log stays if it says anything beyond "this process existed": a loss, a notice, a marker, a
//! change of the interval, a mapping with a stack, damage, or memory in use that no sample came of
//! ([`Profile::is_complete`]). A log that another log names as its parent's stays, too.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heapprof_format::{Counter, EndReason, Reader, Record, Start};
use heapprof_symbolizer::{Input, Printable, RegularFile, start_of_file};

use crate::cli::commands::run::records::{Records, files, folder_of, log_of_dump, name};

/// The unsampled logs of a run.
#[derive(Debug, Default)]
pub(crate) struct Unsampled {
    logs: Vec<Log>,
}

/// An unsampled log.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Log {
    path: PathBuf,
    /// The name by which its program was executed.
    program: String,
    /// True if its process became the program that the user means.
    is_of_before: bool,
}

impl Unsampled {
    /// Takes the unsampled logs out of the records of a run. The program's own log stays.
    pub(crate) fn take(records: &mut Records) -> Unsampled {
        let own: Vec<&Path> = records.log.as_deref().into_iter().collect();
        Unsampled::take_from(&mut records.of_children, &mut records.before, &own)
    }

    /// Takes the unsampled logs out of the logs of children and of what the process was before.
    /// The logs in `others` may name them as their parents', too.
    fn take_from(
        of_children: &mut Vec<PathBuf>,
        before: &mut Vec<PathBuf>,
        others: &[&Path],
    ) -> Unsampled {
        let mut needed: HashSet<u64> = HashSet::new();
        let mut found: Vec<(Log, Start)> = Vec::new();
        let mut note = |start: Option<Start>| {
            needed.extend(start.map(|start| start.parent_log_number));
        };
        others.iter().for_each(|path| note(start_of(path)));
        for (list, is_of_before) in [(&mut *of_children, false), (&mut *before, true)] {
            list.retain(|path| {
                let start = start_of(path);
                let unsampled = start.clone().filter(|_| is_unsampled(path));
                let Some(start) = unsampled else {
                    note(start);
                    return true;
                };
                let log = Log {
                    path: path.clone(),
                    program: name_of(&start),
                    is_of_before,
                };
                found.push((log, start));
                false
            });
        }
        // A log that is needed may name another one as its parent's.
        let is_needed = |needed: &HashSet<u64>, start: &Start| {
            start.log_number != 0 && needed.contains(&start.log_number)
        };
        while let Some(at) = (found.iter()).position(|(_, start)| is_needed(&needed, start)) {
            let (log, start) = found.swap_remove(at);
            needed.insert(start.parent_log_number);
            let list = if log.is_of_before {
                &mut *before
            } else {
                &mut *of_children
            };
            list.push(log.path);
            list.sort();
        }
        let mut logs: Vec<Log> = found.into_iter().map(|(log, _)| log).collect();
        logs.sort();
        Unsampled { logs }
    }

    /// Returns how many logs there are.
    pub(crate) fn len(&self) -> usize {
        self.logs.len()
    }

    /// Returns the paths of the children's logs.
    pub(crate) fn of_children(&self) -> impl Iterator<Item = &PathBuf> {
        let of_children = self.logs.iter().filter(|log| !log.is_of_before);
        of_children.map(|log| &log.path)
    }

    /// Returns how many logs each program left, the most first.
    pub(crate) fn programs(&self) -> Vec<(&str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for log in &self.logs {
            *counts.entry(&log.program).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        counts
    }

    /// Returns the programs in a few words: `sed 20, bash 15, and 8 more`.
    pub(crate) fn programs_in_words(&self) -> String {
        const MOST: usize = 4;
        let programs = self.programs();
        let mut words: Vec<String> = (programs.iter().take(MOST))
            .map(|(program, count)| format!("{} {count}", Printable(program)))
            .collect();
        let more: usize = programs.iter().skip(MOST).map(|(_, count)| count).sum();
        if more > 0 {
            words.push(format!("{more} of others"));
        }
        words.join(", ")
    }

    /// Removes the logs, their dumps and their kept names. A file that cannot be removed stays.
    pub(crate) fn remove(&self) {
        let mut folders: BTreeMap<PathBuf, HashSet<String>> = BTreeMap::new();
        for Log { path, .. } in &self.logs {
            folders
                .entry(folder_of(path))
                .or_default()
                .insert(name(path));
        }
        for (folder, logs) in folders {
            let is_of_them = |path: &PathBuf| {
                let name = name(path);
                let dump = log_of_dump(&name);
                logs.contains(&name)
                    || name
                        .strip_suffix(".names")
                        .is_some_and(|log| logs.contains(log))
                    || dump.is_some_and(|log| logs.contains(&log))
            };
            for path in files(&folder).filter(is_of_them) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Returns true if a log is whole and says nothing but that its process existed. See the module's
/// text.
fn is_unsampled(log: &Path) -> bool {
    let says_nothing = || {
        let file = RegularFile::open_itself(log).ok()?;
        // Root starts programs of other users, whose files root may remove.
        // SAFETY: a question without arguments.
        let user = unsafe { libc::geteuid() };
        if user != 0 && file.meta().uid() != user {
            return None;
        }
        let map = file.map().ok()?;
        has_no_news(&map).then_some(())
    };
    // The records come first: a log with samples is mostly long, and its first sample is early.
    says_nothing().is_some()
        && Input::open_alone(log)
            .and_then(|input| input.read(|_| {}))
            .is_ok_and(|profile| profile.rows.is_empty() && profile.is_complete())
}

/// Beginning of the name of the marker of a last dump.
const LAST_DUMP: &str = "dump: Exiting, ";

/// Returns true if the records tell of a process that ended in an orderly way, and of nothing in
/// between.
fn has_no_news(log: &[u8]) -> bool {
    let Ok(mut reader) = Reader::new(log) else {
        return false;
    };
    let mut is_ended = false;
    loop {
        // A record behind an end is of a process that went on.
        is_ended = match reader.next_record() {
            Ok(None) => return is_ended && reader.missing_frames() == 0,
            Ok(Some(Record::End { reason, .. })) => {
                matches!(reason, EndReason::Exit | EndReason::Exec)
            }
            Ok(Some(Record::Counters { values, .. })) => {
                let is_news = |&(counter, n): &(Counter, u64)| {
                    let is_sample =
                        matches!(counter, Counter::SampledAllocs | Counter::SampledFrees);
                    n > 0 && (is_sample || counter.is_loss())
                };
                if values.iter().any(is_news) {
                    return false;
                }
                false
            }
            Ok(Some(
                Record::Start(_)
                | Record::Module(_)
                | Record::ModuleGone { .. }
                | Record::Thread(_)
                | Record::Title { .. }
                | Record::Memory(_)
                | Record::MappedMemory(_),
            )) => false,
            // The dump that each process writes at its end.
            Ok(Some(Record::Marker { name, .. })) if name.starts_with(LAST_DUMP) => false,
            Ok(Some(_)) | Err(_) => return false,
        };
    }
}

/// Returns the first record of a log.
pub(super) fn start_of(log: &Path) -> Option<Start> {
    start_of_file(&RegularFile::open_itself(log).ok()?)
}

/// Returns the name by which the program was executed, without folders.
pub(super) fn name_of(start: &Start) -> String {
    let executed_as = (start.settings.iter())
        .find(|(name, _)| name == heapprof_format::EXECUTED_AS)
        .map(|(_, value)| value.as_str());
    let file = || start.program.rsplit('/').next().unwrap_or_default();
    executed_as.unwrap_or_else(file).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_format::{Alloc, Encoder, FILE_HEADER, Stack, WalkEnd};

    /// A log with these records behind its start.
    fn log(numbers: (u64, u64), records: &[Record]) -> Vec<u8> {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            pid: 77,
            program: "/bin/sed".into(),
            interval: 4096,
            log_number: numbers.0,
            parent_log_number: numbers.1,
            ..Start::default()
        }));
        records.iter().for_each(|record| encoder.record(record));
        [&FILE_HEADER[..], encoder.finish()].concat()
    }

    fn end(reason: EndReason) -> Record {
        Record::End { time_ns: 9, reason }
    }

    fn counted(counter: Counter) -> Record {
        Record::Counters {
            time_ns: 1,
            values: vec![(counter, 1)],
        }
    }

    #[test]
    fn a_log_that_says_anything_is_no_unsampled_one() {
        let exit = end(EndReason::Exit);
        assert!(has_no_news(&log((1, 0), std::slice::from_ref(&exit))));
        assert!(has_no_news(&log((1, 0), &[end(EndReason::Exec)])));
        let resident = counted(Counter::ResidentBytes);
        let marker = |name: &str| Record::Marker {
            time_ns: 1,
            name: name.into(),
        };
        let last_dump = marker("dump: Exiting, 0 bytes in use");
        assert!(has_no_news(&log(
            (1, 0),
            &[resident, last_dump, exit.clone()]
        )));
        let stack = Record::Stack(Stack {
            number: 0,
            end: WalkEnd::Root,
            frames: vec![1],
            interrupted: Vec::new(),
            labels: Vec::new(),
        });
        let alloc = Record::Alloc(Alloc {
            time_ns: 1,
            thread: 0,
            id: 1,
            size: 9,
            slack: 0,
            stack: 0,
            interval: 4096,
        });
        let (noon, dump) = (marker("noon"), marker("dump: ctl"));
        let notice = Record::Notice {
            time_ns: 1,
            text: "a line".into(),
        };
        let regime = Record::Regime {
            time_ns: 1,
            interval: 0,
            by_budget: false,
        };
        let lost = counted(Counter::LostQueueFull);
        let sampled = counted(Counter::SampledAllocs);
        for news in [stack, alloc, noon, dump, notice, regime, lost, sampled] {
            let with_news = log((1, 0), &[news.clone(), exit.clone()]);
            assert!(!has_no_news(&with_news), "{news:?}");
        }
        // It has no end, another end, or went on behind it.
        assert!(!has_no_news(&log((1, 0), &[])));
        for reason in [EndReason::Cut, EndReason::GaveUp, EndReason::LogFailed] {
            assert!(!has_no_news(&log((1, 0), &[end(reason)])), "{reason:?}");
        }
        let went_on = [end(EndReason::Exec), counted(Counter::ResidentBytes)];
        assert!(!has_no_news(&log((1, 0), &went_on)));
        // It is cut.
        let whole = log((1, 0), &[exit]);
        assert!(!has_no_news(&whole[..whole.len() - 1]));
    }

    #[test]
    fn a_log_that_is_named_as_a_parent_stays() {
        let folder = tempfile::tempdir().unwrap();
        let exit = [end(EndReason::Exit)];
        let write = |name: &str, numbers, records: &[Record]| {
            let path = folder.path().join(name);
            fs::write(&path, log(numbers, records)).unwrap();
            path
        };
        let alone = write("alone.heaplog", (1, 0), &exit);
        let parent = write("parent.heaplog", (3, 2), &exit);
        let grandparent = write("grandparent.heaplog", (2, 0), &exit);
        let marker = Record::Marker {
            time_ns: 1,
            name: "noon".into(),
        };
        let child = write("child.heaplog", (4, 3), &[marker, exit[0].clone()]);
        let parent_of_other = write("of_other.heaplog", (5, 0), &exit);
        let other = write("other.heaplog", (6, 5), &[]);
        for dump in ["alone.0001.heap", "alone.x.heap", "alone.heaplog.names"] {
            fs::write(folder.path().join(dump), "").unwrap();
        }
        let mut before = vec![alone.clone(), grandparent.clone()];
        let mut children = vec![child.clone(), parent.clone(), parent_of_other.clone()];
        let unsampled = Unsampled::take_from(&mut children, &mut before, &[other.as_path()]);
        let paths: Vec<_> = unsampled.logs.iter().map(|log| &log.path).collect();
        assert_eq!(paths, [&alone]);
        assert_eq!(unsampled.of_children().count(), 0);
        assert_eq!(unsampled.programs_in_words(), "sed 1");
        assert_eq!(children, [child, parent_of_other, parent]);
        assert_eq!(before, [grandparent]);
        unsampled.remove();
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("alone"))
            .collect();
        left.sort();
        assert_eq!(left, ["alone.x.heap"]);
    }
}
