//! Several files: the files of several processes, each process once, with their profiles added up.

use std::collections::HashMap;
use std::path::PathBuf;

use heapprof_symbolizer::{
    Ending, Input, InputError, Moment, Outside, Profile, ReadRequest, View, merged, utc,
};

use crate::cli::inputs::single_file::read_input;
use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// A file that adds something.
pub(crate) struct One {
    pub(crate) path: PathBuf,
    pub(crate) input: Input,
    pub(crate) start: Option<Begin>,
    /// True if it was forked by another one of them.
    pub(crate) has_parent: bool,
}

impl One {
    /// Looks for the blocks that the process has from its parent, unless the parent's log is among
    /// the files. A parent's log is as long as its life was, and there may be thousands of
    /// children.
    pub(crate) fn find_inherited(&mut self) {
        if !self.has_parent {
            self.input.join(&self.path);
        }
    }
}

/// The identity of a process, on any machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Begin {
    pid: u32,
    forked_from: u32,
    pub(crate) wall_ns: u64,
    monotonic_ns: u64,
    log_number: u64,
    parent_log_number: u64,
}

/// The note on a peak of several processes.
pub(crate) const OWN_PEAKS: &str =
    "note: each process at its own peak; with --joined, all at that of all together";

/// Reads that part of all files and adds it up.
pub(crate) fn read(files: &[PathBuf], request: &ReadRequest) -> Result<Profile, Failure> {
    let Different { files, empty_logs } = different(files)?;
    let starts = files.iter().filter_map(|one| one.start);
    let first_ns = starts
        .map(|start| start.wall_ns)
        .filter(|&ns| ns != 0)
        .min();
    let view = on_one_clock(&request.view, first_ns);
    let among_several = files.len() > 1;
    let mut parts = Vec::new();
    for mut one in files {
        one.find_inherited();
        let request = ReadRequest {
            view: view.clone(),
            among_several,
            without_inherited: one.has_parent,
            ..request.clone()
        };
        let profile = read_input(&one.path, &one.input, &request)?;
        parts.push((one.path.display().to_string(), profile));
    }
    refuse_no_time(&view, &parts)?;
    if parts.len() > 1 && names_the_peak(&view) {
        say::note(&OWN_PEAKS);
    }
    note_same_process(&parts);
    note_joined(&parts);
    let mut profile = merged(parts);
    let account = &mut profile.account;
    account.empty_logs = account.empty_logs.saturating_add(empty_logs);
    Ok(profile)
}

/// Files, each process once.
pub(crate) struct Different {
    pub(crate) files: Vec<One>,
    /// Further logs, of which each has no record.
    pub(crate) empty_logs: u64,
}

/// The files, each process once: any segment of a log that rotates leads to all of it.
pub(crate) fn different(files: &[PathBuf]) -> Result<Different, Failure> {
    let mut different: Vec<One> = Vec::new();
    let mut empty_logs = 0;
    // Not searched for among all of them: a build leaves thousands.
    let (mut by_start, mut by_place) = (HashMap::new(), HashMap::new());
    let mut nothing = None;
    for path in files {
        let input = match Input::open_alone(path) {
            // The log of a process that was killed, or whose disk was full, before its first
            // record. The others have theirs.
            Err(error @ (InputError::Empty { .. } | InputError::CutOff { .. })) => {
                if files.len() > 1 {
                    say::note(&format_args!("note: {error}"));
                }
                nothing = Some(error);
                empty_logs += 1;
                continue;
            }
            opened => opened?,
        };
        let start = input.start().map(|start| Begin {
            pid: start.pid,
            forked_from: start.forked_from,
            wall_ns: start.wall_ns,
            monotonic_ns: start.monotonic_ns,
            log_number: start.log_number,
            parent_log_number: start.parent_log_number,
        });
        let place = path.canonicalize().ok();
        let by_start_or_place = start
            .and_then(|start| by_start.get(&start))
            .or_else(|| by_place.get(place.as_ref()?));
        if let Some(other) = by_start_or_place.map(|&index: &usize| &different[index]) {
            say::note(&format_args!(
                "note: {} is of the same process as {}: counted once",
                path.display(),
                other.path.display()
            ));
            continue;
        }
        let index = different.len();
        by_start.extend(start.map(|start| (start, index)));
        by_place.extend(place.map(|place| (place, index)));
        different.push(One {
            path: path.clone(),
            input,
            start,
            has_parent: false,
        });
    }
    match nothing {
        Some(error) if different.is_empty() => Err(error.into()),
        _ => {
            find_parents(&mut different);
            Ok(Different {
                files: different,
                empty_logs,
            })
        }
    }
}

/// Notes for each process if its parent's log is among the files.
fn find_parents(files: &mut [One]) {
    let begun: HashMap<u64, u64> = (files.iter())
        .filter_map(|one| one.start)
        .filter(|start| start.log_number != 0)
        .map(|start| (start.log_number, start.monotonic_ns))
        .collect();
    for one in files {
        // A parent began before its child, so no process is its own parent.
        one.has_parent = one.start.is_some_and(|start| {
            let parent_began = begun.get(&start.parent_log_number);
            parent_began.is_some_and(|&began| began < start.monotonic_ns)
        });
    }
}

