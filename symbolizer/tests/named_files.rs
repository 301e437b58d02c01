//! Files that options name: an output takes no input's place, and what names are to be found in
//! must be there.

use crate::common::{LogBuilder, heapprof, server_log, stderr};
use heapprof_format::{Checkpoint, Record};

/// The only recording of a run is not replaced by what was made of it, by whatever name it is
/// called.
#[test]
fn an_output_never_replaces_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let bytes = server_log(1);
    crate::common::write(folder.path(), "a.heaplog", &bytes);
    crate::common::write(folder.path(), "a.tar", &bytes);
    // Another one, that is not read.
    crate::common::write(folder.path(), "b.heaplog", &bytes);
    let (log, tar, other, link) = (
        path("a.heaplog"),
        path("a.tar"),
        path("b.heaplog"),
        path("l"),
    );
    std::os::unix::fs::symlink(&log, &link).unwrap();
    let hard = path("hard");
    std::fs::hard_link(&log, &hard).unwrap();
    let dump = path("a.heap");
    assert!(
        heapprof(&["export", "-f", "gperftools", "-o", &dump, &log])
            .status
            .success()
    );
    let before = std::fs::read(&dump).unwrap();
    for args in [
        &["export", "-f", "folded", "-o", &log, &log][..],
        &["export", "-f", "folded", "-o", &link, &log],
        &["export", "-f", "folded", "-o", &hard, &log],
        &["export", "-f", "folded", "-o", &other, &log, &other],
        &["export", "-f", "folded", "-o", &other, &log],
        &["export", "-f", "symbolized", "-o", &dump, &dump],
        &["symbolize", "-o", &dump, &dump],
        &["symbolize", "-o", &log, &log],
        &["bundle", "-o", &log, &log],
        &["bundle", &tar],
        &["diff", "-o", &other, &log, &other],
        &["timeline", "-o", &log, &log],
        &["report", "-o", &other, &log],
    ] {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .args(args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(
            stderr(&out).contains("give -o another name"),
            "{args:?}: {}",
            stderr(&out)
        );
        for file in [&log, &tar, &other] {
            assert!(std::fs::read(file).unwrap() == bytes, "{args:?}: {file}");
        }
        assert!(std::fs::read(&dump).unwrap() == before, "{args:?}");
    }
    // Another output is replaced as ever, and a device is written to.
    for out in [&path("x.folded"), &path("x.folded"), "/dev/null"] {
        assert!(
            heapprof(&["export", "-f", "folded", "-o", out, &log])
                .status
                .success()
        );
    }
}

/// An older segment is read as well, though nobody named it.
#[test]
fn nor_any_segment_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogBuilder::new(1);
    log.given(&Record::Checkpoint(Checkpoint {
        segment: 2,
        ..Checkpoint::default()
    }));
    log.given(&Record::CheckpointEnd { time_ns: 0 });
    let bytes = log.end();
    let older = crate::common::write(folder.path(), "s.0001.heaplog", &bytes);
    let newest = crate::common::write(folder.path(), "s.heaplog", &server_log(1));
    let (older, newest) = (older.to_str().unwrap(), newest.to_str().unwrap());
    let out = heapprof(&["export", "-f", "folded", "-o", older, newest]);
    assert_eq!(out.status.code(), Some(1));
    assert!(std::fs::read(older).unwrap() == bytes);
}

/// Names that are missing because of a slip in an option look like names that nobody has.
#[test]
fn places_of_names_that_are_not_there_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let log = crate::common::write(folder.path(), "a.heaplog", &server_log(1));
    let log = log.to_str().unwrap();
    for option in ["--debug-dir", "--sysroot", "--perf-map"] {
        for command in [
            &["top"][..],
            &["tree"],
            &["info"],
            &["export", "-f", "folded"],
            &["diff", log],
        ] {
            let out = heapprof(&[command, &[option, "/no/such", log]].concat());
            assert_eq!(out.status.code(), Some(1), "{command:?} {option}");
            let words = format!("{option} /no/such: No such file");
            assert!(stderr(&out).contains(&words), "{}", stderr(&out));
        }
    }
    let out = heapprof(&["top", "--perf-map", folder.path().to_str().unwrap(), log]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        stderr(&out).contains("a folder, and no map"),
        "{}",
        stderr(&out)
    );
    // A file that is no bundle has no names below it.
    for option in ["--debug-dir", "--sysroot"] {
        let out = heapprof(&["top", option, log, log]);
        assert_eq!(out.status.code(), Some(1), "{option}");
        assert!(
            stderr(&out).contains("neither a folder nor a bundle"),
            "{}",
            stderr(&out)
        );
    }
    let here = folder.path().to_str().unwrap();
    assert!(
        heapprof(&["top", "--debug-dir", here, "--sysroot", here, log])
            .status
            .success()
    );
}

/// The target of a link is written to, and the link stays.
#[test]
fn an_output_does_not_replace_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let log = crate::common::write(folder.path(), "a.heaplog", &server_log(1));
    let file = crate::common::write(folder.path(), "target.folded", b"before");
    let link = folder.path().join("link.folded");
    std::os::unix::fs::symlink("target.folded", &link).unwrap();
    let out = heapprof(&[
        "export",
        "-f",
        "folded",
        "-o",
        link.to_str().unwrap(),
        log.to_str().unwrap(),
    ]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(link.is_symlink());
    assert_ne!(std::fs::read(&file).unwrap(), b"before");
}

/// `-o /dev/stdout` is standard output, also where that is a file: as root, /dev/stdout itself was
/// replaced by one.
#[test]
fn standard_output_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let log = crate::common::write(folder.path(), "a.heaplog", &server_log(1));
    let into = folder.path().join("redirected");
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_heapprof"))
        // As /dev/stdout, but nobody's machine suffers.
        .args(["export", "-f", "folded", "-o", "/proc/self/fd/1"])
        .arg(&log)
        .stdout(std::fs::File::create(&into).unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    let direct = heapprof(&["export", "-f", "folded", log.to_str().unwrap()]);
    assert_eq!(std::fs::read(&into).unwrap(), direct.stdout);
}

/// `heapprof dump … | head -1` makes all dumps.
#[test]
fn dumps_are_made_also_when_nobody_reads_their_names() {
    let made = |is_read: bool| {
        let folder = tempfile::tempdir().unwrap();
        let log = crate::common::write(folder.path(), "a.heaplog", &server_log(1));
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .args(["dump", "--every", "1"])
            .arg(&log)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        if !is_read {
            drop(child.stdout.take());
        }
        assert!(child.wait_with_output().unwrap().status.success());
        std::fs::read_dir(folder.path()).unwrap().count()
    };
    assert!(made(true) > 2);
    assert_eq!(made(true), made(false));
}
