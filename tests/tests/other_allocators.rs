//! An allocator inside a library that the program opens later: readers say that its blocks are not
//! recorded.

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
