//! Records of a log: the meaning and the unit of each field, and which parts may be missing.
//!
//! Times are nanoseconds of the monotonic clock since [`Start::monotonic_ns`], stored to the
//! microsecond. They never decrease within a log: an event of one thread may follow an event of
//! another thread that was up to a microsecond later, and then gets that event's time.
//!
//! Addresses are avmas: absolute addresses in the profiled process. The writer numbers threads,
//! stacks and modules from 0, in the order of their first appearance. An id is a number that no
//! other sample of the process ever has.

use crate::checkpoint::{Checkpoint, Passed};
use crate::coarse_moment::CoarseMoment;
use crate::code::Code;
use crate::mapped_memory::{MappedMemory, MappingChange};
use crate::memory_reading::MemoryReading;
use crate::page_reading::PageReading;

/// An allocation or a free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// As [`Record::Alloc`].
    Alloc(Alloc),
    /// As [`Record::Free`].
    Free(Free),
}

impl Event {
    /// When it happened.
    #[inline]
    pub fn time_ns(&self) -> u64 {
        match self {
            Event::Alloc(alloc) => alloc.time_ns,
            Event::Free(free) => free.time_ns,
        }
    }
}

impl From<Event> for Record {
    #[inline]
    fn from(event: Event) -> Record {
        match event {
            Event::Alloc(alloc) => Record::Alloc(alloc),
            Event::Free(free) => Record::Free(free),
        }
    }
}

/// One event, or one fact that the reader needs to understand events.
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
        /// Time at which the absence was noticed; see the module's text for the unit.
        time_ns: u64,
    },
    /// A thread, before its first [`Alloc`] or [`Free`], and again when its name changed.
    Thread(Thread),
    /// The description of the whole log; the first record.
    Start(Start),
    /// One of the processes of a joined log. These records stand behind the start.
    Process(Process),
    /// Running totals of the profiler's own account; later values replace earlier ones.
    Counters {
        /// Time of the values.
        time_ns: u64,
        /// Each counter with its total so far.
        values: Vec<(Counter, u64)>,
    },
    /// A named moment, for instance a dump that was written.
    Marker {
        /// The moment.
        time_ns: u64,
        /// Its name.
        name: String,
    },
    /// A change of the interval, or a stop. It is for the reader's information: each sample has its
    /// own interval, and threads follow a change a little later.
    Regime {
        /// Time of the change.
        time_ns: u64,
        /// Mean sampling interval in bytes; 0: recording is stopped (frees are still recorded).
        interval: u64,
        /// True if the budget for samples made the change, and no person.
        by_budget: bool,
    },
    /// The state at the beginning of a segment follows, up to [`Record::CheckpointEnd`].
    Checkpoint(Checkpoint),
    /// Part of a checkpoint: earlier allocations that are freed.
    Passed(Passed),
    /// Part of a checkpoint: the bytes in use at a moment before it.
    CoarseMoment(CoarseMoment),
    /// The checkpoint is complete; events follow.
    CheckpointEnd {
        /// Time of the checkpoint's beginning.
        time_ns: u64,
    },
    /// A message of the library to readers of the log, about the recording.
    Notice {
        /// When the library noted it. Later segments repeat it with this time.
        time_ns: u64,
        /// The words: one line.
        text: String,
    },
    /// The resource that the program is, as it says by OpenTelemetry's process context. A later
    /// record replaces an earlier one; later segments repeat it.
    Resource {
        /// When it was read.
        time_ns: u64,
        /// Keys and values, such as `service.name`.
        attributes: Vec<(String, String)>,
    },
    /// The process's title: the words that the program wrote over its command line, or the new
    /// name of its main thread. A later record replaces an earlier one; later segments repeat it.
    Title {
        /// When it was read.
        time_ns: u64,
        /// The words: one line.
        text: String,
    },
    /// The numbers of the kernel and the allocator about the process's memory at a moment.
    Memory(Box<MemoryReading>),
    /// A change of the program's mappings.
    MappingChange(MappingChange),
    /// The program's mappings at the moment of a reading.
    MappedMemory(MappedMemory),
    /// The pages of the live sampled blocks, or a part of these blocks.
    Pages(PageReading),
    /// A function of an interpreted language, once, before the first stack with an address of it.
    Code(Code),
    /// The log ends here on purpose; without this record the process was cut off.
    End {
        /// The end of the profile.
        time_ns: u64,
        /// The reason of the end.
        reason: EndReason,
    },
}

