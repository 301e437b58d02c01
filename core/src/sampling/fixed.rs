//! Fixed-point numbers for sums of weights. A sum does not depend on the order. A free subtracts
//! exactly what its allocation added. So the writer's account and a replay of its log are equal to
//! the last bit.

use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A fixed-point number with 32 fractional bits and room for 2^95. No sum of real samples
/// overflows; a sum of numbers from a hostile file saturates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fixed(i128);

impl Fixed {
    const ONE: f64 = (1u64 << 32) as f64;

    /// Returns a whole number.
    pub fn from_int(value: u64) -> Self {
        Fixed(i128::from(value) << 32)
    }

    /// Returns the nearest fixed-point number; halves round away from zero.
    #[inline]
    pub fn from_f64(value: f64) -> Self {
        const TWO_TO_63: f64 = (1u64 << 63) as f64;
        let scaled = value * Self::ONE;
        if (0.0..TWO_TO_63).contains(&scaled) {
            // The cast is one instruction, and the difference is exact. Both `round` and a cast to
            // 128 bits are calls.
            let below = scaled as i64;
            let up = scaled - below as f64 >= 0.5;
            return Fixed(i128::from(below) + i128::from(up));
        }
        Fixed(scaled.round() as i128)
    }

    /// Returns the number in units of 2^-32.
    pub fn to_bits(self) -> i128 {
        self.0
    }

    /// Returns the number of that many units of 2^-32.
    pub fn from_bits(bits: i128) -> Self {
        Fixed(bits)
    }

    /// Returns the product with a whole number, saturated at the limits.
    #[inline]
    #[must_use]
    pub fn times(self, factor: i128) -> Self {
        match (i64::try_from(self.0), i64::try_from(factor)) {
            // One instruction; the product of 128 bits is a call.
            (Ok(number), Ok(factor)) => Fixed(i128::from(number) * i128::from(factor)),
            _ => Fixed(self.0.saturating_mul(factor)),
        }
    }

    /// Returns the nearest floating-point number.
    #[inline]
    pub fn to_f64(self) -> f64 {
        match i64::try_from(self.0) {
            Ok(small) => small as f64 / Self::ONE,
            Err(_) => self.large_to_f64(),
        }
    }

    /// The cast from 128 bits is a call. It is not inlined: a compiler that sees both casts makes
    /// them one.
    #[cold]
    #[inline(never)]
    fn large_to_f64(self) -> f64 {
        self.0 as f64 / Self::ONE
    }

    /// Returns the whole number below, and the rest in units of 2^-32. Negative numbers become
    /// zero.
    pub fn split(self) -> (u64, u32) {
        if self.0 < 0 {
            return (0, 0);
        }
        let whole = u64::try_from(self.0 >> 32).unwrap_or(u64::MAX);
        (whole, self.0 as u32)
    }

    /// Returns the nearest whole number; halves round up, and negative numbers become zero.
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
        /// Any floating-point number, and those around halves and around the limit of the short
        /// path.
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

    proptest! {
        /// Around the limit of the short paths, and anywhere.
        #[test]
        fn short_paths_compute_the_same(bits in any::<i128>(), shift in 0u32..127, factor in any::<i128>(), other in 0u32..127) {
            let (bits, factor) = (bits >> shift, factor >> other);
            let number = Fixed::from_bits(bits);
            prop_assert_eq!(number.times(factor).to_bits(), bits.saturating_mul(factor));
            prop_assert_eq!(number.to_f64().to_bits(), (bits as f64 / Fixed::ONE).to_bits());
        }
    }

    #[test]
    fn a_number_is_split_at_its_point() {
        assert_eq!(Fixed::from_f64(2.75).split(), (2, 3 << 30));
        assert_eq!(Fixed::from_f64(-2.75).split(), (0, 0));
        assert_eq!(Fixed::from_int(u64::MAX).split(), (u64::MAX, 0));
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
