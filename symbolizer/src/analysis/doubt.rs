//! Doubts: why no limit can be judged by the numbers of a profile.
//!
//! A test that watches over memory must fail if it has nothing to go by. So a limit is within reach
//! of a judgement only if the record of the run is complete, has samples, and is of the memory that
//! the limit is about.

use heapprof_format::Counter;

use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::precision::Precision;
use crate::model::profile::Profile;
use crate::model::quantity::Bytes;

/// Resident bytes that programs have beside their heap: text, stacks, this library's own.
const BESIDE_THE_HEAP: f64 = 64.0 * 1024.0 * 1024.0;

impl Profile {
    /// Returns why a limit of a number cannot be judged, a sentence each; none if it can.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = self.lacks();
        doubts.extend(self.stopped());
        if self.rows.is_empty() {
            doubts.push(match (self.filtered.is_empty(), self.precision()) {
                (false, _) => format!("the filter ({}) leaves nothing", self.filtered),
                (true, Precision::Exact) => "it has no allocation".into(),
                (true, _) => "it has no sample".into(),
            });
        }
        doubts
    }

    /// Returns why a limit of so many bytes cannot be judged although the number is within it: most
    /// of the memory that was resident did not come from malloc.
    pub fn doubt_of_memory(&self, measure: Measure, limit: f64) -> Option<String> {
        let counter = match measure {
            Measure::PeakBytes => Counter::MostResidentBytes,
            Measure::Basic(Metric::InUseBytes) => Counter::ResidentBytes,
            _ => return None,
        };
        let is_a_part = self.run.span.is_some() || !self.filtered.is_empty();
        if is_a_part {
            return None;
        }
        let resident = self.account.counter(counter)? as f64;
        let in_blocks = measure.of_all(self).value;
        let beside = resident - in_blocks;
        let is_another = beside > in_blocks && beside > BESIDE_THE_HEAP.max(limit);
        is_another.then(|| {
            format!(
                "{} were resident, and only {} of that are malloc's blocks: memory that the program maps itself, or has from \
                 an allocator of its own, is not in the profile",
                Bytes(resident),
                Bytes(in_blocks)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    fn resident(bytes: f64) -> Profile {
        let mut profile = Profile::default();
        let counters = &mut profile.account.counters;
        counters.push((Counter::MostResidentBytes, bytes as u64));
        profile
    }

    #[test]
    fn memory_past_malloc_is_a_doubt_if_it_is_most_and_above_the_limit() {
        let doubt = |bytes, limit| {
            resident(bytes)
                .doubt_of_memory(Measure::PeakBytes, limit)
                .is_some()
        };
        assert!(doubt(450.0 * MIB, 200.0 * MIB));
        assert!(!doubt(450.0 * MIB, 500.0 * MIB));
        assert!(!doubt(20.0 * MIB, 1.0 * MIB), "text and stacks");
        let in_use = Measure::Basic(Metric::InUseBytes);
        assert_eq!(resident(450.0 * MIB).doubt_of_memory(in_use, 1.0), None);
    }

    #[test]
    fn a_profile_of_nothing_is_a_doubt() {
        let mut profile = Profile::default();
        assert!(
            profile
                .doubts()
                .iter()
                .any(|doubt| doubt.starts_with("it has no"))
        );
        profile.filtered = "focus=x".into();
        let doubts = profile.doubts();
        assert!(
            doubts.contains(&"the filter (focus=x) leaves nothing".to_owned()),
            "{doubts:?}"
        );
    }
}
