//! Leisure: what is done while the program does nothing.
//!
//! jemalloc gives free pages back to the kernel little by little, over ten seconds, and looks at the time when it is called. A program that frees a
//! gigabyte and then waits for its next request would keep it until that comes. So as long as nothing comes, and there is something to
//! give back, the writer has jemalloc look.

use crate::allocator;

/// Between two looks. Each gives back what has been free for long enough: all at once would keep us from the program's end for as long
/// as the kernel takes for all of it, a second for ten gigabytes.
const STEP_NS: u64 = 2_000_000_000;
/// Until ten seconds are over, and what was freed when it began to be idle is old enough.
const STEPS: u32 = 6;
/// An idle process is not woken for less, in bytes.
const WORTH: usize = 1 << 20;

/// When to look next.
pub(super) enum Leisure {
    /// There is none.
    Busy,
    /// Then, and so often.
    At { ns: u64, left: u32 },
    /// All is done that was worth it.
    Over,
}

impl Leisure {
    /// When there will be something to do; `u64::MAX`: never, as long as the program does nothing.
    pub(super) fn due_ns(&self) -> u64 {
        match *self {
            Leisure::At { ns, .. } => ns,
            Leisure::Busy | Leisure::Over => u64::MAX,
        }
    }

    /// In a writer that has nothing else to do: does what is due.
    pub(super) fn tend(&mut self, now_ns: u64) {
        let left = match *self {
            Leisure::Busy => STEPS,
            Leisure::At { ns, left } if ns <= now_ns => {
                allocator::decay();
                left - 1
            }
            _ => return,
        };
        let unused = allocator::dirty_bytes();
        *self = match left > 0 && unused >= WORTH {
            true => Leisure::At {
                ns: now_ns + STEP_NS,
                left,
            },
            false => Leisure::Over,
        };
    }
}
