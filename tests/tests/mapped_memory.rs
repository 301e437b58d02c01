//! Mappings: each is shown with the function that made it, as the program itself states it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use heapprof_tests::{Finished, Json, Run, is_over_musl, waterfall_of};

const MIB: u64 = 1 << 20;
/// Most bytes of the guard pages of a few stacks, which libc may add to a stack.
const GUARDS: u64 = 256 << 10;

/// Runs the fixture, with readings at dumps alone.
fn ran(allocator: &str, least: &str) -> Finished {
    Run::fixture("mapped_memory")
        .interval(1)
        .prefix("t")
        .env("HEAPPROF_ALLOCATOR", allocator)
        .env("HEAPPROF_MMAP", least)
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "3600000")
        .run()
        .well()
}

/// The bytes of each line of `heapprof top`.
fn top(log: &Path, options: &[&str]) -> BTreeMap<String, u64> {
    let shown = Run::heapprof()
        .args(["top", "--json", "-n", "0"])
        .args(options)
        .arg(log)
        .run()
        .well();
    let Json(document) = Json::parse(&shown.stdout);
    println!("{options:?}: {document:#}");
    let lines = document["groups"].as_array().unwrap().iter();
    lines
        .map(|line| {
            let name = line["name"].as_str().unwrap().to_owned();
            (name, line["self"].as_f64().unwrap() as u64)
        })
        .collect()
}

fn by_function(log: &Path, metric: &str, at: &str) -> BTreeMap<String, u64> {
    top(log, &["--by", "function", "-m", metric, "--at", at])
}

/// The numbers that the fixture states: mapped and resident bytes of each function.
fn stated(ran: &Finished) -> Vec<(String, [u64; 2])> {
    let lines = ran.stdout.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        (words[0].to_owned(), [number(1), number(2)])
    });
    lines.collect()
}

fn rss(log: &Path, at: &str) -> BTreeMap<String, f64> {
    let (mut lines, document) = waterfall_of(log, at);
    let resident = document["resident_bytes"].as_f64().unwrap();
    lines.insert("resident".into(), resident);
    lines
}

#[test]
fn mapped_memory() {
    let ran = ran("jemalloc", "65536");
    let log = ran.folder().join("t.heaplog");
    let mapped = by_function(&log, "mapped", "all-mapped");
    let resident = by_function(&log, "mapped-resident", "all-mapped");
    for (function, [of_mapped, of_resident]) in stated(&ran) {
        let of = |shown: &BTreeMap<String, u64>| shown.get(&function).copied().unwrap_or(0);
        if ["makes_threads", "maps_stack"].contains(&&*function) {
            assert!((of_mapped..of_mapped + GUARDS).contains(&of(&mapped)));
            // Over musl it is not known where the stacks of libc's lie.
            let is_near = of(&resident).abs_diff(of_resident) <= 64 << 10;
            assert!(is_near || is_over_musl(), "{function}: {resident:?}");
            continue;
        }
        assert_eq!(of(&mapped), of_mapped, "{function}");
        assert_eq!(of(&resident), of_resident, "{function}");
    }
    // A mapping that ends is gone from that moment on.
    let later = by_function(&log, "mapped", "some-unmapped");
    assert_eq!(later.get("maps_pool"), None);
    assert_eq!(later.get("grows"), None);
    // The reading of that dump forgets the stacks of the threads that have ended.
    let at_end = by_function(&log, "mapped", "end");
    assert_eq!(at_end.get("makes_threads"), None);
    assert_eq!(later["maps_with_hole"], 12 * MIB);

    // The bare system call and the small mapping have names and no stack. A kernel without names
    // for memory shows it with the rest.
    let names = top(&log, &["--by", "mapping", "--at", "all-mapped"]);
    let bare = names.get("[anon:made-bare]").copied();
    assert!(bare.is_none_or(|bytes| bytes == 7 * MIB), "{names:?}");
    let anonymous = names["[anonymous]"] + bare.unwrap_or(0);
    // Over musl it is not known which anonymous memory libc has mapped for stacks.
    let of_stacks = ["makes_threads", "maps_stack"].map(|function| {
        let is_it = |(name, _): &&(String, [u64; 2])| name == function;
        let stated = stated(&ran);
        stated.iter().find(is_it).unwrap().1[1]
    });
    let [in_unrecorded, in_mapped] = match is_over_musl() {
        true => of_stacks,
        false => [0, 0],
    };
    let by_calls = (24 + 12 + 12 + 2) * MIB + in_mapped;
    let others = 7 * MIB + in_unrecorded;
    assert!(
        (by_calls + others..by_calls + others + 2 * MIB).contains(&anonymous),
        "{names:?}"
    );
    let is_file = |name: &&String| name.contains("/mapped-");
    let file = names.keys().find(is_file).expect("the file's name");
    assert_eq!(names[file], 5 * MIB);

    if !is_over_musl() {
        let all = of_stacks.iter().sum::<u64>();
        assert!(names["[thread stack]"].abs_diff(all) <= 64 << 10);
        assert!(names["[stack]"] > 0);
    }

    // Stacks are a line of their own, also the one that the program has mapped.
    let lines = rss(&log, "all-mapped");
    assert_eq!(lines["mapped"], by_calls as f64);
    let unrecorded = lines["mapped_unrecorded"] as u64;
    assert!((others..others + 2 * MIB).contains(&unrecorded));
    assert!(lines["not_explained"].abs() < 0.02 * lines["resident"]);
}

