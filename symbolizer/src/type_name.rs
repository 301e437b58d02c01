//! The type of a block: read off the functions that allocated it, innermost first.
//!
//! Native code has no types at run time, but its allocation goes through templates and generics that name
//! them: `std::vector<int>`'s allocator, `Box<Node>::new`, `RawVec<u8>::grow_one`. What is seen depends on
//! debug information with inlined frames; C's `malloc` names nothing, and stays `(unknown)`.

/// What a block is when no frame says so.
pub(crate) const UNKNOWN: &str = "(unknown)";

/// The type that these functions allocate, demangled names, innermost first.
///
/// The innermost frame that names one decides the element; a container around it (`std::vector`,
/// `Vec`) is preferred over the bare allocator, because people think in those.
pub fn type_of<'a>(functions: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut element: Option<String> = None;
    let mut deeper = 0;
    for function in functions {
        // A frame that is neither of a library nor an allocator ends the search: what is outside of it
        // is who called, not what was allocated.
        if let Some(container) = container(function) {
            return Some(container);
        }
        if element.is_none() {
            element = allocated(function);
        }
        deeper += 1;
        if !is_plumbing(function) || deeper > 64 {
            break;
        }
    }
    element
}

/// A container or smart pointer whose method or maker this is.
fn container(function: &str) -> Option<String> {
    // Rust: a path, then generics, then a method: `alloc::vec::Vec<T,A>::push`, `alloc::vec::Vec<T>::push`,
    // `<alloc::vec::Vec<T> as core::clone::Clone>::clone`.
    const RUST: [(&str, &str); 14] = [
        ("alloc::vec::Vec<", "Vec"),
        ("alloc::raw_vec::RawVec<", "Vec"),
        ("alloc::boxed::Box<", "Box"),
        ("alloc::rc::Rc<", "Rc"),
        ("alloc::sync::Arc<", "Arc"),
        ("alloc::collections::vec_deque::VecDeque<", "VecDeque"),
        ("alloc::collections::btree::map::BTreeMap<", "BTreeMap"),
        ("alloc::collections::btree::set::BTreeSet<", "BTreeSet"),
        ("alloc::collections::linked_list::LinkedList<", "LinkedList"),
        ("alloc::collections::binary_heap::BinaryHeap<", "BinaryHeap"),
        ("std::collections::hash::map::HashMap<", "HashMap"),
        ("std::collections::hash::set::HashSet<", "HashSet"),
        ("hashbrown::map::HashMap<", "HashMap"),
        ("hashbrown::raw::RawTable<", "HashMap"),
    ];
    let plain = rust_subject(function);
    // A name without its turbofish, `alloc::vec::Vec<T>::push`, and legacy mangling's `Vec<T,A>` alike;
    // `Vec::<T>::push` is what v0 mangling says.
    let normal = plain.replacen("::<", "<", 1);
    for (path, shown) in RUST {
        if let Some(rest) = normal.strip_prefix(path) {
            let arguments = arguments(rest)?;
            let wanted = if shown == "BTreeMap" || shown == "HashMap" {
                2
            } else {
                1
            };
            return Some(format!("{shown}<{}>", shown_arguments(&arguments, wanted)));
        }
    }
    if normal.starts_with("alloc::string::String") || normal == "alloc::fmt::format" {
        return Some("String".into());
    }

    // C++: the return type may come first.
    let name = cpp_name(function);
    const MAKERS: [(&str, &str); 5] = [
        ("std::make_shared<", "std::shared_ptr"),
        ("std::allocate_shared<", "std::shared_ptr"),
        ("std::make_unique<", "std::unique_ptr"),
        ("std::__shared_ptr<", "std::shared_ptr"),
        ("std::shared_ptr<", "std::shared_ptr"),
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

/// The element of an allocator, when no container is named yet.
fn allocated(function: &str) -> Option<String> {
    let name = cpp_name(function);
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

/// Without a return type: the last word before the first bracket begins the name.
fn cpp_name(function: &str) -> &str {
    let bracket = function.find(['<', '(']).unwrap_or(function.len());
    match function[..bracket].rfind(' ') {
        Some(space) => &function[space + 1..],
        None => function,
    }
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
    let (mut depth, mut from, mut found) = (0i32, 0, Vec::new());
    let mut before = ' ';
    for (at, c) in rest.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            // The arrow of a function's type is no bracket.
            '>' if before == '-' => {}
            '>' if depth == 0 => {
                found.push(rest[from..at].trim());
                return Some(found);
            }
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(rest[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    None
}

fn shown_arguments(arguments: &[&str], wanted: usize) -> String {
    let shown: Vec<&str> = arguments
        .iter()
        .take(wanted)
        .map(|argument| match *argument {
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
            | "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>"
            | "std::basic_string<char, std::char_traits<char>, std::allocator<char> >" => {
                "std::string"
            }
            "alloc::string::String" => "String",
            argument => argument,
        })
        .collect();
    shown.join(", ")
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
                Some("HashMap<(u64, alloc::string::String)>"),
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
            let found = type_of(functions.iter().copied());
            assert_eq!(found.as_deref(), *expected, "{functions:?}");
        }
    }
}