/// A sampled allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alloc {
    /// Time at which the allocation returned.
    pub time_ns: u64,
    /// Number of the allocating thread.
    pub thread: u32,
    /// Identity of the sample.
    pub id: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes beyond the request: the usable size is `size + slack`.
    pub slack: u64,
    /// Number of the call stack.
    pub stack: u32,
    /// Mean sampling interval in bytes under which this block was chosen. 1 means that every block
    /// was chosen, so this one stands for itself alone.
    pub interval: u64,
}

/// The end of a sampled allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Time just before the block went back to the allocator.
    pub time_ns: u64,
    /// Number of the freeing thread.
    pub thread: u32,
    /// Identity of the sample, as in its [`Alloc`].
    pub id: u64,
}

/// A stack that is read from a log has at most this many frames, the innermost ones: twice as many
/// as the library records. Readers do the work for a stack once for each of its frames.
pub const MAX_STACK_FRAMES: usize = 4096;

/// A call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Number of the stack.
    pub number: u32,
    /// The reason of the walk's end.
    pub end: WalkEnd,
    /// Addresses, innermost first. The first is a PC inside the allocation function that was
    /// called, not a return address. Each following one is a return address, so the call is at the
    /// address minus one. Exceptions are listed in `interrupted`.
    pub frames: Vec<u64>,
    /// Indices into `frames` of addresses that are no return addresses, because a signal
    /// interrupted the program there.
    pub interrupted: Vec<u32>,
    /// The labels of the thread while it allocated by this stack: keys, ascending, and values. The
    /// same frames under other labels are a stack of another number, so an allocation without
    /// labels costs nothing for them.
    pub labels: Vec<(String, String)>,
}

/// A stack that is read from a log has at most this many labels: more than the library records.
pub const MAX_LABELS: usize = 256;

/// Keys of the labels that name a span of OpenTelemetry: 32 and 16 hexadecimal digits.
pub const TRACE_ID: &str = "trace_id";
/// See [`TRACE_ID`].
pub const SPAN_ID: &str = "span_id";

/// A label's value in place of values that are not recorded, because there were too many.
pub const FOLDED_LABEL: &str = "(other)";

/// A label's key that stands for all keys: their values are not recorded, because there were too
/// many combinations.
pub const ANY_LABEL: &str = "*";

/// The reason why the walk of a stack ended.
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
    /// The stack has as many frames as the limit allows.
    TooDeep = 4,
    /// A step led back, or to where it came from.
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

    /// Returns the end with that number in a log.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns a few words for a table.
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
    /// Time at which it was first seen.
    pub time_ns: u64,
    /// Path as the loader knows it; `[vdso]` for the kernel's own.
    pub path: String,
    /// Build-id note, empty if the file has none.
    pub build_id: Vec<u8>,
    /// The file that was loaded, if it has no build-id.
    pub stamp: Option<FileStamp>,
    /// avma minus svma: the number that the loader added to every address in the file.
    pub bias: u64,
    /// Loaded segments in ascending order of address.
    pub segments: Vec<Segment>,
}

/// File stamp: the attributes that distinguish a file from others that have its path at other
/// times. 0 means that a value is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileStamp {
    /// Its number in its file system.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written last, nanoseconds since 1970.
    pub modified_ns: u64,
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
    /// The kernel's id of the thread.
    pub tid: u32,
    /// Its name (`comm`), empty if it was gone before the name could be read.
    pub name: String,
}

