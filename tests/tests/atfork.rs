//! Forks: pthread_atfork handlers of the program and its libraries, and children beside busy
//! threads.

use heapprof_tests::{Log, Run};

/// In the child, our handlers run before those of a library that was initialised before ours, and
/// that is profiled as any other. Handlers that were registered past ours run first: their
/// allocations are not recorded; their frees are, in the child's own log.
#[test]
fn atfork_before() {
    for past in [false, true] {
        for interval in [1, 65_536] {
            forks(past, interval);
        }
    }
}

/// 120 children cost 8 times the processor time of 120 that are not recorded, and 30 to 90 times if
/// the kernel spins (the fixture tells on what).
#[test]
fn forks_when_busy() {
    let used = |run: &dyn Fn() -> Run| {
        let ran = run().run().well();
        assert_eq!(ran.claims().ok, ["children"]);
        let line = ran
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("used "));
        line.and_then(|used| used.parse::<u64>().ok())
            .expect("no `used`")
    };
    let least = |run: &dyn Fn() -> Run| (0..3).map(|_| used(run)).min().unwrap();
    let without = least(&|| Run::fixture("forks_when_busy").without_library());
    let with = least(&|| Run::fixture("forks_when_busy").interval(1).prefix("t"));
    assert!(
        with < 18 * without.max(50),
        "{with} ms, and without us {without} ms"
    );
}

fn forks(past: bool, interval: u64) {
    let ran = Run::fixture("atfork_before")
        .arg(if interval == 1 { "6" } else { "100" })
        .args(Some("past").filter(|_| past))
        .interval(interval)
        .prefix("t")
        .run()
        .well();
    assert_eq!(ran.claims().ok, ["children"]);
    assert_eq!(ran.stderr, "");
    if interval > 1 {
        return;
    }
    let children = ran.files_ending(".heaplog").into_iter();
    let children: Vec<_> = children
        .filter(|name| name != "t.heaplog")
        .map(|name| ran.folder().join(name))
        .collect();
    assert!(
        ran.stdout
            .contains(&format!("allocated {}\n", children.len()))
    );
    for path in &children {
        let log = Log::read(path).whole();
        assert_eq!(log.blocks_of(36001).len(), 1, "{}", path.display());
        // The inherited block that the handler freed.
        assert!(log.unknown_frees() > 0, "{}", path.display());
        let of_handler = log.blocks_of(36103);
        let expected = if past { 0 } else { 100 };
        assert_eq!(of_handler.len(), expected, "{}", path.display());
        assert!(of_handler.iter().all(|block| !block.in_use));
    }
    // With the inherited blocks from its parent's log.
    let joined = heapprof_symbolizer::Input::open(&children[0])
        .and_then(|input| input.read(|_| ()))
        .unwrap_or_else(|error| panic!("{error}"));
    let in_use_of = |size| {
        let of_size = joined.rows.iter().filter(|row| {
            let all = &row.totals.allocated;
            all.bytes() == size * all.objects() && all.objects() > 0
        });
        of_size.map(|row| row.totals.in_use.objects()).sum::<u64>()
    };
    assert_eq!((in_use_of(36001), in_use_of(36002)), (1, 0));
}

/// libc knows the owners of the handlers, although our function stands in between.
#[test]
fn atfork_unloaded() {
    let run = Run::fixture("atfork_unloaded").interval(1).prefix("t");
    let ran = run.run().well();
    let each = ["loaded", "unloaded", "again", "unloaded_again"];
    assert_eq!(ran.claims().ok, each);
    assert_eq!(ran.stderr, "");
}
