//! The library: where `libheapprof.so` is, seen from this executable.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::Failure;

const NAME: &str = "libheapprof.so";
/// Where glibc's loader looks, and musl's does not. Beside `bin`, and as it is from the root.
const OF_GLIBC: (&str, &str) = ("../lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu");

pub(crate) fn find() -> Result<PathBuf, Failure> {
    let file = |path: &Path| path.canonicalize().ok().filter(|path| path.is_file());
    // Said by name, it is that one or none.
    let named = std::env::var_os("HEAPPROF_LIBRARY").filter(|path| !path.is_empty());
    let path = match named.map(PathBuf::from) {
        Some(path) => file(&path).ok_or(Failure::NamedLibrary { path })?,
        None => {
            let executable = std::env::current_exe().map_err(Failure::NoProc)?;
            let folder = executable.parent().unwrap_or(Path::new("/"));
            ["", "../lib", OF_GLIBC.0]
                .iter()
                .find_map(|beside| file(&folder.join(beside).join(NAME)))
                .ok_or(Failure::NoLibrary { beside: executable })?
        }
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

/// What `LD_PRELOAD` is to say. musl's loader ends a program whose preloaded library it cannot load, and goes on without one that it does not
/// find: a library that is installed where only glibc's looks is named without its folder, and a musl program that the profiled one
/// starts runs as without us. (Not where `LD_LIBRARY_PATH` could lead to another of that name.)
pub(crate) fn named(path: &Path) -> OsString {
    let is_installed = Path::new(OF_GLIBC.1)
        .canonicalize()
        .is_ok_and(|folder| path.parent() == Some(&folder));
    if is_installed && std::env::var_os("LD_LIBRARY_PATH").is_none() {
        return NAME.into();
    }
    path.into()
}
