//! Waterfall: lines that add up to the resident memory, from the blocks in use to what is not
//! explained.
//!
//! Glossary: waterfall.
//!
//! ```text
//!   resident = in use + slack ± samples' difference      blocks: what the program holds
//!            + slabs + padding + caches + dirty + muzzy   the allocator, for the program
//!            + retained + metadata
//!            + own                                        this library
//!            + stacks + variables + mappings              other memory without a file
//!            + file + shared
//!            - untouched - swapped                        counted above, and not resident
//!            + not explained                              the rest, of either sign
//! ```
//!
//! Every line but two is a number of the kernel or of the allocator. The two are estimates from
//! samples. The allocator knows the sum of both, so the difference is a line, and no other line is
//! less exact because of the samples.

use heapprof_format::{MemoryField as Field, MemoryReading};

/// A line of the waterfall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryPart {
    /// Requested bytes of the blocks in use, as estimated from samples.
    InUse,
    /// Usable bytes of these blocks beyond the requested ones, as estimated.
    Slack,
    /// Usable bytes of the program's blocks by the allocator's count, less both estimates.
    SampleDifference,
    /// Pages in use for small blocks, less the blocks: free places in slabs. In readings without
    /// the padding, that is here, too.
    Slabs,
    /// Pages that the allocator adds to large blocks.
    Padding,
    /// Free blocks in thread caches.
    Caches,
    /// Free pages that the allocator will return.
    Dirty,
    /// Free pages that the kernel may take.
    Muzzy,
    /// Pages that the allocator has returned, and that are resident all the same.
    Retained,
    /// The allocator's own data.
    Metadata,
    /// This library.
    Own,
    /// Stacks of threads.
    Stacks,
    /// Variables of the program and its libraries: written pages of files, and zeroed ones.
    Variables,
    /// Mappings that the program made by recorded calls.
    Mapped,
    /// Mappings that were made otherwise.
    MappedUnrecorded,
    /// Mappings less the blocks in use that lie in them: the program's own allocator, or one inside
    /// the program, does not tell its free pages. These are all mappings, or those that were not
    /// recorded if the blocks lie in these alone.
    MappedRest,
    /// Pages of files: code, constants, mapped files.
    File,
    /// Shared memory.
    Shared,
    /// Pages of blocks that were never touched: a negative number. Where the use of such pages is
    /// not known, those of all lines of the allocator.
    Untouched,
    /// Swapped pages of the lines above: a negative number.
    Swapped,
    /// The rest, of either sign.
    NotExplained,
}

/// A line with its number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaterfallLine {
    /// The line.
    pub part: MemoryPart,
    /// Bytes, which may be negative.
    pub bytes: i64,
}

/// Estimates of the blocks in use, from samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EstimatedBlocks {
    /// Requested bytes.
    pub requested: f64,
    /// Usable bytes beyond the requested ones.
    pub slack: f64,
    /// The part of both that other allocators than the one of the reading gave out, from mappings.
    pub elsewhere: f64,
    /// The part of the blocks in mappings that was never touched, as far as it is known.
    pub untouched: f64,
    /// The largest difference that sampling makes, of the requested bytes.
    pub noise: f64,
    /// True if the mappings of the program's allocator are not among the recorded ones, as those of
    /// libc.
    pub is_apart: bool,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Waterfall {
    /// Resident bytes: the sum of the lines.
    pub resident: u64,
    /// The lines that are known, in the order of [`MemoryPart`].
    pub lines: Vec<WaterfallLine>,
}

