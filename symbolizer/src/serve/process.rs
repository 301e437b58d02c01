//! Process: one followed log, with its names, its recent past and its state.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::analysis::growth::{is_behind_the_beginning, is_too_early};
use crate::export::samples::{Before, RowKey};
use crate::model::metric::Numbers;
use crate::model::profile::Profile;
use crate::model::run::{Ending, Run};
use crate::naming::growing::GrowingNames;
use crate::naming::symbols::Symbols;
use crate::presence::{Began, Presence};
use crate::read::follow::{Follower, Options, Step};
use crate::read::life::began;
use crate::resolve::SearchPath;

use super::log_state::LogState;

/// Numbers of a process that is gone are forgotten if nobody has asked for them for so long.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// How often a file that is not expected to grow is looked at.
const RARELY: Duration = Duration::from_secs(10);
/// Bytes of an address in a file of kept names.
const KEPT_ADDRESS: usize = 320;
/// Moments of the recent past that are kept, and the time between two.
const MOMENTS: usize = 60;
const BETWEEN: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Process {
    /// A hash of the log's path: it is the same after a restart of the server.
    pub(super) id: String,
    pub(super) path: PathBuf,
    state: Mutex<State>,
    /// The summary of the last look: to read it, nobody waits for a look.
    summary: Mutex<Arc<Summary>>,
    /// About the bytes of the state, if its process runs no more.
    unused_bytes: AtomicU64,
}

/// Bytes of a command line that a summary has.
const MOST_COMMAND: usize = 2000;
/// Bytes of a name in a summary: it comes from the log.
const MOST_NAME: usize = 300;

/// The numbers and the state of a process, whether or not its fold is in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    pub(super) pid: u32,
    /// The name of the program, without folders.
    pub(super) name: String,
    /// The path of the program.
    program: String,
    /// The words of the command line, the first ones if they are long.
    pub(super) args: Vec<String>,
    pub(super) forked_from: u32,
    pub(super) started_ns: u64,
    began: Began,
    pub(super) duration_ns: u64,
    /// The mean interval between samples now.
    pub(super) interval: Option<u64>,
    /// How it ended, in words.
    pub(super) ending: String,
    has_ended: bool,
    /// Whether the log has had a record.
    is_known: bool,
    /// Resident bytes, if it runs here.
    pub(super) resident: Option<u64>,
    /// Records that were left out of the fold, for want of room.
    pub(super) left_out: u64,
    pub(super) numbers: Numbers,
    /// Bytes in use from before a fork: the parent has them, too.
    pub(super) inherited_bytes: u64,
    /// Standard error of the bytes in use.
    pub(super) in_use_error: f64,
    pub(super) log_bytes: u64,
    pub(super) counters: Vec<(heapprof_format::Counter, u64)>,
    pub(super) damage: u64,
    /// The faults of the file, in the words of `heapprof info`.
    pub(super) faults: Vec<String>,
    /// Why the log cannot be read, if so.
    pub(super) error: Option<String>,
    /// Bytes in use at moments of the recent past, the newest last.
    pub(super) past: Vec<u64>,
    /// Bytes a second over the recent past, with the most that their standard error can be; `None`:
    /// it is too early to tell.
    pub(super) growth: Option<(f64, f64)>,
    pub(super) state: LogState,
}

/// See [`Process`].
#[derive(Debug)]
pub(super) struct State {
    follower: Follower,
    summary: Summary,
    names: GrowingNames,
    /// Where the names come from, once somebody has asked for them.
    search: Option<SearchPath>,
    past: VecDeque<Moment>,
    presence: Presence,
    asked_for: Instant,
    looked: Option<Instant>,
    /// Number and length of a file whose fold was forgotten.
    settled: Option<(u64, u64)>,
    /// The last answer, for clients that ask for the same at once.
    pub(super) answer: Option<Answer>,
}

/// The state of a process at a moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Instant,
    /// How long the log had been recorded.
    age: Duration,
    in_use: u64,
    /// Variances of the bytes in use, and of the bytes that were allocated.
    in_use_variance: f64,
    allocated_variance: f64,
}

