//! Stacks that harm a careless walker: code that comes and goes, tables that lie, no stack left,
//! code outside all files.

use std::collections::BTreeMap;
use std::fs;

use heapprof_format::{Counter, WalkEnd};
use heapprof_tests::{Build, Finished, Log, Run, assert_claims, best, last};

#[track_caller]
fn check(run: Run) -> (Finished, Log) {
    let ran = run.interval(1).prefix("t").run().well();
    let log = assert_claims(&ran);
    assert_eq!(ran.stderr, "");
    (ran, log)
}

/// Returns how often the walks of all blocks of these sizes ended for each reason.
fn ends(log: &Log, sizes: impl IntoIterator<Item = u64>) -> BTreeMap<WalkEnd, usize> {
    let mut found = BTreeMap::new();
    for size in sizes {
        for block in log.blocks_of(size) {
            let end = log.profile.stacks[block.stack].end.expect("a log says why");
            *found.entry(end).or_insert(0) += 1;
        }
    }
    found
}

/// Returns the number of addresses outside all modules in each stack of these blocks.
fn outside(log: &Log, size: u64) -> Vec<usize> {
    let count = |stack: usize| {
        let places = log.profile.places(&log.profile.stacks[stack]);
        places.filter(|place| place.module.is_none()).count()
    };
    let blocks = log.blocks_of(size);
    blocks.iter().map(|block| count(block.stack)).collect()
}

/// Plug-ins come and go while other threads' walks are led into them, and while one allocates under
/// the loader's lock. A library that reads their tables in place faults here in nearly every run.
#[test]
fn dlopen_storm() {
    storm(&[""]);
}

/// The storm over a glibc without `_dl_find_object`, where the library reads the loader's list
/// while others change it.
#[test]
fn dlopen_storm_over_an_old_loader() {
    storm(&["", "old_loader.so"]);
}

fn storm(libraries: &[&str]) {
    let run = Run::fixture("dlopen_storm").preloading(libraries);
    let ran = run.interval(32768).prefix("t").run().well();
    let log = ran.log().whole();
    // Root first. The program is resolved once, which reads each of a thousand modules' symbols
    // once.
    let folded = Run::heapprof()
        .in_folder_of(&ran)
        .args(["export", "--format", "folded"])
        .args(["--metric", "allocated-bytes", "t.heaplog"])
        .run()
        .well();
    for (innermost, outer) in [
        ("misleading;allocates_misled;malloc ", ""),
        (";allocates_well;malloc ", ";other_thread;"),
        (
            ";callback;allocates_in_callback;malloc ",
            ";iterating_thread;",
        ),
    ] {
        let of_kind = folded
            .stdout
            .lines()
            .filter(|line| line.contains(innermost));
        let (right, wrong): (Vec<_>, Vec<_>) = of_kind.partition(|line| line.contains(outer));
        assert!(!right.is_empty() && wrong.is_empty(), "{wrong:?}");
    }
    // Walks that are not led astray are whole, whatever is being unloaded.
    let well = ends(&log, [30002]);
    let reasons: Vec<_> = well.keys().collect();
    assert_eq!(reasons, [&WalkEnd::Root], "{well:?}");
    assert_eq!(ran.stderr, "");
}

#[test]
fn wrong_tables() {
    let (ran, log) = check(Run::fixture("wrong_tables"));
    let sizes: Vec<u64> = ran.claims().stacks.iter().map(|(size, _)| *size).collect();
    let ends = ends(&log, sizes.iter().copied());
    // Each lie ends the walk in its way. The walk is whole only if the table says that there is no
    // caller, or leads back to the truth.
    for end in [WalkEnd::NoRule, WalkEnd::NotAdvancing, WalkEnd::TooDeep] {
        assert!(ends.contains_key(&end), "{end:?}: {ends:?}");
    }
    assert_eq!(ends.values().sum::<usize>(), 3 * sizes.len());
    assert!(ends[&WalkEnd::Root] < 3 * 8, "{ends:?}");
}

