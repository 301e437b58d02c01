//! Taps: allocators that are linked into the program are recorded at the entries of their
//! functions.

use heapprof_format::Counter;
use heapprof_tests::{Build, Run, assert_truth, by_site};

/// The allocators of the distribution that can be linked statically.
const ARCHIVES: [&str; 2] = ["libjemalloc.a", "libtcmalloc_minimal.a"];

/// Returns a run of the program that g++ makes of these arguments.
fn linked(arguments: &[&str]) -> Run {
    let made = Run::tool("g++");
    let made = made.args(arguments).args(["-o", "program"]).run().well();
    let program = made.folder().join("program");
    let run = Run::program("");
    let own = run.folder().join("bin");
    std::fs::create_dir(&own).unwrap();
    std::fs::copy(&program, own.join("program")).unwrap();
    // The fixture looks for its plug-in beside itself.
    let plug_in = Build::get()
        .fixture("truth")
        .with_file_name("truth_plugin.so");
    std::os::unix::fs::symlink(plug_in, own.join("truth_plugin.so")).unwrap();
    let program = own.join("program");
    run.with_program(program)
}

/// Functions that the fixture calls and not every archive has. libc's would be another allocator's.
const REST: &str = r#"
#include <malloc.h>
#include <stdlib.h>
#define WEAK __attribute__((weak))
WEAK void *pvalloc(size_t size) { return memalign(4096, (size + 4095) & ~(size_t)4095); }
WEAK void *reallocarray(void *block, size_t count, size_t size) { return realloc(block, count * size); }
WEAK void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
WEAK void cfree(void *block) { free(block); }
WEAK void free_sized(void *block, size_t size) { free(block); }
WEAK void free_aligned_sized(void *block, size_t alignment, size_t size) { free(block); }
"#;

/// The fixture `truth`, linked with an allocator.
fn truth(archive: &str) -> Run {
    let fixture = Build::get().fixture("truth");
    let object = |name: &str| fixture.with_file_name(name).display().to_string();
    let objects = [object("truth.o"), object("truth_cxx.o")];
    let library = format!("-l:{archive}");
    let folder = tempfile::tempdir().unwrap();
    let rest = folder.path().join("rest.c");
    std::fs::write(&rest, REST).unwrap();
    let rest = rest.display().to_string();
    linked(&[
        "-fpermissive",
        "-w",
        "-x",
        "c",
        &rest,
        "-x",
        "none",
        &objects[0],
        &objects[1],
        "-rdynamic",
        &library,
        "-lm",
        "-lpthread",
        "-ldl",
    ])
}

#[test]
fn all_numbers_of_every_site_are_the_truth_with_each_archive() {
    for archive in ARCHIVES {
        let run = truth(archive).args(["--threads", "4"]);
        let ran = run.interval(1).prefix("t").run().well();
        assert_eq!(ran.said(), [""; 0], "{archive}");
        let log = ran.log().whole();
        let losses = log.losses();
        assert!(
            losses.keys().all(|&loss| loss == Counter::LostNotReady),
            "{archive}: {losses:?}"
        );
        assert_eq!(log.unknown_frees(), 0, "{archive}");
        assert_truth(archive, &by_site(log.named()), &ran.claims());
        let info = Run::heapprof()
            .in_folder_of(&ran)
            .args(["info", "t.heaplog"]);
        let info = info.run().well().stdout;
        assert!(info.contains("  tapped        malloc in /"), "{info}");
        assert!(info.contains("agrees"), "{info}");
    }
}

/// Without taps there is one line, and the program runs as it does alone.
#[test]
fn taps_can_be_switched_off() {
    for archive in ARCHIVES {
        let run = truth(archive).interval(1).prefix("t");
        let ran = run.env("HEAPPROF_TAP", "0").run().well();
        ran.assert_said(&[
            "has its own malloc",
            "HEAPPROF_TAP=0",
            "nothing is recorded",
        ]);
        assert_eq!(ran.files_ending(".heaplog"), [""; 0], "{archive}");
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
