//! Words of the waterfall's lines: their names, and what would shrink them.

use heapprof_core::MemoryPart;
use heapprof_format::{MemoryField, MemoryReading};

use crate::analysis::resident_memory::blocks_in_use::BlocksInUse;
use crate::model::confidence::Confidence;
use crate::model::quantity::Bytes;

/// Returns a line's name in documents, its name in tables, and what would shrink it.
pub(super) fn of(
    part: MemoryPart,
    bytes: i64,
    reading: &MemoryReading,
    blocks: Option<BlocksInUse>,
    is_attached: bool,
) -> (&'static str, &'static str, String) {
    let knows_mappings = reading.get(MemoryField::MappedUnrecorded).is_some();
    let is_early = reading.get(MemoryField::DetailAge).is_none();
    let (key, name, remedy) = match part {
        MemoryPart::InUse => {
            let error = blocks.map_or(0.0, |it| it.error);
            let half = error * Confidence::default().standard_errors();
            let remedy = match half > 0.0 {
                true => format!("± {}; see heapprof top", Bytes(half)),
                false => "see heapprof top".into(),
            };
            return ("in_use", "blocks in use", remedy);
        }
        MemoryPart::Slack => ("slack", "slack of blocks", "sizes nearer to size classes"),
        MemoryPart::SampleDifference => {
            let noise = blocks.map_or(0.0, |it| it.noise());
            match blocks {
                None => (
                    "sample_difference",
                    "blocks, not recorded",
                    "recording says whose they are",
                ),
                Some(_) if bytes as f64 > noise => (
                    "sample_difference",
                    "blocks, not recorded",
                    "lost, or from before; see info",
                ),
                Some(_) => (
                    "sample_difference",
                    "sampling error",
                    "nothing: samples are estimates",
                ),
            }
        }
        MemoryPart::Slabs => (
            "slabs",
            "partly empty slabs",
            "nothing: live blocks pin them",
        ),
        MemoryPart::Padding => (
            "padding",
            "padding of large blocks",
            "fewer blocks of 16 to 64 KiB",
        ),
        MemoryPart::Caches => (
            "thread_caches",
            "thread caches",
            "fewer threads, or tcache_max",
        ),
        MemoryPart::Dirty => (
            "dirty",
            "free, not given back yet",
            "decay in some 10 s, malloc_trim",
        ),
        MemoryPart::Muzzy => (
            "muzzy",
            "free, the kernel may take",
            "nothing: taken when needed",
        ),
        MemoryPart::Retained => (
            "retained",
            "given back, yet resident",
            "no huge pages, no mlockall",
        ),
        MemoryPart::Metadata => (
            "metadata",
            "the allocator's own data",
            "fewer threads, or narenas",
        ),
        MemoryPart::Own => ("profiler", "heapprof itself", "a longer sampling interval"),
        MemoryPart::Stacks => (
            "stacks",
            "thread stacks",
            // The program's first thread, and heapprof's own.
            match reading.get(MemoryField::Threads).is_some_and(|it| it <= 2) {
                true => "nothing: the only thread's",
                false => "fewer threads",
            },
        ),
        MemoryPart::Variables => (
            "variables",
            "variables of files",
            "nothing: part of the program",
        ),
        MemoryPart::Mapped => (
            "mapped",
            match is_attached {
                true => "mapped since the attach",
                false => "mapped by the program",
            },
            "see top -m mapped-resident",
        ),
        MemoryPart::MappedUnrecorded => (
            "mapped_unrecorded",
            "mapped, not recorded",
            "see top --by mapping",
        ),
        MemoryPart::MappedRest => {
            let half = blocks.map_or(0.0, |it| it.error) * Confidence::default().standard_errors();
            let is_unknown = blocks.is_some_and(|it| it.untouched.is_none());
            let remedy = match half > 0.0 {
                _ if is_unknown => {
                    let most = Bytes(in_mappings(reading));
                    format!("up to {most}: see below")
                }
                true => format!("± {}; see top --by mapping", Bytes(half)),
                false => "see top --by mapping".into(),
            };
            return ("mapped_rest", "mapped, less the blocks", remedy);
        }
        MemoryPart::File => (
            "file",
            "files: code and mapped",
            "nothing: dropped when needed",
        ),
        MemoryPart::Shared => ("shared", "shared memory", "unmapping, smaller tmpfs files"),
        MemoryPart::Untouched => (
            "untouched",
            "never touched",
            "smaller buffers save no memory",
        ),
        MemoryPart::Swapped => ("swapped", "swapped out", "nothing: not resident"),
        MemoryPart::NotExplained => (
            "not_explained",
            "not explained",
            match (bytes < 0, knows_mappings) {
                (true, _) => "nothing: above, not resident",
                (false, true) => "unknown: changed since detail",
                (false, false) if is_early => "unknown: not read in detail",
                (false, false) => "fewer mappings (JIT, mmap)",
            },
        ),
    };
    (key, name, remedy.to_owned())
}

/// Returns the touched bytes of all mappings.
pub(super) fn in_mappings(reading: &MemoryReading) -> f64 {
    let fields = [MemoryField::Mapped, MemoryField::MappedUnrecorded];
    let known = fields.iter().filter_map(|&field| reading.get(field));
    known.sum::<u64>() as f64
}
