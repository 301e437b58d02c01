//! Resident memory: the waterfall of a profile's memory reading, with what would shrink each line.
//!
//! The blocks in use are estimates of the profile, which is that of the reading's time. All other
//! numbers are the reading's. `heapprof_core::Waterfall` adds them up.

mod blocks_in_use;
mod caveats;
mod line_words;

pub use blocks_in_use::{BlocksInUse, has_blocks_in_mappings};

use heapprof_core::{EstimatedBlocks, MemoryPart, Waterfall, WaterfallLine};
use heapprof_format::{MemoryField, MemoryReading};

use crate::analysis::resident_memory::caveats::{more_between_readings, slack_may_be_untouched};
use crate::model::profile::Profile;
use crate::model::quantity::{Bytes, Count};
use crate::model::run::{Ending, Run};

/// Least bytes beside the blocks in use that are worth a line.
const LEAST_BESIDE: i64 = 32 << 20;
/// The part of the resident memory, one in so many, that explained memory may lack.
const MOST_UNEXPLAINED: u64 = 20;
/// The part of the resident memory, one in so many, that lazily freed pages are worth a line above.
const LEAST_LAZY: u64 = 50;
/// Most lines beside the blocks.
const MOST_BESIDE: usize = 3;
/// Bytes of a huge page.
const HUGE_PAGE: f64 = (2 << 20) as f64;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidentMemory {
    /// The reading that it is made of.
    pub reading: MemoryReading,
    /// Resident bytes: the sum of the lines.
    pub resident: u64,
    /// The lines, in the order of the waterfall.
    pub lines: Vec<ResidentLine>,
    /// Remarks that limit the lines' meaning, in words. Without one, no line is missing.
    pub caveats: Vec<String>,
    /// Remarks on numbers that were read at other times.
    pub ages: Vec<String>,
}

/// A line of the waterfall.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidentLine {
    /// The line's name in documents.
    pub key: &'static str,
    /// The line's name in tables.
    pub name: &'static str,
    /// Bytes, which may be negative.
    pub bytes: i64,
    /// The standard error of an estimate; 0 for all other lines.
    pub error: f64,
    /// Its remedy: a change that would shrink it, in a few words.
    pub remedy: String,
}

impl ResidentMemory {
    /// Returns the waterfall of a profile with pasts, which tell the slack. `None`: it has no
    /// reading that tells the resident memory.
    ///
    /// `pages` is the profile at a reading of pages near that time. It alone tells which pages were
    /// never touched of the blocks that lie in mappings.
    pub fn of(profile: &Profile, pages: Option<&Profile>) -> Option<ResidentMemory> {
        let blocks = BlocksInUse::of(profile, pages);
        let mut memory = ResidentMemory::at(profile.memory?, blocks, &profile.run)?;
        memory.ages.extend(more_between_readings(profile));
        memory
            .caveats
            .extend(slack_may_be_untouched(profile, memory.resident));
        if let Some(read) = pages.and_then(|pages| pages.pages) {
            let read_s = read.time_ns as f64 / 1e9;
            let age = format!("untouched pages of blocks in mappings: as of {read_s:.3} s");
            memory.ages.push(age);
        }
        Some(memory)
    }

    /// Returns the waterfall of a reading of a run. `blocks` are those at its time; `None`: nothing
    /// is sampled.
    pub fn at(
        reading: MemoryReading,
        blocks: Option<BlocksInUse>,
        run: &Run,
    ) -> Option<ResidentMemory> {
        let estimates = blocks.map(|it| EstimatedBlocks {
            requested: it.requested,
            slack: it.slack,
            elsewhere: it.elsewhere,
            untouched: it.untouched.unwrap_or(0.0),
            noise: it.noise(),
            is_apart: run.keeps_libc_allocator(),
        });
        let waterfall = Waterfall::of(&reading, estimates)?;
        let is_in_mappings =
            blocks.is_some_and(|it| !run.allocator.is_empty() || it.elsewhere > 0.0);
        let is_unknown = is_in_mappings && blocks.is_some_and(|it| it.untouched.is_none());
        let caveats = caveats::of(&reading, run, is_in_mappings, is_unknown);
        // Without a recorded mapping by a setting, the line would seem to deny that there are some.
        let is_known = |line: &&WaterfallLine| {
            let may_be_none = run.records_mappings() && !run.is_attached;
            line.part != MemoryPart::Mapped || line.bytes > 0 || may_be_none
        };
        let lines = waterfall.lines.iter().filter(is_known).map(|line| {
            let (key, name, remedy) =
                line_words::of(line.part, line.bytes, &reading, blocks, run.is_attached);
            ResidentLine {
                key,
                name,
                bytes: line.bytes,
                error: match line.part {
                    MemoryPart::MappedRest if is_unknown => {
                        (line_words::in_mappings(&reading) - line.bytes as f64).max(0.0)
                    }
                    // The rest beside an estimate has its error: with an allocator inside, less.
                    MemoryPart::InUse | MemoryPart::MappedRest => blocks.map_or(0.0, |it| it.error),
                    _ => 0.0,
                },
                remedy,
            }
        });
        Some(ResidentMemory {
            reading,
            resident: waterfall.resident,
            lines: lines.collect(),
            caveats,
            ages: caveats::detail_age(&reading).into_iter().collect(),
        })
    }

