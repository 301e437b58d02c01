//! Control while a program runs: the C API, `heapprof ctl`, a budget for samples, blocks recorded for their size.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use heapprof_core::{Estimate, Weight};
use heapprof_format::{Alloc, Record};
use heapprof_tests::{Finished, Log, Run, Running, now_ns};

/// `allocates_until_told` in that mode, told by a file in its folder.
fn service(mode: &str) -> Run {
    let run = Run::fixture("allocates_until_told");
    let told = run.folder().join("told");
    run.arg(told).arg(mode)
}

/// Runs `heapprof ctl`.
fn ctl(pid: u32, words: &[&str]) -> Finished {
    Run::heapprof()
        .arg("ctl")
        .arg(pid.to_string())
        .args(words)
        .run()
}

/// Runs it; what it prints.
#[track_caller]
fn told(pid: u32, words: &[&str]) -> String {
    let ran = ctl(pid, words).well();
    assert_eq!(ran.stderr, "");
    ran.stdout
}

/// Runs it; why it is refused.
#[track_caller]
fn refused(pid: u32, words: &[&str]) -> String {
    let ran = ctl(pid, words);
    assert_ne!(ran.code(), 0, "{}", ran.stdout);
    assert_eq!(ran.stdout, "");
    ran.stderr
}

/// Starts it, and waits until it has said its process id.
fn started(run: Run) -> Running {
    let mut running = run.start();
    running.until("its process id", |running| {
        running.stdout_so_far().contains('\n')
    });
    running
}

/// Tells it to end.
fn ended(running: Running) -> Finished {
    fs::write(running.folder().join("told"), "").unwrap();
    running.wait().well()
}

fn allocs(log: &Log) -> impl Iterator<Item = Alloc> + '_ {
    log.records.iter().filter_map(|record| match record {
        Record::Alloc(alloc) => Some(*alloc),
        _ => None,
    })
}

/// When what was in force changed, and to what.
fn regimes(log: &Log) -> Vec<(u64, u64)> {
    let regimes = log.records.iter().filter_map(|record| match record {
        Record::Regime {
            time_ns, interval, ..
        } => Some((*time_ns, *interval)),
        _ => None,
    });
    regimes.collect()
}

fn markers(log: &Log) -> Vec<&str> {
    let markers = log.profile.run.markers.iter();
    markers.map(|marker| marker.name.as_str()).collect()
}

/// How many samples of that size there are on disk by now.
fn samples_so_far(running: &Running, size: u64) -> usize {
    let is_log = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|e| e == "heaplog");
    let mut entries = fs::read_dir(running.folder()).unwrap().map(Result::unwrap);
    entries.find(is_log).map_or(0, |entry| {
        let log = Log::read(&entry.path());
        allocs(&log).filter(|alloc| alloc.size == size).count()
    })
}

/// The writer's thread, if there is one.
fn writer_of(pid: u32) -> Option<std::path::PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut tasks = tasks.filter_map(Result::ok).map(|task| task.path());
    tasks.find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "heapprof\n"))
}

