//! Merge: the profiles of several processes, added up into one.
//!
//! Processes load the same files at different addresses, so stacks are joined by file and offset.
//! The merged profile has an address space of its own, in which every file lies once:
//!
//! ```text
//!   process 1   server at 0x5555…, libc at 0x7f01…  ─┐   server where process 1 had it, and libc;
//!   process 2   server at 0x55aa…, libc at 0x7f99…  ─┼─> addresses of 2 are moved to those of 1
//!   process 2   a plugin that 1 never loaded        ─┘   where it was, or else on the shelf
//!   code outside all files: of process n from n << 48 on; two processes' are never the same
//! ```
//!
//! Files are the same if their build-ids are; without build-ids, if path and layout are. Sums and
//! variances are added, because the samples of processes are independent. No sum gives the peak of
//! all processes together: the reader of the profile says so.

mod address_space;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::history::Past;
use crate::history::lifetimes::Lifetimes;
use heapprof_core::{Row, SizeClass, Totals};
use heapprof_format::{Counter, Symbols, WalkEnd};

use crate::analysis::merge::address_space::{AddressSpace, Moved};
use crate::model::counted::Counted;
use crate::model::extras::ThreadRow;
use crate::model::labels::Labels;
use crate::model::metric::Metric;
use crate::model::part::Part;
use crate::model::precision::Precision;
use crate::model::profile::{CallStack, Profile};
use crate::model::run::{Ending, Run};
use crate::model::special_threads::name_of_unknown_thread;
use crate::resolve::Frame;

/// Adds up the profiles of several files; one alone stays as it is.
///
/// [`Profile::parts`] has what is kept of each process by itself.
pub fn merged(mut parts: Vec<(String, Profile)>) -> Profile {
    if parts.len() == 1
        && let Some((_, only)) = parts.pop()
    {
        return only;
    }
    let mut merge = Merge::default();
    for (file, profile) in parts {
        merge.add(file, profile);
    }
    merge.finish()
}

/// The identity of a merged stack: its merged addresses, the interrupted ones, its end and its
/// labels.
type StackKey = (Vec<u64>, Vec<u32>, Option<WalkEnd>, Labels);

/// A merge under way. See the module's text.
#[derive(Default)]
pub(crate) struct Merge {
    profile: Profile,
    addresses: AddressSpace,
    /// The number that the next thread gets.
    next_thread: u32,
    stack_of: HashMap<StackKey, u32>,
    row_of: HashMap<(u32, SizeClass), usize>,
    counters: BTreeMap<u32, u64>,
    /// Squares of the standard errors of the totals; `None` when one is not known.
    variances: Option<[f64; 4]>,
    has_pasts: bool,
    has_threads: bool,
    counted: Option<Counted>,
}

impl Merge {
    /// Adds the profile of one of the files. Returns which of the merged stacks each of its stacks
    /// is.
    pub(crate) fn add(&mut self, file: String, mut part: Profile) -> Vec<u32> {
        let index = self.profile.parts.len();
        if index == 0 {
            self.variances = Some([0.0; 4]);
            self.has_pasts = true;
            self.has_threads = true;
            self.counted = Some(Counted::default());
        }
        let errors = Metric::ALL.map(|metric| part.error(metric));
        self.variances = self.variances.and_then(|mut sums| {
            for (sum, error) in sums.iter_mut().zip(errors) {
                *sum += error? * error?;
            }
            Some(sums)
        });
        self.counted = match (self.counted, part.counted) {
            _ if part.run.span.is_some() => None,
            (Some(mut sum), Some(counted)) => {
                sum.merge(&counted);
                Some(sum)
            }
            _ => None,
        };
        self.profile.requested.merge(&part.requested);
        self.profile.temporary = self.profile.temporary.or(part.temporary);
        self.account(&file, &part);

        let modules = &mut self.profile.modules;
        let shifts: Vec<Option<u64>> = (part.modules.iter())
            .map(|module| self.addresses.place(modules, module))
            .collect();
        let moved = Moved {
            part: &part,
            index,
            shifts,
        };
        let stacks: Vec<u32> = part
            .stacks
            .iter()
            .map(|stack| self.stack(moved.stack(stack)))
            .collect();
        self.names(&moved);
        self.rows(&part, &stacks);
        let threads = self.threads(&part, &stacks);
        self.profile.parts.push(Part {
            threads,
            file,
            precision: part.precision(),
            is_whole: part.account.is_whole(),
            without_inherited: part.account.inherited_elsewhere > 0,
            peak: part.peak,
            most_resident: part
                .account
                .counter(Counter::MostResidentBytes)
                .unwrap_or(0),
            run: std::mem::take(&mut part.run),
        });
        stacks
    }

    fn stack(&mut self, stack: CallStack) -> u32 {
        let stacks = &mut self.profile.stacks;
        let (frames, interrupted) = (stack.frames.clone(), stack.interrupted.clone());
        let key = (frames, interrupted, stack.end, stack.labels.clone());
        *self.stack_of.entry(key).or_insert_with(|| {
            stacks.push(stack);
            stacks.len() as u32 - 1
        })
    }

