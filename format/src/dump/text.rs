//! Dump text: the parts of a dump, which are head, lines and tail.
//!
//! It serves writers with more lines than should be in memory as text: the text so far can be
//! written between any two lines. [`Dump::write`](super::Dump::write) uses the same parts.

use std::fmt::Write as _;

use super::write::push_on_one_line;
use super::{MAX_FRAMES, Mapping, Sampling};

/// Largest number that the readers accept.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// The numbers of a line, or of all lines together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DumpNumbers {
    /// Blocks not yet freed.
    pub in_use_objects: u64,
    /// Bytes not yet freed.
    pub in_use_bytes: u64,
    /// Blocks ever allocated.
    pub allocated_objects: u64,
    /// Bytes ever allocated.
    pub allocated_bytes: u64,
}

impl DumpNumbers {
    /// Returns numbers that the readers accept: bytes come with at least one object, and all are in
    /// range.
    fn acceptable(&self) -> DumpNumbers {
        let pair = |objects: u64, bytes: u64| {
            let objects = if bytes > 0 { objects.max(1) } else { objects };
            (objects.min(MAX_NUMBER), bytes.min(MAX_NUMBER))
        };
        let (in_use_objects, in_use_bytes) = pair(self.in_use_objects, self.in_use_bytes);
        let (allocated_objects, allocated_bytes) =
            pair(self.allocated_objects, self.allocated_bytes);
        DumpNumbers {
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
        }
    }

    /// Adds a line, as it is written, to the sum in a dump's head.
    pub fn add_line(&mut self, line: &DumpNumbers) {
        let line = line.acceptable();
        let add = |sum: &mut u64, number: u64| *sum = sum.saturating_add(number).min(MAX_NUMBER);
        add(&mut self.in_use_objects, line.in_use_objects);
        add(&mut self.in_use_bytes, line.in_use_bytes);
        add(&mut self.allocated_objects, line.allocated_objects);
        add(&mut self.allocated_bytes, line.allocated_bytes);
    }

