//! The inheritance: what a forked process had in use at the fork, for its dumps.
//!
//! It is the parent's own ledger, in the child's copy of the memory: nothing is copied but the pages that
//! change. It is taken only if the parent's writer stood still during the fork (`writer/quiesce.rs`). Between its stop
//! and the fork other threads of the parent allocated and freed; the sample table knows what was left of it.
//! Each generation adds one ledger, and stacks keep the numbers of the process that met them first.
//!
//! Logs need none of this: the reader joins a child's log with its parent's. Nor is there anything to inherit where a process makes
//! its account up from its log, when it is first asked for a dump (`writer/commands.rs`): the dump then says what it lacks.

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use heapprof_core::{Ledger, NumberMap, Totals};
use heapprof_format::Module;

use crate::recording::{sampled_blocks, session};
use crate::state::counters;
use crate::writer::Writer;
use crate::writer::dump::dumps::KeptStack;

/// What one ancestor allocated and had in use.
pub(crate) struct Inherited {
    pub(crate) ledger: Ledger,
    pub(crate) stacks: Vec<Option<KeptStack>>,
}

/// Everything that was inherited, nearest ancestor last.
#[derive(Default)]
pub(crate) struct Inheritance {
    pub(crate) ledgers: Vec<Inherited>,
    /// Modules that were unloaded before the fork.
    pub(crate) gone: Vec<Module>,
    /// Whether the ledgers were compared with the sample table.
    is_compared: bool,
    /// Samples that are in a ledger and were not in the table when this process looked: freed by other threads
    /// of the parent between its writer's stop and the fork, unless this process says that it was it.
    doubtful: NumberMap<u64, ()>,
    /// Whether something is missing, because the parent's writer was at work during the fork.
    pub(crate) incomplete: bool,
}

/// Whether there is anything to inherit.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Will {
    /// This process was not forked, or nothing had been sampled.
    Nothing = 0,
    /// The parent's writer stood still.
    Whole = 1,
    /// It did not, or its parent's did not.
    Lost = 2,
}

/// The writer of this process, or in a forked process that has none yet, its parent's.
static WRITER: AtomicPtr<Writer> = AtomicPtr::new(std::ptr::null_mut());
static WILL: AtomicU8 = AtomicU8::new(Will::Nothing as u8);

/// Notes the writer of this process, which will not move or go away.
pub(crate) fn remember(writer: *mut Writer) {
    WRITER.store(writer, Ordering::Release);
}

/// In a forked child whose parent had a session. `held`: its writer stood still.
pub(crate) fn after_fork(held: bool) {
    let will = if held { Will::Whole } else { Will::Lost };
    WILL.store(will as u8, Ordering::Release);
}

/// Whether this process was forked and has not taken over what was in use then: its account is without it.
pub(crate) fn was_left() -> bool {
    WILL.load(Ordering::Acquire) != Will::Nothing as u8
}

/// Takes what was inherited. Once: by the child's own writer, before it is remembered.
pub(crate) fn take() -> Inheritance {
    let will = WILL.swap(Will::Nothing as u8, Ordering::AcqRel);
    let parents = WRITER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if will == Will::Lost as u8 {
        return Inheritance {
            incomplete: true,
            ..Inheritance::default()
        };
    }
    if will != Will::Whole as u8 || parents.is_null() {
        return Inheritance::default();
    }
    // SAFETY: the parent's writer, which was leaked and stood still while this process was made, so its
    // fields are whole; its thread is not in this process, and the swap made this thread the
    // only one that reaches it.
    let mut all = unsafe { &mut *parents }.bequeath();
    all.is_compared = false;
    for inherited in &mut all.ledgers {
        inherited.ledger.forget_what_was_freed();
    }
    all
}

/// Comparing takes so long for each block, in nanoseconds: two lookups far apart.
const COMPARING_NS: u64 = 100;
/// Between two questions whether to go on, blocks.
const BLOCKS_A_LOOK: usize = 8 << 10;

impl Inheritance {
    /// Whether the sample table is still to be asked.
    pub(crate) fn is_uncompared(&self) -> bool {
        !self.is_compared && !self.ledgers.is_empty()
    }

    /// How long [`compare`](Self::compare) will take, about.
    pub(crate) fn comparing_ns(&self) -> u64 {
        if !self.is_uncompared() {
            return 0;
        }
        let blocks: usize = self.ledgers.iter().map(|one| one.ledger.live()).sum();
        blocks as u64 * COMPARING_NS
    }

    /// Looks at what the sample table says is in use, and remembers what is not there: once, before the first dump. Left
    /// off, to begin anew, when `goes_on` says no.
    pub(crate) fn compare(&mut self, goes_on: impl Fn() -> bool) {
        if !self.is_uncompared() {
            return;
        }
        let mut seen = 0usize;
        let mut is_stopped = false;
        let mut stops = || {
            seen += 1;
            is_stopped |= seen.is_multiple_of(BLOCKS_A_LOOK) && !goes_on();
            is_stopped
        };
        let foreign = session::foreign_ids();
        let (mut known, mut unknown) = (0usize, 0u64);
        sampled_blocks::each_sample(|id| {
            if id <= foreign && !stops() {
                match self.ledgers.iter().any(|one| one.ledger.holds(id)) {
                    true => known += 1,
                    false => unknown += 1,
                }
            }
        });
        let live: usize = self.ledgers.iter().map(|one| one.ledger.live()).sum();
        if known < live {
            let mut there: NumberMap<u64, ()> = NumberMap::default();
            sampled_blocks::each_sample(|id| {
                if id <= foreign && !stops() {
                    there.insert(id, ());
                }
            });
            for Inherited { ledger, .. } in &self.ledgers {
                let missing = ledger.live_ids().filter(|id| !there.contains_key(id));
                self.doubtful.extend(missing.map(|id| (id, ())));
            }
        }
        if is_stopped {
            self.doubtful.clear();
            return;
        }
        self.is_compared = true;
        // Allocated by other threads after the writer's stop.
        if unknown > 0 {
            counters::LOST_AT_FORK.add(unknown);
        }
    }

    /// The sample of that id was freed, if it is one of these.
    pub(crate) fn free(&mut self, id: u64) {
        self.doubtful.remove(&id);
        let _ = self
            .ledgers
            .iter_mut()
            .find_map(|inherited| inherited.ledger.free(id));
    }

    /// Before a dump, when all that this process freed so far is known: what is doubtful still, its parent
    /// freed before the fork.
    pub(crate) fn settle(&mut self) {
        for (id, ()) in std::mem::take(&mut self.doubtful) {
            for inherited in &mut self.ledgers {
                inherited.ledger.forget(id);
            }
        }
    }

    /// Bytes of it that are in use.
    pub(crate) fn in_use_bytes(&self) -> u64 {
        let each = self.ledgers.iter();
        each.map(|one| one.ledger.total().in_use.bytes()).sum()
    }

    /// The sum of it all.
    pub(crate) fn total(&self) -> Totals {
        let mut sum = Totals::default();
        for inherited in &self.ledgers {
            sum.merge(&inherited.ledger.total());
        }
        sum
    }
}
