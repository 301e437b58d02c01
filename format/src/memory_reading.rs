//! Memory reading: numbers of the kernel and the allocator about the process's memory at one
//! moment.
//!
//! Glossary: reading, whole reading.
//!
//! The writer takes a reading about once a second while it has records to write, and at dumps,
//! markers and the end. Each field is a number; a field that the reading lacks is unknown, never 0.
//!
//! ```text
//!   time │ mask: a bit for each field that is present │ value of each, in ascending order of bits
//! ```
//!
//! Versions: a field keeps its bit and its meaning for ever. A later version adds fields with
//! higher bits. A reader ignores bits that it does not know: their values stand behind all others.
//!
//! Touched pages are resident or swapped out: [`Swapped`](MemoryField::Swapped) has the sum of the
//! latter.
//!
//! Further facts fit in as follows:
//!
//! * Pages of sampled blocks (resident, swapped, untouched) are numbers of each block. They are a
//!   record of their own ([`PageReading`](crate::PageReading)), with a time of its own.
//! * Mappings with stacks are events, as allocations and frees are
//!   ([`MappingChange`](crate::MappingChange)). Their sum at a moment is a field here: it leaves less
//!   of the resident memory unexplained.
//! * A reading of a process with the program's own allocator has no `Heap` field. That allocator's
//!   numbers are further fields.

use crate::varint::{put, take};

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $key:literal;)*) => {
        /// A field of a [`MemoryReading`]: bytes, unless its text says otherwise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum MemoryField {
            $($(#[$doc])* $name = $bit,)*
        }
        impl MemoryField {
            /// All fields, in the order of their bits.
            pub const ALL: &'static [MemoryField] = &[$(MemoryField::$name),*];
            /// Returns the field's name in documents.
            pub fn key(self) -> &'static str {
                match self { $(MemoryField::$name => $key,)* }
            }
        }
    };
}

