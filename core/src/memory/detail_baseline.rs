//! Detail baseline: numbers at the last memory detail. A later reading of the memory, without a
//! detail, explains its changes by them.
//!
//! | touched pages are | cause | bound |
//! | --- | --- | --- |
//! | more than the allocator took | new mappings | their bytes |
//! | | pages that the allocator gave back were never touched | pages that it gave back |
//! | fewer | mappings are gone, or their pages were given back | touched pages of all mappings |
//! | | the allocator took pages that were not touched yet | pages that it took |
//!
//! Two bounds come first. The recorded mappings have at most as many touched pages as they have
//! pages: the touched pages that they had beyond that are gone. The allocator, too, has at most as
//! many as it has pages: new touched pages beyond that count for the recorded mappings, as far as
//! these have untouched ones. (Stacks and variables hardly grow.)
//!
//! Otherwise, if both causes are possible, each explains what exceeds the bound of the other. The
//! rest is not explained: a guess would hide that the lines of the detail are old. If the rest is
//! large, the touched pages of the allocator alone are read anew ([`DetailBaseline::at_heap`]).
//! Then all other pages are the mappings', as far as they can be the recorded ones'.
//!
//! The program's own allocator has its pages in mappings that are not recorded. There, such a
//! change is one of these.

/// Recorded mappings so far. Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordedBytes {
    /// Mapped in all.
    pub mapped: u64,
    /// The part of it that was unmapped.
    pub unmapped: u64,
}

impl RecordedBytes {
    /// Returns the bytes of the mappings that there are.
    #[must_use]
    pub fn present(&self) -> u64 {
        self.mapped.saturating_sub(self.unmapped)
    }
}

/// See the module's text. Bytes.
#[derive(Debug, Clone, Copy)]
pub struct DetailBaseline {
    /// Pages that the allocator counts as used or kept.
    pub used: u64,
    /// Touched pages without a file of the whole process.
    pub touched: u64,
    /// Touched pages of the allocator.
    pub heap: u64,
    /// Recorded mappings.
    pub recorded: RecordedBytes,
    /// Touched pages of recorded mappings.
    pub recorded_touched: u64,
    /// Touched pages of all mappings.
    pub mapped: u64,
    /// True if the program's own allocator serves it, so that `used` has no block of the program.
    pub is_own_allocator: bool,
}

/// The changes since a detail. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetailChanges {
    /// Pages of the allocator that were never touched, now.
    pub untouched: u64,
    /// Touched pages of recorded mappings, more than then.
    pub recorded: i64,
    /// Touched pages of other mappings, more than then.
    pub unrecorded: i64,
    /// Touched pages beyond those that the above explain.
    pub rest: i64,
}

/// Returns a number of bytes with a sign.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns `now - then`.
fn change(then: u64, now: u64) -> i64 {
    signed(now).saturating_sub(signed(then))
}

impl DetailBaseline {
    /// Returns the pages of the allocator that were never touched.
    #[must_use]
    pub fn untouched(&self) -> u64 {
        self.used.saturating_sub(self.heap)
    }

    /// Returns the numbers now, at which the allocator has `heap` touched pages.
    #[must_use]
    pub fn at_heap(
        &self,
        (used, heap): (u64, u64),
        touched: u64,
        recorded: RecordedBytes,
    ) -> DetailBaseline {
        let in_mappings = change(self.touched, touched).saturating_sub(change(self.heap, heap));
        let gone = self.recorded_touched.saturating_sub(recorded.present());
        let left = self.recorded_touched - gone;
        let room = recorded.present() - left;
        let change = in_mappings.saturating_add(signed(gone));
        let of_recorded = change.clamp(-signed(left), signed(room));
        let recorded_touched = left.saturating_add_signed(of_recorded);
        DetailBaseline {
            used,
            touched,
            heap,
            recorded,
            recorded_touched,
            mapped: self.mapped.saturating_add_signed(in_mappings),
            is_own_allocator: self.is_own_allocator,
        }
    }

