//! Keyboard: the bytes that a terminal sends, as keys.
//!
//! A letter is its UTF-8. Another key is a control character, or a sequence behind an escape. An
//! escape alone is the key itself. Sequences of no use here are passed over.

use super::state::Key;

/// The longest sequence that is waited for.
const LONGEST: usize = 32;

/// The bytes of a key whose end has not come yet.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    begun: Vec<u8>,
}

impl Keyboard {
    /// The keys of the bytes that came.
    pub(super) fn keys_of(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.begun.extend_from_slice(bytes);
        let begun = std::mem::take(&mut self.begun);
        let mut rest = &begun[..];
        let mut keys = Vec::new();
        while !rest.is_empty() {
            match next(rest) {
                Some((key, used)) => {
                    keys.extend(key);
                    rest = &rest[used..];
                }
                None if rest.len() < LONGEST => break,
                None => rest = &rest[1..],
            }
        }
        self.begun = rest.to_vec();
        keys
    }
}

/// The first key, if it is of use, and how many bytes it has; `None`: it is not all there.
fn next(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let key = |key| Some((Some(key), 1));
    match bytes[0] {
        0x1b => sequence(bytes),
        b'\r' | b'\n' => key(Key::Enter),
        b'\t' => key(Key::Tab),
        0x7f | 0x08 => key(Key::Backspace),
        0x03 => key(Key::Interrupt),
        0x1a => key(Key::Suspend),
        0x0c => key(Key::Redraw),
        0x15 => key(Key::Clear),
        0..0x20 => Some((None, 1)),
        first => letter(bytes, first),
    }
}

fn letter(bytes: &[u8], first: u8) -> Option<(Option<Key>, usize)> {
    let length = match first {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Some((None, 1)),
    };
    let text = bytes.get(..length)?;
    match std::str::from_utf8(text) {
        Ok(text) => Some((text.chars().next().map(Key::Char), length)),
        Err(_) => Some((None, 1)),
    }
}

/// `ESC`, `ESC [ numbers letter`, `ESC O letter`.
fn sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes.get(1) {
        None => return Some((Some(Key::Escape), 1)),
        Some(b'[' | b'O') => {}
        // Alt and a key.
        Some(_) => return Some((Some(Key::Escape), 1)),
    }
    let is_last = |byte: &u8| (0x40..0x7f).contains(byte);
    let last = 2 + bytes[2..].iter().position(is_last)?;
    let number = bytes[2..last].split(|byte| *byte == b';').next();
    let key = match (bytes[last], number.unwrap_or_default()) {
        (b'A', _) => Some(Key::Up),
        (b'B', _) => Some(Key::Down),
        (b'C', _) => Some(Key::Right),
        (b'D', _) => Some(Key::Left),
        (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
        (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        (b'M', _) if bytes[1] == b'O' => Some(Key::Enter),
        _ => None,
    };
    Some((key, last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_letters_controls_and_sequences() {
        let keys = |bytes: &[u8]| Keyboard::default().keys_of(bytes);
        assert_eq!(keys(b"q/"), [Key::Char('q'), Key::Char('/')]);
        assert_eq!(keys("ä🦀".as_bytes()), [Key::Char('ä'), Key::Char('🦀')]);
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[1;5C\x1b[5~\x1b[6~\x1b[H\x1b[4~"),
            [
                Key::Up,
                Key::Down,
                Key::Right,
                Key::PageUp,
                Key::PageDown,
                Key::Home,
                Key::End
            ]
        );
        assert_eq!(
            keys(b"\x03\x1a\x0c\x15\r\t\x7f\x01"),
            [
                Key::Interrupt,
                Key::Suspend,
                Key::Redraw,
                Key::Clear,
                Key::Enter,
                Key::Tab,
                Key::Backspace
            ]
        );
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1bq"), [Key::Escape, Key::Char('q')]);
        assert_eq!(keys(b"\x1b[200~\xff\x80x"), [Key::Char('x')]);
    }

    #[test]
    fn a_key_may_come_in_chunks() {
        let mut keyboard = Keyboard::default();
        assert_eq!(keyboard.keys_of(b"\x1b["), []);
        assert_eq!(keyboard.keys_of(b"A\xc3"), [Key::Up]);
        assert_eq!(keyboard.keys_of(b"\xa4"), [Key::Char('ä')]);
        // A sequence without an end takes no memory, and no key for ever.
        keyboard.keys_of(&[&b"\x1b["[..], &[b'1'; 5000]].concat());
        assert!(keyboard.begun.len() < LONGEST);
        assert_eq!(keyboard.keys_of(b"q").last(), Some(&Key::Char('q')));
    }
}
