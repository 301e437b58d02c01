//! The library's files: it never writes into another file, whatever the program or the folder does.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use heapprof_format::EndReason;
use heapprof_tests::{Build, Log, Run};

#[test]
fn daemon_close_fds() {
    for (interval, has_seccomp_filter) in [(1, false), (4096, false), (1, true)] {
        let mut run = Run::fixture("daemon_close_fds")
            .interval(interval)
            .prefix("t");
        if has_seccomp_filter {
            run = run.behind_seccomp_filter();
        }
        let folder = run.folder().join("daemon");
        fs::create_dir(&folder).unwrap();
        let ran = run.arg(&folder).run();
        let result = fs::read_to_string(folder.join("result")).unwrap_or_default();
        assert_eq!(result, "ok files\n", "{}", ran.status);
        assert!(ran.status.success());
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
        let log = ran.log().whole();
        assert!(log.end().is_some());
        assert!(
            interval > 1 || !log.blocks_of(18001).is_empty(),
            "it was recorded as a daemon"
        );
    }
}

/// Files that the program opens while it closes a descriptor of the library stay the program's
/// alone, also if the library's thread shares its table.
#[test]
fn a_program_that_closes_our_descriptors_and_opens_its_own() {
    // No dump after a gigabyte, which a fast machine allocates meanwhile. Behind a seccomp filter
    // its descriptor would be among the closed ones, and reported.
    let run = || {
        let run = Run::fixture("reuses_descriptors").interval(1).prefix("t");
        run.env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
    };
    for run in [run(), run().behind_seccomp_filter()] {
        let file = run.folder().join("theirs");
        let ran = run.arg(&file).run().well();
        assert_eq!(
            (ran.stdout.as_str(), ran.stderr.as_str()),
            ("foreign 0\n", "")
        );
        assert_eq!(ran.log().whole().end(), Some(EndReason::Exit));
    }
}

/// Free numbers are the program's: the library's thread opens nothing in its table, and reads
/// nothing in it.
#[test]
fn a_program_that_takes_free_numbers_gets_them_and_keeps_what_is_sent_to_it() {
    let run = Run::fixture("takes_free_numbers").interval(1).prefix("t");
    let ran = run.run();
    assert_eq!(ran.stdout, "ok kept\nok free\n", "{}", ran.stderr);
    assert_eq!(ran.code(), 0);

    // If the library's thread shares the table, a number may be one that it is opening; data sent
    // to the program stay the program's.
    let run = Run::fixture("takes_free_numbers").interval(1).prefix("t");
    let ran = run.behind_seccomp_filter().run();
    assert_eq!(ran.claims().ok.first().map(String::as_str), Some("kept"));
}

/// A descriptor that the program closes is closed.
#[test]
fn our_thread_keeps_nothing_open_that_the_program_had() {
    let run = Run::fixture("closes_a_pipe").interval(1).prefix("t");
    let ran = run.run().well();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("ok end\n", ""));
}

/// Puts a foreign file at `path`; links lead to `target`.
fn put(kind: &str, path: &Path, target: &Path) {
    match kind {
        "symlink" => {
            fs::write(target, "precious").unwrap();
            symlink(target, path).unwrap();
        }
        "dangling symlink" => symlink(target, path).unwrap(),
        "fifo" => {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: a C string that lives through the call.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        }
        "folder" => fs::create_dir(path).unwrap(),
        "file" => fs::write(path, "precious").unwrap(),
        other => panic!("what is a {other}?"),
    }
}

/// A file at the log's name is left alone: a link is not followed, a pipe's reader is not awaited,
/// and the recording goes to another name.
#[test]
fn what_is_in_the_place_of_the_log_is_left_alone() {
    for kind in ["symlink", "dangling symlink", "fifo", "folder", "file"] {
        let run = Run::fixture("exit_ways")
            .arg("exit")
            .interval(1)
            .limit(Duration::from_secs(20))
            .prefix("t");
        let (path, target) = (run.folder().join("t.heaplog"), run.folder().join("target"));
        put(kind, &path, &target);
        let ran = run.run();
        assert_eq!(ran.code(), 3, "{kind}: {}", ran.stderr);
        assert_eq!(ran.stderr, "", "{kind}");
        ran.assert_noted(&["HEAPPROFILE", "exists and is kept"]);
        match kind {
            "symlink" => assert_eq!(fs::read(&target).unwrap(), b"precious"),
            "dangling symlink" => assert!(!target.exists(), "it was followed"),
            "file" => assert_eq!(fs::read(&path).unwrap(), b"precious"),
            _ => {}
        }
        let log = Log::read(
            &ran.folder()
                .join(format!("t_{}.exit_ways.heaplog", ran.pid)),
        )
        .whole();
        assert_eq!(log.blocks_of(17001).len(), 1, "{kind}");
        assert_eq!(ran.dumps().len(), 1, "{kind}");
    }
}