/// The descriptors that a process has open.
fn open_in(pid: u32) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = open.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// How often a thread has gone to sleep by itself.
fn sleeps_of(task: &Path) -> u64 {
    let status = fs::read_to_string(task.join("status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn the_api_does_what_its_header_says() {
    let ran = Run::fixture("control_api").interval(1).run().well();
    let claims = ran.claims();
    assert!(ran.stdout.starts_with("present 1\n"));
    assert_eq!(claims.failures, [""; 0]);
    assert_eq!(ran.stderr, "");
    let log = ran.log().whole();
    assert_eq!(log.unknown_frees(), 0);
    for (size, allocated, in_use) in claims.counts {
        let blocks = log.blocks_of(size);
        let found = (
            blocks.len() as u64,
            blocks.iter().filter(|b| b.in_use).count() as u64,
        );
        assert_eq!(found, (allocated, in_use), "blocks of {size}");
    }
    assert_eq!(markers(&log), ["begin", "end", "dump: as asked"]);
    let in_force: Vec<u64> = regimes(&log)
        .iter()
        .map(|(_, interval)| *interval)
        .collect();
    assert_eq!(in_force, [0, 1, 1 << 30, 1, 0, 1]);
    // Without HEAPPROFILE the dump lies beside the log, and there is none at exit.
    assert_eq!(ran.dumps().len(), 1);
    let dump = ran.named(&ran.files_ending(".heap")[0]);
    let of_log = log.profile.numbers();
    let of_dump = dump.profile.numbers();
    assert_eq!(of_dump, of_log);
}

#[test]
fn without_the_library_the_api_is_nothing() {
    let ran = Run::fixture("control_api").without_library().run().well();
    assert!(ran.stdout.starts_with("present 0\n"));
    assert_eq!(ran.claims().failures, [""; 0]);
    assert_eq!(ran.files(), [""; 0]);
}

/// gperftools' way: the program says where dumps go. The account is whole although it was not kept before.
#[test]
fn a_program_says_where_its_dumps_go() {
    const PROGRAM: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        __attribute__((weak)) void HeapProfilerStart(const char *);
        __attribute__((weak)) void HeapProfilerStop(void);
        __attribute__((weak)) void HeapProfilerDump(const char *);
        void *kept[100];
        int main(void)
        {
            for (int i = 0; i < 100; i++)
                kept[i] = malloc(24001);
            HeapProfilerStart("from-api");
            for (int i = 0; i < 50; i++)
                free(kept[i]);
            if (chdir("/") != 0)
                return 2;
            HeapProfilerDump("half");
            HeapProfilerStart("ignored: it runs");
            return 0;
        }
    "#;
    let ran = Run::compiled("starts", PROGRAM, &[])
        .interval(1)
        .run()
        .well();
    assert_eq!(ran.stderr, "");
    assert_eq!(
        ran.files_ending(".heap"),
        ["from-api.0001.heap", "from-api.0002.heap"]
    );
    let numbers = ran.named("from-api.0001.heap").profile.numbers();
    assert!(
        numbers.in_use_bytes >= 50 * 24001 && numbers.in_use_bytes < 51 * 24001,
        "{numbers:?}"
    );
    assert!(numbers.allocated_bytes >= 100 * 24001, "{numbers:?}");
    let last = fs::read_to_string(ran.folder().join("from-api.0002.heap")).unwrap();
    assert!(last.contains("Exiting"), "{last}");
}

/// HEAPPROF_START=paused: nothing before the first start, nothing between a stop and the next, and the log says so.
#[test]
fn a_paused_program_records_from_start_to_stop() {
    let run = service("steady")
        .interval(1)
        .env("HEAPPROF_START", "paused");
    let mut running = started(run);
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    assert!(told(pid, &["status"]).contains("state: stopped, every allocation"));
    assert_eq!(told(pid, &["start"]), "recording, every allocation\n");
    assert_eq!(
        told(pid, &["start"]),
        "was already recording, every allocation\n"
    );
    running.until("samples", |running| samples_so_far(running, 23001) > 20);
    assert!(told(pid, &["stop"]).starts_with("stopped"));
    assert!(told(pid, &["mark", "it is quiet"]).contains("it is quiet"));
    let ran = ended(running);

    let log = ran.log().whole();
    let changes = regimes(&log);
    let [(0, 0), (start_ns, 1), (stop_ns, 0)] = changes[..] else {
        panic!("{changes:?}")
    };
    assert!(allocs(&log).all(|alloc| alloc.time_ns >= start_ns));
    // The program has one thread: one block can be on its way while recording is stopped.
    let late = allocs(&log).filter(|alloc| alloc.time_ns > stop_ns).count();
    assert!(late <= 1, "{late} blocks after the stop");
    assert_eq!(
        log.blocks_of(23002),
        [],
        "it was allocated before the start"
    );
    assert_eq!(markers(&log), ["it is quiet"]);
    let info = Run::heapprof()
        .in_folder_of(&ran)
        .arg("info")
        .arg(ran.log_path())
        .run()
        .well();
    for words in ["  stopped\n", "started, every allocation", "stopped for"] {
        assert!(
            info.stdout.contains(words),
            "no {words:?} in {}",
            info.stdout
        );
    }
}

#[test]
fn an_interval_is_followed_by_a_thread_that_was_far_from_its_mark() {
    let run = service("steady")
        .interval(1 << 40)
        .env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    assert_eq!(told(pid, &["interval", "1"]), "every allocation\n");
    // 4 MiB in blocks of 23 kB are 182 of them.
    running.until("samples", |running| samples_so_far(running, 23001) > 20);
    let log = ended(running).log().whole();
    assert_eq!(regimes(&log).last().map(|(_, interval)| *interval), Some(1));
    assert!(allocs(&log).all(|alloc| alloc.interval == 1));
    // Each is freed at once: once followed, none is left out.
    assert_eq!(log.blocks_of(23001).iter().filter(|b| b.in_use).count(), 0);
}

#[test]
fn a_dump_is_written_while_it_runs_and_what_is_wrong_is_refused() {
    for prefix in [None, Some("t")] {
        let mut run = service("idle").interval(1);
        if let Some(prefix) = prefix {
            run = run.prefix(prefix);
        }
        let mut running = started(run);
        let pid = running.pid();
        running.until("a sample", |running| samples_so_far(running, 23002) == 1);
        let path = told(pid, &["dump", "asked for"]);
        let text = fs::read_to_string(path.trim_end()).unwrap();
        assert!(text.starts_with("heap profile:"), "{text}");
        assert!(text.contains("reason: asked for"), "{text}");
        let dump = heapprof_tests::Named::read(Path::new(path.trim_end()));
        assert!(dump.profile.numbers().in_use_bytes >= 23002, "{text}");
        let second = told(pid, &["dump"]);
        assert!(second.ends_with(".0002.heap\n"), "{second}");

        assert!(refused(pid, &["interval", "9999G"]).contains("from 1 to"));
        assert!(refused(pid, &["interval", "0"]).contains("more than 0"));
        assert!(refused(pid, &["mark", &"x".repeat(5000)]).contains("too long"));
        let ran = ended(running);
        assert_eq!(ran.stderr, "");
        assert_eq!(ran.dumps().len(), 2 + usize::from(prefix.is_some()));
        assert!(ran.log().whole().end().is_some());
        assert!(refused(pid, &["status"]).contains("no such process"));
    }
}

#[test]
fn what_does_not_listen_says_why() {
    let unrelated = started(service("idle").without_library());
    assert!(refused(unrelated.pid(), &["status"]).contains("does not run under libheapprof.so"));
    ended(unrelated);

    let mut deaf = started(service("steady").interval(1).env("HEAPPROF_CONTROL", "0"));
    deaf.until("samples", |running| samples_so_far(running, 23001) > 0);
    assert!(refused(deaf.pid(), &["status"]).contains("HEAPPROF_CONTROL=0"));
    ended(deaf);
}

/// Each process has its own page, and obeys its own commands.
#[test]
fn parent_and_child_are_told_apart() {
    let run = service("fork").interval(1).prefix("t");
    let mut running = run.start();
    running.until("both", |running| {
        let said = running.stdout_so_far();
        said.contains("pid ") && said.contains("child ")
    });
    let said = running.stdout_so_far();
    let child = said.lines().find_map(|line| line.strip_prefix("child "));
    let child: u32 = child.unwrap().parse().unwrap();
    let parent = running.pid();
    for pid in [parent, child] {
        running.until("a writer", |_| writer_of(pid).is_some());
    }
    told(parent, &["mark", "of the parent"]);
    told(child, &["mark", "of the child"]);
    told(child, &["stop"]);
    assert!(told(parent, &["status"]).contains("state: recording"));
    assert!(told(child, &["status"]).contains("state: stopped"));
    let ran = ended(running);
    let of_parent = Log::read(&ran.folder().join("t.heaplog"));
    let of_child = Log::read(&ran.folder().join(format!("t_{child}.heaplog")));
    let asked = |log: &Log| -> Vec<String> {
        let names = markers(log).into_iter();
        names
            .filter(|name| name.starts_with("of "))
            .map(String::from)
            .collect()
    };
    assert_eq!(asked(&of_parent), ["of the parent"]);
    assert_eq!(asked(&of_child), ["of the child"]);
    assert_eq!(regimes(&of_parent), []);
    assert_eq!(regimes(&of_child).len(), 1);
}

/// A process that nobody asks is not woken, has no descriptor of ours, and wakes when it is asked.
#[test]
fn listening_costs_an_idle_process_nothing() {
    let run = service("idle").interval(1).env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    let writer = writer_of(pid).unwrap();
    // While there was something to do it looks again every 20 ms; a tenth of a second later it sleeps for good.
    let second = std::time::Duration::from_secs(1);
    let stays_asleep = |_: &Running| {
        let before = sleeps_of(&writer);
        std::thread::sleep(second);
        sleeps_of(&writer) == before
    };
    running.until("a whole second of sleep", stays_asleep);
    let before = sleeps_of(&writer);
    std::thread::sleep(second);
    assert_eq!(sleeps_of(&writer), before, "it woke up");
    let without = started(service("idle").without_library());
    assert_eq!(open_in(pid), open_in(without.pid()));
    ended(without);
    assert!(told(pid, &["status"]).contains("state: recording"));
    assert!(sleeps_of(&writer) > before);
    ended(running);
}

/// A command is obeyed before `ctl` returns, by a writer that was asleep as by one that is busy: its moment lies between
/// the clock before and the clock after.
#[test]
fn a_command_is_obeyed_before_ctl_returns() {
    for mode in ["idle", "steady"] {
        let mut running = started(service(mode).interval(1).env("HEAPPROF_CONTROL", "1"));
        running.until("a writer", |running| writer_of(running.pid()).is_some());
        let pid = running.pid();
        let mut asked = Vec::new();
        for n in 0..10 {
            let before = now_ns();
            told(pid, &["mark", &format!("number {n}")]);
            asked.push((before, now_ns()));
        }
        let log = ended(running).log().whole();
        let start_ns = log.start().monotonic_ns;
        let times: Vec<u64> = log.records.iter().filter_map(marker_time).collect();
        assert_eq!(times.len(), asked.len(), "{mode}");
        for (time, (before, after)) in times.into_iter().zip(asked) {
            // Stored to the microsecond, by a clock that is right to half of one.
            let time = start_ns + time;
            assert!(
                (before - 2_000..=after + 2_000).contains(&time),
                "{mode}: {time} not in {before} to {after}"
            );
        }
    }
}

fn marker_time(record: &Record) -> Option<u64> {
    match record {
        Record::Marker { time_ns, .. } => Some(*time_ns),
        _ => None,
    }
}

/// However a process ends, nothing of it stays in the system.
#[test]
fn a_killed_process_leaves_no_page_behind() {
    let mut running = started(service("idle").interval(1));
    running.until("a sample", |running| samples_so_far(running, 23002) == 1);
    let pid = running.pid().to_string();
    let pages = || {
        let all = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let of_it = |line: &&str| line.split_ascii_whitespace().nth(4) == Some(&pid);
        all.lines().filter(of_it).count()
    };
    assert_eq!(pages(), 1);
    running.signal(libc::SIGKILL);
    assert_eq!(running.wait().code(), 128 + libc::SIGKILL);
    assert_eq!(pages(), 0);
}

/// They wait for each other.
#[test]
fn commands_from_many_at_once_are_all_obeyed() {
    let mut running = started(service("idle").interval(1));
    running.until("a sample", |running| samples_so_far(running, 23002) == 1);
    let pid = running.pid();
    let names: Vec<String> = (0..12).map(|n| format!("number {n:02}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || told(pid, &["mark", name]));
        }
    });
    let log = ended(running).log().whole();
    let mut found = markers(&log);
    found.sort_unstable();
    assert_eq!(found, names);
}

/// All blocks of at least that size, at an interval that would find none of them; and an estimate of the others.
#[test]
fn large_blocks_are_all_recorded_whatever_the_interval() {
    const OVER: u64 = 4 << 10;
    let sizes = |log: &Log, interval: u64| -> BTreeMap<u64, u64> {
        let mut sizes = BTreeMap::new();
        for alloc in allocs(log).filter(|alloc| alloc.size >= OVER) {
            assert_eq!(alloc.interval, interval);
            *sizes.entry(alloc.size).or_default() += 1;
        }
        sizes
    };
    let truth = |interval: u64| {
        Run::fixture("truth")
            .args(["--threads", "2"])
            .interval(interval)
    };
    let all = truth(1).run().well().log().whole();
    let ran = truth(1 << 40)
        .env("HEAPPROF_RECORD_OVER", "4K")
        .run()
        .well();
    let large = ran.log().whole();
    let expected = sizes(&all, 1);
    assert!(expected.values().sum::<u64>() > 100, "{expected:?}");
    assert_eq!(sizes(&large, 1), expected);
    // 43 MB at an interval of 1 TiB: one sample in 25,000 runs.
    assert_eq!(allocs(&large).filter(|alloc| alloc.size < OVER).count(), 0);
    let top = Run::heapprof().arg("top").arg(ran.log_path()).run().well();
    let said = "blocks of 4.0 KiB and more all recorded";
    assert!(top.stdout.contains(said), "{}", top.stdout);
}

/// A load of about a million blocks a second, of which 200 a second may be recorded. The numbers stay right.
#[test]
fn a_budget_is_kept_and_the_numbers_stay_right() {
    let run = service("hot")
        .interval(4096)
        .env("HEAPPROF_MAX_SAMPLES_PER_SEC", "200")
        .env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    running.until("its load", |running| {
        running.stdout_so_far().contains("allocated ")
    });
    let pid = running.pid();
    // Nothing is allocated any more: it comes down by itself to what was asked for, and then is not woken.
    running.until("the interval to come down", |_| {
        told(pid, &["status"]).contains("one sample every 4096 bytes on average\n")
    });
    let ran = ended(running);
    let line = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("allocated "));
    let (blocks, bytes) = line.unwrap().split_once(' ').unwrap();
    let (blocks, bytes): (f64, f64) = (blocks.parse().unwrap(), bytes.parse().unwrap());

    let log = ran.log().whole();
    let mut estimate = Estimate::default();
    let (mut first_ns, mut last_ns, mut samples) = (u64::MAX, 0, 0);
    for alloc in allocs(&log).filter(|alloc| (200..1224).contains(&alloc.size)) {
        estimate.add(&Weight::of(alloc.size, alloc.interval));
        samples += 1;
        first_ns = first_ns.min(alloc.time_ns);
        last_ns = last_ns.max(alloc.time_ns);
    }
    // Beyond 5 standard errors once in 1.7 million runs; twice here.
    let z_blocks = (estimate.objects_f64() - blocks) / estimate.objects_error();
    let z_bytes = (estimate.bytes_f64() - bytes) / estimate.bytes_error();
    assert!(
        z_blocks.abs() < 5.0 && z_bytes.abs() < 5.0,
        "{z_blocks} {z_bytes}"
    );
    assert!(bytes / 4096.0 > 20_000.0, "no load: {bytes} bytes");
    // What was taken until the load was noticed, a full lane and at most another while the writer empties it; and twice the
    // budget after that.
    let seconds = (last_ns - first_ns) as f64 / 1e9;
    let most = 2.0 * 8192.0 + 2.0 * 200.0 * (seconds + 1.0);
    assert!(
        f64::from(samples) < most,
        "{samples} samples in {seconds} s"
    );
    let info = Run::heapprof().arg("info").arg(ran.log_path()).run().well();
    assert!(info.stdout.contains("  budget "), "{}", info.stdout);
}

