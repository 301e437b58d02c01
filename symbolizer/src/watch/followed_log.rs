//! Followed log: a log that grows, and the snapshots that are made of it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use crate::analysis::growth::is_behind_the_beginning;
use crate::history::temporary::Temporary;
use crate::model::profile::Profile;
use crate::model::run::Ending;
use crate::naming::growing::GrowingNames;
use crate::naming::site::GrowingPaths;
use crate::presence::{Life, Presence};
use crate::read::follow::{Follower, Options, Step};
use crate::read::life::began;
use crate::resolve::SearchPath;

use super::comparison::{Comparison, Moment};
use super::rates::RecentLooks;
use super::snapshot::Snapshot;

/// See the module's text.
#[derive(Debug)]
pub(super) struct FollowedLog {
    follower: Follower,
    names: GrowingNames,
    paths: GrowingPaths,
    looks: RecentLooks,
    search: SearchPath,
    presence: Presence,
    generation: u64,
    /// The heap that is compared with.
    moment: Option<Moment>,
    /// Heaps behind the beginning of the process, the oldest first: growth is the change since it.
    baselines: VecDeque<Moment>,
    /// The state and the problem in the last snapshot.
    said: Option<(Life, Option<String>)>,
    /// True if the rates of the last snapshot were not all zero.
    had_rates: bool,
}

/// The result of a look.
#[derive(Debug)]
pub(super) enum Look {
    /// Nothing has changed.
    Same,
    New(Box<Snapshot>),
    /// There is nothing to show; in words why.
    Nothing(String),
}

impl FollowedLog {
    /// Looks at a log that the user named.
    pub(super) fn at(log: PathBuf, temporary: Temporary, search: SearchPath) -> FollowedLog {
        let options = Options {
            past: Some(temporary),
            ..Options::default()
        };
        FollowedLog {
            follower: Follower::of(&log, true, options),
            names: GrowingNames::default(),
            paths: GrowingPaths::default(),
            looks: RecentLooks::default(),
            search,
            presence: Presence::default(),
            generation: 0,
            moment: None,
            baselines: VecDeque::new(),
            said: None,
            had_rates: false,
        }
    }

    /// Compares with the heap as it is now, or no longer.
    pub(super) fn compare(&mut self, with_now: bool) {
        let profile = self.follower.profile().filter(|_| with_now);
        self.moment = profile.as_ref().map(Moment::of);
        // The next look makes a snapshot, whether or not the log grew.
        self.said = None;
    }