    fn push(&self, out: &mut Vec<u8>) {
        push_number(out, self.in_use_objects, 6);
        out.extend_from_slice(b": ");
        push_number(out, self.in_use_bytes, 8);
        out.extend_from_slice(b" [");
        push_number(out, self.allocated_objects, 6);
        out.extend_from_slice(b": ");
        push_number(out, self.allocated_bytes, 8);
        out.extend_from_slice(b"] @");
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct DumpText {
    bytes: Vec<u8>,
}

impl DumpText {
    /// Returns a text that begins with these bytes.
    pub fn after(bytes: Vec<u8>) -> Self {
        DumpText { bytes }
    }

    /// Returns the text so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the text so far, after it was written.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the text as its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends the head. `sum` is that of all lines, each added by [`DumpNumbers::add_line`].
    pub fn head(&mut self, sampling: Sampling, sum: &DumpNumbers, comments: &[String]) {
        let mut sum = *sum;
        if sum.allocated_bytes == sum.in_use_bytes {
            sum.allocated_bytes = if sum.allocated_bytes < MAX_NUMBER {
                sum.allocated_bytes + 1
            } else {
                sum.allocated_bytes - 1
            };
        }
        self.bytes.extend_from_slice(b"heap profile: ");
        sum.push(&mut self.bytes);
        let mut text = String::new();
        match sampling {
            Sampling::Unsampled => text.push_str(" heapprofile\n"),
            Sampling::Poisson { interval } => {
                let _ = writeln!(text, " heap_v2/{interval}");
            }
        }
        for comment in comments {
            text.push_str("# ");
            push_on_one_line(&mut text, comment);
            text.push('\n');
        }
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends a line. `frames` is as in [`DumpLine::frames`](super::DumpLine::frames).
    #[inline]
    pub fn line(&mut self, numbers: &DumpNumbers, frames: impl IntoIterator<Item = u64>) {
        numbers.acceptable().push(&mut self.bytes);
        for frame in frames.into_iter().take(MAX_FRAMES) {
            push_address(&mut self.bytes, frame);
        }
        self.bytes.push(b'\n');
    }

    /// Appends the tail.
    pub fn tail(&mut self, mappings: &[Mapping]) {
        let mut text = String::from("\nMAPPED_LIBRARIES:\n");
        let with_build_id = |m: &&Mapping| m.is_executable() && !m.build_id.is_empty();
        for mapping in mappings.iter().filter(with_build_id) {
            mapping.write_short(&mut text);
        }
        for mapping in mappings {
            mapping.write_long(&mut text);
        }
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Appends a decimal number, padded with spaces to `width`. It writes what `{number:width$}`
/// writes, in a third of the time.
fn push_number(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b' '; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let from = first.min(digits.len() - width);
    out.extend_from_slice(&digits[from..]);
}

/// Appends what ` 0x{address:08x}` writes, in a tenth of the time. A large dump has millions of
/// addresses, and the end of a program waits for it.
#[inline]
fn push_address(out: &mut Vec<u8>, address: u64) {
    let digits = (16 - address.leading_zeros() as usize / 4).max(8);
    // All sixteen digits are written, the first significant one first; then the rest is removed.
    let from_the_first = address << (64 - 4 * digits);
    let mut text = [0u8; 19];
    text[..3].copy_from_slice(b" 0x");
    text[3..11].copy_from_slice(&hex_digits((from_the_first >> 32) as u32));
    text[11..].copy_from_slice(&hex_digits(from_the_first as u32));
    let len = out.len() + 3 + digits;
    out.extend_from_slice(&text);
    out.truncate(len);
}

/// Returns the eight digits of a number, computed in parallel: each half byte becomes a byte, then
/// a character.
#[inline]
fn hex_digits(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut halves = u64::from(number);
    halves = (halves | halves << 16) & 0x0000_ffff_0000_ffff;
    halves = (halves | halves << 8) & 0x00ff_00ff_00ff_00ff;
    halves = (halves | halves << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // A half byte of ten or more has bit 4 set after six is added; `a` is 39 above the character
    // after `9`.
    let letters = (halves + 6 * ONES) >> 4 & ONES;
    (halves + u64::from(b'0') * ONES + 39 * letters).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(address: u64) -> String {
        let mut out = b"@".to_vec();
        push_address(&mut out, address);
        String::from_utf8(out).unwrap()
    }

    fn number(number: u64, width: usize) -> String {
        let mut out = Vec::new();
        push_number(&mut out, number, width);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn addresses_at_their_borders() {
        assert_eq!(address(0), "@ 0x00000000");
        assert_eq!(address(0xffff_ffff), "@ 0xffffffff");
        assert_eq!(address(0x1_0000_0000), "@ 0x100000000");
        assert_eq!(address(0x0123_4567_89ab_cdef), "@ 0x123456789abcdef");
        assert_eq!(address(u64::MAX), "@ 0xffffffffffffffff");
    }

    #[test]
    fn numbers_at_their_borders() {
        assert_eq!(number(0, 6), "     0");
        assert_eq!(number(999_999, 6), "999999");
        assert_eq!(number(1_000_000, 6), "1000000");
        assert_eq!(number(u64::MAX, 8), "18446744073709551615");
    }

    proptest! {
        #[test]
        fn they_are_what_the_library_writes(any in any::<u64>(), shift in 0u32..64, width in 0usize..=20) {
            let n = any >> shift;
            prop_assert_eq!(address(n), format!("@ 0x{n:08x}"));
            prop_assert_eq!(number(n, width), format!("{n:width$}"));
        }
    }

    fn numbers(
        [
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
        ]: [u64; 4],
    ) -> DumpNumbers {
        DumpNumbers {
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
        }
    }

    fn head(sum: &DumpNumbers) -> String {
        let mut text = DumpText::default();
        text.head(Sampling::Unsampled, sum, &[]);
        String::from_utf8(text.into_bytes()).unwrap()
    }

    #[test]
    fn the_head_is_the_sum_of_what_the_lines_say() {
        let mut sum = DumpNumbers::default();
        sum.add_line(&numbers([0, 0, 3, 30]));
        sum.add_line(&numbers([0, 40, 0, 50]));
        sum.add_line(&numbers([2, 0, 2, 0]));
        assert_eq!(sum, numbers([3, 40, 6, 80]));
        assert_eq!(
            head(&sum),
            "heap profile:      3:       40 [     6:       80] @ heapprofile\n"
        );
        // Numbers that no reader accepts stay at the largest that all accept.
        sum.add_line(&numbers([u64::MAX; 4]));
        assert_eq!(sum, numbers([MAX_NUMBER; 4]));
        sum.add_line(&numbers([1; 4]));
        assert_eq!(sum, numbers([MAX_NUMBER; 4]));
    }

    #[test]
    fn a_line_says_no_more_than_readers_can_read() {
        let mut text = DumpText::default();
        text.line(&numbers([u64::MAX; 4]), [1]);
        let most = MAX_NUMBER;
        let expected = format!("{most}: {most} [{most}: {most}] @ 0x00000001\n");
        assert_eq!(String::from_utf8_lossy(text.bytes()), expected);
        text.clear();
        text.line(&numbers([0; 4]), []);
        assert_eq!(
            text.into_bytes(),
            b"     0:        0 [     0:        0] @\n"
        );
    }

    #[test]
    fn the_head_differs_by_a_byte_also_where_there_is_no_larger_number() {
        let (most, less) = (MAX_NUMBER, MAX_NUMBER - 1);
        let bytes = |bytes| head(&numbers([1, bytes, 1, bytes]));
        assert!(bytes(most).contains(&format!(" {most} [     1: {less}] @")));
        assert!(bytes(less).contains(&format!(" {less} [     1: {most}] @")));
        assert!(bytes(7).contains("        7 [     1:        8] @"));
    }
}
