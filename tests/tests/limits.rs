//! Limits: memory, file sizes, descriptors, threads, file systems that are full or read-only. The
//! program behaves as without the library; a failure of the library is one line.

use std::fs;

use heapprof_format::{Counter, EndReason};
use heapprof_tests::{Build, Log, Run, may_mount};

/// Returns a fixture's run by a shell that first runs `before`, a part of its script.
fn after(before: &str, fixture: &str, args: &[&str]) -> Run {
    Run::tool("/bin/sh")
        .args(["-c", &format!("{before}\nLD_PRELOAD=$1 exec \"$0\" $2")])
        .arg(Build::get().fixture(fixture))
        .arg(Build::get().library())
        .arg(args.join(" "))
        .interval(1)
        .prefix("t")
}

/// From far too little memory to enough: if the program runs without the library, it runs with it,
/// recorded or not. (A narrow band is the loader's: there the library fits, and then libc or
/// libgcc_s does not.)
#[test]
fn address_space() {
    let mut recorded = 0;
    // In small steps where the library's own steps may each lack room.
    let close = (16_000..26_000).step_by(125);
    let limits = [2500, 3500, 6000, 9500, 10_000, 12_000, 14_000];
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
        // The loader's own line ends in "ignored."
        let told = ran.stderr.lines().count() + ran.notes().len();
        assert!(told <= 1, "{kb} KB: {} {:?}", ran.stderr, ran.notes());
        let logs = ran.files_ending(".heaplog");
        let whole = logs.iter().any(|name| {
            let log = Log::read(&ran.folder().join(name)).whole();
            log.end() == Some(EndReason::Exit) && log.blocks_of(17001).len() == 1
        });
        assert!(whole != (told == 1), "{kb} KB: {}", ran.stderr);
        recorded += usize::from(whole);
    }
    assert!(recorded >= 3, "{recorded} limits leave room for a profile");
}

/// Threads under a limit: jemalloc 5.3 crashes in a thread whose own arena finds no room. So
/// threads share one arena, with any other options of jemalloc.
#[test]
fn address_space_and_threads() {
    for kb in [80_000, 100_000, 150_000, 300_000] {
        for options in ["", "dirty_decay_ms:5000"] {
            let run = after(&format!("ulimit -v {kb}"), "churn", &["3", "20000"]);
            let ran = run.env("_RJEM_MALLOC_CONF", options).run();
            assert_eq!(ran.code(), 0, "{kb} KB: {} {}", ran.status, ran.stderr);
            assert!(ran.log().torn.is_none(), "{kb} KB");
        }
    }
}

/// In the middle of its life a program uses up its memory, and handles that.
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
                let told = ran.library_messages();
                assert!(told.iter().any(|it| it.contains("memory")), "{told:?}");
            }
        }
    }
}

/// A program that takes all of its address space in blocks of a size, many times over.
struct Exhaustion {
    bytes: u64,
    rounds: u64,
    mib: u64,
    /// The program sets the limit. Otherwise the limit exists from the start.
    by_itself: bool,
    /// The number of mappings at the end is less.
    most_maps: u64,
}

impl Exhaustion {
    /// Runs the program. Returns how many blocks it got at first.
    fn blocks(&self, interval: u64) -> usize {
        let [bytes, rounds, mib] = [self.bytes, self.rounds, self.mib].map(|it| it.to_string());
        let run = if self.by_itself {
            Run::fixture("memory_ran_out").args([bytes, rounds, mib])
        } else {
            let limit = format!("ulimit -v {}", self.mib << 10);
            after(&limit, "memory_ran_out", &[&bytes, &rounds])
        };
        let ran = run.interval(interval).prefix("t").run();
        let Exhaustion { bytes, mib, .. } = self;
        let what = format!("{interval} {mib} MiB {bytes} {}", self.by_itself);
        let what = format!("{what}: {}", ran.stdout);
        assert_eq!(ran.claims().ok, ["small"], "{what}");
        let counts = ran.stdout.lines().find_map(|line| {
            let words = line.strip_prefix("blocks ")?.split(' ');
            Some(words.map(|word| word.parse().unwrap()).collect())
        });
        let counts: Vec<usize> = counts.unwrap();
        assert!(counts.iter().all(|n| n * 20 >= counts[0] * 19), "{what}");
        let maps = ran
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("maps "));
        assert!(
            maps.unwrap().parse::<u64>().unwrap() < self.most_maps,
            "{what}"
        );
        counts[0]
    }
}

