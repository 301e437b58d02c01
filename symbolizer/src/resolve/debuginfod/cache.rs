//! Cache: fetched files by build-id, in the layout of elfutils' client.
//!
//! ```text
//! <cache>/<build-id>/debuginfo     a file that was fetched; empty: no server had it at its time
//! <cache>/<build-id>/executable    the same for the module itself
//! <cache>/cache_miss_s             for how many seconds an empty file is believed, in decimal
//! ```
//!
//! The layout is shared: gdb and `debuginfod-find` find what is fetched here, and the reverse.
//! elfutils' client removes files that nobody used for a week. No file in the cache is trusted:
//! each user of a file verifies its build-id.

use super::super::report::BuildId;
use crate::regular_file::RegularFile;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The default of elfutils' client without a `cache_miss_s`.
const MISS_SECONDS: u64 = 600;
/// No `cache_miss_s` is longer, in bytes.
const LONGEST_NUMBER: u64 = 64;

pub(super) struct Cache(PathBuf);

/// The cache's knowledge of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cached {
    /// It is there.
    File,
    /// No server had it, so many seconds ago.
    Absent {
        seconds: u64,
    },
    Nothing,
}

impl Cache {
    pub(super) fn new(folder: &Path) -> Cache {
        Cache(folder.to_owned())
    }

    pub(super) fn path(&self, id: &BuildId, kind: &str) -> PathBuf {
        self.0.join(id.to_string()).join(kind)
    }

    pub(super) fn look(&self, path: &Path) -> Cached {
        let Ok(meta) = fs::metadata(path) else {
            return Cached::Nothing;
        };
        if meta.len() > 0 || !meta.is_file() {
            return Cached::File;
        }
        // A time in the future is a clock that was set: nothing to believe.
        let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
        match age {
            Some(age) if age.as_secs() <= self.miss_seconds() => Cached::Absent {
                seconds: age.as_secs(),
            },
            _ => Cached::Nothing,
        }
    }

    fn miss_seconds(&self) -> u64 {
        let file = RegularFile::open(&self.0.join("cache_miss_s"));
        let text = file.ok().and_then(|file| file.read(LONGEST_NUMBER).ok());
        let text = text.and_then(|text| String::from_utf8(text).ok());
        let number = text.and_then(|text| text.trim().parse().ok());
        number.unwrap_or(MISS_SECONDS)
    }

    /// Leaves an empty file. That it cannot is no loss: the servers are asked again.
    pub(super) fn remember_absence(&self, path: &Path) {
        let _ = path.parent().map(make_folder);
        // Written anew when an older one is there, so that its time is now; but never over a file.
        if fs::metadata(path).is_ok_and(|meta| meta.len() == 0) {
            let _ = fs::remove_file(path);
        }
        let mut options = OpenOptions::new();
        let _ = options.write(true).create_new(true).mode(0o400).open(path);
    }

    /// A file to write into that has no name in the cache yet.
    pub(super) fn part(&self, id: &BuildId, kind: &str) -> Result<Part, CacheError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let place = self.path(id, kind);
        let folder = place.parent().unwrap_or(&self.0);
        let of = |source| CacheError {
            path: folder.to_owned(),
            source,
        };
        make_folder(folder).map_err(of)?;
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{kind}.{}-{number}", std::process::id()));
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    return Ok(Part {
                        file,
                        path,
                        place,
                        is_kept: false,
                    });
                }
                // Left behind by a process of that number that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(of(error)),
            }
        }
    }
}

/// Why nothing can be cached.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to the cache in {}", path.display())]
pub(super) struct CacheError {
    path: PathBuf,
    source: io::Error,
}

/// Other users must not see which modules were profiled.
fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A file on its way into the cache; removed unless it is kept.
pub(super) struct Part {
    file: File,
    path: PathBuf,
    place: PathBuf,
    is_kept: bool,
}

impl Part {
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, in one step. Returns the name.
    pub(super) fn keep(mut self) -> io::Result<PathBuf> {
        fs::rename(&self.path, &self.place)?;
        self.is_kept = true;
        Ok(self.place.clone())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    fn cache() -> (tempfile::TempDir, Cache, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(&folder.path().join("new"));
        let path = cache.path(&BuildId([0xab, 0xcd].into()), "debuginfo");
        (folder, cache, path)
    }

    #[test]
    fn an_absence_is_believed_for_its_time_and_no_longer() {
        let (folder, cache, path) = cache();
        assert_eq!(path, folder.path().join("new/abcd/debuginfo"));
        assert_eq!(cache.look(&path), Cached::Nothing);
        cache.remember_absence(&path);
        assert!(matches!(cache.look(&path), Cached::Absent { .. }));

        let made = |ago| {
            let _ = fs::remove_file(&path);
            let file = File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(ago))
                .unwrap();
        };
        made(590);
        assert!(matches!(
            cache.look(&path),
            Cached::Absent { seconds: 590.. }
        ));
        made(610);
        assert_eq!(cache.look(&path), Cached::Nothing);
        fs::write(folder.path().join("new/cache_miss_s"), "700\n").unwrap();
        assert!(matches!(cache.look(&path), Cached::Absent { .. }));
        made(0);
        cache.remember_absence(&path);
        assert!(matches!(
            cache.look(&path),
            Cached::Absent { seconds: 0..=60 }
        ));
    }

    /// In a cache that others may write to, any name may be that of a FIFO.
    #[test]
    fn a_fifo_is_not_waited_for() {
        let (folder, cache, path) = cache();
        cache.remember_absence(&path);
        let fifo = |path: &Path| {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        };
        fifo(&folder.path().join("new/cache_miss_s"));
        assert_eq!(cache.miss_seconds(), MISS_SECONDS);
        assert!(matches!(cache.look(&path), Cached::Absent { .. }));
        fs::remove_file(&path).unwrap();
        fifo(&path);
        assert!(super::super::ElfFile::open(&path).is_err());
    }

    #[test]
    fn a_part_has_no_name_until_it_is_kept_and_leaves_nothing_when_it_is_not() {
        let (_folder, cache, path) = cache();
        let id = BuildId([0xab, 0xcd].into());
        let mut dropped = cache.part(&id, "debuginfo").unwrap();
        dropped.file().write_all(b"half").unwrap();
        drop(dropped);
        let files = || fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files(), 0);

        let mut part = cache.part(&id, "debuginfo").unwrap();
        part.file().write_all(b"whole").unwrap();
        assert!(!path.exists());
        assert_eq!(part.keep().unwrap(), path);
        assert_eq!((fs::read(&path).unwrap(), files()), (b"whole".to_vec(), 1));
        // An absence is never written over a file.
        cache.remember_absence(&path);
        assert_eq!(cache.look(&path), Cached::File);
    }
}
