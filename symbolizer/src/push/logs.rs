//! Logs: the logs that are followed, in folders where they come and go.
//!
//! Each log is read on from where the last look ended. So a look takes time by what was appended,
//! and memory by blocks in use and stacks.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapprof_format::Start;

use crate::analysis::view::ReadRequest;
use crate::export::Increment;
use crate::input::{Input, InputError};
use crate::memory;
use crate::model::profile::Profile;
use crate::model::run::{Ending, Run};
use crate::presence;
use crate::push::baseline::Baseline;
use crate::read::fold::averages::Averages;
use crate::read::fold::room::SharedRoom;
use crate::read::follow::{Follower, Options, Step, start_of_log};
use crate::read::life::began;
use crate::read::segments::newest_of;

/// Most files that are looked at in one folder: a folder of anything else is not searched without
/// a bound (Law 12).
const MOST_FILES: usize = 100_000;
/// The newest part of the time of a process whose log does not grow is left for the next look: the
/// log may get events of it yet.
const LATE_NS: u64 = 1_000_000_000;

/// See the module's text.
pub struct Logs {
    /// Folders and files, as the user named them.
    roots: Vec<PathBuf>,
    /// The state of each file at the last look.
    files: HashMap<PathBuf, State>,
    processes: HashMap<Identity, Process>,
    /// The memory for all of them, and for one.
    room: (Arc<SharedRoom>, u64),
    /// Logs that went away before their end was read.
    pub vanished: u64,
}

/// A process whose log grew, or that runs.
pub struct Grown {
    /// The log.
    pub path: PathBuf,
    /// All that the log says up to now.
    pub profile: Profile,
    /// Changes if numbers of stacks and modules mean other ones than at the look before.
    pub generation: u64,
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

/// The change of a log's file since the last look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum File {
    Same,
    Changed,
    /// It is gone, or another process's log has its path.
    Lost,
}

