//! Wrapped text: sentences in as many lines as the width asks for (`width`).

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// Writes a line. If it is too wide, it goes on in lines that are indented by `indent`. A word that
/// is too wide alone is not cut, and neither is a command in backticks, which is to be copied.
pub(crate) fn write_wrapped(
    text: &str,
    indent: usize,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(width) = width.filter(|&width| text.width() > width) else {
        return writeln!(out, "{text}");
    };
    // Blanks in front of the first word are the first line's own indentation.
    let words = text.trim_start();
    let mut line = text[..text.len() - words.len()].to_owned();
    let mut is_begun = false;
    for word in words_of(words) {
        if is_begun && line.width() + 1 + word.width() > width {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(indent);
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    writeln!(out, "{}", line.trim_end())
}

/// Returns the words, of which each command in backticks is one.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let mut is_command = false;
    text.split(move |letter: char| {
        is_command ^= letter == '`';
        letter == ' ' && !is_command
    })
}

/// Returns a text in lines of that width, with no indentation.
pub(crate) fn lines_of(text: &str, width: usize) -> Vec<String> {
    let mut out = Vec::new();
    let _ = write_wrapped(text, 0, Some(width), &mut out);
    let text = String::from_utf8_lossy(&out);
    text.lines().map(str::to_owned).collect()
}

/// Writes lines, each as [`write_wrapped`] does.
pub(crate) fn write_all_wrapped(
    lines: &[u8],
    indent: usize,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let lines = String::from_utf8_lossy(lines);
    lines
        .lines()
        .try_for_each(|line| write_wrapped(line, indent, width, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, indent: usize, width: Option<usize>) -> String {
        let mut out = Vec::new();
        write_wrapped(text, indent, width, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_that_is_too_wide_goes_on_below() {
        let text = "  in use     16.5 MiB in 165,566 blocks";
        assert_eq!(wrapped(text, 4, None), format!("{text}\n"));
        assert_eq!(wrapped(text, 4, Some(text.len())), format!("{text}\n"));
        assert_eq!(
            wrapped(text, 4, Some(30)),
            "  in use     16.5 MiB in\n    165,566 blocks\n"
        );
        assert_eq!(
            wrapped("a verylongword b", 2, Some(6)),
            "a\n  verylongword\n  b\n"
        );
        assert_eq!(
            wrapped("see `a b c d` now", 2, Some(11)),
            "see\n  `a b c d`\n  now\n"
        );
        assert_eq!(lines_of("one two three", 7), ["one two", "three"]);
    }
}
