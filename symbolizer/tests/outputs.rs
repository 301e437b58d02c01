//! Outputs: where they go if nobody says where, and who may read them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{server_log, stderr, write};

/// Runs in a folder, with a mask that takes writing from group and others, as most users have it.
fn heapprof_in(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heapprof"));
    // SAFETY: one system call, which changes what the new process has of its own.
    let command = unsafe {
        command.pre_exec(|| {
            libc::umask(0o022);
            Ok(())
        })
    };
    (command.args(args).current_dir(folder).output()).expect("heapprof can be started")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

/// A folder with a log, to which another user may have added what he likes.
fn shared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "run.heaplog", &server_log(1));
    folder
}

const DEFAULTS: [(&str, &str); 2] = [("report", "run.html"), ("bundle", "run.tar")];

#[test]
fn a_name_that_nobody_typed_is_not_followed() {
    let folder = shared();
    let at = |name: &str| folder.path().join(name);
    write(folder.path(), "precious", b"precious");
    for (command, name) in DEFAULTS {
        type Plant<'a> = &'a dyn Fn(&Path);
        let plants: [(&str, Plant<'_>); 4] = [
            ("a symbolic link", &|path| {
                symlink("precious", path).unwrap()
            }),
            ("a symbolic link", &|path| symlink("nothing", path).unwrap()),
            ("a FIFO", &|path| {
                let made = Command::new("mkfifo").arg(path).status().unwrap();
                assert!(made.success());
            }),
            ("a folder", &|path| fs::create_dir(path).unwrap()),
        ];
        for (what, plant) in plants {
            plant(&at(name));
            let out = heapprof_in(folder.path(), &[command, "run.heaplog"]);
            assert_eq!(out.status.code(), Some(1), "{command} over {what}");
            let said = stderr(&out);
            assert!(
                said.contains(name) && said.contains(what) && said.contains("give -o a name"),
                "{said}"
            );
            assert_eq!(fs::read(at("precious")).unwrap(), b"precious");
            assert!(!at("nothing").exists());
            let _ = fs::remove_file(at(name)).or_else(|_| fs::remove_dir(at(name)));
        }
        // Nor is a file lost that somebody has made.
        write(folder.path(), name, b"before");
        let out = heapprof_in(folder.path(), &[command, "run.heaplog"]);
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(1), "{command}");
        assert!(
            said.contains("exists and is not") && said.contains("of the same"),
            "{said}"
        );
        assert_eq!(fs::read(at(name)).unwrap(), b"before");
        fs::remove_file(at(name)).unwrap();
    }
}

/// A new output replaces one of the same recording, which a reader of the old one still has, and
/// none of another recording, unless its name is typed.
#[test]
fn a_default_name_is_for_outputs_of_one_recording() {
    let folder = shared();
    let at = |name: &str| folder.path().join(name);
    let run = |args: &[&str]| heapprof_in(folder.path(), args);
    for (command, name) in DEFAULTS {
        assert!(run(&[command, "run.heaplog"]).status.success());
        fs::hard_link(at(name), at("old")).unwrap();
        let old = fs::metadata(at("old")).unwrap().ino();
        let again = run(&[command, "run.heaplog"]);
        assert!(again.status.success(), "{}", stderr(&again));
        assert_ne!(fs::metadata(at(name)).unwrap().ino(), old);
        fs::remove_file(at("old")).unwrap();

        fs::create_dir_all(at("other")).unwrap();
        let mut other = crate::common::LogBuilder::new(1);
        other.start_of("/bin/other", 5, 6);
        write(folder.path(), "other/run.heaplog", &other.end());
        let before = fs::read(at(name)).unwrap();
        let out = run(&[command, "other/run.heaplog"]);
        assert_eq!(out.status.code(), Some(1), "{command}");
        assert!(
            stderr(&out).contains("exists and is not"),
            "{}",
            stderr(&out)
        );
        assert_eq!(fs::read(at(name)).unwrap(), before);
        let out = run(&[command, "other/run.heaplog", "-o", name]);
        assert!(out.status.success(), "{}", stderr(&out));
        assert_ne!(fs::read(at(name)).unwrap(), before);
        fs::remove_file(at(name)).unwrap();
    }
    // Several logs are other logs than the first alone.
    assert!(run(&["report", "run.heaplog"]).status.success());
    let both = ["report", "run.heaplog", "other/run.heaplog"];
    assert_eq!(run(&both).status.code(), Some(1));
}

