//! Offers: the words that a completion script asks for, each with its meaning.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use heapprof_symbolizer::{Input, Profile, ReadRequest};

use crate::cli::inputs::process::log_of_named;

/// Processes that are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OfferKind {
    /// Those that have the library.
    Recorded,
    /// Those of which the user may read the memory map.
    All,
}

/// A larger log is not read: somebody waits at the keyboard.
const MOST_BYTES: u64 = 64 << 20;
/// The moments that each log has.
const USUAL: [&str; 4] = ["start", "end", "peak", "50%"];

/// The processes, by number, with their programs.
pub(super) fn pids(kind: OfferKind) -> Vec<(String, String)> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids
        .filter(|&pid| pid != own && has_wanted_map(pid, kind))
        .collect();
    pids.sort_unstable();
    let with_name = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (pid.to_string(), name.trim_end().to_owned())
    };
    pids.into_iter().map(with_name).collect()
}

fn has_wanted_map(pid: u32, kind: OfferKind) -> bool {
    let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else {
        return false;
    };
    let mut lines = maps.split(|&byte| byte == b'\n');
    match kind {
        // The kernel's own threads have no memory.
        OfferKind::All => !maps.is_empty(),
        OfferKind::Recorded => lines.any(|line| {
            let name = line.rsplit(|&byte| byte == b'/').next();
            name.is_some_and(|name| name.starts_with(b"libheapprof"))
        }),
    }
}

/// The usual moments, and the markers of the first of these words that is a log or the process of
/// one.
pub(super) fn moments(words: &[OsString]) -> Vec<(String, String)> {
    let usual = USUAL.map(|word| (word.to_owned(), String::new()));
    let markers = words.iter().find_map(|word| {
        let named = log_of_named(Path::new(word)).ok()?;
        let path = named.map_or_else(|| word.into(), |(log, _)| log);
        let len = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let input = (len.len() <= MOST_BYTES).then(|| Input::open(&path).ok())??;
        let profile = input.read_part(&ReadRequest::default(), |_| {}).ok()?;
        Some(markers(&profile))
    });
    usual
        .into_iter()
        .chain(markers.into_iter().flatten())
        .collect()
}

fn markers(profile: &Profile) -> Vec<(String, String)> {
    let markers = profile.run.markers.iter();
    markers
        .filter(|marker| !marker.is_of_dump())
        .map(|marker| {
            let when = format!("at {:.3} s", marker.time_ns as f64 / 1e9);
            (marker.name.clone(), when)
        })
        .collect()
}
