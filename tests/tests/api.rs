//! The allocation functions of C and C++ behave as glibc's and libstdc++'s, whatever is recorded.

use heapprof_tests::Run;

#[track_caller]
fn conforms(fixture: &str) {
    let without = Run::fixture(fixture).without_library().run().well();
    let checks = without.claims().ok;
    assert!(checks.len() > 10, "{fixture} checks nothing");
    for interval in [1, 4096, 0] {
        let ran = Run::fixture(fixture).interval(interval).prefix("t").run();
        let claims = ran.claims();
        assert!(
            claims.failures.is_empty(),
            "interval {interval}: {:#?}",
            claims.failures
        );
        assert!(
            ran.status.success(),
            "interval {interval}: {} {}",
            ran.status,
            ran.stderr
        );
        // Functions that only one of the two allocators has are skipped, not failed.
        let missing: Vec<_> = checks
            .iter()
            .filter(|check| !claims.ok.contains(check))
            .collect();
        assert!(
            missing.len() <= claims.skipped.len(),
            "interval {interval}: not checked: {missing:?}, skipped {:?}",
            claims.skipped
        );
        if interval == 0 {
            assert_eq!(ran.files(), [""; 0], "interval 0 records nothing");
        } else {
            let log = ran.log().whole();
            assert_eq!(log.unknown_frees(), 0);
        }
    }
}

#[test]
fn api_conformance() {
    conforms("api_conformance");
}

#[test]
fn cxx_operators() {
    conforms("cxx_operators");
}
