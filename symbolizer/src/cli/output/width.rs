//! Width: the columns that tables may have.
//!
//! It is the first of these that is there: `--width`, the terminal's width, `COLUMNS` in the
//! environment. Without any, on a pipe, nothing is cut. `watch` and other programs that show the
//! output of a command set `COLUMNS`.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// A table is never made narrower: numbers alone need that much.
const LEAST: usize = 40;

static GIVEN: OnceLock<Option<usize>> = OnceLock::new();

/// Takes the width that the user gave; 0: no limit.
pub(crate) fn decide(given: Option<usize>) {
    let _ = GIVEN.set(given);
}

/// The width of tables on standard output; `None`: nothing is cut.
pub(crate) fn stdout_width() -> Option<usize> {
    width_of(&io::stdout())
}

/// The width of tables on a stream.
pub(crate) fn width_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let terminal = || terminal_size::terminal_size_of(stream).map(|(width, _)| width.0.into());
    chosen(
        GIVEN.get().copied().flatten(),
        stream.is_terminal().then(terminal).flatten(),
        std::env::var("COLUMNS").ok().as_deref(),
    )
}

fn chosen(given: Option<usize>, terminal: Option<usize>, columns: Option<&str>) -> Option<usize> {
    let columns = || columns.and_then(|text| text.trim().parse().ok());
    let width = given.or(terminal).or_else(columns)?;
    (width > 0).then_some(width.max(LEAST))
}

/// Parses the width that the user gives.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(width) if width == 0 || width >= LEAST => Ok(width),
        _ => Err(format!("columns, {LEAST} or more; 0: no limit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_asked_before_the_terminal_and_that_before_the_environment() {
        assert_eq!(chosen(Some(90), Some(80), Some("70")), Some(90));
        assert_eq!(chosen(None, Some(80), Some("70")), Some(80));
        assert_eq!(chosen(None, None, Some("70")), Some(70));
        assert_eq!(chosen(None, None, None), None);
        assert_eq!(chosen(Some(0), Some(80), Some("70")), None);
        assert_eq!(chosen(None, Some(3), None), Some(LEAST));
        for nonsense in ["", "0", "-1", "wide", "99999999999999999999999"] {
            assert_eq!(chosen(None, None, Some(nonsense)), None, "{nonsense}");
        }
    }

    #[test]
    fn a_width_that_no_table_has_is_refused() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("40"), Ok(40));
        for wrong in ["39", "-1", "", "a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
