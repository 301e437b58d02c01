//! Bare name: a function's name without what only some sources of names know.
//!
//! A linkage name has parameters and the numbers of lambdas. Debug information has neither for a
//! function with internal linkage that is inlined: it has no linkage name.
//!
//! ```text
//!   linkage name                                   debug information
//!   register_user(int)                             register_user
//!   main::{lambda(int)#1}::operator()(int) const   main::(anonymous struct)::operator()
//!   void make<int>()                               make<int>
//! ```

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BareName {
    /// The name.
    pub(crate) text: String,
    /// True if the name from which it is made has its own parameters, or the number of a lambda.
    pub(crate) is_detailed: bool,
}

/// The name of a lambda, and of a type that may be one of a lambda.
const LAMBDA: &str = "{lambda}";
/// The name of a closure.
const CLOSURE: &str = "{closure}";
/// Words behind the parameters of a member function.
const QUALIFIERS: [&str; 5] = [" const", " volatile", " &&", " &", " noexcept"];

impl BareName {
    /// Returns that of a function. A name whose brackets do not match stays as it is.
    pub(crate) fn of(function: &str) -> BareName {
        let name = function.split(" [clone ").next().unwrap_or(function);
        let is_name = |it: &BareName| !it.text.is_empty();
        bare(name).filter(is_name).unwrap_or_else(|| BareName {
            text: function.to_owned(),
            is_detailed: false,
        })
    }

    /// Returns the part behind the last `::`.
    pub(crate) fn last_part(&self) -> &str {
        let text = &self.text;
        let (mut at, mut begin) = (0, 0);
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            at += match c {
                '<' | '(' | '[' | '{' => len_of_group(rest).unwrap_or(1),
                ':' if rest.starts_with("::") => {
                    begin = at + 2;
                    2
                }
                c => c.len_utf8(),
            };
        }
        &text[begin..]
    }
}

fn bare(name: &str) -> Option<BareName> {
    let mut text = String::with_capacity(name.len());
    let (mut is_detailed, mut is_operator, mut is_of_template) = (false, false, false);
    let mut at = 0;
    while let Some(c) = name[at..].chars().next() {
        let rest = &name[at..];
        if let Some(symbols) = operator_at(&text, rest) {
            is_operator = true;
            text.push_str(&rest[..symbols]);
            at += symbols;
            continue;
        }
        match c {
            '(' | '<' | '[' | '{' => {
                let group = &rest[..len_of_group(rest)?];
                at += group.len();
                let behind = at + len_of_qualifiers(&name[at..]);
                let is_end = name[behind..].is_empty() || name[behind..].starts_with("::");
                if let Some(words) = unnamed(group) {
                    text.push_str(words);
                    is_detailed |= group.contains('#');
                } else if c != '(' || group == "(anonymous namespace)" || !is_end {
                    text.push_str(group);
                } else if text.is_empty() {
                    return None;
                } else {
                    // These are parameters, of the function or of one around it.
                    is_operator = false;
                    is_detailed |= name[behind..].is_empty();
                    at = behind;
                }
            }
            ' ' if !is_operator => {
                // The type that a function template returns is before it.
                text.clear();
                (is_detailed, is_of_template) = (false, true);
                let signs = rest.len() - rest.trim_start_matches([' ', '*', '&']).len();
                at += signs;
            }
            ')' | ']' | '}' => return None,
            c => {
                text.push(c);
                at += c.len_utf8();
            }
        }
    }
    let is_whole = !is_of_template || text.contains('<');
    is_whole.then_some(BareName { text, is_detailed })
}

/// Returns the words for a lambda, a closure, or another type without a name.
fn unnamed(group: &str) -> Option<&'static str> {
    const LAMBDAS: [&str; 3] = ["{lambda(", "<lambda(", "{unnamed type#"];
    match group {
        "(anonymous struct)" | "(anonymous class)" | "(anonymous union)" => Some(LAMBDA),
        "{{closure}}" => Some(CLOSURE),
        _ if group.starts_with("{closure#") => Some(CLOSURE),
        _ if LAMBDAS.iter().any(|begin| group.starts_with(begin)) => Some(LAMBDA),
        _ => None,
    }
}

