//! Notes: what a reader of the numbers must know, on standard error.

use std::path::Path;

use heapprof_symbolizer::{LogAccount, Profile};

use crate::cli::output::say;

/// Says beside a form without a place for words what must stand beside its numbers.
pub(crate) fn note_circumstances(profile: &Profile) {
    for line in profile.circumstances() {
        say::note(&format_args!("note: {line}"));
    }
}

/// Says from when on a log that rotates has detail, to those who ask about time.
pub(crate) fn note_what_is_kept(file: &Path, profile: &Profile) {
    if let Some(checkpoint) = &profile.run.checkpoint {
        say::note(&format_args!(
            "note: {}: the log rotated, detail begins at {:.3} s: what depends on time (windows, peak, temporary, \
             lifetimes, heaptime, timeline) is of the time since; totals and what is in use are of the whole run{}",
            file.display(),
            checkpoint.time_ns as f64 / 1e9,
            match profile.before_detail() {
                Some(words) => format!("; {words}"),
                None => String::new(),
            }
        ));
    }
}

/// Says where a file is torn or damaged.
pub(crate) fn note_what_is_wrong(file: &Path, account: &LogAccount) {
    let file = file.display();
    if let Some((offset, left)) = account.torn {
        say::note(&format_args!(
            "note: {file}: cut off at offset {offset}; read up to there ({left} bytes behind it are unusable{})",
            account.unchecked_in_words()
        ));
    }
    for words in &account.lost_names {
        say::note(&format_args!("note: {file}: {words}"));
    }
    for damage in &account.damage {
        let what = &damage.what;
        match damage.skipped {
            0 => say::note(&format_args!("note: {file}: {what}")),
            skipped => say::note(&format_args!(
                "note: {file}: {what}; {skipped} bytes passed over, the numbers miss what was in them"
            )),
        }
    }
}