/// Name among [`Start::settings`] in a forked process's log: the time of the fork, in nanoseconds
/// of the monotonic clock, which is the parent's, too. The child inherits all blocks that the
/// parent had in use then.
pub const FORKED_AT: &str = "forked at";

/// Name among [`Start::settings`] in a forked process's log: path of the log of the nearest
/// ancestor that has one.
pub const PARENT_LOG: &str = "parent log";

/// Name among [`Start::settings`] of the name by which the program was executed, if it differs from
/// the file's: that name without folders. Examples are `redis-server`, a link to `redis-check-rdb`,
/// and a script, whose program is its interpreter.
pub const EXECUTED_AS: &str = "executed as";

/// Name among [`Start::settings`] of the library whose allocator served the program: its path.
/// Absent if heapprof's own did.
pub const ALLOCATOR: &str = "allocator";

/// Name among [`Start::settings`] of an allocator inside of the program that is recorded, too: its
/// name, its file and the number of its functions. One entry for each.
pub const TAPPED: &str = "tapped";

/// Part of an entry of [`TAPPED`]: the allocator does not tell the usable bytes of its blocks.
/// They count as large as requested.
pub const SLACK_UNKNOWN: &str = "slack not known";

/// Beginning of a [`Notice`](crate::Record::Notice) of an allocator in a library that the program
/// has opened: it is recorded from the notice's time on. Behind it stands what an entry of
/// [`TAPPED`] has.
pub const TAPPED_LATER: &str = "recorded from here on: ";

/// Name among [`Start::settings`] of a log that was begun in a running process: blocks from before
/// the log's start and their frees are unknown. The value is `1`.
pub const ATTACHED: &str = "attached";

/// Name among [`Start::settings`] of a joined log: how many further logs were to be joined and had
/// no record, in digits. Absent if none was.
pub const EMPTY_LOGS: &str = "logs without a record";

/// Name among [`Start::settings`] of a process of a joined log: its last title.
pub const TITLE: &str = "title";

/// The description of the whole log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// Path of the program's executable.
    pub program: String,
    /// The command line's words.
    pub args: Vec<String>,
    /// Process id.
    pub pid: u32,
    /// Id of the process that forked it, if the log continues that process's log; else 0.
    pub forked_from: u32,
    /// Wall clock at the start, nanoseconds since 1970.
    pub wall_ns: u64,
    /// Monotonic clock at the start, nanoseconds: the zero of all times in the log.
    pub monotonic_ns: u64,
    /// Mean sampling interval in bytes at the start.
    pub interval: u64,
    /// Version of the library that wrote the log.
    pub library: String,
    /// The settings in force, by the name of their environment variable.
    pub settings: Vec<(String, String)>,
    /// Random number of the log: all of its segments state it, and no other log does. 0: none.
    pub log_number: u64,
    /// The number of the log that holds what a forked process had from its parent. 0: none.
    pub parent_log_number: u64,
}

