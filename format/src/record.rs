//! The records of a log: what each one says, in units, and who may be missing.
//!
//! Times are nanoseconds of the monotonic clock since [`Start::monotonic_ns`], stored to the
//! microsecond and never decreasing within a log: an event of one thread may come after one of another's that was up to a
//! microsecond later, and then has that one's time. Addresses are avmas: absolute addresses in the
//! profiled process. Threads, stacks and modules are numbered by the writer, from 0, in the order
//! of their first appearance; an id is a number that no other sample of the process ever has.

use crate::checkpoint::{Checkpoint, Passed};

/// An allocation or a free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// As [`Record::Alloc`].
    Alloc(Alloc),
    /// As [`Record::Free`].
    Free(Free),
}

/// One thing that happened, or one thing the reader must know to understand it.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A sampled allocation.
    Alloc(Alloc),
    /// The end of a sampled allocation.
    Free(Free),
    /// A call stack, once, before the first [`Alloc`] that names it.
    Stack(Stack),
    /// A loaded object file.
    Module(Module),
    /// The module of that number is no longer mapped.
    ModuleGone {
        /// Number of the module.
        module: u32,
        /// When it was noticed, at the latest; see the module doc for the unit.
        time_ns: u64,
    },
    /// A thread, before its first [`Alloc`] or [`Free`], and again when its name changed.
    Thread(Thread),
    /// What the whole log is about; the first record.
    Start(Start),
    /// In a log that several were joined into: one of their processes. These stand behind the start.
    Process(Process),
    /// Running totals of the profiler's own account; later values replace earlier ones.
    Counters {
        /// When they were read.
        time_ns: u64,
        /// Each counter with its total so far.
        values: Vec<(Counter, u64)>,
    },
    /// A moment that somebody named, for instance a dump that was written.
    Marker {
        /// The moment.
        time_ns: u64,
        /// Its name.
        name: String,
    },
    /// From here on blocks are sampled under another interval, or not at all. For the reader's information: the
    /// interval of each sample is its own, and threads follow a change a little later.
    Regime {
        /// The change.
        time_ns: u64,
        /// Mean sampling interval in bytes; 0: recording is stopped (frees go on being recorded).
        interval: u64,
        /// Whether the budget for samples called for it, and not somebody.
        by_budget: bool,
    },
    /// A segment's state at its beginning follows, up to [`Record::CheckpointEnd`].
    Checkpoint(Checkpoint),
    /// Part of a checkpoint: what was allocated and freed before.
    Passed(Passed),
    /// The checkpoint is complete; what follows are events again.
    CheckpointEnd {
        /// That of its beginning.
        time_ns: u64,
    },
    /// The log ends here on purpose; without it the process was cut off.
    End {
        /// The end of the profile.
        time_ns: u64,
        /// Why it ended.
        reason: EndReason,
    },
}

/// A sampled allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alloc {
    /// When the allocation returned.
    pub time_ns: u64,
    /// Number of the allocating thread.
    pub thread: u32,
    /// Identity of the sample.
    pub id: u64,
    /// Bytes requested.
    pub size: u64,
    /// Bytes the allocator set aside beyond the request: usable size is `size + slack`.
    pub slack: u64,
    /// Number of the call stack.
    pub stack: u32,
    /// Mean sampling interval in bytes under which this block was chosen; 1 means that every
    /// block was taken, so this one stands for itself alone.
    pub interval: u64,
}

/// The end of a sampled allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Just before the block went back to the allocator.
    pub time_ns: u64,
    /// Number of the freeing thread.
    pub thread: u32,
    /// Identity of the sample, as in its [`Alloc`].
    pub id: u64,
}

/// A stack that is read from a log has at most this many frames, the innermost ones: twice as many as the library records. What is
/// computed for a stack is computed for each of its frames.
pub const MAX_STACK_FRAMES: usize = 4096;

/// A call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Number of the stack.
    pub number: u32,
    /// Why the walk ended where it did.
    pub end: WalkEnd,
    /// Addresses, innermost first. The first is a PC inside the allocation function that was
    /// called (not a return address); each following one is a return address, so the call is at
    /// the address minus one. Exceptions are listed in `interrupted`.
    pub frames: Vec<u64>,
    /// Indices into `frames` of addresses that are no return addresses, because a signal
    /// interrupted the program there.
    pub interrupted: Vec<u32>,
}

