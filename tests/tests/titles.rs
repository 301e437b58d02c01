//! Titles: the words that a program shows in place of its name, in all that is shown of its log.

use std::collections::BTreeSet;

use heapprof_tests::Run;

/// A program that names itself in three ways: over its command line in a child, by the name of its
/// main thread, and not at all.
const TITLES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept;

int main(int argc, char **argv)
{
    char *end = argv[argc - 1] + strlen(argv[argc - 1]);
    kept = malloc(21001);
    if (fork() == 0) {
        memset(argv[0], 0, end - argv[0]);
        strcpy(argv[0], "titles: checkpointer");
        kept = malloc(21002);
        return 0;
    }
    wait(NULL);
    if (fork() == 0) {
        prctl(PR_SET_NAME, "worker 7");
        kept = malloc(21003);
        return 0;
    }
    wait(NULL);
    return 0;
}
"#;

#[test]
fn titles_of_processes_are_shown() {
    let run = Run::compiled("titles", TITLES, &[]);
    let words = ["a long word to be overwritten", "and another one"];
    let ran = run.args(words).interval(1).prefix("t").run().well();
    let logs: Vec<_> = ran.files_ending(".heaplog");
    assert_eq!(logs.len(), 3);
    let mut top = Run::heapprof().args(["top", "--by", "process", "-m", "allocated-bytes"]);
    for log in &logs {
        top = top.arg(ran.folder().join(log));
    }
    let shown = top.run().well().stdout;
    for words in [
        "  titles: checkpointer, pid ",
        "  titles (worker 7), pid ",
        "  titles, pid ",
    ] {
        assert_eq!(shown.matches(words).count(), 1, "{words}: {shown}");
    }
    let info = |log: &str| {
        Run::heapprof()
            .arg("info")
            .arg(ran.folder().join(log))
            .run()
    };
    let titles: Vec<String> = logs
        .iter()
        .filter_map(|log| {
            let said = info(log).well().stdout;
            let line = said.lines().find(|line| line.starts_with("  title "))?;
            Some(line["  title ".len()..].trim().to_owned())
        })
        .collect();
    assert_eq!(
        BTreeSet::from_iter(titles),
        BTreeSet::from(["titles: checkpointer", "worker 7"].map(str::to_owned))
    );
}