impl Waterfall {
    /// Returns the waterfall of a reading. `None`: it does not tell the resident memory.
    #[must_use]
    pub fn of(reading: &MemoryReading, blocks: Option<EstimatedBlocks>) -> Option<Waterfall> {
        let get = |field| reading.get(field).map(signed);
        let resident = reading.get(Field::Resident)?;
        let usable = match (get(Field::HeapSmall), get(Field::HeapLarge)) {
            (Some(small), Some(large)) => Some(small.saturating_add(large)),
            _ => None,
        };
        let cached = get(Field::HeapCached);
        let estimates = blocks.map(|it| (it.requested.round() as i64, it.slack.round() as i64));
        let of_blocks = usable.map(|usable| usable.saturating_sub(cached.unwrap_or(0)));
        let elsewhere = blocks.map_or(0, |it| it.elsewhere.round() as i64);
        let untouched_mapped = blocks.map_or(0, |it| it.untouched.round() as i64);
        let (in_use, slack, difference) = match (estimates, of_blocks) {
            (Some((in_use, slack)), Some(all)) => {
                let here = in_use.saturating_add(slack).saturating_sub(elsewhere);
                let difference = all.saturating_sub(here);
                (Some(in_use), Some(slack), Some(difference))
            }
            (Some((in_use, slack)), None) => (Some(in_use), Some(slack), None),
            // Without samples: nothing was recorded, and the allocator knows the sum.
            (None, Some(all)) => (None, None, Some(all)),
            (None, None) => (None, None, None),
        };
        let padding = get(Field::HeapPadding).unwrap_or(0);
        let slabs = get(Field::HeapActive)
            .zip(usable)
            .map(|(active, it)| active.saturating_sub(it).saturating_sub(padding));
        // Pages that were never touched are taken from the lines that are known to have them.
        // Before the first detail it is not known which of a line's pages are resident.
        let is_detailed = reading.get(Field::DetailAge).is_some();
        let mut untouched_left = get(Field::HeapUntouched).unwrap_or(0);
        let mut touched = |line: Option<i64>, untouched: Field| {
            let untouched = get(untouched).unwrap_or(0).min(untouched_left);
            let line = line.filter(|_| is_detailed)?;
            let untouched = untouched.min(line);
            untouched_left -= untouched;
            Some(line - untouched)
        };
        let dirty = touched(get(Field::HeapDirty), Field::DirtyUntouched);
        let muzzy = match (get(Field::MuzzyUntouched), get(Field::LazyFree)) {
            (None, Some(lazy)) => get(Field::HeapMuzzy).map(|muzzy| muzzy.min(lazy)),
            _ => touched(get(Field::HeapMuzzy), Field::MuzzyUntouched),
        };
        let metadata = touched(get(Field::HeapMetadata), Field::MetadataUntouched);
        let own_arena = touched(get(Field::OwnArena), Field::OwnUntouched);
        let own_shared = get(Field::OwnShared).unwrap_or(0);
        let retained = get(Field::RetainedTouched).filter(|&bytes| bytes > 0);
        // If the allocator is the program's own, only this library has arenas of the reading's.
        let (retained, own_retained) = match usable {
            Some(_) => (retained, 0),
            None => (None, retained.unwrap_or(0)),
        };
        let own = match (own_arena, get(Field::OwnMapped)) {
            (None, None) => None,
            (arena, mapped) => {
                let own = arena.unwrap_or(0).saturating_add(mapped.unwrap_or(0));
                Some(own.saturating_add(own_shared).saturating_add(own_retained))
            }
        };
        let shared = get(Field::Shared).map(|shared| match own {
            Some(_) => shared.saturating_sub(own_shared),
            None => shared,
        });
        let is_apart = blocks.is_some_and(|it| it.is_apart);
        let mapped = (get(Field::Mapped), get(Field::MappedUnrecorded));
        let (recorded, unrecorded, rest) = match mapped {
            // The allocator is the program's own: its blocks lie in these mappings.
            (Some(recorded), Some(unrecorded)) if usable.is_none() => {
                let blocks = in_use.unwrap_or(0).saturating_add(slack.unwrap_or(0));
                let blocks = blocks.saturating_sub(untouched_mapped);
                less_blocks(recorded, unrecorded, blocks, is_apart)
            }
            (Some(recorded), Some(unrecorded)) if elsewhere > 0 => {
                let blocks = elsewhere.saturating_sub(untouched_mapped);
                less_blocks(recorded, unrecorded, blocks, false)
            }
            (recorded, unrecorded) => (recorded, unrecorded, None),
        };
        // Blocks that are larger than all mappings were not touched in part, or are fewer than
        // estimated.
        let beyond = rest.map_or(0, |rest| rest.min(0));
        let noise = blocks.map_or(0, |it| it.noise.round() as i64);
        let (beyond, difference) = match beyond < 0 && beyond.saturating_neg() <= noise {
            true => (0, Some(difference.unwrap_or(0).saturating_add(beyond))),
            false => (beyond, difference),
        };
        let of_mappings = match rest {
            Some(_) => beyond.saturating_sub(untouched_mapped),
            None => 0,
        };
        let untouched = match get(Field::HeapUntouched) {
            None if of_mappings == 0 => None,
            _ => Some(of_mappings.saturating_sub(untouched_left)),
        };
        let parts = [
            (MemoryPart::InUse, in_use),
            (MemoryPart::Slack, slack),
            (MemoryPart::SampleDifference, difference),
            (MemoryPart::Slabs, slabs),
            (MemoryPart::Padding, get(Field::HeapPadding)),
            (MemoryPart::Caches, cached),
            (MemoryPart::Dirty, dirty),
            (MemoryPart::Muzzy, muzzy),
            (MemoryPart::Retained, retained),
            (MemoryPart::Metadata, metadata),
            (MemoryPart::Own, own),
            (MemoryPart::Stacks, get(Field::Stacks)),
            (MemoryPart::Variables, get(Field::Variables)),
            (MemoryPart::Mapped, recorded),
            (MemoryPart::MappedUnrecorded, unrecorded),
            (MemoryPart::MappedRest, rest.map(|rest| rest.max(0))),
            (MemoryPart::File, get(Field::File)),
            (MemoryPart::Shared, shared),
            (MemoryPart::Untouched, untouched),
            (MemoryPart::Swapped, get(Field::Swapped).map(|bytes| -bytes)),
        ];
        let known = parts.into_iter();
        let mut lines: Vec<_> = known
            .filter_map(|(part, bytes)| bytes.map(|bytes| WaterfallLine { part, bytes }))
            .collect();
        let explained = lines
            .iter()
            .fold(0i64, |sum, line| sum.saturating_add(line.bytes));
        lines.push(WaterfallLine {
            part: MemoryPart::NotExplained,
            bytes: signed(resident).saturating_sub(explained),
        });
        Some(Waterfall { resident, lines })
    }

