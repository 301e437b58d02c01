//! Memory that becomes scarce while the program runs: limits that it sets itself. Giving up leaves one line and a program
//! that runs on.

use heapprof_tests::Run;

/// jemalloc alone crashes in the first thread whose arena finds no room.
#[test]
fn a_program_limits_its_own_address_space_and_starts_threads() {
    for interval in [0, 1, 524_288] {
        for room in ["0", "300", "1000", "2500", "5000", "9000", "30000"] {
            for before in [None, Some("3000000")] {
                let shown = format!("interval {interval}, {room} KiB, {before:?} before");
                let ran = Run::fixture("limits_itself")
                    .arg(room)
                    .args(before)
                    .interval(interval)
                    .prefix("t")
                    .run();
                if before.is_none() && room == "0" && ran.stdout.contains("FAIL thread") {
                    continue; // what pthread_create itself needs is not there either
                }
                assert_eq!(ran.code(), 0, "{shown}: {} {}", ran.stdout, ran.stderr);
                assert_eq!(ran.claims().ok, ["limited"], "{shown}");
                assert!(!ran.stdout.contains("FAIL"), "{shown}: {}", ran.stdout);
                assert!(ran.stderr.lines().count() <= 1, "{shown}: {}", ran.stderr);
                if interval > 0 {
                    let log = ran.log();
                    assert!(log.torn.is_none(), "{shown}: {:?}", log.torn);
                }
            }
        }
    }
}
