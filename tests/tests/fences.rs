//! Seccomp filters that the program installs.

use std::fs;
use std::process::Command;

use heapprof_format::EndReason;
use heapprof_tests::{Build, Run, repository};

/// Returns the system calls in docs/hosts.md's list behind "recording needs these calls".
fn documented_calls() -> Vec<String> {
    let text = fs::read_to_string(repository().join("docs/hosts.md")).unwrap();
    let section = text
        .split_once("\n### Seccomp filters\n")
        .expect("a section on seccomp");
    let list = section.1.split_once("recording needs these calls:\n\n");
    let list = list.expect("what is needed").1;
    let list = list.split_once("\n\n").unwrap().0;
    let calls: Vec<String> = list
        .split('`')
        .skip(1)
        .step_by(2)
        .map(String::from)
        .collect();
    assert!(calls.len() > 10, "{calls:?}");
    calls
}

/// A filter that kills for any other call: the documented list suffices, dumps included, and also
/// for a first sample behind it.
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

/// A filter that kills for the library's calls: recording ends before the filter is installed, and
/// the program runs on. The same holds without a sample: a first sample would begin a session
/// behind the filter.
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
        assert_eq!(ran.stderr, "");
        ran.assert_noted(&["seccomp filter", "recording ends here"]);
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::GaveUp), "{way} {interval}");
        assert!(interval > 1 || log.blocks_of(20001).len() == 1, "{way}");
        assert!(log.blocks_of(20002).is_empty(), "{way} {interval}");
    }
}

/// A filter that refuses: no call of the library succeeds, and the program runs undisturbed.
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

/// An open file needs only `write`, and `fstat` for its identity: the log goes on. Files that have
/// to be opened are reported at the end, by the thread that ends the process.
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
        assert_eq!(ran.stderr, "");
        ran.assert_noted(&["t.0001.heap: operation not permitted"]);
    }
}

/// As man-db's filter, which lies about the kernel: the line names the file that is not made, and
/// the filter.
#[test]
fn a_log_that_a_filter_refuses_is_told_with_the_cause() {
    const SOURCE: &str = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stddef.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(int argc, char **argv)
        {
            struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
                BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog filter = {6, code};
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 2;
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) return 3;
            execv(argv[1], argv + 1);
            return 4;
        }
    "#;
    let idle = Build::get().fixture("idle");
    let run = Run::compiled("filters", SOURCE, &["-w"]).arg(idle).arg("0");
    let ran = run.interval(1).prefix("t").run().well();
    ran.assert_said(&["t.heaplog: refused by a filter", "nothing is recorded"]);
    assert!(!ran.stderr.contains("error 38"), "{}", ran.stderr);
}

/// libseccomp probes the kernel with an invalid flag. The probe installs no filter, and ends no
/// recording.
#[test]
fn whoever_asks_what_the_kernel_knows_is_recorded_on() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <linux/seccomp.h>
        #include <stdlib.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(int argc, char **argv)
        {
            free(malloc(20010));
            errno = 0;
            if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) != -1 || errno != EINVAL) return 2;
            errno = 0;
            if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1, NULL) != -1 || errno != EFAULT) return 3;
            free(malloc(20011));
            if (argc == 1) return 0;
            if (argv[1][0] == 'p' ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) : syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL)) return 4;
            free(malloc(20012));
            syscall(SYS_exit, 0);
        }
    "#;
    for how in [None, Some("prctl"), Some("seccomp")] {
        let run = Run::compiled("asks", SOURCE, &["-w"]).args(how);
        let ran = run.interval(1).run().well();
        let log = ran.log();
        let blocks = [20010, 20011, 20012].map(|size| log.blocks_of(size).len());
        assert_eq!(blocks, [1, 1, 0], "{how:?}");
        let end = match how {
            None => EndReason::Exit,
            // before the kernel would end the process for a call of the library
            Some(_) => EndReason::GaveUp,
        };
        assert_eq!(log.end(), Some(end), "{how:?}");
    }
}

/// Forks behind a filter that kills for the system call of that number.
const FORKS_BEHIND: &str = r#"
    #define _GNU_SOURCE
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stdlib.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(int argc, char **argv)
    {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(argv[1]), 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {4, filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
        for (int i = 0; i < 2; i++) {
            int status;
            if (fork() == 0) {
                free(malloc(20021));
                return 0;
            }
            if (wait(&status) < 0 || status) return 3;
        }
        free(malloc(20022));
        return 0;
    }
"#;

/// A filter that allows the calls of a recording but kills for those of its beginning. The program
/// is recorded on. Its children, which would have to begin behind the filter, run unrecorded.
#[test]
fn children_behind_a_filter_that_would_kill_them() {
    for call in [libc::SYS_shmget, libc::SYS_shmctl, libc::SYS_getcwd] {
        let run = Run::compiled("forks_behind", FORKS_BEHIND, &["-w"]).arg(call.to_string());
        let ran = run.interval(1).prefix("t").run().well();
        ran.assert_noted(&["forked processes", "not recorded"]);
        assert_eq!(ran.files_ending(".heaplog").len(), 1, "{call}");
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit), "{call}");
        assert_eq!(log.blocks_of(20022).len(), 1, "{call}");
    }
}

