//! Labels: what the program says of the work that a thread does, as keys and values.
//!
//! Model: a label set is a node of a tree. Its parent is the set without the label that was pushed
//! last. A thread has a node, so a push and a pop each change one word of the thread:
//!
//! ```text
//!            (none)
//!           ┌──┴─────────────┐
//!     tenant=acme       tenant=other
//!           │
//!    request=/index     <── a thread between two pushes and two pops
//! ```
//!
//! Nodes are never freed, so a hook reads them without a lock, and a forked child as well. Their
//! number is bounded: a key has a limited number of values, and there is a limited number of nodes.
//!
//! A thread may also be in a span of OpenTelemetry. The span's ids and attributes are labels, too
//! (`thread_context.rs`).
//!
//! The labels become part of the hash of a stack: the same frames under other labels are another
//! stack, which the writer gets with its labels once. So a sample without labels is as without
//! this file, but for one load.
//!
//! Danger: sets are reached through pointers in an array, by their numbers. A pointer is null or a
//! leaked node, because only [`child`] stores it.

mod table;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use heapprof_core::mix;
use heapprof_format::{ANY_LABEL, FOLDED_LABEL, MAX_LABELS, SPAN_ID, TRACE_ID};

use crate::os::link_map;
use crate::recording::labels::table::Table;
use crate::recording::thread_context::{self, Context};
use crate::state::thread::{self, RunningCode, Thread};
use crate::state::{counters, process};

/// Most keys.
const MOST_KEYS: usize = 256;
/// Most label sets.
const MOST_SETS: usize = 1 << 16;
/// Most labels of a set, shadowed ones included.
const MOST_DEPTH: u32 = 64;
/// Most pairs of a stack and a label set. Each pair has memory for its frames in the writer.
const MOST_LABELLED_STACKS: usize = 1 << 18;
/// Most such pairs that also have the context of a span. Spans are many, and each may be seen once.
const MOST_WITH_CONTEXT: usize = 1 << 16;
/// The key of labels whose key is empty: other programs' formats have no empty keys.
const NAMELESS: &[u8] = b"(no key)";
/// Longest key or value, in bytes; the rest is cut off.
const LONGEST: usize = 256;

/// True once a thread has had a label. Never false again.
static ARE_USED: AtomicBool = AtomicBool::new(false);
/// Most distinct values of a key; boot stores the setting.
static MOST_VALUES: AtomicU32 = AtomicU32::new(0);
static NUMBER_OF_KEYS: AtomicUsize = AtomicUsize::new(0);
static NUMBER_OF_SETS: AtomicUsize = AtomicUsize::new(0);
static NUMBER_OF_LABELLED_STACKS: AtomicUsize = AtomicUsize::new(0);
static NUMBER_WITH_CONTEXT: AtomicUsize = AtomicUsize::new(0);

static KEYS: Table<Key> = Table::new();
static LABELS: Table<Label> = Table::new();
static SETS: Table<LabelSet> = Table::new();
/// The sets by their numbers, which begin at 1.
static NUMBERED: [AtomicPtr<LabelSet>; MOST_SETS + 1] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_SETS + 1];

/// A key, with the number of its values.
struct Key {
    name: Box<[u8]>,
    values: AtomicU32,
}

/// A key with one of its values.
struct Label {
    key: &'static Key,
    value: Box<[u8]>,
    hash: u64,
}

/// A label set: a node. See the module's text.
struct LabelSet {
    number: u32,
    parent: Option<&'static LabelSet>,
    label: &'static Label,
    depth: u32,
    /// Hash of the labels that count, which is independent of their order.
    hash: u64,
    /// True if one of these labels has [`FOLDED_LABEL`] in place of its value.
    is_folded: bool,
}

/// At boot: sets the number of values that a key may have, and looks for contexts of the program.
pub(crate) fn prepare(most_values: u32) {
    MOST_VALUES.store(most_values, Ordering::Relaxed);
    look_for_contexts(true);
}