/// A stack begins with the function that the program has called.
#[test]
fn a_stack_begins_with_the_function_that_maps() {
    let ran = ran("jemalloc", "65536");
    let log = ran.folder().join("t.heaplog");
    let folded = Run::heapprof()
        .args(["export", "-f", "folded", "-m", "mapped"])
        .args(["--at", "all-mapped"])
        .arg(&log)
        .run()
        .well()
        .stdout;
    let stacks = folded.lines().filter(|line| line.contains(';'));
    let functions: BTreeSet<&str> = stacks
        .map(|line| {
            let (stack, _) = line.rsplit_once(' ').expect("a number");
            stack.rsplit(';').next().expect("a frame")
        })
        .collect();
    // One function has both names over musl.
    let is_known = |it: &&str| ["mmap", "mmap64", "mremap", "sbrk", "pthread_create"].contains(it);
    assert!(functions.iter().all(is_known), "{functions:?}");
    for function in ["mremap", "pthread_create"] {
        assert!(functions.contains(function), "{functions:?}");
    }
}

#[test]
fn a_child_has_its_own_mappings_alone() {
    let ran = ran("jemalloc", "65536");
    let is_child = |name: &String| name.starts_with("t_");
    let logs = ran.files_ending(".heaplog");
    let child = logs.iter().find(|name| is_child(name)).unwrap();
    let mapped = by_function(&ran.folder().join(child), "mapped", "in-child");
    assert_eq!(mapped["maps_in_child"], 3 * MIB);
    for of_parent in ["maps_pool", "maps_with_hole", "grows", "makes_threads"] {
        assert_eq!(mapped.get(of_parent), None, "{of_parent}");
    }
}

#[test]
fn the_programs_own_allocator_counts_once() {
    let ran = ran("program", "65536");
    let log = ran.folder().join("t.heaplog");
    let mapped = by_function(&log, "mapped", "all-mapped");
    assert_eq!(mapped["maps_pool"], 32 * MIB);
    let lines = rss(&log, "all-mapped");
    // glibc's own mappings are not recorded, and have the blocks. Then the others are a line.
    let own = lines.get("mapped").copied().unwrap_or(0.0);
    assert!(own + lines["mapped_rest"] > 56.0 * MIB as f64);
    assert!(!lines.contains_key("mapped_unrecorded"));
    assert!(lines["not_explained"].abs() < 0.02 * lines["resident"]);
}

#[test]
fn a_setting_chooses_which_are_recorded() {
    let none = ran("jemalloc", "0");
    let log = none.folder().join("t.heaplog");
    let mapped = by_function(&log, "mapped", "all-mapped");
    assert_eq!(mapped.get("maps_pool"), None);
    // They are shown without their stacks.
    let lines = rss(&log, "all-mapped");
    assert_eq!(lines.get("mapped"), None);
    assert!(lines["mapped_unrecorded"] > 57.0 * MIB as f64);

    let small = ran("jemalloc", "4096");
    let log = small.folder().join("t.heaplog");
    let mapped = by_function(&log, "mapped", "all-mapped");
    assert_eq!(mapped["maps_tiny"], 32 << 10);
    assert_eq!(mapped["maps_pool"], 32 * MIB);
}

