//! Followed logs of forked processes: `serve` and `push` have what these inherited, once.

use std::fs;
use std::path::Path;

use heapprof_format::{FORKED_AT, PARENT_LOG, Start};

use crate::common::processes::{S, begin};
use crate::common::{LogBuilder, json};
use crate::serve::{Server, sums};

/// A parent with ten blocks of 1000 bytes.
fn parent() -> LogBuilder {
    let mut log = LogBuilder::new(1);
    log.begins(begin(30, 1));
    log.module("/bin/server", 0x1000, 0x1000);
    let stack = log.stack(&[0x1010, 0x1020]);
    for _ in 0..10 {
        log.alloc(stack, 1000);
    }
    log
}

/// The start of a child that is forked half a second after the parent's start.
fn forked(pid: u32, parent: &Path) -> Start {
    Start {
        forked_from: 30,
        parent_log_number: 30,
        monotonic_ns: 30 * S + S / 2,
        settings: vec![
            (FORKED_AT.into(), (30 * S + S / 2).to_string()),
            (PARENT_LOG.into(), parent.to_str().unwrap().into()),
        ],
        ..begin(pid, 1)
    }
}

#[test]
fn a_forked_process_has_what_it_inherited_however_its_log_grows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut log = parent();
    log.flush();
    log.record_at(S, |time_ns| heapprof_format::Record::Marker {
        time_ns,
        name: "late".into(),
    });
    log.free(10); // after the fork: the child has it
    fs::write(at("parent.heaplog"), log.current_bytes()).unwrap();

    let mut child = LogBuilder::new(1);
    child.begins(forked(31, &at("parent.heaplog")));
    // A look between the first record and the modules must not settle what was inherited.
    fs::write(at("child.heaplog"), child.current_bytes()).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/debug/pprof/", "heap?pid=31");
    child.module("/bin/server", 0x1000, 0x1000);
    fs::write(at("child.heaplog"), child.current_bytes()).unwrap();
    server.get("/debug/pprof/heap?pid=31");
    let stack = child.stack(&[0x1030, 0x1020]);
    child.alloc_as(1001, stack, 7);
    child.free(1);
    child.free(2);
    fs::write(at("child.heaplog"), child.current_bytes()).unwrap();

    let heap = server.pprof("/debug/pprof/heap?pid=31");
    assert_eq!(sums(&heap), [11, 10_007, 9, 8007]);
    // The reader of a whole log has the same.
    let path = at("child.heaplog");
    let read = json(&["export", "-f", "json", path.to_str().unwrap()]);
    assert_eq!(read["totals"]["in-use-bytes"], 8007);
    let metrics = server.until("/metrics", "pid=\"31\"");
    let line = "heapprof_in_use_bytes{pid=\"31\",program=\"server\",log=\"child.heaplog\"} 8007\n";
    assert!(metrics.contains(line), "{metrics}");
    let inherited = "heapprof_inherited_in_use_bytes{pid=\"31\",program=\"server\",log=\"child.heaplog\"} 8000\n";
    assert!(metrics.contains(inherited), "{metrics}");
    assert_eq!(sums(&server.pprof("/debug/pprof/heap?pid=30"))[3], 9000);
    child.free(3);
    fs::write(at("child.heaplog"), child.current_bytes()).unwrap();
    assert_eq!(sums(&server.pprof("/debug/pprof/heap?pid=31"))[3], 7007);
    // A grandchild has both.
    let mut grandchild = LogBuilder::new(1);
    let start = Start {
        forked_from: 31,
        parent_log_number: 31,
        monotonic_ns: 40 * S,
        settings: vec![
            (FORKED_AT.into(), (40 * S).to_string()),
            (PARENT_LOG.into(), path.to_str().unwrap().into()),
        ],
        ..begin(32, 1)
    };
    grandchild.begins(start);
    grandchild.module("/bin/server", 0x1000, 0x1000);
    let stack = grandchild.stack(&[0x1040]);
    grandchild.alloc_as(2001, stack, 1);
    fs::write(at("grandchild.heaplog"), grandchild.current_bytes()).unwrap();
    server.until("/debug/pprof/", "heap?pid=32");
    assert_eq!(sums(&server.pprof("/debug/pprof/heap?pid=32"))[3], 7008);
}

#[test]
fn a_lost_parent_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = LogBuilder::new(1);
    child.begins(forked(31, &folder.path().join("nowhere.heaplog")));
    let stack = child.stack(&[0x1]);
    child.alloc(stack, 7);
    child.free(500);
    fs::write(folder.path().join("child.heaplog"), child.current_bytes()).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/debug/pprof/", "heap?pid=31");
    let heap = server.pprof("/debug/pprof/heap");
    assert_eq!(sums(&heap)[3], 7);
    let says = |text: &String| text.contains("what was in use then is missing");
    assert!(
        heap.string_table.iter().any(says),
        "{:?}",
        heap.string_table
    );
}
