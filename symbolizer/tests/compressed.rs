//! Compressed logs: every command prints the same as for the plain log, and they take a log's place
//! safely.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use crate::common::encoded::{alloc, free, stack, start};
use crate::common::{LogBuilder, heapprof, ok, stderr, stdout, write};
use heapprof_format::{
    Checkpoint, Encoder, EndReason, FILE_HEADER, FORKED_AT, PARENT_LOG, Record, Start,
};

const S: u64 = 1_000_000_000;

/// A log of many frames, of a process that ended.
fn log() -> Vec<u8> {
    let mut log = LogBuilder::new(1);
    log.module("/app/server", 0x1000, 0x9000);
    let stacks: Vec<u32> = (0..20)
        .map(|n| log.stack(&[0x1100 + n, 0x2000, 0x3000]))
        .collect();
    let mut live = Vec::new();
    for n in 0..60_000_u64 {
        let size = n * n % 5003;
        live.push(log.alloc(stacks[(n * n % 19) as usize], size));
        if n % 3 > 0 {
            log.free(live.swap_remove((n * 7919 % live.len() as u64) as usize));
        }
        log.wait(n % 40);
        if n % 2000 == 0 {
            log.flush();
        }
    }
    log.end()
}

fn compressed(log: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    heapprof_symbolizer::pack(log, &mut compressed, |_| {}).unwrap();
    compressed
}

fn said(output: &Output) -> String {
    format!(
        "{:?}\n{}{}",
        output.status.code(),
        stdout(output),
        stderr(output)
    )
}

/// Names of a folder's files.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Each command in a folder of its own, where the log has the same name.
#[test]
fn every_command_says_the_same() {
    let log = log();
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let whole = zstd::stream::encode_all(&log[..], 1).unwrap();
    for (folder, bytes) in folders.iter().zip([&log, &compressed(&log), &whole]) {
        write(folder.path(), "a.heaplog", bytes);
        write(folder.path(), "b.heaplog", &log);
    }
    assert!(compressed(&log).len() * 2 < log.len());
    for words in [
        "top a.heaplog",
        "top --at peak a.heaplog",
        "top -m temporary --json a.heaplog",
        "top a.heaplog b.heaplog",
        "top --joined --at peak a.heaplog b.heaplog",
        "tree a.heaplog",
        "info a.heaplog",
        "info --json a.heaplog",
        "symbolize a.heaplog",
        "timeline a.heaplog",
        "explain a.heaplog",
        "rss a.heaplog",
        "diff a.heaplog b.heaplog",
        "diff --from 0 --to end a.heaplog",
        "check --fail-above 1GiB a.heaplog",
        "export -f csv a.heaplog",
        "export -f json a.heaplog",
        "export -f dhat a.heaplog",
        "export -f pprof -o out a.heaplog",
        "export -f firefox -o out a.heaplog",
        "dump -o d a.heaplog",
        "join -o out a.heaplog",
        "join -o out a.heaplog b.heaplog",
        "bundle -o out a.heaplog",
        "report -o out a.heaplog",
        "at 0x1000 a.heaplog",
    ] {
        let results = folders.each_ref().map(|folder| {
            let at = |name: &str| folder.path().join(name);
            let output = Command::new(env!("CARGO_BIN_EXE_heapprof"))
                .args(words.split(' '))
                .current_dir(folder.path())
                .output()
                .unwrap();
            let out = fs::read(at("out")).ok();
            for name in names(folder.path()) {
                if !["a.heaplog", "b.heaplog"].contains(&name.as_str()) {
                    fs::remove_file(at(&name)).unwrap();
                }
            }
            (said(&output), out)
        });
        let [plain, ours, foreign] = results;
        assert!(!plain.0.contains("panicked"), "{words}: {}", plain.0);
        assert!(ours == plain, "{words}:\n{}\n{}", plain.0, ours.0);
        assert!(foreign == plain, "{words}:\n{}\n{}", plain.0, foreign.0);
    }
}