fields! {
    /// Resident memory of the process.
    Resident = 0, "resident";
    /// Resident pages without a file.
    Anonymous = 1, "anonymous";
    /// Resident pages of files.
    File = 2, "file";
    /// Resident pages of shared memory (tmpfs, System V, shared mappings without a file).
    Shared = 3, "shared";
    /// Pages without a file that are swapped out.
    Swapped = 4, "swapped";
    /// Mapped address space.
    Virtual = 5, "virtual";
    /// The kernel's page tables of the process, which are not part of the resident memory.
    PageTables = 6, "page_tables";
    /// Number of threads.
    Threads = 7, "threads";
    /// Part of [`Anonymous`](MemoryField::Anonymous) in huge pages. With a detail.
    HugePages = 8, "huge_pages";
    /// Part of [`Anonymous`](MemoryField::Anonymous) that the kernel may take at any time
    /// (`MADV_FREE`). With a detail.
    LazyFree = 9, "lazy_free";
    /// The proportional share: a page of n processes counts 1/n. With a detail.
    Proportional = 10, "proportional";
    /// Touched pages of the stacks of [`StackThreads`](MemoryField::StackThreads). With a detail.
    Stacks = 11, "stacks";
    /// Number of threads whose stacks are known. With a detail.
    StackThreads = 12, "stack_threads";
    /// Milliseconds between the last detail and this reading. A detail has the costly fields; they
    /// are repeated until the next one.
    DetailAge = 13, "detail_age_ms";
    /// Memory of the cgroup with the least room.
    CgroupUsed = 14, "cgroup_used";
    /// The cgroup's limit (`memory.max`, version 1: `memory.limit_in_bytes`). Absent: none.
    CgroupMax = 15, "cgroup_max";
    /// The amount from which the kernel slows the cgroup down (`memory.high`). Absent: none.
    CgroupHigh = 16, "cgroup_high";
    /// Number of times that the cgroup went over [`CgroupHigh`](MemoryField::CgroupHigh), since it
    /// was found to have the least room, as the next two.
    CgroupHighEvents = 17, "cgroup_high_events";
    /// Number of times that the cgroup met [`CgroupMax`](MemoryField::CgroupMax).
    CgroupMaxEvents = 18, "cgroup_max_events";
    /// Number of the cgroup's processes that were killed for want of memory.
    CgroupKills = 19, "cgroup_kills";
    /// The limit of the address space (`RLIMIT_AS`). Absent: none.
    AddressSpaceMax = 20, "address_space_max";
    /// Usable bytes of the program's small blocks, with those in thread caches.
    HeapSmall = 21, "heap_small";
    /// Usable bytes of the program's large blocks, with those in thread caches.
    HeapLarge = 22, "heap_large";
    /// Usable bytes of the free blocks in thread caches.
    HeapCached = 23, "heap_cached";
    /// Pages that the allocator uses for the program's blocks.
    HeapActive = 24, "heap_active";
    /// Free pages that the allocator has not returned to the kernel.
    HeapDirty = 25, "heap_dirty";
    /// Free pages that the kernel may take at any time, and may have taken.
    HeapMuzzy = 26, "heap_muzzy";
    /// Free address space of the allocator, without memory.
    HeapRetained = 27, "heap_retained";
    /// Resident pages of the allocator's own data for the program's blocks.
    HeapMetadata = 28, "heap_metadata";
    /// Pages of this library's own arena, with its data.
    OwnArena = 29, "own_arena";
    /// Touched pages of this library's own mappings (lanes, tables, stacks) and variables. With a
    /// detail. Between two details, the growth of the mappings is added if the kernel tells ranges
    /// of touched pages (Linux 6.7).
    OwnMapped = 30, "own_mapped";
    /// Touched pages of the program's and the libraries' variables: written pages of files, and
    /// zeroed pages behind them. With a detail.
    Variables = 31, "variables";
    /// Pages that the allocator counts as used or kept, for the program and for this library, and
    /// that were never touched. Between two details, pages are added that it has got since, as far
    /// as no mapping can be the cause that they are missing in the resident memory.
    HeapUntouched = 32, "heap_untouched";
    /// Touched pages without a file of mappings that the program made by recorded calls. With a
    /// detail. Between two details, pages that the allocator did not take are added, up to the
    /// bytes that were mapped meanwhile, and missing ones are taken off, up to those that were
    /// unmapped, as far as the allocator cannot be the cause.
    Mapped = 33, "mapped";
    /// Touched pages without a file of all other mappings: those made by system calls, by the
    /// loader, by libc, or before the recording. With a detail. With the program's own allocator,
    /// the changes since then that no recorded mapping explains are added.
    MappedUnrecorded = 34, "mapped_unrecorded";
    /// Part of [`HeapUntouched`](MemoryField::HeapUntouched) in
    /// [`HeapDirty`](MemoryField::HeapDirty). With a detail, as the next three.
    DirtyUntouched = 35, "dirty_untouched";
    /// The part in [`HeapMuzzy`](MemoryField::HeapMuzzy).
    MuzzyUntouched = 36, "muzzy_untouched";
    /// The part in [`HeapMetadata`](MemoryField::HeapMetadata).
    MetadataUntouched = 37, "metadata_untouched";
    /// The part in [`OwnArena`](MemoryField::OwnArena).
    OwnUntouched = 38, "own_untouched";
    /// Part of [`CgroupUsed`](MemoryField::CgroupUsed) in pages of files, which the kernel takes
    /// back before it kills a process.
    CgroupFiles = 39, "cgroup_files";
    /// The page that the allocator adds to each large block, so that blocks begin at different
    /// cache lines.
    HeapPadding = 40, "heap_padding";
    /// Part of [`Shared`](MemoryField::Shared) in this library's own code and constants, which are
    /// in shared memory if it was attached. With a detail.
    OwnShared = 41, "own_shared";
    /// Touched pages in [`HeapRetained`](MemoryField::HeapRetained): pages of a huge page that is
    /// in use in part, and locked ones (`mlockall`). With a detail.
    RetainedTouched = 42, "retained_touched";
}

const FIELDS: usize = MemoryField::ALL.len();

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReading {
    /// Time of the reading.
    pub time_ns: u64,
    /// A bit for each field that is present.
    mask: u64,
    /// The values by bit; 0 where the field is absent.
    values: [u64; FIELDS],
}

/// Age from which the detail of a reading is old, in milliseconds.
const OLD_MS: u64 = 100;