/// A dump reads the list of mappings while the program maps, and the call's event comes later.
#[test]
fn a_mapping_that_comes_while_the_list_is_read_counts_once() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        __attribute__((noinline)) static void *maps_pool(size_t size)
        {
            char *pool = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(pool, 1, size / 4);
            return pool;
        }
        int main(void)
        {
            for (int i = 0; i < 12; i++)
                memset(malloc(10 << 20), 1, 1 << 20);
            char *pool = maps_pool(200 << 20);
            usleep(300000);
            return pool == 0;
        }
    "#;
    let run = Run::compiled("maps_after_a_dump", SOURCE, &["-g"]).prefix("t");
    let ran = run.run().well();
    assert!(!ran.files_ending(".heap").is_empty(), "no dump");
    let log = ran.folder().join("t.heaplog");
    let words = ["top", "-m", "mapped", "--json", "-n", "0", "--at", "90%"];
    let Json(top) = Json::parse(&Run::heapprof().args(words).arg(&log).run().well().stdout);
    let mib = top["total"].as_f64().unwrap() / f64::from(1 << 20);
    assert!((200.0..202.0).contains(&mib), "{top:#}");
    let pool = &top["sites"][0];
    assert_eq!(pool["function"], "maps_pool", "{top:#}");
}

/// Without a sample there is no session, and changes of mappings wait for one until the end.
#[test]
fn a_program_without_a_sample_has_its_mappings() {
    const SOURCE: &str = r#"
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        __attribute__((noinline)) static char *maps_pool(size_t size)
        {
            return mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        __attribute__((noinline)) static char *maps_late(size_t size)
        {
            return mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        int main(void)
        {
            char *pool = maps_pool(30 << 20);
            munmap(pool, 10 << 20);
            usleep(500000);
            char *late = maps_late(5 << 20);
            memset(late, 1, 5 << 20);
            usleep(500000);
            return pool == late;
        }
    "#;
    let run = Run::compiled("maps_alone", SOURCE, &["-g"]).interval(1 << 40);
    let ran = run.prefix("t").run().well();
    let log = ran.folder().join("t.heaplog");
    let early = by_function(&log, "mapped", "30%");
    assert_eq!(
        (early["maps_pool"], early.get("maps_late")),
        (20 * MIB, None)
    );
    let at_end = by_function(&log, "mapped", "end");
    assert_eq!(
        (at_end["maps_pool"], at_end["maps_late"]),
        (20 * MIB, 5 * MIB)
    );
    let resident = by_function(&log, "mapped-resident", "end");
    assert_eq!(
        (resident.get("maps_pool"), resident["maps_late"]),
        (None, 5 * MIB)
    );
}

/// A page that was only read is the kernel's page of zeros, and takes no memory.
#[test]
fn pages_of_zeros_are_not_resident() {
    const SOURCE: &str = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/ioctl.h>
        #include <sys/mman.h>
        enum { LEN = 64 << 20 };
        __attribute__((noinline)) static char *reads(char *at, int written)
        {
            long sum = 0;
            madvise(at, LEN, MADV_NOHUGEPAGE);
            for (long i = 0; i < LEN; i += 4096)
                sum += *(volatile char *)(at + i);
            for (long i = 0; i < written; i += 4096)
                at[i] = 1;
            return sum == 0 ? at : 0;
        }
        int main(void)
        {
            int prot = PROT_READ | PROT_WRITE;
            char *mapped = mmap(0, LEN, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *block = aligned_alloc(4096, LEN);
            if (!reads(mapped, 4 << 20) || !reads(block, 8 << 20))
                return 1;
            /* Linux knows the call from 6.7 on. */
            uint64_t scan[12] = {sizeof scan};
            int map = open("/proc/self/pagemap", O_RDONLY);
            int fails = ioctl(map, 0xc0606610, scan) < 0 && errno == ENOTTY;
            puts(fails ? "unknown" : "known");
            return 0;
        }
    "#;
    let run = Run::compiled("reads_zeros", SOURCE, &["-g"]).prefix("t");
    let ran = run.env("HEAPPROF_PAGES", "3600").run().well();
    if ran.stdout.trim() == "unknown" {
        return;
    }
    let log = ran.folder().join("t.heaplog");
    let lines = rss(&log, "end");
    assert_eq!(lines["mapped"], 4.0 * MIB as f64);
    let touched = lines["in_use"] + lines["untouched"];
    assert!(touched < 10.0 * MIB as f64, "{lines:?}");
    assert!(lines["not_explained"].abs() < 0.02 * lines["resident"]);
    let resident = by_function(&log, "mapped-resident", "end");
    assert_eq!(resident["main"], 4 * MIB);
}

/// No recorded call makes it, and the kernel's list has its name.
#[test]
fn shared_memory_is_listed_by_name() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <string.h>
        #include <sys/ipc.h>
        #include <sys/shm.h>
        int main(void)
        {
            int id = shmget(IPC_PRIVATE, 16 << 20, IPC_CREAT | 0600);
            char *shared = shmat(id, 0, 0);
            shmctl(id, IPC_RMID, 0);
            if (shared == (void *)-1)
                return 1;
            memset(shared, 1, 12 << 20);
            return !malloc(4 << 20);
        }
    "#;
    let run = Run::compiled("shares_memory", SOURCE, &["-fno-builtin"]);
    let ran = run.prefix("t").run().well();
    let log = ran.folder().join("t.heaplog");
    let names = top(&log, &["--by", "mapping"]);
    let is_segment = |(name, _): &(&String, &u64)| name.starts_with("/SYSV");
    let segment = names.iter().find(is_segment);
    assert_eq!(segment.expect("its name").1, &(12 * MIB), "{names:?}");
    let lines = rss(&log, "end");
    let shared = lines["shared"] / MIB as f64;
    assert!((12.0..13.0).contains(&shared), "{lines:?}");
    assert!(lines["not_explained"].abs() < 0.02 * lines["resident"]);
}

/// A program with more mappings than the library lists: every second page of one has other rights.
const MANY_MAPPINGS: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
enum { PAIRS = 8000, PAGE = 4096 };
void HeapProfilerDump(const char *) __attribute__((weak));
int main(void)
{
    void *volatile kept = malloc(100000);
    const size_t len = (size_t)PAIRS * 2 * PAGE;
    char *all = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(all, len, MADV_NOHUGEPAGE);
    for (int i = 0; i < PAIRS; i++) {
        all[(size_t)i * 2 * PAGE] = 1;
        if (mprotect(all + (size_t)(i * 2 + 1) * PAGE, PAGE, PROT_READ) != 0)
            return 1;
    }
    HeapProfilerDump("many");
    return kept == 0;
}
"#;

/// Without the kernel's list, recorded mappings are known, and it is said that others are not.
#[test]
fn recorded_mappings_are_known_without_the_kernels_list() {
    let run = Run::compiled("many_mappings", MANY_MAPPINGS, &["-O1"]).interval(1);
    let ran = run.prefix("t").run().well();
    let log = ran.folder().join("t.heaplog");
    let lines = rss(&log, "many");
    let touched = (8000 * 4096) as f64;
    assert_eq!(lines["mapped"], touched);
    assert!(!lines.contains_key("mapped_unrecorded"));
    assert!(lines["not_explained"].abs() < 0.02 * lines["resident"]);
    let resident = by_function(&log, "mapped-resident", "many");
    assert_eq!(resident["main"], touched as u64);
    let text = Run::heapprof().arg("rss").arg(&log).run().well().stdout;
    assert!(text.contains("longer than 512 KiB"), "{text}");
}

/// Two files whose private pages are written: one is mapped past the library and protected
/// afterwards, as a library's relocated data is; the other's path is not UTF-8.
const FILES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define MIB (1 << 20)
static int file(const char *path, size_t bytes)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, bytes) != 0) abort();
    return file;
}
int main(void)
{
    int first = file("protected.dat", 20 * MIB), second = file("caf\xe9.dat", 30 * MIB);
    int writable = PROT_READ | PROT_WRITE;
    char *bare = (char *)syscall(SYS_mmap, NULL, 20 * MIB, writable, MAP_PRIVATE, first, 0);
    memset(bare, 1, 20 * MIB);
    if (mprotect(bare, 20 * MIB, PROT_READ) != 0) abort();
    memset(mmap(NULL, 30 * MIB, writable, MAP_PRIVATE, second, 0), 1, 30 * MIB);
    char *volatile block = malloc(1000);
    return block == NULL;
}
"#;

