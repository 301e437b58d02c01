//! Missing file: what is meant by the name of a file that does not exist.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{InputError, newest_of};

use crate::cli::inputs::process::log_of;
use crate::cli::options::quantity;
use crate::cli::output::failure::{Failure, program_of};

/// Most logs that are named.
const MOST: usize = 5;

/// Returns the failure with what may be meant, if it is a file that does not exist.
pub(crate) fn explained(failure: Failure) -> Failure {
    let Failure::Input(InputError::Open { path, source }) = &failure else {
        return failure;
    };
    if source.kind() != ErrorKind::NotFound {
        return failure;
    }
    let meant = about_process(path).or_else(|| about_logs(path));
    match meant {
        Some(meant) => Failure::Unfulfilled(format!(
            "cannot read {}: there is no such file{meant}",
            path.display()
        )),
        None => failure,
    }
}

/// Returns what to say if the name is the id of a process.
fn about_process(path: &Path) -> Option<String> {
    let pid = quantity::pid(path.to_str()?).ok()?;
    let program = program_of(pid)?;
    Some(match log_of(pid) {
        Ok(log) => format!(
            "; process {pid} ({program}) runs under heapprof, and its log is {}",
            log.display()
        ),
        Err(why) => format!("; process {pid} ({program}): {why}"),
    })
}

/// Returns what to say if there are logs whose names begin so, as those of a run with that prefix.
fn about_logs(path: &Path) -> Option<String> {
    let mut logs = logs_of(path);
    if logs.is_empty() {
        return None;
    }
    let more = logs.len().saturating_sub(MOST);
    logs.truncate(MOST);
    let named: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
    let more = match more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Some(format!(
        "; logs whose names begin so, the largest first: {}{more}",
        named.join(", ")
    ))
}

/// Returns the logs that a run with that prefix leaves, the largest first.
fn logs_of(path: &Path) -> Vec<PathBuf> {
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let Some(stem) = name(path) else {
        return Vec::new();
    };
    let stem = stem.strip_suffix(".heaplog").unwrap_or(&stem);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter();
    let mut logs: Vec<(u64, PathBuf)> = Vec::new();
    for entry in entries.flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let is_log = (file
            .strip_suffix(".heaplog")
            .and_then(|base| base.strip_prefix(stem)))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '.']));
        // The older segments of a log that rotates are read with the newest.
        let is_older = newest_of(&file).is_some_and(|newest| path.with_file_name(newest).exists());
        if is_log && !is_older {
            let size = entry.metadata().map_or(0, |meta| meta.len());
            logs.push((size, path.with_file_name(file)));
        }
    }
    logs.sort_by(|(size, path), (other, other_path)| other.cmp(size).then(path.cmp(other_path)));
    logs.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained_of(path: &Path) -> String {
        let (path, source) = (path.to_owned(), ErrorKind::NotFound.into());
        explained(InputError::Open { path, source }.into()).to_string()
    }

    #[test]
    fn logs_of_the_prefix_are_named_the_largest_first() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("py.heaplog");
        assert!(!explained_of(&missing).contains("begin so"));
        for (name, size) in [
            ("py_7.bash.heaplog", 1),
            ("py_8.python3.heaplog", 3),
            ("py_8.python3.0001.heaplog", 9), // an older segment
            ("py_9.sed.heaplog", 2),
            ("python.heaplog", 9),
            ("py_9.sed.0001.heap", 9),
        ] {
            fs::write(folder.path().join(name), vec![0; size]).unwrap();
        }
        let shown = |name| folder.path().join(name).display().to_string();
        let names = [
            "py_8.python3.heaplog",
            "py_9.sed.heaplog",
            "py_7.bash.heaplog",
        ]
        .map(shown);
        let words = format!("the largest first: {}", names.join(", "));
        for name in ["py.heaplog", "py"] {
            let said = explained_of(&folder.path().join(name));
            assert!(said.ends_with(&words), "{said}");
        }
        for n in 0..4 {
            fs::write(folder.path().join(format!("py_1.{n}.heaplog")), "").unwrap();
        }
        let said = explained_of(&missing);
        assert!(said.ends_with(", and 2 more"), "{said}");
    }

    #[test]
    fn a_process_that_is_not_recorded_is_named() {
        let own = std::process::id();
        let said = explained_of(Path::new(&own.to_string()));
        let program = program_of(own).unwrap();
        let words = format!("process {own} ({program}): it runs without heapprof");
        assert!(said.contains(&words), "{said}");
        assert!(said.contains(&format!("heapprof attach {own}")), "{said}");
    }
}
