//! What this machine lets a test do. If it does not, that is said, and the test shows nothing.

use crate::Run;

/// Whether commands may be run in a mount namespace of their own.
pub fn may_mount() -> bool {
    let probe = Run::tool("unshare")
        .args(["-rm", "sh", "-c", "mount -t tmpfs none /mnt"])
        .run();
    if !probe.status.success() {
        println!(
            "skipped: no mount namespace to be had here: {}",
            probe.stderr
        );
    }
    probe.status.success()
}

/// Whether the test can give up being root.
pub fn is_root() -> bool {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("skipped: only root can give up being root");
    }
    root
}
