//! Pages of blocks: each function is shown with the resident, swapped, untouched and pinned bytes
//! that the program itself finds in its page map and on the pages of its blocks.

use std::collections::BTreeMap;
use std::path::Path;

use heapprof_tests::{Finished, Json, Run};

const METRICS: [&str; 4] = ["resident", "swapped", "untouched", "pinned"];

/// Runs the fixture, whose only reading is that at its dump.
fn ran(interval: u64, allocator: &str) -> Finished {
    Run::fixture("block_pages")
        .interval(interval)
        .prefix("t")
        .env("HEAPPROF_ALLOCATOR", allocator)
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .run()
        .well()
}

/// The lines of `heapprof top` by function: bytes, and the standard error of these.
fn top(log: &Path, metric: &str) -> BTreeMap<String, [f64; 2]> {
    let shown = Run::heapprof()
        .args(["top", "--json", "-n", "0", "--by", "function", "-m", metric])
        .arg(log)
        .run()
        .well();
    let Json(document) = Json::parse(&shown.stdout);
    println!("{metric}: {document:#}");
    let lines = document["groups"].as_array().unwrap().iter();
    lines
        .map(|line| {
            let name = line["name"].as_str().unwrap().to_owned();
            let number = |of: &str| line[of].as_f64().unwrap();
            (name, [number("self"), number("self_error")])
        })
        .collect()
}

/// The numbers that the fixture states, in the order of [`METRICS`].
fn stated(ran: &Finished) -> Vec<(String, [f64; 4])> {
    let lines = ran.stdout.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        (words[0].to_owned(), [1, 2, 3, 4].map(number))
    });
    lines.collect()
}

#[test]
fn block_pages() {
    let ran = ran(1, "jemalloc");
    let stated = stated(&ran);
    assert_eq!(stated.len(), 5);
    for (place, metric) in METRICS.into_iter().enumerate() {
        let shown = top(&ran.folder().join("t.heaplog"), metric);
        for (function, numbers) in &stated {
            let [bytes, error] = shown.get(function).copied().unwrap_or_default();
            assert_eq!(
                (bytes, error),
                (numbers[place], 0.0),
                "{metric} of {function}"
            );
        }
    }
    // The fixture is what it says: much is untouched, and little pins much.
    let of = |function: &str| stated.iter().find(|line| line.0 == function).unwrap().1;
    let [resident, swapped, untouched, _] = of("allocates_large");
    assert!(resident + swapped < untouched);
    let [resident, _, _, pinned] = of("keeps_256");
    assert!(pinned > resident);
}
