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
//! Not here: a library with the symbol that comes by dlopen. A thread may have no memory for its
//! variables yet, and the loader would allocate the memory.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arch::thread_block::thread_pointer;
use crate::os::{link_map, sys};

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

const PAGE: u64 = 4096;

/// Distance from the thread pointer to the pointer; 0: the program has none.
static DISTANCE: AtomicU64 = AtomicU64::new(0);

/// At boot: finds the pointer. Returns true if there is one.
pub(crate) fn prepare() -> bool {
    let found = link_map::modules().find_map(|module| {
        let offset = module.thread_local(c"otel_thread_ctx_v1")?;
        Some((module.address(0), offset))
    });
    let Some((bias, offset)) = found else {
        return false;
    };
    let mut block = Block { bias, address: 0 };
    // SAFETY: the callback's data is the block above, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut block).cast()) };
    if cfg!(feature = "attach") && !is_static(block.address) {
        return false;
    }
    if block.address != 0 {
        let address = block.address.wrapping_add(offset);
        // Modules of the start have their blocks at one distance in every thread.
        DISTANCE.store(
            address.wrapping_sub(thread_pointer() as u64),
            Ordering::Relaxed,
        );
    }
    block.address != 0
}

/// Returns true if that thread-local block of this thread, which libc has made, is at one distance
/// in every thread. Between the frames of the thread and its pointer, there are no other blocks.
fn is_static(block: u64) -> bool {
    let frame = 0u8;
    (&raw const frame as u64..thread_pointer() as u64).contains(&block)
}

/// The thread-local block of a module in this thread.
struct Block {
    bias: u64,
    address: u64,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes an info that is valid for the call, and returns our own block.
    let (info, block) = unsafe { (&*info, &mut *data.cast::<Block>()) };
    if info.dlpi_addr == block.bias {
        block.address = info.dlpi_tls_data as u64;
    }
    0
}

/// Reads the context of this thread into `words`, which are zero. Returns the number of words; 0:
/// there is none, and the words are still zero.
pub(crate) fn read(words: &mut [u64; WORDS]) -> usize {
    let distance = DISTANCE.load(Ordering::Relaxed);
    if distance == 0 {
        return 0;
    }
    let place = thread_pointer().wrapping_add(distance as usize);
    // SAFETY: the thread-local block of a module that is never unloaded has the pointer at this
    // distance in every thread. Volatile: this thread's other code stores it.
    let record = unsafe { place.cast::<u64>().read_volatile() };
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
