//! The program: the file that this process runs.
//!
//! Mostly that is `/proc/self/exe`. Where the loader was told to run it (`ld-linux-x86-64.so.2 ./server`, as programs are
//! started that bring a libc of their own), the kernel knows the loader only; then it is the file that a part of the program is mapped from.
//! Below a root without `/proc` it is what was executed, by the words of whoever did.

use std::ffi::CStr;

use heapprof_format::Mapping;

use crate::os::{link_map, procfs, sys};

/// Its absolute path, or nothing where that is not known.
pub(crate) fn path() -> Vec<u8> {
    let executed = || {
        let path = sys::readlink(c"/proc/self/exe")
            .ok()
            .or_else(named_to_the_kernel);
        path.unwrap_or_default()
    };
    match address_if_run_by_the_loader() {
        None => executed(),
        Some(address) => mapped_at(address).unwrap_or_else(executed),
    }
}

/// The name by which it was executed, without folders, where its file has another: it is what people know the process by, as `ps` does.
/// `path` is [`path`].
pub(crate) fn executed_as(path: &[u8]) -> Option<Vec<u8>> {
    if address_if_run_by_the_loader().is_some() {
        return None; // that is the loader's
    }
    let executed = executed_path()?;
    // What is executed by its descriptor has its number for a name.
    let name = file_name(executed);
    let is_name = !name.is_empty() && !executed.starts_with(b"/dev/fd/");
    (is_name && name != file_name(path)).then(|| name.to_vec())
}

/// The last part of a program's path.
pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|&byte| byte == b'/').next();
    let name = name.unwrap_or_default();
    name.strip_suffix(b" (deleted)").unwrap_or(name)
}

/// An address in the program's file, if the loader is what the kernel was told to run: then there is no other that it loaded beside.
fn address_if_run_by_the_loader() -> Option<u64> {
    // SAFETY: asks for a number of the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    (base == 0).then(link_map::address_in_program)
}

/// The path by which it was executed, if that is absolute: from which folder another led on is forgotten.
fn named_to_the_kernel() -> Option<Vec<u8>> {
    let path = executed_path()?;
    path.starts_with(b"/").then(|| path.to_vec())
}

/// The path by which it was executed. Of a script, that is the script's.
fn executed_path() -> Option<&'static [u8]> {
    // SAFETY: asks for a number of the auxiliary vector.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    if name.is_null() {
        return None;
    }
    // SAFETY: the kernel put the name, with a zero at its end, above the first thread's stack, behind the environment's strings: mapped for
    // as long as the process lives, and nobody's to write to.
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
