//! A program that does nothing: its unused memory goes back to the kernel, as if it went on.

use heapprof_tests::Run;

#[test]
fn idles() {
    for interval in [1, 512 << 10] {
        let ran = Run::fixture("idles")
            .interval(interval)
            .prefix("t")
            .run()
            .well();
        let pages = ran.stdout.strip_prefix("pages ").expect("what it measured");
        let pages: Vec<u64> = pages
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        let [most, end] = pages[..] else {
            panic!("{pages:?}")
        };
        println!("{interval}: {most} pages at most, {end} in the end");
        assert!(most > 16_384, "64 MiB");
        assert!(end < most / 4, "{most} {end}");
    }
}
