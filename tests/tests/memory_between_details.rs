//! `heapprof rss` at moments between two memory details: what has changed since the last one.

use std::fs;

use heapprof_format::{MemoryField, MemoryReading};
use heapprof_tests::{MIB, Run, assert_near};

/// Returns true if the kernel tells ranges of touched pages, so that the allocator's pages are read
/// between two details, too.
fn tells_ranges_of_pages() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    (number(), number()) >= (Some(6), Some(7))
}

/// A burst behind a pause: a regular reading comes with its first blocks, and a marker behind it.
const MARKS: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void heapprof_mark(const char *) __attribute__((weak));
int main(void)
{
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 20000; k++) {
            char *volatile block = malloc(1000);
            memset(block, 1, 1000);
        }
        char name[] = {'q', '0' + i, 0};
        if (heapprof_mark) heapprof_mark(name);
        usleep(1300000);
    }
    return 0;
}
"#;

#[test]
fn a_marker_has_a_reading_of_its_own_behind_a_regular_one() {
    let ran = Run::compiled("marks", MARKS, &[])
        .interval(16 << 10)
        .prefix("t")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .run()
        .well();
    for (marker, bursts) in [("q1", 2.0), ("q2", 3.0)] {
        let (lines, resident) = ran.waterfall(marker);
        let least = bursts * 20e6;
        assert!(
            resident > least,
            "{marker}: {resident} of {least}, {lines:?}"
        );
    }
}

/// Frees its blocks of 100 MiB a quarter of a second after it has touched them, and goes on.
const SHRINKS: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static char *volatile kept[100];
    static void goes_on(int times) {
        while (times--) {
            free(kept[0]);
            kept[0] = malloc(1 << 20);
            usleep(10000);
        }
    }
    int main(void) {
        for (int i = 0; i < 100; i++) memset(kept[i] = malloc(1 << 20), 1, 1 << 20);
        goes_on(25);
        for (int i = 1; i < 100; i++) free(kept[i]);
        goes_on(100);
        return 0;
    }
"#;

/// The last reading has no memory detail of its own. The mappings of the program's allocator are
/// those of the detail less what has gone since. No line has memory that is gone.
#[test]
fn what_the_programs_own_allocator_has_given_back_is_in_no_line() {
    let ran = Run::compiled("shrinks", SHRINKS, &[])
        .interval(1)
        .env("HEAPPROF_ALLOCATOR", "program")
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "100")
        .run()
        .well();
    let log = ran.log();
    let whole_readings: Vec<_> = log.readings().filter(|it| it.is_whole()).collect();
    let most = |field| whole_readings.iter().filter_map(|it| it.get(field)).max();
    let mapped = most(MemoryField::MappedUnrecorded).unwrap() as f64;
    let is_old = !log.readings().last().unwrap().is_whole();
    assert!(
        mapped > 80.0 * MIB && is_old,
        "{mapped}, {whole_readings:?}"
    );
    let (lines, resident) = ran.waterfall("end");
    assert!(resident < 30.0 * MIB);
    let rest = lines["mapped_rest"];
    assert!(rest < resident, "{rest} of {resident}");
    let untouched = lines["untouched"] + lines["profiler"];
    assert!(untouched > -MIB, "{lines:?}");
    // Pages that the library's arena has got since the detail, and may not have touched.
    assert!(lines["not_explained"].abs() < MIB, "{lines:?}");
}

