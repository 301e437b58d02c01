//! Pattern: a name with placeholders, in the syntax of LeakSanitizer's suppressions.
//!
//! ```text
//!   parse          anywhere in the name
//!   ^parse         at its beginning        parse$     at its end
//!   parse*Header   any characters in place of *
//! ```

use regex::Regex;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Returns the pattern of a text; `None` if it is empty or too long.
    pub fn new(text: &str) -> Option<Pattern> {
        let name = text.trim();
        let (begin, rest) = match name.strip_prefix('^') {
            Some(rest) => ("^", rest),
            None => ("", name),
        };
        let (rest, end) = match rest.strip_suffix('$') {
            Some(rest) => (rest, "$"),
            None => (rest, ""),
        };
        if rest.is_empty() {
            return None;
        }
        let parts: Vec<String> = rest.split('*').map(regex::escape).collect();
        let regex = Regex::new(&format!("(?s){begin}{}{end}", parts.join(".*"))).ok()?;
        Some(Pattern {
            text: name.to_owned(),
            regex,
        })
    }

    /// Returns true if the pattern matches a name.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// Returns the pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_and_ends_are_those_of_leak_sanitizer() {
        for (pattern, name, expected) in [
            ("parse", "http::parse_header", true),
            ("parse", "http::print", false),
            ("^parse", "http::parse_header", false),
            ("^http", "http::parse_header", true),
            ("header$", "http::parse_header", true),
            ("parse$", "http::parse_header", false),
            ("^http*header$", "http::parse_header", true),
            ("h*p*h", "http::parse_header", true),
            ("h*x*h", "http::parse_header", false),
            // All other characters stand for themselves.
            ("operator+", "operator+", true),
            ("a.c", "abc", false),
            ("vector<int>", "std::vector<int>::push_back", true),
            ("lib(x)", "lib(x).so", true),
            ("a^b", "a^b", true),
        ] {
            let found = Pattern::new(pattern).unwrap();
            assert_eq!(found.matches(name), expected, "{pattern} {name}");
            assert_eq!(found.text(), pattern);
        }
        for nothing in ["", " ", "^", "$", "^$"] {
            assert!(Pattern::new(nothing).is_none(), "{nothing}");
        }
    }
}
