//! Fork remark: the marker at the beginning of a forked process's log that says what it has from
//! its parent.
//!
//! The reader of the log inserts the marker. The profiled process writes none.

use crate::model::run::Run;

/// How the remark begins.
pub(crate) const REMARK: &str = "forked: ";

/// How it goes on where those blocks could not be found.
pub(crate) const MISSING: &str = "what was in use then is missing";

/// How it goes on where not all of them could be found.
pub(crate) const AT_LEAST: &str = "at least ";

/// Returns true if the marker is a fork remark, and not a moment that somebody named.
pub(crate) fn is_remark(marker: &str) -> bool {
    marker.starts_with(REMARK)
}

/// Returns, in words, which blocks from the parent a run's numbers lack; `None` if none, or if it
/// was not forked.
pub(crate) fn missing_from(run: &Run) -> Option<String> {
    let remark = remark_on(run).strip_prefix(REMARK)?;
    let parent = run.forked_from;
    if remark.starts_with(MISSING) {
        Some(format!("forked from pid {parent}: {remark}"))
    } else if remark.starts_with(AT_LEAST) {
        Some(format!(
            "forked from pid {parent}: {remark}; it no longer has the segments of that time, so what was freed since is missing"
        ))
    } else {
        None
    }
}

/// Returns the remark at the beginning of a forked process's log; empty if there is none.
pub(crate) fn remark_on(run: &Run) -> &str {
    let first = run.markers.first().filter(|_| run.forked_from != 0);
    let remark = first.filter(|first| first.name.starts_with(REMARK));
    remark.map_or("", |first| &first.name)
}

/// Returns true if a run begins with blocks that the process had from its parent, all of them at
/// time 0.
pub(crate) fn begins_with_inherited(run: &Run) -> bool {
    !remark_on(run).is_empty() && run.checkpoint.is_none()
}
