//! Size classes: groups of blocks of one stack in a dump.
//!
//! There are four classes for each doubling, as in jemalloc's own: 1..=8, then 9..=16, and above 16
//! steps of a quarter of the power of two below. A class spans at most a quarter of its size. So
//! the average size of a line tells what its blocks are like, and a reader's `-tagfocus` by size
//! works.

/// A class of requested sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SizeClass(pub u8);

impl SizeClass {
    /// Returns the class of a request.
    pub fn of(size: u64) -> Self {
        match size {
            0..=8 => SizeClass(0),
            9..=16 => SizeClass(1),
            _ => {
                // size-1 has its top bit at `log`; the two bits below it are the quarter.
                let below = size - 1;
                let log = 63 - below.leading_zeros();
                let quarter = (below >> (log - 2)) & 3;
                SizeClass((2 + (log - 4) * 4) as u8 + quarter as u8)
            }
        }
    }

    /// Returns the largest size of the class.
    pub fn upper(self) -> u64 {
        match self.0 {
            0 => 8,
            1 => 16,
            n => {
                let n = u32::from(n - 2);
                let (log, quarter) = (n / 4 + 4, u64::from(n % 4));
                (4 + quarter + 1)
                    .checked_shl(log - 2)
                    .filter(|upper| upper >> (log - 2) == 5 + quarter)
                    .unwrap_or(u64::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_classes() {
        let uppers: Vec<u64> = (0..10).map(|n| SizeClass(n).upper()).collect();
        assert_eq!(uppers, [8, 16, 20, 24, 28, 32, 40, 48, 56, 64]);
    }

    proptest! {
        #[test]
        fn every_size_lies_in_its_class_and_no_lower_one(shift in 0u32..64, bits in any::<u64>()) {
            let size = bits >> shift;
            let class = SizeClass::of(size);
            prop_assert!(size <= class.upper());
            if class.0 > 0 {
                prop_assert!(size > SizeClass(class.0 - 1).upper());
            }
        }
    }
}