/// Why a walk of a stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum WalkEnd {
    /// The thread's first function: the stack is whole.
    Root = 0,
    /// The last address lies in no known module (code made at run time, or wild).
    NoModule = 1,
    /// The last address lies in a module that has no usable unwind table for it.
    NoRule = 2,
    /// The next word of the stack lay outside the readable stack.
    StackUnreadable = 3,
    /// As many frames as the limit allows.
    TooDeep = 4,
    /// A step led back or to where it came from.
    NotAdvancing = 5,
    /// Every walker was in use for longer than a hook may wait; the stack holds no caller.
    Busy = 6,
}

impl WalkEnd {
    /// All ends, in the order of their numbers.
    pub const ALL: [WalkEnd; 7] = [
        WalkEnd::Root,
        WalkEnd::NoModule,
        WalkEnd::NoRule,
        WalkEnd::StackUnreadable,
        WalkEnd::TooDeep,
        WalkEnd::NotAdvancing,
        WalkEnd::Busy,
    ];

    /// The end with that number in a log.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// A few words for a table.
    pub fn describe(self) -> &'static str {
        match self {
            WalkEnd::Root => "complete",
            WalkEnd::NoModule => "code outside every module",
            WalkEnd::NoRule => "no unwind table for the code",
            WalkEnd::StackUnreadable => "stack memory not readable",
            WalkEnd::TooDeep => "deeper than the limit",
            WalkEnd::NotAdvancing => "unwind table leads nowhere",
            WalkEnd::Busy => "no walker free",
        }
    }
}

/// A loaded object file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Number of the module.
    pub number: u32,
    /// When it was first seen.
    pub time_ns: u64,
    /// Path as the loader knows it; `[vdso]` for the kernel's own.
    pub path: String,
    /// Build-id note, empty when the file has none.
    pub build_id: Vec<u8>,
    /// avma minus svma: what the loader added to every address stated in the file.
    pub bias: u64,
    /// Loaded segments in ascending order of address.
    pub segments: Vec<Segment>,
}

/// A part of a file in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First address (avma).
    pub start: u64,
    /// Length in memory, in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// ELF `p_flags`: 1 execute, 2 write, 4 read.
    pub flags: u32,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Number of the thread in this log.
    pub number: u32,
    /// The kernel's id for it.
    pub tid: u32,
    /// Its name (`comm`), empty when it was gone before it could be read.
    pub name: String,
}

/// Name among [`Start::settings`] in a forked process's log: when it was forked, in nanoseconds of the
/// monotonic clock, which is the parent's too. What its parent had in use then, the child has as well.
pub const FORKED_AT: &str = "forked at";

/// Name among [`Start::settings`] in a forked process's log: path of the log of the nearest ancestor that has
/// one.
pub const PARENT_LOG: &str = "parent log";

/// Name among [`Start::settings`] where the program's file is called otherwise than it was executed by: that name, without folders
/// (`redis-server`, a link to `redis-check-rdb`; a script, whose program is its interpreter).
pub const EXECUTED_AS: &str = "executed as";

/// What the whole log is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// Path of the program's executable.
    pub program: String,
    /// The command line's words.
    pub args: Vec<String>,
    /// Process id.
    pub pid: u32,
    /// Id of the process that forked it, when the log continues that process's log; else 0.
    pub forked_from: u32,
    /// Wall clock at the start, nanoseconds since 1970.
    pub wall_ns: u64,
    /// Monotonic clock at the start, nanoseconds: the zero of all times in the log.
    pub monotonic_ns: u64,
    /// Mean sampling interval in bytes at the start.
    pub interval: u64,
    /// Version of the library that wrote the log.
    pub library: String,
    /// The settings that were in force, by the name of their environment variable.
    pub settings: Vec<(String, String)>,
}

/// One of the processes whose logs were joined into one. Its times are the nanoseconds of its own log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Process {
    /// Its log, as it was named when they were joined.
    pub file: String,
    /// What its log began with.
    pub start: Start,
    /// From its start to its last record.
    pub duration_ns: u64,
    /// Why its log ended; `None`: that has no end.
    pub end: Option<EndReason>,
    /// Whether its log could be read to its end without a doubt.
    pub is_whole: bool,
    /// Smallest and largest interval that a sample was taken under; both 0 without samples.
    pub intervals: (u64, u64),
    /// When recording was stopped: beginnings and ends.
    pub stops: Vec<(u64, u64)>,
    /// Of a forked one: what is known of what it had from its parent; else empty.
    pub heritage: String,
    /// Whether what it had from its parent is left out, because it is in the parent's log, which was joined as well.
    pub without_inherited: bool,
    /// Its threads have these numbers in the joined log: the first, and how many.
    pub threads: (u32, u32),
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $words:literal;)*) => {
        /// A running total of the profiler's own account. Law 10: every loss has one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Counter {
            $($(#[$doc])* $name,)*
            /// A counter that this reader does not know.
            Other(u32),
        }
        impl Counter {
            /// All known counters.
            pub const ALL: &'static [Counter] = &[$(Counter::$name),*];
            /// The counter's number in a log.
            pub fn number(self) -> u32 {
                match self { $(Counter::$name => $number,)* Counter::Other(n) => n }
            }
            /// The counter of that number.
            pub fn from_number(number: u32) -> Self {
                match number { $($number => Counter::$name,)* n => Counter::Other(n) }
            }
            /// A few words for a table.
            pub fn describe(self) -> &'static str {
                match self { $(Counter::$name => $words,)* Counter::Other(_) => "unknown counter" }
            }
            /// Whether it counts something that is missing from the log.
            pub fn is_loss(self) -> bool { (16..64).contains(&self.number()) }
        }
    };
}

