//! The next allocator (`HEAPPROF_ALLOCATOR=program`): every block comes from the allocator that
//! would serve the program without the library, and every block is recorded.

use std::path::Path;

use heapprof_format::Counter;
use heapprof_tests::{Finished, Run, Sizes, assert_claims, assert_health};

/// Returns the allocators of the distribution, libc's own (the empty name) first. Not all releases
/// of Debian have this version of mimalloc.
fn libraries() -> Vec<&'static str> {
    let mut libraries = vec!["", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"];
    let mimalloc = "libmimalloc.so.2.0";
    if Path::new("/usr/lib/x86_64-linux-gnu")
        .join(mimalloc)
        .exists()
    {
        libraries.push(mimalloc);
    }
    libraries
}

/// A run in which this allocator serves the program.
fn with_next(run: Run, library: &str) -> Run {
    let run = match library {
        "" => run,
        library => run.preloading(&["", library]),
    };
    run.env("HEAPPROF_ALLOCATOR", "program").interval(1)
}

/// The words for the allocator in `heapprof info`.
fn allocator_in_info(ran: &Finished) -> String {
    let info = Run::heapprof().in_folder_of(ran);
    let info = info.args(["info", "t.heaplog"]).run().well().stdout;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("  allocator"));
    line.unwrap_or_default().trim().to_owned()
}

/// Runs the fixture `truth`, and asserts that nothing is missing and `info` names the allocator.
fn truth(library: &str, scale: u64, interval: u64) -> Finished {
    let run = Run::fixture("truth").args(["--threads", "4", "--scale", &scale.to_string()]);
    let ran = with_next(run, library).interval(interval);
    let ran = ran.prefix("t").run().well();
    assert_eq!(ran.said(), [""; 0], "{library}");
    let log = ran.log().whole();
    let losses = log.losses();
    let is_expected = |&loss: &Counter| loss == Counter::LostNotReady;
    assert!(losses.keys().all(is_expected), "{library}: {losses:?}");
    assert_eq!(log.unknown_frees(), 0, "{library}");
    let words = allocator_in_info(&ran);
    let file = if library.is_empty() {
        "libc.so"
    } else {
        library
    };
    assert!(
        words.starts_with("the program's own") && words.contains(file),
        "{words}"
    );
    let _ = assert_health(&log.profile, library);
    ran
}

#[test]
fn all_numbers_of_every_site_are_the_truth_or_within_bounds_with_each_allocator() {
    const SCALE: u64 = 4;
    for library in libraries() {
        let exact = truth(library, 1, 1);
        let sizes = Sizes::of(library, &exact);
        for interval in [4096, 524_288] {
            let sampled = truth(library, SCALE, interval);
            let what = format!("{library} at {interval}");
            sizes.assert_bounds(&what, &sampled, SCALE, interval);
        }
        let top = Run::heapprof()
            .in_folder_of(&exact)
            .args(["top", "t.heaplog"]);
        assert!(
            top.run()
                .well()
                .stdout
                .contains("allocator: the program's own")
        );
    }
}

/// Prints facts by which allocators differ, and a fact about each relative of malloc.
const FACTS: &str = r#"
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static void *volatile kept[64];
int main(void)
{
    size_t sizes[] = {0, 1, 8, 24, 100, 1000, 4000, 33000, 200000, 5000000};
    int n = 0;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        printf("%zu: %zu\n", sizes[i], malloc_usable_size(kept[n++] = malloc(sizes[i])));
    printf("calloc %zu\n", malloc_usable_size(kept[n++] = calloc(7, 11)));
    printf("zeroed %d\n", ((char *)calloc(300, 1000))[299999]);
    void *out = NULL;
    printf("posix_memalign %d", posix_memalign(&out, 256, 100));
    printf(" %d %zu\n", (int)((uintptr_t)out % 256), malloc_usable_size(out));
    free(out);
    out = aligned_alloc(64, 640);
    printf("aligned_alloc %d\n", (int)((uintptr_t)out % 64));
    out = realloc(out, 100000);
    printf("realloc %zu\n", malloc_usable_size(out));
    out = realloc(out, 10);
    printf("smaller %zu\n", malloc_usable_size(out));
    errno = 0;
    out = realloc(out, 0);
    printf("to nothing %s %d\n", out ? "block" : "null", errno);
    free(out);
    errno = 0;
    out = malloc(SIZE_MAX / 2);
    printf("too large %p %d\n", out, errno);
    printf("too large %p\n", calloc(SIZE_MAX / 2, 3)); /* tcmalloc leaves errno as it is */
    struct mallinfo info = mallinfo();
    printf("mallinfo %d\n", info.uordblks > 5000000);
    printf("mallopt %d\n", mallopt(M_MXFAST, 64));
    malloc_trim(0);
    for (int i = 0; i < n; i++) free(kept[i]);
    return 0;
}
"#;

