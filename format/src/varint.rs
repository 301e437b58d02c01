//! Varints: unsigned LEB128 of at most ten bytes, and the zigzag map for signed deltas.
//!
//! An encoding longer than ten bytes, or one whose tenth byte has bits beyond the 64th, is an
//! error, never a wrap.

/// Appends `value` to `out` in LEB128, one to ten bytes.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    each_byte(value, |byte| out.push(byte));
}

/// Calls `take` for each byte of `value` in LEB128, one to ten.
#[inline(always)]
pub(crate) fn each_byte(mut value: u64, mut take: impl FnMut(u8)) {
    while value >= 0x80 {
        take(value as u8 | 0x80);
        value >>= 7;
    }
    take(value as u8);
}

/// Takes one varint from the front of `bytes`. Returns `None` if it is cut short or overlong.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    // Nearly every varint of a log is one byte: that case comes first.
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && byte > 1 {
            return None; // bits beyond the 64th, or a continuation into an eleventh byte
        }
        value |= bits << (7 * i as u32);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Maps a signed number to an unsigned one, small magnitudes to small numbers: 0, -1, 1, -2, …
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverts [`zigzag`].
#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Uniform over encoded lengths, not over integers: a uniform u64 is nearly always ten bytes.
    fn any_length() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(shift, v)| v >> shift)
    }

    proptest! {
        #[test]
        fn every_number_comes_back(value in any_length()) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            prop_assert!(bytes.len() <= 10);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn zigzag_comes_back(value in any::<i64>()) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let mut rest = &bytes[..];
            let _ = take(&mut rest);
        }
    }

    #[test]
    fn a_cut_varint_is_an_error() {
        assert_eq!(take(&mut &[0x80u8][..]), None);
        assert_eq!(take(&mut &[][..]), None);
    }

    #[test]
    fn an_overlong_varint_is_an_error() {
        // ten bytes of continuation, and a tenth byte that would be bit 65
        assert_eq!(take(&mut &[0xffu8; 11][..]), None);
        let mut bytes = [0xffu8; 10];
        bytes[9] = 2;
        assert_eq!(take(&mut &bytes[..]), None);
        bytes[9] = 1;
        assert_eq!(take(&mut &bytes[..]), Some(u64::MAX));
    }

    #[test]
    fn small_magnitudes_are_small() {
        assert_eq!([0, -1, 1, -2, 2].map(zigzag), [0, 1, 2, 3, 4]);
    }
}
