//! The `heapprof` program: on files that are damaged, cut, foreign or empty, and as the parent of a
//! program.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heapprof_tests::{Build, Finished, Run};

/// All commands that read a file, without the file.
const COMMANDS: [&[&str]; 12] = [
    &["top"],
    &["top", "--json"],
    &["info"],
    &["symbolize"],
    &["export", "--format", "gperftools"],
    &["export", "--format", "symbolized"],
    &["export", "--format", "pprof"],
    &["export", "--format", "folded"],
    &["export", "--format", "flamegraph"],
    &["export", "--format", "json"],
    &["export", "--format", "csv"],
    &["export", "--format", "speedscope"],
];

fn read(command: &[&str], file: &Path) -> Finished {
    Run::heapprof().args(command).arg(file).run()
}

/// Returns a small recording: its log and its dump.
fn small() -> Finished {
    Run::fixture("exit_ways")
        .arg("exit")
        .interval(1)
        .prefix("t")
        .run()
}

#[track_caller]
fn assert_no_panic(ran: &Finished, case: &str) {
    let code = ran.code();
    assert!(
        code == 0 || code == 1,
        "{case}: {}\n{}",
        ran.status,
        ran.stderr
    );
    for word in ["panicked", "RUST_BACKTRACE", "src/"] {
        assert!(!ran.stderr.contains(word), "{case}: {}", ran.stderr);
    }
}

/// Asserts that there is either only an error, or some output, or at least a note why there is
/// none.
#[track_caller]
fn assert_all_or_an_error(ran: &Finished, case: &str) {
    let (nothing, silent) = (ran.stdout.is_empty(), ran.stderr.is_empty());
    assert!(
        if ran.code() == 0 {
            !nothing || !silent
        } else {
            nothing && !silent
        },
        "{case}: {}",
        ran.stderr
    );
}

#[test]
fn every_command_refuses_what_is_no_profile() {
    let recorded = small();
    let folder = recorded.folder();
    let log = recorded.bytes("t.heaplog");
    let dump = recorded.bytes("t.0001.heap");
    let mut newer = log.clone();
    newer[7] += 1; // the version
    let mut rotten = log.clone();
    rotten[8..].fill(0x5a);
    let cases: [(&str, Vec<u8>); 9] = [
        ("empty.heaplog", Vec::new()),
        ("empty.heap", Vec::new()),
        ("foreign.heaplog", b"#!/bin/sh\necho hello\n".to_vec()),
        ("binary.heap", (0..=255).cycle().take(4096).collect()),
        (
            "elf.heaplog",
            fs::read(Build::get().library()).unwrap()[..4096].to_vec(),
        ),
        ("newer.heaplog", newer),
        ("rotten.heaplog", rotten),
        ("header.heaplog", log[..8].to_vec()),
        ("cut_in_its_first_line.heap", dump[..20].to_vec()),
    ];
    for (name, bytes) in &cases {
        fs::write(folder.join(name), bytes).unwrap();
    }
    fs::create_dir(folder.join("folder.heaplog")).unwrap();
    let names = cases.iter().map(|(name, _)| *name);
    for name in names.chain(["folder.heaplog", "missing.heaplog"]) {
        for command in COMMANDS {
            let ran = read(command, &folder.join(name));
            let case = format!("{command:?} {name}");
            assert_no_panic(&ran, &case);
            assert_eq!(ran.code(), 1, "{case}: {}", ran.stderr);
            assert_eq!(ran.stdout, "", "{case}");
            assert_eq!(ran.stderr.lines().count(), 1, "{case}: {}", ran.stderr);
            assert!(
                ran.stderr.contains(name),
                "{case} does not name the file: {}",
                ran.stderr
            );
        }
    }
}