struct Process {
    path: PathBuf,
    /// `None`: the log is in a bundle, which does not grow.
    follower: Option<Follower>,
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
        let (all, one) = memory::for_followers();
        Logs {
            roots,
            files: HashMap::new(),
            processes: HashMap::new(),
            room: (SharedRoom::of(all), one),
            vanished: 0,
        }
    }

    /// Looks once: hands each process that runs, or whose log grew since the last look, to `taken`,
    /// and each file that cannot be read to `unread`, once for each change of the file.
    pub fn grown(&mut self, mut taken: impl FnMut(Grown), mut unread: impl FnMut(&InputError)) {
        let mut files = HashMap::new();
        let mut changed = HashSet::new();
        let mut begun = Vec::new();
        for path in self.paths() {
            let Ok(meta) = fs::metadata(&path) else {
                continue;
            };
            let known = self.files.get(&path);
            let mut state = State::of(&meta, known.and_then(|known| known.process));
            if known == Some(&state) {
                files.insert(path, state);
                continue;
            }
            if known.is_none_or(|known| !known.is_same_file(&state)) {
                match start_of(&path) {
                    Ok(Some((start, is_bundle))) => {
                        state.process = Some(Identity::of(&start));
                        begun.push((path.clone(), start, is_bundle));
                    }
                    // A process that has not written its first record yet, or no log.
                    Ok(None) => continue,
                    Err(error) => {
                        state.process = None;
                        unread(&error);
                    }
                }
            }
            changed.insert(path.clone());
            files.insert(path, state);
        }
        // All are known before any is read: a child's log may come before its parent's.
        self.begin(begun);
        let mut identities: Vec<(PathBuf, Identity)> = (self.processes.iter())
            .map(|(identity, process)| (process.path.clone(), *identity))
            .collect();
        identities.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, identity) in identities {
            let Some(process) = self.processes.get_mut(&identity) else {
                continue;
            };
            let of_file = files.get(&path).and_then(|state| state.process);
            let file = match of_file == Some(identity) {
                false => File::Lost,
                true if changed.contains(&path) => File::Changed,
                true => File::Same,
            };
            if let Err(error) = process.look(file, &mut taken) {
                unread(&error);
            }
        }
        self.files = files;
        self.forget();
    }

    /// Whether no more can come: the user named files, and each has its end.
    pub fn have_ended(&self) -> bool {
        self.roots.iter().all(|root| {
            let process = self
                .files
                .get(&newest(root))
                .and_then(|state| state.process);
            process.is_some_and(|identity| {
                (self.processes.get(&identity)).is_some_and(|process| process.has_ended)
            })
        })
    }

    /// The files of all roots, each once, in the order of the roots and then of names. A log that
    /// rotates has its newest segment.
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for root in &self.roots {
            let Ok(entries) = fs::read_dir(root) else {
                paths.push(newest(root));
                continue;
            };
            let is_log = |path: &PathBuf| path.extension() == Some(OsStr::new("heaplog"));
            let mut of_folder: Vec<PathBuf> = (entries.flatten().take(MOST_FILES))
                .map(|entry| entry.path())
                .filter(is_log)
                .map(|path| newest(&path))
                .collect();
            of_folder.sort();
            paths.append(&mut of_folder);
        }
        let mut seen = HashSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }

    /// Makes a process of each log that was not known.
    fn begin(&mut self, begun: Vec<(PathBuf, Start, bool)>) {
        let mut began: HashMap<u64, u64> = (self.processes.values())
            .map(|process| (process.log_number, process.monotonic_ns))
            .collect();
        began.extend((begun.iter()).map(|(_, start, _)| (start.log_number, start.monotonic_ns)));
        began.remove(&0); // no number
        for (path, start, is_bundle) in begun {
            // A parent began before its child, so no process is its own parent.
            let parent_began = began.get(&start.parent_log_number);
            let has_parent = parent_began.is_some_and(|&began| began < start.monotonic_ns);
            let process = (self.processes.entry(Identity::of(&start))).or_insert_with(|| Process {
                path: PathBuf::new(),
                follower: None,
                baseline: Baseline::default(),
                monotonic_ns: start.monotonic_ns,
                log_number: start.log_number,
                has_parent,
                has_ended: false,
            });
            // A copy of a log is no other process; but a log may be renamed.
            let is_newest = process.path.exists() && newest(&process.path) == process.path;
            if process.path == path || is_newest {
                continue;
            }
            let options = Options {
                without_inherited: process.has_parent,
                averages_since_ns: Some(process.baseline.to_ns()).filter(|&to_ns| to_ns > 0),
                room: Some(self.room.clone()),
                ..Options::default()
            };
            process.follower = (!is_bundle).then(|| Follower::of(&path, true, options));
            process.path = path;
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

impl Process {
    /// Hands on what came.
    fn look(&mut self, file: File, taken: &mut impl FnMut(Grown)) -> Result<(), InputError> {
        let path = self.path.clone();
        let Some(follower) = &mut self.follower else {
            return match file {
                File::Changed => self.read_bundle(taken),
                File::Same | File::Lost => Ok(()),
            };
        };
        let mut has_grown = false;
        if file != File::Same {
            // The rest of a file that was replaced comes first.
            loop {
                let step = match file {
                    File::Lost => follower.read_rest(),
                    _ => follower.catch_up(),
                };
                match step.map_err(|source| InputError::Open {
                    path: path.clone(),
                    source,
                })? {
                    Step::Same => break,
                    Step::Grown | Step::Anew => {}
                }
                has_grown = true;
                let Some(profile) = follower.profile().filter(|_| follower.records() > 0) else {
                    break;
                };
                let end_ns = profile.run.duration_ns.max(self.baseline.to_ns());
                self.has_ended = matches!(profile.run.ending, Ending::Said(_));
                taken(grown(&mut self.baseline, follower, profile, end_ns, &path));
            }
        }
        if self.has_ended {
            follower.forget();
        } else if !has_grown
            && let Some(end_ns) = follower
                .run()
                .and_then(|run| idle_until(run, self.monotonic_ns))
            && end_ns > self.baseline.to_ns()
            && let Some(profile) = follower.profile()
        {
            taken(grown(&mut self.baseline, follower, profile, end_ns, &path));
        }
        Ok(())
    }

    /// Hands on a log in a bundle.
    fn read_bundle(&mut self, taken: &mut impl FnMut(Grown)) -> Result<(), InputError> {
        let input = Input::open_alone(&self.path)?;
        let request = ReadRequest {
            without_inherited: self.has_parent,
            ..ReadRequest::default()
        };
        let profile = input.read_part(&request, |_| ())?;
        self.has_ended = true;
        let end_ns = profile.run.duration_ns;
        taken(Grown {
            path: self.path.clone(),
            increment: (self.baseline).advance(&profile, &Averages::default(), end_ns),
            profile,
            generation: 0,
        });
        Ok(())
    }
}

fn grown(
    baseline: &mut Baseline,
    follower: &mut Follower,
    profile: Profile,
    end_ns: u64,
    path: &Path,
) -> Grown {
    let averages = follower.take_averages(end_ns);
    Grown {
        path: path.to_owned(),
        increment: baseline.advance(&profile, &averages, end_ns),
        profile,
        generation: follower.generation(),
    }
}

/// Until when a process is known to have had what its log says, though the log does not grow;
/// `None`: the process is not seen to run.
fn idle_until(run: &Run, began_ns: u64) -> Option<u64> {
    presence::is_there(run.pid, &run.program, began(run)).filter(|is_there| *is_there)?;
    let now_ns = presence::monotonic_ns().checked_sub(began_ns)?;
    now_ns.checked_sub(LATE_NS)
}

/// The newest segment of a log, if the path is that of an older one.
fn newest(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(OsStr::to_str);
    let newest = name
        .and_then(newest_of)
        .map(|name| path.with_file_name(name));
    newest
        .filter(|newest| newest.exists())
        .unwrap_or_else(|| path.to_owned())
}

/// The process of a log, and whether the log is in a bundle. `None`: it has not begun, or the file
/// is no log.
fn start_of(path: &Path) -> Result<Option<(Start, bool)>, InputError> {
    match start_of_log(path) {
        Ok(start) => Ok(start.map(|start| (start, false))),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let input = Input::open_alone(path)?;
            Ok(input
                .start()
                .filter(|_| input.is_bundle() && input.is_log())
                .map(|start| (start, true)))
        }
        Err(source) => Err(InputError::Open {
            path: path.into(),
            source,
        }),
    }
}

impl State {
    fn of(meta: &Metadata, process: Option<Identity>) -> State {
        State {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            changed: (meta.mtime(), meta.mtime_nsec()),
            process,
        }
    }

    fn is_same_file(&self, other: &State) -> bool {
        let has_process = self.process.is_some();
        has_process
            && (self.device, self.inode) == (other.device, other.inode)
            && self.len <= other.len
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