/// One of the processes of a joined log. Its times are the nanoseconds of its own log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Process {
    /// Its log, by the name given at the join.
    pub file: String,
    /// The start of its log.
    pub start: Start,
    /// Time from its start to its last record.
    pub duration_ns: u64,
    /// The reason of its log's end; `None` if the log has no end.
    pub end: Option<EndReason>,
    /// True if its log could be read to its end without a doubt.
    pub is_whole: bool,
    /// Smallest and largest interval of a sample; both 0 without samples.
    pub intervals: (u64, u64),
    /// Beginnings and ends of the times when recording was stopped.
    pub stops: Vec<(u64, u64)>,
    /// Facts about the blocks that a forked process inherited; else empty.
    pub fork_remark: String,
    /// True if its inherited blocks are left out, because they are in the parent's log, which is
    /// joined as well.
    pub without_inherited: bool,
    /// Its threads' numbers in the joined log: the first, and how many.
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
            /// Returns the counter's number in a log.
            pub fn number(self) -> u32 {
                match self { $(Counter::$name => $number,)* Counter::Other(n) => n }
            }
            /// Returns the counter of that number.
            pub fn from_number(number: u32) -> Self {
                match number { $($number => Counter::$name,)* n => Counter::Other(n) }
            }
            /// Returns a few words for a table.
            pub fn describe(self) -> &'static str {
                match self { $(Counter::$name => $words,)* Counter::Other(_) => "unknown counter" }
            }
            /// Returns true if the counter is of things that are missing from the log.
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
    /// Frees that took the reserved path because the queue was full; none is lost.
    FreesOverflowed = 4, "frees past a full queue";
    /// Dumps written.
    DumpsWritten = 5, "dumps written";
    /// Threads in the count of bytes.
    CountedThreads = 11, "threads sampled";
    /// Bytes that threads requested up to their last samples, one for an empty block.
    CountedBytes = 12, "bytes asked for";
    /// Resident bytes of the process when the counters were read, from malloc and elsewhere.
    ResidentBytes = 13, "bytes resident";
    /// The most resident bytes at any reading of the counters.
    MostResidentBytes = 14, "bytes resident at most";
    /// Samples under labels of which at least one value is recorded as [`FOLDED_LABEL`].
    FoldedLabels = 15, "samples under labels with too many values";
    /// Samples not recorded because the queue was full.
    LostQueueFull = 16, "samples lost: queue full";
    /// Samples not recorded because the sample table could not grow.
    LostTableFull = 17, "samples lost: no memory for the sample table";
    /// Samples not recorded because they came from inside the profiler itself (a signal handler
    /// that interrupted a hook).
    LostReentrant = 18, "samples lost: allocation inside a hook";
    /// Samples not recorded because the profiler was not yet ready.
    LostNotReady = 19, "samples lost: before start";
    /// Bytes of log that could not be written.
    LostLogBytes = 20, "log bytes not written";
    /// Dumps that could not be written.
    LostDumps = 21, "dumps not written";
    /// Frees of recorded blocks that could not be recorded. Law 4: this must be zero.
    LostFrees = 23, "FREES LOST";
    /// Times a signal handler of the program jumped out of the profiler: a sample or a free of each
    /// may be missing.
    LostLeft = 25, "samples or frees lost: a signal handler jumped out of a hook";
    /// Modules that were loaded or unloaded and are not in the log, because too many were.
    LostModules = 26, "changes of modules not recorded: too many";
    /// Mappings recorded without a stack because the queue was full, or there were too many.
    LostMappings = 27, "mappings recorded without a stack: too many";
    /// Stacks without the Python frames that they have, because these could not be read.
    LostPythonFrames = 28, "stacks without their Python frames: unreadable";
}

/// The reason why a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// The process ended in an orderly way.
    Exit = 0,
    /// The profiler could not continue and left the program alone.
    GaveUp = 1,
    /// The log could not be written any further (a full disk, a limit).
    LogFailed = 2,
    /// The process replaced itself by another program.
    Exec = 3,
    /// The process ended before the log was complete.
    Cut = 4,
    /// The profiler was detached, and the process went on without it.
    Detached = 5,
}

impl EndReason {
    /// Returns the reason with that number in a log.
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => EndReason::Exit,
            1 => EndReason::GaveUp,
            2 => EndReason::LogFailed,
            3 => EndReason::Exec,
            4 => EndReason::Cut,
            5 => EndReason::Detached,
            _ => return None,
        })
    }

    /// Returns a few words for a table.
    pub fn describe(self) -> &'static str {
        match self {
            EndReason::Exit => "the process ended",
            EndReason::GaveUp => "the profiler gave up and left the program alone",
            EndReason::LogFailed => "the log could not be written any further",
            EndReason::Exec => "the process became another program",
            EndReason::Cut => "the process ended before the log was complete",
            EndReason::Detached => "heapprof was detached, and the process went on",
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