/// Copies of a plug-in with other bytes in the program headers that lead to its tables, in
/// `.eh_frame_hdr` and in `.eh_frame`: found when they are loaded, and found at boot.
#[test]
fn damaged_tables() {
    const COPIES: usize = 64;
    let good = fs::read(Build::get().fixture("plugin_b.so")).unwrap();
    let number = |bytes: &[u8], at: usize, len: usize| {
        let mut word = [0; 8];
        word[..len].copy_from_slice(&bytes[at..at + len]);
        u64::from_le_bytes(word) as usize
    };
    let (headers, count) = (number(&good, 32, 8), number(&good, 56, 2));
    let header = (0..count)
        .map(|i| headers + i * 56)
        .find(|&at| number(&good, at, 4) == 0x6474_e550)
        .expect("PT_GNU_EH_FRAME");
    let (table, len) = (number(&good, header + 8, 8), number(&good, header + 32, 8));
    let mut run = Run::fixture("wrong_tables");
    let mut seed = 20_261_121u64;
    let mut random = |below: usize| {
        // Knuth's MMIX generator: the same damage in every run.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut copies = Vec::new();
    for copy in 0..COPIES {
        let mut bytes = good.clone();
        match copy % 4 {
            // Place and length of the table: the loader itself looks at neither.
            0 => {
                let field = [16, 40][random(2)];
                let value = [u64::MAX, u64::MAX - 8, 1 << 63, 0x1000, 7, 1 << 32][random(6)];
                let at = header + field;
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            // The header and the sorted table in it.
            1 => {
                for _ in 0..4 {
                    bytes[table + random(len)] = random(256) as u8;
                }
            }
            // The entries, which follow it.
            2 => {
                for _ in 0..16 {
                    bytes[table + len + random(200)] = random(256) as u8;
                }
            }
            _ => {
                for _ in 0..200 {
                    bytes[table + random(len + 400)] = random(256) as u8;
                }
            }
        }
        let path = run.folder().join(format!("damaged_{copy}.so"));
        fs::write(&path, bytes).unwrap();
        copies.push(path);
    }
    run = run.args(&copies);
    let (first, _) = check(run);

    // The same damage from the start: these tables are read in place.
    let mut preload = Build::get().library().as_os_str().to_owned();
    for path in &copies {
        preload.push(":");
        preload.push(path);
    }
    let ran = Run::fixture("wrong_tables")
        .without_library()
        .env("LD_PRELOAD", preload)
        .args(&copies)
        .interval(1)
        .prefix("t")
        .run()
        .well();
    assert_claims(&ran);
    drop(first);
}

#[test]
fn jit() {
    let (_, log) = check(Run::fixture("jit"));
    assert_eq!(ends(&log, [32001]), BTreeMap::from([(WalkEnd::Root, 3)]));
    assert_eq!(
        ends(&log, [32002, 32003]),
        BTreeMap::from([(WalkEnd::NoModule, 10)])
    );
    // The first of these walks requests the places of code, which are known some time later.
    for (size, frames) in [(32004, 10), (32006, 2)] {
        assert_eq!(outside(&log, size).last(), Some(&frames));
        let last = log.blocks_of(size)[9].stack;
        assert_eq!(log.profile.stacks[last].end, Some(WalkEnd::Root));
    }
    // Words that look like a frame are not believed: the code that malloc's caller returns to is
    // the last.
    assert_eq!(
        ends(&log, [32005]),
        BTreeMap::from([(WalkEnd::NoModule, 3)])
    );
    assert_eq!(outside(&log, 32005), [1, 1, 1]);
    // Removed code is known some time later, too.
    assert_eq!(outside(&log, 32007).last(), Some(&1));
}

/// Walks are led from code without frame pointers to data, to memory that comes and goes, and to
/// nothing. The walker does not ask what is there: that would take a descriptor of the program's,
/// or a load that may fault.
#[test]
fn jit_astray() {
    let ran = Run::fixture("jit_astray").interval(1).run().well();
    assert_eq!(ran.stdout, "ok free\n");
}

/// The list of executable memory is part of the list of all mappings. A library that reads it for
/// each new function does nothing else. One that reads it at once does nothing else meanwhile.
#[test]
fn jit_among_mappings() {
    let longest_ms = best(20, || {
        let ran = Run::fixture("jit_among_mappings").interval(4096).run();
        let ran = ran.well();
        assert_eq!(ran.stdout.lines().last(), Some("ok little else"));
        last(&ran, "longest ")
    });
    assert!(longest_ms <= 20, "{longest_ms} ms");
}

#[test]
fn recursion_100000() {
    let ran = Run::fixture("recursion_100000").interval(1).run().well();
    let log = ran.log().whole();
    for (size, pattern) in &ran.claims().stacks {
        let blocks = log.blocks_of(*size);
        assert_eq!(blocks.len(), 1000);
        for block in blocks {
            let stack = &log.profile.stacks[block.stack];
            assert_eq!(
                (stack.end, stack.frames.len()),
                (Some(WalkEnd::TooDeep), 513) // malloc is not counted
            );
            assert!(pattern.begins_with(&log.named().stacks[block.stack]));
        }
    }
}

/// A thread that jumps out of a hook enters another hook from above it. Then the library knows that
/// the first hook was left, and counts that.
#[test]
fn overflow_caught() {
    let ran = Run::fixture("overflow_caught").interval(1).prefix("t");
    let ran = ran.run().well();
    assert_eq!(ran.stdout, "20 overflows\n");
    let log = ran.log().whole();
    let (live, freed): (Vec<_>, Vec<_>) = log
        .blocks_of(4001)
        .into_iter()
        .partition(|block| block.in_use);
    assert_eq!((live.len(), freed.len()), (1000, 1000));
    assert!((1..=20).contains(&log.losses()[&Counter::LostLeft]));
    assert_eq!(log.blocks_of(4003).len(), 1000);
}

/// A guard page lies below the 6 KiB. The library's part is printed (`--nocapture`); docs/hosts.md
/// has the numbers.
#[test]
fn little_stack() {
    let (ran, log) = check(Run::fixture("little_stack"));
    assert_eq!(little_is_used(&ran), 7);
    assert_eq!(ends(&log, [24001]), BTreeMap::from([(WalkEnd::Root, 2)]));
}

/// Returns how many uses of the stack the fixture prints, each of less than 6 KiB.
fn little_is_used(ran: &Finished) -> usize {
    let lines = ran.stdout.lines();
    let used = lines.filter_map(|line| line.strip_prefix("stack_bytes "));
    used.inspect(|line| {
        println!("{line}");
        let (_, bytes) = line.split_once(' ').expect("what and how much");
        assert!(bytes.parse::<u32>().unwrap() < 6144, "{line}");
    })
    .count()
}

/// A process without a session: the thread that begins it has no more stack.
#[test]
fn a_session_that_begins_on_a_little_stack() {
    for (process, log) in [("here", "t.heaplog"), ("fork", "t_"), ("thread", "t_")] {
        let run = Run::fixture("little_stack_begins").arg(process);
        let ran = run.interval(64 << 20).prefix("t").run().well();
        assert_eq!(little_is_used(&ran), 1, "{process}");
        let logs = ran.files_ending(".heaplog");
        let name = logs.iter().find(|name| name.starts_with(log));
        let log = Log::read(&ran.folder().join(name.expect("a log of that process"))).whole();
        assert_eq!(log.blocks_of(1 << 30).len(), 1, "{process}");
        for (size, pattern) in &ran.claims().stacks {
            for block in log.blocks_of(*size) {
                let stack = &log.named().stacks[block.stack];
                assert!(pattern.matches(stack), "{process}: {stack:?}");
            }
        }
    }
}

/// A coroutine, a mapping above it and the thread's own stack or descriptor are one readable range,
/// until the mapping is given back. Then code without unwind tables, whose `rbp` still points
/// there, allocates.
#[test]
fn what_lies_above_a_coroutine_may_go() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <ucontext.h>
        enum { SIZE = 256 << 10 };
        static ucontext_t back, here;
        static char *pool;
        void *without_table(size_t size, void *rbp);
        asm(".text\nwithout_table: push %rbp\n mov %rsi, %rbp\n call malloc\n pop %rbp\n ret\n");
        static void first(void) { free(malloc(25001)); }
        static void second(void) { free(without_table(25002, pool + SIZE + 4096)); }
        static void run(void (*entry)(void))
        {
            getcontext(&here);
            here.uc_stack.ss_sp = pool;
            here.uc_stack.ss_size = SIZE;
            here.uc_link = &back;
            makecontext(&here, entry, 0);
            swapcontext(&back, &here);
        }
        static void *both(void *unused)
        {
            free(malloc(25000));
            run(first);
            munmap(pool + SIZE, SIZE);
            run(second);
            return unused;
        }
        int main(int argc, char **argv)
        {
            pool = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (!strcmp(argv[1], "main")) return both(NULL) != NULL;
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstack(&attributes, pool + 2 * SIZE, 2 * SIZE);
            pthread_t thread;
            pthread_create(&thread, &attributes, both, NULL);
            return pthread_join(thread, NULL);
        }
    "#;
    for thread in ["main", "other"] {
        for _ in 0..5 {
            let run = Run::compiled("above", SOURCE, &["-w", "-pthread"]);
            let ran = run.args([thread]).interval(1).run().well();
            let log = ran.log().whole();
            for size in [25000, 25001, 25002] {
                assert_eq!(log.blocks_of(size).len(), 1, "{thread}: {size}");
            }
        }
    }
}

/// Coroutines on a pool of thousands of pages of stacks without gaps: a walk must not check each
/// page.
#[test]
fn a_large_pool_of_coroutines_is_not_asked_about_page_by_page() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <ucontext.h>
        enum { SIZE = 64 << 10, STACKS = 800, EACH = 1000 };
        static ucontext_t back, here;
        static void allocate(void)
        {
            for (int i = 0; i < EACH; i++) free(malloc(26000));
        }
        static void *all(void *pool)
        {
            for (int i = 0; i < STACKS; i++) {
                getcontext(&here);
                here.uc_stack.ss_sp = (char *)pool + i * SIZE;
                here.uc_stack.ss_size = SIZE;
                here.uc_link = &back;
                makecontext(&here, allocate, 0);
                swapcontext(&back, &here);
            }
            return NULL;
        }
        int main(void)
        {
            void *pool = mmap(NULL, STACKS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            all(pool);
            pthread_t thread;
            pthread_create(&thread, NULL, all, pool);
            return pthread_join(thread, NULL);
        }
    "#;
    let ran = Run::compiled("pool", SOURCE, &["-w", "-pthread"])
        .interval(1)
        .run()
        .well();
    let blocks = ran.log().whole().blocks_of(26000).len();
    assert_eq!(blocks, 2 * 800 * 1000);
}

/// A signal comes while the stack pointer is in the guard below a thread's own stack, as in an
/// overflow. Its handler, on a stack of its own, allocates.
#[test]
fn interrupted_in_the_guard() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <signal.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static char other_stack[64 << 10];
        static void handle(int number) { free(malloc(27001)); }
        static void *run(void *unused)
        {
            pthread_attr_t attributes;
            char *guard;
            size_t size;
            free(malloc(27000));
            pthread_getattr_np(pthread_self(), &attributes);
            pthread_attr_getstack(&attributes, (void **)&guard, &size);
            guard -= 2048;
            stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
            sigaltstack(&stack, NULL);
            long result = SYS_tgkill;
            asm volatile("mov %%rsp, %%r12\n mov %1, %%rsp\n syscall\n mov %%r12, %%rsp"
                         : "+a"(result)
                         : "r"(guard), "D"((long)getpid()), "S"((long)gettid()), "d"((long)SIGUSR1)
                         : "r12", "rcx", "r11", "memory");
            free(malloc(27002));
            return (void *)result;
        }
        int main(void)
        {
            struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
            sigaction(SIGUSR1, &action, NULL);
            pthread_t thread;
            pthread_create(&thread, NULL, run, NULL);
            return pthread_join(thread, NULL);
        }
    "#;
    let ran = Run::compiled("guard", SOURCE, &["-w", "-pthread"])
        .interval(1)
        .run()
        .well();
    let log = ran.log().whole();
    for size in [27000, 27001, 27002] {
        assert_eq!(log.blocks_of(size).len(), 1, "{size}");
    }
}

