//! Machine: its rights for a test, and its clock. If a right is missing, the test says so and
//! passes without a result.

use crate::Run;

/// Returns true if commands may run in a mount namespace of their own.
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

/// Returns true if the test can give up being root.
pub fn is_root() -> bool {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("skipped: only root can give up being root");
    }
    root
}

/// Returns the monotonic clock, which is the clock of the logs, in ns.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
