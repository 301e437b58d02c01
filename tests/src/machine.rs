//! Machine: its rights for a test, its swap, and its clock. If a right is missing, the test says so
//! and passes without a result.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tempfile::TempDir;

use crate::Run;

/// Bytes of a swap file.
const SWAP: u64 = 64 << 20;

/// Swap: that of the machine, or a file that this test has added, and takes away again.
#[derive(Debug)]
pub struct Swap {
    added: Option<(TempDir, CString)>,
}

impl Swap {
    /// Returns the machine's swap, or adds a file of 64 MiB. `None`: there is none, and none can be
    /// added.
    pub fn borrow() -> Option<Swap> {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps.lines().count() > 1 {
            return Some(Swap { added: None });
        }
        let added = Swap::add();
        if let Err(why) = &added {
            println!("skipped: the machine has no swap, and none can be added: {why}");
        }
        added.ok()
    }

    fn add() -> Result<Swap, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = folder.path().join("swap");
        // Without holes, which the kernel refuses.
        std::fs::write(&path, vec![0; SWAP as usize]).map_err(|error| error.to_string())?;
        let made = Run::tool("mkswap").arg(&path).run();
        if !made.status.success() {
            return Err(made.stderr);
        }
        let name = c_path(&path);
        // SAFETY: reads a C string.
        match unsafe { libc::swapon(name.as_ptr(), 0) } {
            0 => Ok(Swap {
                added: Some((folder, name)),
            }),
            _ => Err(std::io::Error::last_os_error().to_string()),
        }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if let Some((_, name)) = &self.added {
            // SAFETY: reads a C string.
            unsafe { libc::swapoff(name.as_ptr()) };
        }
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path without zeros")
}

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
