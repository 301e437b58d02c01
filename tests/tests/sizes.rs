//! Sizes of blocks: the library's own computation equals its allocator's.

use std::collections::BTreeMap;

use heapprof_format::{Reader, Record};
use heapprof_tests::{Build, Finished, Run};

/// Returns each size in the log that occurs once, with its usable size.
fn recorded(ran: &Finished) -> BTreeMap<u64, u64> {
    let bytes = std::fs::read(ran.log_path()).unwrap();
    let mut reader = Reader::new(&bytes).unwrap();
    let mut usable = BTreeMap::new();
    while let Some(record) = reader.next_record().unwrap() {
        if let Record::Alloc(alloc) = record {
            usable.entry(alloc.size).or_insert(alloc.size + alloc.slack);
        }
    }
    usable
}

#[test]
fn every_size() {
    check_every_size(&Run::fixture("every_size").interval(1).run().well());
}

/// Also if large blocks do not have as many pages as their sizes take, and if threads' caches keep
/// fewer sizes, or more.
#[test]
fn every_size_by_other_options() {
    for options in [
        "disable_large_size_classes:false",
        "tcache_max:1024",
        "tcache_max:65536",
    ] {
        let run = Run::fixture("every_size").interval(1);
        check_every_size(&run.env("_RJEM_MALLOC_CONF", options).run().well());
    }
}

fn check_every_size(ran: &Finished) {
    let lines = ran.stdout.lines();
    let numbers = lines.filter_map(|line| line.strip_prefix("usable ")?.split_once(' '));
    let claimed: BTreeMap<u64, u64> = numbers
        .map(|(size, usable)| (size.parse().unwrap(), usable.parse().unwrap()))
        .collect();
    assert_eq!(claimed.len(), 32_830);
    let recorded = recorded(ran);
    for (size, usable) in &claimed {
        assert_eq!(recorded.get(size), Some(usable), "size {size}");
    }
    // Blocks that realloc left in place, or moved, are as large as new ones, unless they are whole
    // pages.
    assert!(ran.claims().failures.is_empty(), "{:?}", ran.claims());
    assert!(
        ran.stdout.contains("\nnote larger 0\n"),
        "{}",
        ran.stdout.lines().last().unwrap()
    );
}

/// Small blocks do not reach jemalloc, unless its options demand more for each block, or no cache:
/// then they behave as in jemalloc(3).
#[test]
fn options_of_jemalloc_that_every_block_must_meet() {
    const SOURCE: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        /* The last of one thread's blocks that was freed is the first that it gets, from a cache. */
        int main(void)
        {
            volatile unsigned char *block = NULL;
            for (int i = 0; i < 10; i++) {
                if (block) block[99] = 7;
                free((void *)block);
                block = malloc(100);
            }
            printf("filled with %02x\n", block[99]);
            block[0] = 1, block[99] = 2;
            free((void *)block);
            printf("freed are %02x\n", block[99]);
        }
    "#;
    for interval in [0, 1, 1 << 40] {
        for (options, says) in [
            ("", "filled with 07\nfreed are 02\n"),
            ("tcache:false", "freed are 02\n"),
            ("junk:alloc", "filled with a5\nfreed are 02\n"),
            ("junk:free", "freed are 5a\n"),
            ("zero:true", "filled with 00\nfreed are 02\n"),
        ] {
            let ran = Run::compiled("options", SOURCE, &["-w", "-O1", "-fno-builtin"])
                .env("_RJEM_MALLOC_CONF", options)
                .interval(interval)
                .run();
            assert_eq!(ran.code(), 0, "{options}: {}", ran.stderr);
            assert!(
                ran.stdout.ends_with(says),
                "{options}, {interval}: {}",
                ran.stdout
            );
        }
    }
}

