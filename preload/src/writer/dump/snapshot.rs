//! A snapshot: what a dump is to say, as of one moment, before it is text.
//!
//! Numbers are copied and stacks are named, 40 bytes a line; the text, which may be thirty times that, is made
//! piece by piece and never there as a whole. So a large dump takes little memory, and can be left off between any two
//! pieces.

use std::cmp::Reverse;

use heapprof_core::{Ledger, Row};
use heapprof_format::{DumpNumbers, DumpText, Mapping, Module, Sampling};

use crate::os::procfs;
use crate::writer::kept_stacks::KeptStack;

/// What a dump is made of.
pub(crate) struct Context<'a> {
    pub(crate) ledger: &'a Ledger,
    /// By number.
    pub(crate) stacks: &'a [Option<KeptStack>],
    pub(crate) modules: &'a [Module],
    /// Modules that were unloaded, in that order.
    pub(crate) gone: &'a [Module],
    pub(crate) comments: Vec<String>,
}

/// So many lines are sorted, the largest in use first, for people who look at the text. No reader needs an order, and to
/// sort a million takes as long as to write them.
const SORTED: usize = 10_000;
/// Between two questions whether to go on, rows: about a millisecond.
const ROWS_A_LOOK: usize = 16 << 10;
/// A piece of text is about that long: small enough to stay in a processor's cache, large enough that opening the file for
/// each costs nothing.
const PIECE_BYTES: usize = 256 << 10;
/// What a line takes besides its addresses, and what an address takes, in bytes, mostly.
const LINE_BYTES: usize = 48;
const ADDRESS_BYTES: usize = 15;

/// Bytes of text that so many lines take, of stacks with so many frames together, nearly.
pub(crate) fn expected_bytes(lines: usize, stacks: usize, frames: u64) -> u64 {
    let lines = lines as u64;
    let addresses = u128::from(lines) * u128::from(frames) / (stacks.max(1) as u128);
    lines * LINE_BYTES as u64 + addresses as u64 * ADDRESS_BYTES as u64
}

struct Line {
    numbers: DumpNumbers,
    stack: u32,
}

const _: () = assert!(size_of::<Line>() == 40);

/// See the module's text.
pub(crate) struct Snapshot {
    comments: Vec<String>,
    sum: DumpNumbers,
    lines: Vec<Line>,
    mappings: Vec<Mapping>,
    /// What the text will take, nearly, in bytes.
    pub(crate) text_bytes: usize,
    /// The piece that was made last.
    text: DumpText,
    progress: Progress,
}

/// What the next piece begins with.
enum Progress {
    Head,
    Line(usize),
    Nothing,
}

impl Snapshot {
    /// Takes one. `None` when `goes_on` said no, which is asked now and then.
    pub(crate) fn take(
        why: &str,
        context: Context<'_>,
        goes_on: impl Fn() -> bool,
    ) -> Option<Snapshot> {
        let mut comments = context.comments;
        comments.push(format!("reason: {why}"));
        let mut snapshot = Snapshot {
            comments,
            sum: DumpNumbers::default(),
            lines: Vec::new(),
            mappings: Vec::new(),
            text_bytes: 0,
            text: DumpText::default(),
            progress: Progress::Head,
        };
        let mut rows = context.ledger.rows();
        snapshot.lines.reserve(rows.len());
        while rows.len() > 0 {
            snapshot.add(rows.by_ref().take(ROWS_A_LOOK), context.stacks);
            if !goes_on() {
                return None;
            }
        }
        for line in &snapshot.lines {
            snapshot.sum.add_line(&line.numbers);
        }
        largest_first(&mut snapshot.lines);
        snapshot.mappings = mappings(context.modules, context.gone);
        Some(snapshot)
    }

    fn add(&mut self, rows: impl Iterator<Item = Row>, stacks: &[Option<KeptStack>]) {
        for row in rows {
            let Some(stack) = kept(stacks, row.stack) else {
                continue; // its frames were lost
            };
            self.text_bytes += LINE_BYTES + ADDRESS_BYTES * stack.frames.len();
            self.lines.push(Line {
                numbers: numbers(&row),
                stack: row.stack,
            });
        }
    }

    /// The next piece of the text; `None`: there is no more. `stacks` are those of [`take`](Self::take), more may have
    /// been added.
    pub(crate) fn piece(&mut self, stacks: &[Option<KeptStack>]) -> Option<&[u8]> {
        let text = &mut self.text;
        text.clear();
        let first = match self.progress {
            Progress::Head => {
                text.head(Sampling::Unsampled, &self.sum, &self.comments);
                0
            }
            Progress::Line(first) => first,
            Progress::Nothing => return None,
        };
        for (line, next) in self.lines[first..].iter().zip(first + 1..) {
            let Some(stack) = kept(stacks, line.stack) else {
                continue;
            };
            if stack.interrupted.is_empty() {
                text.line(&line.numbers, stack.frames.iter().copied());
            } else {
                text.line(&line.numbers, stack.written());
            }
            if text.bytes().len() >= PIECE_BYTES {
                self.progress = Progress::Line(next);
                return Some(text.bytes());
            }
        }
        text.tail(&self.mappings);
        self.progress = Progress::Nothing;
        Some(text.bytes())
    }
}

/// The stack of that number.
fn kept(stacks: &[Option<KeptStack>], number: u32) -> Option<&KeptStack> {
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

/// Puts the largest to the front, in order. The rest stays as it was, which is in the order in which stacks lie in
/// memory.
fn largest_first(lines: &mut [Line]) {
    let mut largest = lines.len();
    if lines.len() > SORTED {
        let mut sizes: Vec<u64> = lines.iter().map(|line| line.numbers.in_use_bytes).collect();
        let (_, &mut least, _) = sizes.select_nth_unstable_by_key(SORTED, |&size| Reverse(size));
        let is_large = |line: &Line| line.numbers.in_use_bytes > least;
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

/// What is mapped now, with the build-ids that we know, and what was mapped where nothing is now: blocks
/// outlive the plug-ins that allocated them.
fn mappings(modules: &[Module], gone: &[Module]) -> Vec<Mapping> {
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
    for mapping in gone.iter().rev().flat_map(Mapping::of_module) {
        let free = |other: &Mapping| mapping.end <= other.start || other.end <= mapping.start;
        if mappings.iter().all(free) {
            mappings.push(mapping);
        }
    }
    mappings
}