/// HEAPPROF_STACK_DEPTH=1: every block belongs to its immediate caller, and the numbers are those of the whole stacks.
#[test]
fn a_depth_of_one_counts_by_immediate_caller() {
    let run = |depth: &str| {
        let run = Run::fixture("threads_basic").interval(1);
        run.env("HEAPPROF_STACK_DEPTH", depth).run().well()
    };
    let (whole, short) = (run("512"), run("1"));
    let by_caller = |ran: &Finished| {
        let log = ran.log().whole();
        let mut found: BTreeMap<(u64, String), (u64, u64)> = BTreeMap::new();
        for block in log.blocks() {
            if !(9000..9008).contains(&block.size) {
                continue;
            }
            let stack = &log.named().stacks[block.stack];
            let caller = stack.iter().find(|function| !function.is_allocator());
            let caller = caller.expect("a caller").plain.clone();
            let (all, in_use) = found.entry((block.size, caller)).or_default();
            *all += 1;
            *in_use += u64::from(block.in_use);
        }
        (log, found)
    };
    let ((_, of_whole), (log, of_short)) = (by_caller(&whole), by_caller(&short));
    assert_eq!(of_short, of_whole);
    assert_eq!(of_short.len(), 8);
    assert!(of_short.values().all(|counts| *counts == (100, 50)));
    for stack in &log.profile.stacks {
        assert!(stack.frames.len() <= 2, "{stack:?}");
    }
}