/// Recording has ended before a filter that does not even allow getpid: children call nothing
/// either.
#[test]
fn children_behind_a_filter_that_ended_the_recording() {
    let run =
        Run::compiled("forks_behind", FORKS_BEHIND, &["-w"]).arg(libc::SYS_getpid.to_string());
    let ran = run.interval(1).prefix("t").run().well();
    ran.assert_noted(&["seccomp filter", "recording ends here"]);
    let log = ran.log().whole();
    assert_eq!(log.end(), Some(EndReason::GaveUp));
}

/// A program may forbid itself the time stamp counter, which hooks and libc's clock read. The next
/// sample would end it.
#[test]
fn a_program_that_gives_up_the_time_stamp_counter() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(int argc, char **argv)
        {
            int status = 0;
            free(malloc(20031));
            if (argv[1][0] == 'p' ? prctl(PR_SET_TSC, PR_TSC_SIGSEGV) : syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0)) return 2;
            free(malloc(20032));
            free(malloc(5 << 20)); /* more than what lies between two looks at a clock */
            if (fork() == 0) {
                free(malloc(20033));
                free(malloc(5 << 20));
                return 0;
            }
            return wait(&status) < 0 || status ? 3 : 0;
        }
    "#;
    for how in ["prctl", "syscall"] {
        for interval in [0, 1, 1 << 30] {
            let flags = ["-w", "-fno-builtin"];
            let run = Run::compiled("forbids_the_counter", SOURCE, &flags).arg(how);
            let ran = run.interval(interval).prefix("t").run().well();
            if interval == 0 {
                continue; // nothing is recorded that could end
            }
            ran.assert_noted(&["time stamp counter", "recording ends here"]);
            assert_eq!(ran.files_ending(".heaplog").len(), 1, "{how}");
            let log = ran.log().whole();
            assert_eq!(log.end(), Some(EndReason::GaveUp), "{how} {interval}");
            let blocks = [20031, 20032].map(|size| log.blocks_of(size).len());
            assert!(interval > 1 || blocks == [1, 0], "{how}: {blocks:?}");
        }
    }
}

/// Filters that would end the program for a rare call of a hook: memory mapped as the library maps
/// it, or the name of a module that was loaded by a relative path before.
#[test]
fn what_is_seldom_called_is_foreseen() {
    const SOURCE: &str = r#"
        #include <dlfcn.h>
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        int main(int argc, char **argv)
        {
            int (*compare)(const void *, const void *) = dlsym(dlopen("./plug_in.so", RTLD_NOW), "compare");
            struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argv[1][0] == 'g' ? SYS_getcwd : SYS_mmap, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16 + 8 * 3),
                BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, argv[1][0] == 'g' ? 0 : MAP_NORESERVE, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            if (argv[1][0] == 'g')
                filter[3] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
            struct sock_fprog program = {6, filter};
            free(malloc(20041));
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
            compare(argv, argv);
            return 0;
        }
    "#;
    const PLUG_IN: &str = r#"
        #include <stdlib.h>
        int compare(const void *a, const void *b) { free(malloc(20042)); return 0; }
    "#;
    for (what, end) in [("getcwd", EndReason::Exit), ("mmap", EndReason::GaveUp)] {
        let run = Run::compiled("meets_a_filter", SOURCE, &["-w", "-ldl"]).arg(what);
        fs::write(run.folder().join("plug_in.c"), PLUG_IN).unwrap();
        let made = Command::new("gcc")
            .args([
                "-w",
                "-fno-builtin",
                "-shared",
                "-fPIC",
                "plug_in.c",
                "-o",
                "plug_in.so",
            ])
            .current_dir(run.folder())
            .status();
        assert!(
            made.expect("gcc runs (scripts/install-deps installs it)")
                .success()
        );
        let ran = run.interval(1).run().well();
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(end), "{what}");
        let blocks = [20041, 20042].map(|size| log.blocks_of(size).len());
        assert_eq!(blocks, [1, usize::from(end == EndReason::Exit)], "{what}");
    }
}