    /// Explains what has changed since.
    #[must_use]
    pub fn explain(&self, used: u64, touched: u64, recorded: RecordedBytes) -> DetailChanges {
        let mut since = self.causes(used, touched, recorded);
        let taken = change(self.used, used);
        let never_touched = change(self.untouched(), since.untouched);
        let explained = taken - never_touched + since.recorded + since.unrecorded;
        since.rest = change(self.touched, touched) - explained;
        since
    }

    /// Returns the changes whose cause is known.
    fn causes(&self, used: u64, touched: u64, recorded: RecordedBytes) -> DetailChanges {
        let gone = self.recorded_touched.saturating_sub(recorded.present());
        let grown = touched.saturating_add(self.used).saturating_add(gone);
        let expected = self.touched.saturating_add(used);
        let mut since = DetailChanges {
            untouched: self.untouched(),
            recorded: -signed(gone),
            unrecorded: 0,
            rest: 0,
        };
        match grown.checked_sub(expected) {
            Some(more) => {
                let mapped = recorded.mapped.saturating_sub(self.recorded.mapped);
                if self.is_own_allocator {
                    let in_new = more.min(mapped);
                    since.recorded += signed(in_new);
                    since.unrecorded = signed(more - in_new);
                    return since;
                }
                let given_back = self.used.saturating_sub(used).min(self.untouched());
                since.untouched -= more.saturating_sub(mapped).min(given_back);
                let in_new = more.saturating_sub(given_back).min(mapped);
                let beyond_heap = more.saturating_sub(self.untouched());
                let room = (recorded.present()).saturating_sub(self.recorded_touched - gone);
                since.recorded += signed(in_new.max(beyond_heap.min(room)));
            }
            None => {
                let missing = expected - grown;
                let unmapped = recorded.unmapped.saturating_sub(self.recorded.unmapped);
                let unmapped = unmapped.saturating_sub(gone);
                if self.is_own_allocator {
                    let gone = unmapped.min(missing);
                    since.recorded -= signed(gone);
                    since.unrecorded = -signed(missing - gone);
                    return since;
                }
                let taken = used.saturating_sub(self.used);
                let of_mappings = self.mapped.saturating_sub(gone);
                let never_touched = missing.saturating_sub(of_mappings).min(taken);
                since.untouched = self.untouched().saturating_add(never_touched);
                since.recorded -= signed(missing.saturating_sub(taken).min(unmapped));
            }
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: DetailBaseline = DetailBaseline {
        used: 50,
        touched: 60,
        heap: 26,
        recorded: RecordedBytes {
            mapped: 30,
            unmapped: 0,
        },
        recorded_touched: 8,
        mapped: 8,
        is_own_allocator: false,
    };

    /// The recorded mappings if so many bytes are mapped of 30 or more.
    fn present(bytes: u64) -> RecordedBytes {
        RecordedBytes {
            mapped: bytes.max(30),
            unmapped: 30u64.saturating_sub(bytes),
        }
    }

    #[test]
    fn changes_since_a_detail_have_a_cause_or_none() {
        let explain = |used, touched, recorded| {
            let since = THEN.explain(used, touched, present(recorded));
            assert_eq!(since.unrecorded, 0);
            (since.untouched, since.recorded)
        };
        // The allocator took ten pages, and all were touched.
        assert_eq!(explain(60, 70, 30), (24, 0));
        // It took forty, of which four were touched: of the missing ones, eight may be of mappings.
        assert_eq!(explain(90, 64, 30), (24 + 36 - 8, 0));
        // Thirty pages of an old mapping or of blocks were touched: six of them are no block's.
        assert_eq!(explain(50, 90, 30), (24, 6));
        // The same, of twenty: it is not known which.
        assert_eq!(explain(50, 80, 30), (24, 0));
        // Thirty pages of mappings or of blocks were given back by `madvise`.
        assert_eq!(explain(50, 30, 30), (24, 0));
        // It gave twenty back, of which eight had been touched.
        assert_eq!(explain(30, 52, 30), (12, 0));
        // It gave all back. More touched pages are left than that explains.
        assert_eq!(explain(0, 40, 30), (0, 6));
        // A mapping of 20 came, with at most these touched.
        assert_eq!(explain(50, 90, 50), (24, 20));
        assert_eq!(explain(50, 65, 50), (24, 5));
        // The same, and the allocator gave ten back: 15 more are in the one or were in the other.
        assert_eq!(explain(40, 65, 50), (24, 5));
        // A mapping of 20 went, of which five were touched.
        assert_eq!(explain(50, 55, 10), (24, -5));
        // The same, and the allocator took ten: each may lack the five.
        assert_eq!(explain(60, 65, 10), (24, 0));
        assert_eq!(explain(60, 57, 10), (24 + 5, -3));
        // All mappings went, and the allocator took and touched as much.
        assert_eq!(explain(58, 60, 0), (24, -8));
    }

    #[test]
    fn mappings_that_went_and_others_that_came_are_told_apart() {
        let then = DetailBaseline {
            recorded_touched: 30,
            mapped: 30,
            ..THEN
        };
        let replaced = RecordedBytes {
            mapped: 60,
            unmapped: 30,
        };
        // A new one in the place of the old one, of which ten pages are touched so far.
        let since = then.explain(50, 40, replaced);
        assert_eq!((since.untouched, since.recorded), (24, -20));
    }

    #[test]
    fn what_has_no_cause_is_the_rest_until_the_heap_is_read() {
        // Twenty more pages are touched: of blocks, or of the old mapping.
        let since = THEN.explain(50, 80, present(30));
        assert_eq!((since.untouched, since.recorded, since.rest), (24, 0, 20));
        // The pages are of blocks, of the mapping, or of others: the mapping has 22 untouched ones.
        let at_heap = |heap, touched, recorded| {
            let now = THEN.at_heap((50, heap), touched, present(recorded));
            let since = now.explain(50, touched, present(recorded));
            assert_eq!((since.untouched, since.recorded), (50 - heap, 0));
            assert_eq!((since.unrecorded, since.rest), (0, 0));
            (now.recorded_touched, now.mapped)
        };
        assert_eq!(at_heap(46, 80, 30), (8, 8));
        assert_eq!(at_heap(26, 80, 30), (28, 28));
        assert_eq!(at_heap(26, 90, 30), (30, 38));
        // A mapping went, and as many pages of others were touched.
        assert_eq!(at_heap(26, 60, 2), (2, 8));
        // Pages of mappings were given back: of the recorded ones first.
        assert_eq!(at_heap(26, 56, 30), (4, 4));
        let all = DetailBaseline { mapped: 30, ..THEN };
        let now = all.at_heap((50, 26), 40, present(30));
        assert_eq!((now.recorded_touched, now.mapped), (0, 10));
    }

    #[test]
    fn the_programs_own_allocator_has_its_pages_in_other_mappings() {
        let then = DetailBaseline {
            used: 5,
            heap: 2,
            is_own_allocator: true,
            ..THEN
        };
        let explain = |used, touched, recorded| {
            let since = then.explain(used, touched, present(recorded));
            assert_eq!((since.untouched, since.rest), (3, 0));
            (since.recorded, since.unrecorded)
        };
        assert_eq!(explain(5, 90, 30), (0, 30));
        assert_eq!(explain(5, 20, 30), (0, -40));
        // Two pages are this library's.
        assert_eq!(explain(7, 62, 30), (0, 0));
        // A recorded mapping of 20 came, and went.
        assert_eq!(explain(5, 90, 50), (20, 10));
        assert_eq!(explain(5, 30, 10), (-20, -10));
    }
}
