//! The executable: the file that this process runs.
//!
//! Mostly it is `/proc/self/exe`. If the program is started through the loader
//! (`ld-linux-x86-64.so.2 ./server`), the kernel knows only the loader. Programs that bring their
//! own libc are started in this way. Then the executable is the file from which a part of the
//! program is mapped. Below a root without `/proc` it is the path that was passed to execve.

use std::ffi::CStr;
#[cfg(not(feature = "attach"))]
use std::ffi::c_char;

use heapprof_format::Mapping;

use crate::os::{link_map, procfs, sys};

/// Returns the absolute path of the executable, or an empty path if it is unknown.
pub(crate) fn path() -> Vec<u8> {
    let executed = || {
        let path = sys::readlink(c"/proc/self/exe")
            .ok()
            .or_else(absolute_exec_path);
        path.unwrap_or_default()
    };
    match loader_run_address() {
        None => executed(),
        Some(address) => mapped_at(address).unwrap_or_else(executed),
    }
}

/// Returns the name by which the program was executed, without folders, if its file has another
/// name. People know the process by this name, as `ps` does. `path` is [`path`].
pub(crate) fn executed_as(path: &[u8]) -> Option<Vec<u8>> {
    if loader_run_address().is_some() {
        return None; // the name is the loader's
    }
    let executed = executed_path()?;
    // A program that is executed by a descriptor has the descriptor's number as its name, and one
    // that executes itself by `/proc/self/exe` has `exe`.
    let name = file_name(executed);
    let is_link_of_kernel = [b"/dev/fd/".as_slice(), b"/proc/"].map(|it| executed.starts_with(it));
    let is_name = !name.is_empty() && !is_link_of_kernel.contains(&true);
    (is_name && name != file_name(path)).then(|| name.to_vec())
}

/// Returns true if one of the arguments is this word.
///
/// # Safety
/// `arguments` are those of the program, an array of C strings that ends with null.
#[cfg(not(feature = "attach"))]
pub(crate) unsafe fn has_argument(mut arguments: *const *const c_char, word: &CStr) -> bool {
    // SAFETY: the caller's promise: a word behind each that is not null.
    while let Some(argument) = unsafe { arguments.read().as_ref() } {
        // SAFETY: the caller's promise.
        if unsafe { CStr::from_ptr(argument) } == word {
            return true;
        }
        // SAFETY: not behind the null.
        arguments = unsafe { arguments.add(1) };
    }
    false
}

/// Returns the last component of a program's path.
pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|&byte| byte == b'/').next();
    let name = name.unwrap_or_default();
    name.strip_suffix(b" (deleted)").unwrap_or(name)
}

/// Returns an address in the program's file, if the kernel was asked to run the loader. Then the
/// kernel has loaded no other interpreter.
fn loader_run_address() -> Option<u64> {
    // SAFETY: reads a number of the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    (base == 0).then(link_map::address_in_program)
}

/// Returns the path passed to execve, if it is absolute. The folder of a relative path is unknown.
fn absolute_exec_path() -> Option<Vec<u8>> {
    let path = executed_path()?;
    path.starts_with(b"/").then(|| path.to_vec())
}

/// Returns the path passed to execve. For a script it is the script's path.
fn executed_path() -> Option<&'static [u8]> {
    // SAFETY: reads a number of the auxiliary vector.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    if name.is_null() {
        return None;
    }
    // SAFETY: the kernel puts the name, with a terminator, above the first thread's stack, after
    // the environment's strings. It is mapped as long as the process lives, and no code writes to
    // it.
    Some(unsafe { CStr::from_ptr(name) }.to_bytes())
}

fn mapped_at(address: u64) -> Option<Vec<u8>> {
    let maps = procfs::of_process("maps");
    let mapping = String::from_utf8_lossy(&maps)
        .lines()
        .filter_map(Mapping::parse)
        .find(|mapping| (mapping.start..mapping.end).contains(&address))?;
    mapping
        .path
        .starts_with('/')
        .then(|| mapping.path.into_bytes())
}
