//! The type of a block: read off the functions that allocated it, innermost first.
//!
//! Native code has no types at run time, but its allocation goes through templates and generics that name
//! them: `std::vector<int>`'s allocator, `Box<Node>::new`, `RawVec<u8>::grow_one`. What is seen depends on
//! debug information with inlined frames; C's `malloc` names nothing and nor does a bare `new Node` of C++: both
//! stay `(unknown)`.
//!
//! ```text
//! malloc <- RawVec<u8>::grow <- Vec<u8>::reserve <- String::push_str <- parse
//!           `------ a Vec<u8>, which a String is made of ----------'    a user: the search ends
//! ```

use std::borrow::Cow;

use crate::crate_name::without_return_type;

/// What a block is when no frame says so.
pub(crate) const UNKNOWN: &str = "(unknown)";

/// The type that these functions allocate: demangled names, innermost first, and of those whose name leaves it
/// out ([`Name::generic_arguments`](crate::resolve::Name::generic_arguments)) what they are instances with.
///
/// The innermost container (`std::vector`, `Vec`) counts, or one that is made of it; without any, the element
/// of the allocator.
pub fn type_of<'a>(
    functions: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Option<String> {
    let mut element: Option<String> = None;
    let mut found: Option<RustType> = None;
    for (function, generic) in functions.into_iter().take(64) {
        match (rust_container(function, generic), &found) {
            (Some(container), None) => found = Some(container),
            (Some(outer), Some(inner)) if outer.is_made_of(inner) => found = Some(outer),
            _ => {}
        }
        if found.is_none() {
            if let Some(container) = cpp_container(function) {
                return Some(container);
            }
            if element.is_none() {
                element = cpp_allocated(function);
            }
        }
        // A frame that is neither of a library nor an allocator ends the search: what is outside of it
        // is who called, not what was allocated.
        if !is_plumbing(function) {
            break;
        }
    }
    found.map(|found| found.shown()).or(element)
}

/// A container or smart pointer of Rust with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RustType {
    name: &'static str,
    arguments: Vec<String>,
}

impl RustType {
    fn of(name: &'static str, arguments: Vec<String>) -> RustType {
        RustType { name, arguments }.into_known()
    }

    /// Whether what this one allocates is an inner one.
    fn is_made_of(&self, inner: &RustType) -> bool {
        let of_bytes = inner.name == "Vec" && inner.arguments.first().is_some_and(|a| a == "u8");
        match self.name {
            "String" | "PathBuf" | "OsString" | "CString" => of_bytes || inner.name == "String",
            "VecDeque" | "BinaryHeap" => {
                inner.name == "Vec" && inner.arguments.first() == self.arguments.first()
            }
            _ => false,
        }
    }

    /// Nodes and headers are of the container that they make up.
    fn into_known(self) -> RustType {
        const HEADERS: [(&str, &str, usize); 6] = [
            ("alloc::rc::RcInner<", "Rc", 1),
            ("alloc::rc::RcBox<", "Rc", 1),
            ("alloc::sync::ArcInner<", "Arc", 1),
            ("alloc::collections::btree::node::LeafNode<", "BTreeMap", 2),
            (
                "alloc::collections::btree::node::InternalNode<",
                "BTreeMap",
                2,
            ),
            ("alloc::collections::linked_list::Node<", "LinkedList", 1),
        ];
        let made = |name: &'static str, rest: &str, wanted: usize| -> Option<RustType> {
            let arguments = arguments(rest)?.into_iter().take(wanted);
            let arguments: Vec<String> = arguments.map(String::from).collect();
            Some(RustType { name, arguments }.into_set())
        };
        if self.name == "Box"
            && let Some(inner) = self.arguments.first()
        {
            let inner = inner
                .strip_prefix("core::mem::maybe_uninit::MaybeUninit<")
                .unwrap_or(inner);
            for (path, name, wanted) in HEADERS {
                if let Some(rest) = inner.strip_prefix(path)
                    && let Some(known) = made(name, rest, wanted)
                {
                    return known;
                }
            }
        }
        // A table's element is a pair.
        if self.name == "HashMap"
            && let [pair] = &self.arguments[..]
            && let Some(pair) = pair.strip_prefix('(')
            && let Some(pair) = pair.strip_suffix(')')
        {
            let arguments = split(pair).into_iter().map(String::from).collect();
            return RustType { arguments, ..self }.into_set();
        }
        self.into_set()
    }

    /// Sets are maps to nothing.
    fn into_set(mut self) -> RustType {
        let set = match (self.name, self.arguments.get(1).map(String::as_str)) {
            ("HashMap", Some("()")) => "HashSet",
            ("BTreeMap", Some("alloc::collections::btree::set_val::SetValZST")) => "BTreeSet",
            _ => return self,
        };
        self.name = set;
        self.arguments.truncate(1);
        self
    }

    fn shown(&self) -> String {
        if self.arguments.is_empty() {
            return self.name.into();
        }
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        format!("{}<{}>", self.name, as_people_write(&arguments.join(", ")))
    }
}