/// A file at the name of a dump, or of an unfinished dump: the dump is beside it, under the next
/// number, or there is a line.
#[test]
fn what_is_in_the_place_of_a_dump_is_left_alone() {
    for name in ["t.0001.heap", "t.0001.heap.PID.unfinished"] {
        for kind in ["symlink", "dangling symlink", "fifo", "folder"] {
            let mut running = Run::compiled("waits_for_go", WAITS_FOR_GO, &[])
                .interval(1)
                .prefix("t")
                .limit(Duration::from_secs(20))
                .start();
            running.until("a log", |running| {
                running.folder().join("t.heaplog").exists()
            });
            let name = name.replace("PID", &running.pid().to_string());
            let (path, target) = (
                running.folder().join(&name),
                running.folder().join("target"),
            );
            put(kind, &path, &target);
            fs::write(running.folder().join("go"), "").unwrap();
            let ran = running.wait();
            assert_eq!((ran.code(), &*ran.stderr), (5, ""), "{kind} at {name}");
            match kind {
                "symlink" => assert_eq!(fs::read(&target).unwrap(), b"precious"),
                "dangling symlink" => assert!(!target.exists(), "it was followed"),
                _ => {}
            }
            assert!(
                fs::symlink_metadata(&path).is_ok(),
                "{kind} at {name} is gone"
            );
            let dump = fs::read(ran.folder().join("t.0002.heap")).unwrap();
            assert!(dump.starts_with(b"heap profile:"), "{kind} at {name}");
        }
    }
}

/// Allocates, waits for a file named `go`, allocates more.
const WAITS_FOR_GO: &str = r#"
#include <stdlib.h>
#include <unistd.h>
void *kept;
int main(void)
{
    kept = malloc(20001);
    while (access("go", F_OK) != 0)
        usleep(10000);
    kept = malloc(20002);
    return 5;
}
"#;

/// A file that is replaced while the program runs. The log that was made is the library's, and its
/// replacement is not, even with the same inode number, which ext4 reuses at once.
#[test]
fn a_log_that_is_replaced_while_running_is_given_up() {
    for kind in ["symlink", "fifo", "folder", "nothing", "file", "truncated"] {
        let mut running = Run::compiled("waits_for_go", WAITS_FOR_GO, &[])
            .interval(1)
            .prefix("t")
            .start();
        let folder = running.folder().to_owned();
        let (path, target) = (folder.join("t.heaplog"), folder.join("target"));
        running.until("a log", |_| {
            path.metadata().is_ok_and(|meta| meta.len() > 100)
        });
        if kind != "truncated" {
            fs::remove_file(&path).unwrap();
        }
        match kind {
            "symlink" => {
                fs::write(&target, "precious").unwrap();
                symlink(&target, &path).unwrap();
            }
            "fifo" => {
                let path = CString::new(path.as_os_str().as_bytes()).unwrap();
                // SAFETY: a C string that lives through the call.
                assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
            }
            "folder" => fs::create_dir(&path).unwrap(),
            // The effect of `: > t.heaplog`.
            "truncated" => drop(fs::File::create(&path).unwrap()),
            "file" => fs::write(&path, "precious").unwrap(),
            _ => {}
        }
        fs::write(folder.join("go"), "").unwrap();
        let ran = running.wait();
        assert_eq!(ran.code(), 5, "{kind}: {}", ran.stderr);
        let about = ran
            .said()
            .iter()
            .filter(|line| line.contains("t.heaplog:"))
            .count();
        assert_eq!(
            about, 1,
            "{kind}: one line says that the log ends: {}",
            ran.stderr
        );
        match kind {
            "symlink" => assert_eq!(fs::read(&target).unwrap(), b"precious"),
            "file" => assert_eq!(fs::read(&path).unwrap(), b"precious"),
            "nothing" => assert!(!path.exists(), "it came back"),
            "truncated" => assert_eq!(path.metadata().unwrap().len(), 0),
            _ => {}
        }
    }
}

