//! `heapprof ctl` while a program runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use heapprof_format::Record;
use heapprof_tests::{
    Log, Run, Running, ctl, ctl_output, ended, now_ns, refused, samples_so_far, service, started,
    writer_of,
};

/// Returns the open descriptors of a process.
fn open_in(pid: u32) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = open.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Returns how often a thread has gone to sleep by itself.
fn sleeps_of(task: &Path) -> u64 {
    let status = fs::read_to_string(task.join("status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// HEAPPROF_START=paused: nothing is recorded before the first start and between a stop and the
/// next start, and the log tells so.
#[test]
fn a_paused_program_records_from_start_to_stop() {
    let run = service("steady")
        .interval(1)
        .env("HEAPPROF_START", "paused");
    let mut running = started(run);
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    assert!(ctl_output(pid, &["status"]).contains("state: stopped, every allocation"));
    assert_eq!(ctl_output(pid, &["start"]), "recording, every allocation\n");
    assert_eq!(
        ctl_output(pid, &["start"]),
        "was already recording, every allocation\n"
    );
    running.until("samples", |running| samples_so_far(running, 23001) > 20);
    assert!(ctl_output(pid, &["stop"]).starts_with("stopped"));
    assert!(ctl_output(pid, &["mark", "it is quiet"]).contains("it is quiet"));
    let ran = ended(running);

    let log = ran.log().whole();
    let changes = log.regimes();
    let [(0, 0), (start_ns, 1), (stop_ns, 0)] = changes[..] else {
        panic!("{changes:?}")
    };
    assert!(log.allocs().all(|alloc| alloc.time_ns >= start_ns));
    // The program has one thread: one block can be on its way when recording stops.
    let late = log.allocs().filter(|alloc| alloc.time_ns > stop_ns).count();
    assert!(late <= 1, "{late} blocks after the stop");
    assert_eq!(
        log.blocks_of(23002),
        [],
        "it was allocated before the start"
    );
    assert_eq!(log.markers(), ["it is quiet"]);
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

/// `heapprof attach` starts the recording of a process that is preloaded. It changes the interval
/// only if one is given.
#[test]
fn attaching_to_a_preloaded_process_starts_its_recording() {
    let run = service("steady")
        .interval(1)
        .env("HEAPPROF_START", "paused");
    let mut running = started(run);
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    let attach = |options: &[&str]| {
        let ran = Run::heapprof()
            .args([&["attach", &pid.to_string()], options].concat())
            .run();
        ran.well().stderr
    };
    let said = attach(&[]);
    assert!(
        said.contains("already: recording, every allocation; heapprof ctl"),
        "{said}"
    );
    let said = attach(&["-i", "4KiB", "--for", "1s", "--tap", "a:free=b"]);
    let words = "already: was already recording, one sample every 4096 bytes";
    assert!(said.contains(words), "{said}");
    assert!(
        said.contains("without effect there: --for, --tap;"),
        "{said}"
    );
    let changes = ended(running).log().whole().regimes();
    let intervals: Vec<u64> = changes.iter().map(|&(_, interval)| interval).collect();
    assert_eq!(intervals, [0, 1, 4096]);
}

/// A peer cannot fill the disk: after a burst, one a second.
#[test]
fn dumps_are_limited_to_a_burst_and_one_a_second() {
    let mut running = started(service("idle").interval(1));
    let pid = running.pid();
    running.until("a sample", |running| samples_so_far(running, 23002) == 1);
    let begun = Instant::now();
    let (mut written, mut said) = (0, None);
    for _ in 0..30 {
        let out = ctl(pid, &["dump"]);
        match out.status.success() {
            true => written += 1,
            false => said = Some(out.stderr),
        }
    }
    let allowed = 5 + begun.elapsed().as_secs() as usize + 1;
    assert!((5..=allowed).contains(&written), "{written} of {allowed}");
    let said = said.expect("a refusal: 30 are asked for in less than 25 seconds");
    assert!(said.contains("one a second"), "{said}");
    // It is a limit of rate: a later one is written, and other commands are not limited.
    assert!(ctl_output(pid, &["status"]).contains(&format!("dumps: {written}")));
    std::thread::sleep(Duration::from_millis(1100));
    ctl_output(pid, &["dump"]);
    let ran = ended(running);
    assert_eq!(ran.dumps().len(), written + 1);
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
        let path = ctl_output(pid, &["dump", "asked for"]);
        let text = fs::read_to_string(path.trim_end()).unwrap();
        assert!(text.starts_with("heap profile:"), "{text}");
        assert!(text.contains("reason: asked for"), "{text}");
        let dump = heapprof_tests::Named::read(Path::new(path.trim_end()));
        assert!(dump.profile.numbers().in_use_bytes >= 23002, "{text}");
        let second = ctl_output(pid, &["dump"]);
        assert!(second.ends_with(".0002.heap\n"), "{second}");

        assert!(refused(pid, &["interval", "9999G"]).contains("from 1 to"));
        assert!(refused(pid, &["interval", "0"]).contains("more than 0"));
        assert!(refused(pid, &["mark", &"x".repeat(5000)]).contains("too long"));
        for nothing in ["", "  "] {
            assert!(refused(pid, &["mark", nothing]).contains("a marker needs a name"));
        }
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
    assert!(refused(unrelated.pid(), &["status"]).contains("runs without heapprof"));
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
    ctl_output(parent, &["mark", "of the parent"]);
    ctl_output(child, &["mark", "of the child"]);
    ctl_output(child, &["stop"]);
    assert!(ctl_output(parent, &["status"]).contains("state: recording"));
    assert!(ctl_output(child, &["status"]).contains("state: stopped"));
    let ran = ended(running);
    let of_parent = Log::read(&ran.folder().join("t.heaplog"));
    let of_child = Log::read(&ran.folder().join(format!("t_{child}.heaplog")));
    let asked = |log: &Log| -> Vec<String> {
        let names = log.markers().into_iter();
        names
            .filter(|name| name.starts_with("of "))
            .map(String::from)
            .collect()
    };
    assert_eq!(asked(&of_parent), ["of the parent"]);
    assert_eq!(asked(&of_child), ["of the child"]);
    assert_eq!(of_parent.regimes(), []);
    assert_eq!(of_child.regimes().len(), 1);
}

/// A process without requests is not woken, has no descriptor of ours, and wakes at a request.
#[test]
fn listening_costs_an_idle_process_nothing() {
    let run = service("idle").interval(1).env("HEAPPROF_CONTROL", "1");
    let mut running = started(run);
    let pid = running.pid();
    running.until("a writer", |running| writer_of(running.pid()).is_some());
    let writer = writer_of(pid).unwrap();
    // After work the writer looks again every 20 ms; a tenth of a second later it sleeps for good.
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
    assert!(ctl_output(pid, &["status"]).contains("state: recording"));
    assert!(sleeps_of(&writer) > before);
    ended(running);
}

fn marker_time(record: &Record) -> Option<u64> {
    match record {
        Record::Marker { time_ns, .. } => Some(*time_ns),
        _ => None,
    }
}

/// A command is obeyed before `ctl` returns, by a sleeping writer and by a busy one: its moment
/// lies between the clock before and the clock after.
#[test]
fn a_command_is_obeyed_before_ctl_returns() {
    for mode in ["idle", "steady"] {
        let mut running = started(service(mode).interval(1).env("HEAPPROF_CONTROL", "1"));
        running.until("a writer", |running| writer_of(running.pid()).is_some());
        let pid = running.pid();
        let mut asked = Vec::new();
        for n in 0..10 {
            let before = now_ns();
            ctl_output(pid, &["mark", &format!("number {n}")]);
            asked.push((before, now_ns()));
        }
        let log = ended(running).log().whole();
        let start_ns = log.start().monotonic_ns;
        let times: Vec<u64> = log.records.iter().filter_map(marker_time).collect();
        assert_eq!(times.len(), asked.len(), "{mode}");
        for (time, (before, after)) in times.into_iter().zip(asked) {
            // Stored to the microsecond, by a clock that is right to half a microsecond.
            let time = start_ns + time;
            assert!(
                (before - 2_000..=after + 2_000).contains(&time),
                "{mode}: {time} not in {before} to {after}"
            );
        }
    }
}

/// A process leaves nothing in the system, in whatever way it ends.
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

/// The commands wait for each other.
#[test]
fn commands_from_many_at_once_are_all_obeyed() {
    let mut running = started(service("idle").interval(1));
    running.until("a sample", |running| samples_so_far(running, 23002) == 1);
    let pid = running.pid();
    let names: Vec<String> = (0..12).map(|n| format!("number {n:02}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || ctl_output(pid, &["mark", name]));
        }
    });
    let log = ended(running).log().whole();
    let mut found = log.markers();
    found.sort_unstable();
    assert_eq!(found, names);
}

/// For a process whose main thread has ended, the kernel shows the mappings only under the other
/// threads.
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
    assert!(ctl_output(pid, &["status"]).contains("t.heaplog"));
    ctl_output(pid, &["mark", "here"]);
    std::fs::write(told_by, "").unwrap();
    let ran = running.wait().well();
    let log = ran.log().whole();
    assert!(!log.blocks_of(50001).is_empty());
    // After that it is gone.
    assert!(refused(pid, &["status"]).contains("no such process"));
}

/// Ids of the segments that a process made and left, by the process's id.
fn left_by(pids: &[u32]) -> Vec<i32> {
    let list = fs::read_to_string("/proc/sysvipc/shm").expect("the kernel's list of segments");
    // key shmid perms size cpid lpid nattch …
    let left = list.lines().skip(1).filter_map(|line| {
        let numbers: Vec<i64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let (id, maker) = (*numbers.get(1)?, *numbers.get(4)?);
        pids.iter()
            .any(|&pid| i64::from(pid) == maker)
            .then_some(id as i32)
    });
    left.collect()
}

/// A process that is killed before the mark for removal is set leaves a segment, which the next
/// process removes.
#[test]
fn a_segment_that_a_killed_process_left_goes_with_the_next_process() {
    let killed = || {
        let run = Run::tool(heapprof_tests::Build::get().fixture("killed_at_removal"));
        let run = run.arg(heapprof_tests::Build::get().library());
        let run = run.arg(heapprof_tests::Build::get().fixture("idle"));
        let ran = run.arg("0").interval(1).prefix("t").run();
        assert_eq!(ran.code(), 128 + libc::SIGSYS, "{}", ran.stderr);
        ran.pid
    };
    let pids: Vec<u32> = (0..3).map(|_| killed()).collect();
    // A younger segment may belong to a process that is about to mark it.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let ran = Run::fixture("idle").arg("0").interval(1).prefix("t").run();
    assert_eq!(ran.well().stderr, "");
    let left = left_by(&pids);
    for &id in &left {
        // SAFETY: numbers only; a test that fails leaves nothing either.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
    assert_eq!(left, [0; 0], "made by {pids:?}");
}
