//! Harmless character: one that may be shown as it is.
//!
//! Names come from files that anybody may have written. A terminal obeys control characters, and
//! line-based formats break at them. Invisible characters make one name look like another, or turn
//! the direction of the text around them. Code that shows a name escapes them.

/// Returns true if a character may be shown as it is.
pub fn is_harmless(c: char) -> bool {
    // Nearly all that are asked for.
    if matches!(c, ' '..='~') {
        return true;
    }
    !c.is_control() && !is_invisible(c)
}

/// Characters without a shape of their own (Unicode: Default_Ignorable_Code_Point, line and
/// paragraph separators, annotation marks), and code points that are none.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}'
        // Fillers of Hangul and Khmer, selectors of Mongolian.
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        // Widths of zero, marks, embeddings and isolates of direction, joiners, invisible
        // operators.
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{fdd0}'..='\u{fdef}'
        // Formats of shorthand and music; tags and selectors.
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    ) || u32::from(c) & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn letters_of_all_scripts_are_harmless_and_what_is_invisible_is_not() {
        for c in "aZ~ é\u{a0}函数\u{1f600}عرب\u{202f}\u{fffd}".chars() {
            assert!(is_harmless(c), "{c:?}");
        }
        let invisible = "\0\u{1b}\n\u{7f}\u{85}\u{ad}\u{200b}\u{200d}\u{200e}\u{2028}\u{202e}\u{2060}\
                         \u{2066}\u{2069}\u{3164}\u{fe0f}\u{feff}\u{fff9}\u{ffff}\u{e0041}\u{e0100}\u{10ffff}";
        for c in invisible.chars() {
            assert!(!is_harmless(c), "{c:?}");
        }
    }
}
