//! C++'s operators: the library's if another allocator's would be in the way, the program's if it
//! replaces them on purpose.

use std::path::Path;

use heapprof_tests::{Finished, Run, assert_claims};

/// Asserts that the fixture passes all its checks, and that its claims hold in the log.
#[track_caller]
fn check(run: Run, checks: &[String]) -> Finished {
    let ran = run.interval(1).prefix("t").run().well();
    assert_eq!(ran.claims().ok, checks, "{}", ran.stderr);
    let log = assert_claims(&ran);
    assert_eq!(log.unknown_frees(), 0);
    assert_eq!(ran.stderr, "");
    ran
}

/// A program that is not position-independent and takes the operators' addresses. The loader tells
/// every caller that they are in the program: at its jumps to the definitions.
#[test]
fn addresses_of_operators() {
    const SOURCE: &str = r#"#include <cstdlib>
#include <new>
#include <vector>
static void *(*volatile make)(std::size_t) = operator new;
static void (*volatile end)(void *) = operator delete;
static void *(*volatile c_make)(std::size_t) = std::malloc;
int main() {
    void *kept = make(29002);
    end(make(29002));
    std::free(c_make(29002));
    std::vector<std::vector<char>> v(100, std::vector<char>(100));
    return kept == nullptr;
}
"#;
    for others in [&[][..], &["-Wl,--no-as-needed", "-l:libjemalloc.so.2"]] {
        let made = Run::tool("g++");
        std::fs::write(made.folder().join("p.cpp"), SOURCE).unwrap();
        let made = made
            .args(["-O1", "-g", "-no-pie", "-fno-pie", "p.cpp", "-o", "program"])
            .args(others)
            .run()
            .well();
        let run = Run::program(made.folder().join("program"));
        let ran = run.interval(1).prefix("t").run().well();
        assert_eq!(ran.stderr, "");
        let log = ran.log().whole();
        assert_eq!(log.unknown_frees(), 0);
        let blocks = log.blocks_of(29002);
        let first =
            |block: &heapprof_tests::Block| log.named().stacks[block.stack][0].plain.clone();
        let mut firsts: Vec<String> = blocks.iter().map(first).collect();
        firsts.sort();
        let operator = "operator new(unsigned long)";
        assert_eq!(firsts, ["malloc", operator, operator]);
        assert_eq!(blocks.iter().filter(|block| block.in_use).count(), 1);
    }
}

/// Returns the fixture's checks, from a run without the library.
#[track_caller]
fn checks_of(fixture: &str) -> Vec<String> {
    let ran = Run::fixture(fixture).without_library().run().well();
    let claims = ran.claims();
    assert_eq!(claims.failures, [""; 0]);
    assert!(claims.ok.len() > 2, "{fixture} checks nothing");
    claims.ok
}

/// Linked with jemalloc, alone and with others preloaded after us.
#[test]
fn linked_allocator() {
    let checks = checks_of("linked_allocator");
    for others in [
        &[][..],
        &["libjemalloc.so.2"],
        &["libtcmalloc_minimal.so.4"],
        &["libjemalloc.so.2", "libtcmalloc_minimal.so.4"],
    ] {
        let libraries = [&[""][..], others].concat();
        let ran = check(
            Run::fixture("linked_allocator").preloading(&libraries),
            &checks,
        );
        // The first frame is the operator; the second is its caller.
        let log = ran.log();
        for (size, operator) in [
            (27001, "operator new(unsigned long)"),
            (27002, "operator new[](unsigned long)"),
            (27003, "operator new(unsigned long, std::nothrow_t const&)"),
            (
                27904,
                "operator new[](unsigned long, std::align_val_t, std::nothrow_t const&)",
            ),
            (27013, "malloc"),
        ] {
            let blocks = log.blocks_of(size);
            let frames = &log.named().stacks[blocks[0].stack];
            assert_eq!(frames[0].plain, operator, "{size}");
            assert!(frames[0].module.starts_with("libheapprof"), "{size}");
            assert!(frames[1].plain.starts_with("by_"), "{size}: {frames:?}");
        }
    }
}

/// Sampled or not, the blocks belong to one allocator.
#[test]
fn linked_allocator_at_every_interval() {
    let checks = checks_of("linked_allocator");
    for interval in [0, 64, 4096, 512 << 10] {
        let run = Run::fixture("linked_allocator").interval(interval);
        let ran = run.prefix("t").run().well();
        assert_eq!(ran.claims().ok, checks, "interval {interval}");
        if interval > 0 {
            assert_eq!(ran.log().whole().unknown_frees(), 0);
        }
    }
}

/// An allocator before the library serves everything, operators included, and the library says so.
#[test]
fn another_allocator_before_us_serves_the_operators_too() {
    let checks = checks_of("linked_allocator");
    for other in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let run = Run::fixture("linked_allocator").preloading(&[other, ""]);
        let ran = run.interval(1).prefix("t").run().well();
        assert_eq!(ran.claims().ok, checks, "{other}");
        let [line] = ran.said()[..] else {
            panic!("one line expected: {}", ran.stderr)
        };
        assert!(line.contains("name libheapprof.so first"), "{line}");
        assert_eq!(ran.files(), [""; 0], "{other}");
    }
}

