//! The C API of `heapprof.h`, gperftools' names among it.

use std::fs;

use heapprof_tests::Run;

#[test]
fn the_api_does_what_its_header_says() {
    let ran = Run::fixture("control_api").interval(1).run().well();
    let claims = ran.claims();
    assert!(ran.stdout.starts_with("present 1\n"));
    assert_eq!(claims.failures, [""; 0]);
    assert_eq!(ran.stderr, "");
    let log = ran.log().whole();
    assert_eq!(log.unknown_frees(), 0);
    for (size, allocated, in_use) in claims.counts {
        let blocks = log.blocks_of(size);
        let found = (
            blocks.len() as u64,
            blocks.iter().filter(|b| b.in_use).count() as u64,
        );
        assert_eq!(found, (allocated, in_use), "blocks of {size}");
    }
    assert_eq!(log.markers(), ["begin", "end", "dump: as asked"]);
    let in_force: Vec<u64> = log
        .regimes()
        .iter()
        .map(|(_, interval)| *interval)
        .collect();
    assert_eq!(in_force, [0, 1, 1 << 30, 1, 0, 1]);
    // Without HEAPPROFILE the dump is beside the log, and there is none at exit.
    assert_eq!(ran.dumps().len(), 1);
    let dump = ran.named(&ran.files_ending(".heap")[0]);
    let of_log = log.profile.numbers();
    let of_dump = dump.profile.numbers();
    assert_eq!(of_dump, of_log);
}

#[test]
fn without_the_library_the_api_is_nothing() {
    let ran = Run::fixture("control_api").without_library().run().well();
    assert!(ran.stdout.starts_with("present 0\n"));
    assert_eq!(ran.claims().failures, [""; 0]);
    assert_eq!(ran.files(), [""; 0]);
}

/// gperftools' way: the program tells where dumps go. The account is whole although it was not kept
/// before.
#[test]
fn a_program_says_where_its_dumps_go() {
    const PROGRAM: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        __attribute__((weak)) void HeapProfilerStart(const char *);
        __attribute__((weak)) void HeapProfilerStop(void);
        __attribute__((weak)) void HeapProfilerDump(const char *);
        void *kept[100];
        int main(int count, char **words)
        {
            for (int i = 0; i < 100; i++)
                kept[i] = malloc(24001);
            HeapProfilerStart(count > 1 ? words[1] : "from-api");
            for (int i = 0; i < 50; i++)
                free(kept[i]);
            if (chdir("/") != 0)
                return 2;
            HeapProfilerDump("half");
            HeapProfilerStart("ignored: it runs");
            return 0;
        }
    "#;
    let ran = Run::compiled("starts", PROGRAM, &[])
        .interval(1)
        .run()
        .well();
    assert_eq!(ran.stderr, "");
    assert_eq!(
        ran.files_ending(".heap"),
        ["from-api.0001.heap", "from-api.0002.heap"]
    );
    let numbers = ran.named("from-api.0001.heap").profile.numbers();
    assert!(
        numbers.in_use_bytes >= 50 * 24001 && numbers.in_use_bytes < 51 * 24001,
        "{numbers:?}"
    );
    assert!(numbers.allocated_bytes >= 100 * 24001, "{numbers:?}");
    let last = fs::read_to_string(ran.folder().join("from-api.0002.heap")).unwrap();
    assert!(last.contains("Exiting"), "{last}");
    // In a folder, they have the name of the log.
    let ran = Run::compiled("starts", PROGRAM, &[])
        .arg(".")
        .interval(1)
        .run()
        .well();
    let names = [1, 2].map(|n| format!("heapprof.starts.{}.000{n}.heap", ran.pid));
    assert_eq!(ran.files_ending(".heap"), names);
}
