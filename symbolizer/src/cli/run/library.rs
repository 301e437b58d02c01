//! The library: where `libheapprof.so` is, seen from this executable.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::Failure;

const NAME: &str = "libheapprof.so";

pub(crate) fn find() -> Result<PathBuf, Failure> {
    let executable = std::env::current_exe().unwrap_or_default();
    let folder = executable.parent().unwrap_or(Path::new("/"));
    let candidates = match std::env::var_os("HEAPPROF_LIBRARY") {
        // Said by name, it is that one or none.
        Some(path) => vec![PathBuf::from(path)],
        None => vec![folder.join(NAME), folder.join("../lib").join(NAME)],
    };
    let found = candidates
        .iter()
        .find_map(|path| path.canonicalize().ok().filter(|p| p.is_file()));
    let Some(path) = found else {
        return Err(Failure::NoLibrary { beside: executable });
    };
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|&b| b == b':' || b.is_ascii_whitespace())
    {
        return Err(Failure::LibraryPath { path });
    }
    Ok(path)
}