    fn names(&mut self, moved: &Moved<'_>) {
        for (&avma, frames) in &moved.part.frames {
            let frames: &Vec<Frame> = frames;
            let at = moved.address(avma, avma, 0);
            let known = self.profile.frames.entry(at);
            known.or_insert_with(|| frames.clone());
        }
        let Some(names) = &moved.part.names else {
            return;
        };
        let merged = self.profile.names.get_or_insert_with(|| Symbols {
            binary: names.binary.clone(),
            names: Vec::new(),
        });
        for (avma, functions) in &names.names {
            // Some are of the call, some of what follows it, which may be behind the module's end.
            let call = avma.wrapping_sub(1);
            let at = moved.address(*avma, call, 0);
            merged.names.push((at, functions.clone()));
        }
    }

    fn rows(&mut self, part: &Profile, stacks: &[u32]) {
        self.has_pasts &= part.rows.is_empty() || !part.pasts.is_empty();
        for (index, row) in part.rows.iter().enumerate() {
            let Some(&stack) = stacks.get(row.stack as usize) else {
                continue;
            };
            let (rows, pasts) = (&mut self.profile.rows, &mut self.profile.pasts);
            let at = *self.row_of.entry((stack, row.class)).or_insert_with(|| {
                rows.push(Row {
                    stack,
                    class: row.class,
                    totals: Totals::default(),
                });
                pasts.push(Past::default());
                rows.len() - 1
            });
            rows[at].totals.merge(&row.totals);
            if let Some(past) = part.pasts.get(index) {
                pasts[at].merge(past);
            }
        }
        for (index, lifetimes) in part.lifetimes.iter().enumerate() {
            let Some(&stack) = stacks.get(index) else {
                continue;
            };
            let merged = &mut self.profile.lifetimes;
            if merged.len() <= stack as usize {
                merged.resize_with(stack as usize + 1, Lifetimes::default);
            }
            merged[stack as usize].merge(lifetimes);
        }
    }

    /// Returns the numbers that its threads get.
    fn threads(&mut self, part: &Profile, stacks: &[u32]) -> Range<u32> {
        let mut number_of: HashMap<u32, u32> = HashMap::new();
        let threads = &mut self.profile.threads;
        let first = self.next_thread;
        let mut next = first;
        for thread in &part.threads {
            number_of.insert(thread.number, next);
            threads.push(heapprof_format::Thread {
                number: next,
                ..thread.clone()
            });
            next += 1;
        }
        self.next_thread = next;
        let Some(rows) = &part.extras.threads else {
            self.has_threads &= part.rows.is_empty();
            return first..next;
        };
        let merged = self.profile.extras.threads.get_or_insert_default();
        for ThreadRow { thread, row } in rows {
            let Some(&stack) = stacks.get(row.stack as usize) else {
                continue;
            };
            let thread = *number_of.entry(*thread).or_insert_with_key(|&unknown| {
                // The next part begins behind it.
                threads.push(heapprof_format::Thread {
                    number: next,
                    tid: 0,
                    name: name_of_unknown_thread(unknown),
                });
                next += 1;
                next - 1
            });
            merged.push(ThreadRow {
                thread,
                row: Row { stack, ..*row },
            });
        }
        self.next_thread = next;
        first..next
    }

    fn account(&mut self, file: &str, part: &Profile) {
        let account = &mut self.profile.account;
        for &(counter, n) in &part.account.counters {
            let sum = self.counters.entry(counter.number()).or_default();
            *sum = sum.saturating_add(n);
        }
        account.damage.extend(part.account.damage.iter().cloned());
        account.missing_frames += part.account.missing_frames;
        account.unknown_stacks += part.account.unknown_stacks;
        account.unknown_frees += part.account.unknown_frees;
        account.implausible += part.account.implausible;
        account.inherited_elsewhere += part.account.inherited_elsewhere;
        account.empty_logs = (account.empty_logs).saturating_add(part.account.empty_logs);
        let lost = part.account.lost_names.iter();
        (account.lost_names).extend(lost.map(|words| format!("{file}: {words}")));
        let said = part.account.remarks.iter();
        account
            .remarks
            .extend(said.map(|remark| format!("{file}: {remark}")));
        if let Some((offset, left)) = part.account.torn {
            account.remarks.push(format!(
                "{file}: cut off at offset {offset}: {left} bytes behind it could not be used{}",
                part.account.unchecked_in_words()
            ));
        }
    }

    /// The profile of all of them.
    pub(crate) fn finish(mut self) -> Profile {
        let profile = &mut self.profile;
        // A sum over processes that never lived at the same time would be no memory of the machine.
        let most = self.counters.get_mut(&Counter::MostResidentBytes.number());
        if let Some(most) = most {
            *most = most_resident_at_once(&profile.parts);
        }
        let counters = self.counters.into_iter();
        profile.account.counters = counters
            .map(|(number, n)| (Counter::from_number(number), n))
            .collect();
        profile.run = run_of(&profile.parts);
        profile.counted = self.counted;
        if !self.has_pasts {
            profile.pasts.clear();
            profile.lifetimes.clear();
        }
        if !self.has_threads {
            profile.extras.threads = None;
        }
        if profile.precision() == Precision::Stated {
            profile.stated_errors = self.variances.map(|sums| sums.map(f64::sqrt));
        }
        self.profile
    }
}