/// Keeps a thousand blocks recorded one by one, and a thousand under an interval that it asks for.
const CHANGES_ITS_INTERVAL: &str = r#"
#include <stdlib.h>
int heapprof_set_interval(size_t bytes) __attribute__((weak));
void HeapProfilerDump(const char *reason) __attribute__((weak));
void *kept[2000];
int main(void)
{
    for (int i = 0; i < 1000; i++) kept[i] = malloc(3001);
    if (heapprof_set_interval(65536) != 0) return 1;
    for (int i = 1000; i < 2000; i++) kept[i] = malloc(3002);
    HeapProfilerDump("asked");
    return 0;
}
"#;

/// A dump of a run that was recorded one by one only at first says that it estimates, and so do its readers.
#[test]
fn a_dump_after_a_change_of_interval_says_that_it_estimates() {
    let ran = Run::compiled("changes", CHANGES_ITS_INTERVAL, &[])
        .interval(1)
        .run()
        .well();
    let [dump] = &ran.files_ending(".heap")[..] else {
        panic!("{:?}", ran.files());
    };
    let text = String::from_utf8_lossy(&ran.bytes(dump)).into_owned();
    assert!(text.contains("# interval: 65536\n"), "{text}");
    assert!(
        text.contains("# estimator: each sample of s bytes"),
        "{text}"
    );
    let again = ran.folder().join("again.heap");
    let made = Run::heapprof()
        .args(["export", "--format", "gperftools", "-o"])
        .arg(&again)
        .arg(ran.log_path())
        .run();
    assert_eq!(made.code(), 0, "{}", made.stderr);
    for dump in [ran.folder().join(dump), again] {
        let top = Run::heapprof().arg("top").arg(&dump).run().well().stdout;
        let in_use = top.lines().find(|line| line.contains("in use")).unwrap();
        assert!(in_use.contains('±') && !in_use.contains("± 0 B"), "{top}");
    }
}

