//! Library: the path of `libheapprof.so` as seen from this executable.
//!
//! There is one library for programs of glibc and one for programs of musl.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::RegularFile;
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSymbol};

use super::program::Libc;
use crate::cli::output::failure::Failure;

const NAME: &str = "libheapprof.so";
/// Where it may be, beside this executable.
const FOLDERS: [&str; 6] = [
    "",
    "../lib",
    "../lib64",
    "../lib/x86_64-linux-gnu",
    "../lib/x86_64-linux-musl",
    "../musl",
];
/// Where the loaders look of whichever libc, and that of the other does not.
const INSTALLED: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-musl"];

/// The one for programs of that libc.
pub(crate) fn find(libc: Libc) -> Result<PathBuf, Failure> {
    let file = |path: &Path| path.canonicalize().ok().filter(|path| path.is_file());
    // Said by name, it is that one or none.
    let named = std::env::var_os("HEAPPROF_LIBRARY").filter(|path| !path.is_empty());
    let path = match named.map(PathBuf::from) {
        Some(path) => {
            let found = file(&path).ok_or(Failure::NamedLibrary { path })?;
            if libc_of(&found).is_some_and(|its| its != libc) {
                let (path, libc) = (found, libc.name());
                return Err(Failure::OtherLibrary { path, libc });
            }
            found
        }
        None => {
            let executable = std::env::current_exe().map_err(Failure::NoProc)?;
            let folder = executable.parent().unwrap_or(Path::new("/"));
            FOLDERS
                .iter()
                .filter_map(|beside| file(&folder.join(beside).join(NAME)))
                .find(|path| libc_of(path).is_none_or(|its| its == libc))
                .ok_or(Failure::NoLibrary {
                    libc: libc.name(),
                    beside: executable,
                })?
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

/// Returns the libc that a library is for, by the word that it asks of that libc's loader; `None`
/// if it is no library of ours.
fn libc_of(library: &Path) -> Option<Libc> {
    let map = RegularFile::open(library).ok()?.map().ok()?;
    let file = ElfFile::<FileHeader64<Endianness>>::parse(&*map).ok()?;
    let asks = |name: &str| {
        let mut symbols = file.dynamic_symbols();
        symbols.any(|symbol| symbol.is_undefined() && symbol.name() == Ok(name))
    };
    if asks("_dl_debug_addr") {
        Some(Libc::Musl)
    } else if asks("_r_debug") {
        Some(Libc::Glibc)
    } else {
        None
    }
}

/// Returns the value of `LD_PRELOAD`. A loader ends the program if it cannot load a preloaded
/// library, such as the library for the other libc. It goes on if it does not find one. So a
/// library that is installed where only its own loader looks is named without its folder. Then each
/// program that the profiled program starts gets the library of its libc, or runs without one. (Not
/// if `LD_LIBRARY_PATH` could lead to another file of that name.)
pub(crate) fn named(path: &Path) -> OsString {
    let is_installed = INSTALLED.iter().any(|folder| {
        let folder = Path::new(folder).canonicalize();
        folder.is_ok_and(|folder| path.parent() == Some(&folder))
    });
    if is_installed && std::env::var_os("LD_LIBRARY_PATH").is_none() {
        return OsStr::new(NAME).to_owned();
    }
    path.into()
}