/// Cut at every 97th byte: the log is read up to the tear, which is reported, or refused before the
/// first record. It has no dumps. A log with dumps has an end before the last dump and one after
/// it; a cut exactly between the two would leave a whole log.
#[test]
fn a_log_that_is_cut_is_read_up_to_the_tear() {
    let recorded = Run::fixture("threads_basic").interval(1).run().well();
    let [name] = &recorded.files_ending(".heaplog")[..] else {
        panic!("{:?}", recorded.files_ending(".heaplog"));
    };
    let log = recorded.bytes(name);
    let whole = read(&["info"], &recorded.folder().join(name)).well();
    assert!(!whole.stdout.contains("cut off at"), "{}", whole.stdout);
    let cut = recorded.folder().join("cut.heaplog");
    let mut read_somehow = 0;
    for (number, len) in (1..log.len()).step_by(97).enumerate() {
        fs::write(&cut, &log[..len]).unwrap();
        // info reports everything; the others take turns.
        for command in [&["info"][..], COMMANDS[number % COMMANDS.len()]] {
            let ran = read(command, &cut);
            let case = format!("{command:?} cut at {len} of {}", log.len());
            assert_no_panic(&ran, &case);
            if ran.code() == 1 {
                assert!(
                    ran.stderr.contains("cut.heaplog") && ran.stderr.contains("offset"),
                    "{case}: {}",
                    ran.stderr
                );
                assert_eq!(ran.stdout, "", "{case}");
            } else if command == ["info"] {
                read_somehow += 1;
                let said = format!("{}{}", ran.stdout, ran.stderr);
                let says_so = ["cut off", "no end", "torn"]
                    .iter()
                    .any(|words| said.contains(words));
                assert!(says_so, "{case} does not say so:\n{said}");
            } else {
                let said = ran.stderr.to_lowercase();
                assert!(!said.contains("error"), "{case}: {said}");
            }
        }
    }
    assert!(
        read_somehow > 10,
        "{read_somehow} of {} cuts",
        log.len() / 97
    );
}

/// Wrong bytes in the middle cost their frame, not the log, and never a panic.
#[test]
fn a_log_with_flipped_bytes_never_panics() {
    let recorded = Run::fixture("threads_basic")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let log = recorded.bytes("t.heaplog");
    let damaged = recorded.folder().join("damaged.heaplog");
    let mut read_somehow = 0;
    for (number, at) in (8..log.len()).step_by(211).enumerate() {
        let mut bytes = log.clone();
        bytes[at] ^= 0xff;
        fs::write(&damaged, &bytes).unwrap();
        let command = COMMANDS[number % COMMANDS.len()];
        let ran = read(command, &damaged);
        let case = format!("{command:?} flipped at {at}");
        assert_no_panic(&ran, &case);
        assert_all_or_an_error(&ran, &case);
        read_somehow += u32::from(ran.code() == 0);
    }
    assert!(read_somehow > 0);
}

#[test]
fn a_dump_that_is_cut_never_panics() {
    let recorded = small();
    let dump = recorded.bytes("t.0001.heap");
    let cut = recorded.folder().join("cut.heap");
    for (number, len) in (1..dump.len()).step_by(97).enumerate() {
        fs::write(&cut, &dump[..len]).unwrap();
        let command = COMMANDS[number % COMMANDS.len()];
        let ran = read(command, &cut);
        let case = format!("{command:?} cut at {len}");
        assert_no_panic(&ran, &case);
        assert_all_or_an_error(&ran, &case);
        assert!(
            ran.code() == 0 || ran.stderr.contains("cut.heap"),
            "{case}: {}",
            ran.stderr
        );
    }
}

/// Returns a run of `heapprof run` with the program's words behind `--`.
fn run(program: impl AsRef<Path>, args: &[&str]) -> Run {
    Run::heapprof()
        .args(["run", "-i", "1", "--"])
        .arg(program.as_ref())
        .args(args)
}

/// As in a shell: a death by a signal is 128 plus its number, in whatever way it happens.
#[test]
fn run_passes_the_exit_status_on() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
    ] {
        let ran = run("/bin/sh", &["-c", script]).run();
        assert_eq!(ran.code(), code, "{script}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{script}");
    }
}

/// A program that a fault has ended may do without our allocator what it cannot do with it.
#[test]
fn run_says_how_a_program_keeps_its_allocator_if_a_fault_has_ended_it() {
    let advice = "SIGSEGV has ended the program; if it runs without heapprof, try";
    for (options, signal, is_said) in [
        (&[][..], "SEGV", true),
        (&["--allocator", "program"], "SEGV", false),
        (&["-q"], "SEGV", false),
        (&[], "KILL", false),
        (&[], "TERM", false),
    ] {
        let script = format!("kill -{signal} $$");
        let ran = Run::heapprof()
            .args(
                [
                    &["run", "-i", "1"],
                    options,
                    &["--", "/bin/sh", "-c", &script],
                ]
                .concat(),
            )
            .run();
        assert_eq!(ran.stderr.contains(advice), is_said, "{}", ran.stderr);
        let is_any = ran.stderr.contains("keeps the program's own allocator");
        assert_eq!(is_any, is_said, "{}", ran.stderr);
    }
}

