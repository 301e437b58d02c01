//! vDSO: the code that the kernel maps into every process, and that no file system holds.
//!
//! If the profile was taken under the running kernel, this process has the same bytes. Reading them
//! through `/proc/self/mem` needs no unsafe code. The build-id decides whether the bytes are the
//! same.

use super::elf::ElfFile;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The vDSO of this process, if it can be read.
pub(super) fn own() -> Option<ElfFile> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
    let begin = u64::from_str_radix(begin, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(begin)?).ok()?];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut bytes, begin)
        .ok()?;
    ElfFile::from_bytes(Path::new("[vdso] of this process"), bytes).ok()
}
