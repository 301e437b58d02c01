//! Loader and start-up: code before main, other preloaded libraries, name spaces, and programs that
//! the library does not fit.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use heapprof_format::Counter;
use heapprof_tests::{
    Block, Build, Finished, Log, Run, assert_claims, is_over_musl, is_root, may_mount,
};

/// Asserts that the fixture passes, and that its claims hold in the log, which is read to its end.
#[track_caller]
fn check(run: Run) -> Finished {
    let ran = run.interval(1).prefix("t").run().well();
    let claims = ran.claims();
    assert!(claims.failures.is_empty(), "{:?}", claims.failures);
    if !claims.stacks.is_empty() {
        assert_claims(&ran);
    }
    ran
}

/// Resolvers of the program and of a library run before the library is relocated and before
/// thread-local words have their values.
#[test]
fn ifunc_resolvers_allocate() {
    for now in [None, Some("1")] {
        for interval in [1, 512 << 10] {
            let mut run = Run::fixture("ifunc_allocates").interval(interval);
            if let Some(now) = now {
                run = run.env("LD_BIND_NOW", now);
            }
            let ran = run.prefix("t").run().well();
            let checks = ["program", "library", "contents", "usable", "grown", "after"];
            assert_eq!(ran.claims().ok, checks);
            if interval == 1 {
                assert_eq!(ran.log().whole().blocks_of(26003).len(), 1);
            }
        }
    }
}