#[test]
fn the_program_sees_its_own_allocator() {
    let flags = ["-fno-builtin", "-O0"];
    for library in libraries() {
        let alone = Run::compiled("facts", FACTS, &flags).without_library();
        let alone = alone.env("LD_PRELOAD", library).run().well();
        let ran = with_next(Run::compiled("facts", FACTS, &flags), library);
        let ran = ran.prefix("t").run().well();
        assert_eq!(ran.stdout, alone.stdout, "{library}");
        assert_eq!(ran.stderr, alone.stderr, "{library}");
        let log = ran.log().whole();
        assert_eq!(log.unknown_frees(), 0, "{library}");
        let blocks = log.blocks();
        let block = |size: u64| blocks.iter().find(|block| block.size == size);
        assert!(
            block(5_000_000).is_some_and(|block| !block.in_use),
            "{library}"
        );
        assert!(
            block(100_000).is_some_and(|block| !block.in_use),
            "{library}"
        );
        assert!(
            block(300_000).is_some_and(|block| block.in_use),
            "{library}"
        );
    }
}

/// Slack is that of the allocator: its usable size less the size. The allocators are linked here.
#[test]
fn slack_is_asked_of_the_allocator() {
    let source = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    size_t slack = 0;
    for (int i = 0; i < 1000; i++) slack += malloc_usable_size(malloc(1111)) - 1111;
    printf("%zu\n", slack);
    return 0;
}
"#;
    for library in libraries() {
        // Linked with the program: it is behind the library, too.
        let link = format!("-l:{library}");
        let linked = ["-Wl,--no-as-needed", &link];
        let linked = if library.is_empty() {
            &[][..]
        } else {
            &linked[..]
        };
        let flags = [&["-fno-builtin", "-O0"], linked].concat();
        let run = Run::compiled("slack", source, &flags);
        let ran = with_next(run, "").prefix("t").run().well();
        let slack: u64 = ran.stdout.trim().parse().unwrap();
        let log = ran.log().whole();
        let of_size = log.allocs().filter(|alloc| alloc.size == 1111);
        let recorded: u64 = of_size.map(|alloc| alloc.slack).sum();
        assert_eq!(recorded, slack, "{library}");
    }
}

/// C++: with libstdc++'s operators, and with those of an allocator that has its own.
#[test]
fn operators_are_recorded_once() {
    let source = r#"
#include <cstdio>
#include <new>
#include <vector>
struct alignas(128) Wide { char bytes[384]; };
static void *volatile kept;
int main()
{
    for (int i = 0; i < 10; i++) kept = new char[7777];
    for (int i = 0; i < 10; i++) { char *p = new char[8888]; kept = p; delete[] p; }
    for (int i = 0; i < 10; i++) kept = new Wide;
    try { kept = new char[(size_t)1 << 62]; } catch (const std::bad_alloc &) { std::puts("bad_alloc"); }
    std::printf("%p\n", (void *)::operator new((size_t)1 << 62, std::nothrow));
    return 0;
}
"#;
    let made = Run::tool("g++");
    std::fs::write(made.folder().join("p.cpp"), source).unwrap();
    let made = made.args(["-std=c++17", "-O0", "p.cpp", "-o", "program"]);
    let made = made.run().well();
    for library in libraries() {
        let run = Run::program(made.folder().join("program"));
        let ran = with_next(run, library).prefix("t").run().well();
        assert_eq!(ran.stdout, "bad_alloc\n(nil)\n", "{library}");
        let log = ran.log().whole();
        let blocks = log.blocks();
        for (size, count, in_use) in [(7777, 10, 10), (8888, 10, 0), (384, 10, 10)] {
            let of_size: Vec<_> = blocks.iter().filter(|block| block.size == size).collect();
            assert_eq!(of_size.len(), count, "{library}: {size}");
            let found = of_size.iter().filter(|block| block.in_use).count();
            assert_eq!(found, in_use, "{library}: {size}");
        }
    }
}

