//! Checkpoints of a program with many blocks in use. They are sorted in batches and written
//! between looks at the queue, and must equal those written at once.

use heapprof_format::{Reader, Record};
use heapprof_symbolizer::{Input, Numbers};
use heapprof_tests::Run;

const KEPT: u64 = 20_000;

#[test]
fn a_checkpoint_has_every_block_once_in_order_of_time() {
    let ran = Run::fixture("stalls")
        .args([KEPT.to_string().as_str(), "0.1"])
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        // A segment is then two checkpoints: less than a megabyte. All passing blocks together take
        // more.
        .env("HEAPPROF_MAX_LOG", (512 << 10).to_string())
        .run()
        .well();
    let path = ran.folder().join("t.heaplog");
    let bytes = std::fs::read(&path).unwrap();
    let mut reader = Reader::new(&bytes).unwrap();
    let mut seen = Vec::new();
    let mut is_in_checkpoint = false;
    loop {
        match reader.next_record().unwrap() {
            Some(Record::Checkpoint(_)) => is_in_checkpoint = true,
            Some(Record::Alloc(alloc)) if is_in_checkpoint => seen.push((alloc.time_ns, alloc.id)),
            Some(Record::CheckpointEnd { .. }) | None => break,
            Some(_) => {}
        }
    }
    assert!(is_in_checkpoint, "the log did not rotate");
    assert!(seen.len() as u64 >= KEPT, "{} blocks", seen.len());
    assert!(seen.is_sorted(), "blocks are not in order of time");
    let mut ids: Vec<u64> = seen.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), seen.len(), "blocks are there twice");

    // A reader of all segments finds each block.
    let profile = Input::open(&path).unwrap().read(|_| ()).unwrap();
    let kept: Vec<Numbers> = profile
        .rows
        .iter()
        .map(|row| Numbers::of(&row.totals))
        .filter(|numbers| numbers.allocated_objects == KEPT)
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(kept[0].in_use_objects, KEPT);
    assert_eq!(profile.account.unknown_frees, 0);
}