/// A name that `zstd` gave it, kept names beside it, and a bundle that was compressed.
#[test]
fn what_zstd_made_is_read_under_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let log = log();
    let plain = write(folder.path(), "a.heaplog", &log)
        .display()
        .to_string();
    let other = write(
        folder.path(),
        "b.heaplog.zst",
        &zstd::bulk::compress(&log, 1).unwrap(),
    );
    let other = other.display().to_string();
    let top = ok(&["top", &plain]);
    assert_eq!(ok(&["top", &other]), top);
    let bundle = folder.path().join("b.tar");
    ok(&["bundle", "-o", bundle.to_str().unwrap(), &other]);
    let bytes = fs::read(&bundle).unwrap();
    assert!(bytes.starts_with(b"b.heaplog\0"));
    let packed = write(
        folder.path(),
        "b.tar.zst",
        &zstd::bulk::compress(&bytes, 1).unwrap(),
    );
    assert_eq!(ok(&["top", packed.to_str().unwrap()]), top);
    let refused = heapprof(&["compress", "-d", &other]);
    assert!(stderr(&refused).contains(&format!("zstd -d {other}")));
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn a_log_is_exchanged_and_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = log();
    let path = write(folder.path(), "a.heaplog", &bytes);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let file = path.to_str().unwrap();
    let about = || {
        let meta = fs::symlink_metadata(&path).unwrap();
        (
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.modified().unwrap(),
        )
    };
    let before = about();
    let output = heapprof(&["compress", link.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("before, "), "{}", stderr(&output));
    let small = fs::read(&path).unwrap();
    assert_eq!(small, compressed(&bytes));
    assert!(zstd::stream::decode_all(&small[..]).unwrap() == bytes);
    assert_eq!(about(), before);
    assert_eq!(names(folder.path()), ["a.heaplog", "link"]);
    assert!(link.is_symlink());
    // Under a name without a folder, too, it is one file.
    let relative = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(["compress", "a.heaplog"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let words = "heapprof: a.heaplog: compressed already\n";
    assert_eq!(stderr(&relative), words);
    let again = heapprof(&["compress", file]);
    assert!(stderr(&again).contains("compressed already") && again.status.success());
    // It is a recording: nothing takes its place.
    let refused = heapprof(&["export", "-f", "csv", "-o", file, file]);
    assert!(!refused.status.success());
    let other = write(folder.path(), "b.heaplog", &bytes)
        .display()
        .to_string();
    let refused = heapprof(&["export", "-f", "csv", "-o", file, &other]);
    assert!(
        stderr(&refused).contains("it is a record log"),
        "{}",
        stderr(&refused)
    );
    ok(&["compress", "-d", file]);
    assert!(fs::read(&path).unwrap() == bytes);
    assert_eq!(about(), before);
    let plain = heapprof(&["compress", "-d", file]);
    assert!(stderr(&plain).contains("not compressed") && plain.status.success());
}

/// Cut and damaged logs are compressed as the bytes that they are.
#[test]
fn a_cut_or_damaged_log_is_not_made_worse() {
    let folder = tempfile::tempdir().unwrap();
    let log = log();
    let mut damaged = log.clone();
    let middle = log.len() / 2;
    damaged[middle..middle + 100].fill(0x55);
    for bytes in [&log[..log.len() - 7777], &log[..log.len() / 3], &damaged] {
        let path = write(folder.path(), "a.heaplog", bytes)
            .display()
            .to_string();
        let before = said(&heapprof(&["info", &path]));
        ok(&["compress", &path]);
        assert!(fs::metadata(&path).unwrap().len() < bytes.len() as u64 / 2);
        assert_eq!(said(&heapprof(&["info", &path])), before);
        ok(&["compress", "-d", &path]);
        assert!(fs::read(&path).unwrap() == bytes);
    }
    // And what cannot be made smaller stays.
    let short = write(folder.path(), "s.heaplog", &FILE_HEADER);
    let output = heapprof(&["compress", short.to_str().unwrap()]);
    assert!(
        stderr(&output).contains("cannot be made smaller"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read(&short).unwrap(), FILE_HEADER);
}

/// No command says "exact" of a compressed log that is damaged or cut, and all say where.
#[test]
fn damage_of_the_compressed_file_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let log = log();
    let packed = compressed(&log);
    let mut damaged = packed.clone();
    damaged[packed.len() / 2] ^= 0x10;
    for (bytes, words) in [
        (&damaged[..], "the compressed file is damaged at offset"),
        (
            &packed[..packed.len() - 5],
            "the compressed file is cut off behind offset",
        ),
    ] {
        let path = write(folder.path(), "a.heaplog", bytes)
            .display()
            .to_string();
        let info = said(&heapprof(&["info", &path]));
        assert!(info.contains(words), "{info}");
        let top = heapprof(&["top", "--json", &path]);
        assert!(stderr(&top).contains(words), "{}", stderr(&top));
        let document: serde_json::Value = serde_json::from_str(&stdout(&top)).unwrap();
        assert_eq!(document["complete"], false);
        let caveats = document["caveats"].to_string();
        assert!(
            caveats.contains("damaged") || caveats.contains("cut off"),
            "{caveats}"
        );
        let table = stdout(&heapprof(&["top", &path]));
        assert!(!table.contains("exact"), "{table}");
        let judged = heapprof(&["top", "--fail-above", "9GiB", &path]);
        assert_eq!(judged.status.code(), Some(4));
        let joined = folder.path().join("j").display().to_string();
        let output = heapprof(&["join", "-o", &joined, &path]);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        // It is not unpacked in its place: what it was is lost for good.
        let refused = heapprof(&["compress", "-d", &path]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
        assert!(fs::read(&path).unwrap() == bytes);
        fs::remove_file(joined).unwrap();
    }
    // Nothing of it is left.
    let mut lost = packed;
    lost.truncate(30);
    let path = write(folder.path(), "a.heaplog", &lost)
        .display()
        .to_string();
    let output = heapprof(&["top", &path]);
    let words = "the compressed file is cut off behind offset 0, and nothing of it can be used";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}

/// A file that claims gigabytes, and one that has them.
#[test]
fn a_bomb_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = FILE_HEADER.to_vec();
    bytes.resize(200 << 20, 0);
    for bomb in [
        zstd::bulk::compress(&bytes, 1).unwrap(),
        zstd::stream::encode_all(&bytes[..], 1).unwrap(),
    ] {
        let path = write(folder.path(), "a.heaplog", &bomb);
        let output = heapprof(&["top", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        let words = "made to fill disks";
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        let output = heapprof(&["compress", "-d", path.to_str().unwrap()]);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert!(fs::read(&path).unwrap() == bomb);
    }
}

/// The log of a process that runs, with and without an end, and one that is open somewhere.
#[test]
fn a_log_that_is_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap().display().to_string();
    let own = |has_end: bool| {
        let mut log = LogBuilder::new(1);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        log.start_of(&exe, std::process::id(), now.as_nanos() as u64);
        let stack = log.stack(&[0x1100]);
        (0..100).for_each(|_| {
            log.alloc(stack, 5);
        });
        match has_end {
            true => log.end(),
            false => log.cut(),
        }
    };
    let running = write(folder.path(), "running.heaplog", &own(false));
    let ended = write(folder.path(), "ended.heaplog", &own(true));
    let open = write(folder.path(), "open.heaplog", &own(true));
    let writer = OpenOptions::new().append(true).open(&open).unwrap();
    let refused = |path: &Path| {
        let before = fs::read(path).unwrap();
        let output = heapprof(&["compress", path.to_str().unwrap()]);
        let is_refused = stderr(&output).contains("is being written: its process runs");
        assert_eq!(output.status.success(), !is_refused, "{}", stderr(&output));
        assert_eq!(fs::read(path).unwrap() == before, is_refused);
        is_refused
    };
    assert!(refused(&running));
    assert!(!refused(&ended));
    assert!(refused(&open));
    drop(writer);
    assert!(!refused(&open));
}

/// A folder that cannot be written to, a full disk, and no place for temporary files.
#[test]
fn what_cannot_be_written_leaves_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = log();
    let path = write(folder.path(), "a.heaplog", &bytes)
        .display()
        .to_string();
    // As a full disk ends a write.
    let limited = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 100; exec \"$0\" compress \"$1\"",
        ])
        .args([env!("CARGO_BIN_EXE_heapprof"), &path])
        .output()
        .unwrap();
    assert_eq!(limited.status.code(), Some(1));
    let words = format!("cannot write {path}: File too large");
    assert!(stderr(&limited).contains(&words), "{}", stderr(&limited));
    assert!(fs::read(&path).unwrap() == bytes);
    assert_eq!(names(folder.path()), ["a.heaplog"]);
    ok(&["compress", &path]);
    let with_tmpdir = |place: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heapprof"));
        command
            .args(["top", &path])
            .env("TMPDIR", place)
            .output()
            .unwrap()
    };
    let output = with_tmpdir("/nowhere");
    for words in [
        "unpacked into /nowhere",
        "TMPDIR names another",
        "compress -d",
    ] {
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert!(
        with_tmpdir(folder.path().to_str().unwrap())
            .status
            .success()
    );
    assert!(
        names(folder.path())
            .iter()
            .all(|name| name.starts_with("a.heaplog"))
    );
    // Only root can write there all the same.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    // SAFETY: a question without arguments.
    if unsafe { libc::geteuid() } != 0 {
        let output = heapprof(&["compress", "-d", &path]);
        assert!(
            stderr(&output).contains("Permission denied"),
            "{}",
            stderr(&output)
        );
        assert!(fs::read(&path).unwrap() == compressed(&bytes));
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let missing = heapprof(&["compress", &format!("{path}.none"), &path]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        stderr(&missing).contains("compressed already"),
        "the others are done"
    );
    let text = write(folder.path(), "t", b"text").display().to_string();
    assert!(stderr(&heapprof(&["compress", &text])).contains("no record log"));
}

/// All segments of a log that rotated, one of them compressed before; and a parent's log.
#[test]
fn segments_and_parents_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let segment = |number: u32| {
        let mut encoder = Encoder::new();
        start(
            &mut encoder,
            31,
            31 * S,
            vec![("HEAPPROF_MAX_LOG".into(), "1".into())],
        );
        let mut bytes = [&FILE_HEADER[..], encoder.finish()].concat();
        let at = u64::from(number) * S;
        if number > 1 {
            encoder.record(&Record::Checkpoint(Checkpoint {
                segment: number,
                time_ns: at,
                intervals: (1, 1),
                ..Checkpoint::default()
            }));
        }
        stack(&mut encoder);
        for id in 1..u64::from(number) {
            alloc(&mut encoder, id * S, id, 1000);
        }
        if number > 1 {
            encoder.record(&Record::CheckpointEnd { time_ns: at });
        }
        alloc(&mut encoder, at + 1, number.into(), 1000);
        for id in 0..500 {
            alloc(&mut encoder, at + 1, 1000 * at + id, 7);
            free(&mut encoder, at + 1, 1000 * at + id);
        }
        if number == 3 {
            let (time_ns, reason) = (at + 2, EndReason::Exit);
            encoder.record(&Record::End { time_ns, reason });
        }
        bytes.extend_from_slice(encoder.finish());
        bytes
    };
    let put = |name: &str, bytes: &[u8]| write(folder.path(), name, bytes).display().to_string();
    put("s.0001.heaplog", &segment(1));
    put("s.0002.heaplog", &compressed(&segment(2)));
    let newest = put("s.heaplog", &segment(3));
    // A file of another log.
    put("t.0002.heaplog", &segment(2)[..60]);
    let document = |path: &str| said(&heapprof(&["info", "--json", path]));
    let before = document(&newest);
    assert!(before.contains("\"segments\""), "{before}");
    let output = heapprof(&["compress", &newest]);
    let lines = stderr(&output);
    assert_eq!(lines.matches(" before, ").count(), 2, "{lines}");
    assert!(
        lines.contains("s.0002.heaplog: compressed already"),
        "{lines}"
    );
    assert_eq!(document(&newest), before);
    assert!(ok(&["top", &newest]).contains("3.0 KB") || ok(&["top", &newest]).contains("KiB"));

    let mut child = Encoder::new();
    child.record(&Record::Start(Start {
        pid: 32,
        forked_from: 31,
        interval: 1,
        monotonic_ns: 40 * S,
        parent_log_number: 31,
        settings: vec![
            (FORKED_AT.into(), (35 * S).to_string()),
            (PARENT_LOG.into(), newest.clone()),
        ],
        ..Start::default()
    }));
    let child = put(
        "child.heaplog",
        &[&FILE_HEADER[..], child.finish()].concat(),
    );
    let compressed = said(&heapprof(&["top", &child]));
    ok(&["compress", "-d", &newest]);
    assert_eq!(said(&heapprof(&["top", &child])), compressed);
}
