//! A process that becomes another program, or a daemon: the time before is known, in a log that has
//! an end.

use std::collections::BTreeSet;

use heapprof_format::EndReason;
use heapprof_tests::{Log, Run, is_glibc_before};

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
    let logs = ran.logs();
    let names: BTreeSet<String> = logs.keys().cloned().collect();
    let expected = [
        "t".to_owned(),
        format!("t_{pid}.exec_chain"),
        format!("t_{pid}.exec_chain_2"),
        format!("t_{pid}.exec_chain_3"),
        format!("t_{pid}.exec_chain_4"),
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
        let own: Vec<u64> = log
            .sizes()
            .into_iter()
            .filter(|size| (16000..=16004).contains(size))
            .collect();
        // An exec cuts the log off: the last records before it may be missing, in all images but
        // the last.
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

/// As the fixture claims: each image's own block is in its profile.
#[test]
fn exec_chain_keeps_the_block_of_every_image() {
    let ran = Run::fixture("exec_chain")
        .arg("4")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let all: BTreeSet<u64> = ran.logs().values().flat_map(Log::sizes).collect();
    for size in 16000..=16004 {
        assert!(
            all.contains(&size),
            "the block of {size} bytes is in no log"
        );
    }
}

/// Allocates, and becomes itself by the function that its first argument names; then allocates
/// another block.
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
#if __GLIBC_PREREQ(2, 34)
    if (strcmp(way, "execveat") == 0) execveat(AT_FDCWD, self, args, environ, 0);
#endif
    return 1;
}
"#;

/// Nothing from before the exec is missing, for any function. There is no dump; the log has its
/// contents.
#[test]
fn every_exec_function() {
    let mut ways = vec![
        "execl", "execlp", "execle", "execv", "execve", "execvp", "execvpe", "fexecve",
    ];
    // glibc has the function from then on.
    if !is_glibc_before(2, 34) {
        ways.push("execveat");
    }
    for way in ways {
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

/// daemon(3): the process between ends inside libc, at once. Its blocks in use are the daemon's,
/// and in its own log only.
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
    let logs = ran.logs();
    let of = |size| {
        logs.values()
            .find(|log| log.sizes().contains(&size))
            .unwrap()
    };
    assert_eq!(of(20001).blocks_of(20001).len(), 10);
    assert_eq!(of(20001).end(), Some(EndReason::Exit));
    assert_eq!(of(20002).start().forked_from, of(20001).start().pid);
}

/// A wrapper: it becomes another program before it has a sample.
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
