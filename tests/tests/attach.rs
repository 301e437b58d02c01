//! `heapprof attach` and `heapprof detach`: a process that runs already, recorded for a while, goes
//! on as before.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use heapprof_format::EndReason;
use heapprof_symbolizer::Metric;
use heapprof_tests::{
    AttachedServer as Server, Build, Json, Log, Run, blocks_in_use as blocks, estimate,
    is_glibc_before, totals_by_site, writer_of,
};

/// Returns the modules whose code is not as it was.
fn changed(before: &BTreeMap<String, Vec<u8>>, now: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let changed = before
        .iter()
        .filter(|(module, bytes)| now.get(*module) != Some(bytes));
    changed.map(|(module, _)| module.clone()).collect()
}

/// Every block that is allocated while heapprof is attached is recorded, with its free. The process
/// has the same code, threads and descriptors afterwards.
#[test]
fn what_happens_while_it_is_attached_is_recorded_exactly() {
    let mut server = Server::start(8);
    server.tell("keep 100"); // not known to heapprof; freed below
    let (code, [threads, descriptors, _]) = (server.code(), server.size());
    let told = server.attached(&["-i", "1"]);
    assert!(told.contains("threads were stopped for"), "{told}");
    assert_ne!(
        changed(&code, &server.code()),
        [""; 0],
        "nothing was changed"
    );
    server.tell("drop");
    server.tell("burst 500");
    server.tell("keep 30");
    server.tell("resize 40");
    let told = server.detached();
    assert!(told.contains("threads were stopped for"), "{told}");
    server.tell("burst 500"); // not recorded
    assert_eq!(changed(&code, &server.code()), [""; 0]);
    assert_eq!(server.size()[..2], [threads, descriptors]);
    assert_eq!(writer_of(server.pid()), None);
    assert_eq!([server.tell("errors"), server.tell("interrupts")], [0, 0]);

    let [log] = &server.logs()[..] else {
        panic!("{:?}", server.logs())
    };
    server.quit(); // its threads leave no processor to the reader
    let log = Log::read(log).whole();
    assert_eq!(log.end(), Some(EndReason::Detached));
    for thread in 0..8 {
        assert_eq!(blocks(&log, 23100 + thread), (500, 0), "thread {thread}");
    }
    assert_eq!(blocks(&log, 23200), (30, 30));
    assert_eq!(blocks(&log, 23300), (40, 0));
    assert_eq!(blocks(&log, 23400), (40, 0));
    assert_eq!(log.unknown_frees(), 0);
    assert_eq!(log.losses(), BTreeMap::new());
    for block in log.blocks_of(23100) {
        assert_eq!(log.named().site_of(block.stack), Some("site_burst"));
    }
}

/// glibc's `realloc` and `posix_memalign` may call `malloc`, which is tapped, too. That is one
/// allocation, and its bytes are laid on the allocation axis once.
#[test]
fn a_function_that_calls_another_tapped_one_is_sampled_once() {
    const BLOCKS: f64 = 400_000.0;
    let mut server = Server::start(1);
    server.attached(&["-i", "16384"]);
    server.tell(&format!("make {BLOCKS}"));
    server.detached();
    let log = Log::read(&server.logs().pop().expect("a log")).whole();
    let totals = totals_by_site(log.named());
    for site in ["site_from_nothing", "site_aligned"] {
        // 25.6 MB at one sample in 16 KiB: a standard error of 2.5 %.
        let found = estimate(&totals[site], Metric::AllocatedBytes) / (BLOCKS * 64.0);
        assert!((0.85..1.15).contains(&found), "{site}: {found}");
    }
    server.end();
}

