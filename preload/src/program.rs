//! The program: the file that this process runs.
//!
//! Mostly that is `/proc/self/exe`. Where the loader was told to run it (`ld-linux-x86-64.so.2 ./server`, as programs are
//! started that bring a libc of their own), the kernel knows the loader only; then it is the file that the program's headers are mapped from.

use heapprof_format::Mapping;

use crate::{proc, sys};

/// Its absolute path, or nothing where `/proc` does not say it.
pub(crate) fn path() -> Vec<u8> {
    let executed = || sys::readlink(c"/proc/self/exe").unwrap_or_default();
    match headers_if_run_by_the_loader() {
        None => executed(),
        Some(headers) => mapped_at(headers).unwrap_or_else(executed),
    }
}

/// Where the program's headers are, if the loader is what the kernel was told to run: then there is no other that it loaded beside.
fn headers_if_run_by_the_loader() -> Option<u64> {
    // SAFETY: asks for numbers of the auxiliary vector. The loader puts those of what it runs in place of its own.
    let (base, headers) = unsafe {
        (
            libc::getauxval(libc::AT_BASE),
            libc::getauxval(libc::AT_PHDR),
        )
    };
    (base == 0 && headers != 0).then_some(headers)
}

fn mapped_at(address: u64) -> Option<Vec<u8>> {
    let maps = proc::of_process("maps");
    let mapping = String::from_utf8_lossy(&maps)
        .lines()
        .filter_map(Mapping::parse)
        .find(|mapping| (mapping.start..mapping.end).contains(&address))?;
    mapping
        .path
        .starts_with('/')
        .then(|| mapping.path.into_bytes())
}