#[test]
fn written_pages_of_files_count_whatever_their_protection_and_path() {
    let ran = Run::compiled("writes_files", FILES, &["-g"])
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let log = ran.folder().join("t.heaplog");
    let lines = rss(&log, "end");
    let near = |line: &str, mib: f64| (lines[line] - mib * MIB as f64).abs() < MIB as f64;
    assert!(
        near("mapped", 30.0) && near("not_explained", 0.0),
        "{lines:?}"
    );
    assert!(lines["mapped_unrecorded"] >= 20.0 * MIB as f64, "{lines:?}");
    assert_eq!(
        by_function(&log, "mapped", "end").get("main"),
        Some(&(30 * MIB))
    );
    let named = top(&log, &["--by", "mapping", "-m", "mapped-resident"]);
    let of = |end: &str| {
        named
            .iter()
            .find(|(name, _)| name.ends_with(end))
            .map(|it| *it.1)
    };
    assert_eq!(of("protected.dat"), Some(20 * MIB), "{named:?}");
    let of_second = named.iter().filter(|(name, _)| name.contains("caf"));
    assert_eq!(of_second.map(|it| it.1).sum::<u64>(), 30 * MIB, "{named:?}");
}

/// More threads than the library reads stacks of, each with a stack of 256 KiB, all at once.
const MANY_THREADS: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    void HeapProfilerDump(const char *reason) __attribute__((weak));
    static pthread_barrier_t all;
    static void *runs(void *unused) {
        pthread_barrier_wait(&all);
        pthread_barrier_wait(&all);
        return unused;
    }
    int main(void) {
        enum { COUNT = 700 };
        pthread_t threads[COUNT];
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 256 << 10);
        pthread_barrier_init(&all, 0, COUNT + 1);
        for (int i = 0; i < COUNT; i++) pthread_create(&threads[i], &attr, runs, 0);
        pthread_barrier_wait(&all);
        HeapProfilerDump("all");
        pthread_barrier_wait(&all);
        for (int i = 0; i < COUNT; i++) pthread_join(threads[i], 0);
        return 0;
    }