/// After the program has opened a library: looks for its contexts.
pub(crate) fn after_open() {
    let Some(entered) = thread::current().enter() else {
        return;
    };
    entered.thread.running_code.set(RunningCode::Ours);
    link_map::while_unchanged(&mut || look_for_contexts(false));
}

/// Closes a library by `close`. Its contexts may go with it, so none is read meanwhile.
pub(crate) fn around_close<R>(close: impl FnOnce() -> R) -> R {
    let had_one = thread_context::forget();
    let result = close();
    if had_one {
        after_open();
    }
    result
}

fn look_for_contexts(at_start: bool) {
    if thread_context::look(at_start) {
        ARE_USED.store(true, Ordering::Relaxed);
    }
}

/// In a forked child: no stack has been sent to its writer.
pub(crate) fn after_fork() {
    NUMBER_OF_LABELLED_STACKS.store(0, Ordering::Relaxed);
    NUMBER_WITH_CONTEXT.store(0, Ordering::Relaxed);
}

/// Returns true if a thread may have labels.
#[inline(always)]
pub(crate) fn are_used() -> bool {
    // Relaxed: a thread sees its own labels.
    ARE_USED.load(Ordering::Relaxed)
}

/// Puts a label on what this thread does from now on. `can_make`: memory may be taken.
pub(crate) fn push(thread: &Thread, key: &[u8], value: &[u8], can_make: bool) {
    let uncounted = thread.labels_beyond.get();
    let key = if key.is_empty() { NAMELESS } else { cut(key) };
    let set = match uncounted {
        0 => child(set_of(thread), key, cut(value), can_make),
        _ => None,
    };
    match set {
        Some(set) => thread.labels.set(set.number),
        // The label is not recorded. Its pop has to find that out.
        None => thread.labels_beyond.set(uncounted.saturating_add(1)),
    }
    if !are_used() {
        ARE_USED.store(true, Ordering::Relaxed);
    }
}

/// Takes the label back that this thread got last, if there is one.
pub(crate) fn pop(thread: &Thread) {
    let uncounted = thread.labels_beyond.get();
    if uncounted > 0 {
        return thread.labels_beyond.set(uncounted - 1);
    }
    if let Some(set) = set_of(thread) {
        thread.labels.set(number_of(set.parent));
    }
}

/// Returns the label set of a thread, without labels that could not be recorded.
fn set_of(thread: &Thread) -> Option<&'static LabelSet> {
    set_numbered(thread.labels.get())
}

/// Returns the set of that number; `None` for 0.
fn set_numbered(number: u32) -> Option<&'static LabelSet> {
    let place = NUMBERED.get(number as usize)?;
    // SAFETY: null, or a node that `child` stored. Nodes are never freed or changed. Acquire pairs
    // with the Release there.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// Returns the number of a set; 0 for none.
fn number_of(set: Option<&'static LabelSet>) -> u32 {
    set.map_or(0, |set| set.number)
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(LONGEST)]
}

/// Returns the set with one label more, and makes it if need be. `None`: there are too many.
fn child(
    parent: Option<&'static LabelSet>,
    key: &[u8],
    value: &[u8],
    can_make: bool,
) -> Option<&'static LabelSet> {
    let label = label(key, value, can_make)?;
    let hash = mix(label.hash, number_of(parent).into());
    let is_it = |set: &LabelSet| {
        std::ptr::eq(set.label, label) && number_of(set.parent) == number_of(parent)
    };
    let depth = parent.map_or(1, |parent| parent.depth + 1);
    let make = || {
        if !can_make || depth > MOST_DEPTH || !process::is_own() {
            return None;
        }
        let number = NUMBER_OF_SETS.fetch_add(1, Ordering::Relaxed) + 1;
        let set = LabelSet::new(parent, label, depth);
        (number <= MOST_SETS).then_some(LabelSet {
            number: number as u32,
            ..set
        })
    };
    let (set, _) = SETS.find_or_make(hash, is_it, make)?;
    // By each thread that gets the set, so that none has the number before the array has the set.
    let place = &NUMBERED[set.number as usize];
    if place.load(Ordering::Relaxed).is_null() {
        place.store(std::ptr::from_ref(set).cast_mut(), Ordering::Release);
    }
    Some(set)
}

