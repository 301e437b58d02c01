//! `heapprof rss`: its lines are those that the kernel and the program itself state.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use heapprof_format::{Counter, MemoryField};
use heapprof_tests::{
    Json, Log, MIB, Run, Running, Swap, assert_near, ended, samples_so_far, service, started,
};

/// The numbers of the fixture's output, by mark and name.
fn stated(output: &str) -> BTreeMap<(String, String), f64> {
    let lines = output.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (mark, what, bytes) = (words.next()?, words.next()?, words.next()?);
        Some(((mark.to_owned(), what.to_owned()), bytes.parse().ok()?))
    });
    lines.collect()
}

#[test]
fn resident_memory() {
    let ran = Run::fixture("resident_memory")
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        // Readings come with dumps alone.
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "3600000")
        .run()
        .well();
    let stated = stated(&ran.stdout);
    let of = |mark: &str, what: &str| stated[&(mark.to_owned(), what.to_owned())];
    for mark in [
        "phase-blocks",
        "phase-slabs",
        "phase-buffers",
        "phase-rest",
        "phase-mapped",
    ] {
        let (lines, resident) = ran.waterfall(mark);
        let line = |key: &str| {
            lines
                .get(key)
                .copied()
                .unwrap_or_else(|| panic!("no {key}"))
        };
        assert_near("resident", resident, of(mark, "resident"));
        assert_near("in use", line("in_use"), of(mark, "in_use"));
        assert_near("slack", line("slack"), of(mark, "slack"));
        let in_blocks =
            line("in_use") + line("slack") + line("sample_difference") + line("thread_caches");
        if let Some(&allocated) = stated.get(&(mark.to_owned(), "allocated".to_owned())) {
            assert_near("allocated", in_blocks, allocated);
        }
        // jemalloc's own statistics.
        assert_near("in blocks", in_blocks, of(mark, "in_blocks"));
        for (key, statistic) in [
            ("slabs", "partly_empty"),
            ("thread_caches", "cached"),
            ("dirty", "dirty"),
            ("muzzy", "muzzy"),
            ("metadata", "metadata"),
        ] {
            assert_near(&format!("{mark}: {key}"), line(key), of(mark, statistic));
        }
        // Each line of memory without a file is right if their sum is.
        let anonymous = resident - line("file") - line("shared") - line("not_explained");
        assert_near("anonymous", anonymous, of(mark, "anonymous"));
        let rest = line("not_explained").abs() / resident;
        assert!(rest < 0.01, "{mark}: {rest} is not explained");
    }
    // One block in ten stays, and 64 of them share a slab.
    let (slabs, _) = ran.waterfall("phase-slabs");
    let kept_back = 200_000.0 * 320.0 * 0.9;
    assert_near("phase-slabs", slabs["slabs"], kept_back);
    // Eight buffers of 6 MiB are touched to a third.
    let (before, _) = ran.waterfall("phase-slabs");
    let (buffers, _) = ran.waterfall("phase-buffers");
    let untouched = before["untouched"] - buffers["untouched"];
    // The allocator maps more than the buffers need. The rest is free, and not touched either.
    let spare = buffers["dirty"] - before["dirty"];
    // Free pages decay between the two dumps. Each dump is right within 2 % of what is resident.
    let by_mincore = 8.0 * 6.0 * MIB - of("phase-buffers", "buffers_by_mincore");
    let error = (untouched - spare - by_mincore).abs();
    let resident = of("phase-slabs", "resident") + of("phase-buffers", "resident");
    assert!(
        error < 0.02 * resident,
        "untouched: {error} of {resident} are wrong"
    );
    let (rest, _) = ran.waterfall("phase-rest");
    assert_near("stacks", rest["stacks"], of("phase-rest", "stacks"));
    assert_near("shared", rest["shared"], of("phase-rest", "shared"));
    let of_file = rest["file"] - buffers["file"];
    assert_near("file", of_file, of("phase-rest", "mapped_file"));
    // A pool of which two thirds are used, huge pages, and a file in memory.
    let (mapped, _) = ran.waterfall("phase-mapped");
    let of_mapped = |what: &str| of("phase-mapped", what);
    assert_near("pool", of_mapped("pool"), of_mapped("pool_by_mincore"));
    assert_near(
        "mapped",
        mapped["mapped"] - rest["mapped"],
        of_mapped("pool") + of_mapped("huge"),
    );
    let in_tmpfs = of_mapped("in_tmpfs");
    match in_tmpfs > 0.0 {
        true => assert_near("tmpfs", mapped["shared"] - rest["shared"], in_tmpfs),
        false => println!("skipped: no file in memory to be had in /dev/shm"),
    }
}

