//! Text from outside, made harmless to show: names come from files that anybody may have written.
//!
//! Control characters (a terminal obeys them, a line-based format breaks at them, XML forbids them)
//! and the invisible ones that turn the direction of text are written as `\xNN` or `\u{NNNN}`.

use std::fmt::{self, Write};

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

fn is_harmless(c: char) -> bool {
    // Line and paragraph separators; marks, embeddings and isolates of direction; non-characters.
    let bad = matches!(c,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    !c.is_control() && !bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_spoken_to() {
        let shown = Printable("a\u{1b}[2J\n\0é\u{202e}x<b>").to_string();
        assert_eq!(shown, "a\\x1b[2J\\x0a\\x00é\\u{202e}x<b>");
    }
}