/// After many recordings, the process has no more threads, descriptors and memory than after a few.
#[test]
fn many_recordings_leave_nothing_behind() {
    const FEW: usize = 5;
    const MANY: usize = 40;
    let mut server = Server::start(2);
    let code = server.code();
    let mut before = [0; 3];
    for number in 1..=MANY {
        let interval = ["1", "4096", "512KiB"][number % 3];
        server.attached(&["-i", interval]);
        server.tell("burst 50");
        std::thread::sleep(Duration::from_millis(20));
        server.detached();
        if number == FEW {
            before = server.size();
        }
        if interval == "1" {
            let log = server.logs().pop().expect("a log");
            let log = Log::read(&log).whole();
            for thread in 0..2 {
                assert_eq!(blocks(&log, 23100 + thread), (50, 0), "recording {number}");
            }
            assert_eq!(log.unknown_frees(), 0);
        }
    }
    let after = server.size();
    assert_eq!(before[..2], after[..2], "threads and descriptors");
    assert!(
        after[2] < before[2] + 4096,
        "{} KiB, then {} KiB",
        before[2],
        after[2]
    );
    assert_eq!(server.logs().len(), MANY);
    assert_eq!(changed(&code, &server.code()), [""; 0]);
    assert_eq!([server.tell("errors"), server.tell("interrupts")], [0, 0]);
    server.end();
}

/// Stacks are full of old addresses. A thread that has one of memory at the place of heapprof's
/// code does not count as inside of that code.
#[test]
fn an_old_address_on_a_stack_does_no_harm() {
    if is_glibc_before(2, 34) {
        return;
    }
    const REGION: u64 = 0x18000; // as of `borrowed_code.rs`
    let mut server = Server::start(1);
    server.tell(&format!("stale {REGION}"));
    server.attached(&["-i", "1"]);
    server.tell("burst 50");
    server.detached();
    let log = Log::read(&server.logs().pop().expect("a log")).whole();
    assert_eq!(blocks(&log, 23100), (50, 0));
    server.end();
}

/// The memory of a recording is free again when it is over. Many busy threads that are recorded
/// exactly need the most: they wait for seats, and each seat has a walker and lanes.
#[test]
fn exact_recordings_of_many_threads_leave_no_memory_behind() {
    const FEW: usize = 3;
    const MANY: usize = 20;
    // The program's own heap grows, too, while its threads wait for each other in another way.
    const MOST_KIB: u64 = 4096;
    let mut server = Server::start(50);
    let mut few = 0;
    for number in 1..=MANY {
        server.attached(&["-i", "1"]);
        std::thread::sleep(Duration::from_millis(150));
        server.detached();
        if number == FEW {
            [_, _, few] = server.size();
        }
    }
    // On a very busy machine a thread may stay in the library for seconds. Then the next recording
    // frees the memory.
    while {
        server.attached(&["-i", "1"]);
        server.detached().contains("still in code")
    } {}
    let [_, _, many] = server.size();
    assert!(many < few + MOST_KIB, "{few} KiB, then {many} KiB");
    assert_eq!([server.tell("errors"), server.tell("interrupts")], [0, 0]);
    server.end();
}

/// Starts `heapprof` and kills it at its system call of that number. Returns false if it has ended
/// before.
fn killed_at(call: usize, server: &Server, words: &[&str]) -> bool {
    let mut command = Command::new(&Build::get().heapprof);
    command.args(words).current_dir(server.folder());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: a system call without memory, in the child before it becomes heapprof.
    unsafe {
        command.pre_exec(|| {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0usize, 0usize);
            Ok(())
        });
    }
    let mut child = command.spawn().expect("heapprof");
    let pid = child.id() as i32;
    let mut stops = 0;
    let is_killed = loop {
        let mut status = 0;
        // SAFETY: writes one number.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        assert_eq!(waited, pid);
        if !libc::WIFSTOPPED(status) {
            break false;
        }
        stops += 1;
        if stops > call {
            child.kill().expect("a child of ours");
            break true;
        }
        let signal = match libc::WSTOPSIG(status) {
            libc::SIGTRAP => 0,
            signal => signal,
        };
        // SAFETY: a system call without memory.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0usize, signal as usize) };
    };
    let _ = child.wait(); // fails if it was waited for above
    is_killed
}