/// Gives back 16 of 20 mapped mebibytes a quarter of a second after it has touched them, and
/// touches as much in a block.
const TRADES: &str = r#"
    #define _GNU_SOURCE
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static char *volatile kept;
    static void goes_on(int times) {
        while (times--) {
            free(kept);
            kept = malloc(1000);
            usleep(10000);
        }
    }
    int main(void) {
        size_t mib = 1 << 20;
        char *pool = mmap(0, 20 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(pool, 1, 20 * mib);
        goes_on(25);
        madvise(pool, 16 * mib, MADV_DONTNEED);
        char *volatile block = malloc(16 * mib);
        memset(block, 1, 16 * mib);
        goes_on(100);
        return 0;
    }
"#;

/// The last reading has no memory detail of its own, and its counts do not tell whether the missing
/// pages are the pool's or the block's. So the pages of the allocator are read for it. On an older
/// kernel the lines are those of the detail, and what they have too many is not explained.
#[test]
fn what_may_have_two_causes_is_read_or_not_explained() {
    let (pool, rest) = match tells_ranges_of_pages() {
        true => (4.0, 0.0),
        false => (20.0, -16.0),
    };
    let mut seen = Vec::new();
    // A reading may fall into the trade, and then the next one of the pages comes too late.
    for _ in 0..3 {
        let ran = Run::compiled("trades", TRADES, &[])
            .interval(1)
            .env("HEAPPROF_MEMORY_INTERVAL_MS", "100")
            .run()
            .well();
        let last = ran.log().readings().last().unwrap();
        let (lines, _) = ran.waterfall("end");
        let shown = ["in_use", "mapped", "not_explained"].map(|key| lines[key] / MIB);
        let errors = [shown[0] - 16.0, shown[1] - pool, shown[2] - rest];
        if !last.is_whole() && errors.iter().all(|error| error.abs() < 0.5) {
            return;
        }
        seen.push((last.is_whole(), shown));
    }
    panic!("whole; MiB of the block, of the pool, and not explained: {seen:?}");
}

/// A program that ends as soon as it has touched half of a mapping of so many MiB.
const ENDS: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    static char *volatile kept;
    int main(int argc, char **argv) {
        size_t bytes = (size_t)atoi(argv[argc - 1]) << 20;
        kept = malloc(1000);
        memset(mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, bytes / 2);
        return 0;
    }
"#;

/// The first detail of a program that ends at once is that of its end. A small program without
/// samples has none, because a detail takes time.
#[test]
fn a_program_that_ends_at_once_has_all_lines() {
    for (mib, interval, has_detail) in [
        ("32", 1, true),
        ("2", 1, true),
        ("32", 1 << 40, true),
        ("2", 1 << 40, false),
    ] {
        let run = Run::compiled("ends", ENDS, &[]).arg(mib).interval(interval);
        let ran = run.run().well();
        let log = ran.log().whole();
        let last = log.readings().last().expect("one at the end");
        assert_eq!(last.has_own_detail(), has_detail, "{mib} MiB, {interval}");
        if has_detail {
            let (lines, resident) = ran.waterfall("end");
            let half = mib.parse::<f64>().expect("a number") * MIB / 2.0;
            assert_near("the mapping", lines["mapped"], half);
            assert!(lines["not_explained"].abs() < 0.01 * resident, "{lines:?}");
        }
    }
}

/// Allocates half a million blocks in a second or two.
const GROWS: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static char *volatile kept[500000];
    int main(void) {
        for (int i = 0; i < 500000; i++) {
            memset(kept[i] = malloc(16), 1, 16);
            if (i % 5000 == 0) usleep(10000);
        }
        return 0;
    }
"#;

/// The table of recorded blocks grows between two details, and is no memory of the program.
#[test]
fn what_the_library_needs_is_known_between_two_details() {
    if !tells_ranges_of_pages() {
        return;
    }
    for allocator in ["jemalloc", "program"] {
        let ran = Run::compiled("grows", GROWS, &[])
            .interval(1)
            .env("HEAPPROF_ALLOCATOR", allocator)
            .env("HEAPPROF_MEMORY_INTERVAL_MS", "50")
            .run()
            .well();
        let log = ran.log();
        let resident = |it: &MemoryReading| it.get(MemoryField::Resident).unwrap();
        let old = log.readings().filter(|it| !it.has_own_detail());
        let large: Vec<_> = old.filter(|it| resident(it) > 25 << 20).collect();
        assert!(!large.is_empty(), "{large:?}");
        for reading in large.iter().rev().take(1) {
            let at = format!("{:.9}s", reading.time_ns as f64 / 1e9);
            let (lines, _) = ran.waterfall(&at);
            // Pages that the allocator had got by then and has touched since are in no line: those
            // of the writer's account of the blocks. The table of blocks has some 10 MiB.
            let rest = lines["not_explained"];
            assert!(rest.abs() < 6.0 * MIB, "{allocator}: {lines:?}");
        }
    }
}
