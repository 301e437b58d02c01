//! Dump snapshot: the content of a dump at one moment, before it is text.
//!
//! Glossary: dump snapshot.
//!
//! The numbers are copied, and stacks are named by number. The text, which is many times as long,
//! is made in chunks and never exists as a whole. So a large dump takes little memory, and can
//! be abandoned between any two chunks.

use std::cmp::Reverse;

use heapprof_core::{Ledger, Row};
use heapprof_format::{DumpNumbers, DumpText, Mapping, Module, Sampling};

use crate::os::procfs;
use crate::writer::kept_stacks::KeptStack;

/// The parts that a dump is made of.
pub(crate) struct DumpInputs<'a> {
    pub(crate) ledger: &'a Ledger,
    /// The stacks, by number.
    pub(crate) stacks: &'a [Option<KeptStack>],
    pub(crate) modules: &'a [Module],
    /// Modules that were unloaded, in that order.
    pub(crate) unloaded: &'a [Module],
    pub(crate) comments: Vec<String>,
}

/// How many lines are sorted, the largest in use first, for people who read the text. No reader
/// needs an order, and sorting all lines could take as long as writing them.
const MAX_SORTED: usize = 10_000;
/// Rows between two checks if the snapshot is still wanted.
const ROWS_PER_CHECK: usize = 16 << 10;
/// The approximate length of a chunk of text: small enough for a processor's cache, and large
/// enough that opening the file for each chunk costs little.
const CHUNK_BYTES: usize = 256 << 10;
/// The typical bytes of a line besides its addresses, and of an address.
const LINE_BYTES: usize = 48;
const ADDRESS_BYTES: usize = 15;

/// Estimates the bytes of text of so many lines, of stacks with so many frames together.
pub(crate) fn expected_bytes(lines: usize, stacks: usize, frames: u64) -> u64 {
    let lines = lines as u64;
    let addresses = u128::from(lines) * u128::from(frames) / (stacks.max(1) as u128);
    lines * LINE_BYTES as u64 + addresses as u64 * ADDRESS_BYTES as u64
}

struct DumpLine {
    numbers: DumpNumbers,
    stack: u32,
}

const _: () = assert!(size_of::<DumpLine>() == 40);

/// The content of one dump. See the module's text.
pub(crate) struct DumpSnapshot {
    comments: Vec<String>,
    sum: DumpNumbers,
    lines: Vec<DumpLine>,
    mappings: Vec<Mapping>,
    /// The approximate bytes of the text.
    pub(crate) text_bytes: usize,
    /// The last chunk.
    text: DumpText,
    progress: Progress,
}

/// The beginning of the next chunk.
enum Progress {
    Head,
    Line(usize),
    Done,
}

impl DumpSnapshot {
    /// Takes a snapshot. `None` if `may_continue`, which is called periodically, returned false.
    pub(crate) fn take(
        why: &str,
        inputs: DumpInputs<'_>,
        may_continue: impl Fn() -> bool,
    ) -> Option<DumpSnapshot> {
        let mut comments = inputs.comments;
        comments.push(format!("reason: {why}"));
        let mut snapshot = DumpSnapshot {
            comments,
            sum: DumpNumbers::default(),
            lines: Vec::new(),
            mappings: Vec::new(),
            text_bytes: 0,
            text: DumpText::default(),
            progress: Progress::Head,
        };
        let mut rows = inputs.ledger.rows();
        snapshot.lines.reserve(rows.len());
        while rows.len() > 0 {
            snapshot.add(rows.by_ref().take(ROWS_PER_CHECK), inputs.stacks);
            if !may_continue() {
                return None;
            }
        }
        for line in &snapshot.lines {
            snapshot.sum.add_line(&line.numbers);
        }
        largest_first(&mut snapshot.lines);
        snapshot.mappings = mappings(inputs.modules, inputs.unloaded);
        Some(snapshot)
    }

