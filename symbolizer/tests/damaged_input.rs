//! Every command on input that is damaged, cut, foreign or empty: exit status 1 and one line that
//! names the file, the offset or line, and the cause; or, where something can be read, what was.

use std::path::Path;

use crate::common::{SERVER_TRUTH, heapprof, server_log, stderr, stdout, totals_line, write};
use heapprof_symbolizer::export::Format;

/// All commands that read a file, without the file.
fn commands() -> Vec<Vec<&'static str>> {
    let mut commands = vec![
        vec!["top"],
        vec!["top", "--json"],
        vec!["info"],
        vec!["symbolize"],
    ];
    commands.extend(
        Format::ALL
            .iter()
            .map(|format| vec!["export", "--format", format.name()]),
    );
    commands
}

/// Runs each command on the file and expects each to fail with all of these words.
fn all_fail(file: &Path, words: &[&str]) {
    for command in commands() {
        let mut args = command.clone();
        let path = file.display().to_string();
        args.push(&path);
        let output = heapprof(&args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?} wrote something");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.starts_with("heapprof: ") && said.contains(&path),
            "{said}"
        );
        for word in words {
            assert!(said.contains(word), "{args:?}: `{word}` is not in: {said}");
        }
    }
}

#[test]
fn what_is_no_profile_is_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let log = server_log(1);
    let dump = "heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ 0x1\n\nMAPPED_LIBRARIES:\n";
    let mut newer = log.clone();
    newer[7] = 9;
    let mut rotten = log.clone();
    rotten[8..].fill(0x55);
    let cases: [(&str, &[u8], &[&str]); 14] = [
        ("empty", b"", &["offset 0", "empty"]),
        (
            "foreign",
            b"\x7fELF and so on, no profile at all",
            &["offset 0", "neither"],
        ),
        ("text", b"hello\nworld\n", &["offset 0", "neither"]),
        ("gzip", b"\x1f\x8b\x08\0rest", &["offset 0", "gzip"]),
        (
            "cut-in-header",
            &log[..5],
            &["offset 0", "cut off in its first 8 bytes, 5 are there"],
        ),
        ("one-byte", &log[..1], &["offset 0", "cut off"]),
        ("header-only", &log[..8], &["offset 8", "cut off"]),
        ("cut-in-first-frame", &log[..40], &["offset 8", "cut off"]),
        ("newer", &newer, &["offset 0", "version 9"]),
        ("rotten", &rotten, &["offset 8", "no frame"]),
        (
            "dump-cut",
            &dump.as_bytes()[..50],
            &["line 2", "malformed line"],
        ),
        (
            "dump-cut-between-lines",
            &dump.as_bytes()[..40],
            &["line 1", "offset 40", "cut off"],
        ),
        ("dump-header", b"heap profile: x\n", &["line 1", "header"]),
        (
            "dump-line",
            b"heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ 0xzz\n",
            &["line 2", "offset 40", "malformed line"],
        ),
    ];
    for (name, bytes, words) in cases {
        all_fail(&write(folder.path(), name, bytes), words);
    }
    all_fail(&folder.path().join("missing"), &["No such file"]);
    all_fail(folder.path(), &["it is a folder"]);
}

#[test]
fn a_torn_log_is_read_up_to_the_tear_and_every_command_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let log = server_log(1);
    let torn = write(folder.path(), "torn.heaplog", &log[..log.len() - 3])
        .display()
        .to_string();
    for mut args in commands() {
        args.push(&torn);
        let output = heapprof(&args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("cut off at offset") && said.contains("torn.heaplog"),
            "{args:?}: {said}"
        );
    }
    let to = folder.path().join("dumps").display().to_string();
    for args in [
        vec!["timeline", &torn],
        vec!["report", "-o", "-", &torn],
        vec!["dump", "--every", "1KiB", "-o", &to, &torn],
    ] {
        let said = stderr(&heapprof(&args));
        assert!(said.contains("cut off at offset"), "{args:?}: {said}");
    }
    // All blocks stand before the tear.
    let [objects, bytes, ..] = totals_line(&stdout(&heapprof(&["top", &torn])));
    assert_eq!((objects, bytes), (SERVER_TRUTH[0], SERVER_TRUTH[1]));
    assert!(stdout(&heapprof(&["info", &torn])).contains("cut off at offset"));
}

