//! Fields: numbers, times, texts and lists in a body, written and read side by side.
//!
//! A field that is claimed and not there is damage: its reader returns `None`. A length or a count
//! takes no memory before the bytes behind it are there.

use crate::record::{MAX_LABELS, MAX_STACK_FRAMES};
use crate::varint::{put, take, unzigzag, zigzag};

/// Nanoseconds in the log's unit of time.
pub const TIME_UNIT_NS: u64 = 1000;

pub(crate) fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first)
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(take(bytes)?).ok()
}

pub(crate) fn put_time(out: &mut Vec<u8>, time_ns: u64) {
    put(out, time_ns / TIME_UNIT_NS);
}

pub(crate) fn take_time(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes)?.checked_mul(TIME_UNIT_NS)
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let taken = bytes.get(..len)?;
    *bytes = &bytes[len..];
    Some(taken)
}

/// The longest text that is kept whole, in bytes: no path is longer.
pub(crate) const LONGEST_TEXT: usize = 4096;

/// Takes a string. Names come from the profiled system and need not be UTF-8: invalid bytes become
/// U+FFFD.
pub(crate) fn take_string(bytes: &mut &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(take_bytes(bytes)?);
    if text.len() <= LONGEST_TEXT {
        return Some(text.into_owned());
    }
    let mut end = LONGEST_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Some(text[..end].to_owned() + "…")
}

/// Most words of a command line that are kept: nobody reads more, and an empty word takes a byte in
/// the file and a string in memory.
pub(crate) const MOST_WORDS: u64 = 10_000;

/// Returns the words of a command line; if there are too many, the first ones and `…`.
pub(crate) fn take_words(bytes: &mut &[u8]) -> Option<Vec<String>> {
    let len = take(bytes)?;
    if len > bytes.len() as u64 {
        return None;
    }
    let mut words = Vec::new();
    for number in 0..len {
        if number < MOST_WORDS {
            words.push(take_string(bytes)?);
        } else {
            take_bytes(bytes)?;
        }
    }
    if len > MOST_WORDS {
        words.push("…".into());
    }
    Some(words)
}

pub(crate) fn put_list<T>(out: &mut Vec<u8>, items: &[T], put_item: impl Fn(&mut Vec<u8>, &T)) {
    put(out, items.len() as u64);
    for item in items {
        put_item(out, item);
    }
}

pub(crate) fn take_list<T>(
    bytes: &mut &[u8],
    take_item: impl Fn(&mut &[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    let len = take(bytes)?;
    // An item has at least one byte. A count above the remaining bytes is damage, and must not
    // become an allocation of that size.
    if len > bytes.len() as u64 {
        return None;
    }
    (0..len).map(|_| take_item(bytes)).collect()
}

pub(crate) fn put_labels(out: &mut Vec<u8>, labels: &[(String, String)]) {
    put_list(out, labels, |out, (key, value)| {
        put_bytes(out, key.as_bytes());
        put_bytes(out, value.as_bytes());
    });
}

/// Takes keys and values: as many as a stack has at most.
pub(crate) fn take_labels(bytes: &mut &[u8]) -> Option<Vec<(String, String)>> {
    let take_label = |bytes: &mut &[u8]| Some((take_string(bytes)?, take_string(bytes)?));
    let (labels, _) = take_first(bytes, MAX_LABELS, take_label)?;
    Some(labels)
}

/// Appends addresses as deltas: neighbours on a stack mostly lie in one module, three bytes apart.
pub(crate) fn put_addresses(out: &mut Vec<u8>, addresses: &[u64]) {
    put(out, addresses.len() as u64);
    let mut previous = 0u64;
    for &address in addresses {
        put(out, zigzag(address.wrapping_sub(previous) as i64));
        previous = address;
    }
}

/// The addresses, and whether the stack has more.
pub(crate) fn take_addresses(bytes: &mut &[u8]) -> Option<(Vec<u64>, bool)> {
    let mut previous = 0u64;
    take_first(bytes, MAX_STACK_FRAMES, |bytes| {
        previous = previous.wrapping_add(unzigzag(take(bytes)?) as u64);
        Some(previous)
    })
}

/// The first items of a list, at most `most`, and whether it has more.
pub(crate) fn take_first<T>(
    bytes: &mut &[u8],
    most: usize,
    mut take_item: impl FnMut(&mut &[u8]) -> Option<T>,
) -> Option<(Vec<T>, bool)> {
    let mut first = Vec::new();
    let len = take(bytes)?;
    for _ in 0..len {
        let item = take_item(bytes)?;
        if first.len() < most {
            first.push(item);
        }
    }
    Some((first, len > most as u64))
}