/// A path, then generics, then a method: `alloc::vec::Vec<T,A>::push`, `<alloc::vec::Vec<T>>::push`,
/// `<alloc::vec::Vec<T> as core::clone::Clone>::clone`.
fn rust_container(function: &str, generic: Option<&str>) -> Option<RustType> {
    const RUST: [(&str, &str, usize); 14] = [
        ("alloc::vec::Vec<", "Vec", 1),
        ("alloc::raw_vec::RawVec<", "Vec", 1),
        ("alloc::boxed::Box<", "Box", 1),
        ("alloc::rc::Rc<", "Rc", 1),
        ("alloc::sync::Arc<", "Arc", 1),
        ("alloc::collections::vec_deque::VecDeque<", "VecDeque", 1),
        ("alloc::collections::btree::map::BTreeMap<", "BTreeMap", 2),
        ("alloc::collections::btree::set::BTreeSet<", "BTreeSet", 1),
        (
            "alloc::collections::linked_list::LinkedList<",
            "LinkedList",
            1,
        ),
        (
            "alloc::collections::binary_heap::BinaryHeap<",
            "BinaryHeap",
            1,
        ),
        ("std::collections::hash::map::HashMap<", "HashMap", 2),
        ("std::collections::hash::set::HashSet<", "HashSet", 1),
        ("hashbrown::map::HashMap<", "HashMap", 2),
        ("hashbrown::raw::RawTable<", "HashMap", 1),
    ];
    const PLAIN: [(&str, &str); 4] = [
        ("alloc::string::String", "String"),
        ("std::path::PathBuf", "PathBuf"),
        ("std::ffi::os_str::OsString", "OsString"),
        ("alloc::ffi::c_str::CString", "CString"),
    ];
    // A name without its turbofish, `alloc::vec::Vec<T>::push`, and legacy mangling's `Vec<T,A>` alike;
    // `Vec::<T>::push` is what v0 mangling says.
    let normal = rust_subject(function).replacen("::<", "<", 1);
    for (path, name, wanted) in RUST {
        if let Some(rest) = normal.strip_prefix(path) {
            let arguments: Vec<&str> = arguments(rest)?.into_iter().take(wanted).collect();
            return Some(RustType::of(name, instantiated(&arguments, generic)));
        }
    }
    let plain = PLAIN.iter().find(|(path, _)| {
        // The type itself, not one whose name only begins so.
        normal
            .strip_prefix(path)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    });
    match plain {
        Some((_, name)) => Some(RustType::of(name, vec![])),
        None if normal == "alloc::fmt::format" || normal == "alloc::fmt::format::format_inner" => {
            Some(RustType::of("String", vec![]))
        }
        None => None,
    }
}

