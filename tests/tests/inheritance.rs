//! Inherited blocks of a forked child: in its log and in its dumps, without the freed ones.

use std::collections::BTreeMap;
use std::fs;

use heapprof_tests::Run;

/// The comment of a dump in a forked child.
const SAYS_WHAT_IS_MISSING: &str = "inherited: what was in use at the fork is missing here";

/// The child's log begins at the fork; the reader takes the inherited blocks from its parent's log.
/// The child's own dump lacks these, and says so.
#[test]
fn fork_inherits() {
    let ran = Run::fixture("fork_inherits")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let child = ran.claims().pid_of("child");
    let path = ran.folder().join(format!("t_{child}.heaplog"));
    let counted = |path: &std::path::Path| -> BTreeMap<u64, (u64, u64)> {
        let profile = heapprof_symbolizer::Input::open(path)
            .and_then(|input| input.read(|_| ()))
            .unwrap_or_else(|error| panic!("{error}"));
        let rows = profile.rows.iter().map(|row| {
            let (all, live) = (&row.totals.allocated, &row.totals.in_use);
            (all.bytes() / all.objects(), (all.objects(), live.objects()))
        });
        rows.collect()
    };
    let expected: BTreeMap<u64, (u64, u64)> = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("count "))
        .map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            (numbers[0], (numbers[1], numbers[2]))
        })
        .collect();
    assert_eq!(expected.len(), 2, "{}", ran.stdout);
    let found = counted(&path);
    for (size, numbers) in &expected {
        assert_eq!(found.get(size), Some(numbers), "{size}: {found:?}");
    }
    let dump = ran.bytes(&format!("t_{child}.0001.heap"));
    let text = String::from_utf8_lossy(&dump).into_owned();
    assert!(text.contains(SAYS_WHAT_IS_MISSING), "{text}");

    // Without the parent's log the child's own blocks are still there, and a note says what is
    // missing.
    fs::rename(ran.folder().join("t.heaplog"), ran.folder().join("gone")).unwrap();
    let found = counted(&path);
    assert_eq!(found.get(&21002), Some(&(7, 7)), "{found:?}");
    assert_eq!(found.get(&21001), None, "{found:?}");
    let profile = heapprof_symbolizer::Input::open(&path)
        .unwrap()
        .read(|_| ());
    let markers = profile.unwrap().run.markers;
    assert!(
        markers
            .iter()
            .any(|marker| marker.name.contains("is not here")),
        "{markers:?}"
    );
}

/// Keeps a thousand blocks, and forks children while three threads allocate; each child keeps one
/// more block.
const FORKS_WHILE_OTHERS_ALLOCATE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
enum { KEPT = 1000, CHILDREN = 20 };
void *kept[KEPT + 1];
static void *allocates_for_ever(void *unused)
{
    for (size_t size = 16;; size = size < 4000 ? size + 16 : 16) {
        void *volatile block = malloc(size);
        free(block);
    }
    return unused;
}
int main(void)
{
    int bad = 0, status;
    pthread_t thread;
    for (int i = 0; i < KEPT; i++) kept[i] = malloc(30011);
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, allocates_for_ever, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            kept[KEPT] = malloc(30012);
            exit(0);
        }
        waitpid(child, &status, 0);
        bad += status != 0;
        printf("child %d\n", (int)child);
        fflush(stdout);
    }
    return bad ? 1 : 6;
}
"#;