/// Returns the label, or that of [`FOLDED_LABEL`] if the key has too many values.
fn label(key: &[u8], value: &[u8], can_make: bool) -> Option<&'static Label> {
    let key_hash = hash_of(key);
    let hash = mix(key_hash, hash_of(value));
    let is_it = |label: &Label| *label.value == *value && *label.key.name == *key;
    if let Some(label) = LABELS.find(hash, is_it) {
        return Some(label);
    }
    if !can_make || !process::is_own() {
        return None;
    }
    let make_key = || {
        let has_room = NUMBER_OF_KEYS.fetch_add(1, Ordering::Relaxed) < MOST_KEYS;
        has_room.then(|| Key {
            name: key.into(),
            values: AtomicU32::new(0),
        })
    };
    let (key, _) = KEYS.find_or_make(key_hash, |it| *it.name == *key, make_key)?;
    let make = |value: &[u8], hash| {
        let value = value.into();
        move || Some(Label { key, value, hash })
    };
    let most = MOST_VALUES.load(Ordering::Relaxed);
    if key.values.fetch_add(1, Ordering::Relaxed) < most {
        let (label, is_new) = LABELS.find_or_make(hash, is_it, make(value, hash))?;
        if !is_new {
            key.values.fetch_sub(1, Ordering::Relaxed);
        }
        return Some(label);
    }
    key.values.fetch_sub(1, Ordering::Relaxed);
    let value = FOLDED_LABEL.as_bytes();
    let hash = mix(key_hash, hash_of(value));
    let is_it = |label: &Label| *label.value == *value && std::ptr::eq(label.key, key);
    Some(LABELS.find_or_make(hash, is_it, make(value, hash))?.0)
}

impl LabelSet {
    fn new(parent: Option<&'static LabelSet>, label: &'static Label, depth: u32) -> LabelSet {
        let mut set = LabelSet {
            number: 0,
            parent,
            label,
            depth,
            hash: 0,
            is_folded: false,
        };
        // A sum is independent of the order.
        let hashes = set.labels().map(|label| mix(label.hash, 1));
        set.hash = hashes.fold(0, u64::wrapping_add);
        let is_folded = |label: &Label| *label.value == *FOLDED_LABEL.as_bytes();
        let has_folded = set.labels().any(is_folded);
        set.is_folded = has_folded;
        set
    }

    /// Returns the labels that count: of each key the one that was pushed last.
    fn labels(&self) -> impl Iterator<Item = &'static Label> + '_ {
        let chain = || {
            let mut next = Some(self);
            std::iter::from_fn(move || {
                let set = next?;
                next = set.parent;
                Some(set.label)
            })
        };
        let is_last = move |(place, label): &(usize, &'static Label)| {
            !chain()
                .take(*place)
                .any(|later| std::ptr::eq(later.key, label.key))
        };
        let labels: Vec<_> = chain().enumerate().filter(is_last).collect();
        labels.into_iter().map(|(_, label)| label)
    }
}

/// The labels of a sample, in the words of a stack lane: the number of the set, [`HAS_UNKNOWN`] or
/// 0, and the words of the thread's context if it has one.
pub(crate) struct Labels {
    words: [u64; HEAD + thread_context::WORDS],
    len: usize,
    /// The labels' part of the hash of a stack; 0 without labels.
    hash: u64,
}

const HEAD: usize = 2;
/// There are labels that could not be recorded.
const HAS_UNKNOWN: u64 = 1;

impl Labels {
    /// No labels.
    pub(crate) const NONE: Labels = Labels {
        words: [0; HEAD + thread_context::WORDS],
        len: 0,
        hash: 0,
    };

