//! Coarse history: the moments before what a log has in detail, from the checkpoint that the log
//! begins with.

use heapprof_format::CoarseMoment;

use super::Fold;

/// Most moments that are kept: more than the library writes.
const MOST: usize = 1 << 14;

impl Fold {
    /// Keeps a moment, with its stacks by their indices in the profile. Stacks that are not in the
    /// log are left out, as are moments out of order.
    pub(super) fn coarse(&mut self, mut moment: CoarseMoment) {
        let kept = &mut self.profile.coarse;
        let is_later = kept.last().is_none_or(|last| last.time_ns < moment.time_ns);
        let until_ns = self.profile.run.checkpoint.map_or(0, |it| it.time_ns);
        let is_before = moment.time_ns <= until_ns;
        if !self.resuming || kept.len() == MOST || !is_later || !is_before {
            return;
        }
        let known = |&(stack, bytes): &(u32, u64)| Some((*self.stack_of.get(&stack)?, bytes));
        moment.largest = moment.largest.iter().filter_map(known).collect();
        kept.push(moment);
    }
}
