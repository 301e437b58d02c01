//! Kernel namespaces, some of which only a process with one thread may enter.

use heapprof_tests::Run;

/// The dumps have as many blocks as the log: the writer's account survives a while without a
/// thread.
#[test]
fn enters_namespaces() {
    for interval in [1, 4096] {
        let run = Run::fixture("enters_namespaces").interval(interval);
        let ran = run.prefix("t").run().well();
        let claims = ran.claims();
        assert!(claims.failures.is_empty(), "{:?}", claims.failures);
        assert_eq!(claims.ok.len() + claims.skipped.len(), 5, "{}", ran.stdout);
        assert_eq!(ran.stderr, "");
        let log = ran.log().whole();
        if interval > 1 {
            continue;
        }
        for size in 45001..=45004 {
            assert_eq!(log.blocks_of(size).len(), 40, "{size}");
        }
        let in_use = log.blocks().iter().filter(|block| block.in_use).count();
        let dump = ran.bytes("t.0001.heap");
        let head = String::from_utf8_lossy(&dump);
        let head = head.lines().next().expect("a first line").to_owned();
        assert!(
            head.starts_with(&format!("heap profile: {in_use:>6}:")),
            "{head}"
        );
    }
}

/// The programs that enter namespaces for other programs.
#[test]
fn unshare_and_nsenter() {
    for command in [
        &["unshare", "--user", "--map-root-user", "id"][..],
        &["nsenter", "--mount=/proc/self/ns/mnt", "id"],
    ] {
        let (program, args) = (command[0], &command[1..]);
        let alone = Run::tool(program).args(args).run();
        if !alone.status.success() {
            println!("skipped: {command:?} is not allowed here: {}", alone.stderr);
            continue;
        }
        let ran = Run::program(program).args(args).interval(1).prefix("t");
        let ran = ran.run().well();
        assert_eq!(ran.stdout, alone.stdout);
        assert!(!ran.stderr.contains("Invalid argument"), "{}", ran.stderr);
        assert!(ran.files().contains(&"t.heaplog".to_owned()));
    }
}