/// A name that the user typed is followed, as everywhere.
#[test]
fn a_name_that_was_typed_is_followed() {
    let folder = shared();
    write(folder.path(), "target", b"before");
    symlink("target", folder.path().join("run.html")).unwrap();
    let out = heapprof_in(folder.path(), &["report", "run.heaplog", "-o", "run.html"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(folder.path().join("run.html").is_symlink());
    assert!(
        fs::read(folder.path().join("target"))
            .unwrap()
            .starts_with(b"<!")
    );
}

#[test]
fn dumps_are_written_through_no_link_either() {
    let folder = shared();
    let at = |name: &str| folder.path().join(name);
    write(folder.path(), "precious", b"precious");
    symlink("precious", at("run.0001.heap")).unwrap();
    symlink("nothing", at("run.0002.heap")).unwrap();
    let out = heapprof_in(folder.path(), &["dump", "--every", "peak", "run.heaplog"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(
        fs::read(at("run.0003.heap"))
            .unwrap()
            .starts_with(b"heap profile: ")
    );
    assert_eq!(fs::read(at("precious")).unwrap(), b"precious");
    assert!(!at("nothing").exists());
}

#[test]
fn what_is_made_of_a_log_is_no_wider_than_the_log() {
    let folder = shared();
    let at = |name: &str| folder.path().join(name);
    write(folder.path(), "other.heaplog", &server_log(1));
    let commands: [(&[&str], &str); 11] = [
        (&["report", "run.heaplog"], "run.html"),
        (&["bundle", "run.heaplog"], "run.tar"),
        (&["dump", "--every", "peak", "run.heaplog"], "run.0001.heap"),
        (&["join", "run.heaplog", "-o", "out"], "out"),
        (&["symbolize", "run.heaplog", "-o", "out"], "out"),
        (&["timeline", "--svg", "run.heaplog", "-o", "out"], "out"),
        (&["export", "-f", "json", "run.heaplog", "-o", "out"], "out"),
        (
            &["export", "-f", "pprof", "run.heaplog", "-o", "out"],
            "out",
        ),
        (
            &["diff", "other.heaplog", "run.heaplog", "-o", "out"],
            "out",
        ),
        (
            &[
                "export",
                "-f",
                "csv",
                "other.heaplog",
                "run.heaplog",
                "-o",
                "out",
            ],
            "out",
        ),
        (
            &[
                "export",
                "-f",
                "csv",
                "--joined",
                "other.heaplog",
                "run.heaplog",
                "-o",
                "out",
            ],
            "out",
        ),
    ];
    for (of_log, of_output) in [
        (0o600, 0o600),
        (0o640, 0o640),
        (0o644, 0o644),
        (0o400, 0o600),
    ] {
        fs::set_permissions(at("run.heaplog"), Permissions::from_mode(of_log)).unwrap();
        for (args, output) in &commands {
            let out = heapprof_in(folder.path(), args);
            assert!(out.status.success(), "{args:?}: {}", stderr(&out));
            assert_eq!(
                mode(&at(output)),
                of_output,
                "{args:?} of a log of {of_log:o}"
            );
            fs::remove_file(at(output)).unwrap();
        }
    }
}

/// Unpacked, a bundle gives nobody else the log.
#[test]
fn a_bundles_members_are_their_owners() {
    let folder = shared();
    let out = heapprof_in(folder.path(), &["bundle", "run.heaplog"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let bytes = fs::read(folder.path().join("run.tar")).unwrap();
    let mut archive = tar::Archive::new(&bytes[..]);
    for entry in archive.entries().unwrap() {
        assert_eq!(entry.unwrap().header().mode().unwrap(), 0o600);
    }
}
