//! Pattern: a name with placeholders, in the syntax of LeakSanitizer's suppressions.
//!
//! ```text
//!   parse          anywhere in the name
//!   ^parse         at its beginning        parse$     at its end
//!   parse*Header   any characters in place of *
//! ```

use regex::Regex;

use crate::naming::bare_name::BareName;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: Regex,
    /// The expression for bare names.
    bare: Regex,
    /// True if the pattern has parameters, or the number of a lambda.
    is_detailed: bool,
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
        let regex = |rest: &str, end: &str| {
            let parts: Vec<String> = rest.split('*').map(regex::escape).collect();
            Regex::new(&format!("(?s){begin}{}{end}", parts.join(".*"))).ok()
        };
        let bare = BareName::of(rest);
        let is_without_end = bare.is_detailed && !rest.ends_with(['*', '}', ':', '>']);
        Some(Pattern {
            text: name.to_owned(),
            regex: regex(rest, end)?,
            bare: match is_without_end {
                true => regex(&bare.text, "$")?,
                false => regex(&bare.text, end)?,
            },
            is_detailed: bare.is_detailed,
        })
    }

    /// Returns true if the pattern matches a name.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// Returns true if the pattern matches a function's name, or would if one of the two had not
    /// lost its parameters and the numbers of its lambdas.
    pub fn matches_function(&self, name: &str) -> bool {
        self.matches(name) || {
            let bare = BareName::of(name);
            !(self.is_detailed && bare.is_detailed) && self.bare.is_match(&bare.text)
        }
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

    /// A compiler that inlines a function takes its parameters away, and not its limit.
    #[test]
    fn a_function_that_lost_its_parameters_is_matched() {
        for (pattern, name, expected) in [
            ("register_user(int)", "register_user(int)", true),
            ("register_user(int)", "register_user", true),
            ("^register_user(int)$", "register_user", true),
            ("register_user(*)", "register_user", true),
            ("^void make<int>(int)", "make<int>", true),
            ("^make<int>", "void make<int>(int)", true),
            ("register_user$", "register_user(int)", true),
            ("register_user(int)", "register_users", false),
            ("register_user(int)", "register_user::inner", false),
            // Another overload has kept its parameters.
            ("register_user(int)", "register_user(long)", false),
            ("register_user$", "register_users(int)", false),
            (
                "^main::{lambda(int)#1}::operator()(int) const$",
                "main::(anonymous struct)::operator()",
                true,
            ),
            (
                "main::{lambda(int)#1}",
                "main::(anonymous struct)::operator()",
                true,
            ),
            (
                "main::{lambda(int)#1}",
                "main::{lambda(int)#2}::operator()(int) const",
                false,
            ),
            (
                "main::(anonymous struct)::operator()",
                "main::{lambda(int)#2}::operator()(int) const",
                true,
            ),
        ] {
            let found = Pattern::new(pattern).unwrap();
            assert_eq!(found.matches_function(name), expected, "{pattern} {name}");
        }
    }
}
