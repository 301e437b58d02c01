//! Truth with allocators that are linked statically: the numbers of every site, exact and sampled.
//!
//! `scripts/linked-allocators --only truth` has more allocators.

use heapprof_format::Counter;
use heapprof_tests::{Archive, Finished, Log, Run, Sizes, assert_health};

/// Runs the fixture, and asserts that nothing is missing.
fn recorded(archive: &Archive, scale: &str, interval: u64) -> (Finished, Log) {
    let run = archive.truth().args(["--threads", "4", "--scale", scale]);
    let ran = run.interval(interval).prefix("t").run().well();
    assert_eq!(ran.said(), [""; 0], "{archive:?}");
    let log = ran.log().whole();
    let losses = log.losses();
    let is_expected = |&loss: &Counter| loss == Counter::LostNotReady;
    assert!(losses.keys().all(is_expected), "{archive:?}: {losses:?}");
    assert_eq!(log.unknown_frees(), 0, "{archive:?}");
    (ran, log)
}

/// Asserts that the allocator is named, and that the bytes of the samples are those of the threads.
fn assert_info(archive: &Archive, ran: &Finished, log: &Log) {
    let info = Run::heapprof()
        .in_folder_of(ran)
        .args(["info", "t.heaplog"]);
    let info = info.run().well().stdout;
    assert!(info.contains("  tapped        "), "{archive:?}: {info}");
    let _ = assert_health(&log.profile, &format!("{archive:?}"));
}

#[test]
fn all_numbers_of_every_site_are_the_truth_or_within_bounds_with_each_archive() {
    const SCALE: u64 = 4;
    for archive in Archive::all() {
        let (exact, log) = recorded(&archive, "1", 1);
        let sizes = Sizes::of(&format!("{archive:?}"), &exact);
        assert_info(&archive, &exact, &log);
        for interval in [4096, 524_288] {
            let (sampled, log) = recorded(&archive, &SCALE.to_string(), interval);
            let what = format!("{archive:?} at {interval}");
            sizes.assert_bounds(&what, &sampled, SCALE, interval);
            assert_info(&archive, &sampled, &log);
        }
    }
}
