//! `heapprof info` of a part of a log counts what is in that part.

use crate::common::history::{S, folder, json};
use crate::common::{LogBuilder, write};

#[test]
fn stacks_are_counted_that_have_a_sample_there() {
    let folder = folder();
    let mut log = LogBuilder::new(1);
    let (first, second) = (log.stack(&[0x10, 0x1001]), log.stack(&[0x10, 0x2001]));
    log.wait(S);
    log.alloc(first, 1000);
    log.wait(S);
    log.alloc(second, 500);
    let log = write(folder.path(), "s.heaplog", &log.end());
    let log = log.display().to_string();
    for (view, stacks) in [
        (&["--at", "start"][..], 0),
        (&["--to", "50%"], 1),
        (&["--from", "50%"], 1),
        (&[], 2),
    ] {
        let info = json(&[&["info", "--json", &log], view].concat());
        assert_eq!(info["samples"]["allocated"], stacks, "{view:?}");
        assert_eq!(info["samples"]["stacks"], stacks, "{view:?}");
        let walks = info["walks"].as_array().expect("walks");
        let walked: u64 = walks
            .iter()
            .map(|walk| walk["stacks"].as_u64().unwrap())
            .sum();
        assert_eq!(walked, stacks, "{view:?}");
    }
}
