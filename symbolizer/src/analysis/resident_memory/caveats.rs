//! Caveats of a waterfall: remarks that limit what its lines mean, and remarks on their times.

use heapprof_format::{Counter, MemoryField, MemoryReading};

use crate::analysis::resident_memory::blocks_in_use::large_slack_in_mappings;
use crate::model::profile::Profile;
use crate::model::quantity::{Bytes, Count};
use crate::model::run::Run;

/// The part of the highest reading, one in so many, by which more must have been resident between
/// two readings to be worth a remark.
const LEAST_BETWEEN: u64 = 50;
/// The part of the resident memory, one in so many, that the slack of large blocks in mappings is
/// worth a remark above.
const LEAST_SLACK: f64 = 50.0;
/// The remark if no reading of pages tells them.
const UNTOUCHED_UNKNOWN: &str = "untouched pages of blocks in mappings are not known, and count as touched: `heapprof ctl PID pages` reads them, HEAPPROF_PAGES=1 once a second and at the end";
/// The remark on a recording that began in a running process.
const BEFORE_ATTACH: &str =
    "blocks from before heapprof was attached are not known: they are among the mappings";
/// The remark if it is not known which mappings the blocks lie in.
const TWICE: &str = "blocks may lie in the recorded mappings, and count twice then";

/// Returns the remarks on the lines of a reading. `is_in_mappings`: blocks in use lie in mappings.
/// `is_unknown`: it is not known which of their pages were touched.
pub(super) fn of(
    reading: &MemoryReading,
    run: &Run,
    is_in_mappings: bool,
    is_unknown: bool,
) -> Vec<String> {
    let get = |field| reading.get(field);
    let mut caveats = Vec::new();
    if run.is_attached {
        caveats.push(BEFORE_ATTACH.into());
    }
    let others = match is_in_mappings {
        true => run.allocators_of_the_program(),
        false => Vec::new(),
    };
    match &others[..] {
        [] => {}
        [one] => caveats.push(format!(
            "the program's own allocator ({one}) does not tell its free pages: they are among the mappings"
        )),
        all => caveats.push(format!(
            "the program's own allocators ({}) do not tell their free pages: they are among the mappings",
            all.join(", ")
        )),
    }
    match &run.allocators_without_slack()[..] {
        [] => {}
        without => caveats.push(format!(
            "the slack of blocks from {} is not known, and counts as none",
            without.join(", ")
        )),
    }
    if get(MemoryField::DetailAge).is_some()
        && get(MemoryField::HeapDirty).is_some()
        && get(MemoryField::DirtyUntouched).is_none()
    {
        caveats.push(
            "free pages that were never touched are not told from others: they are in both lines"
                .into(),
        );
    }
    if run.allocator.is_empty() && get(MemoryField::HeapCached).is_none() {
        caveats.push("the bytes in thread caches are not known: they count as blocks".into());
    }
    match get(MemoryField::DetailAge) {
        None => caveats.push(
            "free pages, the allocator's data, heapprof, stacks, variables and mappings were not read: they are not explained"
                .into(),
        ),
        Some(_) if get(MemoryField::MappedUnrecorded).is_none() => {
            if is_in_mappings && get(MemoryField::Mapped).is_some() {
                caveats.push(TWICE.into());
            }
            let unknown = match get(MemoryField::Mapped) {
                Some(_) => "mappings that were not recorded are",
                None => "the mappings are",
            };
            caveats.push(format!(
                "{unknown} not known, and not explained: the kernel's list was longer than 512 KiB, or not readable"
            ));
        }
        Some(_) => {}
    }
    if let (Some(known), Some(threads)) =
        (get(MemoryField::StackThreads), get(MemoryField::Threads))
    {
        // One thread is heapprof's own, whose stack is not among these.
        let unknown = threads.saturating_sub(known + 1);
        if unknown > 0 {
            let stacks = match unknown {
                1 => "the stack of one thread is".to_owned(),
                _ => format!("the stacks of {} threads are", Count(unknown)),
            };
            caveats.push(format!("{stacks} not told from other mappings"));
        }
    }
    if is_unknown {
        caveats.push(UNTOUCHED_UNKNOWN.into());
    }
    caveats
}

/// Returns the line about the fields that are read more rarely, if they are old.
pub(super) fn detail_age(reading: &MemoryReading) -> Option<String> {
    let age_ms = reading.get(MemoryField::DetailAge)?;
    let age_s = age_ms as f64 / 1e3;
    (!reading.is_whole())
        .then(|| format!("stacks, variables, mappings and untouched pages are {age_s:.1} s old"))
}

/// Returns a remark if more was resident than any reading tells.
pub(super) fn more_between_readings(profile: &Profile) -> Option<String> {
    let most = profile.account.counter(Counter::MostResidentBytes)?;
    let read = profile.run.most_resident?.resident;
    (most > read.saturating_add(read / LEAST_BETWEEN)).then(|| {
        format!(
            "at most {} were resident, by the kernel's count, between two readings: the highest \
             reading has {}",
            Bytes(most as f64),
            Bytes(read as f64)
        )
    })
}

/// Returns a remark if blocks in mappings have much slack with pages of its own, which no reading
/// tells.
pub(super) fn slack_may_be_untouched(profile: &Profile, resident: u64) -> Option<String> {
    let slack = large_slack_in_mappings(profile);
    (slack > resident as f64 / LEAST_SLACK).then(|| {
        format!(
            "slack of large blocks in mappings counts as touched: if it is not, \"mapped, less the blocks\" has up to {} more",
            Bytes(slack)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allocator_whose_free_pages_are_unknown_is_named() {
        let mut reading = MemoryReading::at(0);
        reading.set(MemoryField::HeapCached, 0);
        reading.set(MemoryField::DetailAge, 0);
        reading.set(MemoryField::MappedUnrecorded, 0);
        let said = |allocator: &str, tapped: &[&str]| {
            let run = Run {
                allocator: allocator.into(),
                tapped: tapped.iter().map(|what| (*what).to_owned()).collect(),
                ..Run::default()
            };
            of(&reading, &run, true, false).join("; ")
        };
        assert_eq!(said("", &[]), "");
        let libc = said("/lib/libc.so.6", &[]);
        assert!(libc.starts_with("the program's own allocator (/lib/libc.so.6) does not tell"));
        let inside = said(
            "",
            &["jemalloc in /srv/a (b) (6 functions), from 1.000 s on"],
        );
        assert!(
            inside.contains("own allocator (jemalloc in /srv/a (b)) does not"),
            "{inside}"
        );
        let without = said("", &["snmalloc in /srv/a (4 functions; slack not known)"]);
        assert!(
            without.contains("the slack of blocks from snmalloc in /srv/a is not known"),
            "{without}"
        );
        assert!(!inside.contains("slack"), "{inside}");
        let both = said("/lib/libc.so.6", &["jemalloc in /srv/a (6 functions)"]);
        assert!(both.contains("own allocators (/lib/libc.so.6, jemalloc in /srv/a) do not"));
    }
}
