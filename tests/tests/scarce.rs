//! Memory that becomes scarce while the program runs: limits that it sets itself. If the library
//! gives up, there is one line and the program runs on.

use heapprof_tests::Run;

#[track_caller]
fn runs_on(kind: &str, interval: u64, room: &str, before: &str) {
    let shown = format!("{kind}, interval {interval}, {room} KiB, {before} bytes before");
    let ran = Run::fixture("limits_itself")
        .args([room, before, kind])
        .interval(interval)
        .prefix("t")
        .run();
    if ran.stdout.starts_with("skip") {
        return println!("{shown}: {}", ran.stdout);
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

/// jemalloc alone crashes in the first thread whose arena finds no room.
#[test]
fn a_program_limits_its_own_address_space_and_starts_threads() {
    for interval in [0, 1, 524_288] {
        for room in ["300", "1000", "2500", "5000", "9000", "30000"] {
            for before in ["1", "3000000"] {
                runs_on("as", interval, room, before);
            }
        }
    }
}

/// The kernel refuses for other reasons, and with another error.
#[test]
fn little_data_and_little_locked_memory() {
    for kind in ["data", "memlock"] {
        for interval in [0, 1, 524_288] {
            for room in ["300", "2500", "9000"] {
                runs_on(kind, interval, room, "1");
            }
        }
    }
}