    /// Looks once, at a time of a clock that goes on steadily.
    pub(super) fn look(&mut self, now: Duration) -> Look {
        let step = self.follower.catch_up();
        let problem = step.as_ref().err().map(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                "the log is gone: numbers are those of its last record".into()
            }
            _ => format!("the log cannot be read on: {error}"),
        });
        let Some(run) = self.follower.run() else {
            return Look::Nothing(problem.unwrap_or_else(|| "the log is empty so far".into()));
        };
        self.presence.look(run.pid, &run.program, began(run));
        let has_ended = matches!(run.ending, Ending::Said(_));
        let life = self.presence.life(has_ended, self.follower.silence());
        let said = Some((life, problem.clone()));
        let is_same = matches!(step, Ok(Step::Same) | Err(_)) && self.said == said;
        if is_same && !(self.had_rates && life == Life::Running) {
            return Look::Same;
        }
        self.said = said;
        match self.snapshot(now, life, problem) {
            Some(snapshot) => {
                self.had_rates = !snapshot.rates.are_zero();
                Look::New(Box::new(snapshot))
            }
            None => Look::Same,
        }
    }

    fn snapshot(&mut self, now: Duration, life: Life, problem: Option<String>) -> Option<Snapshot> {
        let generation = self.follower.generation();
        if generation != self.generation {
            self.generation = generation;
            self.looks.clear();
            self.moment = None;
            self.baselines.clear();
        }
        let mut profile = self.follower.profile()?;
        if life == Life::Running {
            profile.run.ending = Ending::Running;
        }
        let comparison = self.moment.as_ref().map(|moment| {
            let new = self.follower.in_use_since(moment.time_ns());
            moment.compared(&profile, &new)
        });
        let baseline = match life {
            Life::Running => self.change_since_baseline(&profile),
            // All is known of a run that has ended.
            _ => None,
        };
        let symbols = self.names.of(&profile, generation, &self.search);
        let paths = self.paths.of(&profile, generation, symbols);
        Some(Snapshot {
            paths,
            curve: self.follower.curve().cloned().unwrap_or_default(),
            comparison,
            baseline,
            rates: self.looks.rates(now, &profile, life),
            life,
            log_bytes: self.follower.length(),
            resident: self.presence.resident_bytes(),
            problem,
            generation,
            profile,
        })
    }

    /// The change since the oldest heap behind the beginning, if it covers half of the run. Keeps
    /// the heap of now as one to come.
    fn change_since_baseline(&mut self, profile: &Profile) -> Option<Comparison> {
        let age = Duration::from_nanos(profile.run.duration_ns);
        let age_of = |moment: &Moment| Duration::from_nanos(moment.time_ns());
        while let Some(oldest) = self.baselines.front()
            && !is_behind_the_beginning(age_of(oldest), age)
        {
            self.baselines.pop_front();
        }
        let is_due = |newest: &Moment| age_of(newest) <= age * 4 / 5;
        if self.baselines.back().is_none_or(is_due) {
            self.baselines.push_back(Moment::of(profile));
        }
        let oldest = self.baselines.front()?;
        (age_of(oldest) <= age / 2).then(|| {
            let new = self.follower.in_use_since(oldest.time_ns());
            oldest.compared(profile, &new)
        })
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::{
        Alloc, Encoder, EndReason, FILE_HEADER, Free, Record, Stack, Start, WalkEnd,
    };

    use super::*;
    use crate::model::metric::Metric;

    fn alloc(id: u64, size: u64, time_ns: u64) -> Record {
        Record::Alloc(Alloc {
            time_ns,
            thread: 0,
            id,
            stack: 1,
            size,
            slack: 0,
            interval: 1,
        })
    }

    fn free(id: u64, time_ns: u64) -> Record {
        Record::Free(Free {
            time_ns,
            thread: 0,
            id,
        })
    }

    #[track_caller]
    fn new(look: Look) -> Box<Snapshot> {
        match look {
            Look::New(snapshot) => snapshot,
            other => panic!("{other:?}"),
        }
    }

    /// A log is looked at while it grows: what is the same is told once, and the change since a
    /// moment is that of the blocks that came and went.
    #[test]
    fn a_log_that_grows_is_followed_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let mut looking = FollowedLog::at(
            path.clone(),
            Temporary {
                within_ns: Some(10_000_000),
                before_allocations: None,
            },
            SearchPath::default(),
        );
        let mut now = 0;
        let mut look = |looking: &mut FollowedLog| {
            now += 1;
            looking.look(Duration::from_secs(now))
        };
        assert!(matches!(look(&mut looking), Look::Nothing(_)));

        let mut encoder = Encoder::new();
        let mut bytes = FILE_HEADER.to_vec();
        let mut append = |records: &[Record]| {
            records.iter().for_each(|record| encoder.record(record));
            bytes.extend_from_slice(encoder.finish());
            std::fs::write(&path, &bytes).unwrap();
        };
        let start = Record::Start(Start {
            pid: 7,
            interval: 1,
            ..Start::default()
        });
        let stack = Record::Stack(Stack {
            number: 1,
            frames: vec![0x1000, 0x2000],
            interrupted: Vec::new(),
            end: WalkEnd::Root,
            labels: Vec::new(),
        });
        append(&[
            start,
            stack,
            alloc(1, 100, 1_000_000),
            alloc(2, 30, 2_000_000),
        ]);
        let first = new(look(&mut looking));
        assert_eq!(first.profile.numbers().in_use_bytes, 130);
        assert_eq!(first.comparison, None);
        assert_eq!(first.paths.keys.len(), 2);
        // Rates of a run that goes on are told until they are nothing.
        look(&mut looking);

        looking.compare(true);
        append(&[free(2, 3_000_000), alloc(3, 5, 4_000_000)]);
        let later = new(look(&mut looking));
        let change = later.comparison.as_ref().unwrap().of_all();
        assert_eq!((change.value, change.error()), (5.0 - 30.0, 0.0));
        let numbers = later.profile.numbers();
        assert_eq!(numbers.get(Metric::InUseBytes), 105);

        looking.compare(false);
        append(&[Record::End {
            time_ns: 5_000_000,
            reason: EndReason::Exit,
        }]);
        let ended = new(look(&mut looking));
        assert_eq!((ended.life, &ended.comparison), (Life::Ended, &None));
        assert!(matches!(look(&mut looking), Look::Same));
        std::fs::remove_file(&path).unwrap();
        let gone = new(look(&mut looking));
        assert!(gone.problem.unwrap().contains("the log is gone"));
        assert_eq!(gone.profile.numbers().in_use_bytes, 105);
        assert!(matches!(look(&mut looking), Look::Same));
    }

    /// 100 MB come in the first two seconds. From then on, a block of 1000 bytes comes each second,
    /// and stays if `leaks`.
    fn growth_after(seconds: u64, leaks: bool) -> (bool, f64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let temporary = Temporary {
            within_ns: Some(10_000_000),
            before_allocations: None,
        };
        let mut looking = FollowedLog::at(path.clone(), temporary, SearchPath::default());
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            pid: 7,
            interval: 1,
            ..Start::default()
        }));
        encoder.record(&Record::Stack(Stack {
            number: 1,
            frames: vec![0x1000],
            interrupted: Vec::new(),
            end: WalkEnd::Root,
            labels: Vec::new(),
        }));
        let mut bytes = FILE_HEADER.to_vec();
        let mut last = None;
        for second in 1..=seconds {
            let time_ns = second * 1_000_000_000;
            let size = if second <= 2 { 50_000_000 } else { 1000 };
            encoder.record(&alloc(second, size, time_ns));
            if second > 2 && !leaks {
                encoder.record(&free(second, time_ns));
            }
            bytes.extend_from_slice(encoder.finish());
            std::fs::write(&path, &bytes).unwrap();
            last = Some(new(looking.look(Duration::from_secs(second))));
        }
        let last = last.unwrap();
        assert_eq!(last.life, Life::Running);
        (last.is_too_early(), last.growth_of_all(true).value)
    }

    #[test]
    fn the_set_up_of_a_process_is_no_growth() {
        assert_eq!(growth_after(9, true), (true, 0.0));
        assert_eq!(growth_after(40, false), (false, 0.0));
        assert_eq!(growth_after(40, true), (false, 1000.0));
    }
}