/// Every form, handlers that make room and real exhaustion, with another allocator's operators
/// behind the library's.
#[test]
fn operators_fail_as_the_standard_says() {
    let checks = checks_of("cxx_operators");
    for other in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        for interval in [1, 4096] {
            let run = Run::fixture("cxx_operators").preloading(&["", other]);
            let ran = run.interval(interval).prefix("t").run().well();
            let claims = ran.claims();
            assert_eq!(claims.failures, [""; 0], "{other}");
            assert_eq!(claims.ok, checks, "{other}");
        }
    }
}

/// A library that counts malloc calls, before ours, sees C++'s allocations.
#[test]
fn a_counting_preload_before_us_counts_what_new_asks_for() {
    let checks = checks_of("linked_allocator");
    let ran = check(
        Run::fixture("linked_allocator").preloading(&["counting_preload.so", ""]),
        &checks,
    );
    assert!(ran.stdout.contains("counted 1"), "{}", ran.stdout);
}

#[test]
fn own_operators() {
    check(
        Run::fixture("own_operators").preloading(&[""]),
        &checks_of("own_operators"),
    );
}

#[test]
fn own_malloc_cxx() {
    let checks = checks_of("own_malloc_cxx");
    let run = Run::fixture("own_malloc_cxx").interval(1).prefix("t");
    let ran = run.run().well();
    assert_eq!(ran.claims().ok, checks);
    assert_eq!(ran.said(), [""; 0]);
    let info = Run::heapprof()
        .in_folder_of(&ran)
        .args(["info", "t.heaplog"]);
    let info = info.run().well().stdout;
    assert!(info.contains("  tapped        malloc in /"), "{info}");
    assert!(info.contains("agrees"), "{info}");
}

/// C++ libraries that only a plug-in sees: the interpreter is C.
#[test]
fn a_plug_in_in_cxx() {
    const SOURCE: &str = r#"#include <new>
#include <cstdint>
#include <string>
#include <vector>
struct Mine {};
static void throws() { throw Mine(); }
extern "C" __attribute__((noipa)) void *keep() { return ::operator new(29001); }
extern "C" int work() {
    std::vector<std::string> v;
    for (int i = 0; i < 1000; i++) v.emplace_back(i, 'x');
    const volatile std::size_t size = PTRDIFF_MAX;
    int caught = 0;
    try { return ::operator new(size) != nullptr; } catch (const std::bad_alloc &) { caught++; }
    std::set_new_handler(throws);
    try { return ::operator new[](size) != nullptr; } catch (const Mine &) { caught++; }
    std::set_new_handler(nullptr);
    caught += ::operator new(size, std::nothrow) == nullptr;
    return caught * 1000 + (int)v.size();
}
"#;
    let made = Run::tool("g++");
    std::fs::write(made.folder().join("plugin.cpp"), SOURCE).unwrap();
    let made = made
        .args(["-O1", "-g", "-fPIC", "-shared", "-x", "c++", "plugin.cpp"])
        .args(["-o", "plugin.so"])
        .run()
        .well();
    let python = "import ctypes\n\
        lib = ctypes.CDLL('./plugin.so')\n\
        lib.keep.restype = ctypes.c_void_p\n\
        lib.keep()\n\
        print('worked', lib.work())\n";
    let program = Path::new("/usr/bin/python3");
    let run = Run::program(program).in_folder_of(&made);
    let ran = run
        .args(["-S", "-c", python])
        .interval(1)
        .prefix("t")
        .run()
        .well();
    assert!(ran.stdout.contains("worked 4000"), "{}", ran.stdout);
    let log = ran.log().whole();
    assert_eq!(log.unknown_frees(), 0);
    let blocks = log.blocks_of(29001);
    assert_eq!(blocks.len(), 1);
    let frames = &log.named().stacks[blocks[0].stack];
    assert_eq!(frames[0].plain, "operator new(unsigned long)");
    assert_eq!(frames[1].plain, "keep");
}

/// Operators without a C++ library behind: a form that must not throw returns null, the other ends
/// the program with a line.
#[test]
fn no_cxx_library_at_all() {
    const SOURCE: &str = r#"#include <stdint.h>
#include <stdio.h>
#include <string.h>
__attribute__((weak)) void *_Znwm(size_t);
__attribute__((weak)) void *_ZnwmRKSt9nothrow_t(size_t, void *);
__attribute__((weak)) void _ZdlPv(void *);
int main(int argc, char **argv) {
    const volatile size_t size = PTRDIFF_MAX;
    void *p = _Znwm(100);
    memset(p, 1, 100);
    _ZdlPv(p);
    puts(_ZnwmRKSt9nothrow_t(size, argv) ? "block" : "null");
    fflush(stdout);
    return argc > 1 && _Znwm(size) != NULL;
}
"#;
    let ran = Run::compiled("plain", SOURCE, &[]).interval(1).run().well();
    assert_eq!((&*ran.stdout, &*ran.stderr), ("null\n", ""));
    let ran = Run::compiled("plain", SOURCE, &[]).arg("throw").run();
    assert_eq!(ran.code(), 128 + libc::SIGABRT);
    let [line] = ran.said()[..] else {
        panic!("one line expected: {}", ran.stderr)
    };
    assert!(line.contains("operator new failed"), "{line}");
}