counters! {
    /// Allocations recorded.
    SampledAllocs = 0, "allocations sampled";
    /// Frees of recorded allocations.
    SampledFrees = 1, "frees of sampled blocks";
    /// Frames walked.
    FramesWalked = 2, "frames walked";
    /// Times a thread waited because the queue was full.
    QueueWaits = 3, "waits for a full queue";
    /// Frees that went the reserved way because the queue was full; none is lost.
    FreesOverflowed = 4, "frees past a full queue";
    /// Dumps written.
    DumpsWritten = 5, "dumps written";
    /// Usable bytes that threads allocated up to their last samples, by the allocator's own count. Earlier versions only.
    UsableBytes = 10, "bytes counted by the allocator";
    /// Threads in the count of bytes.
    CountedThreads = 11, "threads sampled";
    /// Bytes that threads asked for up to their last samples, one for an empty block.
    CountedBytes = 12, "bytes asked for";
    /// Samples not recorded because the queue was full.
    LostQueueFull = 16, "samples lost: queue full";
    /// Samples not recorded because the sample table could not grow.
    LostTableFull = 17, "samples lost: no memory for the sample table";
    /// Samples not recorded because they came from inside the profiler itself
    /// (a signal handler that interrupted a hook).
    LostReentrant = 18, "samples lost: allocation inside a hook";
    /// Samples not recorded because the profiler was not yet ready.
    LostNotReady = 19, "samples lost: before start";
    /// Bytes of log that could not be written.
    LostLogBytes = 20, "log bytes not written";
    /// Dumps that could not be written.
    LostDumps = 21, "dumps not written";
    /// Samples without a stack because every walker was in use. Earlier versions only.
    LostStackBusy = 22, "stacks lost: no walker free";
    /// Frees of recorded blocks that could not be recorded. Law 4: this must be zero.
    LostFrees = 23, "FREES LOST";
    /// Records lost because a fork left them in the parent's queue.
    LostAtFork = 24, "records lost at fork";
    /// Times a signal handler of the program's jumped out of the profiler: a sample or a free of each may be missing.
    LostLeft = 25, "samples or frees lost: a signal handler jumped out of a hook";
}

/// Why a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// The process ended in an orderly way.
    Exit = 0,
    /// The profiler could not go on and left the program alone.
    GaveUp = 1,
    /// The log could not be written any further (a full disk, a limit).
    LogFailed = 2,
    /// The process replaced itself by another program.
    Exec = 3,
}

impl EndReason {
    /// The reason with that number in a log.
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => EndReason::Exit,
            1 => EndReason::GaveUp,
            2 => EndReason::LogFailed,
            3 => EndReason::Exec,
            _ => return None,
        })
    }

    /// A few words for a table.
    pub fn describe(self) -> &'static str {
        match self {
            EndReason::Exit => "the process ended",
            EndReason::GaveUp => "the profiler gave up and left the program alone",
            EndReason::LogFailed => "the log could not be written any further",
            EndReason::Exec => "the process became another program",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_counters_belong_together() {
        for &counter in Counter::ALL {
            assert_eq!(Counter::from_number(counter.number()), counter);
        }
        assert_eq!(Counter::from_number(999), Counter::Other(999));
        assert!(Counter::LostFrees.is_loss() && !Counter::SampledAllocs.is_loss());
    }

    #[test]
    fn numbers_of_walk_ends_are_their_places() {
        for (i, end) in WalkEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, i);
            assert_eq!(WalkEnd::from_u8(i as u8), Some(end));
        }
        assert_eq!(WalkEnd::from_u8(7), None);
    }
}