    /// Returns a line's bytes, if it is known.
    #[must_use]
    pub fn get(&self, part: MemoryPart) -> Option<i64> {
        let line = self.lines.iter().find(|line| line.part == part)?;
        Some(line.bytes)
    }
}

/// Takes the touched bytes of blocks from the mappings that they lie in. Returns the recorded ones,
/// those that are not recorded, and the rest of what the blocks are taken from.
///
/// An allocator whose mappings are never recorded (`is_apart`) has its blocks among the others:
/// recorded mappings are the program's own. Otherwise, it is not known which mappings have the
/// blocks, and the free pages of their allocator.
fn less_blocks(
    recorded: i64,
    unrecorded: i64,
    blocks: i64,
    is_apart: bool,
) -> (Option<i64>, Option<i64>, Option<i64>) {
    let (recorded, place) = match is_apart && unrecorded >= blocks {
        true => (Some(recorded), unrecorded),
        false => (None, recorded.saturating_add(unrecorded)),
    };
    (recorded, None, Some(place.saturating_sub(blocks)))
}

/// No machine has as much memory that this loses a bit.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn reading(fields: &[(Field, u64)]) -> MemoryReading {
        let mut reading = MemoryReading::at(0);
        for &(field, mib) in fields {
            reading.set(field, mib * MIB);
        }
        reading
    }

    /// A process of 100 MiB: 60 in the heap, of which 40 in blocks.
    fn usual() -> MemoryReading {
        reading(&[
            (Field::Resident, 100),
            (Field::Anonymous, 75),
            (Field::File, 20),
            (Field::Shared, 5),
            (Field::Swapped, 3),
            (Field::HeapSmall, 30),
            (Field::HeapLarge, 12),
            (Field::HeapCached, 2),
            (Field::HeapActive, 50),
            (Field::HeapDirty, 7),
            (Field::HeapMuzzy, 4),
            (Field::LazyFree, 1),
            (Field::HeapMetadata, 2),
            (Field::OwnArena, 3),
            (Field::OwnMapped, 1),
            (Field::Stacks, 1),
            (Field::Variables, 2),
            (Field::DetailAge, 0),
        ])
    }

    fn blocks(requested: u64, slack: u64) -> Option<EstimatedBlocks> {
        Some(EstimatedBlocks {
            requested: (requested * MIB) as f64,
            slack: (slack * MIB) as f64,
            ..EstimatedBlocks::default()
        })
    }

    fn mib(waterfall: &Waterfall, part: MemoryPart) -> Option<i64> {
        waterfall.get(part).map(|bytes| bytes >> 20)
    }

    fn assert_adds_up(waterfall: &Waterfall) {
        let sum: i64 = waterfall.lines.iter().map(|line| line.bytes).sum();
        assert_eq!(sum, waterfall.resident as i64, "{waterfall:?}");
    }

    #[test]
    fn pages_that_are_resident_though_returned_have_a_line() {
        let mut reading = usual();
        reading.set(Field::RetainedTouched, 6 * MIB);
        let waterfall = Waterfall::of(&reading, blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::Retained), Some(6));
        assert_eq!(mib(&waterfall, MemoryPart::Own), Some(4));

        // The program keeps its own allocator: all pages of arenas are this library's.
        let fields = [
            (Field::Resident, 50),
            (Field::OwnArena, 3),
            (Field::RetainedTouched, 6),
            (Field::DetailAge, 0),
        ];
        let waterfall = Waterfall::of(&self::reading(&fields), blocks(35, 0)).unwrap();
        assert_eq!(mib(&waterfall, MemoryPart::Retained), None);
        assert_eq!(mib(&waterfall, MemoryPart::Own), Some(9));
    }

    #[test]
    fn lines_add_up_to_the_resident_memory() {
        let waterfall = Waterfall::of(&usual(), blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        let at = |part| mib(&waterfall, part);
        assert_eq!(at(MemoryPart::InUse), Some(35));
        assert_eq!(at(MemoryPart::Slack), Some(3));
        assert_eq!(at(MemoryPart::SampleDifference), Some(2));
        assert_eq!(at(MemoryPart::Slabs), Some(8));
        assert_eq!(at(MemoryPart::Muzzy), Some(1));
        assert_eq!(at(MemoryPart::Own), Some(4));
        assert_eq!(at(MemoryPart::Swapped), Some(-3));
        // 100 - (40 + 8 + 2 + 7 + 1 + 2 + 4 + 1 + 2 + 20 + 5 - 3)
        assert_eq!(at(MemoryPart::NotExplained), Some(11));
    }

    /// The code of an attached library is in shared memory.
    #[test]
    fn this_librarys_shared_memory_is_its_own() {
        let mut reading = usual();
        reading.set(Field::OwnShared, 2 * MIB);
        let waterfall = Waterfall::of(&reading, blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::Own), Some(6));
        assert_eq!(mib(&waterfall, MemoryPart::Shared), Some(3));
    }

    /// 18 MiB were never touched, and each line lacks what is known to be its part.
    #[test]
    fn pages_that_were_never_touched_are_missing_in_their_lines() {
        let mut reading = usual();
        for (field, mib) in [
            (Field::HeapUntouched, 18),
            (Field::DirtyUntouched, 5),
            (Field::MuzzyUntouched, 9),
            (Field::MetadataUntouched, 1),
            (Field::OwnUntouched, 2),
        ] {
            reading.set(field, mib * MIB);
        }
        let waterfall = Waterfall::of(&reading, blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        let at = |part| mib(&waterfall, part);
        assert_eq!(at(MemoryPart::Dirty), Some(2));
        assert_eq!(at(MemoryPart::Muzzy), Some(0)); // it has four
        assert_eq!(at(MemoryPart::Metadata), Some(1));
        assert_eq!(at(MemoryPart::Own), Some(2));
        assert_eq!(at(MemoryPart::Untouched), Some(-6));
        // Later, with fewer untouched pages than the last detail found: no line counts more.
        reading.set(Field::HeapUntouched, 7 * MIB);
        let waterfall = Waterfall::of(&reading, blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        let at = |part| mib(&waterfall, part);
        assert_eq!(at(MemoryPart::Dirty), Some(2));
        assert_eq!(at(MemoryPart::Muzzy), Some(2));
        assert_eq!(at(MemoryPart::Metadata), Some(2));
        assert_eq!(at(MemoryPart::Untouched), Some(0));
    }

    /// Free pages and the data of both libraries are address space until a detail tells more.
    #[test]
    fn before_the_first_detail_the_allocators_pages_are_not_explained() {
        let early = reading(&[
            (Field::Resident, 100),
            (Field::File, 20),
            (Field::Shared, 5),
            (Field::Swapped, 3),
            (Field::HeapSmall, 30),
            (Field::HeapLarge, 12),
            (Field::HeapCached, 2),
            (Field::HeapActive, 50),
            (Field::HeapDirty, 7),
            (Field::HeapMuzzy, 4),
            (Field::HeapMetadata, 2),
            (Field::OwnArena, 300),
        ]);
        let waterfall = Waterfall::of(&early, blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        for part in [
            MemoryPart::Dirty,
            MemoryPart::Muzzy,
            MemoryPart::Metadata,
            MemoryPart::Own,
        ] {
            assert_eq!(waterfall.get(part), None, "{part:?}");
        }
        // 100 - (40 + 8 + 2 + 20 + 5 - 3)
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(28));
    }

    #[test]
    fn samples_that_are_off_move_one_line_only() {
        let low = Waterfall::of(&usual(), blocks(35, 3)).unwrap();
        let high = Waterfall::of(&usual(), blocks(45, 3)).unwrap();
        assert_adds_up(&high);
        assert_eq!(mib(&high, MemoryPart::SampleDifference), Some(-8));
        let rest = |it: &Waterfall| it.lines[3..].to_vec();
        assert_eq!(rest(&low), rest(&high));
        // Nothing was recorded: the allocator's count stands alone.
        let none = Waterfall::of(&usual(), None).unwrap();
        assert_adds_up(&none);
        assert_eq!(mib(&none, MemoryPart::InUse), None);
        assert_eq!(mib(&none, MemoryPart::SampleDifference), Some(40));
    }

    #[test]
    fn mappings_are_lines_and_count_blocks_once() {
        let mut mapped = usual();
        mapped.set(Field::Mapped, 6 * MIB);
        mapped.set(Field::MappedUnrecorded, 4 * MIB);
        let waterfall = Waterfall::of(&mapped, blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::Mapped), Some(6));
        assert_eq!(mib(&waterfall, MemoryPart::MappedUnrecorded), Some(4));
        assert_eq!(mib(&waterfall, MemoryPart::MappedRest), None);
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(1));
        // The program's own allocator: 40 MiB of blocks lie in 50 MiB of mappings.
        let own = reading(&[
            (Field::Resident, 60),
            (Field::File, 8),
            (Field::Mapped, 30),
            (Field::MappedUnrecorded, 20),
        ]);
        let waterfall = Waterfall::of(&own, blocks(38, 2)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::InUse), Some(38));
        assert_eq!(mib(&waterfall, MemoryPart::MappedRest), Some(10));
        assert_eq!(mib(&waterfall, MemoryPart::Mapped), None);
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(2));
    }

    /// glibc's mappings are not recorded, so 30 MiB are the program's own.
    #[test]
    fn mappings_of_the_program_stay_if_the_blocks_lie_in_others() {
        let own = reading(&[
            (Field::Resident, 90),
            (Field::Mapped, 30),
            (Field::MappedUnrecorded, 50),
        ]);
        let mut of_libc = blocks(38, 2).unwrap();
        of_libc.is_apart = true;
        let waterfall = Waterfall::of(&own, Some(of_libc)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::Mapped), Some(30));
        assert_eq!(mib(&waterfall, MemoryPart::MappedUnrecorded), None);
        assert_eq!(mib(&waterfall, MemoryPart::MappedRest), Some(10));
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(10));
        // Another allocator's free pages may be among the recorded mappings.
        let waterfall = Waterfall::of(&own, blocks(38, 2)).unwrap();
        assert_eq!(mib(&waterfall, MemoryPart::Mapped), None);
        assert_eq!(mib(&waterfall, MemoryPart::MappedRest), Some(40));
    }

    #[test]
    fn the_padding_of_large_blocks_is_in_no_slab() {
        let mut padded = usual();
        padded.set(Field::HeapPadding, 3 * MIB);
        let waterfall = Waterfall::of(&padded, blocks(35, 3)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::Padding), Some(3));
        assert_eq!(mib(&waterfall, MemoryPart::Slabs), Some(5)); // 50 - 30 - 12 - 3
        // Numbers of a damaged log, whose difference is less than the least one.
        padded.set(Field::HeapActive, 0);
        padded.set(Field::HeapSmall, u64::MAX);
        padded.set(Field::HeapPadding, u64::MAX);
        let waterfall = Waterfall::of(&padded, None).unwrap();
        assert_eq!(waterfall.get(MemoryPart::Slabs), Some(i64::MIN));
    }

    /// 15 of 50 MiB of blocks are of an allocator inside the program.
    #[test]
    fn blocks_of_other_allocators_lie_in_mappings() {
        let mut mapped = usual();
        mapped.set(Field::Mapped, 6 * MIB);
        mapped.set(Field::MappedUnrecorded, 14 * MIB);
        mapped.set(Field::Resident, 110 * MIB);
        let mut both = blocks(50, 3).unwrap();
        both.elsewhere = (15 * MIB) as f64;
        let waterfall = Waterfall::of(&mapped, Some(both)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::InUse), Some(50));
        assert_eq!(mib(&waterfall, MemoryPart::SampleDifference), Some(2));
        assert_eq!(mib(&waterfall, MemoryPart::MappedRest), Some(5));
        assert_eq!(mib(&waterfall, MemoryPart::Mapped), None);
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(1));
    }

    /// With the program's own allocator, whose pages are not told from others.
    #[test]
    fn blocks_beyond_all_mappings_were_never_touched() {
        let own = reading(&[
            (Field::Resident, 60),
            (Field::Mapped, 30),
            (Field::MappedUnrecorded, 20),
            (Field::HeapUntouched, 1),
        ]);
        let waterfall = Waterfall::of(&own, blocks(238, 2)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::MappedRest), Some(0));
        assert_eq!(mib(&waterfall, MemoryPart::Untouched), Some(-191));
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(11));
    }

    #[test]
    fn blocks_beyond_all_mappings_may_be_an_error_of_sampling() {
        let own = reading(&[
            (Field::Resident, 60),
            (Field::Mapped, 30),
            (Field::MappedUnrecorded, 20),
        ]);
        let mut sampled = blocks(58, 2).unwrap();
        sampled.noise = (12 * MIB) as f64;
        let waterfall = Waterfall::of(&own, Some(sampled)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::SampleDifference), Some(-10));
        assert_eq!(mib(&waterfall, MemoryPart::Untouched), None);
        sampled.noise = (9 * MIB) as f64;
        let waterfall = Waterfall::of(&own, Some(sampled)).unwrap();
        assert_eq!(mib(&waterfall, MemoryPart::SampleDifference), None);
        assert_eq!(mib(&waterfall, MemoryPart::Untouched), Some(-10));
    }

    /// 30 of 40 MiB of blocks were never touched, so 40 of the 50 MiB are free pages and others.
    #[test]
    fn blocks_in_mappings_count_as_far_as_they_were_touched() {
        let own = reading(&[
            (Field::Resident, 60),
            (Field::Mapped, 45),
            (Field::MappedUnrecorded, 5),
        ]);
        let mut both = blocks(38, 2).unwrap();
        both.untouched = (30 * MIB) as f64;
        let waterfall = Waterfall::of(&own, Some(both)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::MappedRest), Some(40));
        assert_eq!(mib(&waterfall, MemoryPart::Untouched), Some(-30));
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(10));
        // No block of our jemalloc lies in these mappings.
        let waterfall = Waterfall::of(&usual(), Some(both)).unwrap();
        assert_eq!(mib(&waterfall, MemoryPart::Untouched), None);
    }

    #[test]
    fn blocks_that_were_never_touched_are_a_line_if_that_is_known() {
        let mut untouched = usual();
        untouched.set(Field::HeapLarge, 212 * MIB);
        untouched.set(Field::HeapActive, 250 * MIB);
        let waterfall = Waterfall::of(&untouched, blocks(235, 3)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(-189));
        untouched.set(Field::HeapUntouched, 200 * MIB);
        let waterfall = Waterfall::of(&untouched, blocks(235, 3)).unwrap();
        assert_adds_up(&waterfall);
        assert_eq!(mib(&waterfall, MemoryPart::Untouched), Some(-200));
        assert_eq!(mib(&waterfall, MemoryPart::NotExplained), Some(11));
    }

    #[test]
    fn what_is_unknown_has_no_line() {
        let kernel = reading(&[(Field::Resident, 9), (Field::Anonymous, 9)]);
        let waterfall = Waterfall::of(&kernel, blocks(4, 1)).unwrap();
        assert_adds_up(&waterfall);
        let parts: Vec<_> = waterfall.lines.iter().map(|line| line.part).collect();
        assert_eq!(
            parts,
            [
                MemoryPart::InUse,
                MemoryPart::Slack,
                MemoryPart::NotExplained
            ]
        );
        assert_eq!(Waterfall::of(&MemoryReading::at(0), None), None);
        let mut odd = usual();
        for &field in Field::ALL {
            odd.set(field, u64::MAX);
        }
        assert!(Waterfall::of(&odd, blocks(1, 1)).is_some());
    }
}