/// After memory ran out, the freed memory serves blocks of other sizes. The limit exists from the
/// start, or the program sets it.
#[test]
fn memory_that_was_freed_is_there_for_other_sizes() {
    for interval in [0, 1 << 19] {
        for mib in [100, 200] {
            for bytes in [4000, 100_000, 1 << 20] {
                for by_itself in [false, true] {
                    let program = Exhaustion {
                        bytes,
                        rounds: 3,
                        mib,
                        by_itself,
                        most_maps: 10_000,
                    };
                    // As much as under Debian's jemalloc, but for our own memory.
                    let least = match (mib, bytes) {
                        (200, 1_048_576) => 160,
                        (200, 4000) => 40_000,
                        _ => 1,
                    };
                    let blocks = program.blocks(interval);
                    assert!(blocks >= least, "{interval} {mib} MiB {bytes} {by_itself}");
                }
            }
        }
    }
}

/// Memory that is mapped and unmapped many times costs no address space: jemalloc keeps a node of
/// its map for each gibibyte of addresses that it was ever given.
#[test]
fn addresses_are_used_again() {
    for bytes in [100_000, 1 << 20] {
        let program = Exhaustion {
            bytes,
            rounds: 200,
            mib: 100,
            by_itself: false,
            most_maps: 200,
        };
        program.blocks(1 << 19);
    }
    let peak_kb = peak_kb_of(&["40", "1048576", "2000"], "retain:false");
    assert!(peak_kb < 20_000, "{peak_kb}");
}

/// Under a limit, blocks do not become mappings of their own, of which the kernel allows some
/// 65,000 in a process.
#[test]
fn a_block_is_no_mapping_of_its_own() {
    for bytes in [40_000, 65_536, 100_000, 1_000_000] {
        for by_itself in [false, true] {
            let program = Exhaustion {
                bytes,
                rounds: 3,
                mib: 600,
                by_itself,
                most_maps: 200,
            };
            program.blocks(0);
        }
    }
}

/// A program that frees all of its blocks, and allocates as many again, takes the same memory.
#[test]
fn freed_memory_is_used_again() {
    // 200 MiB each time.
    for (blocks, bytes) in [("4200", "50000"), ("3200", "65000"), ("700", "300000")] {
        let peak_kb = peak_kb_of(&[blocks, bytes, "12", "written"], "");
        assert!(peak_kb < 260 << 10, "{bytes}: {peak_kb}");
    }
}

/// Runs blocks that come and go, and returns the most resident KB.
fn peak_kb_of(args: &[&str], jemalloc_options: &str) -> u64 {
    let run = Run::fixture("blocks_come_and_go").args(args).prefix("t");
    let ran = run.env("_RJEM_MALLOC_CONF", jemalloc_options).run().well();
    let kb = ran.stdout.trim().strip_prefix("peak KB ").unwrap();
    kb.parse().unwrap()
}