#[test]
fn ifunc_resolvers_use_operators() {
    for now in [None, Some("1")] {
        let mut run = Run::fixture("ifunc_operators");
        if let Some(now) = now {
            run = run.env("LD_BIND_NOW", now);
        }
        let ran = check(run);
        assert_eq!(ran.claims().ok, ["contents", "aligned"]);
        assert_eq!(ran.log().whole().blocks_of(37003).len(), 1);
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn before_main() {
    for _ in 0..5 {
        let ran = check(Run::fixture("before_main"));
        assert_eq!(ran.claims().ok, ["freed"]);
        let log = ran.log();
        assert_eq!(log.unknown_frees(), 0);
        // Our constructor came after another library's. Allocations of that one and its thread
        // meanwhile are counted.
        assert!(log.losses().contains_key(&Counter::LostNotReady));
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn own_dlsym() {
    let run = Run::fixture("own_dlsym").interval(1).prefix("t");
    let ran = run.run().well();
    let claims = ran.claims();
    assert_eq!(claims.ok, ["calls", "exec"]);
    let log = Log::read(&ran.folder().join("t.heaplog")).whole();
    for (size, pattern) in &claims.stacks {
        let blocks = log.blocks_of(*size);
        assert_eq!(blocks.len(), 1, "{size}");
        assert!(pattern.matches(&log.named().stacks[blocks[0].stack]));
    }
}

#[test]
fn ld_bind_now() {
    for fixture in ["threads_basic", "dlopen_cycle", "namespaces", "own_dlsym"] {
        let run = Run::fixture(fixture).env("LD_BIND_NOW", "1").interval(1);
        let ran = run.run().well();
        assert!(ran.claims().failures.is_empty(), "{fixture}");
        assert_eq!(ran.stderr, "", "{fixture}");
    }
}

/// dlmopen's own libc, and RTLD_DEEPBIND by dlopen and by dlmopen.
#[test]
fn namespaces() {
    let ran = check(Run::fixture("namespaces"));
    assert_eq!(ran.claims().ok, ["borders"]);
}

#[test]
fn own_malloc() {
    let ran = Run::fixture("own_malloc").interval(1).run().well();
    assert_eq!(ran.claims().ok, ["own"]);
    assert_eq!(ran.stderr, "");
    let log = ran.log().whole();
    for size in [100, 1000] {
        let blocks = log.blocks_of(size);
        assert!(
            matches!(blocks[..], [block] if !block.in_use),
            "{size}: {blocks:?}"
        );
    }

    let run = Run::fixture("own_malloc").interval(1);
    let ran = run.env("HEAPPROF_TAP", "0").run().well();
    assert_eq!(ran.claims().ok, ["own"]);
    ran.assert_said(&["own_malloc has its own malloc", "HEAPPROF_TAP=0"]);
    // A log would say that nothing was allocated.
    assert_eq!(ran.files(), [""; 0]);
}

/// The session begins, with the library's thread, where it can be waited for: the sample before is
/// lost, and counted.
#[test]
fn a_first_sample_under_the_loaders_lock() {
    let ran = Run::fixture("iterates_first")
        .interval(1 << 20)
        .prefix("t")
        .run()
        .well();
    let log = ran.log().whole();
    assert_eq!(log.losses().get(&Counter::LostNotReady), Some(&1));
    assert_eq!(log.blocks_of((64 << 20) + 1).len(), 0);
    let [kept] = log.blocks_of((64 << 20) + 2)[..] else {
        panic!("one block")
    };
    assert!(kept.in_use);
    assert_eq!(ran.stderr, "");
}

/// A forwarding library on either side of ours: everything is recorded, and it sees the same calls
/// as without ours.
#[test]
fn a_counting_preload_before_and_after() {
    for (libraries, counts) in [
        (["counting_preload.so", ""], true),
        (["", "counting_preload.so"], false), // the first serves, with every profiler
    ] {
        let ran = check(Run::fixture("threads_basic").preloading(&libraries));
        let counted = format!("counted {}", u8::from(counts));
        assert!(ran.stdout.contains(&counted), "{libraries:?}");
        assert_eq!(ran.stderr, "", "{libraries:?}");
    }
}

/// Another allocator after ours is not called. One before ours serves, and the library says so and
/// stays out of its way.
#[test]
fn other_allocators_before_and_after() {
    for other in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let ran = check(Run::fixture("threads_basic").preloading(&["", other]));
        assert_eq!(ran.stderr, "", "{other}");

        let run = Run::fixture("threads_basic").preloading(&[other, ""]);
        let ran = run.interval(1).prefix("t").run().well();
        let [line] = ran.said()[..] else {
            panic!("one line expected: {}", ran.stderr)
        };
        assert!(line.contains(other) && line.contains("name libheapprof.so first"));
        assert_eq!(ran.files(), [""; 0], "{other}");
    }
}

/// The signal of a preloaded fault catcher stays its own, and the program ends as without the
/// library.
#[test]
fn a_fault_catcher_before_and_after() {
    for libraries in [["fault_preload.so", ""], ["", "fault_preload.so"]] {
        let run = Run::fixture("idle").arg("30").preloading(&libraries);
        let mut running = run.interval(1).prefix("t").start();
        running.until("its output", |running| {
            running.stdout_so_far().contains("stack")
        });
        let log = running.folder().join("t.heaplog");
        running.until("the log", |_| {
            std::fs::read(&log).is_ok_and(|bytes| bytes.len() > 1000)
        });
        running.signal(libc::SIGSEGV);
        let ran = running.wait();
        assert_eq!(ran.code(), 128 + libc::SIGSEGV, "{libraries:?}");
        assert!(ran.stdout.contains("caught"), "{libraries:?}");
        assert_eq!(ran.log().whole().blocks_of(19001).len(), 1);
    }
}

/// An auditor has a name space and a malloc of its own. The loader then leaves little thread-local
/// memory for libraries, and must be told to reserve more (`heapprof run` does).
#[test]
fn an_auditor_that_allocates() {
    let auditor = || Build::get().fixture("audit_library.so");
    let run = Run::fixture("dlopen_cycle").env("LD_AUDIT", auditor());
    let ran = check(run.env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=4096"));
    assert_eq!(ran.stderr, "");

    let ran = Run::heapprof()
        .env("LD_AUDIT", auditor())
        .args(["run", "--quiet", "--interval", "1", "--prefix", "t"])
        .arg(Build::get().fixture("dlopen_cycle"))
        .run()
        .well();
    assert_eq!(ran.stderr, "");
    assert_claims(&ran);
}

const HELLO: &str = r#"#include <stdio.h>
#include <stdlib.h>
int main(void) { void *p = malloc(100); printf("%s\n", p ? "hello" : "no"); free(p); return 7; }
"#;

/// A static program cannot preload anything: it runs as without the library, and `heapprof run`
/// says why there is no recording.
#[test]
fn a_static_program() {
    let ran = Run::compiled("hello", HELLO, &["-static"]).run();
    assert_eq!((ran.code(), &*ran.stdout, &*ran.stderr), (7, "hello\n", ""));
    assert_eq!(ran.files(), ["bin"]);
    let told = Run::heapprof()
        .in_folder_of(&ran)
        .args(["run", "bin/hello"])
        .run();
    assert_eq!(told.code(), 1);
    assert!(told.stderr.contains("static executable"), "{}", told.stderr);
}

/// Runs `hello`, a program of musl, beside the empty folders `lib` and `out`.
fn hello_of_musl() -> Finished {
    let run = Run::tool("musl-gcc");
    std::fs::write(run.folder().join("hello.c"), HELLO).unwrap();
    for folder in ["lib", "out"] {
        std::fs::create_dir(run.folder().join(folder)).unwrap();
    }
    run.args(["hello.c", "-o", "hello"]).run().well()
}

/// `heapprof run` takes the matching library. musl's own loader refuses the one for glibc, so it is
/// not tried.
#[test]
fn a_program_of_musl() {
    let made = hello_of_musl();
    let alone = Run::tool(made.folder().join("hello")).run();
    assert_eq!((alone.code(), &*alone.stdout), (7, "hello\n"));
    let recorded = |program: &[&str]| {
        let ran = Run::heapprof()
            .in_folder_of(&made)
            .args(["run", "-q", "-i", "1", "-o", "t", "--"])
            .args(program)
            .run();
        assert_eq!((ran.code(), &*ran.stdout), (7, "hello\n"), "{}", ran.stderr);
        let log = ran.log().whole();
        let names = |stack: usize| {
            log.named().stacks[stack]
                .iter()
                .map(|frame| frame.plain.clone())
        };
        let is_mains = |block: &Block| names(block.stack).any(|name| name == "main");
        assert!(log.blocks().iter().any(is_mains));
        std::fs::remove_file(made.folder().join("t.heaplog")).unwrap();
        std::fs::remove_file(made.folder().join("t.0001.heap")).unwrap();
    };
    recorded(&["./hello"]);
    recorded(&["/lib/ld-musl-x86_64.so.1", "./hello"]);
    let told = Run::heapprof()
        .in_folder_of(&made)
        .env(
            "HEAPPROF_LIBRARY",
            Build::get().library_for(Path::new("/bin/sh")),
        )
        .args(["run", "./hello"])
        .run();
    assert_eq!(told.code(), 1);
    assert!(told.stderr.contains("musl"), "{}", told.stderr);
    assert_eq!(told.stdout, "");
}

/// Each library is where its own loader looks, under one name: programs of both libcs start each
/// other, and everything is recorded.
#[test]
fn programs_of_both_libraries() {
    if !is_root() || !may_mount() {
        return;
    }
    let made = hello_of_musl();
    let script = r#"
        mount -t tmpfs none lib || exit 77
        for libc in gnu musl; do
            installed=/usr/lib/x86_64-linux-$libc
            mkdir lib/up$libc lib/work$libc && mount -t overlay -o lowerdir=$installed,upperdir=lib/up$libc,workdir=lib/work$libc \
                none $installed || exit 77
        done
        cp "$1" /usr/lib/x86_64-linux-gnu/libheapprof.so && cp "$2" /usr/lib/x86_64-linux-musl/libheapprof.so && cd out || exit 78
        LD_PRELOAD=libheapprof.so HEAPPROFILE=$PWD/p sh -c '../hello; exit 9'; echo "child $?"
        HEAPPROF_LIBRARY=/usr/lib/x86_64-linux-musl/libheapprof.so "$0" run --quiet ../hello; echo "run $?""#;
    let ran = Run::tool("unshare")
        .in_folder_of(&made)
        .args(["-m", "sh", "-c", script])
        .arg(&Build::get().heapprof)
        .arg(Build::get().library_for(Path::new("/bin/sh")))
        .arg(Build::get().library_for(&made.folder().join("hello")))
        .interval(1)
        .run();
    if ran.code() == 77 {
        return println!("skipped: no overlay file system here: {}", ran.stderr);
    }
    assert_eq!(
        (&*ran.stdout, &*ran.stderr),
        ("hello\nchild 9\nhello\nrun 7\n", "")
    );
    let logs = std::fs::read_dir(made.folder().join("out")).unwrap();
    let mut programs: Vec<_> = logs
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "heaplog"))
        .map(|path| Log::read(&path).profile.run.program.clone())
        .collect();
    programs.sort();
    let ends: Vec<_> = programs
        .iter()
        .map(|path| path.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(ends, ["hello", "hello", "dash"], "{programs:?}");
}

/// The library is installed where only glibc's loader looks, and named without a folder. musl's
/// loader does not find it, and goes on: a musl program runs as without it, also as the child of a
/// recorded one.
#[test]
fn a_program_of_musl_beside_an_installed_library() {
    if !is_root() || !may_mount() {
        return;
    }
    let made = hello_of_musl();
    let script = r#"
        installed=/usr/lib/x86_64-linux-gnu
        mount -t tmpfs none lib && mkdir lib/up lib/work &&
        mount -t overlay -o lowerdir=$installed,upperdir=lib/up,workdir=lib/work none $installed || exit 77
        cp "$1" $installed/libheapprof.so && cd out || exit 78
        LD_PRELOAD=libheapprof.so ../hello; echo "alone $?"
        LD_PRELOAD=libheapprof.so HEAPPROFILE=$PWD/p sh -c '../hello; exit 9'; echo "child $?"
        HEAPPROF_LIBRARY=$installed/libheapprof.so HEAPPROFILE=$PWD/r "$0" run --quiet sh -c '../hello; exit 9'; echo "run $?"
        HEAPPROF_LIBRARY=$installed/libheapprof.so "$0" run ../hello; echo "told $?""#;
    let ran = Run::tool("unshare")
        .in_folder_of(&made)
        .args(["-m", "sh", "-c", script])
        .arg(&Build::get().heapprof)
        .arg(Build::get().library())
        .interval(1)
        .run();
    if ran.code() == 77 {
        return println!("skipped: no overlay file system here: {}", ran.stderr);
    }
    assert_eq!(
        ran.stdout, "hello\nalone 7\nhello\nchild 9\nhello\nrun 9\ntold 1\n",
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("musl"), "{}", ran.stderr);
    let mut logs = std::fs::read_dir(made.folder().join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "heaplog"))
        .collect::<Vec<_>>();
    logs.sort();
    let names = logs.iter().map(|path| path.file_name().unwrap());
    assert!(names.eq(["p.heaplog", "r.heaplog"]), "{logs:?}");
    for path in &logs {
        assert!(!Log::read(path).blocks().is_empty());
    }
}

/// A program that exports functions named like libc's and like an unwinder's: the library calls
/// none of them.
#[test]
fn named_like_libc() {
    let ran = check(Run::fixture("named_like_libc"));
    assert_eq!(ran.claims().ok, ["no_strangers"]);
    assert_eq!(ran.stderr, "");
}

/// The library's imports by names that a program could take: see
/// preload/src/os/libc_trampolines.rs. A new name here belongs there.
#[test]
fn the_library_imports_nothing_that_a_program_may_export() {
    let library = Build::get().library();
    let listed = Command::new("nm")
        .args(["--dynamic", "--undefined-only", "--format=posix"])
        .arg(library)
        .output()
        .expect("nm runs (scripts/install-deps installs it)");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split([' ', '@']).next())
        .collect();
    // Data, what compilers link into every library, and the unwinder, which only a panic calls.
    let private = [
        "__environ",
        "__gmon_start__",
        "__tls_get_addr",
        "_ITM_",
        "_Unwind_",
        "_dl_debug_addr",
        "__libc_stack_end",
        "_r_debug",
    ];
    // Reserved names that musl's headers and Rust's library for musl use.
    let private_in_musl: &[&str] = match is_over_musl() {
        true => &[
            "__assert_fail",
            "__libc_current_sigrtmax",
            "__sched_cpucount",
            "__xpg_strerror_r",
        ],
        false => &[],
    };
    // Imported by Rust's unwinder, which is in the library for musl: it prints there that it ends
    // the process.
    let data = "stderr";
    let others: Vec<_> = names
        .into_iter()
        .filter(|name| !private.iter().any(|begin| name.starts_with(begin)))
        .filter(|name| !private_in_musl.contains(name))
        .filter(|name| *name != data)
        .collect();
    assert_eq!(others, [""; 0]);
}

/// The fast paths of `malloc` and `free` begin at a cache line: the positions of their jumps count
/// from there.
#[test]
fn the_fast_ways_begin_at_a_line() {
    let listed = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(Build::get().library())
        .output()
        .expect("nm runs (scripts/install-deps installs it)");
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in ["malloc", "free"] {
        let line = listed
            .lines()
            .find(|line| line.split(' ').next() == Some(name));
        let address = line.and_then(|line| line.split(' ').nth(2)).unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        assert_eq!(address % 64, 0, "{name} at {address:x}");
    }
}

/// `ld-linux-x86-64.so.2 ./program`, as programs start that bring a libc of their own: the kernel
/// knows only the loader.
#[test]
fn a_program_that_the_loader_is_told_to_run() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    for name in ["nofp_chain", "before_main"] {
        let ran = Run::program(loader)
            .arg(Build::get().fixture(name))
            .interval(1)
            .run()
            .well();
        let files = ran.files_ending(".heaplog");
        assert!(
            files[0].starts_with(&format!("heapprof.{name}.")),
            "{files:?}"
        );
        assert!(ran.log().start().program.ends_with(name));
        assert_claims(&ran);
    }
}