/// Pages that are swapped out count in their own line, and are missing in the resident memory.
#[test]
fn swapped_pages_are_a_line() {
    let Some(_swap) = Swap::borrow() else { return };
    let ran = Run::fixture("resident_memory")
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "3600000")
        .run()
        .well();
    let stated = stated(&ran.stdout);
    let of = |what: &str| stated[&("phase-swapped".to_owned(), what.to_owned())];
    let (lines, resident) = ran.waterfall("phase-swapped");
    assert!(of("swapped") > MIB, "the fixture has swapped pages");
    assert_near("swapped", -lines["swapped"], of("swapped"));
    assert_near("resident", resident, of("resident"));
    let anonymous = resident - lines["file"] - lines["shared"] - lines["not_explained"];
    assert_near("anonymous", anonymous, of("anonymous"));
    assert!(lines["not_explained"].abs() < 0.01 * resident);
}

/// The kernel's sum of huge pages is read more rarely than the rest.
#[test]
fn huge_pages_are_in_the_account() {
    let mut run = Run::fixture("resident_memory")
        .interval(1)
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "50");
    let until = run.folder().join("until");
    run = run.arg("huge").arg(&until);
    let mut running = run.start();
    let told = |running: &Running| {
        let log = Log::current(running.folder())?;
        log.readings().last()?.get(MemoryField::HugePages)
    };
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let has_none = enabled.is_ok_and(|it| it.contains("[never]"));
    running.until("a reading of huge pages", |it| {
        told(it).is_some_and(|bytes| bytes > 0 || has_none)
    });
    let shown = told(&running).unwrap() as f64;
    std::fs::write(&until, "").unwrap();
    let ran = running.wait().well();
    let stated = stated(&ran.stdout)[&("huge".to_owned(), "huge_pages".to_owned())];
    match stated > 0.0 {
        true => assert_eq!(shown, stated),
        false => println!("skipped: the kernel gives no huge pages here"),
    }
}