/// Returns the length of the group of brackets that a text begins with.
fn len_of_group(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            '>' if before == '-' => {} // the arrow of a function's type
            ')' | '>' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = c;
    }
    None
}

fn len_of_qualifiers(text: &str) -> usize {
    let mut rest = text;
    while let Some(behind) = QUALIFIERS.iter().find_map(|it| rest.strip_prefix(it)) {
        rest = behind;
    }
    text.len() - rest.len()
}

/// Returns the length of the word `operator` and of its signs, if it stands there.
fn operator_at(before: &str, text: &str) -> Option<usize> {
    const OPERATOR: &str = "operator";
    let behind = text.strip_prefix(OPERATOR)?;
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    if before.ends_with(is_of_word) || behind.starts_with(is_of_word) {
        return None;
    }
    let signs = match behind.starts_with("()") {
        true => 2,
        false => {
            let is_sign = |byte: &u8| b"<>=-!+*/%&|^~[],".contains(byte);
            behind.bytes().take_while(is_sign).count()
        }
    };
    Some(OPERATOR.len() + signs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_function_have_one_bare_name() {
        for (detailed, plain, bare) in [
            ("register_user(int)", "register_user", "register_user"),
            ("Cache::get(int) const", "Cache::get", "Cache::get"),
            ("f(int) [clone .cold]", "f", "f"),
            (
                "void ns::make<int>(void (*)(int))",
                "ns::make<int>",
                "ns::make<int>",
            ),
            ("char const* name<A, 3>()", "name<A, 3>", "name<A, 3>"),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::(anonymous struct)::operator()",
                "main::{lambda}::operator()",
            ),
            (
                "auto A::run(int) const::{lambda(auto:1)#2}::operator()<int>(int) const",
                "A::run::<lambda(auto:1)>::operator()<int>",
                "A::run::{lambda}::operator()<int>",
            ),
            (
                "main::{lambda(int)#2}::operator()(int) const",
                "main(int)::<lambda(int)>::operator()",
                "main::{lambda}::operator()",
            ),
            (
                "app::(anonymous namespace)::hidden(long)",
                "app::(anonymous namespace)::hidden",
                "app::(anonymous namespace)::hidden",
            ),
            (
                "std::ostream& std::operator<< <char>(std::ostream&, char)",
                "std::operator<< <char>",
                "std::operator<< <char>",
            ),
            (
                "Box::operator std::vector<int>()",
                "Box::operator std::vector<int>",
                "Box::operator std::vector<int>",
            ),
            (
                "operator new(unsigned long)",
                "operator new",
                "operator new",
            ),
            ("P::operator->() const", "P::operator->", "P::operator->"),
            (
                "rapp::main::{closure#0}",
                "rapp::main::{{closure}}",
                "rapp::main::{closure}",
            ),
        ] {
            let of_plain = BareName::of(plain);
            assert_eq!(
                (&*of_plain.text, of_plain.is_detailed),
                (bare, false),
                "{plain}"
            );
            let of_detailed = BareName::of(detailed);
            assert_eq!(
                (&*of_detailed.text, of_detailed.is_detailed),
                (bare, true),
                "{detailed}"
            );
        }
    }

    #[test]
    fn what_is_no_more_than_a_name_stays() {
        for name in [
            "",
            "main",
            "[app+0x1234]",
            "(no stack)",
            "alloc::vec::Vec<T>::push",
            "<u8 as Clone>::clone",
            "<fn(i32) -> u8 as FnOnce<(i32,)>>::call_once",
            "a)(b",
            "f(int",
            "user_operator",
            "main.(*Server).handle",
            "LazyCompile:~run /srv/app.js:3",
            "std::function<void (main::{lambda()#1})>::run",
            "operatorial",
        ] {
            let found = BareName::of(name);
            assert_eq!((&*found.text, found.is_detailed), (name, false));
        }
    }

    #[test]
    fn the_last_part_is_behind_the_scopes() {
        for (name, last) in [
            ("rapp::main::{{closure}}", "{closure}"),
            ("{closure#0}", "{closure}"),
            ("<a::T as b::U>::make", "make"),
            ("f<a::B>(int)", "f<a::B>"),
        ] {
            assert_eq!(BareName::of(name).last_part(), last, "{name}");
        }
    }
}
