//! Labels of the program, in the log and in what is made of it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use heapprof_format::{Counter, FOLDED_LABEL};
use heapprof_symbolizer::Numbers;
use heapprof_tests::{Finished, Log, Run, repository};

/// Bytes that were allocated by `site_labelled` and that are in use, by the value of a label.
fn by_label(log: &Log, key: &str) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let named = log.named();
    for row in &log.profile.rows {
        let index = row.stack as usize;
        if named.site_of(index).is_some() {
            let value = log.profile.stacks[index].labels.value(key).to_owned();
            let sum = sums.entry(value).or_default();
            let numbers = Numbers::of(&row.totals);
            sum.0 += numbers.allocated_bytes;
            sum.1 += numbers.in_use_bytes;
        }
    }
    sums
}

/// The lines in which the fixture states its labels.
fn claimed(ran: &Finished) -> Vec<(String, String, u64, u64)> {
    let lines = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("label "));
    let claims = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [key, value, allocated, in_use] = words[..] else {
            panic!("{line}");
        };
        let number = |word: &str| word.parse().unwrap();
        (key.into(), value.into(), number(allocated), number(in_use))
    });
    claims.collect()
}

#[test]
fn each_label_has_what_was_allocated_under_it() {
    let ran = Run::fixture("labels").interval(1).run().well();
    let logs = ran.logs();
    let claims = claimed(&ran);
    assert_eq!(claims.len(), 6, "{}", ran.stdout);
    let (_, log) = logs
        .iter()
        .find(|(_, log)| log.start().forked_from == 0)
        .unwrap();
    for (key, value, allocated, in_use) in claims {
        let sums = by_label(log, &key);
        assert_eq!(sums[&value], (allocated, in_use), "{key}={value}: {sums:?}");
    }
    // Four threads, two blocks each, of which the realloc has its own site.
    assert_eq!(by_label(log, "tenant")["(none)"], (8000, 0));
    let (_, child) = logs
        .iter()
        .find(|(_, log)| log.start().forked_from != 0)
        .unwrap();
    let sums = by_label(child, "tenant");
    assert_eq!(sums["forked"], (7000, 7000), "{sums:?}");
    assert_eq!(folded(log), 0);
}

/// Samples of which a label's value is not recorded.
fn folded(log: &Log) -> u64 {
    let counters = log.profile.account.counters.iter();
    let of = |(counter, n): &(Counter, u64)| (*counter == Counter::FoldedLabels).then_some(*n);
    counters.filter_map(of).sum()
}

#[test]
fn values_beyond_the_bound_are_folded_and_counted() {
    const KEPT: u64 = 10;
    let run = Run::fixture("labels").arg("many").interval(1);
    let ran = run
        .env("HEAPPROF_LABEL_VALUES", KEPT.to_string())
        .run()
        .well();
    let log = ran.log().whole();
    let sums = by_label(&log, "request");
    assert_eq!(sums["0"], (2000, 2000), "{sums:?}");
    for value in 1..KEPT {
        assert_eq!(sums[&value.to_string()], (1000, 1000), "{sums:?}");
    }
    // 20 values, and the block under more labels than are kept: it may have a request.
    assert_eq!(
        sums[FOLDED_LABEL],
        (20_000 + 3000, 20_000 + 3000),
        "{sums:?}"
    );
    assert_eq!(sums["(none)"], (5000, 5000), "{sums:?}");
    assert_eq!(sums.len() as u64, KEPT + 2, "{sums:?}");
    assert_eq!(by_label(&log, "level")["deep"], (3000, 3000));
    assert_eq!(folded(&log), 21);
    let said = Run::heapprof()
        .arg("info")
        .arg(ran.log_path())
        .run()
        .well()
        .stdout;
    assert!(
        said.contains("samples under labels with too many values"),
        "{said}"
    );
}

