//! How large blocks are: what the library computes for itself is what its allocator does.

use std::collections::BTreeMap;

use heapprof_format::{Reader, Record};
use heapprof_tests::{Finished, Run};

/// Every allocation of the log whose size is told of once: its usable size by its size.
fn recorded(ran: &Finished) -> BTreeMap<u64, u64> {
    let bytes = std::fs::read(ran.log_path()).unwrap();
    let mut reader = Reader::new(&bytes).unwrap();
    let mut usable = BTreeMap::new();
    while let Some(record) = reader.next_record().unwrap() {
        if let Record::Alloc(alloc) = record {
            usable.entry(alloc.size).or_insert(alloc.size + alloc.slack);
        }
    }
    usable
}

#[test]
fn every_size() {
    let ran = Run::fixture("every_size").interval(1).run().well();
    let lines = ran.stdout.lines();
    let numbers = lines.filter_map(|line| line.strip_prefix("usable ")?.split_once(' '));
    let claimed: BTreeMap<u64, u64> = numbers
        .map(|(size, usable)| (size.parse().unwrap(), usable.parse().unwrap()))
        .collect();
    assert_eq!(claimed.len(), 32_769);
    let recorded = recorded(&ran);
    for (size, usable) in &claimed {
        assert_eq!(recorded.get(size), Some(usable), "size {size}");
    }
    // Blocks that realloc left where they were, or moved, are as large as new ones. Not those that are whole pages.
    assert!(ran.claims().failures.is_empty(), "{:?}", ran.claims());
    assert!(
        ran.stdout.contains("\nnote larger 0\n"),
        "{}",
        ran.stdout.lines().last().unwrap()
    );
}