#[test]
fn the_working_directory_is_removed() {
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *kept;
int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    kept = malloc(20001);
    if (rmdir(argv[1]) != 0)
        perror("rmdir");
    usleep(200000);
    kept = malloc(20002);
    printf("removed\n");
    return 6;
}
"#;
    for prefix in [None, Some("elsewhere")] {
        let mut run = Run::compiled("leaves", source, &[]).interval(1);
        let gone = run.folder().join("gone");
        fs::create_dir(&gone).unwrap();
        if let Some(prefix) = prefix {
            run = run.prefix(prefix);
        }
        let ran = run.arg(&gone).inside(&gone).run();
        assert_eq!((ran.code(), ran.stdout.as_str()), (6, "removed\n"));
        if prefix.is_some() {
            let log = ran.log().whole();
            assert_eq!(log.blocks_of(20001).len() + log.blocks_of(20002).len(), 2);
        } else {
            // The log is in that folder, so it is not empty and stays.
            assert!(ran.stderr.contains("rmdir"), "{}", ran.stderr);
        }
    }
}

/// The program starts in a removed directory.
#[test]
fn the_working_directory_is_gone_from_the_start() {
    let run = Run::tool("/bin/sh")
        .args([
            "-c",
            "mkdir gone && cd gone && rmdir ../gone && LD_PRELOAD=$1 exec $0 exit",
        ])
        .arg(Build::get().fixture("exit_ways"))
        .arg(Build::get().library())
        .interval(1);
    let ran = run.run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    let astray = format!("/heapprof.exit_ways.{}.heaplog", ran.pid);
    assert!(fs::remove_file(&astray).is_err(), "it recorded to {astray}");
    assert!(ran.stdout.contains("stack 17001"));
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("nothing is recorded"), "{}", ran.stderr);
    assert_eq!(ran.files(), [""; 0]);
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
    assert_eq!(second.stderr, "");
    let new = format!("t_{}.idle", second.pid);
    second.assert_noted(&["HEAPPROFILE", "exists and is kept", &new]);
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
    assert_eq!(ran.stderr, "");
    ran.assert_noted(&["exists and is kept"]);
    assert_eq!(ran.log().whole().blocks_of(19001).len(), 1);
    assert_eq!(ran.dumps().len(), 2);
    // A folder that appears while the program runs is left alone as well.
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

/// A folder is no prefix of names: each process in it has its own names, and no line reports an
/// existing file. A link leads to it.
#[test]
fn a_folder_has_files_named_for_each_process() {
    for words in ["ABSOLUTE/", "records/", "records/.", "link/"] {
        let run = Run::fixture("fork_child").arg("exit").interval(1);
        let folder = run.folder().join("records");
        let prefix = words.replace("ABSOLUTE", &folder.display().to_string());
        std::os::unix::fs::symlink("records", run.folder().join("link")).unwrap();
        fs::create_dir(&folder).unwrap();
        let ran = run.env("HEAPPROFILE", prefix).run().well();
        assert_eq!(ran.stderr, "");
        let child = ran.claims().pid_of("child");
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut expected = Vec::new();
        for pid in [ran.pid, child] {
            for end in ["0001.heap", "heaplog"] {
                expected.push(format!("heapprof.fork_child.{pid}.{end}"));
            }
        }
        expected.sort();
        assert_eq!(names, expected);
    }
}

/// A folder of that name does not change what gperftools' users know: it is a prefix.
#[test]
fn a_name_that_a_folder_has_is_a_prefix() {
    let run = Run::fixture("exit_ways").arg("return").interval(1);
    fs::create_dir(run.folder().join("s")).unwrap();
    let ran = run.env("HEAPPROFILE", "s").run().well();
    for end in ["heaplog", "0001.heap"] {
        assert!(ran.folder().join(format!("s.{end}")).exists(), "{end}");
    }
}

/// The folder in which the program starts, and the one above: their names are no prefixes.
#[test]
fn a_dot_is_the_folder_itself() {
    for dots in [".", "..", "./"] {
        let run = Run::fixture("exit_ways").arg("return").interval(1);
        let start = run.folder().join("start");
        fs::create_dir(&start).unwrap();
        let ran = run.inside(&start).env("HEAPPROFILE", dots).run().well();
        let folder = ran.folder().join("start").join(dots);
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("heapprof.") || name.starts_with('.'))
            .collect();
        names.sort();
        let expected = ["0001.heap", "heaplog"];
        let expected = expected.map(|end| format!("heapprof.exit_ways.{}.{end}", ran.pid));
        assert_eq!(names, expected, "{dots}");
    }
}

