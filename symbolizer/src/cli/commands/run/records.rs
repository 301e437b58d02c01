//! Records: the files that a run leaves behind.
//!
//! The library chooses their names (`PREFIX.heaplog`, `PREFIX_PID.PROGRAM.heaplog`,
//! `heapprof.PROGRAM.PID.heaplog`; dumps are `….NNNN.heap` beside their log). So the owner of a log
//! is read from its first record. A process that executes other programs on its way (`env`, a shell
//! that ends in `exec`) leaves a log for each. The last of these logs is that of the program that
//! the user means.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use heapprof_symbolizer::{RegularFile, newest_of, start_of_file};

#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The log of the program, the last one that the process executed.
    pub(crate) log: Option<PathBuf>,
    /// That log's dumps.
    pub(crate) dumps: Vec<PathBuf>,
    /// Logs of what the process was before.
    pub(crate) before: Vec<PathBuf>,
    /// Logs of other processes of the run.
    pub(crate) of_children: Vec<PathBuf>,
}

impl Records {
    /// Finds the logs of a process that was started then, and of its children. `place` is the
    /// folder and the beginning of names, if there is a prefix.
    pub(crate) fn find(place: Option<(&Path, &str)>, pid: u32, started: SystemTime) -> Records {
        let with_prefix = place.map(|(folder, stem)| Records::within(folder, stem, pid, started));
        match with_prefix {
            Some(records) if !records.kept().is_empty() => records,
            // Where a prefix cannot be written to, the library records to the default name.
            _ => Records::within(Path::new("."), "heapprof.", pid, started),
        }
    }

    fn within(folder: &Path, stem: &str, pid: u32, started: SystemTime) -> Records {
        let started_ns = started
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |t| t.as_nanos() as u64);
        let mut own: Vec<(u64, PathBuf)> = Vec::new();
        let mut records = Records::default();
        for path in files(folder) {
            let is_log = name(&path).ends_with(".heaplog");
            // The older segments of a log that rotates are read with the newest.
            let is_older =
                newest_of(&name(&path)).is_some_and(|newest| folder.join(newest).exists());
            if !is_log || is_older || !name(&path).starts_with(stem) {
                continue;
            }
            match owner(&path) {
                // An older process may have had the same number.
                Some((_, start_ns)) if start_ns < started_ns => {}
                Some((owner, start_ns)) if owner == pid => own.push((start_ns, path)),
                Some(_) => records.of_children.push(path),
                None => {}
            }
        }
        own.sort();
        records.log = own.pop().map(|(_, path)| path);
        records.before = own.into_iter().map(|(_, path)| path).collect();
        records.of_children.sort();
        records.dumps = records.log.as_deref().map_or_else(Vec::new, dumps_of);
        records
    }

    /// Returns the logs of the program and of all other processes, the program's first.
    pub(crate) fn kept(&self) -> Vec<PathBuf> {
        self.log.iter().chain(&self.of_children).cloned().collect()
    }
}

/// Returns the dumps of a log, in their order.
pub(super) fn dumps_of(log: &Path) -> Vec<PathBuf> {
    let log_name = name(log);
    let is_dump = |path: &PathBuf| log_of_dump(&name(path)).as_ref() == Some(&log_name);
    let mut dumps: Vec<PathBuf> = files(&folder_of(log)).filter(is_dump).collect();
    dumps.sort();
    dumps
}

/// Returns the name of the log that a dump of that name lies beside; `None`: it is no dump's name.
pub(crate) fn log_of_dump(name: &str) -> Option<String> {
    let (base, number) = name.strip_suffix(".heap")?.rsplit_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| format!("{base}.heaplog"))
}

/// Returns the folder of a file.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// Returns the files of a folder.
pub(crate) fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Returns a file's name without its folder.
pub(crate) fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The process that a log is of, and when it began, in nanoseconds since 1970.
fn owner(log: &Path) -> Option<(u32, u64)> {
    // In a folder that others may write to, a file may be theirs, or none at all.
    let file = RegularFile::open_itself(log).ok()?;
    if !may_be_ours(file.meta().uid()) {
        return None;
    }
    let start = start_of_file(&file)?;
    Some((start.pid, start.wall_ns))
}

/// Returns true if a program that we started may have written a file of that owner: it has our
/// rights, or those of its own file. A program that root started may run as any user.
fn may_be_ours(owner: u32) -> bool {
    // SAFETY: a question without arguments.
    let user = unsafe { libc::geteuid() };
    user == 0 || owner == user || owner == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_format::{Encoder, FILE_HEADER, Record, Start};
    use std::time::Duration;

    fn log(folder: &Path, name: &str, pid: u32, wall_ns: u64) {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            pid,
            wall_ns,
            ..Start::default()
        }));
        let bytes = [&FILE_HEADER[..], encoder.finish()].concat();
        fs::write(folder.join(name), bytes).unwrap();
    }

    #[test]
    fn the_last_program_of_the_process_is_the_one_that_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        log(folder, "s.heaplog", 77, 100); // env
        log(folder, "s_77.heaplog", 77, 300); // the program it became
        log(folder, "s_78.heaplog", 78, 400); // a child
        log(folder, "s_77_2.heaplog", 77, 5); // an older run with the same number
        log(folder, "other.heaplog", 77, 500);
        for dump in [
            "s_77.0001.heap",
            "s_77.0002.heap",
            "s_77_2.0001.heap",
            "s.0001.heap",
            "s_77.x.heap",
        ] {
            fs::write(folder.join(dump), "").unwrap();
        }
        let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(50);
        let records = Records::find(Some((folder, "s")), 77, started);
        let names = |paths: &[PathBuf]| paths.iter().map(|path| name(path)).collect::<Vec<_>>();
        assert_eq!(
            records.log.as_deref().map(name).as_deref(),
            Some("s_77.heaplog")
        );
        assert_eq!(names(&records.dumps), ["s_77.0001.heap", "s_77.0002.heap"]);
        assert_eq!(names(&records.before), ["s.heaplog"]);
        assert_eq!(names(&records.of_children), ["s_78.heaplog"]);
    }
}