#[test]
fn a_damaged_frame_is_passed_over_and_every_command_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = server_log(1);
    let last_frame = log.windows(4).rposition(|w| w == b"\xf8hp\xff").unwrap();
    log[last_frame - 1] ^= 1; // in the last byte of the frame before
    let damaged = write(folder.path(), "damaged.heaplog", &log)
        .display()
        .to_string();
    for mut args in commands() {
        args.push(&damaged);
        let output = heapprof(&args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("checksum mismatch"),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    // The requests and buffers were in the damaged frame.
    assert_eq!(
        totals_line(&stdout(&heapprof(&["top", &damaged])))[1],
        (8 << 20) + 128
    );
}

#[test]
fn no_cut_and_no_flipped_byte_makes_a_command_panic() {
    let folder = tempfile::tempdir().unwrap();
    let log = server_log(4096);
    for at in (0..log.len()).step_by(7) {
        let mut flipped = log.clone();
        flipped[at] ^= 0xff;
        for (name, bytes) in [("cut", &log[..at]), ("flipped", &flipped[..])] {
            let file = write(folder.path(), name, bytes).display().to_string();
            let output = heapprof(&["info", &file]);
            assert!(
                matches!(output.status.code(), Some(0 | 1)),
                "{name} at {at}: {}",
                stderr(&output)
            );
            assert!(
                !stderr(&output).contains("panicked"),
                "{name} at {at}: {}",
                stderr(&output)
            );
        }
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "run.heaplog", &server_log(1));
    let mut child = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(["export", "--format", "json"])
        .arg(&log)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_failed_output_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "run.heaplog", &server_log(1))
        .display()
        .to_string();
    let missing = folder
        .path()
        .join("no-such-folder/out.svg")
        .display()
        .to_string();
    let output = heapprof(&["export", "-f", "flamegraph", "-o", &missing, &log]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&missing), "{}", stderr(&output));
    // Nor is its own input touched (`named_files.rs`).
    assert!(!heapprof(&["symbolize", "-o", &log, &log]).status.success());
    assert_eq!(
        totals_line(&stdout(&heapprof(&["top", &log]))),
        SERVER_TRUTH
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing partial is left"
    );
}

#[test]
fn names_do_not_speak_to_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let dump = "--- symbol\nbinary=/bin/x\n0x1010 evil\u{1b}[2J\u{1b}]0;title\u{7}\n---\n\
                heap profile: 1: 2 [3: 4] @ heapprofile\n# program: /bin/\u{1b}[31mred\n1: 2 [3: 4] @ 0x1010\n\nMAPPED_LIBRARIES:\n";
    let file = write(folder.path(), "evil.heap", dump.as_bytes())
        .display()
        .to_string();
    for command in [["top", &file], ["info", &file]] {
        let output = heapprof(&command);
        let shown = stdout(&output) + &stderr(&output);
        assert!(output.status.success(), "{shown}");
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n'),
            "{shown:?}"
        );
    }
    assert!(stdout(&heapprof(&["top", &file])).contains("evil\\x1b[2J"));
}

#[test]
fn no_cut_and_no_flipped_byte_of_a_pprof_profile_makes_reading_panic() {
    use std::io::Write;
    let profile = crate::common::server_profile(4096);
    let symbols = crate::common::server_symbols(&profile);
    let mut gzip = Vec::new();
    let options = heapprof_symbolizer::export::Options::default();
    Format::Pprof
        .write(&profile, &symbols, &options, &mut gzip)
        .unwrap();
    let mut proto = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut proto).unwrap();
    for at in 0..proto.len() {
        // Packed anew: a damaged gzip file would say so by its checksum and test nothing.
        for bit in [1, 0x80] {
            let mut flipped = proto.clone();
            flipped[at] ^= bit;
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
            packer.write_all(&flipped).unwrap();
            let packed = packer.finish().unwrap();
            if let Ok(profile) = heapprof_symbolizer::profile_of_pprof(&packed) {
                let symbols = heapprof_symbolizer::Symbols::none(&profile);
                let _ = heapprof_symbolizer::Sites::of(&profile, &symbols);
                Format::Json
                    .write(&profile, &symbols, &options, &mut std::io::sink())
                    .unwrap();
            }
        }
        let _ = heapprof_symbolizer::profile_of_pprof(&gzip[..at.min(gzip.len())]);
    }
}

#[test]
fn a_tar_that_is_no_bundle_and_a_torn_bundle_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "run.heaplog", &server_log(1));
    let bundle = folder.path().join("run.tar").display().to_string();
    let made = heapprof(&["bundle", "-o", &bundle, &log.display().to_string()]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert_eq!(
        totals_line(&stdout(&heapprof(&["top", &bundle]))),
        SERVER_TRUTH
    );
    let bytes = std::fs::read(&bundle).unwrap();
    all_fail(
        &write(folder.path(), "torn.tar", &bytes[..600]),
        &["no bundle"],
    );
    let mut foreign = bytes.clone();
    foreign[512..1024].fill(b'x');
    all_fail(
        &write(folder.path(), "foreign.tar", &foreign),
        &["no bundle"],
    );
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let commands = ["top", "tree", "export", "symbolize", "bundle", "info"];
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&heapprof(&["completions", shell]));
        assert!(commands.iter().all(|c| script.contains(c)), "{shell}");
        assert!(script.contains("callgrind"), "{shell}");
    }
    let page = stdout(&heapprof(&["man"]));
    assert!(
        page.starts_with(".ie") || page.contains(".TH heapprof"),
        "{page}"
    );
    for command in commands {
        let page = stdout(&heapprof(&["man", command]));
        assert!(page.contains(&format!("heapprof-{command}")), "{page}");
    }
    let output = heapprof(&["man", "nothing"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no command nothing"));
}