#[test]
fn threads_that_push_as_fast_as_they_can_keep_their_labels_apart() {
    let ran = Run::fixture("labels").arg("storm").interval(1).run().well();
    let log = ran.log().whole();
    assert_eq!(log.losses(), BTreeMap::new());
    let own = by_label(&log, "own");
    let each = (20_000 * 1000, 0);
    let expected = ["a", "b", "c", "d"].map(|name| (name.to_owned(), each));
    assert_eq!(own, BTreeMap::from(expected));
    let shared = by_label(&log, "shared");
    assert_eq!(shared.len(), 50);
    assert!(
        shared.values().all(|sum| *sum == (4 * 400 * 1000, 0)),
        "{shared:?}"
    );
    // One stack of each pair of labels, whichever thread came first.
    let labelled = log
        .profile
        .stacks
        .iter()
        .filter(|stack| !stack.labels.is_empty());
    assert_eq!(labelled.count(), 200);
}

#[test]
fn spans_that_a_thread_publishes_are_labels() {
    let ran = Run::fixture("labels")
        .arg("contexts")
        .interval(1)
        .run()
        .well();
    let log = ran.log().whole();
    let expect = |key: &str, expected: &[(&str, u64)]| {
        let sums = by_label(&log, key);
        let expected = expected.iter();
        let expected = expected.map(|&(value, bytes)| (value.to_owned(), (bytes, bytes)));
        assert_eq!(sums, expected.collect(), "{key}");
    };
    // Before, in the other thread, and under three contexts that are none.
    const NONE: u64 = 1000 + 11_000 + 3000;
    let trace = format!("ab{}", "0".repeat(30));
    expect(
        "trace_id",
        &[("(none)", NONE), (&trace, 6000 + 9000 + 15_000 + 7000)],
    );
    let [first, second] = ["0000000000000001", "0000000000000002"];
    expect(
        "span_id",
        &[
            ("(none)", NONE),
            (first, 6000),
            (second, 9000 + 15_000 + 7000),
        ],
    );
    expect(
        "http_route",
        &[
            ("(none)", NONE + 7000),
            ("/index", 6000),
            ("/basket", 9000 + 15_000),
        ],
    );
    expect(
        "id",
        &[("(none)", NONE + 9000 + 15_000 + 7000), ("7", 6000)],
    );
    expect(
        "tenant",
        &[("(none)", NONE + 6000 + 9000 + 7000), ("acme", 15_000)],
    );
    assert_eq!(
        log.profile.run.resource,
        [("service.name".into(), "shop".into())]
    );
    assert_eq!(folded(&log), 0);
}

/// The library with the contexts is opened while threads run, closed, and opened again.
#[test]
fn spans_of_a_library_that_is_opened_are_labels() {
    for plugin in ["context_plugin.so", "context_plugin_static.so"] {
        let run = Run::fixture("opened_contexts").arg(plugin).interval(1);
        let ran = run.run().well();
        let log = ran.log().whole();
        let spans = ran.stdout.lines().map(|line| {
            let (span, bytes) = line.strip_prefix("span ")?.split_once(' ')?;
            let bytes: u64 = bytes.parse().ok()?;
            Some((span.to_owned(), (bytes, bytes)))
        });
        let spans = spans.collect::<Option<BTreeMap<_, _>>>().unwrap();
        assert_eq!(by_label(&log, "span_id"), spans, "{plugin}");
    }
}

#[test]
fn an_empty_key_has_a_name() {
    const SOURCE: &str = r#"
#include "heapprof.h"
#include <stdlib.h>
int main(void) {
    HEAPPROF_LABEL_PUSH("", "value");
    void *volatile block = malloc(30001);
    HEAPPROF_LABEL_POP();
    block = malloc(30002);
    return block == NULL;
}
"#;
    let include = format!("-I{}", repository().join("preload/include").display());
    let run = Run::compiled("nameless", SOURCE, &[&include]);
    let log = run.interval(1).run().well().log().whole();
    let values = |size| -> Vec<String> {
        let blocks = log.blocks_of(size).into_iter();
        let stacks = blocks.map(|block| &log.profile.stacks[block.stack]);
        stacks
            .map(|stack| stack.labels.value("(no key)").to_owned())
            .collect()
    };
    assert_eq!(
        (values(30001), values(30002)),
        (vec!["value".into()], vec!["(none)".into()])
    );
}