#[test]
fn threads_and_plug_ins_keep_their_promises() {
    for fixture in ["threads_basic", "dlopen_cycle"] {
        for library in libraries() {
            let ran = with_next(Run::fixture(fixture), library)
                .prefix("t")
                .run()
                .well();
            assert_eq!(ran.stderr, "", "{fixture} {library}");
            assert_claims(&ran);
        }
    }
}

/// A value that is neither of the two is told, and jemalloc serves the program.
#[test]
fn an_unknown_allocator_is_refused_with_a_line() {
    let run = Run::fixture("idle").arg("0").interval(1).prefix("t");
    let ran = run.env("HEAPPROF_ALLOCATOR", "tcmalloc").run().well();
    ran.assert_said(&[
        "HEAPPROF_ALLOCATOR=tcmalloc",
        "neither program nor jemalloc",
    ]);
    assert_eq!(allocator_in_info(&ran), "heapprof's jemalloc");
}

/// An allocator of the distribution, and its own functions for a block and for its end.
struct Own {
    library: &'static str,
    allocate: &'static str,
    free: &'static str,
    functions: [&'static str; 2],
}

const OWN: [Own; 3] = [
    Own {
        library: "libjemalloc.so.2",
        allocate: "-DOWN(n)=mallocx(n,0)",
        free: "-DEND(p)=dallocx(p,0)",
        functions: ["mallocx", "dallocx"],
    },
    Own {
        library: "libtcmalloc_minimal.so.4",
        allocate: "-DOWN(n)=tc_malloc(n)",
        free: "-DEND(p)=tc_free(p)",
        functions: ["tc_malloc", "tc_free"],
    },
    Own {
        library: "libmimalloc.so.2.0",
        allocate: "-DOWN(n)=mi_malloc(n)",
        free: "-DEND(p)=mi_free(p)",
        functions: ["mi_malloc", "mi_free"],
    },
];

/// Blocks go from the usual functions to the allocator's own, and back.
const MIXES: &str = r#"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
void *mallocx(size_t, int); void dallocx(void *, int);
void *tc_malloc(size_t); void tc_free(void *);
void *mi_malloc(size_t); void mi_free(void *);
static void *volatile kept;
static char text[43008];
int main(int count, char **arguments)
{
    for (long i = 0; i < atol(arguments[1]); i++) {
        kept = malloc(43001), END(kept);
        kept = OWN(43002), free(kept);
        kept = OWN(43003), END(kept);
        kept = OWN(43004), kept = realloc(kept, 43005), END(kept);
        kept = calloc(1, 43006), END(kept);
        kept = aligned_alloc(64, 43072), END(kept);
        memset(text, 'x', 43007 - 1);
        kept = strdup(text), END(kept);
    }
    kept = malloc(43009);
    kept = OWN(43010);
    return 0;
}
"#;

fn mixes(own: &Own) -> Run {
    let link = format!("-l:{}", own.library);
    let flags = ["-fno-builtin", "-O0", own.allocate, own.free, &link];
    Run::compiled("mixes", MIXES, &flags)
}

/// A program that calls the functions of its allocator's own keeps it: it may free a block of
/// `malloc` by them. Each block is recorded once, by whichever function.
#[test]
fn a_program_that_calls_its_allocators_own_functions_keeps_it() {
    for own in OWN {
        if !libraries().contains(&own.library) {
            continue;
        }
        let library = own.library;
        let file = library.split(".so").next().unwrap();
        let ran = mixes(&own).arg("10").interval(1).prefix("t").run().well();
        assert_eq!(ran.said(), [""; 0], "{library}");
        let says = |line: &String| {
            let calls = own
                .functions
                .map(|name| format!("mixes calls {name}, a function of "));
            calls.iter().any(|words| line.contains(words)) && line.contains(file)
        };
        let notes = ran.notes();
        assert!(notes.len() == 1 && notes.iter().all(says), "{notes:?}");
        let words = allocator_in_info(&ran);
        assert!(words.starts_with("the program's own"), "{words}");
        let log = ran.log().whole();
        assert_eq!(log.unknown_frees(), 0, "{library}");
        let ended = [43001, 43002, 43003, 43004, 43005, 43006, 43072, 43007];
        let kept = [43009, 43010];
        for (sizes, count, in_use) in [(&ended[..], 10, 0), (&kept[..], 1, 1)] {
            for &size in sizes {
                let blocks = log.blocks_of(size);
                assert_eq!(blocks.len(), count, "{library}: {size}");
                let found = blocks.iter().filter(|block| block.in_use).count();
                assert_eq!(found, in_use, "{library}: {size}");
            }
        }

        let top = Run::heapprof().in_folder_of(&ran);
        let top = top.args(["top", "--by", "allocator", "t.heaplog"]).run();
        let rows = top.well().stdout;
        let rows = rows
            .lines()
            .filter(|line| line.contains("B  ") && line.contains(file));
        assert_eq!(rows.count(), 1, "{library}");

        // No byte is laid on a thread's axis twice.
        let ran = mixes(&own).arg("4000").interval(65_536).run().well();
        let health = assert_health(&ran.log().whole().profile, library);
        let truth = 4000.0 * (43001 + 43002 + 43003 + 43004 + 43005 + 43006 + 43072 + 43007) as f64;
        assert!(
            (health.counted / truth - 1.0).abs() < 0.01,
            "{library}: {health:?}"
        );
        assert!(
            (health.samples / truth - 1.0).abs() < 0.05,
            "{library}: {health:?}"
        );
    }
}

/// The user's choice counts: a program that does not mix functions may have heapprof's jemalloc.
#[test]
fn the_users_choice_of_the_allocator_counts() {
    let source = r#"
#include <stdlib.h>
void *mallocx(size_t, int);
static void *volatile kept;
int main(void) { kept = malloc(44001); kept = mallocx(44002, 0); return 0; }
"#;
    for (choice, expected) in [
        ("", "the program's own"),
        ("program", "the program's own"),
        ("jemalloc", "heapprof's jemalloc"),
    ] {
        let run = Run::compiled("own_names", source, &["-l:libjemalloc.so.2"]);
        let run = run.env("HEAPPROF_ALLOCATOR", choice).interval(1);
        let ran = run.prefix("t").run().well();
        let words = allocator_in_info(&ran);
        assert!(words.starts_with(expected), "{choice}: {words}");
        assert_eq!(ran.notes().len(), usize::from(choice.is_empty()));
        let log = ran.log().whole();
        for size in [44001, 44002] {
            assert_eq!(log.blocks_of(size).len(), 1, "{choice}: {size}");
        }
    }
}

/// A library in front of the allocator that passes calls of `malloc` on, as libmemusage does.
#[test]
fn a_library_in_front_of_the_allocator_changes_nothing() {
    for own in OWN {
        if !libraries().contains(&own.library) {
            continue;
        }
        let run = mixes(&own).preloading(&["", "libmemusage.so"]);
        let ran = run.arg("10").interval(1).prefix("t").run();
        assert_eq!(ran.code(), 0, "{}: {}", own.library, ran.stderr);
        let log = ran.log().whole();
        assert_eq!(log.unknown_frees(), 0, "{}", own.library);
        for size in [43001, 43002, 43003, 43004, 43005, 43006, 43072, 43007] {
            assert_eq!(log.blocks_of(size).len(), 10, "{}: {size}", own.library);
        }
    }
}

/// The bytes of a call that ends by an exception are laid on no axis.
#[test]
fn an_own_function_that_throws_leaves_no_bytes() {
    let source = r#"
#include <cstdlib>
#include <new>
extern "C" void *tc_new(size_t);
static void *volatile kept;
int main()
{
    volatile size_t sizes[] = {(size_t)1 << 40, (size_t)1 << 62, (size_t)1 << 62};
    for (int i = 0; i < 3000; i++) {
        try { kept = tc_new(sizes[i % 3]); } catch (const std::bad_alloc &) {}
        kept = malloc(100);
    }
    return 0;
}
"#;
    let made = Run::tool("g++");
    std::fs::write(made.folder().join("p.cpp"), source).unwrap();
    let made = made.args(["-fno-builtin", "-O0", "p.cpp", "-o", "program"]);
    let made = made.arg("-l:libtcmalloc_minimal.so.4").run().well();
    for (choice, interval) in [("", 1), ("jemalloc", 1), ("", 4096)] {
        let run = Run::program(made.folder().join("program")).prefix("t");
        let run = run.env("HEAPPROF_ALLOCATOR", choice).interval(interval);
        let log = run.run().log().whole();
        let health = assert_health(&log.profile, choice);
        assert!(health.counted < 1e6, "{choice} at {interval}: {health:?}");
        if interval == 1 {
            assert_eq!(log.blocks_of(100).len(), 3000, "{choice}");
        }
    }
}