/// A context's first function returns to the beginning of a libc function: no unwind table covers
/// the byte before it.
#[test]
fn the_stack_of_a_context_is_whole() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <ucontext.h>
        static ucontext_t back, here;
        static void work(void)
        {
            for (;;) {
                free(malloc(26001));
                swapcontext(&here, &back);
            }
        }
        int main(void)
        {
            getcontext(&here);
            here.uc_stack.ss_sp = malloc(65536);
            here.uc_stack.ss_size = 65536;
            here.uc_link = &back;
            makecontext(&here, work, 0);
            for (int i = 0; i < 10; i++) swapcontext(&back, &here);
            return 0;
        }
    "#;
    for flags in [
        &["-O2", "-fomit-frame-pointer"][..],
        &["-O0", "-fno-omit-frame-pointer"],
    ] {
        let flags = [&["-w", "-fno-builtin"], flags].concat();
        let ran = Run::compiled("context", SOURCE, &flags).interval(1).run();
        let log = ran.well().log().whole();
        assert_eq!(
            ends(&log, [26001]),
            BTreeMap::from([(WalkEnd::Root, 10)]),
            "{flags:?}"
        );
    }
}

/// Our mappings leave the gap alone that a program keeps below a stack of its own.
#[test]
fn a_stack_that_grows_into_a_gap() {
    for kib in ["128", "1024", "4096"] {
        for interval in [0, 1] {
            let run = Run::fixture("stack_grows_down").arg(kib);
            let ran = run.interval(interval).prefix("t").run().well();
            assert_eq!(ran.claims().ok, ["grown"], "{kib} KiB");
            if interval == 1 {
                assert_claims(&ran);
            }
        }
    }
}