/// With the program's own allocator, the kernel's numbers, the mappings and the pages of sampled
/// blocks are known. The rest has the allocator's name.
#[test]
fn with_the_programs_own_allocator_what_can_be_known_is_known() {
    let ran = Run::fixture("resident_memory")
        .interval(8192)
        .prefix("t")
        .env("HEAPPROF_ALLOCATOR", "program")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "3600000")
        .run()
        .well();
    let stated = stated(&ran.stdout);
    let of = |mark: &str, what: &str| stated[&(mark.to_owned(), what.to_owned())];
    let (rest, _) = ran.waterfall("phase-rest");
    assert_near("stacks", rest["stacks"], of("phase-rest", "stacks"));
    assert_near("shared", rest["shared"], of("phase-rest", "shared"));
    let (lines, resident) = ran.waterfall("phase-mapped");
    assert_near("resident", resident, of("phase-mapped", "resident"));
    let anonymous = resident - lines["file"] - lines["shared"] - lines["not_explained"];
    assert_near("anonymous", anonymous, of("phase-mapped", "anonymous"));
    let own = of("phase-mapped", "pool") + of("phase-mapped", "huge");
    match lines.get("mapped") {
        // glibc's mappings are not recorded, so the recorded ones are the program's own.
        Some(mapped) => assert_near("mapped", mapped - rest["mapped"], own),
        None => {
            let all = lines["mapped_rest"] - rest["mapped_rest"];
            assert_near("mapped", all, own);
        }
    }
    // Eight buffers, each sampled for certain, are touched to a third. They take that third from
    // the mappings, and leave the allocator's free pages as they were.
    let [slabs, buffers] = ["phase-slabs", "phase-buffers"].map(|mark| ran.waterfall(mark).0);
    let free = buffers["mapped_rest"] - slabs["mapped_rest"];
    assert!(free.abs() < MIB, "{free} of the mappings are free");
    let untouched = buffers["untouched"] - slabs["untouched"];
    let by_mincore = of("phase-buffers", "buffers_by_mincore");
    assert_near("untouched", -untouched, 8.0 * 6.0 * MIB - by_mincore);
    for unknown in ["slabs", "thread_caches", "dirty", "metadata"] {
        assert!(!lines.contains_key(unknown), "{unknown}");
    }
    assert!(lines["not_explained"].abs() < 0.01 * resident);

    let log = ran.folder().join("t.heaplog");
    let top = |metric: &str| {
        let shown = Run::heapprof()
            .args(["top", "--json", "-n", "0", "--by", "function"])
            .args(["-m", metric, "--at", "phase-mapped"])
            .arg(&log)
            .run()
            .well();
        let Json(document) = Json::parse(&shown.stdout);
        document["groups"].as_array().unwrap().clone()
    };
    let of_function = |metric: &str, function: &str| {
        let lines = top(metric);
        let line = lines.iter().find(|line| line["name"] == function);
        let line = line.unwrap_or_else(|| panic!("{metric}: {lines:?}"));
        ["self", "self_error"].map(|key| line[key].as_f64().unwrap())
    };
    let [mapped, _] = of_function("mapped", "maps_aligned");
    assert_eq!(mapped, 56.0 * MIB);
    let [resident, error] = of_function("resident", "takes");
    let untouched = 48.0 * MIB - of("phase-buffers", "buffers_by_mincore");
    let truth = of("phase-mapped", "in_use") - untouched;
    // Once in a million.
    let most = 5.0 * error + 0.5 * MIB;
    assert!(
        error > 0.0 && (resident - truth).abs() < most,
        "{resident} of {truth}"
    );

    let text = Run::heapprof().arg("rss").arg(&log).run().well().stdout;
    for words in ["mapped, less the blocks", "the program's own allocator (/"] {
        assert!(text.contains(words), "{text}");
    }
}

/// A sampled profile moves two lines, which a third one balances.
#[test]
fn a_sampled_waterfall_adds_up() {
    let ran = Run::fixture("resident_memory")
        .interval(64 << 10)
        .prefix("t")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .run()
        .well();
    let stated = stated(&ran.stdout);
    let (lines, _) = ran.waterfall("phase-rest");
    let in_blocks = lines["in_use"] + lines["slack"] + lines["sample_difference"];
    let usable =
        ["in_use", "slack"].map(|what| stated[&("phase-rest".to_owned(), what.to_owned())]);
    assert_near("in blocks", in_blocks, usable.iter().sum());
}

/// Without an interval there is no reading, and `heapprof rss` says why.
#[test]
fn without_readings_rss_says_so() {
    let ran = Run::fixture("resident_memory")
        .arg("idle")
        .interval(1)
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "0")
        .run()
        .well();
    assert_eq!(ran.log().readings().count(), 0);
    let shown = Run::heapprof().arg("rss").arg(ran.log_path()).run();
    assert_eq!(shown.code(), 1);
    assert!(
        shown.stderr.contains("HEAPPROF_MEMORY_INTERVAL_MS=0"),
        "{}",
        shown.stderr
    );
}

/// An idle process has the reading of its end, and at most those until it became idle.
#[test]
fn an_idle_process_is_not_woken_for_readings() {
    let idle = |interval: &str| {
        let ran = Run::fixture("idle")
            .arg("4")
            .interval(1)
            .env("HEAPPROF_MEMORY_INTERVAL_MS", interval)
            .run()
            .well();
        let wakeups = ran.stdout.lines().find_map(|line| {
            let number = line.strip_prefix("idle_wakeups ")?;
            number.parse::<u64>().ok()
        });
        (
            wakeups.expect("what it measured"),
            ran.log().readings().count(),
        )
    };
    let (without, none) = idle("0");
    let (with, some) = idle("50");
    println!("{without} wake-ups without readings, {with} with {some}");
    assert_eq!(none, 0);
    assert!((1..=3).contains(&some), "{some} readings");
    assert!(with <= without + 1, "{with} wake-ups, {without} without");
}

