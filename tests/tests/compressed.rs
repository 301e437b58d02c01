//! Logs that are compressed when their programs have ended.

use std::fs;
use std::process::{Command, Stdio};

use heapprof_symbolizer::is_compressed;
use heapprof_tests::{Build, Finished, Run};

/// Returns `heapprof run` with these options, of a program whose log takes some ten bytes for each
/// operation.
fn of_operations(options: &[&str], operations: u32) -> Run {
    let program = Build::get().fixture("churn").display().to_string();
    Run::heapprof()
        .args(["run", "-i", "1", "-o", "t"])
        .args(options)
        .args(["--", &program, "1", &operations.to_string()])
}

/// Their log has more than 16 MiB.
const MANY: u32 = 2_200_000;

/// The output of a command for the run's log, and its notes.
fn output(ran: &Finished, words: &[&str]) -> (String, String) {
    let output = Command::new(&Build::get().heapprof)
        .args(words)
        .arg("t.heaplog")
        .current_dir(ran.folder())
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn run_compresses_a_large_log_and_commands_say_the_same() {
    let ran = of_operations(&[], MANY).run().well();
    ran.assert_said(&["compressed: ./t.heaplog", "before,", "--no-compress"]);
    let compressed = ran.bytes("t.heaplog");
    assert!(is_compressed(&compressed));
    let whole = ["top", "timeline", "info", "explain", "tree"];
    let before = whole.map(|word| output(&ran, &[word]));
    assert!(
        before[0].0.contains("replaces_one_block"),
        "{}",
        before[0].0
    );
    // As `zstd -dc` prints it.
    let log = zstd::stream::decode_all(&compressed[..]).unwrap();
    assert!(log.len() > 16 << 20 && compressed.len() * 3 < log.len() * 2);
    fs::write(ran.folder().join("t.heaplog"), &log).unwrap();
    for (word, before) in whole.iter().zip(before) {
        assert!(output(&ran, &[word]) == before, "{word}");
    }
    // Nothing else is left, as a temporary file.
    let mut files = ran.files();
    files.retain(|name| !name.ends_with(".heap"));
    assert_eq!(files, ["t.heaplog", "t.heaplog.names"]);
}

#[test]
fn a_small_log_stays_and_a_large_one_if_it_is_to() {
    for (options, operations) in [(&[][..], 10_000), (&["--no-compress"], MANY)] {
        let ran = of_operations(options, operations).run().well();
        assert!(!is_compressed(&ran.bytes("t.heaplog")));
        assert!(!ran.stderr.contains("compressed"), "{}", ran.stderr);
    }
    let ran = of_operations(&["-q", "--print-log"], MANY).run().well();
    assert!(is_compressed(&ran.bytes("t.heaplog")));
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.ends_with("t.heaplog\n"), "{}", ran.stdout);
}

/// The library holds its log open: nobody compresses it under its writer.
#[test]
fn the_log_of_a_program_that_runs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("t.heaplog");
    let mut child = Command::new(Build::get().fixture("churn"))
        .args(["1", "300s"])
        .env("LD_PRELOAD", Build::get().library())
        .env("HEAPPROFILE", folder.path().join("t"))
        .env("HEAPPROF_SAMPLE_INTERVAL", "4096")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let has_samples = || fs::metadata(&log).is_ok_and(|meta| meta.len() > 10_000);
    while !has_samples() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let compress = || {
        let mut command = Command::new(&Build::get().heapprof);
        let output = command.arg("compress").arg(&log).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (status, said) = compress();
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("is being written: its process runs"),
        "{said}"
    );
    let length = fs::metadata(&log).unwrap().len();
    while fs::metadata(&log).unwrap().len() == length {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(compress().0, Some(0));
    assert!(is_compressed(&fs::read(&log).unwrap()));
}
