//! Forked children: each has files of its own, and none that it does not need.

use std::collections::BTreeSet;
use std::path::PathBuf;

use heapprof_format::EndReason;
use heapprof_tests::{Run, Spread, repository};

#[test]
fn fork_child() {
    for way in ["exit", "_exit", "return"] {
        let ran = Run::fixture("fork_child")
            .arg(way)
            .interval(1)
            .prefix("t")
            .run()
            .well();
        let (parent, child) = (ran.claims().pid_of("parent"), ran.claims().pid_of("child"));
        let expected = [
            "t.0001.heap".to_owned(),
            "t.heaplog".to_owned(),
            format!("t_{child}.0001.heap"),
            format!("t_{child}.heaplog"),
        ];
        let found: BTreeSet<_> = ran.files().into_iter().collect();
        assert_eq!(found, BTreeSet::from(expected), "{way}");
        assert_eq!(ran.stderr, "", "{way}");

        let logs = ran.logs();
        let of_parent = &logs["t.heaplog"];
        assert_eq!(
            (of_parent.start().pid, of_parent.start().forked_from),
            (parent, 0)
        );
        assert_eq!(of_parent.end(), Some(EndReason::Exit), "{way}");
        let of_child = &logs[&format!("t_{child}.heaplog")];
        assert_eq!(
            (of_child.start().pid, of_child.start().forked_from),
            (child, parent)
        );
        assert_eq!(of_child.end(), Some(EndReason::Exit), "{way}");

        let (in_parent, in_child) = (of_parent.sizes(), of_child.sizes());
        assert!(
            in_parent.is_superset(&BTreeSet::from([15001, 15003])),
            "{way}: {in_parent:?}"
        );
        assert!(!in_parent.contains(&15002), "{way}");
        assert!(
            in_child.contains(&15002) && !in_child.contains(&15003),
            "{way}: {in_child:?}"
        );

        for (size, pattern) in &ran.claims().stacks {
            for log in logs.values() {
                for block in log.blocks_of(*size) {
                    let functions = &log.named().stacks[block.stack];
                    assert!(
                        pattern.matches(functions),
                        "{way} {size}: {}",
                        log.named().shown(block.stack)
                    );
                }
            }
        }
    }
}

#[test]
fn fork_while_allocating() {
    for interval in [1, 4096] {
        let ran = Run::fixture("fork_while_allocating")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        let claims = ran.claims();
        assert_eq!(claims.ok, ["children"]);
        assert!(claims.failures.is_empty());
        assert_eq!(ran.stderr, "", "{interval}");
        let logs = ran.logs();
        let mut pids = BTreeSet::new();
        for (name, log) in &logs {
            let start = log.start();
            let expected = if start.pid == ran.pid {
                "t.heaplog".into()
            } else {
                format!("t_{}.heaplog", start.pid)
            };
            assert_eq!(*name, expected);
            assert_eq!(
                start.forked_from,
                if start.pid == ran.pid { 0 } else { ran.pid }
            );
            assert_eq!(log.end(), Some(EndReason::Exit), "{name}");
            pids.insert(start.pid);
            if interval == 1 && start.pid != ran.pid {
                // The child's own thousand blocks, all freed, and no event of its parent's threads.
                let blocks = log.blocks();
                let own: Vec<_> = blocks
                    .iter()
                    .filter(|b| (16..1016).contains(&b.size))
                    .collect();
                assert!(
                    own.len() >= 1000 && own.iter().all(|b| !b.in_use),
                    "{name}: {}",
                    own.len()
                );
                assert!(blocks.len() < 1100, "{name}: {}", blocks.len());
            }
        }
        assert_eq!(pids.len(), logs.len(), "each process has one log");
        if interval == 1 {
            assert_eq!(logs.len(), 51, "the parent and 50 children");
        }
        let dumps: BTreeSet<_> = ran.files_ending(".heap").into_iter().collect();
        for name in logs.keys() {
            let dump = name.replace(".heaplog", ".0001.heap");
            assert!(dumps.contains(&dump), "{dump}");
        }
        assert_eq!(ran.files_ending(".unfinished"), [""; 0]);
    }
}

/// In the child the thread that forked is the main thread. Its function returns, and the library's
/// thread must not keep the process alive.
#[test]
fn fork_in_thread() {
    for interval in [1, 65_536] {
        let ran = Run::fixture("fork_in_thread")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        let child = ran.claims().pid_of("child");
        // The first word is written by exit, which the library's thread calls there.
        assert_eq!(ran.claims().ok, ["buffered", "child"], "{}", ran.stdout);
        if interval == 1 {
            let log = &ran.logs()[&format!("t_{child}.heaplog")];
            assert_eq!(log.end(), Some(EndReason::Exit));
            assert_eq!(log.blocks_of(35001).len(), 1);
        }
    }
}

