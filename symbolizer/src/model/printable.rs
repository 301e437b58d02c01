//! Printable text: text from outside, with everything escaped that could harm its reader.
//!
//! Names come from files that anybody may have written. Control characters are written as `\xNN` or
//! `\u{NNNN}`: terminals obey them, line-based formats break at them, XML forbids them. So are
//! invisible characters: they turn the direction of text, or make one name look like another.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use heapprof_format::is_harmless;
use serde::Serialize;

/// Shows text with its control characters escaped.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_harmless(c) {
                f.write_char(c)?;
            } else if u32::from(c) < 0x100 {
                write!(f, "\\x{:02x}", u32::from(c))?;
            } else {
                write!(f, "\\u{{{:x}}}", u32::from(c))?;
            }
        }
        Ok(())
    }
}

/// JSON that is harmless to show: characters that are not are written as `\uNNNN`, which means the
/// same to a program. The output of a command may be a terminal's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Json {
    /// All on one line.
    Compact,
    /// Indented.
    Pretty,
}

impl Json {
    /// Writes a document and ends the line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(self, document: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
        let mut harmless = HarmlessJson(&mut *out);
        match self {
            Json::Compact => serde_json::to_writer(&mut harmless, document)?,
            Json::Pretty => serde_json::to_writer_pretty(&mut harmless, document)?,
        }
        writeln!(out)
    }
}

/// Outside of its strings, JSON is of harmless characters, and new lines.
struct HarmlessJson<W>(W);

impl<W: Write> Write for HarmlessJson<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The serializer writes whole strings.
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        let mut rest = text;
        while let Some(at) = rest.find(|c| c != '\n' && !is_harmless(c)) {
            self.0.write_all(&rest.as_bytes()[..at])?;
            let Some(c) = rest[at..].chars().next() else {
                break;
            };
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(self.0, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_and_is_harmless() {
        let name = "a\u{1b}[31m\u{9b}2J\n\u{202e}é\u{feff}\u{7f}函\u{1f600}\"\\";
        let document = serde_json::json!({ name: [name, 1.5, -7] });
        for layout in [Json::Compact, Json::Pretty] {
            let mut out = Vec::new();
            layout.write(&document, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.chars().all(|c| c == '\n' || is_harmless(c)), "{text}");
            let again: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(again, document);
        }
    }

    #[test]
    fn a_terminal_is_not_spoken_to() {
        let shown = Printable("a\u{1b}[2J\n\0é\u{202e}x<b>").to_string();
        assert_eq!(shown, "a\\x1b[2J\\x0a\\x00é\\u{202e}x<b>");
    }
}