/// If `heapprof attach` or `heapprof detach` is killed, at any of its system calls, the process
/// runs on, and heapprof can be attached to it again.
#[test]
fn a_killed_heapprof_leaves_a_program_that_runs() {
    let mut server = Server::start(2);
    let code = server.code();
    let pid = server.pid().to_string();
    let (attach, detach) = (["attach", &pid, "--leave", "-i", "512"], ["detach", &pid]);
    for (words, others, step) in [
        (&attach[..], &detach[..], 23),
        (&detach[..], &attach[..], 17),
    ] {
        let mut kills = 0;
        let mut call = 1;
        loop {
            if words == detach {
                let ran = server.heapprof(&attach);
                assert!(
                    ran.code() == 0 || ran.stderr.contains("already"),
                    "{}",
                    ran.stderr
                );
            }
            let is_killed = killed_at(call, &server, words);
            assert_eq!(server.tell("errors"), 0, "{words:?} killed at call {call}");
            server.tell("burst 3");
            if !is_killed {
                break;
            }
            kills += 1;
            call += step;
            // Sometimes what was begun is ended first.
            if kills % 3 == 0 {
                server.heapprof(others);
            }
        }
        assert!(kills >= 20, "only {kills} kills of {words:?}");
    }
    server.detach();
    server.attached(&["-i", "1"]);
    server.tell("burst 20");
    server.detached();
    let log = Log::read(&server.logs().pop().expect("a log")).whole();
    assert_eq!(blocks(&log, 23100), (20, 0));
    let now = server.code();
    for (module, bytes) in &code {
        // Bytes behind the code that a killed program used are left.
        let same = bytes
            .iter()
            .zip(&now[module])
            .filter(|(was, is)| was != is && **was != 0);
        assert_eq!(same.count(), 0, "{module}");
    }
    server.end();
}

/// A process that is preloaded already is started in the usual way, and others that heapprof cannot
/// be attached to are refused with the reason.
#[test]
fn what_cannot_be_attached_to_is_told() {
    let refused = |pid: u32| {
        let ran = Run::heapprof()
            .args(["attach", &pid.to_string(), "--leave"])
            .run();
        assert_eq!(ran.code(), 1, "{}", ran.stderr);
        ran.stderr
    };
    assert!(refused(i32::MAX as u32).contains("no such process"));
    let server = Server::start(0);
    let task = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it lives");
    let mut ids = task.filter_map(|it| it.expect("an entry").file_name().to_str()?.parse().ok());
    let other = ids.find(|&id: &u32| id != server.pid()).expect("a thread");
    assert!(refused(other).contains(&format!("a thread of process {}", server.pid())));

    let mut stopped = Command::new("sleep").arg("60").spawn().expect("sleep");
    // SAFETY: a system call without memory.
    unsafe { libc::kill(stopped.id() as i32, libc::SIGSTOP) };
    let until = Instant::now() + Duration::from_secs(5);
    while !refused(stopped.id()).contains("kill -CONT") {
        assert!(Instant::now() < until, "not told that it is stopped");
    }
    stopped.kill().expect("a child of ours");
    stopped.wait().expect("a child of ours");
    if is_glibc_before(2, 34) {
        assert!(refused(server.pid()).contains("its glibc is older than 2.34"));
        return server.end();
    }
    let ran = server.detach();
    assert!(ran.stderr.contains("not attached"), "{}", ran.stderr);
    let nowhere = server.attach(&["-o", "/nowhere/at-all"]);
    assert!(
        nowhere.stderr.contains("cannot create its log"),
        "{}",
        nowhere.stderr
    );
    server.attached(&[]);
    assert!(refused(server.pid()).contains("attached already"));
    server.detached();
    assert!(server.detach().stderr.contains("not attached"));
    server.end();
}