/// The arguments with what the instance has for their parameters, which are numbered in the order in which
/// they come: of `Vec<T,A>` and `u8, Global`, `T` is `u8`. The standard library declares its own so.
fn instantiated(arguments: &[&str], generic: Option<&str>) -> Vec<String> {
    let given = generic.map(split).unwrap_or_default();
    let mut parameters: Vec<&str> = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut shown = Vec::new();
    for argument in arguments {
        let mut text = String::new();
        let mut rest = *argument;
        while !rest.is_empty() {
            let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
            let after = &rest[word.len()..];
            let is_parameter = word.starts_with(|c: char| c.is_ascii_uppercase())
                && !text.ends_with("::")
                && !after.starts_with("::");
            if is_parameter {
                let number = parameters.iter().position(|p| *p == word);
                let number = number.unwrap_or_else(|| {
                    parameters.push(word);
                    parameters.len() - 1
                });
                text.push_str(given.get(number).copied().unwrap_or(word));
            } else {
                text.push_str(word);
            }
            let gap = after.find(is_word).unwrap_or(after.len());
            text.push_str(&after[..gap]);
            rest = &after[gap..];
        }
        shown.push(text);
    }
    shown
}

/// A container, smart pointer or maker of C++; the return type may come first.
fn cpp_container(function: &str) -> Option<String> {
    let name = without_return_type(function);
    const MAKERS: [(&str, &str); 7] = [
        ("std::make_shared<", "std::shared_ptr"),
        ("std::allocate_shared<", "std::shared_ptr"),
        ("std::make_unique<", "std::unique_ptr"),
        ("std::make_unique_for_overwrite<", "std::unique_ptr"),
        ("std::__shared_ptr<", "std::shared_ptr"),
        ("std::shared_ptr<", "std::shared_ptr"),
        ("std::function<", "std::function"),
    ];
    for (path, shown) in MAKERS {
        if let Some(rest) = without_abi(name, path) {
            let arguments = arguments(&rest)?;
            return Some(format!("{shown}<{}>", shown_arguments(&arguments, 1)));
        }
    }
    const CPP: [(&str, usize); 12] = [
        ("vector", 1),
        ("deque", 1),
        ("list", 1),
        ("forward_list", 1),
        ("map", 2),
        ("multimap", 2),
        ("set", 1),
        ("multiset", 1),
        ("unordered_map", 2),
        ("unordered_multimap", 2),
        ("unordered_set", 1),
        ("unordered_multiset", 1),
    ];
    for (container, wanted) in CPP {
        if let Some(rest) = without_abi(name, &format!("std::{container}<")) {
            let arguments = arguments(&rest)?;
            return Some(format!(
                "std::{container}<{}>",
                shown_arguments(&arguments, wanted)
            ));
        }
    }
    if without_abi(name, "std::basic_string<char").is_some()
        || name.starts_with("std::string::")
        || name.starts_with("std::to_string")
    {
        return Some("std::string".into());
    }
    None
}

/// The element of an allocator of C++, when no container is named.
fn cpp_allocated(function: &str) -> Option<String> {
    let name = without_return_type(function);
    for allocator in [
        "std::allocator<",
        "std::__new_allocator<",
        "__gnu_cxx::new_allocator<",
    ] {
        if let Some(rest) = name
            .strip_prefix(allocator)
            .map(String::from)
            .or_else(|| without_abi(name, allocator))
        {
            return Some(shown_arguments(&arguments(&rest)?, 1));
        }
    }
    if let Some(rest) = without_abi(name, "std::allocator_traits<std::allocator<") {
        return Some(shown_arguments(&arguments(&rest)?, 1));
    }
    None
}

/// `<T as Trait>::method` and `<T>::method` are about `T`.
fn rust_subject(function: &str) -> &str {
    function
        .trim_start_matches(['<', '&'])
        .trim_start_matches("mut ")
}

/// What follows `path` in `name`, whatever inline namespace (`std::__cxx11::`, `std::__1::`) it was built with.
fn without_abi(name: &str, path: &str) -> Option<String> {
    for abi in ["std::", "std::__cxx11::", "std::__1::", "std::__debug::"] {
        if let Some(below) = name.strip_prefix(abi)
            && let Some(rest) = below.strip_prefix(path.strip_prefix("std::")?)
        {
            return Some(rest.into());
        }
    }
    None
}

/// The arguments of a template, from behind its `<` up to the matching `>`; `None` when it never closes.
fn arguments(rest: &str) -> Option<Vec<&str>> {
    let (found, is_closed) = list(rest);
    is_closed.then_some(found)
}

