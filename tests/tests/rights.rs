//! Rights: programs that give up rights or their root directory, and programs that gain some when
//! started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use heapprof_format::EndReason;
use heapprof_tests::{Build, Log, Run, is_root, may_mount};

/// Allocates, performs its first argument, allocates again.
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

/// The log stays in its folder, where the library may no longer go. It is held open if the
/// library's thread has its own table of descriptors, and ends otherwise. The last dump cannot be
/// made.
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
        let run = if is_held {
            run
        } else {
            run.behind_seccomp_filter()
        };
        let jail = run.folder().join("jail");
        fs::create_dir(&jail).unwrap();
        let ran = run.arg(what).arg(&jail).interval(1).prefix("t").run();
        assert_eq!(ran.code(), 6, "{what}: {}", ran.stderr);
        let told = ran.library_messages();
        let about_dump = told.iter().filter(|it| it.contains("t.0001.heap"));
        assert_eq!(about_dump.count(), 1, "{told:?}");
        assert!(empty(&jail), "{what}: something was written in there");
        let log = ran.log();
        assert!(log.torn.is_none(), "{what}: {:?}", log.torn);
        assert_eq!(log.blocks_of(20001).len(), 1, "{what}");
        assert_eq!(log.blocks_of(20002).len(), usize::from(is_held), "{what}");
        if is_held {
            assert_eq!(log.whole().end(), Some(EndReason::Exit), "{what}");
            assert_eq!(ran.stderr, "");
        } else {
            ran.assert_said(&["t.heaplog", "the log ends here"]);
        }
    }
}

/// A master that is root, and a worker that gives up its rights or its root directory before it
/// allocates anything.
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

/// At its first sample a worker may no longer make a log in root's folder: it has one from before.
/// The log of a worker without a sample is deleted.
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
            let open = fs::Permissions::from_mode(0o777); // any later user may delete it
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
        assert_eq!(ran.stderr, "");
        ran.assert_noted(&[&format!("t_{worker}.0001.heap")]);
    }
}

/// A worker without a sample that may not delete its log: the log has an end, and says that its
/// process was not killed.
#[test]
fn a_worker_of_root_that_has_nothing_to_tell() {
    if !is_root() {
        return;
    }
    let run = Run::compiled("worker", WORKER, &[]);
    let ran = run.args(["nothing", "-"]).interval(1).prefix("t").run();
    assert_eq!(ran.code(), 7, "{}", ran.stderr);
    let worker = ran.stdout.trim().strip_prefix("worker ").unwrap();
    let log = Log::read(&ran.folder().join(format!("t_{worker}.heaplog"))).whole();
    assert_eq!(log.end(), Some(EndReason::Exit));
    assert_eq!(log.allocs().count(), 0);
    assert_eq!(ran.stderr, "");
}

/// If the library's thread shares the program's descriptors, nothing is made ahead: the worker has
/// no file that it may not make.
#[test]
fn workers_behind_a_seccomp_filter() {
    if !is_root() {
        return;
    }
    for mode in [0o700, 0o777] {
        let run = Run::compiled("worker", WORKER, &[]).behind_seccomp_filter();
        let folder = fs::Permissions::from_mode(mode);
        fs::set_permissions(run.folder(), folder).unwrap();
        let ran = run.args(["uid", "-"]).interval(1).prefix("t").run();
        assert_eq!(ran.code(), 7, "{}", ran.stderr);
        let worker = ran.stdout.trim().strip_prefix("worker ").unwrap();
        let path = ran.folder().join(format!("t_{worker}.heaplog"));
        if mode == 0o700 {
            assert!(!path.exists());
            ran.assert_said(&["permission denied", "nothing is recorded"]);
        } else {
            assert_eq!(Log::read(&path).whole().blocks_of(20002).len(), 1);
            assert_eq!(ran.stderr, "");
        }
    }
}

fn empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// A program that gains rights when started. Only a library in a trusted folder, setuid itself, is
/// loaded into it, which the test arranges in a mount namespace. The library forwards and writes
/// nothing.
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
    // Debian's loader trusts /usr/lib/x86_64-linux-gnu; the library is mounted over a file of
    // another name there.
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
            .arg(Build::get().library())
            .arg(mode)
            .interval(1)
            .inside(run.folder())
            .run()
    };
    // The arrangement must work: the same program without the bit is recorded.
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

/// A worker that goes into a jail before it is recorded, past the exported `chroot`. In the jail
/// there is another folder with the name of the log's folder.
const JAILED: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
void *kept[2];
int main(int argc, char **argv)
{
    int status;
    kept[0] = malloc(20001);
    pid_t worker = fork();
    if (worker == 0) {
        long answer;
        __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_chroot), "D"(argv[1]) : "rcx", "r11", "memory");
        if (answer != 0 || chdir("/") != 0) _exit(1);
        kept[1] = malloc(20002);
        exit(7);
    }
    waitpid(worker, &status, 0);
    return WEXITSTATUS(status);
}
"#;

/// Nothing is written where nobody asked: not into the jail's root, nor into the folder of the same
/// name.
#[test]
fn a_jail_gets_no_files() {
    if !is_root() {
        return;
    }
    for has_prefix in [true, false] {
        let run = Run::compiled("jailed", JAILED, &[]).interval(1);
        let jail = run.folder().join("jail");
        let same_name = jail.join(run.folder().strip_prefix("/").unwrap());
        fs::create_dir_all(&same_name).unwrap();
        let run = if has_prefix { run.prefix("t") } else { run };
        let ran = run.arg(&jail).run();
        assert_eq!(ran.code(), 7, "{}", ran.stderr);
        assert!(empty(&same_name), "something was written in there");
        let in_the_root = fs::read_dir(&jail).unwrap().count();
        assert_eq!(in_the_root, 1, "something was written into the jail's root");
        ran.assert_said(&["the root directory is another one", "nothing is recorded"]);
        assert_eq!(ran.files_ending(".heaplog").len(), 1);
    }
}

/// If the folder of HEAPPROFILE cannot be used, no other one takes its place.
#[test]
fn a_prefix_that_cannot_be_used_has_no_stand_in() {
    let run = Run::fixture("idle")
        .arg("0")
        .interval(1)
        .prefix("no/such/folder/t");
    let ran = run.run().well();
    assert_eq!(ran.files(), [""; 0]);
    ran.assert_said(&[
        "HEAPPROFILE",
        "no/such/folder/t.heaplog",
        "nothing is recorded",
    ]);
}

/// The folder of the start is gone when the child is recorded.
#[test]
fn a_folder_of_the_start_that_is_gone_has_no_stand_in() {
    const MOVES: &str = r#"
        #include <stdlib.h>
        #include <stdio.h>
        #include <sys/wait.h>
        #include <unistd.h>
        void *kept[2];
        int main(void)
        {
            int status;
            kept[0] = malloc(20001);
            if (chdir("..") != 0 || rename("begins", "goes") != 0) return 1;
            pid_t child = fork();
            if (child == 0) {
                kept[1] = malloc(20002);
                exit(7);
            }
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }
    "#;
    let run = Run::compiled("moves", MOVES, &[]).interval(1);
    let begins = run.folder().join("begins");
    fs::create_dir(&begins).unwrap();
    let ran = run.inside(&begins).run();
    assert_eq!(ran.code(), 7, "{}", ran.stderr);
    assert_eq!(ran.files(), ["bin", "goes"]);
    assert_eq!(fs::read_dir(ran.folder().join("goes")).unwrap().count(), 1);
    ran.assert_said(&["no such file or directory", "nothing is recorded"]);
}