/// A process under a seccomp filter is recorded if the filter ends it for none of our system calls.
/// Otherwise it is left alone, and the call is named.
#[test]
fn a_seccomp_filter_is_read_before() {
    let mut refuses = Server::with(&["2", "refuses"]);
    refuses.attached(&["-i", "1"]);
    refuses.tell("burst 20");
    refuses.detached();
    let log = Log::read(&refuses.logs().pop().expect("a log")).whole();
    assert_eq!(blocks(&log, 23100), (20, 0));
    refuses.end();

    let mut kills = Server::with(&["2", "kills"]);
    let ran = kills.attach(&[]);
    assert_eq!(ran.code(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("system call memfd_create"),
        "{}",
        ran.stderr
    );
    kills.tell("burst 20");
    kills.end();
}

/// A user who is not permitted to trace the process is told why, and what to do.
#[test]
fn who_may_not_is_told_why() {
    let mut server = Server::start(1);
    let pid = server.pid().to_string();
    // Another user, if we are root and can become one.
    // SAFETY: a system call without memory.
    if unsafe { libc::geteuid() } == 0 {
        let mut command = Command::new(&Build::get().heapprof);
        command
            .args(["attach", &pid, "--leave"])
            .current_dir("/tmp");
        command.uid(65534).gid(65534);
        let done = command.output().expect("heapprof");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains("belongs to user 0"), "{said}");
        assert!(said.contains("sudo heapprof attach"), "{said}");
    }
    // A tracer that is there already: this test.
    let id = server.pid() as i32;
    // SAFETY: numbers only.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, id, 0usize, 0usize) };
    assert_eq!(seized, 0);
    let ran = server.attach(&[]);
    assert!(
        ran.stderr.contains("traces it, and only one can"),
        "{}",
        ran.stderr
    );
    server.tell("burst 5");
    server.end();
}

/// A process in namespaces of its own is recorded from outside. Its log is in its own folder.
#[test]
fn a_process_in_other_namespaces_is_recorded() {
    let server = Build::get().fixture("attached_server");
    let server = server.to_str().expect("a path of the build");
    let unshare = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount",
        "--mount-proc",
    ];
    let is_permitted = Command::new("unshare").args(unshare).arg("true").status();
    if !is_permitted.is_ok_and(|status| status.success()) {
        eprintln!("left out: this system does not permit namespaces");
        return;
    }
    let arguments = [&unshare[..], &[server, "2"]].concat();
    let mut outer = Server::of(Path::new("unshare"), &arguments);
    let children = format!("/proc/{0}/task/{0}/children", outer.pid());
    let children = fs::read_to_string(children).expect("it lives");
    let pid = children.split_ascii_whitespace().next().expect("a child");
    let told = outer
        .heapprof(&["attach", pid, "--leave", "-i", "1"])
        .well();
    assert!(
        told.stderr.contains("attached to process"),
        "{}",
        told.stderr
    );
    outer.tell("burst 10");
    let told = outer.heapprof(&["detach", pid]).well();
    assert!(told.stderr.contains("detached from"), "{}", told.stderr);
    let log = Log::read(&outer.logs().pop().expect("a log")).whole();
    assert_eq!(blocks(&log, 23100), (10, 0));
    outer.end();
}

/// A process that forks while heapprof is attached goes on, and its child, too.
#[test]
fn a_child_of_an_attached_process_runs() {
    let mut server = Server::start(2);
    server.attached(&["-i", "1"]);
    // A child that would wait for a seat takes a tenth of a second each time.
    let shortest = (0..5).map(|_| {
        let start = Instant::now();
        assert_eq!(server.tell("fork"), 7);
        start.elapsed()
    });
    let shortest = shortest.min().unwrap();
    assert!(shortest < Duration::from_millis(80), "{shortest:?}");
    server.tell("burst 10");
    server.detached();
    assert_eq!(server.tell("fork"), 7);
    let log = Log::read(&server.logs().pop().expect("a log")).whole();
    assert_eq!(blocks(&log, 23500), (0, 0), "the child is not recorded");
    assert_eq!(blocks(&log, 23100), (10, 0));
    server.end();
}

