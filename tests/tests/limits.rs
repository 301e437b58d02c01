//! Limits and fences: memory, file sizes, descriptors, threads, full disks, system calls, rights. The program does
//! what it does without us; what we cannot do any more is one line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use heapprof_format::{Counter, EndReason};
use heapprof_tests::{Build, Finished, Log, Run, repository};

/// The run of a fixture by a shell that first does something: `before` is a part of its script.
fn after(before: &str, fixture: &str, args: &[&str]) -> Run {
    Run::tool("/bin/sh")
        .args(["-c", &format!("{before}\nLD_PRELOAD=$1 exec \"$0\" $2")])
        .arg(Build::get().fixture(fixture))
        .arg(&Build::get().library)
        .arg(args.join(" "))
        .interval(1)
        .prefix("t")
}

/// Whether commands may be run in a mount namespace of their own. If not, that is said, and the test shows nothing.
fn may_mount() -> bool {
    let probe = Run::tool("unshare")
        .args(["-rm", "sh", "-c", "mount -t tmpfs none /mnt"])
        .run();
    if !probe.status.success() {
        println!(
            "skipped: no mount namespace to be had here: {}",
            probe.stderr
        );
    }
    probe.status.success()
}

fn is_root() -> bool {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("skipped: only root can give up being root");
    }
    root
}

/// One line of ours that says all these words.
#[track_caller]
fn assert_said(ran: &Finished, words: &[&str]) {
    let about: Vec<&str> = ran
        .said()
        .into_iter()
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .collect();
    assert_eq!(about.len(), 1, "{words:?} in: {}", ran.stderr);
}

/// From far too little to enough: where the program runs without the library it runs with it, recorded or not. (A
/// narrow band is the loader's: there the library fits, and then libc does not.)
#[test]
fn address_space() {
    let mut recorded = 0;
    // Closely where one step of ours after the other finds room or does not.
    let close = (16_000..26_000).step_by(125);
    let limits = [2500, 3500, 8000, 9000, 10_000, 12_000, 14_000];
    for kb in limits
        .into_iter()
        .chain(close)
        .chain([28_000, 40_000, 100_000])
    {
        let ran = after(&format!("ulimit -v {kb}"), "exit_ways", &["exit"]).run();
        assert_eq!(ran.code(), 3, "{kb} KB: {}", ran.stderr);
        assert!(
            ran.stdout.contains("stack 17001"),
            "{kb} KB: {}",
            ran.stdout
        );
        assert!(ran.stderr.lines().count() <= 1, "{kb} KB: {}", ran.stderr);
        let logs = ran.files_ending(".heaplog");
        let whole = logs.iter().any(|name| {
            let log = Log::read(&ran.folder().join(name)).whole();
            log.end() == Some(EndReason::Exit) && log.blocks_of(17001).len() == 1
        });
        // The loader's own line ends in "ignored."
        assert!(
            whole != (ran.stderr.lines().count() == 1),
            "{kb} KB: {}",
            ran.stderr
        );
        recorded += usize::from(whole);
    }
    assert!(recorded >= 3, "{recorded} limits leave room for a profile");
}

/// Threads under a limit: jemalloc 5.3 crashes in a thread whose own arena finds no room, so they share one.
#[test]
fn address_space_and_threads() {
    for kb in [80_000, 100_000, 150_000, 300_000] {
        let ran = after(&format!("ulimit -v {kb}"), "churn", &["3", "20000"]).run();
        assert_eq!(ran.code(), 0, "{kb} KB: {} {}", ran.status, ran.stderr);
        assert!(ran.log().torn.is_none(), "{kb} KB");
    }
}

/// In the middle of its life a program uses up what there is; it knows how to go on.
#[test]
fn until_no_memory() {
    for interval in [1, 4096, 524_288] {
        for mb in ["4", "64"] {
            let ran = Run::fixture("until_no_memory")
                .arg(mb)
                .interval(interval)
                .prefix("t")
                .run()
                .well();
            assert_eq!(ran.claims().ok, ["enomem"], "{interval}");
            assert!(
                ran.stderr.lines().count() <= 2,
                "{interval}: {}",
                ran.stderr
            );
            let log = ran.log();
            assert!(log.torn.is_none(), "{interval}: {:?}", log.torn);
            if log.end() != Some(EndReason::Exit) {
                assert_said(&ran, &["memory"]);
            }
        }
    }
}