/// A budget that has nothing to say about a change of interval is not named as its cause, and is not in the way of the next.
#[test]
fn a_budget_does_not_keep_what_somebody_asked_for() {
    let run = service("steady")
        .interval(4096)
        .env("HEAPPROF_MAX_SAMPLES_PER_SEC", "100000")
        .env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    let pid = running.pid();
    for interval in ["1M", "64K", "256K"] {
        let answer = told(pid, &["interval", interval]);
        assert!(!answer.contains("budget"), "{interval}: {answer}");
        // The budget has seen it when it has come round.
        let before = samples_so_far(&running, 23001);
        running.until("more samples", |running| {
            samples_so_far(running, 23001) > before + 3
        });
    }
    let ran = ended(running);
    let intervals: Vec<u64> = regimes(&ran.log().whole())
        .iter()
        .map(|regime| regime.1)
        .collect();
    assert_eq!(intervals, [1 << 20, 64 << 10, 256 << 10]);
    let info = Run::heapprof().arg("info").arg(ran.log_path()).run().well();
    assert!(!info.stdout.contains("  budget "), "{}", info.stdout);
}

/// Of a process whose main thread has ended, the kernel shows what is mapped only for the other threads.
#[test]
fn a_process_whose_main_thread_has_ended_is_reached() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        static void *work(void *told)
        {
            while (access(told, F_OK) != 0) {
                free(malloc(50001));
                usleep(10000);
            }
            return NULL;
        }
        int main(int argc, char **argv)
        {
            pthread_t thread;
            free(malloc(50000));
            pthread_create(&thread, NULL, work, argv[1]);
            pthread_exit(NULL);
        }
    "#;
    let run = Run::compiled("without_main", SOURCE, &["-w", "-pthread", "-fno-builtin"]);
    let told_by = run.folder().join("told");
    let mut running = run.arg(&told_by).interval(1).prefix("t").start();
    let pid = running.pid();
    running.until("the main thread's end", |_| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    });
    assert!(told(pid, &["status"]).contains("t.heaplog"));
    told(pid, &["mark", "here"]);
    std::fs::write(told_by, "").unwrap();
    let ran = running.wait().well();
    let log = ran.log().whole();
    assert!(!log.blocks_of(50001).is_empty());
    // And is gone then.
    assert!(refused(pid, &["status"]).contains("no such process"));
}
