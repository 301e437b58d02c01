//! Shell quote: a path as one word of a command that a shell reads.

use std::path::Path;

/// A path as a shell takes it for one word; plain where that is plain.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposed_command_can_be_pasted() {
        for (path, word) in [
            ("./out.heaplog", "./out.heaplog"),
            ("/tmp/a_b-1/x@2.heaplog", "/tmp/a_b-1/x@2.heaplog"),
            ("./sp ace.heaplog", "'./sp ace.heaplog'"),
            ("it's", "'it'\\''s'"),
            ("$HOME;rm", "'$HOME;rm'"),
            ("~x", "'~x'"),
        ] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
