//! Cgroup: a memory cgroup of a test's own, with a limit.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use heapprof_core::{Cgroup, CgroupVersion};

/// A cgroup below that of the test. It is removed at the end, when its processes have ended.
#[derive(Debug)]
pub struct MemoryCgroup {
    folder: PathBuf,
    version: CgroupVersion,
}

impl MemoryCgroup {
    /// Makes a cgroup with that limit, in bytes. `None`: the machine does not allow it, which is
    /// printed.
    pub fn with_limit(bytes: u64) -> Option<MemoryCgroup> {
        let made = MemoryCgroup::make(bytes);
        if let Err(why) = &made {
            println!("skipped: no memory cgroup can be made here: {why}");
        }
        made.ok()
    }

    fn make(bytes: u64) -> Result<MemoryCgroup, String> {
        let text =
            |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (member, mounts) = (text("/proc/self/cgroup")?, text("/proc/self/mountinfo")?);
        let above = Cgroup::find(&member, &mounts).ok_or("none is mounted")?;
        let version = above.version;
        let own = above.folders().next().ok_or("none has a folder")?;
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("heapprof-test-{}-{number}", std::process::id());
        let cgroup = MemoryCgroup {
            folder: Path::new(&own).join(name),
            version,
        };
        let failed = |what: &str, error: std::io::Error| format!("{what} in {own}: {error}");
        fs::create_dir(&cgroup.folder).map_err(|error| failed("a folder", error))?;
        let limit = match version {
            CgroupVersion::One => "memory.limit_in_bytes",
            CgroupVersion::Two => "memory.max",
        };
        fs::write(cgroup.folder.join(limit), bytes.to_string())
            .map_err(|error| failed("a limit", error))?;
        Ok(cgroup)
    }

    /// Returns the file that tells how much memory is used.
    pub fn usage(&self) -> PathBuf {
        self.folder.join(match self.version {
            CgroupVersion::One => "memory.usage_in_bytes",
            CgroupVersion::Two => "memory.current",
        })
    }

    /// Opens the list of processes, to which a process adds itself by writing 0.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub(crate) fn processes(&self) -> File {
        let list = File::options()
            .write(true)
            .open(self.folder.join("cgroup.procs"));
        list.expect("a cgroup of ours")
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A process that was killed leaves a little later.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
