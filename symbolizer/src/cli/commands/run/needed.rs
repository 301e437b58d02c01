//! Needed libraries: those that the preloaded library needs, and that the program's loader does not
//! find. With one missing, the loader ends the program before it starts.
//!
//! The loader itself is asked, by its option `--list`. Its answer depends on its own folders, its
//! cache, the program's RUNPATH and the environment. It starts no program.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, ElfFile, FileHeader};

use super::program::{Libc, Program};

/// Returns the names of the libraries that `library` needs and the loader of the program does not
/// find, given the value of `LD_PRELOAD` and the program's arguments. Empty if nobody can tell.
pub(super) fn missing(
    program: &Program,
    words: &[OsString],
    library: &Path,
    preload: &OsStr,
) -> Vec<String> {
    if program.libc() != Libc::Glibc {
        return Vec::new(); // the library for musl needs musl alone
    }
    let needed = needed_by(library).unwrap_or_default();
    let listed = complaints(program, words, preload).unwrap_or_default();
    // glibc's loader stops at the first that it does not find, with an error.
    let is_missing = |name: &String| listed.contains(&format!(": {name}: cannot open "));
    needed.into_iter().filter(is_missing).collect()
}

/// Returns the loader's messages about libraries that it cannot load.
fn complaints(program: &Program, words: &[OsString], preload: &OsStr) -> Option<String> {
    let mut command = match program.loader() {
        Some(loader) => {
            let mut command = Command::new(loader);
            command.arg("--list").arg(program.path());
            command
        }
        // It is a loader, and its words say of what.
        None => {
            let mut command = Command::new(program.path());
            command.arg("--list").args(words);
            command
        }
    };
    // The loader reads no input. An empty one would be /dev/null, which an image may lack.
    let asked = command
        .env("LD_PRELOAD", preload)
        .env("LC_ALL", "C")
        .stdin(Stdio::inherit())
        .output();
    Some(String::from_utf8_lossy(&asked.ok()?.stderr).into_owned())
}

/// The names that a library asks the loader for.
fn needed_by(library: &Path) -> Option<Vec<String>> {
    let bytes = std::fs::read(library).ok()?;
    let file = ElfFile::<FileHeader64<Endianness>>::parse(&*bytes).ok()?;
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, &*bytes).ok()?;
    let (entries, strings) = sections.dynamic(endian, &*bytes).ok()??;
    let strings = sections.strings(endian, &*bytes, strings).ok()?;
    let names = entries
        .iter()
        .filter(|entry| entry.d_tag(endian) == DT_NEEDED)
        .filter_map(|entry| strings.get(entry.d_val(endian) as u32).ok());
    Some(
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect(),
    )
}