/// SIGXFSZ, which the kernel sends with the error, would end the program.
#[test]
fn file_size() {
    // In units of 512 bytes: nothing at all, a start without an end, a piece.
    for blocks in [0, 1, 2, 1200] {
        for fixture in ["exit_ways", "churn"] {
            let args: &[&str] = match fixture {
                "churn" => &["2", "100000"],
                _ => &["exit"],
            };
            // Its output must not meet the limit itself.
            let ran = after(
                &format!("ulimit -f {blocks}; exec >/dev/null 2>&1"),
                fixture,
                args,
            )
            .run();
            let alone = if fixture == "churn" { 0 } else { 3 };
            assert_eq!(
                ran.code(),
                alone,
                "{fixture} with {blocks} blocks: {}",
                ran.status
            );
            if blocks == 1200 && fixture == "churn" {
                let log = ran.log();
                assert!(log.torn.is_none(), "{:?}", log.torn);
                assert!(log.blocks().len() > 100);
            }
        }
    }
}

/// Uses up its descriptors, as a server under load does, and gives them back, or keeps them, or may have none from then on.
const WITHOUT_DESCRIPTORS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
void *kept[100];
int main(int argc, char **argv)
{
    const char *then = argc > 1 ? argv[1] : "keeps them";
    rlim_t most = then[0] == 'm' ? 0 : 32;
    struct rlimit few = {most, most};
    int last = -1, fd;
    kept[0] = malloc(20001);
    setrlimit(RLIMIT_NOFILE, &few);
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    for (int i = 1; i < 60; i++) {
        kept[i] = malloc(20002);
        usleep(5000);
    }
    if (then[0] == 'g')
        for (fd = 3; fd <= last; fd++) close(fd);
    kept[60] = malloc(20003);
    usleep(100000);
    return 5;
}
"#;

/// A shortage of descriptors is the program's, not ours; a process that may have none has a log that ends, and a line.
#[test]
fn descriptors() {
    for then in ["gives them back", "keeps them"] {
        let ran = Run::compiled("without_descriptors", WITHOUT_DESCRIPTORS, &[])
            .arg(then)
            .interval(1)
            .prefix("t")
            .run();
        assert_eq!((ran.code(), ran.stderr.as_str()), (5, ""), "{then}");
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit), "{then}");
        for (size, count) in [(20001, 1), (20002, 59), (20003, 1)] {
            assert_eq!(log.blocks_of(size).len(), count, "{then}: {size}");
        }
    }

    // The line is said at the end, by the thread that ends the process: ours may have no descriptor for it either. On a machine that is busy with other things the end may not wait long enough for the line.
    let said = (0..5).any(|_| {
        let ran = Run::compiled("without_descriptors", WITHOUT_DESCRIPTORS, &[])
            .arg("may have none")
            .interval(1)
            .prefix("t")
            .run();
        assert_eq!(ran.code(), 5);
        assert!(ran.log().torn.is_none());
        let about_log = |line: &&str| line.contains("t.heaplog") && line.contains("too many open");
        ran.said().iter().filter(|line| about_log(line)).count() == 1
    });
    assert!(said, "nobody was told that the log ends");
}

/// None from the start: the loader cannot open the library, or we cannot open a file.
#[test]
fn few_descriptors_from_the_start() {
    for most in 3..=8 {
        // Those that the shell inherits from whoever runs this are closed first.
        let close = (3..30)
            .map(|fd| format!("exec {fd}>&-;"))
            .collect::<String>();
        let alone = Run::tool("/bin/sh")
            .args(["-c", &format!("{close} ulimit -n {most}; exec \"$0\" exit")])
            .arg(Build::get().fixture("exit_ways"))
            .run();
        let ran = after(&format!("{close} ulimit -n {most}"), "exit_ways", &["exit"]).run();
        assert_eq!(ran.code(), alone.code(), "{most}: {}", ran.stderr);
    }
}