/// Below a root without `/proc`, as for a service in a chroot.
#[test]
fn a_program_without_proc_has_its_name() {
    if !may_mount() {
        return;
    }
    let ran = Run::tool("unshare")
        .args(["-rm", "sh", "-c"])
        .arg("mount -t tmpfs none /proc && LD_PRELOAD=$1 exec \"$0\"")
        .arg(Build::get().fixture("nofp_chain"))
        .arg(Build::get().library())
        .interval(1)
        .run()
        .well();
    let files = ran.files_ending(".heaplog");
    assert!(files[0].starts_with("heapprof.nofp_chain."), "{files:?}");
    assert!(ran.log().start().program.ends_with("/nofp_chain"));
    assert_claims(&ran);
}

/// A debugger's `break main` stops in every function of that name in any file, and the library's
/// thread would reach its own first.
#[test]
fn no_function_of_ours_is_called_main() {
    let listed = Command::new("nm")
        .arg("--demangle")
        .arg(Build::get().library())
        .output()
        .expect("nm runs (scripts/install-deps installs it)");
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(" heapprof::"));
    let called_main = listed.lines().filter(|line| {
        line.split_once(" heapprof::")
            .is_some_and(|(_, path)| path.split("::").any(|part| part == "main"))
    });
    assert_eq!(called_main.collect::<Vec<_>>(), [""; 0]);
}