/// At 80, 90 and 95 % of a limit of the address space, each once.
#[test]
fn a_limit_that_is_near_is_marked() {
    let ran = Run::compiled(
        "nears_its_limit",
        r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/resource.h>
        #include <unistd.h>
        int main(void) {
            size_t size = 0;
            char line[256];
            FILE *status = fopen("/proc/self/status", "r");
            while (status && fgets(line, sizeof line, status))
                if (sscanf(line, "VmSize: %zu", &size) == 1) break;
            size_t limit = (size << 10) + (1000 << 20);
            struct rlimit most = {limit, limit};
            if (setrlimit(RLIMIT_AS, &most)) return 1;
            size_t percent[] = {70, 82, 83, 78, 83, 91, 96, 50, 82};
            char *mapped = NULL;
            size_t length = 0;
            for (unsigned i = 0; i < sizeof percent / sizeof *percent; i++) {
                if (mapped) munmap(mapped, length);
                length = limit / 100 * percent[i] - (size << 10);
                mapped = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                if (mapped == MAP_FAILED) return 2;
                for (int tick = 0; tick < 16; tick++) {
                    free(malloc(1000 + tick));
                    usleep(50000);
                }
            }
            return 0;
        }
        "#,
        &[],
    )
    .interval(1)
    .env("HEAPPROF_MEMORY_INTERVAL_MS", "50")
    .run()
    .well();
    let log = ran.log();
    let shares: Vec<&str> = log
        .markers()
        .into_iter()
        .filter_map(|name| name.strip_prefix("memory at "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    assert_eq!(shares, ["80", "90", "95", "80"], "{:?}", log.markers());
}

/// There is no reading but those that are asked for: each `heapprof rss PID` has a newer one, which
/// is of the process as it is now.
#[test]
fn a_process_that_is_named_takes_a_reading_at_once() {
    let run = service("steady").interval(4096);
    let mut running = started(run.env("HEAPPROF_MEMORY_INTERVAL_MS", "0"));
    running.until("a sample", |running| samples_so_far(running, 23001) > 0);
    let pid = running.pid().to_string();
    let asked = || {
        let shown = Run::heapprof().args(["rss", "--json", &pid]).run().well();
        let Json(document) = Json::parse(&shown.stdout);
        let number = |key: &str| document[key].as_f64().unwrap();
        // The kernel walks all page tables for it: not at a start, unless somebody asks.
        let proportional = document["reading"]["proportional"].as_u64();
        assert!(proportional.is_some_and(|bytes| bytes > 0), "{document:#}");
        (number("reading_ns"), number("resident_bytes"))
    };
    let (first_ns, _) = asked();
    const PAUSE: Duration = Duration::from_millis(300);
    std::thread::sleep(PAUSE);
    let (second_ns, resident) = asked();
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    let between = Duration::from_nanos((second_ns - first_ns) as u64);
    assert!(between >= PAUSE, "{between:?}");
    assert_near("resident", resident, pages * 4096.0);
    ended(running);
}

/// A program whose memory is highest between two readings.
const RISES_AND_FALLS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void)
{
    void *volatile kept = malloc(100000);
    const size_t size = 96 << 20;
    void *mapped = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mapped, 1, size);
    munmap(mapped, size);
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0 || strncmp(line, "VmRSS:", 6) == 0)
            fputs(line, stdout);
    fclose(status);
    return kept == 0;
}
"#;

/// The most resident memory is the kernel's own maximum, which no reading has seen.
#[test]
fn the_most_resident_memory_is_that_of_the_kernel() {
    let run = Run::compiled("rises_and_falls", RISES_AND_FALLS, &["-O1"]);
    let run = run.interval(1).prefix("t");
    let ran = run
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "3600000")
        .run()
        .well();
    let stated = |name: &str| {
        let line = ran.stdout.lines().find_map(|line| line.strip_prefix(name));
        let number = line.unwrap().trim().trim_end_matches(" kB");
        number.parse::<f64>().unwrap() * 1024.0
    };
    let (most, now) = (stated("VmHWM:"), stated("VmRSS:"));
    assert!(most > now + 90.0 * MIB, "{most} at most, {now} now");
    let log = Log::read(&ran.log_path());
    let counter = |wanted| {
        let mut counters = log.profile.account.counters.iter();
        counters.find_map(|&(counter, n)| (counter == wanted).then_some(n as f64))
    };
    assert_near("most", counter(Counter::MostResidentBytes).unwrap(), most);
    assert!(counter(Counter::ResidentBytes).unwrap() < most - 90.0 * MIB);
    let top = Run::heapprof().arg("top").arg(ran.log_path()).run().well();
    let line = top
        .stdout
        .lines()
        .find(|line| line.starts_with("resident memory (RSS)"));
    let most_shown = line.and_then(|line| line.split(", ").last()).unwrap();
    let number: f64 = most_shown.split(' ').next().unwrap().parse().unwrap();
    assert_near("shown", number * MIB, most);
    assert!(most_shown.ends_with(" MiB at most"), "{}", top.stdout);
}