/// SIGXFSZ, which the kernel sends with the error, would end the program. A log that cannot be made
/// or continued is one line.
#[test]
fn file_size() {
    // In units of 512 bytes: no room at all, a start without an end, a part.
    for blocks in [0, 1, 2, 1200] {
        for fixture in ["exit_ways", "churn"] {
            let args: &[&str] = match fixture {
                "churn" => &["2", "100000"],
                _ => &["exit"],
            };
            // Output and messages go to files without a limit.
            let script = format!(
                "mkfifo pipe; cat <pipe >said & exec 2>pipe
                 (ulimit -f {blocks}; LD_PRELOAD=$1 \"$0\" $2 >/dev/null)
                 status=$?; exec 2>/dev/null; wait; exit $status"
            );
            let ran = Run::tool("/bin/sh")
                .args(["-c", &script])
                .arg(Build::get().fixture(fixture))
                .arg(Build::get().library())
                .arg(args.join(" "))
                .interval(1)
                .prefix("t")
                .run();
            let alone = if fixture == "churn" { 0 } else { 3 };
            assert_eq!(
                ran.code(),
                alone,
                "{fixture} with {blocks} blocks: {}",
                ran.status
            );
            let mut said = String::from_utf8(ran.bytes("said")).unwrap();
            said.push_str(&ran.notes().join("\n"));
            let is_enough = blocks == 1200 && fixture == "exit_ways";
            let about_log = said.lines().filter(|line| line.contains("t.heaplog"));
            assert_eq!(
                about_log.count(),
                usize::from(!is_enough),
                "{fixture} with {blocks} blocks: {said}"
            );
            if blocks == 1200 && fixture == "churn" {
                assert!(said.contains("file size limit reached"), "{said}");
                let log = ran.log();
                assert!(log.torn.is_none(), "{:?}", log.torn);
                assert!(log.blocks().len() > 100);
            }
        }
    }
}

/// Uses up its descriptors, as a server under load does, and gives them back, or keeps them, or may
/// have none from then on.
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

/// The library causes no shortage of descriptors. A process that may have none has its log, no
/// dump, and a line.
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

    // The library's thread holds the log, and goes on with it; it cannot make a dump, which it
    // notes in the log. On a busy machine the end may not wait long enough.
    let said = (0..5).any(|_| {
        let ran = Run::compiled("without_descriptors", WITHOUT_DESCRIPTORS, &[])
            .arg("may have none")
            .interval(1)
            .prefix("t")
            .run();
        assert_eq!(ran.code(), 5);
        let log = ran.log().whole();
        for (size, count) in [(20001, 1), (20002, 59), (20003, 1)] {
            assert_eq!(log.blocks_of(size).len(), count, "{size}");
        }
        assert_eq!(ran.stderr, "");
        let about_dump = |line: &&String| line.contains(".heap:") && line.contains("too many open");
        ran.notes().iter().filter(about_dump).count() == 1
    });
    assert!(said, "nobody was told that there is no dump");
}

