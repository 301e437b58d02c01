//! Suppressions: stacks that are left out of what is shown, because they are known, in the syntax
//! of LeakSanitizer's suppression files.
//!
//! ```text
//!   # the plugin registry lives as long as the process
//!   leak:register_plugin
//!   leak:^lib*cache.so$
//! ```
//!
//! A suppression covers a stack if it matches the function, the source file or the module of one of
//! the frames. A stack counts for the first suppression that covers it.

use std::collections::HashMap;

use crate::model::profile::{Place, Profile};
use crate::naming::pattern::Pattern;
use crate::naming::symbols::Symbols;

/// The suppressions of a file, in its order.
#[derive(Debug, Clone, Default)]
pub struct Suppressions {
    all: Vec<Suppression>,
}

/// A line of the file.
#[derive(Debug, Clone)]
pub struct Suppression {
    /// Number of the line, from 1.
    pub line: usize,
    /// Pattern of the names.
    pub pattern: Pattern,
}

impl Suppressions {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The number of the first line that is no suppression, and why.
    pub fn parse(text: &str) -> Result<Suppressions, (usize, &'static str)> {
        let mut all = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words = line.trim();
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let line = index + 1;
            let Some(pattern) = words.strip_prefix("leak:") else {
                return Err((line, "it is not of the form leak:PATTERN"));
            };
            let pattern =
                Pattern::new(pattern).ok_or((line, "the pattern is empty or too long"))?;
            all.push(Suppression { line, pattern });
        }
        Ok(Suppressions { all })
    }

    /// Returns the suppressions.
    pub fn all(&self) -> &[Suppression] {
        &self.all
    }

    /// Returns, for each stack of a profile, the index of the first suppression that covers it.
    pub fn of_stacks(&self, profile: &Profile, symbols: &Symbols) -> Vec<Option<usize>> {
        let mut of_places: HashMap<Place, Option<usize>> = HashMap::new();
        let mut of_place = |place: Place| {
            *of_places
                .entry(place)
                .or_insert_with(|| self.of_place(profile, symbols, place))
        };
        let stacks = profile.stacks.iter();
        stacks
            .map(|stack| profile.places(stack).filter_map(&mut of_place).min())
            .collect()
    }

    fn of_place(&self, profile: &Profile, symbols: &Symbols, place: Place) -> Option<usize> {
        let module = profile.module_of(place).map_or("", |m| m.path.as_str());
        let frames = symbols.frames(place);
        let mut functions = Vec::new();
        for frame in frames {
            functions.push(symbols.function(profile, place, frame));
        }
        self.all.iter().position(|it| {
            let matches = |name: &str| it.pattern.matches(name);
            let mut files = frames.iter().filter_map(|frame| frame.file.as_deref());
            matches(module) || functions.iter().any(|name| matches(name)) || files.any(matches)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_are_no_suppressions() {
        let text = "# known\n\n  leak:one\n#leak:two\nleak:^three*$\n";
        let found = Suppressions::parse(text).unwrap();
        let found: Vec<_> = (found.all().iter())
            .map(|it| (it.line, it.pattern.text()))
            .collect();
        assert_eq!(found, [(3, "one"), (5, "^three*$")]);
    }

    #[test]
    fn another_line_is_named() {
        for (text, line) in [
            ("leak:a\nthread:b\n", 2),
            ("fun:x", 1),
            ("\nleak:\n", 2),
            ("leak:a\n\n leak : b", 3),
        ] {
            assert_eq!(Suppressions::parse(text).unwrap_err().0, line, "{text}");
        }
    }
}
