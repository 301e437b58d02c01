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

/// The name of a function, at most so many columns. It loses its arguments first, then the
/// arguments of templates, then the beginning of its path: what is left is the function's own name.
pub fn cut_function(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let without_arguments = elided(name, '(');
    if without_arguments.width() <= width {
        return without_arguments;
    }
    let short = elided(&without_arguments, '<');
    if short.width() <= width {
        return short;
    }
    // A last part that is too long by itself keeps its beginning, where its letters differ.
    let own = own_part(&short);
    match own.width() < width {
        true => cut_front(&short, width),
        false => cut(own, width),
    }
}

/// The word behind which brackets are a part of the name: `operator()`, `operator<`.
const OPERATOR: &str = "operator";
/// The parentheses that are no arguments.
const NO_ARGUMENTS: [&str; 2] = ["()", "(anonymous"];

/// The name with an ellipsis in place of what the outer brackets of this kind hold.
fn elided(name: &str, open: char) -> String {
    let close = if open == '(' { ')' } else { '>' };
    let mut short = String::with_capacity(name.len());
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(c) = name[at..].chars().next() {
        let (before, rest) = name.split_at(at);
        at += c.len_utf8();
        let is_in_a_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let symbols = symbols_of_operator(rest);
        if depth == 0 && symbols > 0 && !is_in_a_word {
            short.push_str(&rest[..OPERATOR.len() + symbols]);
            at += OPERATOR.len() + symbols - c.len_utf8();
            continue;
        }
        // The arrow of a closure's or a function's type closes nothing.
        let is_arrow = c == '>' && name[..at].ends_with("->");
        if c == open {
            if depth == 0 {
                short.push(c);
                let is_kept = open == '(' && NO_ARGUMENTS.iter().any(|it| rest.starts_with(it));
                if is_kept {
                    continue;
                }
                short.push('…');
            }
            depth += 1;
        } else if c == close && !is_arrow && depth > 0 {
            depth -= 1;
        }
        if depth == 0 {
            short.push(c);
        }
    }
    short
}

/// The number of bytes of brackets and signs behind the word `operator`, if the text begins with
/// an operator's name.
fn symbols_of_operator(text: &str) -> usize {
    let Some(behind) = text.strip_prefix(OPERATOR) else {
        return 0;
    };
    match behind.starts_with("()") {
        true => 2,
        false => behind
            .bytes()
            .take_while(|byte| b"<>=-!+*/%&|^~[],".contains(byte))
            .count(),
    }
}

/// The part of a name behind its last `::` outside of brackets.
fn own_part(name: &str) -> &str {
    let mut depth = 0_i32;
    let mut begin = 0;
    for (at, c) in name.char_indices() {
        match c {
            '(' | '<' | '{' => depth += 1,
            ')' | '>' | '}' => depth -= 1,
            ':' if depth <= 0 && name[at..].starts_with("::") => begin = at + 2,
            _ => {}
        }
    }
    &name[begin..]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_loses_arguments_first_and_its_own_name_never() {
        let name = "store::Cache<std::pair<int, std::string> >::insert(unsigned long, char const*)";
        let at = |width| cut_function(name, width);
        assert_eq!(at(80), name);
        assert_eq!(
            at(70),
            "store::Cache<std::pair<int, std::string> >::insert(…)"
        );
        assert_eq!(at(40), "store::Cache<…>::insert(…)");
        assert_eq!(at(20), "…Cache<…>::insert(…)");
        assert_eq!(at(12), "…::insert(…)");
        assert_eq!(at(9), "insert(…)");
        assert_eq!(at(5), "inse…");
        for width in 1..90 {
            assert!(at(width).width() <= width, "{width}");
        }
    }

    #[test]
    fn functions_of_rust_keep_what_differs() {
        let shim = "<alloc::boxed::Box<dyn FnOnce() + Send> as FnOnce<()>>::call_once";
        assert_eq!(cut_function(shim, 30), "<…>::call_once");
        let closure = "demo_program::best_sellers::{{closure}}";
        assert_eq!(cut_function(closure, 30), "…am::best_sellers::{{closure}}");
    }

    #[test]
    fn brackets_that_are_a_name_stay() {
        let name = "(anonymous namespace)::Order::operator()(Item const&, Item const&) const";
        assert_eq!(
            cut_function(name, 60),
            "(anonymous namespace)::Order::operator()(…) const"
        );
        assert_eq!(
            cut_function("std::operator<<(std::ostream&, Item const&)", 20),
            "std::operator<<(…)"
        );
        let word = "my_operator<int, long>(int)";
        assert_eq!(cut_function(word, 20), "my_operator<…>(…)");
        let arrow = "map<fn(u8) -> u8, Vec<u8>>::get(usize)";
        assert_eq!(cut_function(arrow, 14), "map<…>::get(…)");
    }
}