/// A child that was forked meanwhile can be attached to, while its parent is and afterwards.
#[test]
fn a_child_of_an_attached_process_can_be_attached_to() {
    let mut server = Server::start(2);
    let code = server.code();
    server.attached(&["-i", "1"]);
    let child = server.tell("branch").to_string();
    for round in 0..3 {
        let options = ["attach", &child, "--leave", "-i", "1", "-o", "child"];
        let _ = server.heapprof(&options).well();
        std::thread::sleep(Duration::from_millis(200));
        let _ = server.heapprof(&["detach", &child]).well();
        let log = Log::read(&server.folder().join("child.heaplog")).whole();
        assert_eq!(log.end(), Some(EndReason::Detached));
        assert_eq!(log.unknown_frees(), 0);
        let (all, in_use) = blocks(&log, 23600);
        assert!(all > 10 && in_use <= 1, "round {round}: {all}, {in_use}");
        fs::remove_file(server.folder().join("child.heaplog")).expect("a log");
        if round == 0 {
            server.tell("burst 10");
            server.detached();
        }
    }
    let [log] = &server.logs()[..] else {
        panic!("{:?}", server.logs())
    };
    let log = Log::read(log).whole();
    assert_eq!(blocks(&log, 23600), (0, 0), "the child's are its own");
    assert_eq!(blocks(&log, 23100), (10, 0));
    assert_eq!(changed(&code, &server.code()), [""; 0]);
    server.end();
}

/// A process that ends while heapprof is attached completes its log.
#[test]
fn a_process_may_end_while_it_is_attached() {
    let mut server = Server::start(2);
    server.attached(&["-i", "1"]);
    server.tell("keep 10");
    let path = server.logs().pop().expect("a log");
    server.quit();
    let log = Log::read(&path).whole();
    assert_eq!(log.end(), Some(EndReason::Exit));
    assert_eq!(blocks(&log, 23200), (10, 10));
}

/// The program that attached sees that another one detached, or that the process executed another
/// program.
#[test]
fn attach_ends_when_another_heapprof_detaches() {
    if is_glibc_before(2, 34) {
        return;
    }
    let server = Server::start(2);
    let (folder, pid) = (server.folder().to_owned(), server.pid().to_string());
    let run = || {
        Run::heapprof()
            .inside(&folder)
            .args(["attach", &pid, "-o", "."])
    };
    let mut attached = run().start();
    attached.until("the recording", |it| {
        it.stderr_so_far().contains("recording to")
    });
    server.detached();
    let ended = attached.wait().well();
    let log = server.logs().pop().expect("a log");
    let name = format!("heapprof.attached_server.{pid}.heaplog");
    assert!(log.ends_with(name), "{}", log.display());
    let line = format!("process {pid} was detached by another heapprof; log: ");
    assert!(ended.stderr.contains(&line), "{}", ended.stderr);
    assert_eq!(Log::read(&log).whole().end(), Some(EndReason::Detached));
    server.end();
}

/// The library's file is in shared memory, and no call that maps memory is recorded.
#[test]
fn the_attached_library_is_no_memory_of_the_program() {
    if is_glibc_before(2, 34) {
        return;
    }
    let server = Server::start(1);
    server.attached(&["-i", "1"]);
    let pid = server.pid().to_string();
    let shown = server.heapprof(&["rss", "--json", &pid]).well();
    let Json(document) = Json::parse(&shown.stdout);
    let lines = document["lines"].as_array().unwrap();
    let bytes = |key: &str| {
        let line = lines.iter().find(|line| line["key"] == key)?;
        line["bytes"].as_i64()
    };
    assert!(bytes("shared").unwrap() < 100 << 10, "{document:#}");
    assert!(bytes("profiler").unwrap() > 500 << 10, "{document:#}");
    assert_eq!(bytes("mapped"), None, "{document:#}");
    let resident = document["resident_bytes"].as_i64().unwrap();
    let rest = bytes("not_explained").unwrap();
    assert!(rest.abs() < resident / 20, "{document:#}");
    server.detached();
    server.end();
}