#[test]
fn no_threads_to_be_had() {
    let ran = Run::fixture("fenced")
        .arg("nothreads")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    if ran.stdout.starts_with("skip") {
        return println!("{}", ran.stdout);
    }
    assert_eq!(ran.claims().ok, ["fenced"]);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert_said(&ran, &["cannot start a thread", "nothing is recorded"]);
    assert_eq!(ran.log().whole().end(), Some(EndReason::GaveUp));
}

/// The system calls that docs/hosts.md says we need, after the words that begin their list.
fn documented_calls() -> Vec<String> {
    let text = fs::read_to_string(repository().join("docs/hosts.md")).unwrap();
    let row = text
        .lines()
        .find(|line| line.starts_with("| seccomp "))
        .expect("a row on seccomp");
    let list = row.split_once("needs").expect("what is needed").1;
    let list = list.split_once('|').unwrap().0;
    let calls: Vec<String> = list
        .split('`')
        .skip(1)
        .step_by(2)
        .map(String::from)
        .collect();
    assert!(calls.len() > 10, "{calls:?}");
    calls
}

/// A filter that kills for any other call: the documented list is enough, dumps included, also for a first sample behind it.
#[test]
fn seccomp_with_the_documented_calls() {
    for interval in [1, 4096, 100_000] {
        let ran = Run::fixture("fenced")
            .arg("kill")
            .args(documented_calls())
            .interval(interval)
            .prefix("t")
            .run();
        if ran.stdout.starts_with("skip") {
            return println!("{}", ran.stdout);
        }
        let ran = ran.well();
        assert_eq!(ran.claims().ok, ["fenced"]);
        assert_eq!(ran.stderr, "");
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit));
        assert!(interval > 1 || log.blocks_of(20002).len() == 1);
        assert_eq!(ran.dumps().len(), 1);
    }
}

/// A filter that kills for calls of ours: recording ends before it is up, and the program runs on. Also where nothing was sampled
/// yet: a first sample would begin a session behind it.
#[test]
fn seccomp_that_would_kill() {
    for (way, interval) in [
        ("kill", 1),
        ("prctl", 1),
        ("kill", 4096),
        ("prctl", 4096),
        ("kill", 40_000),
        ("prctl", 40_000),
    ] {
        let ran = Run::fixture("fenced")
            .arg(way)
            .interval(interval)
            .prefix("t")
            .run();
        if ran.stdout.starts_with("skip") {
            return println!("{}", ran.stdout);
        }
        let ran = ran.well();
        assert_eq!(ran.claims().ok, ["fenced"], "{way} {interval}");
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert_said(&ran, &["filter of system calls", "recording ends here"]);
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::GaveUp), "{way} {interval}");
        assert!(interval > 1 || log.blocks_of(20001).len() == 1, "{way}");
        assert!(log.blocks_of(20002).is_empty(), "{way} {interval}");
    }
}

/// A filter that refuses: nothing of ours goes through, and the program does not notice.
#[test]
fn seccomp_with_nothing_allowed() {
    for interval in [1, 4096] {
        let ran = Run::fixture("fenced")
            .arg("errno")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        if !ran.stdout.starts_with("skip") {
            assert_eq!(ran.claims().ok, ["fenced"]);
            let log = ran.log();
            assert!(log.torn.is_none(), "{:?}", log.torn);
        }
    }
}

/// What is held open needs no more than `write`, and `fstat` to be known for what it is: the log goes on. What has to be opened is
/// said at the end, by the thread that ends the process.
#[test]
fn seccomp_with_next_to_nothing_allowed() {
    for interval in [1, 4096, 100_000] {
        let ran = Run::fixture("fenced")
            .args(["errno", "fstat"])
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        if ran.stdout.starts_with("skip") {
            return println!("{}", ran.stdout);
        }
        assert_eq!(ran.claims().ok, ["fenced"]);
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit));
        assert!(interval > 1 || log.blocks_of(20002).len() == 1);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert_said(&ran, &["t.0001.heap: operation not permitted"]);
    }
}

