//! Sanitizers and valgrind, which replace malloc themselves.

use heapprof_format::EndReason;
use heapprof_tests::{Build, Log, Run};

/// Programs that replace malloc are reported, and run.
#[test]
fn sanitizers_and_valgrind() {
    const PROGRAM: &str =
        "#include <stdlib.h>\nvoid *kept;\nint main(void) { kept = malloc(20001); return 3; }\n";
    for (sanitizer, word) in [("leak", "LeakSanitizer"), ("undefined", "")] {
        let flag = format!("-fsanitize={sanitizer}");
        let ran = Run::compiled("sanitized", PROGRAM, &[&flag])
            .interval(1)
            .prefix("t")
            .env("LSAN_OPTIONS", "detect_leaks=0")
            .run();
        assert_eq!(ran.code(), 3, "{sanitizer}: {}", ran.stderr);
        if word.is_empty() {
            assert_eq!(ran.log().whole().blocks_of(20001).len(), 1, "{sanitizer}");
        } else {
            ran.assert_said(&[word, "nothing is recorded", "a build without it"]);
        }
    }
    // Under any other allocator this sanitizer's runtime stops: the program is started again
    // without the library.
    let thread = || Run::compiled("sanitized", PROGRAM, &["-fsanitize=thread"]);
    let alone = thread().without_library().run();
    let ran = thread().interval(1).prefix("t").run();
    assert_eq!(ran.code(), alone.code(), "{}", ran.stderr);
    ran.assert_said(&[
        "ThreadSanitizer",
        "nothing is recorded",
        "a build without it",
    ]);
    assert!(ran.files_ending(".heaplog").is_empty());
    // Nothing is recorded of these: `heapprof run` says so before.
    for sanitizer in ["address", "thread"] {
        let flag = format!("-fsanitize={sanitizer}");
        let compiled = Run::compiled("sanitized", PROGRAM, &[&flag]);
        let program = compiled.folder().join("bin/sanitized");
        let ran = Run::heapprof().args(["run", "--"]).arg(&program).run();
        assert_ne!(ran.code(), 0, "{sanitizer}");
        assert!(
            ran.stderr.contains("built with a sanitizer"),
            "{}",
            ran.stderr
        );
    }
    let ran = Run::tool("valgrind")
        .args([
            "--quiet",
            "env",
            &format!("LD_PRELOAD={}", Build::get().library().display()),
        ])
        .arg(Build::get().fixture("exit_ways"))
        .arg("exit")
        .interval(1)
        .prefix("t")
        .env(
            "VALGRIND_OPTS",
            "--trace-children=yes --trace-children-skip=*/env",
        )
        .run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    ran.assert_said(&[
        "valgrind",
        "nothing is recorded",
        "profile without valgrind",
    ]);
    // valgrind's own launcher is recorded, which becomes the program.
    for name in ran.files_ending(".heaplog") {
        let log = Log::read(&ran.folder().join(name)).whole();
        assert_eq!(log.end(), Some(EndReason::Exec));
        assert!(log.blocks_of(17001).is_empty());
    }
}
