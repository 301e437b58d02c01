//! Plug-ins that take each other's places: knowledge of one is not valid for the other.

use std::fs;
use std::process::Command;

use heapprof_tests::{Log, Run};

/// Preloaded libraries: ours, and ours over a glibc without `_dl_find_object`.
const LOADERS: [&[&str]; 2] = [&[""], &["", "old_loader.so"]];

/// Returns a run of a program with plug-ins beside it.
fn with_plug_ins(source: &str, plug_ins: &[(&str, &str)]) -> Run {
    let run = Run::compiled("program", source, &["-w", "-ldl"]);
    for (name, source) in plug_ins {
        let (c, library) = (format!("{name}.c"), format!("{name}.so"));
        fs::write(run.folder().join(&c), source).unwrap();
        let made = Command::new("gcc")
            .args(["-w", "-g", "-O1", "-fno-builtin", "-fomit-frame-pointer"])
            .args(["-shared", "-fPIC", "-o", &library, &c])
            .current_dir(run.folder())
            .output()
            .expect("gcc runs (scripts/install-deps installs it)");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{c}: {said}");
    }
    run
}

/// Returns the functions that allocated blocks of that size, by their own names, innermost first,
/// up to `main`.
fn stacks_of(log: &Log, size: u64) -> Vec<Vec<String>> {
    let blocks = log.blocks_of(size);
    let stacks = blocks.iter().map(|block| {
        let frames = log.named().stacks[block.stack].iter();
        let names = frames.map(|frame| frame.plain.clone());
        let mut names: Vec<String> = names.collect();
        let main = names.iter().position(|name| name == "main");
        names.truncate(main.expect("main") + 1);
        names
    });
    stacks.collect()
}

/// A plug-in that was built again, and one that differs in little more than its names: each is
/// loaded at the place of the one before, without a walk in between.
#[test]
fn built_again_and_loaded_at_the_same_place() {
    const PROGRAM: &str = r#"
        #include <dlfcn.h>
        #include <stdlib.h>
        int main(void)
        {
            static const char *const names[] = {"./first.so", "./second.so", "./third.so"};
            for (int i = 0; i < 3; i++) {
                void *plug_in = dlopen(names[i], RTLD_NOW);
                free(((void *(*)(int))dlsym(plug_in, "work"))(20000001 + i));
                dlclose(plug_in);
            }
            return 0;
        }
    "#;
    let plug_in = |name: &str, local: &str| {
        format!(
            r#"
            #include <stdlib.h>
            __attribute__((noinline)) void *{name}(int size) {{ {local} void *volatile block = malloc(size); return block; }}
            void *work(int size) {{ void *volatile block = {name}(size); return block; }}
            "#
        )
    };
    let plug_ins = [
        ("first", plug_in("alpha", "")),
        (
            "second",
            plug_in("alpha", "volatile char more[4096]; more[1] = 1;"),
        ),
        ("third", plug_in("gamma", "")),
    ];
    let plug_ins = plug_ins
        .each_ref()
        .map(|(name, source)| (*name, source.as_str()));
    for loader in LOADERS {
        // Hardly any other block is sampled.
        let run = with_plug_ins(PROGRAM, &plug_ins).preloading(loader);
        let ran = run.interval(1 << 20).run().well();
        let log = ran.log().whole();
        for (n, name) in [(0, "alpha"), (1, "alpha"), (2, "gamma")] {
            let stacks = stacks_of(&log, 20_000_001 + n);
            let whole = [["malloc", name, "work", "main"]];
            assert_eq!(stacks, whole, "plug-in {n}, {loader:?}");
        }
    }
}