/// No descriptors from the start: the loader cannot open the library, or the library cannot open a
/// file.
#[test]
fn few_descriptors_from_the_start() {
    for most in 3..=8 {
        // Inherited descriptors of the shell are closed first.
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
    assert_eq!(ran.stderr, "");
    ran.assert_noted(&["cannot start a thread", "nothing is recorded"]);
    assert_eq!(ran.log().whole().end(), Some(EndReason::GaveUp));
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
        .arg(Build::get().library())
        .interval(1)
        .run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    ran.assert_said(&["HEAPPROFILE", "read-only", "nothing is recorded"]);
}

/// A child that is forked at the limit of descriptors is recorded as soon as a descriptor is free.
#[test]
fn a_child_at_the_limit_of_descriptors() {
    const SOURCE: &str = r#"
        #include <fcntl.h>
        #include <stdlib.h>
        #include <sys/resource.h>
        #include <sys/wait.h>
        #include <unistd.h>
        void *kept[3];
        int main(void)
        {
            int status, last = -1, fd;
            struct rlimit few = {32, 32};
            kept[0] = malloc(20001);
            setrlimit(RLIMIT_NOFILE, &few);
            while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
            if (fork() == 0) {
                kept[1] = malloc(20002);
                kept[2] = malloc(20003);
                close(last);
                close(last - 1);
                usleep(50000);
                for (int i = 0; i < 3; i++) kept[i] = malloc(20004);
                return 0;
            }
            return wait(&status) < 0 || status;
        }
    "#;
    let ran = Run::compiled("few", SOURCE, &["-fno-builtin"]);
    let ran = ran.interval(1).prefix("t").run().well();
    ran.assert_noted(&[
        "cannot create",
        ".heaplog: too many open files",
        "begins when",
    ]);
    assert_eq!(ran.stderr, "");
    let logs = ran.logs();
    assert_eq!(logs.len(), 2, "{:?}", ran.files());
    let child = logs.values().find(|log| log.start().forked_from != 0);
    let child = child.expect("a log of the child's");
    assert_eq!(child.blocks_of(20004).len(), 3);
    assert_eq!(child.losses().get(&Counter::LostNotReady), Some(&2));
    assert_eq!(child.end(), Some(EndReason::Exit));
}

/// A server at its limit takes each descriptor as soon as it is free. Under a seccomp filter, as in
/// a container, the library's descriptors are in its table. A log that rotates begins its segments
/// when a descriptor is free.
#[test]
fn rotation_at_the_limit_of_descriptors() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/prctl.h>
        #include <sys/resource.h>
        #include <unistd.h>
        static volatile int stop;
        static void *takes_all(void *unused)
        {
            int fds[300], n = 0;
            while (!stop) {
                int fd;
                while ((fd = open("/dev/null", O_RDONLY)) >= 0) fds[n++] = fd;
                usleep(300);
                for (int i = 0; i < 3 && n > 0; i++) close(fds[--n]);
                usleep(200);
            }
            while (n > 0) close(fds[--n]);
            return unused;
        }
        /* A segment that finds no descriptor for its next frame is removed again. So one is whole only when another
         * number follows it. The writer looks for a descriptor now and then: on a busy machine it takes its time. */
        static int has_rotated(void)
        {
            static int first;
            char name[64];
            for (int n = 1; n < 100; n++) {
                snprintf(name, sizeof name, "t_%d.at_its_limit.%04d.heaplog", getpid(), n);
                if (access(name, F_OK)) continue;
                if (first && n > first) return 1;
                if (!first) first = n;
            }
            return 0;
        }
        int main(int argc, char **argv)
        {
            if (argc == 2) {
                struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
                struct sock_fprog program = {1, &allow};
                if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
                setenv("LD_PRELOAD", argv[1], 1);
                execl(argv[0], argv[0], NULL);
                return 3;
            }
            struct rlimit limit = {256, 256};
            pthread_t thread;
            setrlimit(RLIMIT_NOFILE, &limit);
            pthread_create(&thread, NULL, takes_all, NULL);
            int rotated = 0;
            for (int i = 0; i < 1000 || i < 20000 && !rotated; i++) {
                for (int j = 0; j < 500; j++) free(malloc(100 + j % 7));
                usleep(1000);
                rotated = rotated || has_rotated();
            }
            stop = 1;
            pthread_join(thread, NULL);
            free(malloc(20031));
            return rotated ? 0 : 4;
        }
    "#;
    let begins = Run::compiled("at_its_limit", SOURCE, &["-w", "-pthread", "-fno-builtin"]);
    let ran = begins
        .arg(Build::get().library())
        .env("HEAPPROF_MAX_LOG", "256K")
        .interval(1)
        .prefix("t")
        .run();
    assert_eq!((ran.code(), &*ran.stderr), (0, ""));
    let names = ran.files_ending(".heaplog");
    let logs = names.iter().map(|name| Log::read(&ran.folder().join(name)));
    let last = logs.filter(|log| log.blocks_of(20031).len() == 1);
    let ends: Vec<_> = last.map(|log| log.whole().end()).collect();
    // Older segments may be gone by now; the program has seen two.
    assert_eq!(ends, [Some(EndReason::Exit)], "{names:?}");
}
