//! Ids: those of the program's threads, and of ours.

use heapprof_tests::{Log, Run};

/// Our thread answers libc when all are to change their ids, whoever started it.
#[test]
fn ids_with_threads() {
    for first in ["", "block"] {
        for interval in [1, 16_384] {
            let run = Run::fixture("ids_with_threads").args(Some(first).filter(|s| !s.is_empty()));
            let ran = run.interval(interval).prefix("t").run().well();
            assert_eq!(ran.claims().ok, ["with_thread", "in_thread", "in_child"]);
            assert_eq!(ran.stderr, "");
            if interval == 1 {
                let log = Log::read(&ran.folder().join("t.heaplog")).whole();
                for size in [42001, 42002] {
                    assert_eq!(log.blocks_of(size).len(), 1, "{size}");
                }
            }
        }
    }
}