/// Each block of a child is sampled with `1 - exp(-s/R)`, wherever the parent's next mark was.
#[test]
fn fork_short_children() {
    const CHILDREN: u64 = 200;
    const BLOCKS: u64 = 8;
    const SIZE: u64 = 24_001;
    const INTERVAL: u64 = 8 * SIZE;
    let mut expected = Spread::default();
    expected.add(CHILDREN * BLOCKS, SIZE, 1.0, INTERVAL);
    // The server's own mark moves between two children, or stays in place.
    for between in [BLOCKS, 0] {
        let ran = Run::fixture("fork_short_children")
            .args([CHILDREN, BLOCKS, between].map(|n| n.to_string()))
            .interval(INTERVAL)
            .run()
            .well();
        assert_eq!(ran.claims().ok, ["children"]);
        let logs = ran.logs();
        let children = logs.values().filter(|log| log.start().pid != ran.pid);
        let samples: usize = children.map(|log| log.blocks_of(SIZE).len()).sum();
        // 188 of 1600, more or less 13. A false alarm once in two hundred thousand runs.
        let off = (samples as f64 - expected.samples).abs() / expected.doubt.sqrt();
        assert!(off < 4.7, "{between}: {samples} samples, {expected:?}");
    }
}

/// Changes its directory before it allocates, as daemons do.
const CHILD_GOES_ELSEWHERE: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
void *kept;
int main(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (chdir("/proc") != 0) _exit(1);
        kept = malloc(30012);
        exit(0);
    }
    waitpid(child, &status, 0);
    kept = malloc(30011);
    return status ? 1 : 6;
}
"#;

/// Files of the program and its children are in the folder where the program started.
#[test]
fn a_child_that_went_elsewhere_records_where_the_program_began() {
    for prefix in [None, Some("t")] {
        let mut run = Run::compiled("goes", CHILD_GOES_ELSEWHERE, &[]).interval(1);
        if let Some(prefix) = prefix {
            run = run.env("HEAPPROFILE", prefix); // relative
        }
        let ran = run.run();
        assert_eq!((ran.code(), &*ran.stderr), (6, ""));
        let logs = ran.logs();
        assert_eq!(logs.len(), 2, "{:?}", ran.files());
        assert!(logs.values().any(|log| log.sizes().contains(&30012)));
    }
}

/// Returns a Python of 3.12 or later, if there is one: by its own name, or below the folder of
/// pyenv, whose programs on the path may lead to none.
fn newer_python() -> Option<PathBuf> {
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(std::env::home_dir()?.join(".pyenv")));
    let versions = pyenv.and_then(|it| it.join("versions").read_dir().ok());
    let of_pyenv = versions.into_iter().flatten().flatten();
    let of_pyenv = of_pyenv.map(|version| version.path().join("bin"));
    let folders = of_pyenv.chain(["/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    let mut programs = folders
        .flat_map(|folder| (12..20).map(move |minor| folder.join(format!("python3.{minor}"))));
    programs.find(|program| program.is_file())
}

/// Python counts the kernel's threads at a fork. The guide's warnings filter silences it, and a
/// program that makes errors of warnings forks all the same.
#[test]
fn a_newer_python_warns_at_a_fork_unless_it_is_told_not_to() {
    const FORKS: &str = "import os, sys
pid = os.fork()
pid == 0 and os._exit(0)
os.waitpid(pid, 0)
print('forked')";
    const WARNINGS_FILTER: &str = "ignore:This process:DeprecationWarning";
    let Some(python) = newer_python() else {
        return println!("skip: no Python of 3.12 or later");
    };
    let guide = std::fs::read_to_string(repository().join("docs/guide.md")).unwrap();
    assert!(
        guide.contains(&format!("-W '{WARNINGS_FILTER}'")),
        "{WARNINGS_FILTER}"
    );
    let forks = |options: &[&str], warnings: Option<&str>| {
        let mut run = Run::program(&python).args(options).args(["-c", FORKS]);
        if let Some(warnings) = warnings {
            run = run.env("PYTHONWARNINGS", warnings);
        }
        let ran = run.interval(1).prefix("t").run().well();
        assert_eq!(ran.stdout, "forked\n");
        ran.stderr
    };
    let said = forks(&[], None);
    assert!(said.contains("DeprecationWarning: This process"), "{said}");
    assert_eq!(forks(&["-W", WARNINGS_FILTER], None), "");
    assert_eq!(forks(&[], Some(WARNINGS_FILTER)), "");
    assert_eq!(forks(&["-W", "error"], None), "");
    assert_eq!(forks(&["-W", "error", "-W", WARNINGS_FILTER], None), "");
}
