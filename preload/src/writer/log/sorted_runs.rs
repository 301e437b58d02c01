//! Sorted runs: the blocks in use, put in the order of time without a long pause.
//!
//! Each run is sorted when it is full, and the runs are merged while they are written. To sort all
//! blocks at once would stop the writer for too long.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use heapprof_format::Alloc;

/// Blocks in a run, few enough to sort without a pause.
const RUN_LEN: usize = 4096;

/// The runs. See the module's text.
#[derive(Default)]
pub(crate) struct SortedRuns(Vec<Vec<Alloc>>);

impl SortedRuns {
    pub(crate) fn push(&mut self, alloc: Alloc) {
        match self.0.last_mut() {
            Some(run) if run.len() < RUN_LEN => run.push(alloc),
            last => {
                if let Some(run) = last {
                    sort(run);
                }
                let mut run = Vec::with_capacity(RUN_LEN);
                run.push(alloc);
                self.0.push(run);
            }
        }
    }

    /// Returns all blocks, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Alloc> {
        self.0.iter().flatten()
    }

    /// Returns all blocks, in the order of time.
    pub(crate) fn in_order(mut self) -> impl Iterator<Item = Alloc> {
        if let Some(run) = self.0.last_mut() {
            sort(run);
        }
        let mut runs: Vec<_> = self.0.into_iter().map(Vec::into_iter).collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        let head = |runs: &mut Vec<std::vec::IntoIter<Alloc>>, run: usize| {
            let next = runs[run].next()?;
            Some(Reverse((next.time_ns, next.id, run, Payload(next))))
        };
        for run in 0..runs.len() {
            heads.extend(head(&mut runs, run));
        }
        std::iter::from_fn(move || {
            let Reverse((_, _, run, Payload(first))) = heads.pop()?;
            heads.extend(head(&mut runs, run));
            Some(first)
        })
    }
}

fn sort(run: &mut [Alloc]) {
    run.sort_unstable_by_key(|block| (block.time_ns, block.id));
}

/// A block in the heap that takes no part in the order: time and id, which precede it, are unique.
struct Payload(Alloc);

impl PartialEq for Payload {
    fn eq(&self, _: &Payload) -> bool {
        true
    }
}

impl Eq for Payload {}

impl PartialOrd for Payload {
    fn partial_cmp(&self, other: &Payload) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Payload {
    fn cmp(&self, _: &Payload) -> Ordering {
        Ordering::Equal
    }
}