    fn add(&mut self, rows: impl Iterator<Item = Row>, stacks: &[Option<KeptStack>]) {
        for row in rows {
            let Some(stack) = stack_of(stacks, row.stack) else {
                continue; // its frames were lost
            };
            self.text_bytes += LINE_BYTES + ADDRESS_BYTES * stack.frames.len();
            self.lines.push(DumpLine {
                numbers: numbers(&row),
                stack: row.stack,
            });
        }
    }

    /// Returns the next chunk of the text; `None` after the last one. `stacks` are those of
    /// [`take`](Self::take), and may have grown.
    pub(crate) fn next_chunk(&mut self, stacks: &[Option<KeptStack>]) -> Option<&[u8]> {
        let text = &mut self.text;
        text.clear();
        let first = match self.progress {
            Progress::Head => {
                text.head(Sampling::Unsampled, &self.sum, &self.comments);
                0
            }
            Progress::Line(first) => first,
            Progress::Done => return None,
        };
        for (line, next) in self.lines[first..].iter().zip(first + 1..) {
            let Some(stack) = stack_of(stacks, line.stack) else {
                continue;
            };
            if stack.interrupted.is_empty() {
                text.line(&line.numbers, stack.frames.iter().copied());
            } else {
                text.line(&line.numbers, stack.written());
            }
            if text.bytes().len() >= CHUNK_BYTES {
                self.progress = Progress::Line(next);
                return Some(text.bytes());
            }
        }
        text.tail(&self.mappings);
        self.progress = Progress::Done;
        Some(text.bytes())
    }
}

/// Returns the stack of that number.
fn stack_of(stacks: &[Option<KeptStack>], number: u32) -> Option<&KeptStack> {
    stacks.get(number as usize)?.as_ref()
}

fn numbers(row: &Row) -> DumpNumbers {
    let totals = &row.totals;
    DumpNumbers {
        in_use_objects: totals.in_use.objects(),
        in_use_bytes: totals.in_use.bytes(),
        allocated_objects: totals.allocated.objects(),
        allocated_bytes: totals.allocated.bytes(),
    }
}

/// Sorts the largest lines to the front. The others keep their order, in which the stacks lie in
/// memory.
fn largest_first(lines: &mut [DumpLine]) {
    let mut largest = lines.len();
    if lines.len() > MAX_SORTED {
        let mut sizes: Vec<u64> = lines.iter().map(|line| line.numbers.in_use_bytes).collect();
        let (_, &mut least, _) =
            sizes.select_nth_unstable_by_key(MAX_SORTED, |&size| Reverse(size));
        let is_large = |line: &DumpLine| line.numbers.in_use_bytes > least;
        largest = lines.iter().filter(|line| is_large(line)).count();
        if largest > 0 {
            lines.sort_by_key(|line| !is_large(line));
        }
    }
    lines[..largest].sort_unstable_by_key(|line| {
        let numbers = &line.numbers;
        (
            Reverse((numbers.in_use_bytes, numbers.allocated_bytes)),
            (line.stack, numbers.allocated_objects),
        )
    });
}

/// Returns the present mappings, with the build ids that we know, and former mappings where there
/// is no other now: blocks outlive the plug-ins that allocated them.
fn mappings(modules: &[Module], unloaded: &[Module]) -> Vec<Mapping> {
    let maps = procfs::of_process("maps");
    let mut mappings: Vec<Mapping> = String::from_utf8_lossy(&maps)
        .lines()
        .filter_map(Mapping::parse)
        .filter(|mapping| !mapping.path.is_empty())
        .collect();
    for mapping in &mut mappings {
        let module = modules.iter().rev().find(|module| {
            module
                .segments
                .iter()
                .any(|s| s.start < mapping.end && mapping.start < s.start + s.len)
        });
        if let Some(module) = module {
            mapping.build_id.clone_from(&module.build_id);
        }
    }
    for mapping in unloaded.iter().rev().flat_map(Mapping::of_module) {
        let free = |other: &Mapping| mapping.end <= other.start || other.end <= mapping.start;
        if mappings.iter().all(free) {
            mappings.push(mapping);
        }
    }
    mappings
}
