//! Numbers of a detail: what a later reading of the memory, without a detail, explains with them.
//!
//! If the allocator gave pages back and fewer touched ones are missing, the others were never
//! touched. Pages that were touched beyond those that the allocator took are in new mappings, up to
//! their bytes. Pages that are missing were unmapped, up to the bytes of the mappings that are
//! gone. If more are missing, the allocator has got pages that were not touched yet. A change
//! without such a cause is not explained.

/// See the module's text. Bytes.
#[derive(Debug, Clone, Copy)]
pub struct AtDetail {
    /// Pages that the allocator counts as used or kept.
    pub used: u64,
    /// Touched pages without a file of the whole process.
    pub touched: u64,
    /// Pages of the allocator that were never touched.
    pub untouched: u64,
    /// Recorded mappings.
    pub recorded: u64,
}

impl AtDetail {
    /// Explains what has changed since. Returns the allocator's untouched pages, and the change of
    /// the touched pages of recorded mappings.
    #[must_use]
    pub fn explain(&self, used: u64, touched: u64, recorded: u64) -> (u64, i64) {
        let grown = touched.saturating_add(self.used);
        let expected = self.touched.saturating_add(used);
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        match grown.checked_sub(expected) {
            Some(more) => {
                let given_back = self.used.saturating_sub(used);
                let never_touched = more.min(given_back).min(self.untouched);
                let came = recorded.saturating_sub(self.recorded);
                let in_new = (more - never_touched).min(came);
                (self.untouched - never_touched, signed(in_new))
            }
            None => {
                let missing = expected - grown;
                let gone = self.recorded.saturating_sub(recorded).min(missing);
                (self.untouched.saturating_add(missing - gone), -signed(gone))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_since_a_detail_have_a_cause_or_none() {
        let then = AtDetail {
            used: 50,
            touched: 60,
            untouched: 24,
            recorded: 30,
        };
        // The allocator took ten pages, and all were touched.
        assert_eq!(then.explain(60, 70, 30), (24, 0));
        // It took ten, of which four were touched.
        assert_eq!(then.explain(60, 64, 30), (30, 0));
        // Thirty pages of an old mapping or of blocks were touched: it is not known which.
        assert_eq!(then.explain(50, 90, 30), (24, 0));
        // It gave twenty back, of which eight had been touched.
        assert_eq!(then.explain(30, 52, 30), (12, 0));
        // It gave all back. More touched pages are left than that explains.
        assert_eq!(then.explain(0, 40, 30), (0, 0));
        // A mapping of 20 came, with at most these touched.
        assert_eq!(then.explain(50, 90, 50), (24, 20));
        assert_eq!(then.explain(50, 65, 50), (24, 5));
        // A mapping of 20 went, of which five were touched.
        assert_eq!(then.explain(50, 55, 10), (24, -5));
    }
}
