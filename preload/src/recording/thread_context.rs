//! Thread context: the span of work that OpenTelemetry says a thread is in (OTEP 4947).
//!
//! A program that publishes contexts has a thread-local pointer of a known name. It points to the
//! record of the thread's context, or is null:
//!
//! ```text
//!   trace id: 16 │ span id: 8 │ valid: 1 │ flags: 1 │ length: 2 │ attributes: index, length, text
//! ```
//!
//! Only the thread itself changes the pointer and the record, so a hook in that thread reads them
//! whole. A signal handler may find a record that is being changed; its `valid` is then not 1.
//!
//! Danger: the pointer and the record are the program's, and the pointer may be wild. Every page of
//! the record is checked before it is read. A fault remains possible if another thread unmaps the
//! page between check and load.
//!
//! The variable is found in the modules of the start, and in a library that the program opens by a
//! path. Not here: a library that is opened by its name alone, which is found in the next call of
//! `dlopen` with a path; in a libc that does not tell where it keeps such variables
//! (`os/thread_locals`), any library that is opened.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::os::link_map;
use crate::os::sys::{self, PAGE};
use crate::os::thread_locals::{self, TlsBlock};

/// Words of a context in a stack lane: lengths, the two ids, attributes.
pub(crate) const WORDS: usize = ATTRIBUTES_AT + MOST_ATTRIBUTE_BYTES.div_ceil(8);
/// Words before the attributes.
const ATTRIBUTES_AT: usize = 4;
/// Most bytes of attributes that are read; the specification recommends no more.
const MOST_ATTRIBUTE_BYTES: usize = 612;

/// Bytes of a record before its attributes, and the places of its fields.
const HEAD: usize = 28;
const SPAN_AT: usize = 16;
const VALID_AT: usize = 24;
const LENGTH_AT: usize = 26;

/// Where the pointer is; null: the program has none. Never freed, because a thread may be reading
/// it.
static PLACE: AtomicPtr<PointerLocation> = AtomicPtr::new(std::ptr::null_mut());
/// The place that was found last. While any library is closed, [`PLACE`] is null; if the pointer is
/// found at the same place again, this one serves again. So a place is made only when the library
/// with the pointer is opened.
static FOUND: AtomicPtr<PointerLocation> = AtomicPtr::new(std::ptr::null_mut());

/// The place of the pointer in each thread.
#[derive(PartialEq)]
struct PointerLocation {
    block: TlsBlock,
    /// Offset of the pointer in the block.
    offset: u64,
}

/// Looks for the pointer in all modules. Returns true if the program has it. Called at boot
/// (`at_start`), and after the program has opened or closed a library, under the loader's lock.
pub(crate) fn look(at_start: bool) -> bool {
    let found = link_map::modules().find_map(|module| {
        let offset = module.thread_local(c"otel_thread_ctx_v1")?;
        // An attached library does not learn when a module is closed. Blocks at one distance stay
        // readable.
        let is_kept = |block: &TlsBlock| !cfg!(feature = "attach") || block.is_at_one_distance();
        let block = thread_locals::block_of(module, at_start).filter(is_kept)?;
        Some(PointerLocation { block, offset })
    });
    let Some(found) = found else {
        PLACE.store(std::ptr::null_mut(), Ordering::Release);
        return false;
    };
    let mut place = FOUND.load(Ordering::Acquire);
    // SAFETY: null, or a place that is never freed.
    if unsafe { place.as_ref() } != Some(&found) {
        place = Box::into_raw(Box::new(found));
        FOUND.store(place, Ordering::Release);
    }
    PLACE.store(place, Ordering::Release);
    true
}

/// Before the program closes a library: forgets the pointer, whose memory may go with it. Returns
/// true if there was one.
pub(crate) fn forget() -> bool {
    !PLACE.swap(std::ptr::null_mut(), Ordering::AcqRel).is_null()
}

