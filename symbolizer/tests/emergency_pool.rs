//! The emergency pool of libstdc++ has a name of its own, in whatever way it is linked.

use crate::common::{LogBuilder, json, write};
use serde_json::Value;

const HOOK: u64 = 0x9010;
const INITIALISER: u64 = 0x6101;
const LOADER: u64 = 0x7201;

/// The sites of a program, with their bytes.
fn sites(log: LogBuilder, args: &[&str]) -> Vec<(String, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "s.heaplog", &log.end());
    let top = json(&[&["top", "--json", file.to_str().unwrap()][..], args].concat());
    let sites = top["sites"].as_array().unwrap().iter();
    let site = |site: &Value| {
        let bytes = site["self"]["in-use-bytes"].as_u64();
        (
            site["function"].as_str().unwrap().to_owned(),
            bytes.unwrap(),
        )
    };
    sites.map(site).filter(|(_, bytes)| *bytes > 0).collect()
}

fn server() -> LogBuilder {
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x1000);
    log.module("/lib/libstdc++.so.6.0.30", 0x6000, 0x1000);
    log.module("/lib64/ld-linux-x86-64.so.2", 0x7000, 0x1000);
    log.module("/lib/libheapprof.so", 0x9000, 0x1000);
    log
}

#[test]
fn an_initialiser_of_the_library_that_the_loader_calls_is_the_pools() {
    let mut log = server();
    let pool = log.stack(&[HOOK, INITIALISER, LOADER, LOADER + 0x10]);
    log.alloc(pool, 72_704);
    // A function of the library that the program calls, and one of the program that the loader
    // calls.
    let called = log.stack(&[HOOK, 0x6501, 0x1101]);
    log.alloc(called, 100);
    let own = log.stack(&[HOOK, 0x1301, LOADER]);
    log.alloc(own, 10);
    assert_eq!(
        sites(log, &[]),
        [
            ("(libstdc++'s emergency pool for exceptions)".into(), 72_704),
            ("[libstdc++.so.6.0.30+0x500]".into(), 100),
            ("[server+0x300]".into(), 10),
        ]
    );
}

#[test]
fn linked_into_the_program_it_is_known_by_its_initialiser() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogBuilder::new(1);
    let pool = log.stack(&[0x10, 0x1001, 0x2001]);
    log.alloc(pool, 72_704);
    let map =
        b"10 8 malloc\n1000 10 _GLOBAL__sub_I__ZN9__gnu_cxx9__freeresEv\n2000 10 __libc_csu_init\n";
    let map = write(folder.path(), "perf.map", map);
    let found = sites(log, &["--perf-map", map.to_str().unwrap()]);
    assert_eq!(found[0].0, "(libstdc++'s emergency pool for exceptions)");
}
