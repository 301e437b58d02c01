//! Allocators that cannot be recorded: one inside a library that the program opens later, and
//! Rust's global allocator, if it has memory of its own. A line says so.

use std::fs;
use std::process::Command;

use heapprof_tests::Run;

/// Takes blocks of a mapping by a function of mimalloc's name.
const LIBRARY: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
void *mi_malloc(size_t size);
__attribute__((noinline)) void *mi_malloc(size_t size)
{
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memset(block, 1, size);
}
void *keeps[2];
void keep(void)
{
    keeps[0] = malloc(20001);
    keeps[1] = mi_malloc(64 << 20);
}
"#;

const PROGRAM: &str = r#"
#include <dlfcn.h>
int main(void)
{
    void *library = dlopen("./libother.so", RTLD_NOW);
    ((void (*)(void))dlsym(library, "keep"))();
    return 0;
}
"#;

/// Compiles the library that the program opens, with that flag besides.
fn make_library(run: &Run, source: &str, flag: &str) {
    fs::write(run.folder().join("other.c"), source).expect("a file");
    let made = Command::new("gcc")
        .args(["-O1", "-shared", "-fPIC", flag])
        .args(["-o", "libother.so", "other.c"])
        .current_dir(run.folder())
        .status();
    assert!(made.expect("gcc").success());
}

#[test]
fn an_allocator_in_a_library_is_told_and_its_memory_stands_beside_the_total() {
    let run = Run::compiled("program", PROGRAM, &["-w", "-ldl"]);
    make_library(&run, LIBRARY, "-w");
    let ran = run.interval(1).prefix("t").run().well();
    assert_eq!(ran.log().blocks_of(20001).len(), 1);
    for command in ["top", "info", "tree"] {
        let read = Run::heapprof()
            .arg(command)
            .arg(ran.log_path())
            .run()
            .well();
        let told = [
            "libother.so brings an allocator of its own (mi_malloc)",
            "not recorded",
        ];
        assert!(
            told.iter().all(|words| read.stderr.contains(words)),
            "{command}: {}",
            read.stderr
        );
        let line = read
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("resident memory"));
        let line = line.unwrap_or_else(|| panic!("{command}: {}", read.stdout));
        let most = line
            .split(": ")
            .nth(1)
            .and_then(|sizes| sizes.split(' ').next());
        let mebibytes: f64 = most.and_then(|size| size.parse().ok()).expect("a size");
        assert!(
            (64.0..200.0).contains(&mebibytes) && line.contains("MiB"),
            "{line}"
        );
    }
}

/// Takes blocks of a mapping by a function that has no name in the file, beside a message of
/// jemalloc's.
const STRIPPED: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) static void *take(size_t size)
{
    static const char failure[] = "<jemalloc>: Error in mmap()";
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        _exit(write(2, failure, sizeof failure) != 0);
    return memset(block, 1, size);
}
void *keeps[2];
void keep(void)
{
    keeps[0] = malloc(20001);
    keeps[1] = take(64 << 20);
}
"#;

#[test]
fn an_allocator_in_a_stripped_library_is_told_by_its_messages() {
    let run = Run::compiled("program", PROGRAM, &["-w", "-ldl"]);
    make_library(&run, STRIPPED, "-s");
    let ran = run.interval(1).prefix("t").run().well();
    let read = Run::heapprof().arg("top").arg(ran.log_path()).run().well();
    let told = "libother.so brings an allocator of its own (jemalloc, by its messages)";
    assert!(read.stderr.contains(told), "{}", read.stderr);
}

/// A global allocator that has memory of its own, or takes each block from malloc.
const RUST: &str = r#"
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

const TAKES_FROM_MALLOC: bool = cfg!(takes_from_malloc);
struct Global;
#[repr(align(64))]
#[allow(dead_code)]
struct Memory([u8; 1 << 20]);
static mut MEMORY: Memory = Memory([0; 1 << 20]);
static USED: AtomicUsize = AtomicUsize::new(0);

unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if TAKES_FROM_MALLOC {
            return unsafe { System.alloc(layout) };
        }
        let at = USED.fetch_add(layout.size().next_multiple_of(64), Ordering::Relaxed);
        assert!(at + layout.size() <= 1 << 20);
        unsafe { (&raw mut MEMORY).cast::<u8>().add(at) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if TAKES_FROM_MALLOC {
            unsafe { System.dealloc(block, layout) }
        }
    }
}

#[global_allocator]
static GLOBAL: Global = Global;

fn main() {
    std::hint::black_box(vec![1u8; 45001]);
}
"#;

#[test]
fn a_global_allocator_with_memory_of_its_own_is_told() {
    for (flags, lines, blocks) in [(&[][..], 1, 0), (&["--cfg", "takes_from_malloc"], 0, 1)] {
        for optimised in ["-O", "-g"] {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join("global.rs"), RUST).expect("a file");
            let made = Command::new("rustc")
                .args(["--edition", "2024", optimised, "global.rs"])
                .args(flags)
                .current_dir(folder.path())
                .status();
            assert!(made.expect("rustc").success());
            let run = Run::program(folder.path().join("global"));
            let ran = run.interval(1).run().well();
            let notes = ran.notes();
            assert_eq!(notes.len(), lines, "{flags:?} {optimised}: {notes:?}");
            let tells = |line: &String| line.contains("Rust's global allocator in ");
            assert!(notes.iter().all(tells), "{notes:?}");
            let log = ran.log().whole();
            assert_eq!(log.blocks_of(45001).len(), blocks, "{flags:?} {optimised}");
        }
    }
}