impl MemoryReading {
    /// Returns true if all of its fields are of one time: it has a detail of its own. In others the
    /// fields of a detail are older, and do not add up with the rest.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let age = self.get(MemoryField::DetailAge);
        age.is_some_and(|age_ms| age_ms < OLD_MS)
    }

    /// Returns true if its detail was read with it, and is no older at all.
    #[must_use]
    pub fn has_own_detail(&self) -> bool {
        self.get(MemoryField::DetailAge) == Some(0)
    }

    /// Returns an empty reading.
    pub fn at(time_ns: u64) -> Self {
        MemoryReading {
            time_ns,
            mask: 0,
            values: [0; FIELDS],
        }
    }

    /// Sets a field. `None` leaves it unknown.
    pub fn set(&mut self, field: MemoryField, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.mask |= 1 << field as u8;
            self.values[usize::from(field as u8)] = value;
        }
    }

    /// Returns the name of the cgroup's limit. Version 1 of cgroups does not count how often
    /// `memory.high` was exceeded.
    pub fn cgroup_limit(&self) -> &'static str {
        match self.get(MemoryField::CgroupHighEvents) {
            None => "the cgroup's memory.limit_in_bytes",
            Some(_) => "the cgroup's memory.max",
        }
    }

    /// Returns the memory of the cgroup that the kernel cannot take back: without pages of files,
    /// if these are known.
    pub fn cgroup_held(&self) -> Option<u64> {
        let files = self.get(MemoryField::CgroupFiles).unwrap_or(0);
        Some(self.get(MemoryField::CgroupUsed)?.saturating_sub(files))
    }

    /// Returns a field's value, if it is known.
    pub fn get(&self, field: MemoryField) -> Option<u64> {
        let is_known = self.mask >> (field as u8) & 1 == 1;
        is_known.then(|| self.values[usize::from(field as u8)])
    }

    /// Returns the known fields with their values.
    pub fn known(&self) -> impl Iterator<Item = (MemoryField, u64)> + '_ {
        let known = |&field| Some((field, self.get(field)?));
        MemoryField::ALL.iter().filter_map(known)
    }

    /// Returns true if no field is known.
    pub fn is_empty(&self) -> bool {
        self.mask == 0
    }

    /// Appends the fields, which stand behind the time.
    pub(crate) fn put_fields(&self, out: &mut Vec<u8>) {
        put(out, self.mask);
        for (_, value) in self.known() {
            put(out, value);
        }
    }

    /// Takes what [`put_fields`](Self::put_fields) appends.
    pub(crate) fn take_fields(time_ns: u64, bytes: &mut &[u8]) -> Option<Self> {
        let mut reading = MemoryReading::at(time_ns);
        let mask = take(bytes)?;
        for &field in MemoryField::ALL {
            if mask >> (field as u8) & 1 == 1 {
                reading.set(field, take(bytes)?);
            }
        }
        Some(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_places() {
        for (place, &field) in MemoryField::ALL.iter().enumerate() {
            assert_eq!(field as usize, place);
        }
        const { assert!(FIELDS <= 64, "a mask has 64 bits") };
    }

    #[test]
    fn an_absent_field_is_unknown_and_a_zero_is_a_zero() {
        let mut reading = MemoryReading::at(7_000);
        reading.set(MemoryField::Swapped, 0);
        reading.set(MemoryField::Resident, 1 << 40);
        reading.set(MemoryField::CgroupMax, None);
        let mut bytes = Vec::new();
        reading.put_fields(&mut bytes);
        let taken = MemoryReading::take_fields(7_000, &mut &bytes[..]).unwrap();
        assert_eq!(taken, reading);
        assert_eq!(taken.get(MemoryField::Swapped), Some(0));
        assert_eq!(taken.get(MemoryField::CgroupMax), None);
        assert_eq!(taken.get(MemoryField::File), None);
        let known: Vec<_> = taken.known().collect();
        assert_eq!(
            known,
            [(MemoryField::Resident, 1 << 40), (MemoryField::Swapped, 0)]
        );
        assert!(!taken.is_empty() && MemoryReading::at(0).is_empty());
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1 | 1 << 2 | 1 << 62 | 1 << 63);
        for value in [10, 20, 30, 40] {
            put(&mut bytes, value);
        }
        let taken = MemoryReading::take_fields(0, &mut &bytes[..]).unwrap();
        let known: Vec<_> = taken.known().collect();
        assert_eq!(
            known,
            [(MemoryField::Resident, 10), (MemoryField::File, 20)]
        );
    }

    #[test]
    fn a_reading_that_is_cut_is_damage() {
        let mut reading = MemoryReading::at(0);
        for &field in MemoryField::ALL {
            reading.set(field, u64::MAX >> (field as u8));
        }
        let mut bytes = Vec::new();
        reading.put_fields(&mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(MemoryReading::take_fields(0, &mut &bytes[..end]), None);
        }
    }
}