/// Blocks of some pages come out of a thread's cache like small ones, larger ones past jemalloc's
/// malloc. So they must be whole, aligned, zeroed and exclusive, in a thread with a cache and in
/// one without, and under options that lead them other ways.
#[test]
fn blocks_of_pages() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <malloc.h>
        #include <pthread.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        enum { LIVE = 24 };
        struct block { unsigned char *at; size_t size; unsigned char with; } handed[LIVE];
        static void check(const struct block *b, const char *when)
        {
            if (b->size > malloc_usable_size(b->at)) printf("%s: %zu of %zu\n", when, malloc_usable_size(b->at), b->size);
            for (size_t i = 0; i < b->size; i += 509) {
                size_t from_end = b->size - 1 - i;
                if (b->at[i] == b->with && b->at[from_end] == b->with) continue;
                printf("%s: %zu bytes, other than %d at %zu from an end\n", when, b->size, b->with, i);
                return;
            }
        }
        static void *work(void *first)
        {
            uint64_t random = (uint64_t)first;
            struct block live[LIVE] = {0};
            for (int i = 0; i < 3000; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                struct block *b = &live[(random >> 33) % LIVE];
                size_t size = ((size_t)4000 << (random >> 40) % 6) + (random >> 44) % 40000; /* 4 to 168 KiB */
                if (i % 500 == 0) size <<= 7; /* to 21 MiB */
                if (b->at) check(b, "kept");
                size_t alignment = (size_t)16 << (random >> 60);
                switch ((random >> 57) % 5) {
                case 0: free(b->at), b->at = malloc(size); break;
                case 1:
                    free(b->at), b->at = calloc(1, size);
                    *b = (struct block){b->at, size, 0}, check(b, "zeroed");
                    break;
                case 2:
                    free(b->at);
                    if (posix_memalign((void **)&b->at, alignment, size)) puts("no memory");
                    if ((uintptr_t)b->at % alignment) printf("%p is not aligned to %zu\n", b->at, alignment);
                    break;
                case 3: {
                    size_t before = b->size;
                    b->at = realloc(b->at, size);
                    struct block same = {b->at, before < size ? before : size, b->with};
                    if (before) check(&same, "moved");
                    break;
                }
                default: free(b->at), b->at = valloc(size); break;
                }
                *b = (struct block){b->at, size, (unsigned char)(i + 1)};
                memset(b->at, b->with, size);
            }
            for (int i = 0; i < LIVE; i++) check(&live[i], "last");
            for (int i = 0; i < LIVE; i++) { if (handed[i].at) check(&handed[i], "handed on"); free(handed[i].at); }
            memcpy(handed, live, sizeof live);
            return NULL;
        }
        static void *frees(void *block) { free(block); return NULL; }
        int main(void)
        {
            for (uintptr_t n = 1; n <= 4; n++) {
                pthread_t thread;
                if (n % 2 == 0) work((void *)n);
                else if (pthread_create(&thread, NULL, work, (void *)n) == 0) pthread_join(thread, NULL);
                /* One that has no cache, and gets none for this. */
                if (pthread_create(&thread, NULL, frees, handed[0].at) == 0) pthread_join(thread, NULL), handed[0].at = NULL;
            }
            puts("done");
        }
    "#;
    let program = Run::compiled("pages", SOURCE, &["-w", "-O1", "-fno-builtin", "-pthread"]);
    let path = program.folder().join("bin/pages");
    for interval in [0, 1, 1 << 19] {
        for options in [
            "",
            "tcache:false",
            "tcache_max:1024",
            "tcache_max:65536",
            "disable_large_size_classes:false",
            "cache_oblivious:false",
            "junk:true",
        ] {
            let ran = Run::program(&path)
                .env("_RJEM_MALLOC_CONF", options)
                .interval(interval)
                .run();
            assert_eq!(ran.code(), 0, "{options}: {}", ran.stderr);
            assert_eq!(ran.stdout, "done\n", "{options}, {interval}");
        }
    }
}

