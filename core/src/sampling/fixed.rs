//! Fixed-point number: the type in which weights are added up.
//!
//! Sums do not depend on their order. A free takes away exactly what its allocation added. The
//! writer's account and a replay of its log are equal to the last bit.

use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A fixed-point number with 32 bits behind the point. Room for 2^95 before it: no sum of real
/// samples overflows; one of numbers that a hostile file claims stays at the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fixed(i128);

impl Fixed {
    const ONE: f64 = (1u64 << 32) as f64;

    /// The whole number.
    pub fn from_int(value: u64) -> Self {
        Fixed(i128::from(value) << 32)
    }

    /// The nearest fixed-point number; halves go away from zero.
    #[inline]
    pub fn from_f64(value: f64) -> Self {
        const TWO_TO_63: f64 = (1u64 << 63) as f64;
        let scaled = value * Self::ONE;
        if (0.0..TWO_TO_63).contains(&scaled) {
            // Below this bound the conversion is one instruction of the processor, and the
            // difference is exact. It saves the calls of `round` and of the conversion to 128 bits.
            let below = scaled as i64;
            let up = scaled - below as f64 >= 0.5;
            return Fixed(i128::from(below) + i128::from(up));
        }
        Fixed(scaled.round() as i128)
    }

    /// The number in units of 2^-32.
    pub fn to_bits(self) -> i128 {
        self.0
    }

    /// The number of so many units of 2^-32.
    pub fn from_bits(bits: i128) -> Self {
        Fixed(bits)
    }

    /// The product with a whole number, at most the largest or smallest that there is.
    #[inline]
    #[must_use]
    pub fn times(self, factor: i128) -> Self {
        Fixed(self.0.saturating_mul(factor))
    }

    /// The nearest floating-point number.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / Self::ONE
    }

    /// The nearest whole number, halves up; below zero is zero.
    pub fn round(self) -> u64 {
        u64::try_from(self.0.saturating_add(1 << 31) >> 32).unwrap_or(if self.0 < 0 {
            0
        } else {
            u64::MAX
        })
    }
}

impl Add for Fixed {
    type Output = Fixed;
    fn add(self, other: Fixed) -> Fixed {
        Fixed(self.0.saturating_add(other.0))
    }
}

impl Sub for Fixed {
    type Output = Fixed;
    fn sub(self, other: Fixed) -> Fixed {
        Fixed(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Fixed {
    fn add_assign(&mut self, other: Fixed) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl SubAssign for Fixed {
    fn sub_assign(&mut self, other: Fixed) {
        self.0 = self.0.saturating_sub(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any floating-point number, and for those around halves and around the largest that
        /// take the short way.
        #[test]
        fn a_fixed_point_number_is_the_nearest(bits in any::<u64>(), steps in 0u64..4, whole in 0u64..1 << 40) {
            let half = (whole as f64 + 0.5) / Fixed::ONE;
            let around = |x: f64| f64::from_bits((x.to_bits() + steps).wrapping_sub(2));
            for value in [f64::from_bits(bits), around(half), around((1u64 << 31) as f64), -around(half)] {
                let nearest = (value * Fixed::ONE).round() as i128;
                prop_assert_eq!(Fixed::from_f64(value).to_bits(), nearest, "{}", value);
            }
        }
    }

    #[test]
    fn rounding_is_to_the_nearest() {
        assert_eq!(Fixed::from_f64(2.5).round(), 3);
        assert_eq!(Fixed::from_f64(2.49).round(), 2);
        assert_eq!(Fixed::from_f64(-0.2).round(), 0);
        assert_eq!(Fixed::from_f64(-7.0).round(), 0);
        assert_eq!(Fixed::from_int(u64::MAX).round(), u64::MAX);
    }
}