/// Returns the most bytes that were resident in processes that lived at the same time: the largest
/// sum of their maxima, which is a bound. A process without times counts as if it lived all the
/// time.
fn most_resident_at_once(parts: &[Part]) -> u64 {
    let mut always = 0_u64;
    // Ends go before beginnings of the same time.
    let mut changes: Vec<(u64, bool, u64)> = Vec::new();
    for part in parts {
        let (begin_ns, bytes) = (part.run.start_wall_ns, part.most_resident);
        if begin_ns == 0 {
            always = always.saturating_add(bytes);
            continue;
        }
        let end_ns = begin_ns.saturating_add(part.run.duration_ns.max(1));
        changes.extend([(begin_ns, true, bytes), (end_ns, false, bytes)]);
    }
    changes.sort_unstable();
    let (mut now, mut most) = (always, always);
    for (_, begins, bytes) in changes {
        now = match begins {
            true => now.saturating_add(bytes),
            false => now.saturating_sub(bytes),
        };
        most = most.max(now);
    }
    most
}

/// Returns what is true of all processes together.
fn run_of(parts: &[Part]) -> Run {
    let runs = || parts.iter().map(|part| &part.run);
    let Some(first) = runs().next() else {
        return Run::default();
    };
    let is_same = |same: &dyn Fn(&Run) -> bool| runs().all(same);
    let known = runs().filter_map(Run::intervals);
    let intervals = known.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let seen = runs().any(|run| run.intervals_seen.is_some());
    Run {
        program: first.program.clone(),
        executed_as: first.executed_as.clone(),
        allocator: match is_same(&|run| run.allocator == first.allocator) {
            true => first.allocator.clone(),
            false => String::new(),
        },
        tapped: {
            let mut all: Vec<String> = runs().flat_map(|run| run.tapped.clone()).collect();
            all.sort_unstable();
            all.dedup();
            all
        },
        is_attached: runs().any(|run| run.is_attached),
        args: match is_same(&|run| run.args == first.args) {
            true => first.args.clone(),
            false => Vec::new(),
        },
        start_wall_ns: runs()
            .map(|run| run.start_wall_ns)
            .filter(|&ns| ns != 0)
            .min()
            .unwrap_or(0),
        duration_ns: runs().map(|run| run.duration_ns).max().unwrap_or(0),
        interval: intervals.map(|(least, _)| least),
        intervals_seen: intervals.filter(|_| seen),
        ending: runs()
            .map(|run| run.ending)
            .find(|ending| !matches!(ending, Ending::Said(_)))
            .unwrap_or(first.ending),
        library: first.library.clone(),
        settings: settings_of_all(&mut runs()),
        span: first
            .span
            .filter(|_| is_same(&|run| run.span == first.span)),
        ..Run::default()
    }
}

/// The settings that all have, in the order of the first.
fn settings_of_all(runs: &mut dyn Iterator<Item = &Run>) -> Vec<(String, String)> {
    let first = runs.next().map_or(&[][..], |run| &run.settings);
    let mut common: Vec<&(String, String)> = first.iter().collect();
    for run in runs {
        let settings: HashSet<&(String, String)> = run.settings.iter().collect();
        common.retain(|setting| settings.contains(setting));
    }
    common.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ```text
    ///  100 ──────────────────────────── a shell
    ///      30 ────── one compiler
    ///                40 ────── the next one, which begins when the first ends
    ///                     5 ── and a third
    /// ```
    #[test]
    fn resident_memory_is_added_up_over_processes_that_lived_together() {
        let part = |begin_ns, duration_ns, bytes| {
            let mut profile = Profile::default();
            profile.run.start_wall_ns = begin_ns;
            profile.run.duration_ns = duration_ns;
            let counter = Counter::MostResidentBytes;
            profile.account.counters.push((counter, bytes));
            (String::new(), profile)
        };
        let most = |parts: Vec<_>| merged(parts).account.counters[0].1;
        let shell = || part(1000, 100, 100);
        let all = || {
            vec![
                shell(),
                part(1010, 20, 30),
                part(1030, 20, 40),
                part(1045, 4, 5),
            ]
        };
        assert_eq!(most(all()), 145);
        assert_eq!(most(vec![part(1010, 20, 30), part(1030, 20, 40)]), 40);
        // Nobody knows when a process lived whose file does not say it.
        let with_unknown = all().into_iter().chain([part(0, 0, 7)]);
        assert_eq!(most(with_unknown.collect()), 152);
        let line = merged(all()).resident().unwrap();
        assert!(line.contains(": 145 B at most"), "{line}");
    }
}