/// A child's account begins with its parent's blocks in use, taken from the parent's log, though
/// other threads of the parent were active. The child's own dump begins at the fork, and says so.
#[test]
fn a_child_of_a_busy_parent_starts_from_what_was_in_use() {
    let run = Run::compiled("busy_parent", FORKS_WHILE_OTHERS_ALLOCATE, &["-pthread"]);
    let ran = run.interval(1).prefix("t").run();
    assert_eq!((ran.code(), &*ran.stderr), (6, ""));
    let children = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("child "));
    let mut count = 0;
    for child in children {
        count += 1;
        let path = ran.folder().join(format!("t_{child}.heaplog"));
        let profile = heapprof_symbolizer::Input::open(&path)
            .and_then(|input| input.read(|_| ()))
            .unwrap_or_else(|error| panic!("{error}"));
        let in_use = |size: u64| -> u64 {
            let of_size = profile.rows.iter().filter(|row| {
                let all = &row.totals.allocated;
                all.objects() > 0 && all.bytes() / all.objects() == size
            });
            of_size.map(|row| row.totals.in_use.objects()).sum()
        };
        assert_eq!((in_use(30011), in_use(30012)), (1000, 1), "child {child}");
        let dump = ran.bytes(&format!("t_{child}.0001.heap"));
        let text = String::from_utf8_lossy(&dump).into_owned();
        assert!(text.contains(SAYS_WHAT_IS_MISSING), "child {child}: {text}");
    }
    assert_eq!(count, 20);
}

/// Keeps a thousand blocks and forks; the child keeps one more block, and requests a dump.
const CHILD_ASKS_FOR_A_DUMP: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
enum { KEPT = 1000 };
void *kept[KEPT + 1];
void HeapProfilerDump(const char *reason) __attribute__((weak));
int main(void)
{
    int status;
    for (int i = 0; i < KEPT; i++) kept[i] = malloc(30011);
    pid_t child = fork();
    if (child == 0) {
        kept[KEPT] = malloc(30012);
        HeapProfilerDump("asked");
        exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", (int)child);
    return status ? 1 : 6;
}
"#;

/// A dump that a child requests has the child's allocations, and says that it lacks the blocks in
/// use at the fork: with an account that is made from the log, and with one that is kept from the
/// start.
#[test]
fn a_dump_asked_for_in_a_child() {
    for bound in [None, Some("64M")] {
        let mut run = Run::compiled("asks", CHILD_ASKS_FOR_A_DUMP, &[]).interval(1);
        if let Some(bound) = bound {
            run = run.env("HEAPPROF_MAX_LOG", bound);
        }
        let ran = run.run();
        assert_eq!((ran.code(), &*ran.stderr), (6, ""));
        let [dump] = &ran.files_ending(".heap")[..] else {
            panic!("{:?}", ran.files());
        };
        let text = String::from_utf8_lossy(&ran.bytes(dump)).into_owned();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let has = |line: &str| text.lines().any(|it| words(it).starts_with(line));
        assert!(text.contains(SAYS_WHAT_IS_MISSING), "{text}");
        assert!(has("1: 30012 [ 1: 30012]"), "{text}");
        assert!(!has("1000: 30011000 ["), "{bound:?}: {text}");
    }
}

/// Holds two large blocks and forks; the child frees one before it allocates anything, and the
/// other after some allocations.
const CHILD_FREES_FIRST: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    int status;
    void *one = malloc(3000001), *other = malloc(3000002);
    pid_t child = fork();
    if (child == 0) {
        free(one);
        for (int i = 0; i < 16000; i++) {
            void *volatile block = malloc(1000);
            free(block);
        }
        free(other);
        exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", (int)child);
    free(one);
    free(other);
    return status ? 1 : 6;
}
"#;

/// A free before the child's session is in its log, also if the session begins without a sample,
/// for a client of `ctl`.
#[test]
fn what_a_child_frees_first_is_not_lost() {
    for control in ["0", "1"] {
        let ran = Run::compiled("frees_first", CHILD_FREES_FIRST, &[])
            .interval(1 << 40)
            .env("HEAPPROF_RECORD_OVER", "1000000")
            .env("HEAPPROF_CONTROL", control)
            .run();
        assert_eq!((ran.code(), &*ran.stderr), (6, ""));
        for log in ran.files_ending(".heaplog") {
            let profile = heapprof_symbolizer::Input::open(&ran.folder().join(&log))
                .and_then(|input| input.read(|_| ()))
                .unwrap_or_else(|error| panic!("{error}"));
            let totals = profile.totals();
            assert_eq!(totals.allocated.objects(), 2, "{control}: {log}");
            assert_eq!(totals.in_use.objects(), 0, "{control}: {log}");
        }
        let logs = ran.files_ending(".heaplog").len();
        assert_eq!(logs, if control == "1" { 2 } else { 1 });
    }
}
