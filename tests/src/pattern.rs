//! Pattern: a fixture's description of a stack, `a b ... c*3 main`, innermost first.
//!
//! - `...` is any number of frames, including none.
//! - `f*3` is three frames of `f`.
//! - Frames outside `main`, or behind a last `...`, may be any.
//! - Frames inside the allocator come before the first frame and may be any, too.

use std::fmt;

use crate::named::Function;

/// See the module's text.
#[derive(Clone)]
pub struct Pattern {
    /// The fixture's text, for messages.
    text: String,
    words: Vec<Word>,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Anything,
    Frame(String),
}

impl Pattern {
    /// Parses a pattern from its words.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Pattern {
        let mut all = Vec::new();
        let words: Vec<&str> = words.into_iter().collect();
        for &word in &words {
            match (word, word.split_once('*')) {
                ("...", _) => all.push(Word::Anything),
                (_, Some((name, times))) if times.parse::<usize>().is_ok() => {
                    let times = times.parse().unwrap_or(0);
                    all.extend(std::iter::repeat_n(Word::Frame(name.into()), times));
                }
                _ => all.push(Word::Frame(word.into())),
            }
        }
        Pattern {
            text: words.join(" "),
            words: all,
        }
    }

    /// Returns true if a stack, innermost first, matches.
    pub fn matches(&self, stack: &[Function]) -> bool {
        let own = stack.iter().position(|frame| !frame.is_allocator());
        let names: Vec<&str> = stack[own.unwrap_or(stack.len())..]
            .iter()
            .map(|frame| frame.plain.as_str())
            .collect();
        self.fits(&names)
    }

    /// Returns true if a stack of these names, innermost first, matches. None is the allocator's.
    pub fn fits(&self, names: &[&str]) -> bool {
        matches(&self.words, names)
    }

    /// Returns true if a stack that was cut short matches the inner part.
    pub fn begins_with(&self, stack: &[Function]) -> bool {
        let own = stack.iter().position(|frame| !frame.is_allocator());
        let mut seen = &stack[own.unwrap_or(stack.len())..];
        for word in &self.words {
            match (word, seen) {
                (_, []) => return true,
                (Word::Frame(name), [frame, rest @ ..]) if *name == frame.plain => seen = rest,
                _ => return false,
            }
        }
        false // more frames than any stack has
    }
}

fn matches(words: &[Word], names: &[&str]) -> bool {
    match (words, names) {
        ([], rest) => rest.is_empty(),
        ([Word::Anything], _) => true,
        ([Word::Anything, more @ ..], _) => {
            (0..=names.len()).any(|skipped| matches(more, &names[skipped..]))
        }
        ([Word::Frame(last)], [name, ..]) if last == "main" => *name == "main",
        ([Word::Frame(word), more @ ..], [name, rest @ ..]) => word == name && matches(more, rest),
        ([Word::Frame(_), ..], []) => false,
    }
}
