//! Ids and capabilities: the rights of the program's threads, and of the library's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use heapprof_tests::{Build, Log, Run, is_root};

/// No result of the program differs from a run without the library, and it is recorded on.
#[test]
fn keeps_capabilities() {
    if !is_root() {
        return;
    }
    for interval in [1, 65_536] {
        let run = Run::fixture("keeps_capabilities");
        // The forked child, which is not root, makes a log there.
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(run.folder(), all).unwrap();
        let ran = run.interval(interval).prefix("t").run().well();
        let claims = ran.claims();
        assert!(claims.failures.is_empty(), "{:?}", claims.failures);
        assert_eq!(claims.ok.len(), 11, "{:?}", claims.ok);
        let logs = ran.files_ending(".heaplog");
        let [own, child] = &logs[..] else {
            panic!("two logs expected, not {logs:?}")
        };
        // Root's file. It ends, with its line, if the writer wants to write between the two steps
        // of giving up.
        let log = Log::read(&ran.folder().join(own));
        assert!(log.torn.is_none(), "{:?}", log.torn);
        let log = Log::read(&ran.folder().join(child)).whole();
        if interval == 1 {
            for (size, in_use) in [(41004, 0), (41005, 100)] {
                let blocks = log.blocks_of(size);
                let left = blocks.iter().filter(|block| block.in_use).count();
                assert_eq!((blocks.len(), left), (100, in_use), "{size}");
            }
        }
    }
}

/// The program that changes rights for other programs.
#[test]
fn setpriv() {
    if !is_root() {
        return;
    }
    for groups in ["--clear-groups", "--keep-groups"] {
        let ids = ["--reuid=61001", "--regid=61002", groups];
        let run = Run::program("setpriv").args(ids).arg("id");
        let alone = Run::tool("setpriv").args(ids).arg("id").run().well();
        let ran = run.interval(1).prefix("t").run().well();
        assert_eq!(ran.stdout, alone.stdout);
        assert!(ran.files().contains(&"t.heaplog".to_owned()));
    }
}

/// The library's thread answers libc when all threads must change their ids, whichever thread
/// started it.
#[test]
fn ids_with_threads() {
    for first in ["", "block"] {
        for interval in [1, 16_384] {
            let run = Run::fixture("ids_with_threads").args(Some(first).filter(|s| !s.is_empty()));
            let ran = run.interval(interval).prefix("t").run().well();
            assert_eq!(ran.claims().ok, ["with_thread", "in_thread", "in_child"]);
            assert_eq!(ran.stderr, "");
            if interval == 1 {
                let log = Log::read(&ran.folder().join("t.heaplog")).whole();
                for size in [42001, 42002] {
                    assert_eq!(log.blocks_of(size).len(), 1, "{size}");
                }
            }
        }
    }
}

/// Root in a container mostly may not control a process: the message names the user that may.
#[test]
fn a_root_that_may_not_control_is_told_who_may() {
    if !is_root() {
        return;
    }
    let user = ["--reuid=61001", "--regid=61002", "--clear-groups"];
    let run = Run::tool("setpriv").args(user).arg("env");
    fs::set_permissions(run.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    // Readable by that user, in any build folder.
    let ours = |name: &str, file: &Path| {
        let copy = run.folder().join(name);
        fs::copy(file, &copy).unwrap();
        copy.display().to_string()
    };
    let library = ours("libheapprof.so", Build::get().library());
    let heapprof = ours("heapprof", &Build::get().heapprof);
    let mut running = run
        .arg(format!("LD_PRELOAD={library}"))
        .args(["HEAPPROF_CONTROL=1", "sleep", "60"])
        .start();
    let pid = running.pid().to_string();
    let ask = ["ctl", &pid, "status"];
    running.until("its answer", |_| {
        let asked = Run::tool("setpriv").args(user).arg(&heapprof).args(ask);
        asked.run().code() == 0
    });
    let without =
        ["--bounding-set", "--inh-caps"].map(|set| format!("{set}=-sys_ptrace,-ipc_owner"));
    let refused = Run::tool("setpriv")
        .args(without)
        .arg(&heapprof)
        .args(ask)
        .run();
    assert_eq!(refused.code(), 1);
    assert!(
        refused.stderr.contains("CAP_IPC_OWNER"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("setpriv --reuid"),
        "{}",
        refused.stderr
    );
    running.signal(libc::SIGKILL);
    running.wait();
}