/// Reads the context of this thread into `words`, which are zero. Returns the number of words; 0:
/// there is none, and the words are still zero.
pub(crate) fn read(words: &mut [u64; WORDS]) -> usize {
    // SAFETY: null, or a place that is never freed.
    let Some(place) = (unsafe { PLACE.load(Ordering::Acquire).as_ref() }) else {
        return 0;
    };
    let Some(block) = place.block.of_this_thread() else {
        return 0;
    };
    // SAFETY: the module's block in this thread, which has the pointer at this offset. The library
    // that it belongs to is loaded: before it is closed, the place is forgotten. Volatile: this
    // thread's other code stores it.
    let record = unsafe { (block.wrapping_add(place.offset) as *const u64).read_volatile() };
    if record == 0 || !is_readable(record, HEAD) {
        return 0;
    }
    let mut head = [0; HEAD];
    copy(record, &mut head);
    let [low, high] = [head[LENGTH_AT], head[LENGTH_AT + 1]];
    let length = usize::from(u16::from_le_bytes([low, high])).min(MOST_ATTRIBUTE_BYTES);
    if head[VALID_AT] != 1 || !is_readable(record, HEAD + length) {
        return 0;
    }
    words[0] = length as u64;
    for (word, bytes) in words[1..].iter_mut().zip(head[..VALID_AT].chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_le_bytes);
    }
    let mut from = record + HEAD as u64;
    let mut left = length;
    for word in &mut words[ATTRIBUTES_AT..ATTRIBUTES_AT + length.div_ceil(8)] {
        let mut bytes = [0; 8];
        let len = left.min(8);
        copy(from, &mut bytes[..len]);
        *word = u64::from_le_bytes(bytes);
        (from, left) = (from + 8, left - len);
    }
    ATTRIBUTES_AT + length.div_ceil(8)
}

/// Returns true if all pages of so many bytes can be read.
fn is_readable(address: u64, len: usize) -> bool {
    let Some(end) = address.checked_add(len as u64) else {
        return false;
    };
    let mut pages = (address & !(PAGE - 1)..end).step_by(PAGE as usize);
    pages.all(sys::is_readable)
}

/// Copies bytes of a record whose pages have just been readable.
fn copy(from: u64, to: &mut [u8]) {
    // SAFETY: the caller has checked the pages; the module's text describes the remaining risk. The
    // two do not overlap: `to` is a variable of the caller.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
}

/// A context that came out of a stack lane.
pub(crate) struct Context {
    /// Hexadecimal digits; `None` without a span.
    pub(crate) ids: Option<(String, String)>,
    /// Indices of keys, with texts.
    pub(crate) attributes: Vec<(u8, String)>,
}

impl Context {
    /// Returns the context from its words. For the writer.
    pub(crate) fn of(words: &[u64]) -> Option<Context> {
        let (&length, rest) = words.split_first()?;
        let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (ids, attributes) = bytes.split_at_checked(VALID_AT)?;
        let mut attributes = attributes.get(..length as usize)?;
        let digits = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (trace, span) = ids.split_at(SPAN_AT);
        let is_set = trace.iter().chain(span).any(|&byte| byte != 0);
        let mut context = Context {
            ids: is_set.then(|| (digits(trace), digits(span))),
            attributes: Vec::new(),
        };
        while let [key, len, rest @ ..] = attributes {
            // An entry that is cut ends the list.
            let Some((text, rest)) = rest.split_at_checked(usize::from(*len)) else {
                break;
            };
            let text = String::from_utf8_lossy(text).into_owned();
            context.attributes.push((*key, text));
            attributes = rest;
        }
        Some(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words of a record, as `read` makes them.
    fn words(ids: [u8; 24], attributes: &[u8]) -> Vec<u64> {
        let mut bytes = [&ids[..], attributes].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let words = bytes.chunks_exact(8).map(word);
        std::iter::once(attributes.len() as u64)
            .chain(words)
            .collect()
    }

    #[test]
    fn a_context_comes_back_from_its_words() {
        let mut ids = [0; 24];
        (ids[0], ids[23]) = (0xab, 0x01);
        let context = Context::of(&words(ids, b"\x00\x02ab\x07\x00\x00\x01c")).unwrap();
        let (trace, span) = context.ids.unwrap();
        assert_eq!(trace, format!("ab{}", "0".repeat(30)));
        assert_eq!(span, "0000000000000001");
        let expected = [(0, "ab"), (7, ""), (0, "c")].map(|(key, text)| (key, text.to_owned()));
        assert_eq!(context.attributes, expected);
        assert!(Context::of(&words([0; 24], b"")).unwrap().ids.is_none());
    }

    #[test]
    fn what_is_cut_ends_the_attributes() {
        let context = Context::of(&words([0; 24], b"\x01\x01a\x02\x09b")).unwrap();
        assert_eq!(context.attributes, [(1, "a".to_owned())]);
        assert!(Context::of(&[]).is_none() && Context::of(&[0, 1]).is_none());
        // A length beyond the words.
        assert!(Context::of(&[9, 0, 0, 0, 0]).is_none());
    }
}