/// While heapprof is attached, a mapping has the stack of the call that made it. Those from before
/// have none, as those that libc makes for its own blocks.
#[test]
fn mappings_of_an_attached_process_have_stacks() {
    const MIB: u64 = 1 << 20;
    let mut server = Server::start(1);
    server.tell("map 3"); // not recorded
    for count in [5, 2] {
        server.attached(&["-i", "1"]);
        server.tell(&format!("map {count}"));
        let pid = server.pid().to_string();
        let waterfall = server.heapprof(&["rss", &pid]).well();
        assert!(
            waterfall.stdout.contains("mapped since the attach"),
            "{}",
            waterfall.stdout
        );
        server.detached();
        server.tell("map 1"); // not recorded
        let log = server.logs().pop().expect("a log");
        let log = log.to_str().expect("a name");
        let shown = server
            .heapprof(&[
                "top", "--json", "-m", "mapped", "--by", "function", "-n", "0", log,
            ])
            .well();
        let Json(document) = Json::parse(&shown.stdout);
        let mapped: BTreeMap<&str, u64> = (document["groups"].as_array().unwrap().iter())
            .map(|line| {
                let bytes = line["self"].as_f64().unwrap();
                (line["name"].as_str().unwrap(), bytes as u64)
            })
            .filter(|(name, _)| name.starts_with("site_") || *name == "map_one")
            .collect();
        // `map_one` makes those that are kept, and unmaps nothing.
        let expected = BTreeMap::from([("map_one", count * MIB), ("site_grows", 3 * MIB)]);
        assert_eq!(mapped, expected, "{document:#}");
        assert!(document["caveats"].to_string().contains("attached"));
    }
    server.end();
}

/// A log that cannot be written is told at the end, by a status and with the way out.
#[test]
fn a_log_that_could_not_be_written_is_told() {
    let server = Server::start(1);
    let limit = |bytes: &str| {
        let pid = server.pid().to_string();
        let done = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")])
            .status();
        assert!(done.expect("prlimit").success());
    };
    limit("1000");
    server.attached(&["-i", "1"]);
    std::thread::sleep(Duration::from_millis(300));
    let pid = server.pid().to_string();
    let detached = server.heapprof(&["detach", &pid]);
    assert_eq!(detached.status.code(), Some(1), "{}", detached.stderr);
    for words in ["detached from process", "could be written to it", "-o"] {
        assert!(detached.stderr.contains(words), "{}", detached.stderr);
    }
    limit("unlimited");
    server.attached(&["-i", "1"]);
    server.detached();
    server.end();
}

/// A recording counts the bytes that threads request while it lasts, and none of an earlier one.
#[test]
fn a_second_recording_agrees_with_the_threads() {
    let server = Server::start(4);
    for interval in ["4MiB", "1", "512KiB", "1"] {
        server.attached(&["-i", interval]);
        std::thread::sleep(Duration::from_millis(100));
        server.detached();
        let log = server.logs().pop().expect("a log");
        let shown = server
            .heapprof(&["info", log.to_str().expect("a name")])
            .well();
        let health = shown.stdout.lines().find(|line| line.contains("health:"));
        let health = health.unwrap_or_else(|| panic!("{}", shown.stdout));
        assert!(health.ends_with("agrees"), "at {interval}: {health}");
    }
    server.end();
}

/// After `heapprof detach`, no command waits for an answer that does not come, and each says what
/// has happened.
#[test]
fn commands_after_a_detach_answer_at_once() {
    if is_glibc_before(2, 34) {
        return;
    }
    let server = Server::start(1);
    server.attached(&["-i", "1"]);
    server.detached();
    let pid = server.pid().to_string();
    let log = server.logs().pop().expect("a log").display().to_string();
    for words in [
        &["ctl", &pid, "status"][..],
        &["ctl", &pid, "dump"],
        &["rss", &pid],
        &["explain", &pid],
        &["at", "0x1000", &pid],
        &["watch", &pid],
        &["top", &pid],
        &["serve", &pid],
    ] {
        let ran = server.heapprof(words);
        assert_eq!(ran.code(), 1, "{words:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("detached from it"),
            "{words:?}: {}",
            ran.stderr
        );
        assert!(
            ran.elapsed < Duration::from_secs(2),
            "{words:?}: {:?}",
            ran.elapsed
        );
    }
    assert!(
        server
            .detach()
            .stderr
            .contains("not attached to it any more")
    );
    let top = server.heapprof(&["top", &log]).well();
    assert!(
        top.stdout.contains("attached_server, pid "),
        "{}",
        top.stdout
    );
    server.attached(&["-i", "1"]);
    let status = server.heapprof(&["ctl", &pid, "status"]).well();
    assert!(status.stdout.contains("log: "), "{}", status.stdout);
    server.detached();
    server.end();
}