/// A program whose threads have stacks in memory from malloc.
const STACKS_IN_BLOCKS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
enum { THREADS = 4, STACK = 8 << 20, USED = 4 << 20 };
void HeapProfilerDump(const char *) __attribute__((weak));
static pthread_barrier_t all_have_used, all_may_end;
static void *uses(void *argument)
{
    char on_stack[USED];
    memset(on_stack, 1, sizeof on_stack);
    __asm__ volatile("" ::"r"(on_stack) : "memory");
    pthread_barrier_wait(&all_have_used);
    pthread_barrier_wait(&all_may_end);
    return argument;
}
int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&all_have_used, 0, THREADS + 1);
    pthread_barrier_init(&all_may_end, 0, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        void *stack;
        pthread_attr_t attributes;
        if (posix_memalign(&stack, 4096, STACK) != 0 || pthread_attr_init(&attributes) != 0)
            return 1;
        if (pthread_attr_setstack(&attributes, stack, STACK) != 0)
            return 1;
        if (pthread_create(&threads[i], &attributes, uses, 0) != 0)
            return 1;
    }
    pthread_barrier_wait(&all_have_used);
    HeapProfilerDump("stacks");
    pthread_barrier_wait(&all_may_end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    return 0;
}
"#;

/// Such a stack is a block, and counts once.
#[test]
fn stacks_in_blocks_count_once() {
    let run = Run::compiled("stacks_in_blocks", STACKS_IN_BLOCKS, &["-O1", "-pthread"]);
    let ran = run.interval(1).prefix("t").run().well();
    let (lines, resident) = ran.waterfall("stacks");
    assert_near("in use", lines["in_use"], 32.0 * MIB);
    assert!(lines["stacks"] < 0.5 * MIB, "{lines:?}");
    assert!(lines["untouched"] <= -15.0 * MIB, "{lines:?}");
    assert!(lines["not_explained"].abs() < 0.02 * resident, "{lines:?}");
}

/// A thread whose stack is a variable of the program.
const STACK_IN_A_VARIABLE: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static char stack[8 << 20] __attribute__((aligned(4096)));
    static void *runs(void *unused) {
        char used[4 << 20];
        memset(used, 1, sizeof used);
        __asm__ volatile("" : : "r"(used) : "memory");
        for (int i = 0; i < 150; i++) {
            free(malloc(1000));
            usleep(10000);
        }
        return unused;
    }
    int main(void) {
        pthread_attr_t attr;
        pthread_t thread;
        pthread_attr_init(&attr);
        pthread_attr_setstack(&attr, stack, sizeof stack);
        pthread_create(&thread, &attr, runs, 0);
        return pthread_join(thread, 0);
    }
"#;

#[test]
fn a_stack_in_a_variable_counts_once() {
    let ran = Run::compiled("stack_in_a_variable", STACK_IN_A_VARIABLE, &["-pthread"])
        .interval(1)
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "100")
        .run()
        .well();
    let (lines, resident) = ran.waterfall("50%");
    assert!(lines["stacks"] > 4.0 * MIB, "{lines:?}");
    assert!(lines["variables"] < 1.0 * MIB, "{lines:?}");
    assert!(lines["not_explained"].abs() < 0.05 * resident, "{lines:?}");
}

/// Blocks of four pages, to each of which jemalloc adds one.
const FOUR_PAGES: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static char *volatile kept[2000];
    int main(void) {
        for (int i = 0; i < 2000; i++) memset(kept[i] = malloc(16384), 1, 16384);
        for (int i = 0; i < 130; i++) {
            free(malloc(1000));
            usleep(10000);
        }
        return 0;
    }