/// A program with a malloc and a free of its own, and no realloc: libc's combination belongs to no
/// allocator.
#[test]
fn part_of_an_own_malloc() {
    const SOURCE: &str = r#"
        #include <stddef.h>
        #include <string.h>
        static char pool[1 << 20];
        static size_t used;
        void *malloc(size_t size)
        {
            size_t at = __atomic_fetch_add(&used, (size + 15) & ~15ul, __ATOMIC_RELAXED);
            return at + size > sizeof pool ? NULL : pool + at;
        }
        void free(void *block) { }
        int main(void)
        {
            char *block = malloc(100);
            strcpy(block, "there");
            free(block);
            return 5;
        }
    "#;
    let ran = Run::compiled("part_of_malloc", SOURCE, &["-w", "-rdynamic"]).run();
    assert_eq!(ran.code(), 5, "{}", ran.stderr);
    ran.assert_said(&["has its own malloc"]);
}

/// A program that allocates by another allocator's own functions, as BIND does by jemalloc's, keeps
/// that allocator, and a line says so. Unrecorded allocations are reported. A program that is only
/// linked with that allocator is recorded without a message.
#[test]
fn an_allocator_that_is_called_by_its_own_name() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        void *mallocx(size_t size, int flags);
        void sdallocx(void *block, size_t size, int flags);
        size_t nallocx(size_t size, int flags);
        void *kept;
        int main(void)
        {
            kept = malloc(31001);
        #ifdef CALLS
            sdallocx(mallocx(31002, 0), 31002, 0);
        #endif
            return nallocx(31001, 0) < 31001;
        }
    "#;
    for (flag, taps, lines, blocks) in [
        ("-DCALLS", "1", 1, 1),
        ("-DCALLS", "0", 2, 0),
        ("-DLINKS", "0", 0, 0),
    ] {
        let flags = [flag, "-Wl,--no-as-needed", "-l:libjemalloc.so.2"];
        let run = Run::compiled("own_names", SOURCE, &flags).interval(1);
        let ran = run.env("HEAPPROF_TAP", taps).run();
        assert_eq!(ran.code(), 0, "{}", ran.stderr);
        assert_eq!(ran.stderr, "");
        let said = ran.notes();
        assert_eq!(said.len(), lines, "{said:?}");
        let all = said.iter().all(|line| {
            line.contains("own_names calls ") && line.contains("allocx, a function of ")
        });
        assert!(all, "{said:?}");
        let log = ran.log().whole();
        assert_eq!(log.blocks_of(31001).len(), 1, "{flag}");
        assert_eq!(log.blocks_of(31002).len(), blocks, "{flag}");
    }
}
