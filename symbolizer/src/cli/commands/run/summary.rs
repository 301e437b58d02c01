//! Summary: what `heapprof run` says of a run at its end.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    By, Bytes, Confidence, Input, Metric, Part, Printable, Profile, ReadRequest, Sites, Symbols,
    WantedExtras,
};

use crate::cli::commands::run::records::Records;
use crate::cli::commands::run::still_running::StillRunning;
use crate::cli::commands::run::unrecorded::MostResident;
use crate::cli::commands::run::unsampled::Unsampled;
use crate::cli::inputs::several;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::failure::Failure;
use crate::cli::output::shell_quote::quoted;
use crate::cli::output::site_table::{Shown, lines_of_groups, write_lines, write_sites};
use crate::cli::output::width::width_of;
use crate::cli::output::{heading, say};

/// Most lines of a table.
const MOST: usize = 5;
/// Resident bytes of another process that are worth a line, beyond those of the process with the
/// most blocks.
const NOTED: u64 = 32 << 20;

/// Says where the files are, and which sites and processes hold, or allocated, the most.
pub(super) fn show(
    records: &Records,
    unsampled: &Unsampled,
    (resident, still_running): (Option<MostResident>, &StillRunning),
    places: &SymbolArgs,
) {
    let kept = records.kept();
    let say_what_runs = || {
        if let Some(words) = still_running.in_words() {
            say::note(&format_args!("note: {words}"));
        }
    };
    let Some((mut log, others)) = kept.split_first() else {
        match unsampled.len() {
            0 => say::note(&"no log was written; HEAPPROF_VERBOSE=1 lets the profiler say why"),
            _ => show_unsampled(unsampled),
        }
        say_what_runs();
        return;
    };
    match read(records, unsampled, places) {
        Ok((profile, symbols)) => {
            if let Some(largest) = largest(&profile) {
                let is_its = |log: &&PathBuf| log.display().to_string() == largest.file;
                log = kept.iter().find(is_its).unwrap_or(log);
            }
            let mut text = Vec::new();
            if let Err(error) = write(&profile, &symbols, &mut text) {
                say::error(&Failure::Stdout(error));
            }
            say::table(&text);
            if let Some(words) = mostly_resident(&profile) {
                say::note(&words);
            }
            if let Some(unrecorded) =
                resident.and_then(|it| it.unrecorded(&profile, &records.before))
            {
                say::note(&format_args!("note: {unrecorded}"));
            }
        }
        Err(error) => say::error(&error),
    }
    say_what_runs();
    if let Some(log) = &records.log {
        say::note(&format_args!("log: {}", log.display()));
    }
    if records.log.as_ref() != Some(log) {
        say::note(&format_args!(
            "log of the process with the highest peak: {}",
            log.display()
        ));
    }
    match &records.dumps[..] {
        [] => {}
        [only] => say::note(&format_args!("dump: {}", only.display())),
        [first, .., last] => say::note(&format_args!(
            "{} dumps: {} to {}",
            records.dumps.len(),
            first.display(),
            last.display()
        )),
    }
    if let [first, ..] = &records.before[..] {
        say::note(&format_args!(
            "logs of what the process was before: {} ({} in all)",
            first.display(),
            records.before.len()
        ));
    }
    // A build starts thousands; their names begin alike.
    let children: Vec<_> = records
        .of_children
        .iter()
        .filter(|other| *other != log)
        .collect();
    for other in children.iter().take(3) {
        say::note(&format_args!("log of a child process: {}", other.display()));
    }
    match children.len().saturating_sub(3) {
        0 => {}
        1 => say::note(&"and 1 more log of a child process"),
        more => say::note(&format_args!("and {more} more logs of child processes")),
    }
    show_unsampled(unsampled);
    say::note(&format_args!(
        "next: heapprof explain {0}; heapprof top {0}; heapprof report {0}",
        quoted(log)
    ));
    if let Some(command) = of_all(&kept[0], others) {
        say::note(&format_args!("all processes together: {command}"));
    }
}

/// Says which logs are removed.
fn show_unsampled(unsampled: &Unsampled) {
    if unsampled.len() == 0 {
        return;
    }
    let logs = match unsampled.len() {
        1 => "1 log has no sample and is".to_owned(),
        n => format!("{n} logs have no sample and are"),
    };
    say::note(&format_args!(
        "{logs} removed ({}); --keep-unsampled keeps such logs",
        unsampled.programs_in_words()
    ));
}

/// The command that shows a process and its children together; `None`: it has none.
fn of_all(log: &Path, children: &[PathBuf]) -> Option<String> {
    // As many as a line holds.
    const MOST: usize = 8;
    let all = std::iter::once(log).chain(children.iter().map(PathBuf::as_path));
    match children.len() {
        0 => None,
        1..MOST => {
            let files: Vec<String> = all.map(quoted).collect();
            Some(format!("heapprof report {}", files.join(" ")))
        }
        _ => Some("`heapprof report`, `timeline` and `top` take all their logs".into()),
    }
}

/// Finds the names, which are kept beside the logs, and says nothing.
pub(super) fn keep_names(records: &Records, unsampled: &Unsampled, places: &SymbolArgs) {
    if !records.kept().is_empty() {
        let _ = read(records, unsampled, places);
    }
}

/// The profile of all processes together; `None`: there is no log.
pub(super) fn profile(
    records: &Records,
    unsampled: &Unsampled,
) -> Result<Option<Profile>, Failure> {
    let mut files = records.kept();
    files.extend(unsampled.of_children().cloned());
    let request = ReadRequest {
        extras: WantedExtras {
            threads: files.len() > 1,
            ..WantedExtras::default()
        },
        ..ReadRequest::default()
    };
    match &files[..] {
        [] => Ok(None),
        [log] => Ok(Some(Input::open(log)?.read(|_| {})?)),
        files => several::read(files, &request).map(Some),
    }
}

