//! Readings of pages of several processes, joined: as if one reading were of all.

use heapprof_format::{PageReading, PagesOfBlock, Record, Touch};
use std::path::Path;

use crate::common::{LogBuilder, heapprof, json, stdout, write};

const MIB: u64 = 1 << 20;

/// A block of 5 MiB of which `resident` MiB are resident, and a later one of 1 MiB. The process
/// goes on for so long.
fn log(folder: &Path, pid: u32, resident: u64, goes_on_ns: u64) -> String {
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", pid, 1);
    let stack = log.stack(&[1, 2]);
    let id = log.alloc(stack, 5 * MIB);
    log.wait(1_000_000);
    log.record(|time_ns| {
        Record::Pages(PageReading {
            time_ns,
            is_last: true,
            knows_slabs: true,
            blocks: vec![PagesOfBlock {
                id,
                touch: Touch::of(5 * MIB, resident * MIB, 0),
                slab: None,
            }],
            ..PageReading::default()
        })
    });
    log.wait(1_000_000);
    log.alloc(stack, MIB);
    log.wait(goes_on_ns);
    let name = "all".to_owned();
    log.record(|time_ns| Record::Marker { time_ns, name });
    let name = format!("{pid}.heaplog");
    write(folder, &name, &log.end()).display().to_string()
}

fn top(logs: [&str; 2], metric: &str) -> (f64, String) {
    let words = ["top", "--joined", "--by", "module", "-m", metric];
    let document = json(&[&words[..], &["--json"], &logs].concat());
    let groups = document["groups"].as_array().expect("groups").iter();
    let bytes: f64 = groups.filter_map(|group| group["self"].as_f64()).sum();
    (
        bytes / MIB as f64,
        stdout(&heapprof(&[&words[..], &logs].concat())),
    )
}

#[test]
fn a_joined_reading_has_the_blocks_of_all_and_counts_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = log(folder.path(), 77, 2, 0);
    let (equal, longer) = (
        log(folder.path(), 78, 4, 0),
        log(folder.path(), 79, 4, 9_000_000),
    );
    let (resident, text) = top([&first, &equal], "resident");
    assert_eq!(resident, 6.0);
    let words = "1 blocks without a reading are left out";
    assert!(text.contains(words), "{text}");
    assert_eq!(top([&first, &equal], "untouched").0, 4.0);
    // A process that has ended has no blocks.
    assert_eq!(top([&first, &longer], "resident").0, 4.0);
}