#[test]
fn files_are_for_their_owner_only() {
    // Segments of a log with a bound; files of a forked child. The mask takes nothing away.
    for (fixture, a_file) in [("rotates", "t.0001.heap"), ("fork_child", "t_")] {
        let ran = Run::tool("/bin/sh")
            .args(["-c", "umask 0; LD_PRELOAD=$1 exec \"$0\""])
            .arg(Build::get().fixture(fixture))
            .arg(Build::get().library())
            .interval(1)
            .prefix("t")
            .env("HEAPPROF_MAX_LOG", "64K")
            .run()
            .well();
        let files = ran.files();
        // At least two dumps and the log: its other segment may have been deleted for its bound.
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

/// If that differs from the name of the program's file, as for a link or a script, then files,
/// tables and dumps have it, as `ps` does.
#[test]
fn files_are_named_by_what_was_executed() {
    let bin = tempfile::tempdir().unwrap();
    let fixture = Build::get().fixture("exit_ways");
    let link = bin.path().join("another-name");
    symlink(&fixture, &link).unwrap();
    let ran = Run::program(&link).interval(1).run().well();
    let base = format!("heapprof.another-name.{}", ran.pid);
    assert_eq!(ran.files(), [format!("{base}.heaplog")]);
    let program = ran.log().start().program.clone();
    assert_eq!(Path::new(&program), fixture, "where its names are");
    let said = |command: &str, file: &Path| {
        let told = Run::heapprof().arg(command).arg(file).run().well();
        told.stdout
    };
    let head = format!("another-name, pid {}", ran.pid);
    let info = said("info", &ran.log_path());
    assert!(info.starts_with(&head), "{info}");
    assert!(info.contains("\n  executed as   another-name\n"), "{info}");
    assert!(!info.contains("setting       executed"), "{info}");

    let ran = Run::program(&link).interval(1).prefix("t").run().well();
    let top = said("top", &ran.folder().join("t.0001.heap"));
    let head = format!("another-name, pid {}", ran.pid);
    assert!(top.starts_with(&head), "{top}");

    let script = bin.path().join("a-script");
    fs::write(&script, "#!/usr/bin/python3\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Run::program(&script).interval(1).run().well();
    let name = format!("heapprof.a-script.{}.heaplog", ran.pid);
    assert_eq!(ran.files(), [name]);
    assert!(ran.log().start().program.contains("/python3"));
}

/// A descriptor's number is no name.
#[test]
fn what_is_executed_by_its_descriptor_has_its_files_name() {
    const EXECUTES: &str = "import os, sys; \
         os.execve(os.open(sys.argv[1], os.O_RDONLY), ['x', '0'], os.environ)";
    let ran = Run::program("/usr/bin/python3")
        .args(["-c", EXECUTES])
        .arg(Build::get().fixture("idle"))
        .interval(1)
        .run()
        .well();
    let logs = ran.files_ending(".heaplog");
    let names = ["idle", "python3"].map(|name| format!("heapprof.{name}.{}.heaplog", ran.pid));
    assert_eq!(logs, names);
}

/// gperftools marks `HEAPPROFILE` for children by the highest bit of its first byte: a child adds
/// its process id. A path of UTF-8 that begins with such a byte has no mark.
#[test]
fn a_child_by_the_mark_of_gperftools_adds_its_process_id() {
    use std::ffi::OsStr;
    let run = Run::fixture("idle").arg("0").interval(1);
    let mut marked = run.folder().join("t").as_os_str().as_bytes().to_vec();
    marked[0] |= 1 << 7;
    let ran = run
        .env("HEAPPROFILE", OsStr::from_bytes(&marked))
        .run()
        .well();
    assert_eq!(ran.stderr, "");
    let name = format!("t_{}.idle", ran.pid);
    assert_eq!(
        ran.files(),
        [format!("{name}.0001.heap"), format!("{name}.heaplog")]
    );

    let run = Run::fixture("idle").arg("0").interval(1);
    let ran = run.env("HEAPPROFILE", "äb").run().well();
    assert_eq!(ran.files(), ["äb.0001.heap", "äb.heaplog"]);
}

/// A build: many programs that find the files of others, and end before their last dump is written.
/// None prints anything.
#[test]
fn a_build_prints_nothing() {
    let script = "for i in 1 2 3 4 5 6 7 8; do \"$0\" 20000 20000 & wait; done; \"$0\" 20000 20000";
    let run = Run::program("/bin/sh")
        .args(["-c", script])
        .arg(Build::get().fixture("exits"))
        .interval(1)
        .prefix("t")
        .env("HEAPPROF_EXIT_WAIT_MS", "3");
    fs::write(run.folder().join("t.heaplog"), "of an earlier build").unwrap();
    let ran = run.run();
    assert_eq!(ran.stderr, "");
    let notes = ran.notes();
    let count = |words: &str| notes.iter().filter(|it| it.contains(words)).count();
    assert!(count("exists and is kept") >= 8, "{notes:?}");
    assert!(count("the last dump is skipped") >= 1, "{notes:?}");
}
