//! Processes that make processes: each has files of its own, nobody overwrites another's, and nothing
//! is ever deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;

use heapprof_format::EndReason;
use heapprof_tests::{Build, Finished, Log, Run};

/// All logs of the run's folder, by name, each readable to its end.
#[track_caller]
fn logs(ran: &Finished) -> BTreeMap<String, Log> {
    let read = |name: String| {
        let log = Log::read(&ran.folder().join(&name)).whole();
        (name, log)
    };
    ran.files_ending(".heaplog").into_iter().map(read).collect()
}

#[track_caller]
fn pid_of(ran: &Finished, who: &str) -> u32 {
    let pids = ran.claims().pids;
    let found = pids.iter().find(|(name, _)| name == who);
    found.unwrap_or_else(|| panic!("no {who} in {pids:?}")).1
}

fn sizes(log: &Log) -> BTreeSet<u64> {
    log.blocks().iter().map(|block| block.size).collect()
}

#[test]
fn fork_child() {
    for way in ["exit", "_exit", "return"] {
        let ran = Run::fixture("fork_child")
            .arg(way)
            .interval(1)
            .prefix("t")
            .run()
            .well();
        let (parent, child) = (pid_of(&ran, "parent"), pid_of(&ran, "child"));
        let expected = [
            "t.0001.heap".to_owned(),
            "t.heaplog".to_owned(),
            format!("t_{child}.0001.heap"),
            format!("t_{child}.heaplog"),
        ];
        let found: BTreeSet<_> = ran.files().into_iter().collect();
        assert_eq!(found, BTreeSet::from(expected), "{way}");
        assert_eq!(ran.stderr, "", "{way}");

        let logs = logs(&ran);
        let of_parent = &logs["t.heaplog"];
        assert_eq!(
            (of_parent.start().pid, of_parent.start().forked_from),
            (parent, 0)
        );
        assert_eq!(of_parent.end(), Some(EndReason::Exit), "{way}");
        let of_child = &logs[&format!("t_{child}.heaplog")];
        assert_eq!(
            (of_child.start().pid, of_child.start().forked_from),
            (child, parent)
        );
        assert_eq!(of_child.end(), Some(EndReason::Exit), "{way}");

        let (in_parent, in_child) = (sizes(of_parent), sizes(of_child));
        assert!(
            in_parent.is_superset(&BTreeSet::from([15001, 15003])),
            "{way}: {in_parent:?}"
        );
        assert!(!in_parent.contains(&15002), "{way}");
        assert!(
            in_child.contains(&15002) && !in_child.contains(&15003),
            "{way}: {in_child:?}"
        );

        for (size, pattern) in &ran.claims().stacks {
            for log in logs.values() {
                for block in log.blocks_of(*size) {
                    let functions = &log.named().stacks[block.stack];
                    assert!(
                        pattern.matches(functions),
                        "{way} {size}: {}",
                        log.named().shown(block.stack)
                    );
                }
            }
        }
    }
}

#[test]
fn exec_chain() {
    let ran = Run::fixture("exec_chain")
        .arg("4")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let pid = ran.pid;
    assert_eq!(ran.stderr, "");
    let logs = logs(&ran);
    let names: BTreeSet<String> = logs.keys().cloned().collect();
    let expected = [
        "t".to_owned(),
        format!("t_{pid}"),
        format!("t_{pid}_2"),
        format!("t_{pid}_3"),
        format!("t_{pid}_4"),
    ];
    assert_eq!(
        names,
        expected
            .iter()
            .map(|base| format!("{base}.heaplog"))
            .collect()
    );
    for (image, base) in (0..=4).rev().zip(&expected) {
        let log = &logs[&format!("{base}.heaplog")];
        let own: Vec<u64> = sizes(log)
            .into_iter()
            .filter(|size| (16000..=16004).contains(size))
            .collect();
        // An exec cuts the log off: what was recorded right before may be missing, in all images but the last.
        let whole = image == 0;
        assert!(
            own.iter().all(|&size| size == 16000 + image),
            "{base}: {own:?}"
        );
        assert!(!whole || own.len() == 1, "{base}: {own:?}");
        assert_eq!(log.start().pid, pid);
        assert_eq!(log.start().forked_from, 0);
    }
}

/// As the fixture promises it: each image's own block is in its profile.
#[test]
fn exec_chain_keeps_the_block_of_every_image() {
    let ran = Run::fixture("exec_chain")
        .arg("4")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let all: BTreeSet<u64> = logs(&ran).values().flat_map(sizes).collect();
    for size in 16000..=16004 {
        assert!(
            all.contains(&size),
            "the block of {size} bytes is in no log"
        );
    }
}