impl Moment {
    /// The most that the standard error of the difference to a later moment can be, in bytes.
    ///
    /// A block that is in use at both moments adds nothing to it. So the variance is at most the
    /// sum of the two, and at most that of all blocks that came and went in between.
    fn most_error_until(&self, later: &Moment) -> f64 {
        let allocated = later.allocated_variance - self.allocated_variance;
        let freed = allocated - (later.in_use_variance - self.in_use_variance);
        let both = self.in_use_variance + later.in_use_variance;
        // A log that begins anew has fewer allocations than before.
        let is_one_log = allocated >= 0.0 && freed >= 0.0;
        if is_one_log {
            both.min(allocated + freed).sqrt()
        } else {
            both.sqrt()
        }
    }
}

/// An answer that was computed.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) what: &'static str,
    pub(super) records: u64,
    pub(super) generation: u64,
    pub(super) at: Instant,
    pub(super) body: Vec<u8>,
}

impl Process {
    pub(super) fn of(path: &Path, may_be_link: bool, options: Options) -> Process {
        let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
        let now = Instant::now();
        Process {
            id: hash
                .iter()
                .take(6)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            path: path.to_owned(),
            summary: Mutex::default(),
            unused_bytes: AtomicU64::new(0),
            state: Mutex::new(State {
                follower: Follower::of(path, may_be_link, options),
                summary: Summary::default(),
                names: GrowingNames::default(),
                search: None,
                past: VecDeque::new(),
                presence: Presence::default(),
                asked_for: now.checked_sub(FORGOTTEN).unwrap_or(now),
                looked: None,
                settled: None,
                answer: None,
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn summary(&self) -> Arc<Summary> {
        let summary = self.summary.lock();
        Arc::clone(&summary.unwrap_or_else(PoisonError::into_inner))
    }

    /// The words of the command line.
    pub(super) fn args(&self) -> Vec<String> {
        match self.lock().follower.run() {
            Some(run) => run.args.clone(),
            None => self.summary().args.clone(),
        }
    }

    /// About the bytes of a state that is in memory though its process runs no more; 0: there is
    /// none.
    pub(super) fn unused_bytes(&self) -> u64 {
        self.unused_bytes.load(Relaxed)
    }

    /// Forgets the state, unless it is in use or its process runs.
    pub(super) fn forget_unused(&self) {
        if let Ok(mut state) = self.state.try_lock()
            && !state.summary.state.is_running()
        {
            state.forget(&self.path);
            self.count(&state);
        }
    }

    /// Notes the size of the state, after a use of it.
    pub(super) fn count(&self, state: &State) {
        let bytes = match state.summary.state.is_running() {
            true => 0,
            false => state.bytes(),
        };
        self.unused_bytes.store(bytes, Relaxed);
    }

    fn publish(&self, state: &State) {
        self.count(state);
        let mut summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
        *summary = Arc::new(state.summary.clone());
    }

    /// The name of the log without folders.
    pub(super) fn log(&self) -> String {
        self.path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Whether a request with these parameters is about it.
    pub(super) fn is_named(&self, summary: &Summary, pid: Option<&str>, id: Option<&str>) -> bool {
        let is_pid = |pid| summary.pid != 0 && summary.pid.to_string() == pid;
        id.is_none_or(|id| self.id == id) && pid.is_none_or(is_pid)
    }

    /// Looks at the log, unless it is in use or was looked at a moment ago.
    pub(super) fn look(&self) {
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        let is_early = |at: Instant| at.elapsed() < RARELY;
        if !state.summary.state.may_grow() && state.looked.is_some_and(is_early) {
            return;
        }
        state.looked = Some(Instant::now());
        if state.is_settled(&self.path) {
            return;
        }
        state.catch_up();
        state.forget_if_unused(&self.path);
        self.publish(&state);
    }

    /// Gives a state everything that the log has now.
    pub(super) fn freshen(&self, state: &mut State) {
        state.asked_for = Instant::now();
        state.settled = None;
        state.catch_up();
        self.publish(state);
    }
}

impl State {
    pub(super) fn records(&self) -> u64 {
        self.follower.records()
    }

    pub(super) fn generation(&self) -> u64 {
        self.follower.generation()
    }

    fn is_settled(&self, path: &Path) -> bool {
        let now = std::fs::symlink_metadata(path).ok();
        self.settled.is_some() && self.settled == now.map(|meta| (meta.ino(), meta.len()))
    }

    fn catch_up(&mut self) {
        let mut refused = None;
        // The rest of a file that was replaced comes before the new one.
        for _ in 0..2 {
            refused = match self.follower.catch_up() {
                Ok(Step::Same) => None,
                Ok(Step::Grown | Step::Anew) => {
                    self.sum_up();
                    None
                }
                Err(error) => Some(error),
            };
        }
        let summary = &mut self.summary;
        summary.error = refused.as_ref().map(in_words);
        summary.faults = self.follower.faults();
        (self.presence).look(summary.pid, &summary.program, summary.began);
        let life = (self.presence).life(summary.has_ended, self.follower.silence());
        summary.state = LogState::of(refused.as_ref(), summary.is_known.then_some(life));
        if !summary.has_ended && summary.is_known {
            let ending = match summary.state.is_running() {
                true => Ending::Running,
                false => Ending::CutOff,
            };
            summary.ending = ending.describe().to_string();
        }
        summary.resident = self.presence.resident_bytes();
        self.remember();
    }

    fn sum_up(&mut self) {
        let summary = &mut self.summary;
        summary.log_bytes = self.follower.length();
        // A log that was cut to nothing keeps its former numbers.
        let Some(run) = self.follower.run().filter(|_| self.follower.records() > 0) else {
            return;
        };
        summary.take_run(run);
        summary.is_known = true;
        summary.numbers = self.follower.numbers();
        summary.inherited_bytes = self.follower.inherited_bytes();
        summary.in_use_error = self.follower.totals().in_use.bytes_error();
        summary.counters = self.follower.counters();
        summary.damage = self.follower.damage();
        summary.left_out = self.follower.left_out();
    }

    /// Keeps the bytes in use of now, for the growth.
    fn remember(&mut self) {
        let is_due = |moment: &Moment| moment.at.elapsed() >= BETWEEN;
        if !self.past.back().is_none_or(is_due) {
            return;
        }
        let totals = self.follower.totals();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let began = Duration::from_nanos(self.summary.started_ns);
        self.past.push_back(Moment {
            at: Instant::now(),
            age: now.unwrap_or_default().saturating_sub(began),
            in_use: self.summary.numbers.in_use_bytes,
            in_use_variance: totals.in_use.bytes_error().powi(2),
            allocated_variance: totals.allocated.bytes_error().powi(2),
        });
        if self.past.len() > MOMENTS {
            self.past.pop_front();
        }
        self.summary.past = self.past.iter().map(|moment| moment.in_use).collect();
        self.summary.growth = growth_over(&self.past);
    }

    fn forget_if_unused(&mut self, path: &Path) {
        let is_used = self.summary.state.is_running() || self.asked_for.elapsed() < FORGOTTEN;
        if !is_used && self.follower.is_read() {
            self.forget(path);
        }
    }

    /// About the bytes that it has in memory beside its summary.
    pub(super) fn bytes(&self) -> u64 {
        let answer = self.answer.as_ref().map_or(0, |answer| answer.body.len());
        let kept = self.search.iter().flat_map(|search| &search.kept);
        let kept: usize = kept.map(|kept| kept.names.len() * KEPT_ADDRESS).sum();
        self.follower.bytes() + self.names.bytes() + (answer + kept) as u64
    }

    /// Forgets all but the summary.
    fn forget(&mut self, path: &Path) {
        self.settled = std::fs::symlink_metadata(path)
            .ok()
            .map(|meta| (meta.ino(), meta.len()));
        self.follower.forget();
        self.names = GrowingNames::default();
        self.search = None;
        self.answer = None;
    }

    /// The profile so far.
    ///
    /// # Errors
    /// In words: why there is none.
    pub(super) fn profile(&self) -> Result<Profile, String> {
        let none = || {
            let why = self.summary.error.as_deref();
            format!(
                "the log cannot be read: {}",
                why.unwrap_or("it is empty so far")
            )
        };
        let mut profile = self.follower.profile().ok_or_else(none)?;
        if self.summary.state.is_running() {
            profile.run.ending = Ending::Running;
        }
        Ok(profile)
    }

    /// The names of its places. `search_for`: where they come from.
    pub(super) fn symbols(
        &mut self,
        profile: &Profile,
        search_for: impl FnOnce() -> SearchPath,
    ) -> &Symbols {
        let search = self.search.get_or_insert_with(search_for);
        (self.names).of(profile, self.follower.generation(), search)
    }

    /// The numbers of each row, to compare later ones with.
    pub(super) fn before(&self) -> Result<Before, String> {
        let profile = self.profile()?;
        let mut before = Before::new();
        for row in &profile.rows {
            let sum = before
                .entry(RowKey::of(&profile, row.stack, row.class.0))
                .or_default();
            let numbers = Numbers::of(&row.totals);
            for (sum, metric) in sum.iter_mut().zip(crate::model::metric::Metric::ALL) {
                *sum += numbers.get(metric) as i64;
            }
        }
        Ok(before)
    }
}

impl Summary {
    fn take_run(&mut self, run: &Run) {
        self.duration_ns = run.duration_ns;
        let now = run.regimes.last().map(|regime| regime.interval);
        self.interval = now.or(run.interval);
        if let Ending::Said(_) = run.ending {
            self.has_ended = true;
        }
        if (self.pid, self.started_ns) == (run.pid, run.start_wall_ns) && !self.has_ended {
            return; // the rest stays
        }
        self.has_ended = matches!(run.ending, Ending::Said(_));
        self.pid = run.pid;
        self.name = cut(run.name(), MOST_NAME).to_owned();
        self.program.clone_from(&run.program);
        self.forked_from = run.forked_from;
        self.started_ns = run.start_wall_ns;
        self.began = began(run);
        self.ending = run.ending.describe().to_string();
        let mut room = MOST_COMMAND;
        self.args = (run.args.iter())
            .map_while(|word| {
                let word = cut(word, room);
                room = room.checked_sub(word.len() + 1)?;
                Some(word.to_owned())
            })
            .collect();
    }
}

/// Bytes a second over those moments that are behind the beginning of the process.
fn growth_over(past: &VecDeque<Moment>) -> Option<(f64, f64)> {
    let last = past.back()?;
    let first = (past.iter()).find(|moment| is_behind_the_beginning(moment.age, last.age))?;
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    if seconds <= 0.0 || is_too_early(Some(first.age), last.age) {
        return None;
    }
    let grown = last.in_use as f64 - first.in_use as f64;
    Some((grown / seconds, first.most_error_until(last) / seconds))
}

/// The beginning of a text, of so many bytes at most.
fn cut(text: &str, most: usize) -> &str {
    let is_end = |&at: &usize| text.is_char_boundary(at);
    &text[..(0..=most.min(text.len())).rev().find(is_end).unwrap_or(0)]
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "the log is gone".into(),
        io::ErrorKind::PermissionDenied => {
            "not permitted: run heapprof serve as the user of the program, or as root".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_as_uncertain_as_the_blocks_that_it_is_of() {
        let at = Instant::now();
        let moment = |in_use_variance, allocated_variance| Moment {
            at,
            age: Duration::ZERO,
            in_use: 0,
            in_use_variance,
            allocated_variance,
        };
        let error = |first: Moment, last| first.most_error_until(&last).powi(2).round();
        // Blocks with a variance of 9 came and stay, beside others of 100.
        assert_eq!(error(moment(100.0, 400.0), moment(109.0, 409.0)), 9.0);
        // Blocks with a variance of 4 came and went.
        assert_eq!(error(moment(100.0, 400.0), moment(100.0, 404.0)), 8.0);
        // So many came and went that the two states tell more.
        assert_eq!(error(moment(100.0, 400.0), moment(90.0, 9000.0)), 190.0);
        // Another log.
        assert_eq!(error(moment(100.0, 400.0), moment(1.0, 1.0)), 101.0);
        assert_eq!(error(moment(0.0, 0.0), moment(0.0, 0.0)), 0.0);
    }

    /// 100 MB come in the first ten seconds, and 1 kB a second from then on.
    #[test]
    fn the_set_up_of_a_process_is_no_growth() {
        let at = Instant::now();
        let moment = |second: u64| Moment {
            at: at + Duration::from_secs(second),
            age: Duration::from_secs(second),
            in_use: 10_000_000 * second.min(10) + 1000 * second,
            in_use_variance: 0.0,
            allocated_variance: 0.0,
        };
        let growth = |from: u64, until: u64| {
            let past = (from..=until).step_by(5).map(moment).collect();
            growth_over(&past).map(|(growth, _)| growth.round())
        };
        assert_eq!(growth(0, 5), None);
        assert_eq!(growth(0, 10), Some(1000.0 + 10_000_000.0), "it does grow");
        assert_eq!(growth(0, 40), Some(1000.0));
        // The server came late: until it has seen half of the life, it cannot tell.
        assert_eq!(growth(30, 55), None);
        assert_eq!(growth(30, 60), Some(1000.0));
        // The recent past of an old process.
        assert_eq!(growth(1000, 1005), Some(1000.0));
        assert_eq!(growth(1000, 1000), None);
    }
}
