//! Arguments: the arguments of a template or a generic in a name, as a list and as people write
//! them.

use std::borrow::Cow;

/// The arguments of a template, from behind its `<` up to the matching `>`; `None` when it never
/// closes.
pub(super) fn arguments(rest: &str) -> Option<Vec<&str>> {
    let (found, is_closed) = list(rest);
    is_closed.then_some(found)
}

/// A list of arguments that ends where the text does.
pub(super) fn split(text: &str) -> Vec<&str> {
    list(text).0
}

/// The parts between commas outside of brackets, up to a `>` that none of them opened, and whether
/// there was one.
fn list(text: &str) -> (Vec<&str>, bool) {
    let (mut depth, mut from, mut found) = (0i32, 0, Vec::new());
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            // The arrow of a function's type is no bracket.
            '>' if before == '-' => {}
            '>' if depth == 0 => {
                found.push(text[from..at].trim());
                return (found, true);
            }
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    found.push(text[from..].trim());
    (found, false)
}

pub(super) fn shown_arguments(arguments: &[&str], wanted: usize) -> String {
    let shown: Vec<&str> = arguments.iter().take(wanted).copied().collect();
    as_people_write(&shown.join(", ")).into_owned()
}

/// With the short names of what everybody knows.
pub(super) fn as_people_write(text: &str) -> Cow<'_, str> {
    const SHORT: [(&str, &str); 16] = [
        (
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            "std::string",
        ),
        (
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>",
            "std::string",
        ),
        (
            "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            "std::string",
        ),
        (
            "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char> >",
            "std::string",
        ),
        (", alloc::alloc::Global>", ">"),
        (",alloc::alloc::Global>", ">"),
        (", std::hash::random::RandomState>", ">"),
        ("alloc::string::String", "String"),
        ("alloc::vec::Vec<", "Vec<"),
        ("alloc::boxed::Box<", "Box<"),
        ("alloc::rc::Rc<", "Rc<"),
        ("alloc::sync::Arc<", "Arc<"),
        ("alloc::collections::btree::map::BTreeMap<", "BTreeMap<"),
        ("std::collections::hash::map::HashMap<", "HashMap<"),
        ("core::option::Option<", "Option<"),
        ("core::cell::RefCell<", "RefCell<"),
    ];
    let mut text = Cow::Borrowed(text);
    for (long, short) in SHORT {
        if text.contains(long) {
            text = text.replace(long, short).into();
        }
    }
    text
}
