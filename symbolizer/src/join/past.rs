//! Joined past: the bytes in use of all processes together, at moments before all logs have detail.
//!
//! ```text
//!   process 1   ├──·────·────·────·────·│ detail
//!   process 2        ├────·────·────·────·────·│ detail
//!   process 3     ├ detail
//!   joined         ·    · ·  · ·  · ·  · ·    ·│ detail of all
//! ```
//!
//! There is a moment where a process has one. The others have what they had at their last moment
//! there, or what their detail says. Between its moments, only the most of a process is known. The
//! processes do not have it at one time, so the sum is a bound: all together had no more.
//!
//! Memory: the coarse histories of all logs.

use heapprof_core::{CoarseEntry, CoarseHistory, Estimate, Fixed, Ledger, StackSums};
use heapprof_format::CoarseMoment;

use super::member::Member;

/// The longest step: that of a process's own history.
const LONGEST_STEP_NS: u64 = 60_000_000_000;

/// See the module's text. All times are the joined log's.
pub(super) struct JoinedPast {
    members: Vec<Own>,
    /// The moments to come, the latest first.
    times: Vec<u64>,
    /// The most that all may have had in use since the last moment, up to `until_ns`.
    highest: u64,
    until_ns: u64,
    /// The most in use since then, of the processes that have detail.
    in_detail: Fixed,
    moments: Vec<CoarseMoment>,
}

/// The coarse history of one process.
struct Own {
    began_ns: u64,
    /// True from its checkpoint on.
    has_detail: bool,
    moments: Vec<CoarseMoment>,
}

impl JoinedPast {
    /// The past up to `until_ns`. `None`: a log that rotated has no coarse history.
    pub(super) fn of(members: &[Member<'_>], until_ns: u64) -> Option<JoinedPast> {
        let is_unknown = |it: &Member<'_>| it.checkpoint.is_some() && it.coarse.is_empty();
        if members.iter().any(is_unknown) {
            return None;
        }
        let own = |member: &Member<'_>| Own {
            began_ns: member.offset_ns,
            has_detail: member.checkpoint.is_none(),
            moments: (member.coarse.iter())
                .map(|moment| CoarseMoment {
                    time_ns: member.joined(moment.time_ns),
                    ..moment.clone()
                })
                .collect(),
        };
        let members: Vec<Own> = members.iter().map(own).collect();
        Some(JoinedPast {
            times: times(&members, until_ns),
            members,
            highest: 0,
            until_ns: 0,
            in_detail: Fixed::default(),
            moments: Vec::new(),
        })
    }

    /// Adds the moments before that time. The ledger is that of the processes that have detail.
    pub(super) fn reach(&mut self, time_ns: u64, ledger: &Ledger) {
        while let Some(next_ns) = self.times.pop_if(|next_ns| *next_ns < time_ns) {
            let moment = self.moment(next_ns, ledger);
            self.moments.push(moment);
        }
    }

    /// The processes that have detail have so much in use.
    pub(super) fn in_use(&mut self, bytes: Fixed) {
        self.in_detail = self.in_detail.max(bytes);
    }

    /// The detail of a process begins. `bytes` are in use of the others that have detail.
    pub(super) fn begin_detail(&mut self, index: usize, time_ns: u64, bytes: Fixed) {
        self.bound(time_ns, bytes);
        self.members[index].has_detail = true;
    }

    /// The moments so far.
    pub(super) fn moments(&self) -> &[CoarseMoment] {
        &self.moments
    }

    fn moment(&mut self, time_ns: u64, ledger: &Ledger) -> CoarseMoment {
        let in_use: Estimate = ledger.total().in_use;
        self.bound(time_ns, in_use.bytes_fixed());
        let mut sums = StackSums::default();
        for row in ledger.rows() {
            sums.add(row.stack, row.totals.in_use.bytes_fixed());
        }
        let (mut bytes, mut objects) = (in_use.bytes(), in_use.objects());
        let mut error = in_use.bytes_error();
        let coarse = self.members.iter().filter(|it| !it.has_detail);
        for moment in coarse.filter_map(|it| it.last_up_to(time_ns)) {
            bytes = bytes.saturating_add(moment.bytes);
            objects = objects.saturating_add(moment.objects);
            error = error.hypot(moment.bytes_error as f64);
            for &(stack, bytes) in &moment.largest {
                sums.add(stack, Fixed::from_int(bytes));
            }
        }
        CoarseMoment {
            time_ns,
            bytes,
            bytes_error: error.round() as u64,
            objects,
            highest: std::mem::take(&mut self.highest).max(bytes),
            largest: sums.largest().iter().collect(),
            ..CoarseMoment::default() // resident memory is read at other times
        }
    }

    /// Bounds what all had in use up to a time. The processes that have detail have so much then.
    fn bound(&mut self, until_ns: u64, bytes: Fixed) {
        let coarse = self.members.iter();
        let coarse = coarse.filter(|it| !it.has_detail && it.began_ns < until_ns);
        let sum = coarse.fold(self.in_detail.max(bytes).round(), |sum, it| {
            sum.saturating_add(it.most(self.until_ns, until_ns))
        });
        self.highest = self.highest.max(sum);
        (self.until_ns, self.in_detail) = (until_ns, bytes);
    }
}

impl Own {
    fn last_up_to(&self, time_ns: u64) -> Option<&CoarseMoment> {
        let later = self.moments.partition_point(|it| it.time_ns <= time_ns);
        self.moments[..later].last()
    }

    /// The most in use between two times, and in the rest of the steps that these lie in.
    fn most(&self, from_ns: u64, until_ns: u64) -> u64 {
        let first = self.moments.partition_point(|it| it.time_ns <= from_ns);
        let last = self.moments.partition_point(|it| it.time_ns < until_ns);
        let moments = self.moments[first..].iter();
        let moments = moments.take((last + 1).saturating_sub(first));
        // Behind the last moment, nothing happens up to the checkpoint.
        let at_end = self.moments.last().filter(|_| last == self.moments.len());
        let all = moments
            .map(|it| it.highest)
            .chain(at_end.map(|it| it.bytes));
        all.max().unwrap_or(0)
    }
}

/// Returns the times of the joined moments, the latest first: as many as one process has at most,
/// and farther apart the older they are.
fn times(members: &[Own], until_ns: u64) -> Vec<u64> {
    let moments = members.iter().flat_map(|own| &own.moments);
    let mut all: Vec<u64> = moments.map(|it| it.time_ns).chain([until_ns]).collect();
    all.sort_unstable();
    all.dedup();
    let steps = members.iter().flat_map(|own| {
        // The last moment is that of the checkpoint, which may come soon.
        let regular = &own.moments[..own.moments.len().saturating_sub(1)];
        regular.windows(2).map(|it| it[1].time_ns - it[0].time_ns)
    });
    let step_ns = steps.min().unwrap_or(LONGEST_STEP_NS).min(LONGEST_STEP_NS);
    let mut kept = CoarseHistory::new(step_ns, CoarseHistory::MOST);
    for time_ns in all {
        kept.add(CoarseEntry {
            time_ns,
            ..CoarseEntry::default()
        });
    }
    let kept = kept.entries().iter().rev();
    kept.map(|it| it.time_ns).collect()
}
