//! Processes made in every way, under load: no child hangs, each that allocates has a profile, no
//! other leaves a file, and none inherits a descriptor of the library.

use std::collections::{BTreeMap, BTreeSet};

use heapprof_format::EndReason;
use heapprof_tests::{Finished, Log, Run};

/// Returns all logs of the run's folder by the process that wrote them.
#[track_caller]
fn logs(ran: &Finished) -> BTreeMap<u32, Log> {
    let logs = ran.logs().into_values();
    logs.map(|log| (log.start().pid, log)).collect()
}

/// Returns the number behind a word, on each line that begins with it.
fn numbers(ran: &Finished, word: &str) -> Vec<u64> {
    let rest = |line: &str| line.strip_prefix(word)?.trim().parse().ok();
    ran.stdout.lines().filter_map(rest).collect()
}

#[test]
fn fork_storm() {
    let ran = Run::fixture("fork_storm")
        .arg("1000")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    assert_eq!(ran.claims().ok, ["children"]);
    assert_eq!(ran.stderr, "");
    let children: Vec<String> = ran
        .files_ending(".heaplog")
        .into_iter()
        .filter(|name| name != "t.heaplog")
        .collect();
    // Logs of the children that allocated, and no others.
    assert_eq!(numbers(&ran, "allocated "), [children.len() as u64]);
    assert_eq!(children.len(), 750);
    assert_eq!(ran.files_ending(".unfinished"), [""; 0]);
    let mut own = 0;
    for name in children.iter().step_by(5) {
        let log = Log::read(&ran.folder().join(name)).whole();
        assert_eq!(log.end(), Some(EndReason::Exit), "{name}");
        own += log.blocks_of(24001).len();
        // Its own few blocks, and nothing of its parent's threads.
        assert!(log.blocks().len() < 10, "{name}: {}", log.blocks().len());
    }
    assert!(own >= 50, "{own} of 100 blocks");
}

#[test]
fn spawn_ways() {
    let ran = Run::fixture("spawn_ways")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let claims = ran.claims();
    assert_eq!(claims.failures, [""; 0], "{}", ran.stdout);
    assert_eq!(ran.stderr, "");
    let logs = logs(&ran);
    let parents = &logs[&ran.pid];
    assert_eq!(parents.end(), Some(EndReason::Exit));
    for (size, pattern) in &claims.stacks {
        let blocks = parents.blocks_of(*size);
        assert_eq!(blocks.len(), 1, "{size} in the parent's log");
        let functions = &parents.named().stacks[blocks[0].stack];
        assert!(
            pattern.matches(functions),
            "{size}: {}",
            parents.named().shown(blocks[0].stack)
        );
    }
    // The blocks of the images and of the daemon are each in one log, and not in the parent's.
    let images: BTreeSet<u64> = numbers(&ran, "started ").into_iter().collect();
    assert_eq!(images, BTreeSet::from([22002, 22003, 22006, 22007, 22008]));
    for size in images {
        let found = logs.values().filter(|log| !log.blocks_of(size).is_empty());
        let pids: Vec<u32> = found.map(|log| log.start().pid).collect();
        assert_eq!(pids.len(), 1, "{size}: {pids:?}");
        assert_ne!(pids[0], ran.pid, "{size}");
    }
    // The process between the daemon and its parent did nothing: the daemon continues its
    // grandparent's log.
    let daemon = logs.values().find(|log| !log.blocks_of(22008).is_empty());
    assert_eq!(daemon.unwrap().start().forked_from, ran.pid);
    // The blocks of a child of _Fork are in no log.
    assert!(logs.values().all(|log| log.blocks_of(22009).is_empty()));
}

#[test]
fn exec_fds() {
    let busy = || Run::fixture("exec_fds").interval(1).prefix("t");
    // Behind the seccomp filter the library's thread shares the program's descriptors: a descriptor
    // that is open for a moment must not pass an exec.
    for run in [busy(), busy().behind_seccomp_filter().arg("1000")] {
        let ran = run.run().well();
        assert_eq!(ran.claims().ok, ["descriptors"], "{}", ran.stdout);
        assert!(ran.log().whole().end().is_some());
    }
}

/// A child on a stack of its own returns to the address on top of that stack: `syscall` must not
/// have a frame.
#[test]
fn clone_by_number_on_a_stack_of_its_own() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <linux/sched.h>
        #include <sched.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile int ran;
        static void child(void) { ran++; syscall(SYS_exit, 5); }
        static int waits_for(long pid)
        {
            int status = 0;
            return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5;
        }
        int main(void)
        {
            free(malloc(41001));
            static long stack[8192] __attribute__((aligned(16)));
            long *top = stack + 8000;
            *top = (long)child;
            if (!waits_for(syscall(SYS_clone, CLONE_VM | SIGCHLD, top, NULL, NULL, 0)) || ran != 1) return 2;
            struct clone_args all = {.flags = CLONE_VM, .exit_signal = SIGCHLD, .stack = (long)stack, .stack_size = (char *)top - (char *)stack};
            long pid = syscall(SYS_clone3, &all, sizeof all);
            if (pid < 0 && errno == ENOSYS) return 0;
            if (!waits_for(pid) || ran != 2) return 3;
            /* Six arguments, the last on the stack. */
            FILE *from = tmpfile(), *to = tmpfile();
            fputs("twelve bytes", from);
            fflush(from);
            off64_t begin = 7;
            if (syscall(SYS_copy_file_range, fileno(from), &begin, fileno(to), NULL, 5, 1) != -1 || errno != EINVAL) return 4;
            free(malloc(41002));
            return 0;
        }
    "#;
    for interval in [0, 1, 512 << 10] {
        let ran = Run::compiled("clones", SOURCE, &["-w"])
            .interval(interval)
            .run()
            .well();
        if interval == 1 {
            let log = ran.log().whole();
            assert_eq!([41001, 41002].map(|size| log.blocks_of(size).len()), [1, 1]);
        }
    }
}