/// A list of arguments that ends where the text does.
fn split(text: &str) -> Vec<&str> {
    list(text).0
}

/// The parts between commas outside of brackets, up to a `>` that none of them opened, and whether there was one.
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

fn shown_arguments(arguments: &[&str], wanted: usize) -> String {
    let shown: Vec<&str> = arguments.iter().take(wanted).copied().collect();
    as_people_write(&shown.join(", ")).into_owned()
}

/// With the short names of what everybody knows.
fn as_people_write(text: &str) -> Cow<'_, str> {
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

/// Whether a frame may lie between the allocation function and the container that wanted the memory.
fn is_plumbing(function: &str) -> bool {
    crate::site::is_allocator(function)
        || crate::site::is_library(function)
        || function.starts_with('[')
        || function.contains("alloc")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions as they stand in stacks, innermost first, and what was allocated.
    #[test]
    fn types_are_read_off_the_frames() {
        let cases: &[(&[&str], Option<&str>)] = &[
            // Rust, v0 and legacy names, with and without allocator.
            (
                &[
                    "malloc",
                    "alloc::alloc::alloc",
                    "<alloc::raw_vec::RawVec<u8>>::grow_one",
                    "<alloc::vec::Vec<u8>>::push",
                    "server::read",
                ],
                Some("Vec<u8>"),
            ),
            (
                &[
                    "malloc",
                    "__rustc::__rust_alloc",
                    "alloc::raw_vec::RawVecInner<A>::with_capacity_in",
                    "alloc::vec::Vec<server::Node,A>::with_capacity_in",
                ],
                Some("Vec<server::Node>"),
            ),
            (
                &[
                    "malloc",
                    "alloc::alloc::exchange_malloc",
                    "alloc::boxed::Box<tree::Node<u32>>::new",
                ],
                Some("Box<tree::Node<u32>>"),
            ),
            (
                &["malloc", "alloc::sync::Arc<[u8]>::from_box"],
                Some("Arc<[u8]>"),
            ),
            (
                &[
                    "malloc",
                    "hashbrown::raw::RawTable<(u64, alloc::string::String)>::reserve_rehash",
                    "std::collections::hash::map::HashMap<u64, alloc::string::String>::insert",
                ],
                Some("HashMap<u64, String>"),
            ),
            (
                &[
                    "malloc",
                    "std::collections::hash::map::HashMap<u64, alloc::string::String, S>::insert",
                ],
                Some("HashMap<u64, String>"),
            ),
            (
                &[
                    "malloc",
                    "<alloc::string::String as core::clone::Clone>::clone",
                    "main",
                ],
                Some("String"),
            ),
            (
                &[
                    "malloc",
                    "<alloc::vec::Vec<fn(u8) -> u8> as core::clone::Clone>::clone",
                ],
                Some("Vec<fn(u8) -> u8>"),
            ),
            // C++.
            (
                &[
                    "operator new(unsigned long)",
                    "std::__new_allocator<Widget>::allocate(unsigned long, void const*)",
                    "std::allocator_traits<std::allocator<Widget> >::allocate(std::allocator<Widget>&, unsigned long)",
                    "std::_Vector_base<Widget, std::allocator<Widget> >::_M_allocate(unsigned long)",
                    "void std::vector<Widget, std::allocator<Widget> >::_M_realloc_insert<Widget>(Widget&&)",
                ],
                Some("std::vector<Widget>"),
            ),
            (
                &[
                    "operator new(unsigned long)",
                    "__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)",
                    "main",
                ],
                Some("int"),
            ),
            (
                &[
                    "operator new(unsigned long)",
                    "std::shared_ptr<Session> std::make_shared<Session, int>(int&&)",
                ],
                Some("std::shared_ptr<Session>"),
            ),
            (
                &[
                    "operator new(unsigned long)",
                    "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create(unsigned long&, unsigned long)",
                ],
                Some("std::string"),
            ),
            (
                &[
                    "operator new(unsigned long)",
                    "std::map<int, std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, std::less<int> >::operator[](int&&)",
                ],
                Some("std::map<int, std::string>"),
            ),
            (
                &[
                    "operator new(unsigned long)",
                    "std::__1::vector<float, std::__1::allocator<float> >::reserve(unsigned long)",
                ],
                Some("std::vector<float>"),
            ),
            // Who calls is not what was allocated.
            (&["malloc", "parse", "alloc::vec::Vec<u8>::push"], None),
            (&["malloc", "main"], None),
            (&[], None),
            // Names that never close, or are no names.
            (&["malloc", "alloc::vec::Vec<u8"], None),
            (&["malloc", "<<<<&mut >>>", "::<"], None),
        ];
        for (functions, expected) in cases {
            let found = type_of(functions.iter().map(|function| (*function, None)));
            assert_eq!(found.as_deref(), *expected, "{functions:?}");
        }
    }
    /// With Rust's older mangling, names say `T`, and debug information what it is.
    #[test]
    fn generic_arguments_stand_for_the_parameters() {
        type Stack = &'static [(&'static str, Option<&'static str>)];
        let cases: &[(Stack, &str)] = &[
            (
                &[
                    (
                        "alloc::raw_vec::RawVec<T,A>::grow_one",
                        Some("u8, alloc::alloc::Global"),
                    ),
                    (
                        "alloc::vec::Vec<T,A>::push",
                        Some("u8, alloc::alloc::Global"),
                    ),
                    ("alloc::string::String::push", None),
                ],
                "String",
            ),
            (
                &[(
                    "alloc::boxed::Box<T>::new",
                    Some("alloc::rc::RcInner<app::Node<u8>>"),
                )],
                "Rc<app::Node<u8>>",
            ),
            (
                &[("alloc::rc::Rc<[T]>::from", Some("app::Node"))],
                "Rc<[app::Node]>",
            ),
            (
                &[
                    (
                        "alloc::raw_vec::RawVec<T,A>::with_capacity_in",
                        Some("u32, alloc::alloc::Global"),
                    ),
                    (
                        "alloc::collections::vec_deque::VecDeque<T>::with_capacity",
                        Some("u32"),
                    ),
                ],
                "VecDeque<u32>",
            ),
            (
                &[(
                    "hashbrown::raw::RawTable<T,A>::reserve_rehash",
                    Some(
                        "(alloc::string::String, (u8, u8)), alloc::alloc::Global, h::{closure_env#0}<u8>",
                    ),
                )],
                "HashMap<String, (u8, u8)>",
            ),
            (
                &[(
                    "hashbrown::raw::RawTable<T,A>::reserve_rehash",
                    Some("(u64, ()), alloc::alloc::Global"),
                )],
                "HashSet<u64>",
            ),
            (
                &[(
                    "alloc::boxed::Box<T,A>::new_uninit_in",
                    Some(
                        "alloc::collections::btree::node::LeafNode<u64, alloc::collections::btree::set_val::SetValZST>, alloc::alloc::Global",
                    ),
                )],
                "BTreeSet<u64>",
            ),
            (
                &[(
                    "alloc::vec::Vec<T,A>::push",
                    Some(
                        "alloc::vec::Vec<alloc::string::String, alloc::alloc::Global>, alloc::alloc::Global",
                    ),
                )],
                "Vec<Vec<String>>",
            ),
            // A vector that a vector's method makes is no part of it.
            (
                &[
                    ("alloc::vec::Vec<T>::with_capacity", Some("u8")),
                    (
                        "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
                        Some("alloc::vec::Vec<u8, alloc::alloc::Global>"),
                    ),
                ],
                "Vec<u8>",
            ),
            // Nothing is known of it but that it is a vector.
            (&[("alloc::vec::Vec<T,A>::push", None)], "Vec<T>"),
            (&[("alloc::vec::Vec<T,A>::push", Some(""))], "Vec<>"),
        ];
        for (functions, expected) in cases {
            let found = type_of(functions.iter().copied());
            assert_eq!(found.as_deref(), Some(*expected), "{functions:?}");
        }
    }
}