#[test]
fn fork_while_allocating() {
    for interval in [1, 4096] {
        let ran = Run::fixture("fork_while_allocating")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        let claims = ran.claims();
        assert_eq!(claims.ok, ["children"]);
        assert!(claims.failures.is_empty());
        assert_eq!(ran.stderr, "", "{interval}");
        let logs = logs(&ran);
        let mut pids = BTreeSet::new();
        for (name, log) in &logs {
            let start = log.start();
            let expected = if start.pid == ran.pid {
                "t.heaplog".into()
            } else {
                format!("t_{}.heaplog", start.pid)
            };
            assert_eq!(*name, expected);
            assert_eq!(
                start.forked_from,
                if start.pid == ran.pid { 0 } else { ran.pid }
            );
            assert_eq!(log.end(), Some(EndReason::Exit), "{name}");
            pids.insert(start.pid);
            if interval == 1 && start.pid != ran.pid {
                // Its own thousand, all of them freed, and nothing that its parent's threads did meanwhile.
                let blocks = log.blocks();
                let own: Vec<_> = blocks
                    .iter()
                    .filter(|b| (16..1016).contains(&b.size))
                    .collect();
                assert!(
                    own.len() >= 1000 && own.iter().all(|b| !b.in_use),
                    "{name}: {}",
                    own.len()
                );
                assert!(blocks.len() < 1100, "{name}: {}", blocks.len());
            }
        }
        assert_eq!(pids.len(), logs.len(), "each process has one log");
        if interval == 1 {
            assert_eq!(logs.len(), 51, "the parent and 50 children");
        }
        let dumps: BTreeSet<_> = ran.files_ending(".heap").into_iter().collect();
        for name in logs.keys() {
            let dump = name.replace(".heaplog", ".0001.heap");
            assert!(dumps.contains(&dump), "{dump}");
        }
        assert_eq!(ran.files_ending(".unfinished"), [""; 0]);
    }
}

#[test]
fn a_re_run_keeps_all_files_and_says_so_once() {
    let first = Run::fixture("idle")
        .arg("0")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    assert_eq!(first.stderr, "");
    let before: Vec<_> = first
        .files()
        .into_iter()
        .map(|name| (first.bytes(&name), name))
        .collect();
    assert_eq!(before.len(), 2);

    let second = Run::fixture("idle")
        .arg("0")
        .interval(1)
        .in_folder_of(&first)
        .prefix("t")
        .run()
        .well();
    let said = second.said();
    assert_eq!(said.len(), 1, "{}", second.stderr);
    assert_eq!(second.stderr.lines().count(), 1);
    let new = format!("t_{}", second.pid);
    assert!(
        said[0].contains("HEAPPROFILE") && said[0].contains(&new),
        "{said:?}"
    );
    for (bytes, name) in &before {
        assert!(second.bytes(name) == *bytes, "{name} was changed");
    }
    let expected = [
        "t.0001.heap".into(),
        "t.heaplog".into(),
        format!("{new}.0001.heap"),
        format!("{new}.heaplog"),
    ];
    let found: BTreeSet<_> = second.files().into_iter().collect();
    assert_eq!(found, BTreeSet::from(expected));
    assert_eq!(
        Log::read(&second.folder().join(format!("{new}.heaplog")))
            .whole()
            .blocks_of(19001)
            .len(),
        1
    );
}

#[test]
fn somebody_elses_dump_is_not_overwritten() {
    let run = Run::fixture("idle").arg("0").interval(1).prefix("t");
    fs::write(run.folder().join("t.0001.heap"), "mine").unwrap();
    let ran = run.run().well();
    assert_eq!(ran.bytes("t.0001.heap"), b"mine");
    assert_eq!(ran.said().len(), 1, "{}", ran.stderr);
    assert_eq!(ran.log().whole().blocks_of(19001).len(), 1);
    assert_eq!(ran.dumps().len(), 2);
    // One that appears while the program runs is left alone as well.
    let mut running = Run::fixture("idle")
        .arg("0.3")
        .interval(1)
        .prefix("t")
        .start();
    running.until("its output", |running| {
        running.stdout_so_far().contains("stack")
    });
    fs::write(running.folder().join("t.0001.heap"), "mine").unwrap();
    let ran = running.wait().well();
    assert_eq!(ran.bytes("t.0001.heap"), b"mine");
    assert_eq!(ran.files(), ["t.0001.heap", "t.0002.heap", "t.heaplog"]);
}