/// `heapprof` itself finds no memory for its work at the end, or none for the stacks of threads.
#[test]
fn run_passes_the_exit_status_on_without_memory() {
    for kib in (90_000..=230_000).step_by(4_000) {
        let limited = format!("ulimit -v {kib}; exec \"$@\"");
        let program = Build::get().fixture("churn").display().to_string();
        let words = [
            "run", "-q", "-i", "1", "-o", "x", "--", &program, "3", "20000",
        ];
        let heapprof = Build::get().heapprof.display().to_string();
        let ran = Run::tool("sh")
            .args(["-c", &limited, "sh", &heapprof])
            .args(words);
        let ran = ran.run();
        assert_eq!(ran.code(), 0, "{kib}: {}", ran.stderr);
        let said = ran.stderr.lines();
        let mut other = said.filter(|line| !line.contains("there is not enough memory for this"));
        assert_eq!(other.next(), None, "{kib}: {}", ran.stderr);
    }
}

#[test]
fn run_says_where_the_files_are_and_shows_the_largest_sites() {
    let ran = Run::heapprof()
        .args(["run", "--interval", "1", "--prefix", "p", "--"])
        .arg(Build::get().fixture("exit_ways"))
        .arg("exit")
        .run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    assert_eq!(ran.files(), ["p.0001.heap", "p.heaplog", "p.heaplog.names"]);
    assert_eq!(
        ran.stdout.lines().count(),
        2,
        "the program's own output: {}",
        ran.stdout
    );
    for words in ["p.heaplog", "p.0001.heap", "allocates", "exit_ways.c:"] {
        assert!(ran.stderr.contains(words), "no `{words}` in {}", ran.stderr);
    }
    assert_eq!(ran.log().whole().blocks_of(17001).len(), 1);
}

/// A terminal gets the same text with colour.
#[test]
fn run_shows_the_largest_sites_in_colour() {
    for (colour, is_coloured) in [("always", true), ("auto", false), ("never", false)] {
        let ran = Run::heapprof()
            .args(["--color", colour, "run", "--interval", "1", "--"])
            .arg(Build::get().fixture("exit_ways"))
            .run();
        assert_eq!(ran.stderr.contains("\x1b[1mallocates\x1b[0m"), is_coloured);
        assert!(ran.stderr.contains("allocates") && !ran.stderr.contains("\\x1b"));
    }
}