/// A time of day is the same instant for all: on the day on which the first of them began, or the
/// next.
fn on_one_clock(view: &View, first_ns: Option<u64>) -> View {
    let moment = |moment: &Moment| match first_ns {
        Some(first_ns) => moment.on_the_day_of(first_ns),
        None => moment.clone(),
    };
    match view {
        View::Whole => View::Whole,
        View::At(at) => View::At(moment(at)),
        View::Window(from, to) => View::Window(moment(from), moment(to)),
        View::Survivors { age_ns, at } => View::Survivors {
            age_ns: *age_ns,
            at: moment(at),
        },
    }
}

fn names_the_peak(view: &View) -> bool {
    let is_it = |moment: &Moment| match moment {
        Moment::Peak | Moment::PeakRss => true,
        moment => moment.is_spike(),
    };
    match view {
        View::Whole => false,
        View::At(at) | View::Survivors { at, .. } => is_it(at),
        View::Window(from, to) => is_it(from) || is_it(to),
    }
}

/// A time at which none of them ran is an error, as it is of one.
fn refuse_no_time(view: &View, parts: &[(String, Profile)]) -> Result<(), Failure> {
    let is_out = |(_, profile): &(String, Profile)| {
        matches!(profile.run.outside, Some(Outside::NotBegun | Outside::Over))
    };
    if !parts.iter().all(is_out) {
        return Ok(());
    }
    let runs = || parts.iter().map(|(_, profile)| &profile.run);
    let what = match view {
        View::Whole => return Ok(()),
        View::At(at) | View::Survivors { at, .. } => at.to_string(),
        View::Window(from, to) => format!("{from} to {to}"),
    };
    if is_since_the_start(view) {
        let longest = runs().map(|run| run.duration_ns).max().unwrap_or(0);
        return Err(Failure::Unfulfilled(format!(
            "{what} after the start: none of the processes ran so long; the last record of the one that ran longest is at {:.6} s",
            longest as f64 / 1e9
        )));
    }
    let began = runs().map(|run| run.start_wall_ns).min().unwrap_or(0);
    let ended = runs().map(|run| run.start_wall_ns.saturating_add(run.duration_ns));
    Err(Failure::Unfulfilled(format!(
        "{what}: none of the processes ran then; the first began at {}, the last record is of {}",
        utc(began),
        utc(ended.max().unwrap_or(0))
    )))
}

/// Returns true if its times, if it has any, are each process's own.
fn is_since_the_start(view: &View) -> bool {
    let is_of_a_clock = |moment: &Moment| match moment {
        Moment::PeakNear(near) => matches!(**near, Moment::Wall(_) | Moment::TimeOfDay(_)),
        moment => matches!(moment, Moment::Wall(_) | Moment::TimeOfDay(_)),
    };
    match view {
        View::Whole => true,
        View::At(at) | View::Survivors { at, .. } => !is_of_a_clock(at),
        View::Window(from, to) => !is_of_a_clock(from) && !is_of_a_clock(to),
    }
}

/// A joined log has the blocks of each of its processes.
fn note_joined(parts: &[(String, Profile)]) {
    let mut known: HashMap<(u32, u64), &String> = HashMap::new();
    for (file, profile) in parts {
        let runs = profile.parts.iter().map(|part| &part.run);
        let own = Some(&profile.run).filter(|run| !run.is_joined);
        for run in runs.chain(own).filter(|run| run.start_wall_ns != 0) {
            let identity = (run.pid, run.start_wall_ns);
            match known.get(&identity) {
                None => {
                    known.insert(identity, file);
                }
                Some(other) => {
                    say::note(&format_args!(
                        "note: {file} and {other} both have {}, pid {}: its blocks are counted twice",
                        run.name(),
                        run.pid
                    ));
                    break;
                }
            }
        }
    }
}

/// Two dumps of one process hold the same blocks. Dumps do not say when their process began, and in
/// containers different ones have one number: so this is no error.
fn note_same_process(parts: &[(String, Profile)]) {
    // The first of each process, and the first dump.
    let mut first: HashMap<(u32, &str), &String> = HashMap::new();
    let mut first_dump: HashMap<(u32, &str), &String> = HashMap::new();
    for (file, profile) in parts.iter().filter(|(_, profile)| profile.run.pid != 0) {
        let process = (profile.run.pid, &*profile.run.program);
        let is_dump = profile.run.ending == Ending::Snapshot;
        let earlier = match is_dump {
            true => first.get(&process),
            false => first_dump.get(&process),
        };
        if let Some(earlier) = earlier {
            say::note(&format_args!(
                "note: {file} and {earlier} are both of pid {}: if they are of one process, its blocks are counted twice",
                process.0
            ));
        }
        first.entry(process).or_insert(file);
        if is_dump {
            first_dump.entry(process).or_insert(file);
        }
    }
}
