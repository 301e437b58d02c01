//! Table: the processes that are followed, found in folders and named on the command line.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::memory;
use crate::model::printable::Printable;
use crate::read::fold::room::SharedRoom;
use crate::read::follow::Options;
use crate::read::segments::newest_of;

use super::http::Request;
use super::process::{Process, Summary};
use super::unused::Unused;

/// Logs of a folder that are followed; further ones are said to be left out.
const MOST_LOGS: usize = 10_000;

/// Where logs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// All logs in a folder, as these come and go.
    Folder(PathBuf),
    /// One log.
    Log(PathBuf),
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Table {
    sources: Vec<Source>,
    processes: Mutex<BTreeMap<PathBuf, Arc<Process>>>,
    left_out: Mutex<usize>,
    options: Options,
    unused: Unused,
}

impl Table {
    pub(super) fn of(sources: Vec<Source>) -> Table {
        let (all, one) = memory::for_followers();
        Table {
            unused: Unused::of(memory::for_reuse()),
            sources,
            processes: Mutex::new(BTreeMap::new()),
            left_out: Mutex::new(0),
            options: Options {
                room: Some((SharedRoom::of(all), one)),
                ..Options::default()
            },
        }
    }

    /// All of them, by path.
    pub(super) fn all(&self) -> Vec<Arc<Process>> {
        let processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        processes.values().cloned().collect()
    }

    /// Number of logs that are left out.
    pub(super) fn left_out(&self) -> usize {
        *self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds logs that came, and forgets those that went.
    pub(super) fn find(&self) {
        let mut found: Vec<(PathBuf, bool)> = Vec::new();
        let mut left_out = 0;
        for source in &self.sources {
            match source {
                Source::Log(path) => found.push((in_real_folder(path), true)),
                Source::Folder(folder) => {
                    let real = folder.canonicalize();
                    let mut logs = logs_in(real.as_ref().unwrap_or(folder));
                    left_out += logs.len().saturating_sub(MOST_LOGS);
                    logs.truncate(MOST_LOGS);
                    found.extend(logs.into_iter().map(|path| (path, false)));
                }
            }
        }
        *self.left_out.lock().unwrap_or_else(PoisonError::into_inner) = left_out;
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let paths: HashSet<&Path> = found.iter().map(|(path, _)| path.as_path()).collect();
        processes.retain(|path, _| paths.contains(path.as_path()));
        for (path, may_be_link) in &found {
            if !processes.contains_key(path) {
                let process = Arc::new(Process::of(path, *may_be_link, self.options.clone()));
                processes.insert(path.clone(), process);
            }
        }
    }

    /// Looks at each log.
    pub(super) fn look(&self, is_over: impl Fn() -> bool) {
        for process in self.all() {
            if is_over() {
                return;
            }
            process.look();
            if process.unused_bytes() > 0 {
                self.unused.note(&process, false);
            }
        }
    }

    /// The states that are in memory, of processes that run no more.
    pub(super) fn unused(&self) -> &Unused {
        &self.unused
    }

    /// The process of that id.
    pub(super) fn by_id(&self, id: &str) -> Option<Arc<Process>> {
        self.all().into_iter().find(|process| process.id == id)
    }

    /// All with their summaries, or those that a request names by `pid` or `log`.
    pub(super) fn named_by(&self, request: &Request) -> Vec<(Arc<Process>, Arc<Summary>)> {
        let (pid, id) = (request.parameter("pid"), request.parameter("log"));
        let is_named = |(process, summary): &(Arc<Process>, Arc<Summary>)| {
            process.is_named(summary, pid.as_deref(), id.as_deref())
        };
        let all = self.all().into_iter();
        all.map(|process| {
            let summary = process.summary();
            (process, summary)
        })
        .filter(is_named)
        .collect()
    }

    /// The process that a request is about.
    ///
    /// # Errors
    /// In words: there is none or more than one, and these are they.
    pub(super) fn chosen(
        &self,
        pid: Option<&str>,
        id: Option<&str>,
    ) -> Result<Arc<Process>, (u16, String)> {
        let all = self.all();
        let summaries: Vec<(Arc<Process>, Arc<Summary>)> = (all
            .into_iter()
            .map(|process| (Arc::clone(&process), process.summary())))
        .collect();
        // A file without a process is none of several, unless it is named.
        let is_meant = |(process, summary): &&(Arc<Process>, Arc<Summary>)| {
            process.is_named(summary, pid, id) && (id.is_some() || summary.state.is_of_process())
        };
        let meant: Vec<&(Arc<Process>, Arc<Summary>)> = summaries.iter().filter(is_meant).collect();
        let running: Vec<&(Arc<Process>, Arc<Summary>)> = (meant.iter().copied())
            .filter(|(_, summary)| summary.state.is_running())
            .collect();
        match (&running[..], &meant[..]) {
            ([one], _) | ([], [one]) => return Ok(Arc::clone(&one.0)),
            // A number that was used again: the newest log is meant.
            (_, [_, ..]) if pid.is_some() => {
                let of_these = match running.is_empty() {
                    true => &meant,
                    false => &running,
                };
                let newest = of_these
                    .iter()
                    .max_by_key(|(_, summary)| summary.started_ns);
                if let Some((process, _)) = newest {
                    return Ok(Arc::clone(process));
                }
            }
            _ => {}
        }
        let mut lines = match (summaries.is_empty(), meant.is_empty()) {
            (true, _) => return Err((
                404,
                "there is no log yet: is the folder right, and does a program run under heapprof?"
                    .into(),
            )),
            (_, true) => "no such process; these are there:\n".to_owned(),
            _ => "several processes are there: choose one by ?pid=N, or /pid/N in front of the path\n"
                .to_owned(),
        };
        let listed = summaries.iter().take(100);
        for (process, summary) in listed {
            let (file, state) = (process.log(), summary.state.name());
            let (file, name) = (Printable(&file), Printable(&summary.name));
            lines.push_str(&match summary.state.is_of_process() {
                true => format!(
                    "?pid={}  {state}  {name}  ?log={}  {file}\n",
                    summary.pid, process.id
                ),
                false => format!("{file}  {state}\n"),
            });
        }
        Err((if meant.is_empty() { 404 } else { 400 }, lines))
    }
}

/// The logs in a folder, in the order of their names: of the segments of a log that rotates the
/// newest.
fn logs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A program's name, and so that of its log, may be no UTF-8.
    let names: Vec<OsString> = entries
        .map(|entry| entry.file_name())
        .filter(|name| name.as_bytes().ends_with(b".heaplog"))
        .collect();
    let texts: HashSet<Cow<str>> = names.iter().map(|name| name.to_string_lossy()).collect();
    let is_older =
        |name: &str| newest_of(name).is_some_and(|newest| texts.contains(newest.as_str()));
    let mut logs: Vec<PathBuf> = (names.iter())
        .filter(|name| !is_older(&name.to_string_lossy()))
        .map(|name| folder.join(name))
        .collect();
    logs.sort();
    logs
}

/// The path of a log with its folder as the system has it: a log that is named in two ways is one.
fn in_real_folder(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(real), Some(name)) => real.join(name),
        _ => path.to_owned(),
    }
}