"#;

#[test]
fn the_padding_of_large_blocks_is_no_slab() {
    let ran = Run::compiled("four_pages", FOUR_PAGES, &["-fno-builtin"])
        .interval(1)
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "100")
        .run()
        .well();
    let (lines, _) = ran.waterfall("end");
    assert_near("padding", lines["padding"], 2000.0 * 4096.0);
    assert!(lines["slabs"] < 0.5 * MIB, "{lines:?}");
    assert!(lines["in_use"] >= 2000.0 * 16384.0, "{lines:?}");
}

/// A hundred threads, each with a cache, and the program locks its memory if that is asked for.
const THREADS: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static char *volatile kept[100];
    static void *waits(void *slot) {
        *(char *volatile *)slot = malloc(1000);
        sleep(1);
        return 0;
    }
    int main(int argc, char **argv) {
        if (argc > 1 && mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
            perror("mlockall");
            return 77;
        }
        pthread_t threads[100];
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 64 << 10);
        for (int i = 0; i < 100; i++) pthread_create(&threads[i], &attr, waits, (void *)&kept[i]);
        for (int i = 0; i < 150; i++) {
            free(malloc(100000));
            usleep(10000);
        }
        for (int i = 0; i < 100; i++) pthread_join(threads[i], 0);
        return 0;
    }
"#;

/// The allocator takes the place of a cache from itself. It is not the program's.
#[test]
fn the_caches_of_threads_are_the_allocators_own_data() {
    let ran = Run::compiled("threads_with_caches", THREADS, &["-pthread"])
        .interval(1)
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "100")
        .run()
        .well();
    let (lines, resident) = ran.waterfall("30%");
    assert!(lines["metadata"] > 2.0 * MIB, "{lines:?}");
    assert!(lines["sample_difference"].abs() < 0.1 * MIB, "{lines:?}");
    assert!(lines["not_explained"].abs() < 0.05 * resident, "{lines:?}");
}

/// Pages that the allocator gives back to the kernel stay resident where they are locked.
#[test]
fn locked_pages_that_the_allocator_has_given_back_have_a_line() {
    let run = Run::compiled("locked", THREADS, &["-pthread"]).interval(1);
    let run = run.env("HEAPPROF_MEMORY_INTERVAL_MS", "100");
    let ran = run.arg("locked").run();
    if ran.code() == 77 {
        // A container may permit 64 KiB.
        assert!(ran.stderr.contains("mlockall: "), "{}", ran.stderr);
        return;
    }
    let ran = ran.well();
    let (lines, resident) = ran.waterfall("50%");
    assert!(lines["retained"] > MIB, "{lines:?}");
    assert!(lines["not_explained"].abs() < 0.05 * resident, "{lines:?}");
}

/// Half a million blocks, and a buffer of which a quarter is touched.
const MANY_BLOCKS: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static char *volatile kept[500000];
    int main(void) {
        for (int i = 0; i < 500000; i++) memset(kept[i] = malloc(100), 1, 100);
        char *volatile buffer = malloc(64 << 20);
        memset(buffer, 1, 16 << 20);
        puts("ready");
        fflush(stdout);
        while (access("told", F_OK) != 0) usleep(10000);
        return 0;
    }
"#;

/// A reading of so many blocks takes longer than the reading of the memory that follows it.
#[test]
fn untouched_pages_are_known_at_once_however_many_blocks_there_are() {
    let run = Run::compiled("many_blocks", MANY_BLOCKS, &[]).interval(1);
    let running = started(run.env("HEAPPROF_ALLOCATOR", "program"));
    let pid = running.pid().to_string();
    let shown = Run::heapprof().args(["rss", "--json", &pid]).run().well();
    let Json(document) = Json::parse(&shown.stdout);
    let lines = document["lines"].as_array().unwrap();
    let untouched = lines.iter().find(|line| line["key"] == "untouched");
    let untouched = untouched.unwrap()["bytes"].as_f64().unwrap();
    assert_near("untouched", untouched, -48.0 * MIB);
    let caveats = document["caveats"].to_string();
    assert!(!caveats.contains("are not known"), "{document:#}");
    ended(running);
}
