//! Logs: the logs that are followed, in folders where they come and go.
//!
//! A log that grew is read again from its start, so a look takes time and memory by the length of
//! the log. [`Logs::grown`] is the only function that reads. One that reads on from where it was
//! can take its place.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use heapprof_format::Start;

use crate::analysis::view::Reading;
use crate::export::Increment;
use crate::input::{Input, InputError};
use crate::model::profile::Profile;
use crate::model::run::Ending;
use crate::push::baseline::Baseline;

/// Most files that are looked at in one folder: a folder of anything else is not searched without
/// a bound (Law 12).
const MOST_FILES: usize = 100_000;

/// See the module's text.
#[derive(Default)]
pub struct Logs {
    /// Folders and files, as the user named them.
    roots: Vec<PathBuf>,
    /// The state of each file at the last look.
    files: HashMap<PathBuf, State>,
    processes: HashMap<Identity, Process>,
    /// Logs that went away before their end was read.
    pub vanished: u64,
}

/// A process whose log grew.
pub struct Grown {
    /// The log.
    pub path: PathBuf,
    /// All that the log says up to now.
    pub profile: Profile,
    /// The part that came since the last look.
    pub increment: Increment,
}

/// Tells whether a file changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
    /// The process whose log it is; `None` for a file that could not be read.
    process: Option<Identity>,
}

/// The identity of a process on any machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    pid: u32,
    wall_ns: u64,
    monotonic_ns: u64,
    log_number: u64,
}

struct Process {
    baseline: Baseline,
    monotonic_ns: u64,
    log_number: u64,
    /// Whether the log of the process that forked it is followed, too: that one has the blocks
    /// from before the fork.
    has_parent: bool,
    has_ended: bool,
}

impl Logs {
    /// Follows these folders and files. A file need not be there yet.
    pub fn of(roots: Vec<PathBuf>) -> Logs {
        Logs {
            roots,
            ..Logs::default()
        }
    }

    /// Looks once: hands each process whose log grew since the last look to `taken`, and each file
    /// that cannot be read to `unread`, once for each change of the file.
    pub fn grown(&mut self, mut taken: impl FnMut(Grown), mut unread: impl FnMut(&InputError)) {
        let paths = self.paths();
        let mut changed = Vec::new();
        let mut files = HashMap::new();
        for path in paths {
            let Ok(meta) = fs::metadata(&path) else {
                continue;
            };
            let state = State {
                device: meta.dev(),
                inode: meta.ino(),
                len: meta.len(),
                changed: (meta.mtime(), meta.mtime_nsec()),
                process: None,
            };
            let known = self.files.get(&path).copied();
            let before = known.map(|known| State {
                process: None,
                ..known
            });
            let known = known.filter(|_| before == Some(state));
            if known.is_none() {
                changed.push(path.clone());
            }
            files.insert(path, known.unwrap_or(state));
        }
        // All are opened before any is read: a child's log may come before its parent's.
        let mut opened = Vec::new();
        let mut seen = HashSet::new();
        for path in changed {
            let input = match Input::open_alone(&path) {
                Ok(input) => input,
                // A process that has not written its first record yet.
                Err(InputError::Empty { .. } | InputError::CutOff { .. }) => continue,
                Err(error) => {
                    unread(&error);
                    continue;
                }
            };
            let Some(start) = input.start().filter(|_| input.is_log()) else {
                continue;
            };
            let identity = Identity::of(&start);
            if let Some(state) = files.get_mut(&path) {
                state.process = Some(identity);
            }
            // Any segment of a log that rotates leads to all of it.
            if seen.insert(identity) {
                opened.push((path, input, start));
            }
        }
        self.begin(&opened);
        for (path, mut input, start) in opened {
            let Some(process) = self.processes.get_mut(&Identity::of(&start)) else {
                continue;
            };
            if !process.has_parent {
                input.join(&path);
            }
            let reading = Reading {
                without_inherited: process.has_parent,
                ..Reading::default()
            };
            match input.read_part(&reading, |_| ()) {
                Ok(profile) => {
                    process.has_ended = matches!(profile.run.ending, Ending::Said(_));
                    let increment = process.baseline.advance(&profile);
                    taken(Grown {
                        path,
                        profile,
                        increment,
                    });
                }
                Err(error) => unread(&error),
            }
        }
        self.files = files;
        self.forget();
    }

    /// Whether no more can come: the user named files, and each has its end.
    pub fn have_ended(&self) -> bool {
        self.roots.iter().all(|root| {
            let process = self.files.get(root).and_then(|state| state.process);
            process.is_some_and(|identity| {
                (self.processes.get(&identity)).is_some_and(|process| process.has_ended)
            })
        })
    }

    /// The files of all roots, each once, in the order of the roots and then of names.
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for root in &self.roots {
            let Ok(entries) = fs::read_dir(root) else {
                paths.push(root.clone());
                continue;
            };
            let is_log = |path: &PathBuf| path.extension() == Some(OsStr::new("heaplog"));
            let mut of_folder: Vec<PathBuf> = (entries.flatten().take(MOST_FILES))
                .map(|entry| entry.path())
                .filter(is_log)
                .collect();
            of_folder.sort();
            paths.append(&mut of_folder);
        }
        let mut seen = HashSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }

    /// Makes a process of each log that was not known.
    fn begin(&mut self, opened: &[(PathBuf, Input, Start)]) {
        let mut begun: HashMap<u64, u64> = (self.processes.values())
            .map(|process| (process.log_number, process.monotonic_ns))
            .collect();
        begun.extend((opened.iter()).map(|(_, _, start)| (start.log_number, start.monotonic_ns)));
        begun.remove(&0); // no number
        for (_, _, start) in opened {
            // A parent began before its child, so no process is its own parent.
            let parent_began = begun.get(&start.parent_log_number);
            let has_parent = parent_began.is_some_and(|&began| began < start.monotonic_ns);
            (self.processes.entry(Identity::of(start))).or_insert_with(|| Process {
                baseline: Baseline::default(),
                monotonic_ns: start.monotonic_ns,
                log_number: start.log_number,
                has_parent,
                has_ended: false,
            });
        }
    }

    /// Forgets the processes whose logs are gone.
    fn forget(&mut self) {
        let there: HashSet<Identity> = (self.files.values())
            .filter_map(|state| state.process)
            .collect();
        let vanished = &mut self.vanished;
        self.processes.retain(|identity, process| {
            let is_there = there.contains(identity);
            *vanished += u64::from(!is_there && !process.has_ended);
            is_there
        });
    }
}

impl Identity {
    fn of(start: &Start) -> Identity {
        Identity {
            pid: start.pid,
            wall_ns: start.wall_ns,
            monotonic_ns: start.monotonic_ns,
            log_number: start.log_number,
        }
    }
}
