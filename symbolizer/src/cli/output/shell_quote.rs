//! Shell quote: a path as one word of a command that a shell reads.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as a shell takes it for one word; plain where that is plain.
pub(crate) fn quoted(path: &Path) -> String {
    let Some(text) = path
        .to_str()
        .filter(|text| !text.chars().any(char::is_control))
    else {
        return escaped(path.as_os_str().as_bytes());
    };
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Returns a word with escapes, for bytes that no terminal shows.
fn escaped(bytes: &[u8]) -> String {
    let mut word = "$'".to_owned();
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => word.extend(['\\', byte.into()]),
            b' '..=b'~' => word.push(byte.into()),
            // Three octal digits end by themselves, whatever follows.
            _ => word.push_str(&format!("\\{byte:03o}")),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

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

    #[test]
    fn bytes_that_no_terminal_shows_are_escaped() {
        let path = OsStr::from_bytes(b"o'd %s\nnl\\\xff1");
        assert_eq!(quoted(Path::new(path)), r"$'o\'d %s\012nl\\\3771'");
    }
}
