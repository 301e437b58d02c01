//! Logs that are moved while they are written, as by operators and logrotate.

use std::fs;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{Input, Profile};
use heapprof_tests::{Run, Running};

fn read(path: &Path) -> Profile {
    Input::open(path)
        .and_then(|input| input.read(|_| ()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the log's files without the newest.
fn older(running: &Running) -> Vec<PathBuf> {
    let entries = fs::read_dir(running.folder()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_older = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        heapprof_symbolizer::newest_of(&name).is_some()
    };
    paths.filter(is_older).collect()
}

/// The newest file is moved away in the middle. It stays whole up to then and a little beyond. A
/// segment begins under the name. Totals and live set are still of the whole run.
#[test]
fn a_log_that_rotates_goes_on_where_its_newest_segment_was_moved_away() {
    let mut running = Run::fixture("rotates")
        .arg("100000000")
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAPPROF_MAX_LOG", (256 << 10).to_string())
        .start();
    let newest = running.folder().join("t.heaplog");
    let elsewhere = running.folder().join("aside");
    fs::create_dir(&elsewhere).unwrap();
    let moved = elsewhere.join("t.heaplog");
    running.until("segments", |running| older(running).len() >= 2);
    fs::rename(&newest, &moved).unwrap();
    running.until("a segment in its place", |running| {
        assert_eq!(running.stderr_so_far(), "");
        newest.exists()
    });
    let begun = older(&running);
    running.until("further rotations", |running| {
        let new = older(running)
            .into_iter()
            .filter(|path| !begun.contains(path));
        new.count() >= 2
    });
    running.signal(9);
    let ran = running.wait();
    assert_eq!(ran.said(), [""; 0]);
    let before = read(&moved);
    let after = read(&newest);
    // But for the data that were being appended at the kill.
    let account = &after.account;
    let is_whole = account.damage.is_empty() && account.missing_frames == 0;
    assert!(is_whole, "{account:?}");
    assert!(before.numbers().allocated_bytes < after.numbers().allocated_bytes);
    let checkpoint = after.run.checkpoint.expect("detail begins late");
    assert!(checkpoint.bytes_before > 64 << 10, "{checkpoint:?}");
}