/// One of two plug-ins goes unnoticed, as libc unloads its character set converters; a larger one
/// is loaded over both.
#[test]
fn over_one_that_went_unnoticed() {
    const ELSEWHERE: i32 = 3;
    const PROGRAM: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <link.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <unistd.h>
        /* The small holes between libraries are taken, so that what comes next comes below all. */
        static void fill(void)
        {
            static struct { unsigned long at, len; } holes[200];
            unsigned long start, end, last = 0;
            int n = 0;
            char line[512];
            FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, sizeof line, maps) && n < 200) {
                sscanf(line, "%lx-%lx", &start, &end);
                if (last > 0x700000000000 && start > last && start - last < 40 << 20) {
                    holes[n].at = last;
                    holes[n++].len = start - last;
                }
                last = end;
            }
            fclose(maps);
            while (n-- > 0)
                mmap((void *)holes[n].at, holes[n].len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        }
        static char *use(struct link_map *plug_in)
        {
            void *(*work)(int) = dlsym(plug_in, "work");
            for (int i = 0; i < 3; i++)
                free(work(4000));
            return (char *)work;
        }
        int main(void)
        {
            /* Not the one that others see first. */
            int (*unnoticed)(void *) = dlsym(dlopen("libdl.so.2", RTLD_NOW), "dlclose");
            fill();
            fill();
            struct link_map *upper = dlopen("./middling.so", RTLD_NOW), *lower = dlopen("./small.so", RTLD_NOW);
            use(upper);
            char *small = use(lower);
            dlclose(upper);
            free(malloc(10));
            unnoticed(lower);
            struct link_map *large = dlopen("./large.so", RTLD_NOW);
            if (!((char *)large->l_addr < small && small < (char *)dlsym(large, "work")))
                return 3;
            alarm(20);
            use(large);
            return 0;
        }
    "#;
    let plug_in = |before: &str| {
        format!(
            r#"
            #include <stdlib.h>
            asm(".text\n.skip {before}, 0x90\n");
            void *work(int size) {{ void *volatile block = malloc(size); return block; }}
            "#
        )
    };
    let plug_ins = [
        ("small", "0x1000"),
        ("middling", "0x90000"),
        ("large", "0x140000"),
    ]
    .map(|(name, before)| (name, plug_in(before)));
    let plug_ins = plug_ins
        .each_ref()
        .map(|(name, source)| (*name, source.as_str()));
    for loader in LOADERS {
        let run = || {
            let run = with_plug_ins(PROGRAM, &plug_ins).preloading(loader);
            run.interval(1).run()
        };
        // The program does not control where the kernel puts the last one: the library's thread may
        // have mapped something there first.
        let mut runs = (0..10).map(|_| run());
        let ran = runs.find(|ran| ran.code() != ELSEWHERE).expect("its place");
        let ran = ran.well();
        let stacks = stacks_of(&ran.log().whole(), 4000);
        let whole = vec![["malloc", "work", "use", "main"]; 9];
        assert_eq!(stacks, whole, "{loader:?}");
    }
}

/// Megabytes of unwind tables, and no memory for a copy.
#[test]
fn without_memory_for_its_tables() {
    const PROGRAM: &str = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/resource.h>
        #include <unistd.h>
        int main(void)
        {
            for (int i = 0; i < 2000; i++)
                free(malloc(10000)); /* the session begins */
            usleep(100000);
            void *(*work)(int) = dlsym(dlopen("./large.so", RTLD_NOW), "work");
            long pages;
            FILE *statm = fopen("/proc/self/statm", "r");
            fscanf(statm, "%ld", &pages);
            fclose(statm);
            struct rlimit limit = {pages * 4096 + (256 << 10), pages * 4096 + (256 << 10)};
            setrlimit(RLIMIT_AS, &limit);
            int blocks = 0;
            for (int i = 0; i < 3000; i++) {
                void *block = work(1000);
                blocks += block != NULL;
                free(block);
            }
            printf("%d blocks\n", blocks);
            return 0;
        }
    "#;
    const LARGE: &str = r#"
        #include <stdlib.h>
        asm(".text\n.rept 150000\n.cfi_startproc\n push %rbp\n .cfi_adjust_cfa_offset 8\n pop %rbp\n .cfi_adjust_cfa_offset -8\n"
            "ret\n.cfi_endproc\n.endr\n");
        void *work(int size) { void *volatile block = malloc(size); return block; }
    "#;
    for interval in [1, 4096] {
        let ran = with_plug_ins(PROGRAM, &[("large", LARGE)])
            .interval(interval)
            .run()
            .well();
        assert_eq!(ran.stdout, "3000 blocks\n", "{}", ran.stderr);
    }
}

