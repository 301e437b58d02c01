//! Next definitions: a name that several libraries define. The program's calls go on behind this
//! library, and this library's own calls do not (Law 11).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use heapprof_tests::{Build, Log, Run, assert_claims, is_glibc_before, is_over_musl};

/// The lines that `program` prints about the library.
fn listed(program: &str, args: &[&str]) -> String {
    let listed = Command::new(program)
        .args(args)
        .arg(Build::get().library())
        .output()
        .expect("binutils run (scripts/install-deps installs them)");
    assert!(listed.status.success(), "{program}");
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

/// Functions of the library that other libraries may call by name, but for the allocator's own and
/// our API: for these there is nothing behind us.
fn handed_on() -> BTreeSet<String> {
    let is_ours = |name: &str| {
        let allocates = [
            "alloc",
            "free",
            "memalign",
            "mall",
            "_Zn",
            "_Zd",
            "heapprof_",
            "HeapProfile",
        ];
        allocates.iter().any(|part| name.contains(part)) || name == "IsHeapProfilerRunning"
    };
    let names = listed("nm", &["--dynamic", "--defined-only", "--format=posix"]);
    let names = names.lines().filter_map(|line| line.split(' ').next());
    // musl and older versions of glibc declare no execveat, so no program calls it by name.
    let has_execveat = !is_over_musl() && !is_glibc_before(2, 34);
    let is_left_out = |name: &str| !has_execveat && name == "execveat";
    let names: BTreeSet<String> = names
        .filter(|name| !is_ours(name) && !is_left_out(name))
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 25, "{names:?}");
    names
}

/// By a library that finds the real functions in its constructor, which runs after ours.
#[test]
fn what_the_program_calls_goes_on_and_what_we_call_does_not() {
    for interval in [0, 1] {
        let ran = Run::fixture("wraps_libc")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        let claims = ran.claims();
        assert_eq!(claims.failures, [""; 0], "{interval}");
        assert!(claims.ok.iter().any(|ok| ok == "statuses"));
        let missed: Vec<String> = handed_on()
            .into_iter()
            .filter(|name| !claims.ok.contains(name))
            .collect();
        assert_eq!(missed, [""; 0], "these do not go on to the next definition");
        if interval == 1 {
            let log = Log::read(&ran.folder().join("t.heaplog")).whole();
            assert_eq!(log.blocks_of(38002).len(), 1);
        }
    }
}

/// The same library behind us in `LD_PRELOAD`, and before us.
#[test]
fn wrappers_that_are_preloaded() {
    let wrapper = "wraps_libc_library.so";
    for order in [["", wrapper], [wrapper, ""]] {
        let ran = Run::fixture("nofp_chain")
            .preloading(&order)
            .interval(1)
            .run()
            .well();
        assert_eq!(ran.stderr, "");
        assert_claims(&ran);
    }
}

/// No code of this library's calls a function that it exports: jemalloc and Rust's library know
/// only the name. (The allocation functions lead to each other.) And the loader is not asked for
/// such a function.
#[test]
fn the_library_calls_no_export_of_its_own() {
    let exports = handed_on();
    let mut callers: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let code = listed("objdump", &["--disassemble", "--no-show-raw-insn"]);
    let mut function = "";
    for line in code.lines() {
        if let Some(name) = line.split_once(" <").and_then(|(address, name)| {
            let is_head = address.bytes().all(|byte| byte.is_ascii_hexdigit());
            name.strip_suffix(">:").filter(|_| is_head)
        }) {
            function = name;
        } else if let Some((_, target)) = line.rsplit_once('<')
            && let Some(target) = target.split(['>', '+', '@']).next()
            && exports.contains(target)
            && target != function
        {
            callers
                .entry(function)
                .or_default()
                .insert(target.to_owned());
        }
    }
    // This caller is in libc's start files. The export knows by an argument that this library
    // registers.
    let known = callers.remove("__pthread_atfork");
    assert!(known.is_none_or(|of| of.len() == 1 && of.contains("__register_atfork")));
    assert_eq!(callers, BTreeMap::new());
    let relocations = listed("readelf", &["--relocs", "--wide"]);
    let asked: Vec<&str> = relocations
        .lines()
        .filter_map(|line| line.split_whitespace().nth(4))
        .filter(|name| exports.contains(name.split('@').next().unwrap_or_default()))
        .collect();
    assert_eq!(asked, [""; 0]);
}

/// As caches of memory registrations do, which must hear of memory that is given back.
#[test]
fn code_of_libc_that_the_program_changes() {
    for interval in [0, 1] {
        let ran = Run::fixture("patches_libc").interval(interval).run().well();
        assert_eq!(ran.claims().ok, ["large", "middle"], "{}", ran.stdout);
    }
}

/// UCX in both of its ways: it changes the code of libc, or the words by which libraries reach
/// libc. With UCX 1.18 in the second way, the program crashes without the library, too.
#[test]
fn ucx_hears_of_memory_that_is_given_back() {
    for mode in ["bistro", "reloc"] {
        let alone = Run::fixture("listens_for_unmapping").without_library();
        let alone = alone.env("UCX_MEM_MMAP_HOOK_MODE", mode).run();
        if mode == "reloc" && alone.claims().ok.is_empty() {
            continue;
        }
        let ran = Run::fixture("listens_for_unmapping")
            .env("UCX_MEM_MMAP_HOOK_MODE", mode)
            .interval(1)
            .run()
            .well();
        assert_eq!(
            ran.claims().ok,
            ["large", "middle"],
            "{mode} (scripts/install-deps installs libucx0): {}",
            ran.stdout
        );
    }
}