#[test]
fn files_are_for_their_owner_only() {
    // Segments of a log with a bound; files of a forked child. The mask takes nothing away.
    for (fixture, a_file) in [("rotates", "t.0001.heap"), ("fork_child", "t_")] {
        let ran = Run::tool("/bin/sh")
            .args(["-c", "umask 0; LD_PRELOAD=$1 exec \"$0\""])
            .arg(Build::get().fixture(fixture))
            .arg(&Build::get().library)
            .interval(1)
            .prefix("t")
            .env("HEAPPROF_MAX_LOG", "64K")
            .run()
            .well();
        let files = ran.files();
        // At least two dumps and the log: its other segment may just have gone, for its bound.
        assert!(files.len() >= 3, "{fixture}: {files:?}");
        assert!(files.iter().any(|name| name.starts_with(a_file)));
        for name in files {
            let mode = fs::metadata(ran.folder().join(&name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}

/// The run of a program whose children's dumps lack nothing. On a machine that is busy with other things the
/// parent's writer may not stop in time for a fork; the dump says so, and another run is made.
#[track_caller]
fn whole_inheritance(run: impl Fn() -> Finished) -> Finished {
    for _ in 0..5 {
        let ran = run();
        let dumps = ran.files_ending(".heap").into_iter();
        let lacking = dumps
            .filter(|name| String::from_utf8_lossy(&ran.bytes(name)).contains("is missing here"));
        if lacking.count() == 0 {
            return ran;
        }
    }
    panic!("five times the parent's writer did not stop for the fork");
}

/// In the child the thread that forked is the main one. Its function returns, and ours is not to keep the process alive.
#[test]
fn fork_in_thread() {
    for interval in [1, 65_536] {
        let ran = Run::fixture("fork_in_thread")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        let child = pid_of(&ran, "child");
        // The first is written by exit, which our thread calls there.
        assert_eq!(ran.claims().ok, ["buffered", "child"], "{}", ran.stdout);
        if interval == 1 {
            let log = &logs(&ran)[&format!("t_{child}.heaplog")];
            assert_eq!(log.end(), Some(EndReason::Exit));
            assert_eq!(log.blocks_of(35001).len(), 1);
        }
    }
}

/// The child's log begins at the fork; the reader takes what it inherited from its parent's log. The child's dump
/// has it by itself.
#[test]
fn fork_inherits() {
    let ran = whole_inheritance(|| {
        Run::fixture("fork_inherits")
            .interval(1)
            .prefix("t")
            .run()
            .well()
    });
    let child = pid_of(&ran, "child");
    let path = ran.folder().join(format!("t_{child}.heaplog"));
    let counted = |path: &std::path::Path| -> BTreeMap<u64, (u64, u64)> {
        let profile = heapprof_symbolizer::Input::open(path)
            .and_then(|input| input.read(|_| ()))
            .unwrap_or_else(|error| panic!("{error}"));
        let rows = profile.rows.iter().map(|row| {
            let (all, live) = (&row.totals.allocated, &row.totals.in_use);
            (all.bytes() / all.objects(), (all.objects(), live.objects()))
        });
        rows.collect()
    };
    let expected: BTreeMap<u64, (u64, u64)> = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("count "))
        .map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            (numbers[0], (numbers[1], numbers[2]))
        })
        .collect();
    assert_eq!(expected.len(), 2, "{}", ran.stdout);
    let found = counted(&path);
    for (size, numbers) in &expected {
        assert_eq!(found.get(size), Some(numbers), "{size}: {found:?}");
    }
    // The child's own dump has it all by itself.
    let log = heapprof_symbolizer::Input::open(&path)
        .and_then(|input| input.read(|_| ()))
        .unwrap();
    let dump = ran.named(&format!("t_{child}.0001.heap"));
    assert_eq!(dump.profile.numbers(), log.numbers());

    // Without the parent's log the child's own is still there, and says what is missing.
    fs::rename(ran.folder().join("t.heaplog"), ran.folder().join("gone")).unwrap();
    let found = counted(&path);
    assert_eq!(found.get(&21002), Some(&(7, 7)), "{found:?}");
    assert_eq!(found.get(&21001), None, "{found:?}");
    let profile = heapprof_symbolizer::Input::open(&path)
        .unwrap()
        .read(|_| ());
    let markers = profile.unwrap().run.markers;
    assert!(
        markers
            .iter()
            .any(|marker| marker.name.contains("is not here")),
        "{markers:?}"
    );
}

/// Allocates, and becomes itself by the function that its first argument names; then allocates something else.
const BECOMES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
void *kept;
int main(int argc, char **argv)
{
    char *way = argv[1], *self = "/proc/self/exe", *args[] = {argv[0], "end", NULL};
    if (strcmp(way, "end") == 0) {
        kept = malloc(20002);
        return 5;
    }
    kept = malloc(20001);
    int fd = open(self, O_RDONLY | O_CLOEXEC);
    if (strcmp(way, "execl") == 0) execl(self, argv[0], "end", (char *)NULL);
    if (strcmp(way, "execlp") == 0) execlp(self, argv[0], "end", (char *)NULL);
    if (strcmp(way, "execle") == 0) execle(self, argv[0], "end", (char *)NULL, environ);
    if (strcmp(way, "execv") == 0) execv(self, args);
    if (strcmp(way, "execve") == 0) execve(self, args, environ);
    if (strcmp(way, "execvp") == 0) execvp(self, args);
    if (strcmp(way, "execvpe") == 0) execvpe(self, args, environ);
    if (strcmp(way, "fexecve") == 0) fexecve(fd, args, environ);
    if (strcmp(way, "execveat") == 0) execveat(AT_FDCWD, self, args, environ, 0);
    return 1;
}
"#;

/// Nothing is missing of what came before, whichever function it was; and there is no dump, which the log has instead.
#[test]
fn every_exec_function() {
    for way in [
        "execl", "execlp", "execle", "execv", "execve", "execvp", "execvpe", "fexecve", "execveat",
    ] {
        let run = Run::compiled("becomes", BECOMES, &[]);
        let ran = run.arg(way).interval(1).prefix("t").run();
        assert_eq!((ran.code(), &*ran.stderr), (5, ""), "{way}");
        let read = |name: &String| Log::read(&ran.folder().join(name)).whole();
        let logs: Vec<Log> = ran.files_ending(".heaplog").iter().map(read).collect();
        let end_of = |size| {
            let mut of_image = logs.iter().filter(|log| !log.blocks_of(size).is_empty());
            (of_image.next().and_then(Log::end), of_image.count())
        };
        assert_eq!(end_of(20001), (Some(EndReason::Exec), 0), "{way}");
        assert_eq!(end_of(20002), (Some(EndReason::Exit), 0), "{way}");
        assert_eq!(ran.files_ending(".heap").len(), 1, "{way}");
    }
}

/// daemon(3): the process between ends inside libc, at once. What it had in use is the daemon's, and in its log only.
#[test]
fn what_a_daemon_had_before_is_known() {
    const SOURCE: &str = r#"
        #define _DEFAULT_SOURCE
        #include <stdlib.h>
        #include <unistd.h>
        void *kept[11];
        int main(void)
        {
            int ends[2];
            if (pipe(ends)) return 2;
            if (fork() == 0) {
                for (int i = 0; i < 10; i++) kept[i] = malloc(20001);
                if (daemon(1, 1)) return 3;
                kept[10] = malloc(20002);
                return 0;
            }
            char byte;
            close(ends[1]);
            return read(ends[0], &byte, 1) == 0 ? 0 : 4;
        }
    "#;
    let run = Run::compiled("daemon", SOURCE, &[]);
    let ran = run.interval(1).prefix("t").run().well();
    let logs = logs(&ran);
    let of = |size| {
        logs.values()
            .find(|log| sizes(log).contains(&size))
            .unwrap()
    };
    assert_eq!(of(20001).blocks_of(20001).len(), 10);
    assert_eq!(of(20001).end(), Some(EndReason::Exit));
    assert_eq!(of(20002).start().forked_from, of(20001).start().pid);
}

/// Keeps a thousand blocks, and forks children while three threads allocate; each child keeps one block more.
const FORKS_WHILE_OTHERS_ALLOCATE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
enum { KEPT = 1000, CHILDREN = 20 };
void *kept[KEPT + 1];
static void *allocates_for_ever(void *unused)
{
    for (size_t size = 16;; size = size < 4000 ? size + 16 : 16) {
        void *volatile block = malloc(size);
        free(block);
    }
    return unused;
}
int main(void)
{
    int bad = 0, status;
    pthread_t thread;
    for (int i = 0; i < KEPT; i++) kept[i] = malloc(30011);
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, allocates_for_ever, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            kept[KEPT] = malloc(30012);
            exit(0);
        }
        waitpid(child, &status, 0);
        bad += status != 0;
        printf("child %d\n", (int)child);
        fflush(stdout);
    }
    return bad ? 1 : 6;
}
"#;

