//! Ranges of the library's functions in its file.

use std::process::Command;

use crate::Build;

/// Returns the ranges of functions whose linker names contain one of these parts: from, to, from,
/// to, in hexadecimal digits, relative to the library's beginning.
pub fn ranges_of(parts: &[&str]) -> Vec<String> {
    let listed = Command::new("nm")
        .args(["--print-size", "--defined-only"])
        .arg(Build::get().library())
        .output()
        .expect("nm runs (scripts/install-deps installs it)");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let bounds = listed
        .lines()
        .filter(|line| parts.iter().any(|part| line.contains(part)))
        .flat_map(|line| {
            let mut words = line.split(' ');
            let mut number = || u64::from_str_radix(words.next()?, 16).ok();
            let (at, len) = (number().expect("an address"), number().expect("a size"));
            [format!("{at:x}"), format!("{:x}", at + len)]
        });
    bounds.collect()
}
