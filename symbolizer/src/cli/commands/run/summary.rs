//! Summary: what `heapprof run` says of a run at its end.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    By, Confidence, Detail, Input, Metric, Profile, Reading, Sites, Symbols,
};

use crate::cli::commands::run::records::Records;
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

/// Says where the files are, and which sites and processes hold, or allocated, the most.
pub(super) fn show(records: &Records, unsampled: &Unsampled, places: &SymbolArgs) {
    let kept = records.kept();
    let Some(log) = kept.first() else {
        match unsampled.len() {
            0 => say::note(&"no log was written; HEAPPROF_VERBOSE=1 lets the profiler say why"),
            _ => show_unsampled(unsampled),
        }
        return;
    };
    let mut text = Vec::new();
    if let Err(error) = write(records, unsampled, places, &mut text) {
        say::error(&error);
    }
    say::table(&text);
    if let Some(log) = &records.log {
        say::note(&format_args!("log: {}", log.display()));
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
    for other in records.of_children.iter().take(3) {
        say::note(&format_args!("log of a child process: {}", other.display()));
    }
    if records.of_children.len() > 3 {
        say::note(&format_args!(
            "and {} more logs of child processes",
            records.of_children.len() - 3
        ));
    }
    show_unsampled(unsampled);
    say::note(&format_args!(
        "next: heapprof explain {0}; heapprof top {0}; heapprof report {0}",
        quoted(log)
    ));
    if let Some(command) = of_all(log, &kept[1..]) {
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
    let reading = Reading {
        detail: Detail {
            threads: files.len() > 1,
            ..Detail::default()
        },
        ..Reading::default()
    };
    match &files[..] {
        [] => Ok(None),
        [log] => Ok(Some(Input::open(log)?.read(|_| {})?)),
        files => several::read(files, &reading).map(Some),
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

/// The totals of all processes together, the processes with the most if there are several, and the
/// sites with the most.
fn write(
    records: &Records,
    unsampled: &Unsampled,
    places: &SymbolArgs,
    text: &mut Vec<u8>,
) -> Result<(), Failure> {
    let (profile, symbols) = read(records, unsampled, places)?;
    let mut sites = Sites::of(&profile, &symbols);
    let metric = match profile.numbers().in_use_bytes {
        0 => Metric::AllocatedBytes,
        _ => Metric::InUseBytes,
    };
    sites.sort(metric, false);
    sites.sites.retain(|site| site.own.get(metric) > 0);
    sites.sites.truncate(MOST);
    let (what_of_sites, what_of_processes) = match metric {
        Metric::InUseBytes => (
            "The five sites with the most bytes in use at the end:",
            "The processes with the most bytes in use at their ends:",
        ),
        _ => (
            "Nothing is in use at the end. The five sites that allocated the most bytes:",
            "The processes that allocated the most bytes:",
        ),
    };
    let width = width_of(&io::stderr()).unwrap_or(120);
    let write = |text: &mut Vec<u8>| -> io::Result<()> {
        writeln!(text)?;
        heading::write_totals(&profile, width_of(&io::stderr()), text)?;
        if sites.sites.is_empty() {
            return Ok(());
        }
        if !profile.parts.is_empty() {
            writeln!(text, "{what_of_processes}")?;
            let mut lines = lines_of_groups(&profile, &symbols, By::Process, metric, false);
            lines.retain(|line| line.own.get(metric) > 0);
            lines.truncate(MOST);
            let shown = Shown {
                by: Some(By::Process),
                metric,
                confidence: Confidence::default(),
                cumulative: false,
                width: Some(width),
            };
            write_lines(&profile, &lines, &shown, text)?;
        }
        writeln!(text, "{what_of_sites}")?;
        write_sites(&profile, sites, metric, Some(width), text)
    };
    write(text).map_err(Failure::Stdout)
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
