//! Taps: allocators that are linked into the program are recorded at the entries of their
//! functions.

use heapprof_tests::{Archive, Build, Json, Log, Run, linked, may_mount};

/// The allocators of the distribution that can be linked statically.
const ARCHIVES: [&str; 2] = ["libjemalloc.a", "libtcmalloc_minimal.a"];

/// Without taps there is one line, and the program runs as it does alone.
#[test]
fn taps_can_be_switched_off() {
    let owns_malloc = |archive: &Archive| archive.prefix.is_empty();
    for archive in Archive::all().into_iter().filter(owns_malloc) {
        let run = archive.truth().interval(1).prefix("t");
        let ran = run.env("HEAPPROF_TAP", "0").run().well();
        ran.assert_said(&[
            "has its own malloc",
            "HEAPPROF_TAP=0",
            "nothing is recorded",
        ]);
        assert_eq!(ran.files_ending(".heaplog"), [""; 0], "{archive:?}");
    }
}

/// jemalloc's functions that C does not have, and an exception through a tapped operator.
#[test]
fn functions_that_c_does_not_have_are_recorded() {
    const SOURCE: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <new>
extern "C" void *mallocx(size_t, int);
extern "C" void *rallocx(void *, size_t, int);
extern "C" size_t xallocx(void *, size_t, size_t, int);
extern "C" void dallocx(void *, int);
extern "C" void sdallocx(void *, size_t, int);
static void *volatile kept[100];
int main()
{
    for (int i = 0; i < 10; i++) kept[i] = mallocx(1111, 0);
    for (int i = 0; i < 5; i++) dallocx(kept[i], 0);
    for (int i = 5; i < 8; i++) sdallocx(kept[i], 1111, 0);
    kept[8] = rallocx(kept[8], 50000, 0);
    size_t usable = xallocx(kept[9], 1200, 0, 0);
    int caught = 0;
    try { kept[20] = new char[(size_t)1 << 62]; } catch (const std::bad_alloc &) { caught++; }
    kept[21] = new char[2222];
    std::printf("%d %d\n", usable >= 1200, caught);
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("functions.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    let flags = [
        "-O0",
        "-fno-builtin",
        &path,
        "-l:libjemalloc.a",
        "-lm",
        "-lpthread",
        "-ldl",
    ];
    let ran = linked(&flags).interval(1).prefix("t").run().well();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("1 1\n", ""));
    let log = ran.log().whole();
    let count = |size: u64| {
        let blocks = log.blocks_of(size);
        let in_use = blocks.iter().filter(|block| block.in_use).count();
        (blocks.len(), in_use)
    };
    assert_eq!(count(1111), (10, 0));
    assert_eq!(count(50_000), (1, 1));
    assert_eq!(count(1200), (1, 1), "resized in place");
    assert_eq!(count(2222), (1, 1), "after an exception");
    let shown = log.named().shown(log.blocks_of(2222)[0].stack);
    assert!(shown.contains("main"), "{shown}");
}

