//! Blocks in use, to be put in order of time without a long pause: runs, sorted one by one as they fill up, and merged as they are
//! written. To sort a million at once takes a tenth of a second, in which nobody would look at the queue.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use heapprof_format::Alloc;

/// Blocks in a run: sorted in a quarter of a millisecond.
const RUN: usize = 4096;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Runs(Vec<Vec<Alloc>>);

impl Runs {
    pub(crate) fn push(&mut self, alloc: Alloc) {
        match self.0.last_mut() {
            Some(run) if run.len() < RUN => run.push(alloc),
            last => {
                if let Some(run) = last {
                    sort(run);
                }
                let mut run = Vec::with_capacity(RUN);
                run.push(alloc);
                self.0.push(run);
            }
        }
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Alloc> {
        self.0.iter().flatten()
    }

    /// All of them, in order of time.
    pub(crate) fn in_order(mut self) -> impl Iterator<Item = Alloc> {
        if let Some(run) = self.0.last_mut() {
            sort(run);
        }
        let mut runs: Vec<_> = self.0.into_iter().map(Vec::into_iter).collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        let head = |runs: &mut Vec<std::vec::IntoIter<Alloc>>, run: usize| {
            let next = runs[run].next()?;
            Some(Reverse((next.time_ns, next.id, run, Whole(next))))
        };
        for run in 0..runs.len() {
            heads.extend(head(&mut runs, run));
        }
        std::iter::from_fn(move || {
            let Reverse((_, _, run, Whole(first))) = heads.pop()?;
            heads.extend(head(&mut runs, run));
            Some(first)
        })
    }
}

fn sort(run: &mut [Alloc]) {
    run.sort_unstable_by_key(|block| (block.time_ns, block.id));
}

/// A block that comes along, and has no say in the order: time and id before it are different for any two.
struct Whole(Alloc);

impl PartialEq for Whole {
    fn eq(&self, _: &Whole) -> bool {
        true
    }
}

impl Eq for Whole {}

impl PartialOrd for Whole {
    fn partial_cmp(&self, other: &Whole) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Whole {
    fn cmp(&self, _: &Whole) -> Ordering {
        Ordering::Equal
    }
}