/// A file system with room for a part of the log. What was written can be read, the program ends as ever.
#[test]
fn full_file_system() {
    if !may_mount() {
        return;
    }
    for size in ["600k", "1m"] {
        let run = Run::tool("unshare");
        fs::create_dir(run.folder().join("small")).unwrap();
        let script = format!(
            "mount -t tmpfs -o size={size} none small && mkdir small/d && \
             LD_PRELOAD=$1 HEAPPROFILE=small/d/t HEAP_PROFILE_ALLOCATION_INTERVAL=64M \"$0\" 4 100000
             status=$?; cp small/d/* .; exit $status"
        );
        let ran = run
            .args(["-rm", "sh", "-c", &script])
            .arg(Build::get().fixture("churn"))
            .arg(&Build::get().library)
            .interval(1)
            .run()
            .well();
        assert!(ran.stdout.contains("ops 400000"), "{}", ran.stdout);
        assert_said(&ran, &["t.heaplog", "no space left", "runs on"]);
        let log = ran.log();
        assert!(log.torn.is_none(), "{:?}", log.torn);
        assert!(log.blocks().len() > 100, "{}", log.blocks().len());
        assert_eq!(
            log.end(),
            Some(EndReason::LogFailed),
            "the log says so itself"
        );
        assert!(
            log.losses().contains_key(&Counter::LostLogBytes),
            "{:?}",
            log.losses()
        );
        // Half a dump is none.
        assert_eq!(ran.files_ending(".unfinished"), [""; 0]);
        for dump in ran.dumps() {
            assert!(fs::metadata(&dump).unwrap().len() > 100);
        }
    }
}

#[test]
fn read_only_file_system() {
    if !may_mount() {
        return;
    }
    let run = Run::tool("unshare");
    fs::create_dir(run.folder().join("fixed")).unwrap();
    let script = "mount -t tmpfs -o ro none fixed && cd fixed && LD_PRELOAD=$1 HEAPPROFILE=t exec \"$0\" exit";
    let ran = run
        .args(["-rm", "sh", "-c", script])
        .arg(Build::get().fixture("exit_ways"))
        .arg(&Build::get().library)
        .interval(1)
        .run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert_said(&ran, &["HEAPPROFILE", "read-only", "nothing is recorded"]);
}

/// Allocates, does what its first argument says, allocates again.
const GIVES_UP_RIGHTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
void *kept[2];
int main(int argc, char **argv)
{
    int bad = 0;
    kept[0] = malloc(20001);
    usleep(150000);
    if (argv[1][0] == 'c') bad = chroot(argv[2]) || chdir("/");
    if (argv[1][0] == 'u') bad = setgid(65534) || setuid(65534);
    if (argv[1][0] == 'r') bad = chdir("..") || rename("d", "e");
    kept[1] = malloc(20002);
    usleep(150000);
    if (bad) perror(argv[1]);
    return bad ? 1 : 6;
}
"#;

/// The log is where it was, and we may no longer go there: it is held open, if our thread has a table of descriptors of its own, and
/// ends otherwise. The last dump cannot be made.
#[test]
fn chroot_and_dropped_privileges() {
    if !is_root() {
        return;
    }
    for (what, is_held) in [
        ("chroot", true),
        ("uid", true),
        ("chroot", false),
        ("uid", false),
    ] {
        let run = Run::compiled("gives_up", GIVES_UP_RIGHTS, &[]);
        let run = if is_held { run } else { run.behind_a_filter() };
        let jail = run.folder().join("jail");
        fs::create_dir(&jail).unwrap();
        let ran = run.arg(what).arg(&jail).interval(1).prefix("t").run();
        assert_eq!(ran.code(), 6, "{what}: {}", ran.stderr);
        assert_said(&ran, &["t.0001.heap"]);
        assert!(empty(&jail), "{what}: something was written in there");
        let log = ran.log();
        assert!(log.torn.is_none(), "{what}: {:?}", log.torn);
        assert_eq!(log.blocks_of(20001).len(), 1, "{what}");
        assert_eq!(log.blocks_of(20002).len(), usize::from(is_held), "{what}");
        if is_held {
            assert_eq!(log.whole().end(), Some(EndReason::Exit), "{what}");
            assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        } else {
            assert_said(&ran, &["t.heaplog", "the log ends here"]);
        }
    }
}

/// A master that is root, and a worker that gives up its rights or its root directory before it allocates anything.
const WORKER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
void *kept[2];
int main(int argc, char **argv)
{
    int status;
    kept[0] = malloc(20001);
    pid_t worker = fork();
    if (worker == 0) {
        if (argv[1][0] == 'c' && (chroot(argv[2]) || chdir("/"))) exit(1);
        if (argv[1][0] != 'c' && (setgid(65534) || setuid(65534))) exit(1);
        if (argv[1][0] != 'n') kept[1] = malloc(20002);
        exit(7);
    }
    waitpid(worker, &status, 0);
    printf("worker %d\n", (int)worker);
    return WEXITSTATUS(status);
}
"#;

/// By its first sample a worker may not make a log in root's folder any more: it has one from before. That of one without a sample is
/// taken back.
#[test]
fn workers_of_a_master_that_is_root() {
    if !is_root() {
        return;
    }
    for what in ["chroot", "uid", "nothing"] {
        let run = Run::compiled("worker", WORKER, &[]);
        let jail = run.folder().join("jail");
        fs::create_dir(&jail).unwrap();
        if what == "nothing" {
            let open = fs::Permissions::from_mode(0o777); // whoever it is by then may delete it
            fs::set_permissions(run.folder(), open).unwrap();
        }
        let ran = run.arg(what).arg(&jail).interval(1).prefix("t").run();
        assert_eq!(ran.code(), 7, "{what}: {}", ran.stderr);
        assert!(empty(&jail), "{what}: something was written in there");
        let worker = ran.stdout.trim().strip_prefix("worker ").unwrap();
        if what == "nothing" {
            assert_eq!(ran.files_ending("heaplog"), ["t.heaplog"]);
            assert_eq!(ran.files_ending("heap"), ["t.0001.heap"]);
            assert_eq!(ran.stderr, "");
            continue;
        }
        let log = Log::read(&ran.folder().join(format!("t_{worker}.heaplog"))).whole();
        assert_eq!(log.end(), Some(EndReason::Exit), "{what}");
        assert_eq!(log.blocks_of(20002).len(), 1, "{what}");
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert_said(&ran, &[&format!("t_{worker}.0001.heap")]);
    }
}

/// Where our thread shares the program's descriptors, nothing is made ahead: what the worker may not make it has not.
#[test]
fn workers_behind_a_filter() {
    if !is_root() {
        return;
    }
    for mode in [0o700, 0o777] {
        let run = Run::compiled("worker", WORKER, &[]).behind_a_filter();
        let folder = fs::Permissions::from_mode(mode);
        fs::set_permissions(run.folder(), folder).unwrap();
        let ran = run.args(["uid", "-"]).interval(1).prefix("t").run();
        assert_eq!(ran.code(), 7, "{}", ran.stderr);
        let worker = ran.stdout.trim().strip_prefix("worker ").unwrap();
        let path = ran.folder().join(format!("t_{worker}.heaplog"));
        if mode == 0o700 {
            assert!(!path.exists());
            assert_said(&ran, &["permission denied", "nothing is recorded"]);
        } else {
            assert_eq!(Log::read(&path).whole().blocks_of(20002).len(), 1);
            assert_eq!(ran.stderr, "");
        }
    }
}

fn empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// A program that gains rights when started. Only a library in a trusted folder, setuid itself, is loaded into it at
/// all, which is arranged in a mount namespace: it forwards and writes nothing.
#[test]
fn setuid_programs_are_left_alone() {
    if !is_root() || !may_mount() {
        return;
    }
    let run = Run::tool("unshare");
    let lib = run.folder().join("lib");
    let bin = run.folder().join("bin");
    let out = run.folder().join("out");
    for folder in [&lib, &bin, &out] {
        fs::create_dir(folder).unwrap();
    }
    // Debian's loader trusts /usr/lib/x86_64-linux-gnu; a file of another name there is laid over by ours.
    let script = r#"
        chmod 755 . bin lib && chmod 777 out
        trusted=$(dirname "$(ldconfig -p | sed -n 's/.*libgcc_s.so.1 (libc6,x86-64) => //p' | head -n 1)")
        mount -t tmpfs none lib && mkdir lib/up lib/work &&
        mount -t overlay -o lowerdir="$trusted",upperdir=lib/up,workdir=lib/work none "$trusted" || exit 77
        cp "$1" "$trusted/libheapprof.so" && chmod 4755 "$trusted/libheapprof.so"
        mount -t tmpfs none bin && cp "$0" bin/program && chown root bin/program && chmod "$2" bin/program
        cd out && HEAPPROFILE=$PWD/t exec setpriv --reuid=65534 --regid=65534 --clear-groups \
            env LD_PRELOAD=libheapprof.so "$PWD/../bin/program" exit"#;
    let result = |mode: &str| {
        Run::tool("unshare")
            .args(["-m", "sh", "-c", script])
            .arg(Build::get().fixture("exit_ways"))
            .arg(&Build::get().library)
            .arg(mode)
            .interval(1)
            .inside(run.folder())
            .run()
    };
    // First that the arrangement works: the same without the bit is recorded.
    let plain = result("755");
    if plain.code() == 77 {
        return println!("skipped: no overlay file system here: {}", plain.stderr);
    }
    assert_eq!(plain.code(), 3, "{}", plain.stderr);
    assert!(
        !empty(&out),
        "not recorded without the bit: {}",
        plain.stderr
    );
    for entry in fs::read_dir(&out).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let secure = result("4755");
    assert_eq!((secure.code(), secure.stderr.as_str()), (3, ""));
    assert!(empty(&out), "something was written");
}

/// What takes malloc for itself is told about, and runs.
#[test]
fn sanitizers_and_valgrind() {
    const PROGRAM: &str =
        "#include <stdlib.h>\nvoid *kept;\nint main(void) { kept = malloc(20001); return 3; }\n";
    for (sanitizer, word) in [("leak", "LeakSanitizer"), ("undefined", "")] {
        let flag = format!("-fsanitize={sanitizer}");
        let ran = Run::compiled("sanitized", PROGRAM, &[&flag])
            .interval(1)
            .prefix("t")
            .env("LSAN_OPTIONS", "detect_leaks=0")
            .run();
        assert_eq!(ran.code(), 3, "{sanitizer}: {}", ran.stderr);
        if word.is_empty() {
            assert_eq!(ran.log().whole().blocks_of(20001).len(), 1, "{sanitizer}");
        } else {
            assert_said(&ran, &[word, "nothing is recorded"]);
        }
    }
    // Under any other allocator this one's runtime comes to a standstill: the program is started again without us.
    let thread = || Run::compiled("sanitized", PROGRAM, &["-fsanitize=thread"]);
    let alone = thread().without_library().run();
    let ran = thread().interval(1).prefix("t").run();
    assert_eq!(ran.code(), alone.code(), "{}", ran.stderr);
    assert_said(&ran, &["ThreadSanitizer", "nothing is recorded"]);
    assert!(ran.files_ending(".heaplog").is_empty());
    // Nothing is recorded of these: `heapprof run` says so before.
    for sanitizer in ["address", "thread"] {
        let flag = format!("-fsanitize={sanitizer}");
        let compiled = Run::compiled("sanitized", PROGRAM, &[&flag]);
        let program = compiled.folder().join("bin/sanitized");
        let ran = Run::heapprof().args(["run", "--"]).arg(&program).run();
        assert_ne!(ran.code(), 0, "{sanitizer}");
        assert!(
            ran.stderr.contains("built with a sanitizer"),
            "{}",
            ran.stderr
        );
    }
    let ran = Run::tool("valgrind")
        .args([
            "--quiet",
            "env",
            &format!("LD_PRELOAD={}", Build::get().library.display()),
        ])
        .arg(Build::get().fixture("exit_ways"))
        .arg("exit")
        .interval(1)
        .prefix("t")
        .env(
            "VALGRIND_OPTS",
            "--trace-children=yes --trace-children-skip=*/env",
        )
        .run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
}