/// A table without lines is not announced.
#[test]
fn run_says_nothing_of_sites_where_there_are_none() {
    let ran = Run::heapprof()
        .args(["run", "--", "/bin/true"])
        .run()
        .well();
    assert!(ran.stderr.contains("no samples"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("five sites"), "{}", ran.stderr);
}

#[test]
fn run_without_a_prefix_records_here_and_quietly_if_asked() {
    let ran = Run::heapprof()
        .args(["run", "-q", "-i", "1", "--"])
        .arg(Build::get().fixture("exit_ways"))
        .run()
        .well();
    assert_eq!(ran.stderr, "");
    let logs = ran.files_ending(".heaplog");
    assert_eq!(logs.len(), 1, "{logs:?}");
    assert!(logs[0].starts_with("heapprof.exit_ways."), "{logs:?}");
    assert_eq!(ran.log().whole().blocks_of(17001).len(), 1);
}

#[test]
fn run_passes_signals_on() {
    let script = "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = run("/bin/sh", &["-c", script]).start();
    running.until("the trap", |running| {
        running.stdout_so_far().contains("ready")
    });
    running.signal(libc::SIGTERM);
    let ran = running.wait();
    assert_eq!(ran.code(), 5, "{}", ran.stderr);
    assert_eq!(ran.stdout, "ready\ngot it\n");

    // A program that does not catch the signal dies of it, and `heapprof run` does, too, with a
    // shell's status.
    let mut running = run(Build::get().fixture("idle"), &["30"])
        .limit(Duration::from_secs(20))
        .start();
    running.until("its output", |running| {
        running.stdout_so_far().contains("stack")
    });
    std::thread::sleep(Duration::from_millis(150));
    running.signal(libc::SIGTERM);
    let ran = running.wait();
    assert_eq!(ran.code(), 128 + libc::SIGTERM, "{}", ran.stderr);
    assert_eq!(ran.log().blocks_of(19001).len(), 1);
}

#[test]
fn run_says_when_there_is_no_such_program() {
    for program in ["/nonexistent/program", "no-such-program-anywhere"] {
        let ran = run(program, &[]).run();
        assert_eq!(ran.code(), 127, "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(program), "{}", ran.stderr);
        assert_eq!(ran.files(), [""; 0]);
    }
    // The file exists and is not executable: 126, as in shells.
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    fs::write(&text, "not a program").unwrap();
    let ran = run(&text, &[]).run();
    assert_eq!(ran.code(), 126, "{}", ran.stderr);
    assert!(ran.stderr.contains("text"), "{}", ran.stderr);
}

/// Compiles a program into the folder of a run that never starts.
fn compiled(name: &str, source: &str, flags: &[&str]) -> (Run, PathBuf) {
    let run = Run::compiled(name, source, flags);
    let program = run.folder().join("bin").join(name);
    (run, program)
}

#[test]
fn run_says_when_the_program_is_static() {
    let source = "#include <stdlib.h>\nint main(void) { return malloc(10) == 0; }\n";
    let (_keep, program) = compiled("static_program", source, &["-static"]);
    let ran = run(&program, &[]).run();
    assert_ne!(ran.code(), 0);
    assert!(ran.stderr.contains("static_program"), "{}", ran.stderr);
    assert!(ran.stderr.contains("static executable"), "{}", ran.stderr);
    assert_no_panic(&ran, "static");
}

/// The loader has no loader of its own, and still preloads into the program that it runs.
#[test]
fn run_takes_the_loader_as_a_program() {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    let ran = run(loader, &["/bin/echo", "loaded"]).run();
    assert_eq!(ran.code(), 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "loaded\n");
    assert_eq!(ran.logs().len(), 1, "{}", ran.stderr);
}

#[test]
fn run_says_when_the_program_has_its_own_malloc() {
    let source = r#"
#include <stddef.h>
#include <stdio.h>
static _Alignas(16) char pool[1 << 22];
static size_t used;
void *malloc(size_t size) { void *block = pool + used; used += (size + 15) & ~(size_t)15; return block; }
void free(void *block) { (void)block; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *old, size_t size)
{
    char *to = malloc(size), *from = old;
    for (size_t i = 0; from && i < size; i++)
        to[i] = from[i];
    return to;
}
int main(void) { puts("my own"); return malloc(10) == NULL; }
"#;
    let (_keep, program) = compiled("own_malloc", source, &["-rdynamic"]);
    let ran = run(&program, &[]).run();
    assert_eq!(ran.code(), 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "my own\n");
    assert!(
        ran.stderr.contains("own_malloc has its own malloc") && ran.stderr.contains("not tapped"),
        "{}",
        ran.stderr
    );
}

#[test]
fn run_refuses_a_bad_interval() {
    for interval in ["abc", "-1", "99999999999999999999"] {
        let ran = Run::heapprof()
            .args(["run", &format!("--interval={interval}"), "--", "/bin/true"])
            .run();
        assert_ne!(ran.code(), 0);
        assert!(ran.stderr.contains(interval), "{}", ran.stderr);
        assert_no_panic_but_usage(&ran);
    }
}

#[track_caller]
fn assert_no_panic_but_usage(ran: &Finished) {
    assert!(ran.code() == 1 || ran.code() == 2, "{}", ran.status);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

/// `heapprof top … | head` is no error.
#[test]
fn a_closed_pipe_is_success() {
    let recorded = small();
    let script = "\"$0\" export --format json \"$1\" | head -c 10 >&2; echo ${PIPESTATUS[0]}";
    let ran = Run::tool("/bin/bash")
        .args(["-c", script])
        .arg(&Build::get().heapprof)
        .arg(recorded.folder().join("t.heaplog"))
        .run()
        .well();
    assert_eq!(ran.stdout, "0\n");
    assert_eq!(
        ran.stderr.len(),
        10,
        "the document's beginning and nothing else: {}",
        ran.stderr
    );
}

/// A library that ours needs is not to be found, as in an image without it. That is seen before
/// anything is started, also where a loader is told to run the program.
#[test]
fn run_sees_that_a_library_is_missing() {
    let program = Build::get().fixture("idle");
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    let mut bytes = fs::read(Build::get().library()).expect("the library");
    let (there, missing) = (b"libgcc_s.so.1", b"libgcc_x.so.1");
    let places = bytes.windows(there.len()).enumerate();
    let places = places.filter(|(_, part)| part == there);
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    for place in places {
        bytes[place..place + missing.len()].copy_from_slice(missing);
    }
    for before in [None, Some(loader)] {
        let run = Run::heapprof();
        let library = run.folder().join("libheapprof.so");
        fs::write(&library, &bytes).expect("a folder of ours");
        let run = run.arg("run").arg("--").args(before).arg(&program);
        let ran = run.arg("0").env("HEAPPROF_LIBRARY", &library).run();
        assert_eq!((ran.code(), &*ran.stdout), (1, ""), "{}", ran.stderr);
        let said = "does not find libgcc_x.so.1, which";
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(ran.files(), ["libheapprof.so"]);
    }
}

/// The memory of such a process is in no log, and the kernel tells how much was resident.
#[test]
fn a_large_process_without_a_log_is_told_and_leaves_a_limit_open() {
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    let large = "env -i dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null";
    let script = format!("{large}; {fixture}");
    let run = |options: &[&str], script: &str| {
        let command = ["--", "/bin/sh", "-c", script];
        let ran = Run::heapprof()
            .args([&["run", "-i", "1"], options, &command[..]].concat())
            .run();
        (ran.code(), ran.stderr.clone())
    };
    let told = " resident left no log, and smaller ones may have left none: statically linked, setuid, \
                or started without LD_PRELOAD";
    let (code, said) = run(&["--fail-above", "60MiB"], &script);
    assert_eq!((code, said.matches(told).count()), (4, 2), "{said}");
    let (code, said) = run(&["-q", "--fail-above", "1GiB"], &script);
    assert_eq!((code, &*said), (0, ""));
    // The user has left that program out.
    let (code, said) = run(&["--only", "exit_ways"], &script);
    assert_eq!((code, said.contains(told)), (0, false), "{said}");
    let recorded = script.replace("env -i ", "");
    let (code, said) = run(&["--fail-above", "1GiB"], &recorded);
    assert_eq!((code, said.contains(told)), (0, false), "{said}");
}

/// Runs a script in a session of its own, so that nobody else's processes are in it. Returns the
/// exit status, the first line of the output, and what was said.
fn run_in_session(options: &[&str], script: &str) -> (i32, String, String) {
    let heapprof = Build::get().heapprof.display().to_string();
    let begin = ["--wait", &heapprof, "run", "-i", "1", "--keep-unsampled"];
    let program = ["--", "/bin/sh", "-c", script];
    let ran = Run::tool("setsid")
        .args([&begin[..], options, &program].concat())
        .run();
    let first = ran.stdout.lines().next().unwrap_or_default().to_owned();
    (ran.code(), first, ran.stderr.clone())
}

/// It outlives the program, which did not wait for it.
#[test]
fn a_process_without_a_log_that_still_runs_is_told() {
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    let run = |options: &[&str], before: &str| {
        let script =
            format!("{before} sleep 30 >/dev/null 2>&1 & echo $!; sleep 0.2; {fixture}; exit 0");
        let (code, pid, said) = run_in_session(options, &script);
        let _ = std::process::Command::new("kill").arg(&pid).status();
        (code, pid, said)
    };
    // By its place in the session, and by the mark of the run.
    for before in ["env -i", "env -u LD_PRELOAD setsid"] {
        let (code, pid, said) = run(&[], before);
        let told =
            format!("a process of the run still runs and has no log (sleep, pid {pid}), with ");
        assert_eq!(
            (code, said.matches(&told).count()),
            (0, 1),
            "{before}: {said}"
        );
    }
    let what = "still runs and has no log";
    for (options, before) in [(&[][..], ""), (&["--only", "exit_ways"], "env -i")] {
        let (code, _, said) = run(options, before);
        assert_eq!((code, said.contains(what)), (0, false), "{said}");
    }
}

/// A job of the shell that started `heapprof run` is given to the same reaper as one of the run.
#[test]
fn a_process_of_another_job_is_none_of_the_run() {
    let heapprof = Build::get().heapprof.display().to_string();
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    let script = format!(
        "( sleep 0.3; sleep 30 >/dev/null 2>&1 & echo $!; sleep 0.1 ) & \
         exec {heapprof} run -i 1 -- /bin/sh -c 'sleep 1; {fixture}; exit 0'"
    );
    let ran = Run::tool("setsid")
        .args(["--wait", "/bin/sh", "-c", &script])
        .run();
    let pid = ran.stdout.lines().next().expect("a process");
    let is_there = std::path::Path::new(&format!("/proc/{pid}")).exists();
    let _ = std::process::Command::new("kill").arg(pid).status();
    assert!(is_there, "{}", ran.stdout);
    let what = "still runs and has no log";
    assert_eq!(
        (ran.code(), ran.stderr.contains(what)),
        (0, false),
        "{}",
        ran.stderr
    );
}

/// A shell with a variable of twenty million bytes, and its `sleep`.
#[test]
fn large_processes_that_still_run_leave_a_limit_open() {
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    let large = "x=$(head -c 20000000 /dev/zero | tr \"\\0\" a); sleep 10 & echo $! >pid; wait";
    let script = format!(
        "env -i /bin/sh -c '{large}' >/dev/null 2>&1 & \
         while [ ! -s pid ]; do sleep 0.05; done; cat pid; {fixture}; exit 0"
    );
    for (limit, code) in [("15MiB", 4), ("1GiB", 0)] {
        let options = ["--fail-above", limit, "-m", "peak"];
        let (found, pid, said) = run_in_session(&options, &script);
        let _ = std::process::Command::new("kill").arg(&pid).status();
        let what = "2 processes of the run still run and have no logs (";
        let times = if code == 4 { 2 } else { 1 };
        assert_eq!((found, said.matches(what).count()), (code, times), "{said}");
    }
}

/// The limit is about all processes of the run together, and only if the program succeeds.
#[test]
fn run_judges_a_limit() {
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    let run = |options: &[&str], command: &[&str]| {
        let ran = Run::heapprof()
            .args([&["run", "-q", "-i", "1"], options, &["--"], command].concat())
            .run();
        (ran.code(), ran.stderr.clone())
    };
    // A block of 17,001 bytes stays; with it is what the C library takes.
    assert_eq!(
        run(&["--fail-above", "1MiB"], &[&fixture]),
        (0, String::new())
    );
    let (code, said) = run(&["--fail-above", "17000"], &[&fixture]);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("peak is ") && said.contains("above the limit of 16.6 KiB"),
        "{said}"
    );
    let twice = format!("{fixture} & {fixture}; wait");
    let limit = ["-m", "allocated-bytes", "--fail-above", "34001"];
    let (code, said) = run(&limit, &["/bin/sh", "-c", &twice]);
    assert_eq!(code, 3, "{said}");
    assert_eq!(run(&limit, &[&fixture]).0, 0);
    // At the end of the last process, the others have nothing. Each one's own end counts.
    let limit = ["-m", "in-use-bytes", "--fail-above", "17000"];
    let behind = format!("{fixture}; true");
    let (code, said) = run(&limit, &["/bin/sh", "-c", &behind]);
    assert_eq!(code, 3, "{said}");
    // A process counts as what it was before an exec, too.
    let large = "import os; kept = bytearray(64 << 20); os.execv('/bin/true', ['true'])";
    let (code, said) = run(&["--fail-above", "32MiB"], &["python3", "-c", large]);
    assert_eq!(code, 3, "{said}");
    let failing = ["/bin/sh", "-c", "exit 7"];
    assert_eq!(run(&["--fail-above", "1"], &failing).0, 7);
    // Without a sample nothing can be judged.
    let limit = ["-i", "1GiB", "--fail-above", "1000GiB"];
    let sampled = |more: &[&str]| {
        let options = [&limit[..], more, &["--", &fixture]].concat();
        let ran = Run::heapprof()
            .args([&["run", "-q"], &options[..]].concat())
            .run();
        (ran.code(), ran.stderr.clone())
    };
    let (code, said) = sampled(&[]);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("cannot judge the limit: it has no sample"),
        "{said}"
    );
    assert_eq!(sampled(&["--allow-inconclusive"]).0, 0);
}

#[test]
fn run_shows_the_processes_of_a_tree() {
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    let script = format!("{fixture}; {fixture}; true");
    let ran = run("/bin/sh", &["-c", &script]).run().well();
    for words in [
        "3 processes",
        "The processes with the most bytes in use at their ends:",
        "The process with the highest peak is exit_ways, pid ",
    ] {
        assert!(ran.stderr.contains(words), "no `{words}` in {}", ran.stderr);
    }
    let of_fixture = |line: &&str| line.starts_with(' ') && line.contains("exit_ways, pid ");
    assert_eq!(
        ran.stderr.lines().filter(of_fixture).count(),
        2,
        "{}",
        ran.stderr
    );
}

/// Files of an earlier run would be taken for those of this one.
#[test]
fn run_refuses_a_prefix_that_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    let prefix = folder.path().join("p").display().to_string();
    let run = |more: &[&str]| {
        let args = [
            &["run", "-i", "1", "-o", &prefix, "--print-log"],
            more,
            &["--", &fixture],
        ];
        Run::heapprof().args(args.concat()).run()
    };
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let first = run(&["-q"]).well();
    let log = format!("{prefix}.heaplog");
    assert_eq!(first.stdout.lines().last(), Some(&*log), "{}", first.stdout);
    fs::write(folder.path().join("p.0007.heap"), "an older dump").unwrap();
    fs::write(folder.path().join("p.7.html"), "a page").unwrap();
    fs::write(folder.path().join("px.heaplog"), "another's").unwrap();
    let refused = run(&["-q"]);
    assert_eq!(refused.code(), 1, "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    assert!(
        refused
            .stderr
            .contains("p.0001.heap exists, and 2 more files of that prefix"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("--overwrite"), "{}", refused.stderr);
    let _again = run(&["-q", "--overwrite"]).well();
    assert_eq!(
        names(),
        [
            "p.0001.heap",
            "p.7.html",
            "p.heaplog",
            "p.heaplog.names",
            "px.heaplog"
        ]
    );
}

/// Services for code show a difference at the lines that made it.
#[test]
fn a_difference_is_shown_in_a_pull_request() {
    let source = "#include <stdlib.h>\nvoid **all;\n__attribute__((noinline)) void grow(int n)\n{\n    \
                  for (int i = 0; i < n; i++) all[i] = malloc(1000);\n}\n\
                  int main(int argc, char **argv)\n{\n    all = calloc(1000, 8);\n    grow(atoi(argv[1]));\n    return argc < 0;\n}\n";
    let (_compiled, program) = compiled("grow", source, &["-g", "-O1"]);
    let folder = tempfile::tempdir().unwrap();
    let log = |blocks: &str| {
        let prefix = folder.path().join(blocks).display().to_string();
        let run = ["run", "-q", "-i", "1", "-o", &prefix, "--print-log", "--"];
        let ran = Run::heapprof()
            .args(run)
            .arg(&program)
            .arg(blocks)
            .run()
            .well();
        ran.stdout.trim().to_owned()
    };
    let (before, after) = (log("10"), log("110"));
    let diff = |format: &str| {
        let ran = Run::heapprof()
            .args(["diff", "--format", format, &before, &after])
            .env("GITHUB_WORKSPACE", program.parent().unwrap())
            .run()
            .well();
        ran.stdout.clone()
    };
    let github = diff("github");
    let warning = "::warning file=grow.c,line=5,title=heapprof::+97.7 KiB in grow: in-use-bytes 9.8 KiB before, 107.4 KiB after";
    assert_eq!(
        github
            .lines()
            .filter(|line| line.starts_with("::warning"))
            .collect::<Vec<_>>(),
        [warning]
    );
    assert!(
        github.contains("::notice title=heapprof::in-use-bytes: +97.7 KiB (exact"),
        "{github}"
    );
    let markdown = diff("markdown");
    let row = "| +97.7 KiB | 0 B | - | exact | 9.8 KiB | 107.4 KiB | `grow` | `";
    assert!(
        markdown.contains(row) && markdown.contains("grow.c:5` |"),
        "{markdown}"
    );
    assert!(
        markdown.starts_with("**in-use-bytes: +97.7 KiB** (exact"),
        "{markdown}"
    );
}