/// A checkpoint repeats the labels of all stacks, and the resource.
#[test]
fn labels_stay_in_a_log_that_rotates() {
    let run = Run::fixture("labels").arg("rotates").interval(1);
    let ran = run.env("HEAPPROF_MAX_LOG", "256K").run().well();
    let names = ran.files_ending(".heaplog");
    assert!(names.len() > 1, "{names:?}");
    let newest = names.iter().find(|name| name.matches('.').count() == 3);
    let newest = newest.unwrap_or_else(|| panic!("{names:?}"));
    let alone = ran.folder().join("alone.heaplog");
    fs::copy(ran.folder().join(newest), &alone).unwrap();
    let log = Log::read(&alone).whole();
    assert!(log.profile.run.checkpoint.is_some());
    let sums = by_label(&log, "tenant");
    assert_eq!(sums["early"], (5000, 5000), "{sums:?}");
    let (churned, in_use) = sums["churn"];
    assert_eq!((churned, in_use), (200_000 * 1000, 0), "{sums:?}");
    let service = [("service.name".into(), "shop".into())];
    assert_eq!(log.profile.run.resource, service);
}

/// The Rust side, in a program without a crate.
#[test]
fn a_rust_program_labels_a_scope() {
    const PROGRAM: &str = r#"
        mod heapprof;
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn site_labelled(size: usize) {
            std::mem::forget(std::hint::black_box(Vec::<u8>::with_capacity(size)));
        }
        fn main() {
            site_labelled(1000);
            {
                let _tenant = heapprof::label(c"tenant", c"acme");
                site_labelled(2000);
                let inner = heapprof::label(c"tenant", c"bolt");
                site_labelled(3000);
                drop(inner);
                site_labelled(4000);
            }
            site_labelled(5000);
            println!("{}", heapprof::mark(c"done"));
        }
    "#;
    let run = Run::program("");
    let main = run.folder().join("main.rs");
    fs::write(&main, PROGRAM).unwrap();
    let module = repository().join("preload/include/heapprof.rs");
    fs::copy(module, run.folder().join("heapprof.rs")).unwrap();
    let program = run.folder().join("labels_in_rust");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-g", "-o"]).arg(&program);
    let compiled = rustc.arg(&main).output().unwrap();
    let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success() && said.is_empty(), "{said}");
    let alone = Run::program(&program).without_library().run().well();
    assert_eq!(alone.stdout, "false\n");
    let ran = run.with_program(&program).interval(1).run().well();
    assert_eq!(ran.stdout, "true\n");
    let log = ran.log().whole();
    assert_eq!(log.markers(), ["done"]);
    let both = |bytes| (bytes, bytes);
    let sums = by_label(&log, "tenant");
    let expected = [("(none)", 6000), ("acme", 6000), ("bolt", 3000)];
    assert_eq!(
        sums,
        expected.map(|(name, n)| (name.to_owned(), both(n))).into()
    );
}

/// The commands, on a log that the library wrote.
#[test]
fn the_commands_group_and_filter_by_labels() {
    let ran = Run::fixture("labels")
        .arg("contexts")
        .interval(1)
        .run()
        .well();
    let top = |args: &[&str]| {
        let run = Run::heapprof()
            .arg("top")
            .args(args)
            .args(["--csv", "-n", "0"]);
        run.arg(ran.log_path()).run().well().stdout
    };
    let by_route = top(&["--by", "label:http_route", "--where", "tenant=acme"]);
    assert!(by_route.contains("/basket,3,0,15000,"), "{by_route}");
    assert!(!by_route.contains("/index"), "{by_route}");
    let info = Run::heapprof()
        .arg("info")
        .arg(ran.log_path())
        .run()
        .well()
        .stdout;
    assert!(info.contains("service.name=shop"), "{info}");
    assert!(info.contains("span_id, 2 values"), "{info}");
}

#[test]
fn without_the_library_labels_are_nothing() {
    let ran = Run::fixture("labels").without_library().run().well();
    assert_eq!(ran.files(), [""; 0]);
}