/// A function whose name ends as one of jemalloc's does is no allocator.
#[test]
fn a_name_alone_is_no_allocator() {
    const SOURCE: &str = r#"
extern "C" int my_mallocx(int kind) { return kind; }
extern "C" int my_malloc(int kind) { return kind + 1; }
int main() { return my_mallocx(3) + my_malloc(3); }
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("name.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    let ran = linked(&["-O0", &path]).interval(1).prefix("t").run();
    assert_eq!((ran.code(), ran.stderr.as_str()), (7, ""));
    let info = Run::heapprof()
        .in_folder_of(&ran)
        .args(["info", "t.heaplog"]);
    assert!(!info.run().well().stdout.contains("tapped"));
}

/// Sampled: the law of the estimator holds for tapped functions.
#[test]
fn tapped_functions_are_sampled_as_malloc_is() {
    const SOURCE: &str = r#"
#include <cstdlib>
static void *volatile kept;
int main()
{
    for (int i = 0; i < 400000; i++) kept = malloc(64);
    for (int i = 0; i < 400000; i++) free(kept = calloc(2, 32));
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("sampled.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    for archive in ARCHIVES {
        let library = format!("-l:{archive}");
        let flags = [
            "-O0",
            "-fno-builtin",
            &path,
            &library,
            "-lm",
            "-lpthread",
            "-ldl",
        ];
        let ran = linked(&flags).interval(16 << 10).prefix("t").run().well();
        let numbers = ran.log().whole().profile.numbers();
        // 25.6 MB each at one sample in 16 KiB: a standard error of 2.5 %, and 1.8 % of both.
        let off = |bytes: u64, truth: f64| (bytes as f64 / truth - 1.0).abs();
        assert!(
            off(numbers.in_use_bytes, 25.6e6) < 0.13,
            "{archive}: {numbers:?}"
        );
        assert!(
            off(numbers.allocated_bytes, 51.2e6) < 0.1,
            "{archive}: {numbers:?}"
        );
    }
}

/// Operators that call `malloc`, as those of older jemallocs do. A block has its bytes once on the
/// line by which samples are drawn.
#[test]
fn a_block_of_an_operator_over_malloc_counts_once() {
    const SOURCE: &str = r#"
#include <cstdlib>
#include <new>
static void *volatile kept;
__attribute__((noinline)) void *operator new[](std::size_t size)
{
    void *block = std::malloc(size);
    if (!block) std::abort();
    return block;
}
__attribute__((noinline)) void operator delete[](void *block) noexcept { std::free(block); }
int main()
{
    for (int i = 0; i < 100000; i++) kept = new char[500];
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("operators.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    let flags = ["-O0", "-fno-builtin", &path, "-l:libjemalloc.a", "-lm"];
    let program = |interval| {
        let flags = [&flags[..], &["-lpthread", "-ldl"]].concat();
        linked(&flags).interval(interval).prefix("t").run().well()
    };
    let exact = program(1);
    let numbers = exact.log().whole().profile.numbers();
    assert_eq!(numbers.in_use_bytes, 50_000_000);
    let info = Run::heapprof().in_folder_of(&exact);
    let info = info.args(["info", "t.heaplog"]).run().well().stdout;
    assert!(info.contains("agrees"), "{info}");
    // One sample in 16 KiB: a standard error of 1.8 %.
    let sampled = program(16 << 10).log().whole().profile.numbers();
    let off = sampled.in_use_bytes as f64 / 50e6 - 1.0;
    assert!(off.abs() < 0.1, "{sampled:?}");
}

/// Returns a run of a C program, with a library `libtoy.so` beside it that has an allocator of its
/// own. `lines` stand at the head of the library, and `program` is the program.
fn with_library(lines: &str, program: &str) -> Run {
    const LIBRARY: &str = r#"
#include <pthread.h>
#include <stddef.h>
#include <time.h>
static char memory[1 << 20];
static size_t used;
__attribute__((noinline)) void *toy_mallocx(size_t size, int flags)
{
    if (used + size > sizeof memory) return NULL;
    size_t at = used;
    used += (size + 15 + (size_t)flags) & ~(size_t)15;
    return memory + at;
}
__attribute__((noinline)) void toy_dallocx(void *block, int flags)
{
    if ((char *)block + flags == memory + used) used -= 16;
    if (block == memory) used += 0;
}
void *get(size_t size) { return toy_mallocx(size, 0); }
void put(void *block) { toy_dallocx(block, 0); }
"#;
    let made = Run::tool("gcc");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let library = file("toy.c", &format!("{lines}\n{LIBRARY}"));
    let flags = ["-O1", "-shared", "-fPIC", "-pthread", &library];
    let made = made.args(flags).args(["-o", "libtoy.so"]).run().well();
    let library = made.folder().join("libtoy.so");
    let program = file("program.c", program);
    let run = linked(&["-x", "c", "-O0", &program, "-pthread", "-ldl"]);
    std::fs::copy(library, run.folder().join("bin/libtoy.so")).unwrap();
    run.interval(1).prefix("t")
}

/// Opens the library, gets ten blocks, and puts four of them back.
const OPENS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int goes_on = 1;
static void *spin(void *none) { while (goes_on) ; return none; }
int main(int count, char **arguments)
{
    pthread_t thread;
    int has_thread = count > 1;
    if (has_thread) pthread_create(&thread, NULL, spin, NULL);
    for (int round = 0; round < 3; round++) {
        void *library = dlopen("bin/libtoy.so", RTLD_NOW);
        if (library == NULL) { puts(dlerror()); return 1; }
        void *(*get)(size_t) = (void *(*)(size_t))dlsym(library, "get");
        void (*put)(void *) = (void (*)(void *))dlsym(library, "put");
        void *blocks[10];
        for (int i = 0; i < 10; i++) blocks[i] = get(1000 + (size_t)round);
        for (int i = 0; i < 4; i++) put(blocks[i]);
        if (round < 2) dlclose(library);
    }
    goes_on = 0;
    if (has_thread) pthread_join(thread, NULL);
    return 0;
}
"#;

/// Also if the library goes and comes again, at the same place, and if a thread runs meanwhile.
#[test]
fn allocators_of_opened_libraries_are_recorded() {
    let threads: [&[&str]; 2] = [&[], &["thread"]];
    for arguments in threads {
        let ran = with_library("", OPENS).args(arguments).run().well();
        assert_eq!(ran.said(), [""; 0]);
        let log = ran.log().whole();
        for round in 0..3 {
            let blocks = log.blocks_of(1000 + round);
            let in_use = blocks.iter().filter(|block| block.in_use).count();
            assert_eq!((blocks.len(), in_use), (10, 6), "round {round}");
        }
        let shown = log.named().shown(log.blocks_of(1002)[0].stack);
        assert!(
            shown.contains("get") && shown.contains("main"),
            "round 2: {shown}"
        );
        let info = Run::heapprof()
            .in_folder_of(&ran)
            .args(["info", "t.heaplog"]);
        let info = info.run().well().stdout;
        let tapped = info.lines().filter(|line| line.contains("  tapped "));
        assert_eq!(tapped.filter(|line| line.ends_with(" s on")).count(), 1);
        let allocators = info.split_once("\nAllocators\n").unwrap().1;
        let toy = allocators
            .lines()
            .find(|line| line.contains("  jemalloc in ") && line.ends_with("libtoy.so"));
        assert!(
            toy.is_some_and(|line| line.contains(" allocated")),
            "{info}"
        );
        let said = "libtoy.so (2 functions; slack not known), from ";
        assert!(info.contains(said), "{info}");
        let rss = Run::heapprof()
            .in_folder_of(&ran)
            .args(["rss", "t.heaplog", "--width", "200"]);
        let rss = rss.run().well().stdout;
        let caveat = "libtoy.so is not known, and counts as none";
        assert!(rss.contains(caveat), "{rss}");
    }
}

/// A program may call an allocator that it has opened itself, so that no frame of the library is
/// behind the allocator's function. The blocks are that allocator's all the same.
#[test]
fn blocks_of_an_opened_allocator_are_its_own() {
    let direct = OPENS
        .replace(
            r#"(void *(*)(size_t))dlsym(library, "get")"#,
            r#"(void *(*)(size_t, int))dlsym(library, "toy_mallocx")"#,
        )
        .replace("void *(*get)(size_t)", "void *(*get)(size_t, int)")
        .replace("get(1000 + (size_t)round)", "get(1000 + (size_t)round, 0)");
    let ran = with_library("", &direct).run().well();
    let by_allocator = Run::heapprof().in_folder_of(&ran).args([
        "top",
        "--json",
        "--by",
        "allocator",
        "-m",
        "allocated-bytes",
        "t.heaplog",
    ]);
    let Json(document) = Json::parse(&by_allocator.run().well().stdout);
    let groups = document["groups"].as_array().unwrap().iter();
    let toy = groups
        .filter(|group| {
            let name = group["name"].as_str().unwrap();
            name.starts_with("jemalloc in ") && name.ends_with("libtoy.so")
        })
        .map(|group| group["self"]["allocated-bytes"].as_u64().unwrap_or(0));
    // Ten blocks of each size.
    assert_eq!(toy.sum::<u64>(), 10 * (1000 + 1001 + 1002), "{document:#}");
}

/// Slack is that of the allocator, if it tells the usable bytes of a block.
#[test]
fn slack_is_asked_of_an_allocator_inside() {
    const SOURCE: &str = r#"
#include <malloc.h>
#include <cstdio>
#include <cstdlib>
static void *volatile kept[1000];
int main()
{
    size_t slack = 0;
    for (int i = 0; i < 1000; i++) {
        kept[i] = i % 2 ? std::malloc(1111) : std::calloc(11, 101);
        if (i % 3 == 0) kept[i] = std::realloc(kept[i], 1111);
        slack += malloc_usable_size(kept[i]) - 1111;
    }
    std::printf("%zu\n", slack);
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("slack.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    for archive in ARCHIVES {
        let library = format!("-l:{archive}");
        let flags = ["-O0", "-fno-builtin", &path, &library, "-lm", "-lpthread"];
        let ran = linked(&[&flags[..], &["-ldl"]].concat());
        let ran = ran.interval(1).prefix("t").run().well();
        let truth: f64 = ran.stdout.trim().parse().unwrap();
        let top = Run::heapprof().in_folder_of(&ran);
        let top = top.args(["top", "-m", "slack", "--json", "t.heaplog"]);
        let top: serde_json::Value = serde_json::from_str(&top.run().well().stdout).unwrap();
        let sites = top["sites"].as_array().expect("sites").iter();
        let of_main = sites.filter(|site| site["function"] == "main");
        let slack: f64 = of_main.filter_map(|site| site["self"].as_f64()).sum();
        assert!(truth > 0.0 && slack == truth, "{archive}: {truth}, {top}");
        let info = Run::heapprof().in_folder_of(&ran);
        let info = info.args(["info", "t.heaplog"]).run().well().stdout;
        assert!(!info.contains("slack not known"), "{info}");
    }
}

/// A thread that the library starts: the library is tapped while the thread waits, and left alone
/// while it runs.
#[test]
fn a_thread_of_an_opened_library_comes_to_rest_or_prevents_the_taps() {
    const STARTS: &str = r#"
#include <pthread.h>
#include <time.h>
static void *work(void *none)
{
    for (;;) { WORK; }
    return none;
}
__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
}
"#;
    // The library stays open, since its thread runs in it.
    let program = OPENS.replace("dlclose(library)", "(void)library");
    for (work, blocks) in [
        ("struct timespec t = {1000, 0}; nanosleep(&t, 0)", 10),
        ("", 0),
    ] {
        let lines = STARTS.replace("WORK", work);
        let ran = with_library(&lines, &program).run().well();
        assert_eq!(ran.log().whole().blocks_of(1000).len(), blocks, "{work:?}");
        let info = Run::heapprof()
            .in_folder_of(&ran)
            .args(["info", "t.heaplog"]);
        let info = info.run().well().stdout;
        let refused = "threads that it has started do not come to rest; they are not recorded";
        assert_eq!(info.contains(refused), blocks == 0, "{info}");
    }
}

/// An allocator of which the user names the functions.
#[test]
fn named_functions_are_recorded() {
    const PROGRAM: &str = r#"
#include <stddef.h>
static char memory[1 << 16];
static size_t used;
__attribute__((noinline)) void *pool_get(size_t size)
{
    size_t at = used;
    used += (size + 15) & ~(size_t)15;
    return memory + at;
}
__attribute__((noinline)) void pool_put(void *block)
{
    if (block == memory) used = 0;
    if (block == memory + 1) used = 1;
}
__attribute__((noinline, used)) size_t pool_size(void *block) { return block ? 1000 : 0; }
int main(void)
{
    void *volatile blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = pool_get(777);
    for (int i = 7; i >= 5; i--) pool_put(blocks[i]);
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("pool.c");
    std::fs::write(&path, PROGRAM).unwrap();
    let path = path.display().to_string();
    let run = |value: &str| {
        let run = linked(&["-x", "c", "-O1", &path]).interval(1).prefix("t");
        run.env("HEAPPROF_TAP", value).run().well()
    };
    let ran = run("program:malloc=pool_get,free=pool_put,malloc_usable_size=pool_size");
    let log = ran.log().whole();
    let blocks = log.blocks_of(777);
    let in_use = blocks.iter().filter(|block| block.in_use).count();
    assert_eq!((blocks.len(), in_use), (8, 5));
    let mut of_pool = log.allocs().filter(|alloc| alloc.size == 777);
    assert!(of_pool.all(|alloc| alloc.slack == 1000 - 777));
    let info = Run::heapprof()
        .in_folder_of(&ran)
        .args(["info", "t.heaplog"]);
    let info = info.run().well().stdout;
    assert!(info.contains("functions of HEAPPROF_TAP in"), "{info}");
    let top = Run::heapprof()
        .in_folder_of(&ran)
        .args(["top", "--by", "allocator", "t.heaplog"]);
    let top = top.run().well().stdout;
    let pool = top.lines().find(|line| line.contains("allocator in /"));
    assert!(pool.is_some_and(|line| line.contains("3.8 KiB")), "{top}");

    // A name that does not exist: nothing of the module is tapped, and the log says why.
    for functions in [
        "free=pool_gone",
        "free=pool_put,malloc_usable_size=pool_gone",
    ] {
        let ran = run(&format!("program:malloc=pool_get,{functions}"));
        assert_eq!(ran.log().whole().blocks_of(777).len(), 0);
        let info = Run::heapprof()
            .in_folder_of(&ran)
            .args(["info", "t.heaplog"]);
        let info = info.run().well().stdout;
        assert!(info.contains("it has no function pool_gone"), "{info}");
    }

    // A module that is not loaded may come later, or its name is wrong.
    let ran = run("libnone.so:malloc=pool_get,free=pool_put");
    let info = Run::heapprof()
        .in_folder_of(&ran)
        .args(["info", "t.heaplog"]);
    let info = info.run().well().stdout;
    let words = "HEAPPROF_TAP names libnone.so, which is not loaded at the start";
    assert!(info.contains(words), "{info}");

    let ran = run("program:get=pool_get,free=pool_put");
    ran.assert_said(&["HEAPPROF_TAP=", "\"get\" is none of malloc, calloc"]);
}

/// A heap that is destroyed at once frees blocks that nobody counts: the log says so.
#[test]
fn a_destroyed_heap_is_told() {
    const SOURCE: &str = r#"
#include <stddef.h>
static char memory[1 << 16];
static size_t used;
__attribute__((noinline)) void *mi_malloc(size_t size)
{
    size_t at = used;
    used += (size + 15) & ~(size_t)15;
    return memory + at;
}
__attribute__((noinline)) void mi_free(void *block)
{
    if (block == memory) used = 0;
    if (block == memory + 1) used = 1;
}
__attribute__((noinline)) void mi_heap_destroy(void *heap)
{
    if (heap == memory) used = 0;
    if (heap == memory + 1) used = 1;
}
int main(void)
{
    void *volatile block = mi_malloc(999);
    mi_free(block);
    block = mi_malloc(999);
    mi_heap_destroy(memory + 3);
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("heap.c");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    let ran = linked(&["-x", "c", "-O1", &path]);
    let ran = ran.interval(1).prefix("t").run().well();
    let info = Run::heapprof()
        .in_folder_of(&ran)
        .args(["info", "t.heaplog"]);
    let info = info.run().well().stdout;
    assert!(
        info.contains("mi_heap_destroy frees blocks at once, which are not known here"),
        "{info}"
    );
}

/// mimalloc's functions that return strings: those that store the block, and those whose block has
/// a size that only another function knows. If that function is not called, the log says so.
#[test]
fn strings_of_mimalloc_are_recorded_or_told() {
    const SOURCE: &str = r#"
#include <stdlib.h>
#include <string.h>
static char memory[1 << 16];
static size_t used;
__attribute__((noinline)) void *mi_malloc(size_t size)
{
    size_t at = used;
    used += (size + 15) & ~(size_t)15;
    return memory + at;
}
__attribute__((noinline)) void mi_free(void *block)
{
    if (block == memory) used = 0;
    if (block == memory + 1) used = 1;
}
__attribute__((noinline)) int mi_dupenv_s(char **buffer, size_t *size, const char *name)
{
    const char *value = getenv(name);
    if (size) *size = 0;
    *buffer = value ? strcpy(mi_malloc(strlen(value) + 1), value) : NULL;
    return 0;
}
__attribute__((noinline)) unsigned short *mi_wcsdup(const unsigned short *text)
{
    size_t len = 0;
    while (text[len++]) ;
#ifdef INLINED
    void *block = memory + used;
    used += len * 2;
#else
    void *block = mi_malloc(len * 2);
#endif
    return memcpy(block, text, len * 2);
}
int main(void)
{
    char *volatile value;
    const unsigned short text[] = {'w', 'i', 'd', 'e', 0};
    setenv("VALUE", "a value of twenty-five b", 1);
    for (int i = 0; i < 3; i++) mi_dupenv_s((char **)&value, NULL, "VALUE");
    mi_dupenv_s((char **)&value, NULL, "NO_VALUE");
    mi_free(mi_malloc(77));
    for (int i = 0; i < 4; i++) mi_wcsdup(text);
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("strings.c");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    for (flag, wide, is_told) in [("-DCALLED", 4, false), ("-DINLINED", 0, true)] {
        let ran = linked(&["-x", "c", "-O1", flag, &path]);
        let ran = ran.interval(1).prefix("t").run().well();
        let log = ran.log().whole();
        assert_eq!(log.blocks_of(25).len(), 3, "{flag}");
        assert_eq!(log.blocks_of(77).len(), 1, "{flag}");
        assert_eq!(log.blocks_of(10).len(), wide, "{flag}");
        let info = Run::heapprof()
            .in_folder_of(&ran)
            .args(["info", "t.heaplog"]);
        let info = info.run().well().stdout;
        let told = info.contains("blocks of mi_wcsdup are not recorded");
        assert_eq!(told, is_told, "{flag}: {info}");
    }
}

/// A program with an allocator of ten blocks, four of which are freed.
const OWN_ALLOCATOR: &str = r#"
#include <stddef.h>
static char memory[1 << 16];
static size_t used;
__attribute__((noinline)) void *own_mallocx(size_t size, int flags)
{
    size_t at = used;
    used += (size + 15 + (size_t)flags) & ~(size_t)15;
    return memory + at;
}
__attribute__((noinline)) void own_dallocx(void *block, int flags)
{
    if (block == memory) used = (size_t)flags;
    if (block == memory + 1) used = 1;
}
int main(void)
{
    void *blocks[10];
    for (int i = 0; i < 10; i++) blocks[i] = own_mallocx(999, 0);
    for (int i = 0; i < 4; i++) own_dallocx(blocks[i], 0);
    return 0;
}
"#;

/// Symbols of a stripped program that exports its functions.
#[test]
fn an_allocator_that_is_exported_alone_is_recorded() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("own.c");
    std::fs::write(&path, OWN_ALLOCATOR).unwrap();
    let path = path.display().to_string();
    let run = linked(&["-x", "c", "-O1", "-rdynamic", "-s", &path]);
    let ran = run.interval(1).prefix("t").run().well();
    let log = ran.log().whole();
    let blocks = log.blocks_of(999);
    let in_use = blocks.iter().filter(|block| block.in_use).count();
    assert_eq!((blocks.len(), in_use), (10, 6), "{}", ran.stderr);
}

/// Symbols that are only in a file of debug information, which its build-id names.
#[test]
fn an_allocator_whose_symbols_are_in_a_debug_file_is_recorded() {
    if !may_mount() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("own.c");
    std::fs::write(&path, OWN_ALLOCATOR).unwrap();
    let path = path.display().to_string();
    let flags = ["-x", "c", "-O1", "-Wl,--build-id=0x00c0ffee", &path];
    let run = linked(&flags);
    let program = run.folder().join("bin/program");
    std::fs::create_dir_all(run.folder().join("debug/.build-id/00")).unwrap();
    for (option, to) in [
        ("--only-keep-debug", "debug/.build-id/00/c0ffee.debug"),
        ("--strip-all", "bin/stripped"),
    ] {
        let mut objcopy = std::process::Command::new("objcopy");
        objcopy.arg(option).arg(&program).arg(run.folder().join(to));
        assert!(objcopy.status().expect("objcopy").success());
    }
    // The mounts are seen by the program alone.
    let script = r#"
        mkdir -p bare && mount --bind "$2" /usr/lib/debug || exit 77
        LD_PRELOAD=$1 HEAPPROFILE=$2 bin/stripped"#;
    let folder = run.folder().to_owned();
    for (debug, expected) in [("debug", (10, 6)), ("bare", (0, 0))] {
        let ran = Run::tool("unshare")
            .inside(&folder)
            .args(["-rm", "sh", "-c", script, "sh"]);
        let ran = ran.arg(Build::get().library()).arg(debug).interval(1).run();
        if ran.code() == 77 {
            return println!(
                "left out: there is no folder /usr/lib/debug: {}",
                ran.stderr
            );
        }
        let log = Log::read(&folder.join(format!("{debug}.heaplog"))).whole();
        let blocks = log.blocks_of(999);
        let in_use = blocks.iter().filter(|block| block.in_use).count();
        assert_eq!((blocks.len(), in_use), expected, "{debug}: {}", ran.stderr);
    }
}

/// A compiler that sees both knows which registers an allocator's function changes, and that it
/// does not care whether the stack is aligned. A tapped function keeps to that.
#[test]
fn registers_are_as_the_function_leaves_them() {
    const SOURCE: &str = r#"
#include <stdint.h>
#include <stdio.h>
asm(R"(
    .text
    .globl mi_malloc
    .type mi_malloc, @function
mi_malloc:
    lea memory(%rip), %rax
    ret
    .size mi_malloc, . - mi_malloc
    .globl mi_free
    .type mi_free, @function
mi_free:
    lea 0x100(%rdi), %rdi
    ret
    .size mi_free, . - mi_free

# Calls the function in rdi with the argument in rsi, eight bytes lower if ecx is 8, and stores the
# registers at rdx.
    .globl probe
probe:
    push %rbx
    push %rbp
    push %r12
    mov %rdi, %rbx
    mov %rdx, %rbp
    mov %rcx, %r12
    sub %r12, %rsp
    mov %rsi, %rdi
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    mov $(100 + \n), %eax
    movq %rax, %xmm\n
    pshufd $0x44, %xmm\n, %xmm\n
    .endr
    mov $1, %eax
    mov $2, %ecx
    mov $3, %edx
    mov $4, %esi
    mov $5, %r8d
    mov $6, %r9d
    mov $7, %r10d
    mov $8, %r11d
    call *%rbx
    add %r12, %rsp
    mov %rax, (%rbp)
    mov %rcx, 8(%rbp)
    mov %rdx, 16(%rbp)
    mov %rsi, 24(%rbp)
    mov %r8, 32(%rbp)
    mov %r9, 40(%rbp)
    mov %r10, 48(%rbp)
    mov %r11, 56(%rbp)
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups %xmm\n, 64 + 16 * \n(%rbp)
    .endr
    pop %r12
    pop %rbp
    pop %rbx
    ret
)");
extern "C" { char memory[64]; void *mi_malloc(uint64_t); void mi_free(void *);
void probe(void *function, void *argument, uint64_t *registers, uint64_t lower); }
static int wrong(const uint64_t *registers, int first)
{
    int count = 0;
    for (int i = first; i < 8; i++) count += registers[i] != (uint64_t)i + 1;
    for (int i = 0; i < 32; i++) count += registers[8 + i] != 100 + (uint64_t)i / 2;
    return count;
}
int main()
{
    uint64_t registers[40];
    int count = 0;
    for (int round = 0; round < 1000; round++)
        for (uint64_t lower = 0; lower <= 8; lower += 8) {
            probe((void *)mi_malloc, (void *)50, registers, lower);
            count += registers[0] != (uint64_t)memory;
            count += wrong(registers, 1);
            probe((void *)mi_free, memory, registers, lower);
            count += wrong(registers, 0);
        }
    printf("%d\n", count);
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("registers.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    for (interval, least, most) in [(1, 2000, 2000), (1 << 40, 0, 1), (2000, 10, 200)] {
        let ran = linked(&["-O1", "-std=gnu++17", &path]);
        let ran = ran.interval(interval).prefix("t").run().well();
        assert_eq!(ran.stdout, "0\n", "interval {interval}");
        let blocks = ran.log().whole().blocks_of(50).len();
        assert!((least..=most).contains(&blocks), "{interval}: {blocks}");
    }
}

/// A function without room for a jump: its allocator is left alone, and the log says why.
#[test]
fn a_short_function_prevents_the_taps() {
    const SOURCE: &str = r#"
asm(R"(
    .text
    .globl mi_malloc
    .type mi_malloc, @function
mi_malloc:
    lea memory(%rip), %rax
    ret
    .size mi_malloc, . - mi_malloc
    .globl mi_free
    .type mi_free, @function
mi_free:
    ret
    .size mi_free, . - mi_free
next:
    nop
    ret
)");
extern "C" { char memory[64]; void *mi_malloc(unsigned long); void mi_free(void *); }
int main()
{
    mi_free(mi_malloc(50));
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("short.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    let ran = linked(&["-O1", "-std=gnu++17", &path]);
    let ran = ran.interval(1).prefix("t").run().well();
    assert_eq!(ran.log().whole().blocks_of(50).len(), 0);
    let info = Run::heapprof()
        .in_folder_of(&ran)
        .args(["info", "t.heaplog"]);
    let info = info.run().well().stdout;
    assert!(
        info.contains("mi_free: the function is too short"),
        "{info}"
    );
}

/// The allocator's chunks are mapped by recorded calls, and mostly free. Nothing tells them from
/// what the program has mapped itself.
#[test]
fn free_pages_of_an_allocator_inside_are_not_mapped_by_the_program() {
    const SOURCE: &str = r#"
#include <sys/mman.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
static char *volatile kept[20000];
int main()
{
    const size_t own = 6 << 20;
    void *mapped = mmap(0, own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(mapped, 1, own);
    for (int i = 0; i < 20000; i++) std::memset(kept[i] = (char *)std::malloc(1000), 1, 1000);
    for (int i = 0; i < 20000; i++) if (i % 10) std::free(kept[i]);
    for (int i = 0; i < 130; i++) {
        std::free(kept[0]);
        kept[0] = (char *)std::malloc(1000);
        usleep(10000);
    }
    return 0;
}
"#;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("inside.cpp");
    std::fs::write(&path, SOURCE).unwrap();
    let path = path.display().to_string();
    let flags = ["-O0", "-fno-builtin", &path, "-l:libjemalloc.a", "-lm"];
    for allocator in ["jemalloc", "program"] {
        let ran = linked(&[&flags[..], &["-lpthread", "-ldl"]].concat())
            .interval(1)
            .prefix("t")
            .env("HEAPPROF_ALLOCATOR", allocator)
            .env("HEAPPROF_MEMORY_INTERVAL_MS", "100")
            .run()
            .well();
        let rss = Run::heapprof()
            .in_folder_of(&ran)
            .args(["rss", "--json", "t.heaplog"]);
        let rss: serde_json::Value = serde_json::from_str(&rss.run().well().stdout).unwrap();
        let lines = rss["lines"].as_array().expect("lines").iter();
        let line = |key: &str| {
            let mut found = lines.clone().filter(|line| line["key"] == key);
            found.next().and_then(|line| line["bytes"].as_f64())
        };
        assert_eq!(line("mapped"), None, "{allocator}: {rss:#}");
        assert_eq!(line("mapped_unrecorded"), None, "{allocator}: {rss:#}");
        // 6 MiB of its own, and 18 MB of 20 that are free in slabs.
        let rest = line("mapped_rest").expect("a line");
        assert!((22e6..28e6).contains(&rest), "{allocator}: {rss:#}");
    }
}