"#;

#[test]
fn the_stacks_of_many_threads_count_once() {
    if is_over_musl() {
        return; // see mapped_memory
    }
    let ran = Run::compiled("many_threads", MANY_THREADS, &["-pthread"])
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let log = ran.folder().join("t.heaplog");
    let names = top(
        &log,
        &["--by", "mapping", "-m", "mapped", "--at", "dump: all"],
    );
    let stacks = (700 * (256 + 4)) << 10; // with guard pages
    let all: u64 = names.values().sum();
    assert!(
        (stacks - 2 * MIB..stacks + 20 * MIB).contains(&all),
        "{names:?}"
    );
}

/// Shared memory in the place of 20 of the 32 MiB of a block.
const OVER_BLOCKS: &str = r#"
    #define _GNU_SOURCE
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    void HeapProfilerDump(const char *reason) __attribute__((weak));
    int main(void) {
        enum { MIB = 1 << 20 };
        char *volatile block = aligned_alloc(4096, 32 * MIB);
        memset(block, 1, 32 * MIB);
        int file = memfd_create("ring", 0);
        if (ftruncate(file, 20 * MIB) != 0) return 1;
        int protection = PROT_READ | PROT_WRITE;
        char *over = mmap(block, 20 * MIB, protection, MAP_SHARED | MAP_FIXED, file, 0);
        if (over != block) return 1;
        memset(over, 2, 20 * MIB);
        HeapProfilerDump("over");
        return 0;
    }
"#;

#[test]
fn shared_memory_over_blocks_counts_once() {
    let ran = Run::compiled("over_blocks", OVER_BLOCKS, &[])
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let log = ran.folder().join("t.heaplog");
    let lines = rss(&log, "dump: over");
    let mib = MIB as f64;
    for (line, expected) in [("in_use", 32.0), ("shared", 20.0)] {
        let difference = lines[line] - expected * mib;
        assert!(difference.abs() < mib, "{line}: {lines:?}");
    }
    // Other pages may be in this line.
    assert!(lines["untouched"] < -19.0 * mib, "{lines:?}");
    assert!(lines["not_explained"].abs() < 0.5 * mib, "{lines:?}");
    let at = ["--at", "dump: over"];
    let names = top(
        &log,
        &[&["--by", "mapping", "-m", "mapped-resident"][..], &at].concat(),
    );
    assert_eq!(names["/memfd:ring (deleted)"], 20 * MIB);
    let allocators = top(
        &log,
        &[&["--by", "allocator", "-m", "mapped"][..], &at].concat(),
    );
    assert_eq!(allocators["none: mapped"], 20 * MIB);
}
