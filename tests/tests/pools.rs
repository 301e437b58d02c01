//! Pools: blocks that an allocator of the program's own reports.

use heapprof_tests::{Run, repository};

/// A pool over one block of malloc's, whose first block begins where that block does.
const POOL: &str = r#"
#include "heapprof.h"
#include <stdio.h>
#include <stdlib.h>
enum { SIZE = 4096, BLOCKS = 200 };
static char *memory;
__attribute__((noinline)) void *pool_alloc(int at, size_t size)
{
    void *block = memory + (size_t)at * SIZE;
    HEAPPROF_ALLOC(block, size);
    return block;
}
__attribute__((noinline)) void pool_free(void *block) { HEAPPROF_FREE(block); }
int main(void)
{
    memory = malloc((size_t)SIZE * (BLOCKS + 1)); /* 823296 */
    for (int at = 0; at < BLOCKS; at++)
        pool_alloc(at, 333);
    for (int at = 0; at < BLOCKS; at += 2)
        pool_free(memory + (size_t)at * SIZE);
    /* In place, and to another place. */
    HEAPPROF_REALLOC(memory + SIZE, memory + SIZE, 444);
    HEAPPROF_REALLOC(memory + 3 * SIZE, memory + 4 * SIZE, 555);
    /* A pool that could not resize. */
    HEAPPROF_REALLOC(memory + 5 * SIZE, (void *)0, 666);
    /* Blocks that were not reported, and null. */
    HEAPPROF_FREE(memory + 12345);
    HEAPPROF_FREE((void *)0);
    HEAPPROF_ALLOC((void *)0, 777);
    /* A part of the pool was emptied at once, without a report, and gives out the same places. */
    for (int at = 100; at < 150; at++)
        pool_alloc(at, 888);
    HEAPPROF_REALLOC((void *)0, memory + 151 * SIZE, 999);
    free(memory);
    printf("done\n");
    return 0;
}
"#;

#[test]
fn blocks_of_a_pool_are_recorded_beside_those_of_malloc() {
    let include = format!("-I{}", repository().join("preload/include").display());
    for allocator in ["jemalloc", "program"] {
        let run = Run::compiled("pool", POOL, &[&include, "-O1", "-fno-builtin"]);
        let run = run.env("HEAPPROF_ALLOCATOR", allocator);
        let ran = run.interval(1).prefix("t").run().well();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("done\n", ""));
        let log = ran.log().whole();
        assert_eq!(log.unknown_frees(), 0);
        let count = |size: u64| {
            let blocks = log.blocks_of(size);
            let in_use = blocks.iter().filter(|block| block.in_use).count();
            (blocks.len(), in_use)
        };
        assert_eq!(count(823_296), (1, 0), "the pool itself");
        assert_eq!(
            count(333),
            (200, 72),
            "25 and one ended where others were given out"
        );
        assert_eq!((count(888), count(999)), ((50, 50), (1, 1)));
        assert_eq!(count(444), (1, 1));
        assert_eq!(count(555), (1, 1));
        assert_eq!((count(666), count(777)), ((0, 0), (0, 0)));
        for alloc in log.allocs().filter(|alloc| alloc.size == 333) {
            assert_eq!(alloc.slack, 0);
        }
        let stack = log.blocks_of(333)[0].stack;
        let shown = log.named().shown(stack);
        assert!(
            shown.contains("pool_alloc") && shown.contains("main"),
            "{shown}"
        );
    }
}

/// Sampled: the estimate of a pool's bytes is that of malloc's.
#[test]
fn blocks_of_a_pool_are_sampled_as_those_of_malloc() {
    let source = r#"
#include "heapprof.h"
#include <stdint.h>
int main(void)
{
    for (uintptr_t at = 1; at <= 400000; at++)
        HEAPPROF_ALLOC((void *)(at * 64), 64);
    return 0;
}
"#;
    let include = format!("-I{}", repository().join("preload/include").display());
    let run = Run::compiled("sampled", source, &[&include, "-O1"]);
    let ran = run.interval(16 << 10).prefix("t").run().well();
    let numbers = ran.log().whole().profile.numbers();
    // 25.6 MB at one sample in 16 KiB: 1,562 samples, a standard error of 2.5 %.
    let error = numbers.in_use_bytes as f64 / 25_600_000.0 - 1.0;
    assert!(error.abs() < 0.13, "{numbers:?}");
}

/// A reading of a huge block's pages ends when the end of the process waits for the log.
#[test]
fn a_block_of_a_terabyte_costs_no_log() {
    const HUGE: &str = r#"
#include "heapprof.h"
static char memory[100000];
int main(void)
{
    for (int at = 0; at < 1000; at++)
        HEAPPROF_ALLOC(memory + at * 99, 99);
    HEAPPROF_ALLOC(memory + sizeof memory - 1, (size_t)1 << 40);
    return 0;
}
"#;
    let include = format!("-I{}", repository().join("preload/include").display());
    let run = Run::compiled("huge", HUGE, &[&include, "-O1"]);
    let log = run.interval(1).prefix("t").run().well().log().whole();
    assert_eq!(log.blocks_of(99).len(), 1000);
    assert_eq!(log.blocks_of(1 << 40).len(), 1);
}