/// A plug-in whose linker script leaves the headers out of its loaded parts, as glibc allows: it is
/// learnt like any other, and not searched again in each walk.
#[test]
fn without_headers_in_its_memory() {
    const PROGRAM: &str = r#"
        #include <dlfcn.h>
        #include <stdlib.h>
        int main(void)
        {
            void *(*work)(int) = dlsym(dlopen("./plug_in.so", RTLD_NOW), "work");
            for (int i = 0; i < 10; i++)
                free(work(20001));
            return 0;
        }
    "#;
    const PLUG_IN: &str = r#"
        #include <stdlib.h>
        void *work(int size) { void *volatile block = malloc(size); return block; }
    "#;
    let run = with_plug_ins(PROGRAM, &[]);
    fs::write(run.folder().join("plug_in.c"), PLUG_IN).unwrap();
    // The linker's own script, with an empty page before the first section, in place of the
    // headers.
    let made = Command::new("sh")
        .args(["-ec", r#"
            ld --verbose -shared | sed '1,/^====/d; /^====/,$d; s/ + SIZEOF_HEADERS/ + 0x2000/' >script
            gcc -w -g -O1 -fno-builtin -fno-omit-frame-pointer -shared -fPIC -Wl,-T,script -o plug_in.so plug_in.c
            readelf -lW plug_in.so | grep -q 'LOAD *0x0*1000 '
        "#])
        .current_dir(run.folder())
        .output()
        .expect("there is a shell");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    let ran = run.interval(1).run().well();
    let log = ran.log().whole();
    let stacks = stacks_of(&log, 20001);
    assert_eq!(stacks, vec![["malloc", "work", "main"]; 10]);
    let modules = log.profile.modules.iter();
    let times = modules.filter(|it| it.path.ends_with("plug_in.so")).count();
    assert_eq!(times, 1);
}

/// The modules of a log, by the last part of their path, and how often each is told.
fn told_modules(ran: &heapprof_tests::Finished) -> std::collections::BTreeMap<String, usize> {
    let log = ran.log();
    let mut told = std::collections::BTreeMap::new();
    for module in &log.profile.modules {
        *told.entry(module.name().to_owned()).or_insert(0) += 1;
    }
    told
}

/// One that is loaded again at its place is the same module, with the same stacks.
#[test]
fn one_that_is_loaded_again_and_again_is_one_module() {
    for loader in LOADERS {
        let run = Run::fixture("reloads_plugins").preloading(loader);
        let ran = run.arg("200").interval(1).prefix("t").run().well();
        assert_eq!(told_modules(&ran)["plugin_a.so"], 1, "{loader:?}");
        let log = ran.log().whole();
        let stacks = stacks_of_block(&log, "plugin_a_entry");
        assert!(stacks <= 2, "{stacks} stacks, {loader:?}");
    }
}

/// How many stacks lead through that function.
fn stacks_of_block(log: &Log, function: &str) -> usize {
    let stacks = log.named().stacks.iter();
    let through = stacks.filter(|frames| frames.iter().any(|frame| frame.plain == function));
    through.count()
}

/// Two that take each other's place are told each time, but keep their stacks.
#[test]
fn two_that_take_turns_keep_their_stacks() {
    let run = Run::fixture("reloads_plugins").args(["400", "two"]);
    let ran = run.interval(1).prefix("t").run().well();
    let log = ran.log().whole();
    for function in ["plugin_a_entry", "plugin_b_entry"] {
        let stacks = stacks_of_block(&log, function);
        assert!((1..=2).contains(&stacks), "{function}: {stacks} stacks");
    }
}

/// Neither memory nor a bounded log grows with the cycles.
#[test]
fn cycles_of_loading_need_no_more_memory_and_log() {
    // Events of two plug-ins that take turns are kept in memory, up to a limit.
    for (args, most) in [(&["10000"][..], 2_000), (&["6000", "two"], 8_000)] {
        let run = Run::fixture("reloads_plugins").args(args);
        let ran = run
            .interval(1)
            .prefix("t")
            .env("HEAPPROF_MAX_LOG", "1M")
            .run()
            .well();
        let grew = heapprof_tests::last(&ran, "grew ");
        assert!(grew < most, "{args:?}: {grew} KiB");
        let logs = ran.files_ending(".heaplog");
        let bytes: usize = logs.iter().map(|name| ran.bytes(name).len()).sum();
        assert!(bytes <= 1 << 20, "{args:?}: {bytes} bytes in {logs:?}");
        assert_eq!(ran.stderr, "", "{args:?}");
    }
}