/// Reallocs of null and of blocks in the lowest gigabyte of addresses, near null: under valgrind,
/// by a tool that leaves malloc alone.
#[test]
fn null_is_no_block_where_blocks_lie_low() {
    const SOURCE: &str = r#"
        #include <stdint.h>
        #include <stdlib.h>
        int main(void)
        {
            for (size_t size = 1; size < 100000; size += 1 + size / 7) {
                unsigned char *block = realloc(NULL, size);
                if ((uintptr_t)block >> 30 != 0) return 2;
                block[size - 1] = 9, block[0] = 7;
                block = realloc(block, size + 20);
                if (block[0] != 7 || block[size - 1] != (size == 1 ? 7 : 9)) return 3;
                free(block);
                free(NULL);
            }
        }
    "#;
    let compiled = Run::compiled("low", SOURCE, &[]);
    let program = compiled.folder().join("bin/low");
    for interval in [1, 1 << 40] {
        let ran = Run::tool("valgrind")
            .args(["--quiet", "--tool=none"])
            .arg(&program)
            .env("LD_PRELOAD", Build::get().library())
            .interval(interval)
            .run();
        assert_eq!(ran.code(), 0, "{}", ran.stderr);
    }
}

/// Each impossibly large request fails, and hides no later block.
#[test]
fn impossible_sizes_hide_nothing() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <malloc.h>
        #include <stdlib.h>
        /* operator new(size, nothrow), and with an alignment */
        void *_ZnwmRKSt9nothrow_t(size_t, const void *), *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t, size_t, const void *);
        static volatile size_t sizes[] = {
            (size_t)1 << 63, ((size_t)1 << 63) + 1, (size_t)9 << 60, (size_t)3 << 62, -(size_t)100000, -(size_t)4096, -(size_t)1};
        static void *ask(int way, size_t size)
        {
            void *block = NULL;
            switch (way) {
            case 0: return malloc(size);
            case 1: return calloc(1, size);
            case 2: return realloc(NULL, size);
            case 3: return aligned_alloc(64, size);
            case 4: return posix_memalign(&block, 64, size) ? NULL : block;
            case 5: return reallocarray(NULL, size, 1);
            case 6: return _ZnwmRKSt9nothrow_t(size, "");
            case 7: return _ZnwmSt11align_val_tRKSt9nothrow_t(size, 64, "");
            }
            block = malloc(10);
            void *grown = realloc(block, size);
            if (!grown) free(block);
            return grown;
        }
        int main(void)
        {
            for (int way = 0; way < 9; way++)
                for (int n = 0; n < 7; n++) {
                    /* The C++ library rounds the last up to its alignment: to 0. */
                    if (ask(way, sizes[n]) && !(way == 7 && n == 6)) return 2;
                    for (int i = 0; i < 100; i++)
                        if (!malloc(1000)) return 3;
                }
        }
    "#;
    for interval in [1, 1000] {
        let ran = Run::compiled("impossible", SOURCE, &["-w", "-lstdc++"])
            .interval(interval)
            .run()
            .well();
        let blocks = ran.log().whole().blocks_of(1000).len();
        // Sampled with the probability 1 - 1/e: within six standard deviations.
        let expected = match interval {
            1 => 6300..=6300,
            _ => 3752..=4213,
        };
        assert!(expected.contains(&blocks), "{interval}: {blocks}");
    }
}

/// A request beyond the machine's memory is refused as by libc's malloc: a program that got it
/// would be killed later.
#[test]
fn what_libc_refuses_is_refused() {
    const SOURCE: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        int main(void)
        {
            for (int bits = 30; bits < 47; bits++) {
                void *volatile block = malloc(1ul << bits);
                printf("%d %s\n", bits, block ? "yes" : "no");
                free(block);
            }
            return 0;
        }
    "#;
    let run = || Run::compiled("too_large", SOURCE, &["-w"]);
    let without = run().without_library().run();
    assert_eq!(run().run().well().stdout, without.stdout);
}