/// A child's account begins with what its parent had in use, though other threads of its parent were at work: by the parent's log, and in
/// the child's own dump, which says so where the parent was too busy for it.
#[test]
fn a_child_of_a_busy_parent_starts_from_what_was_in_use() {
    let run = Run::compiled("busy_parent", FORKS_WHILE_OTHERS_ALLOCATE, &["-pthread"]);
    let ran = run.interval(1).prefix("t").run();
    assert_eq!((ran.code(), &*ran.stderr), (6, ""));
    let children = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("child "));
    let mut with_all = 0;
    let mut count = 0;
    for child in children {
        count += 1;
        let path = ran.folder().join(format!("t_{child}.heaplog"));
        let profile = heapprof_symbolizer::Input::open(&path)
            .and_then(|input| input.read(|_| ()))
            .unwrap_or_else(|error| panic!("{error}"));
        let in_use = |size: u64| -> u64 {
            let of_size = profile.rows.iter().filter(|row| {
                let all = &row.totals.allocated;
                all.objects() > 0 && all.bytes() / all.objects() == size
            });
            of_size.map(|row| row.totals.in_use.objects()).sum()
        };
        assert_eq!((in_use(30011), in_use(30012)), (1000, 1), "child {child}");
        let dump = ran.bytes(&format!("t_{child}.0001.heap"));
        let text = String::from_utf8_lossy(&dump).into_owned();
        let has_all = text
            .lines()
            .any(|line| line.trim_start().starts_with("1000: 30011000 ["));
        let says_so = text.contains("inherited: what was in use at the fork is missing here");
        assert!(has_all != says_so, "child {child}: {has_all} {says_so}");
        with_all += u32::from(has_all);
    }
    assert_eq!(count, 20);
    assert!(with_all > 0, "no dump of any child has what was inherited");
    println!("{with_all} of {count}");
}

