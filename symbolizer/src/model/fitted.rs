//! Fitted text: text that is cut to so many columns of a terminal. A wide character takes two.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The text, or its beginning and an ellipsis, at most so many columns of the terminal.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = taken(text.chars(), width.saturating_sub(1));
    cut.push('…');
    cut
}

/// The text, or an ellipsis and its end.
pub fn cut_front(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let end = taken(text.chars().rev(), width.saturating_sub(1));
    std::iter::once('…').chain(end.chars().rev()).collect()
}

/// The text, or its beginning, an ellipsis and its end.
pub fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let end = width.saturating_sub(1) / 2;
    let begin = taken(text.chars(), width.saturating_sub(1 + end));
    begin + &cut_front(text, end + 1)
}

fn taken(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut room = width;
    let fits = |c: &char| match room.checked_sub(c.width().unwrap_or(0)) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    chars.take_while(fits).collect()
}