    /// Returns the thread's labels for a stack whose frames have the hash `frames`. `is_sent` tells
    /// whether the writer has a stack. If it has too many with labels, new ones have unknown
    /// labels.
    pub(crate) fn of(thread: &Thread, frames: u64, is_sent: impl Fn(u64) -> bool) -> Labels {
        let set = set_of(thread);
        let mut has_unknown = thread.labels_beyond.get() > 0;
        let mut labels = Labels::with(set, has_unknown);
        let has_context = labels.add_context();
        let is_new = |labels: &Labels| !labels.is_none() && !is_sent(labels.hash_with(frames));
        let exceeds = |number: &AtomicUsize, most| number.fetch_add(1, Ordering::Relaxed) >= most;
        if has_context && is_new(&labels) && exceeds(&NUMBER_WITH_CONTEXT, MOST_WITH_CONTEXT) {
            has_unknown = true;
            labels = Labels::with(set, has_unknown);
        }
        if is_new(&labels) && exceeds(&NUMBER_OF_LABELLED_STACKS, MOST_LABELLED_STACKS) {
            has_unknown = true;
            labels = Labels::with(None, has_unknown);
        }
        if has_unknown || set.is_some_and(|set| set.is_folded) {
            counters::FOLDED_LABELS.add(1);
        }
        labels
    }

    fn with(set: Option<&'static LabelSet>, has_unknown: bool) -> Labels {
        let mut labels = Labels::NONE;
        if set.is_some() || has_unknown {
            let unknown = u64::from(has_unknown) * HAS_UNKNOWN;
            labels.words[..HEAD].copy_from_slice(&[number_of(set).into(), unknown]);
            labels.len = HEAD;
            labels.hash = mix(set.map_or(0, |set| set.hash), unknown).max(1);
        }
        labels
    }

    /// Adds the context of this thread. Returns false if there is none.
    fn add_context(&mut self) -> bool {
        let Some(context) = self.words[HEAD..].first_chunk_mut() else {
            return false;
        };
        let len = thread_context::read(context);
        if len > 0 {
            let hash = context[..len].iter().fold(self.hash, |a, &b| mix(a, b));
            (self.len, self.hash) = (HEAD + len, hash.max(1));
        }
        len > 0
    }

    /// Returns the hash of a stack with these labels, from that of its frames. It is never 0, as
    /// that of the frames.
    #[inline(always)]
    pub(crate) fn hash_with(&self, frames: u64) -> u64 {
        match frames ^ self.hash {
            0 => frames,
            hash => hash,
        }
    }

    fn is_none(&self) -> bool {
        self.hash == 0
    }

    /// Returns the words for the stack lane.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }
}

/// Returns the labels that a stack lane had, by key. `key_of` tells the keys of a context's
/// attributes. For the writer.
pub(crate) fn from_words(
    words: &[u64],
    mut key_of: impl FnMut(u8) -> Option<String>,
) -> Vec<(String, String)> {
    let Some((&[set, unknown], context)) = words.split_first_chunk() else {
        return Vec::new();
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    if let Some(context) = Context::of(context) {
        if let Some((trace, span)) = context.ids {
            labels.extend([(TRACE_ID.to_owned(), trace), (SPAN_ID.to_owned(), span)]);
        }
        for (index, text) in context.attributes {
            if let Some(key) = key_of(index) {
                labels.insert(key, text);
            }
        }
    }
    // The program's own labels are nearer to what it does than a context.
    let set = set_numbered(set as u32);
    for label in set.into_iter().flat_map(LabelSet::labels) {
        labels.insert(text(&label.key.name), text(&label.value));
    }
    if unknown & HAS_UNKNOWN != 0 {
        labels.insert(ANY_LABEL.into(), FOLDED_LABEL.into());
    }
    labels.into_iter().take(MAX_LABELS).collect()
}

fn hash_of(text: &[u8]) -> u64 {
    let words = text.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(text.len() as u64, mix)
}
