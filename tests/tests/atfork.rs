//! Handlers of the program's that run in a forked child before ours.

use heapprof_tests::{Log, Run};

/// What they allocate is not recorded; what they free is, in the child's own log.
#[test]
fn atfork_before() {
    for interval in [1, 65_536] {
        let ran = Run::fixture("atfork_before")
            .arg(if interval == 1 { "6" } else { "100" })
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        assert_eq!(ran.claims().ok, ["children"]);
        assert_eq!(ran.stderr, "");
        if interval > 1 {
            continue;
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
            // The block of its parent's that the handler freed; the blocks that it allocated are not known.
            assert!(log.unknown_frees() > 0, "{}", path.display());
        }
        // With what it has from its parent's log.
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
}
