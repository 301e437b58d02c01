//! Loss counters: every loss by its cause (Law 10).
//!
//! The writer keeps the frequent counts (samples, frees), because it sees each event. The counters
//! here are changed rarely:
//!
//! | counter | what is lost, and why |
//! | --- | --- |
//! | `LOST_QUEUE_FULL` | a sample or a note: no seat is free, or a lane or queue has no room |
//! | `LOST_TABLE_FULL` | a sample: the sample table cannot grow |
//! | `LOST_REENTRANT` | a sample of a signal handler that interrupted a hook |
//! | `LOST_NOT_READY` | every block before the constructor ends; a sample without a session |
//! | `LOST_FREES` | a free; Law 4 forbids it |
//! | `LOST_LEFT` | a sample or a free: a signal handler jumped out of the hook |
//! | `LOST_MODULES` | a load or an unload of a module: the list of these is full |
//! | `LOST_MAPPINGS` | the stack of a mapping, or the end of one: no room, or too many mappings |
//! | `LOST_PYTHON_FRAMES` | the Python frames of a stack: they could not be read |
//! | `LOST_LOG_BYTES` | bytes of the log: a write failed for good, or too much waited for room |
//! | `LOST_DUMPS` | a dump: a write failed, or the program ended first |
//! | `FOLDED_LABELS` | labels of a sample: there are too many values or labelled stacks |
//! | `DUMPS_WRITTEN` | nothing: a dump was written |
//! | `QUEUE_WAITS` | nothing: a hook waited for room |
//! | `FREES_OVERFLOWED` | nothing: a free took the overflow queue |

use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_format::Counter;

/// One running total.
pub(crate) struct Count(AtomicU64, Counter);

impl Count {
    const fn new(counter: Counter) -> Self {
        Count(AtomicU64::new(0), counter)
    }

    /// Adds `n` to the total.
    #[cold]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the total so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counts {
    ($($name:ident = $counter:ident;)*) => {
        $(pub(crate) static $name: Count = Count::new(Counter::$counter);)*
        static ALL: &[&Count] = &[$(&$name),*];
    };
}

counts! {
    QUEUE_WAITS = QueueWaits;
    FREES_OVERFLOWED = FreesOverflowed;
    DUMPS_WRITTEN = DumpsWritten;
    FOLDED_LABELS = FoldedLabels;
    LOST_QUEUE_FULL = LostQueueFull;
    LOST_TABLE_FULL = LostTableFull;
    LOST_REENTRANT = LostReentrant;
    LOST_NOT_READY = LostNotReady;
    LOST_MAPPINGS = LostMappings;
    LOST_LOG_BYTES = LostLogBytes;
    LOST_DUMPS = LostDumps;
    LOST_FREES = LostFrees;
    LOST_LEFT = LostLeft;
    LOST_MODULES = LostModules;
    LOST_PYTHON_FRAMES = LostPythonFrames;
}

/// Returns all counters with their totals.
pub(crate) fn all() -> impl Iterator<Item = (Counter, u64)> {
    ALL.iter().map(|count| (count.1, count.get()))
}

/// Returns the number of lost records. Bytes that could not be written to a log are excluded: each
/// failed write prints a line of its own.
pub(crate) fn losses() -> u64 {
    let losses =
        all().filter(|(counter, _)| counter.is_loss() && *counter != Counter::LostLogBytes);
    losses.map(|(_, value)| value).sum()
}

/// In a forked child: sets all counters to zero.
pub(crate) fn reset() {
    for count in ALL {
        count.0.store(0, Ordering::Relaxed);
    }
}
