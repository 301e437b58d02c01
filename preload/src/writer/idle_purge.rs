//! Idle purge: returns unused memory to the kernel while the program does nothing.
//!
//! jemalloc returns free pages little by little, over its decay time, and only looks at the time
//! when it is called. A program that frees a gigabyte and then waits for its next request would
//! keep that gigabyte. So while no event comes, and there is memory to return, the writer makes
//! jemalloc look at the time.

use crate::allocator;

/// The time between two rounds. Each round returns only what has been free for long enough. To
/// return everything at once would keep us from the program's end for as long as the kernel needs.
const ROUND_NS: u64 = 2_000_000_000;
/// The number of rounds: until jemalloc's decay time is over for memory that was freed just before
/// the program became idle.
const ROUNDS: u32 = 6;
/// An idle process is not woken for fewer bytes.
const MIN_BYTES: usize = 1 << 20;

/// The state of the purge.
pub(super) enum IdlePurge {
    /// The program is not idle.
    Inactive,
    /// The next round is due at `ns`, and `rounds` are left.
    Scheduled { ns: u64, rounds: u32 },
    /// There is no more worth returning.
    Done,
}

impl IdlePurge {
    /// Returns when the next round is due; `u64::MAX` if none is, as long as the program stays
    /// idle.
    pub(super) fn due_ns(&self) -> u64 {
        match *self {
            IdlePurge::Scheduled { ns, .. } => ns,
            IdlePurge::Inactive | IdlePurge::Done => u64::MAX,
        }
    }

    /// Starts the purge, or runs the round that is due. For a writer that has nothing else to do.
    /// Returns true if a round has run.
    pub(super) fn run_if_due(&mut self, now_ns: u64) -> bool {
        let (rounds, has_run) = match *self {
            IdlePurge::Inactive => (ROUNDS, false),
            IdlePurge::Scheduled { ns, rounds } if ns <= now_ns => {
                allocator::decay();
                (rounds - 1, true)
            }
            _ => return false,
        };
        let unused = allocator::dirty_bytes();
        *self = match rounds > 0 && unused >= MIN_BYTES {
            true => IdlePurge::Scheduled {
                ns: now_ns + ROUND_NS,
                rounds,
            },
            false => IdlePurge::Done,
        };
        has_run
    }
}