/// The profile of all processes together, with its names, which are kept beside the logs that stay.
fn read(
    records: &Records,
    unsampled: &Unsampled,
    places: &SymbolArgs,
) -> Result<(Profile, Symbols), Failure> {
    let profile = profile(records, unsampled)?.unwrap_or_default();
    let symbols = match &records.kept()[..] {
        [log] => places.symbols(log, &profile)?,
        kept => places.symbols_of_several(kept, &profile)?,
    };
    Ok((profile, symbols))
}

/// Returns the process that held the most bytes at one moment; `None`: there is one process.
fn largest(profile: &Profile) -> Option<&Part> {
    let peak = |part: &Part| part.peak.map_or(0.0, |peak| peak.bytes.to_f64());
    let larger = |a, b| if peak(b) > peak(a) { b } else { a };
    profile.parts.iter().reduce(larger)
}

/// Says which process had the most resident memory. `None`: the one with the most blocks had about
/// as much. The memory of such a process is not malloc's.
fn mostly_resident(profile: &Profile) -> Option<String> {
    let resident = |part: &Part| part.most_resident;
    let most = profile.parts.iter().max_by_key(|part| resident(part))?;
    let (of_blocks, of_most) = (resident(largest(profile)?), resident(most));
    let is_told = of_most > 2 * of_blocks && of_most - of_blocks > NOTED;
    is_told.then(|| {
        format!(
            "the process with the most resident memory is {}: {}, of which blocks had {} at most; heapprof rss {} says where the rest is",
            Printable(&most.run.process_name()),
            Bytes(of_most as f64),
            Bytes(most.peak.map_or(0.0, |peak| peak.bytes.to_f64())),
            quoted(Path::new(&most.file))
        )
    })
}

/// Returns the profile of one of the processes. Blocks that it has from its parent are not in it.
fn of_process(profile: &Profile, part: &Part) -> Profile {
    let rows = profile.extras.threads.iter().flatten();
    let own = rows.filter(|row| part.threads.contains(&row.thread));
    let mut process = profile.clone();
    process.rows = own.map(|row| row.row).collect();
    process.run = part.run.clone();
    process.parts.clear();
    process
}

/// The totals of all processes together, the processes with the most if there are several, and the
/// sites with the most: of the process that held the most, and of all processes.
fn write(profile: &Profile, symbols: &Symbols, text: &mut Vec<u8>) -> io::Result<()> {
    writeln!(text)?;
    heading::write_totals(profile, width_of(&io::stderr()), text)?;
    let width = width_of(&io::stderr()).unwrap_or(120);
    let Some(largest) = largest(profile) else {
        return write_sites_of(profile, symbols, "The", width, text);
    };
    let metric = metric_of(profile);
    let mut lines = lines_of_groups(profile, symbols, By::Process, metric, false);
    lines.retain(|line| line.own.get(metric) > 0);
    lines.truncate(MOST);
    if lines.is_empty() {
        return Ok(());
    }
    let what = match metric {
        Metric::InUseBytes => "The processes with the most bytes in use at their ends:",
        _ => "The processes that allocated the most bytes:",
    };
    writeln!(text, "{what}")?;
    let shown = Shown {
        by: Some(By::Process),
        metric,
        confidence: Confidence::default(),
        cumulative: false,
        width: Some(width),
    };
    write_lines(profile, &lines, &shown, text)?;
    let peak = largest.peak.map_or(0.0, |peak| peak.bytes.to_f64());
    let who = largest.run.process_name();
    writeln!(
        text,
        "The process with the highest peak is {}: {}.",
        Printable(&who),
        Bytes(peak)
    )?;
    write_sites_of(&of_process(profile, largest), symbols, "Its", width, text)?;
    write_sites_of(profile, symbols, "All processes together: the", width, text)
}

/// Returns the number that sites are shown by: what is in use, or else what was.
fn metric_of(profile: &Profile) -> Metric {
    match profile.numbers().in_use_bytes {
        0 => Metric::AllocatedBytes,
        _ => Metric::InUseBytes,
    }
}

/// Writes the sites with the most. `whose` begins the line above them.
fn write_sites_of(
    profile: &Profile,
    symbols: &Symbols,
    whose: &str,
    width: usize,
    text: &mut Vec<u8>,
) -> io::Result<()> {
    let metric = metric_of(profile);
    let mut sites = Sites::of(profile, symbols);
    sites.sort(metric, false);
    sites.sites.retain(|site| site.own.get(metric) > 0);
    sites.sites.truncate(MOST);
    if sites.sites.is_empty() {
        return Ok(());
    }
    let what = match metric {
        Metric::InUseBytes => "five sites with the most bytes in use at the end:",
        _ => "five sites that allocated the most bytes (nothing is in use at the end):",
    };
    writeln!(text, "{whose} {what}")?;
    write_sites(profile, sites, metric, Some(width), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_for_all_is_short() {
        let children = |n: usize| -> Vec<PathBuf> {
            (0..n).map(|i| format!("a_{i}.heaplog").into()).collect()
        };
        let of_all = |n| of_all(Path::new("a.heaplog"), &children(n));
        assert_eq!(of_all(0), None);
        let two = "heapprof report a.heaplog a_0.heaplog a_1.heaplog";
        assert_eq!(of_all(2).as_deref(), Some(two));
        assert_eq!(of_all(7).map(|it| it.split(' ').count()), Some(10));
        assert!(of_all(8).is_some_and(|it| it.len() < 60));
    }
}