    /// Adds a remark if the moment at `requested_ns` is the end of a log that ends without a
    /// reading: growth may be missing that nothing was allocated in.
    pub fn note_unread_end(&mut self, run: &Run, requested_ns: u64) {
        let is_cut = run.ending.is_cut() && run.ending != Ending::Running;
        if is_cut && requested_ns >= run.duration_ns {
            self.ages.push(format!(
                "no reading behind {:.3} s: memory that is touched without an allocation wakes nobody",
                self.reading.time_ns as f64 / 1e9
            ));
        }
    }

    /// Returns the remarks on the lines and on their numbers.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.caveats.iter().chain(&self.ages).map(String::as_str)
    }

    /// Returns true if the lines explain the resident memory, but for a twentieth. Those of a
    /// reading that is not [whole](MemoryReading::is_whole) may not.
    pub fn is_explained(&self) -> bool {
        let rest = self.bytes("not_explained").unwrap_or(0).unsigned_abs();
        rest <= self.resident / MOST_UNEXPLAINED
    }

    /// Returns the bytes of a line, if it is known.
    pub fn bytes(&self, key: &str) -> Option<i64> {
        let line = self.lines.iter().find(|line| line.key == key)?;
        Some(line.bytes)
    }

    /// Returns the largest lines beside the blocks in use, largest first, if they are more than the
    /// blocks. Otherwise, and in a small process, there is none.
    pub fn beside_blocks(&self) -> Vec<&ResidentLine> {
        let is_of_blocks =
            |line: &&ResidentLine| ["in_use", "slack", "sample_difference"].contains(&line.key);
        let of_blocks = self.lines.iter().filter(is_of_blocks);
        let of_blocks: i64 = of_blocks.map(|line| line.bytes).sum();
        let resident = i64::try_from(self.resident).unwrap_or(i64::MAX);
        let rest = resident.saturating_sub(of_blocks);
        if rest < LEAST_BESIDE || rest < resident / 2 {
            return Vec::new();
        }
        let is_large = |line: &&ResidentLine| !is_of_blocks(line) && line.bytes >= resident / 10;
        let mut lines: Vec<_> = self.lines.iter().filter(is_large).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
        lines.truncate(MOST_BESIDE);
        lines
    }

    /// Returns a line about huge pages, if there are some.
    pub fn huge_pages(&self) -> Option<String> {
        let bytes = self.reading.get(MemoryField::HugePages)?;
        (bytes > 0).then(|| {
            format!(
                "huge pages: {} of the memory without a file; one touch makes {} resident",
                Bytes(bytes as f64),
                Bytes(HUGE_PAGE)
            )
        })
    }

    /// Returns a line about pages that the program has freed lazily, if they are worth one. The
    /// allocator's own have a line of the waterfall.
    pub fn lazily_freed(&self) -> Option<String> {
        let muzzy = self.reading.get(MemoryField::HeapMuzzy).unwrap_or(0);
        let lazy = self.reading.get(MemoryField::LazyFree)?;
        let bytes = lazy.saturating_sub(muzzy);
        (bytes > self.resident / LEAST_LAZY).then(|| {
            format!(
                "freed by the program with MADV_FREE: {} of the mappings, which the kernel takes \
                 when needed",
                Bytes(bytes as f64)
            )
        })
    }

    /// Returns the limits of the process's memory and how much of each is used, a line each.
    pub fn limits(&self) -> Vec<String> {
        let get = |field| self.reading.get(field);
        let share = |used: u64, limit: u64| 100.0 * used as f64 / limit.max(1) as f64;
        let mut lines = Vec::new();
        for (used, limit, name) in [
            (
                MemoryField::CgroupUsed,
                MemoryField::CgroupMax,
                "the cgroup's limit",
            ),
            (
                MemoryField::CgroupUsed,
                MemoryField::CgroupHigh,
                "the cgroup's memory.high",
            ),
            (
                MemoryField::Virtual,
                MemoryField::AddressSpaceMax,
                "the limit of the address space",
            ),
        ] {
            if let (Some(used), Some(limit)) = (get(used), get(limit)) {
                let files = get(MemoryField::CgroupFiles).unwrap_or(0);
                let files = match name.starts_with("the cgroup") && files > 0 {
                    true => format!("; {} of it are pages of files", Bytes(files as f64)),
                    false => String::new(),
                };
                lines.push(format!(
                    "{name}: {} of {} used ({:.1} %){files}",
                    Bytes(used as f64),
                    Bytes(limit as f64),
                    share(used, limit)
                ));
            }
        }
        if let Some(kills) = get(MemoryField::CgroupKills).filter(|&kills| kills > 0) {
            let kills = Count(kills);
            lines.push(format!(
                "processes of the cgroup killed for want of memory meanwhile: {kills}"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::{Estimate, Row, SizeClass, Totals};
    use heapprof_format::Counter;

    use super::*;
    use crate::history::past::Past;
    use crate::model::run::HighestReading;

    fn memory(resident_mib: u64, lines: &[(&'static str, i64)]) -> ResidentMemory {
        let line = |&(key, mib): &(&'static str, i64)| ResidentLine {
            key,
            name: key,
            bytes: mib << 20,
            error: 0.0,
            remedy: String::new(),
        };
        ResidentMemory {
            reading: MemoryReading::at(0),
            resident: resident_mib << 20,
            lines: lines.iter().map(line).collect(),
            caveats: Vec::new(),
            ages: Vec::new(),
        }
    }

    #[test]
    fn what_is_beside_the_blocks_is_told_if_it_is_more() {
        let keys = |memory: &ResidentMemory| -> Vec<&str> {
            let lines = memory.beside_blocks().into_iter();
            lines.map(|line| line.key).collect()
        };
        let beside = [("in_use", 20), ("slabs", 30), ("mapped", 90), ("dirty", 5)];
        assert_eq!(keys(&memory(145, &beside)), ["mapped", "slabs"]);
        let blocks = [("in_use", 90), ("slack", 10), ("slabs", 45)];
        assert_eq!(keys(&memory(145, &blocks)), [""; 0]);
        let small = [("in_use", 1), ("file", 12)];
        assert_eq!(keys(&memory(13, &small)), [""; 0]);
    }

    #[test]
    fn huge_pages_are_told_if_there_are_some() {
        let mut memory = memory(9, &[]);
        assert_eq!(memory.huge_pages(), None);
        memory.reading.set(MemoryField::HugePages, 0);
        assert_eq!(memory.huge_pages(), None);
        memory.reading.set(MemoryField::HugePages, 6 << 20);
        let words = memory.huge_pages().expect("a line");
        assert!(words.starts_with("huge pages: 6.0 MiB of"), "{words}");
    }

    #[test]
    fn lazily_freed_pages_of_the_program_are_told() {
        let mut memory = memory(9, &[]);
        memory.resident = 100 << 20;
        assert_eq!(memory.lazily_freed(), None);
        memory.reading.set(MemoryField::HeapMuzzy, 6 << 20);
        memory.reading.set(MemoryField::LazyFree, 8 << 20);
        assert_eq!(memory.lazily_freed(), None, "the allocator has most of it");
        memory.reading.set(MemoryField::LazyFree, 18 << 20);
        let words = memory.lazily_freed().expect("a line");
        assert!(words.contains("MADV_FREE: 12.0 MiB of"), "{words}");
    }

    #[test]
    fn more_than_any_reading_has_and_an_end_without_one_are_told() {
        let mut profile = Profile::default();
        let mut reading = MemoryReading::at(2_000_000_000);
        reading.set(MemoryField::Resident, 100 << 20);
        profile.memory = Some(reading);
        profile.run.duration_ns = 2_000_000_000;
        profile.run.ending = Ending::Running;
        profile.run.most_resident = Some(HighestReading {
            record: 1,
            time_ns: 1,
            resident: 200 << 20,
        });
        let ages = |profile: &Profile| ResidentMemory::of(profile, None).expect("a reading").ages;
        profile.account.counters = vec![(Counter::MostResidentBytes, 203 << 20)];
        assert!(ages(&profile).is_empty(), "{:?}", ages(&profile));
        profile.account.counters = vec![(Counter::MostResidentBytes, 324 << 20)];
        let told = ages(&profile).join("; ");
        assert!(
            told.contains("at most 324.0 MiB were resident") && told.contains("has 200.0 MiB"),
            "{told}"
        );
        let mut memory = ResidentMemory::of(&profile, None).expect("a reading");
        memory.ages.clear();
        memory.note_unread_end(&profile.run, 2_000_000_000);
        assert!(memory.ages.is_empty(), "it runs: {:?}", memory.ages);
        profile.run.ending = Ending::CutOff;
        memory.note_unread_end(&profile.run, 1_000_000_000);
        assert!(memory.ages.is_empty(), "another moment: {:?}", memory.ages);
        memory.note_unread_end(&profile.run, 2_000_000_000);
        assert!(memory.ages[0].starts_with("no reading behind 2.000 s"));
    }

    #[test]
    fn slack_of_large_blocks_in_mappings_may_be_untouched() {
        let mut profile = Profile::default();
        let mut reading = MemoryReading::at(1);
        reading.set(MemoryField::Resident, 84 << 20);
        profile.memory = Some(reading);
        profile.run.allocator = "/lib/libc.so.6".into();
        let told = |profile: &Profile| {
            let memory = ResidentMemory::of(profile, None).expect("a reading");
            let of_slack = |it: &&String| it.starts_with("slack of large blocks");
            memory.caveats.iter().find(of_slack).cloned()
        };
        for (size, mib) in [(100, 50), (1 << 20, 20), (2 << 20, 11)] {
            profile.rows.push(Row {
                stack: 0,
                class: SizeClass::of(size),
                totals: Totals::default(),
            });
            profile.pasts.push(Past {
                slack: Estimate::given(1, mib << 20),
                ..Past::default()
            });
        }
        let words = told(&profile).expect("a remark");
        assert!(words.ends_with("has up to 31.0 MiB more"), "{words}");
        profile.rows.truncate(1);
        assert_eq!(told(&profile), None, "small blocks share their pages");
        profile.run.allocator.clear();
        assert_eq!(told(&profile), None, "it is not in mappings");
    }

    #[test]
    fn the_rest_of_mappings_is_at_most_all_of_them_if_pages_of_blocks_are_not_known() {
        let mut reading = MemoryReading::at(0);
        for (field, mib) in [
            (MemoryField::Resident, 110),
            (MemoryField::Anonymous, 100),
            (MemoryField::Mapped, 2),
            (MemoryField::MappedUnrecorded, 96),
            (MemoryField::DetailAge, 0),
        ] {
            reading.set(field, mib << 20);
        }
        let run = Run {
            allocator: "/lib/libc.so.6".into(),
            ..Run::default()
        };
        let at = |untouched| {
            let blocks = BlocksInUse {
                requested: f64::from(300 << 20),
                interval: 1,
                untouched,
                ..BlocksInUse::default()
            };
            let memory = ResidentMemory::at(reading, Some(blocks), &run).expect("a reading");
            let rest = memory.lines.iter().find(|line| line.key == "mapped_rest");
            rest.expect("the line").clone()
        };
        let unknown = at(None);
        assert_eq!((unknown.bytes, unknown.error), (0, f64::from(98 << 20)));
        assert!(
            unknown.remedy.starts_with("up to 98.0 MiB"),
            "{}",
            unknown.remedy
        );
        let known = at(Some(f64::from(300 << 20)));
        assert_eq!((known.bytes >> 20, known.error), (96, 0.0));
    }
}