/// Keeps a thousand blocks and forks; the child keeps one block more, and asks for a dump.
const CHILD_ASKS_FOR_A_DUMP: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
enum { KEPT = 1000 };
void *kept[KEPT + 1];
void HeapProfilerDump(const char *reason) __attribute__((weak));
int main(void)
{
    int status;
    for (int i = 0; i < KEPT; i++) kept[i] = malloc(30011);
    pid_t child = fork();
    if (child == 0) {
        kept[KEPT] = malloc(30012);
        HeapProfilerDump("asked");
        exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", (int)child);
    return status ? 1 : 6;
}
"#;

/// A dump that somebody asks for in a child says that it lacks what was in use at the fork, where no account was kept of it; with a bound
/// for the log there is one, and the dump has it.
#[test]
fn a_dump_asked_for_in_a_child() {
    for bound in [None, Some("64M")] {
        let mut with_all = 0;
        for _ in 0..5 {
            let mut run = Run::compiled("asks", CHILD_ASKS_FOR_A_DUMP, &[]).interval(1);
            if let Some(bound) = bound {
                run = run.env("HEAPPROF_MAX_LOG", bound);
            }
            let ran = run.run();
            assert_eq!((ran.code(), &*ran.stderr), (6, ""));
            let [dump] = &ran.files_ending(".heap")[..] else {
                panic!("{:?}", ran.files());
            };
            let text = String::from_utf8_lossy(&ran.bytes(dump)).into_owned();
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let has = |line: &str| text.lines().any(|it| words(it).starts_with(line));
            let says_so = text.contains("inherited: what was in use at the fork is missing here");
            assert!(has("1: 30012 [ 1: 30012]"), "{text}");
            assert!(has("1000: 30011000 [") != says_so, "{bound:?}: {text}");
            with_all += u32::from(!says_so);
        }
        assert_eq!(with_all > 0, bound.is_some(), "{bound:?}: {with_all}");
    }
}

/// Holds two large blocks and forks; the child frees one before it allocates anything, and the other when it has allocated for a while.
const CHILD_FREES_FIRST: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    int status;
    void *one = malloc(3000001), *other = malloc(3000002);
    pid_t child = fork();
    if (child == 0) {
        free(one);
        for (int i = 0; i < 16000; i++) {
            void *volatile block = malloc(1000);
            free(block);
        }
        free(other);
        exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", (int)child);
    free(one);
    free(other);
    return status ? 1 : 6;
}
"#;

/// What a child frees before it has a session is in its log, also where that begins without a sample, because somebody is listened to.
#[test]
fn what_a_child_frees_first_is_not_lost() {
    for control in ["0", "1"] {
        let ran = Run::compiled("frees_first", CHILD_FREES_FIRST, &[])
            .interval(1 << 40)
            .env("HEAPPROF_RECORD_OVER", "1000000")
            .env("HEAPPROF_CONTROL", control)
            .run();
        assert_eq!((ran.code(), &*ran.stderr), (6, ""));
        for log in ran.files_ending(".heaplog") {
            let profile = heapprof_symbolizer::Input::open(&ran.folder().join(&log))
                .and_then(|input| input.read(|_| ()))
                .unwrap_or_else(|error| panic!("{error}"));
            let totals = profile.totals();
            assert_eq!(totals.allocated.objects(), 2, "{control}: {log}");
            assert_eq!(totals.in_use.objects(), 0, "{control}: {log}");
        }
        let logs = ran.files_ending(".heaplog").len();
        assert_eq!(logs, if control == "1" { 2 } else { 1 });
    }
}

/// Goes elsewhere before it allocates, as daemons do.
const CHILD_GOES_ELSEWHERE: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
void *kept;
int main(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (chdir("/proc") != 0) _exit(1);
        kept = malloc(30012);
        exit(0);
    }
    waitpid(child, &status, 0);
    kept = malloc(30011);
    return status ? 1 : 6;
}
"#;

