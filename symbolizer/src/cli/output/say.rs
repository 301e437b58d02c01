//! Messages: errors and notes for the user, on standard error, one line each.
//!
//! Nothing else in this program writes there.

use std::error::Error;
use std::fmt::{Display, Write as _};
use std::io::Write as _;

use heapprof_symbolizer::Printable;

/// An error with its causes.
pub(crate) fn error(error: &dyn Error) {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let error_text = error.to_string();
        // Some errors repeat their cause in their own words.
        if !text.ends_with(&error_text) {
            let _ = write!(text, ": {error_text}");
        }
        cause = error.source();
    }
    note(&text);
}

/// A remark. One line, whatever the names in it hold.
pub(crate) fn note(text: &dyn Display) {
    line(&format!("heapprof: {text}"));
}

/// A table as it was written: harmless, and perhaps coloured.
pub(crate) fn table(text: &[u8]) {
    let _ = std::io::stderr().lock().write_all(text);
}

/// A line, made harmless. A standard error that is closed is nobody's loss.
pub(crate) fn line(text: &str) {
    // In one write: standard error has no buffer, and `Printable` writes letter by letter.
    let text = format!("{}\n", Printable(text));
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