/// Files lie where the program started, those of its children too, wherever they are by then.
#[test]
fn a_child_that_went_elsewhere_records_where_the_program_began() {
    for prefix in [None, Some("t")] {
        let mut run = Run::compiled("goes", CHILD_GOES_ELSEWHERE, &[]).interval(1);
        if let Some(prefix) = prefix {
            run = run.env("HEAPPROFILE", prefix); // relative
        }
        let ran = run.run();
        assert_eq!((ran.code(), &*ran.stderr), (6, ""));
        let logs = logs(&ran);
        assert_eq!(logs.len(), 2, "{:?}", ran.files());
        assert!(logs.values().any(|log| sizes(log).contains(&30012)));
    }
}

/// A wrapper: it becomes another program before anything of it was sampled.
#[test]
fn an_exec_before_the_first_sample_is_told() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <unistd.h>
        int main(int argc, char **argv)
        {
            execv("/nowhere/at/all", argv);
            execv("/nowhere/else", argv);
            if (argc > 1) free(malloc(60001));
            execl("/bin/true", "true", NULL);
            return 1;
        }
    "#;
    for (samples, sampled) in [(&[][..], 0), (&["samples"], 1)] {
        let run = Run::compiled("wrapper", SOURCE, &["-w", "-fno-builtin"]);
        let ran = run
            .args(samples)
            .env("HEAPPROF_RECORD_OVER", "60001")
            .run()
            .well();
        let names = ran.files_ending(".heaplog");
        assert_eq!(names.len(), 2, "{names:?}");
        for name in names {
            let log = Log::read(&ran.folder().join(&name)).whole();
            let (end, blocks) = match name.contains("wrapper") {
                true => (EndReason::Exec, sampled),
                false => (EndReason::Exit, 0),
            };
            assert_eq!(log.end(), Some(end), "{name}");
            assert_eq!(log.blocks_of(60001).len(), blocks, "{name}");
        }
    }
}

/// A forked child frees what it has from its parent, and allocates: its first dump falls due before these frees were taken up.
#[test]
fn a_childs_dumps_have_all_that_it_freed() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        void *kept[2000], *own[200];
        int main(void)
        {
            for (int i = 0; i < 2000; i++) kept[i] = malloc(1000);
            usleep(150000);
            if (fork() == 0) {
                own[0] = malloc(10);
                for (int i = 0; i < 200; i++) own[i] = malloc(1000);
                for (int i = 0; i < 1000; i++) free(kept[i]);
                usleep(200000);
                return 0;
            }
            return wait(NULL) < 0;
        }
    "#;
    let ran = Run::compiled("forkdump", SOURCE, &["-fno-builtin"])
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "100000")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let dumps = ran.files_ending(".heap");
    let of_child = dumps.iter().filter(|name| name.starts_with("t_"));
    let text = |name: &String| std::fs::read_to_string(ran.folder().join(name)).unwrap();
    let last = text(of_child.max().expect("dumps of the child"));
    let header = last.lines().next().unwrap();
    assert!(header.contains("[  2201:  2200010]"), "{header}");
}
