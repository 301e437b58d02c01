//! Type name: the type of a block, read off the functions that allocate it, innermost first.
//!
//! Native code has no types at run time. But allocations go through templates and generics that
//! name types: `std::vector<int>`'s allocator, `Box<Node>::new`, `RawVec<u8>::grow_one`. They show
//! if debug information has inlined frames. C's `malloc` and a bare `new Node` of C++ name no type:
//! such blocks are `(unknown)`.
//!
//! ```text
//! malloc <- RawVec<u8>::grow <- Vec<u8>::reserve <- String::push_str <- parse
//!           `------ a Vec<u8>, which a String is made of ----------'    a user: the search ends
//! ```

mod arguments;
mod cpp;
mod rust;

use cpp::{cpp_allocated, cpp_container};
use rust::{RustType, rust_container};

/// The type of a block if no frame tells it.
pub(crate) const UNKNOWN: &str = "(unknown)";

/// The type that these functions allocate: demangled names, innermost first, and of those whose
/// name leaves it out ([`Name::generic_arguments`](crate::resolve::Name::generic_arguments)) what
/// they are instances with.
///
/// The innermost container (`std::vector`, `Vec`) counts, or one that is made of it; without any,
/// the element of the allocator.
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
        // A frame that is neither of a library nor an allocator ends the search: what is outside of
        // it is who called, not what was allocated.
        if !is_library_code(function) {
            break;
        }
    }
    found.map(|found| found.shown()).or(element)
}

/// Returns true if a frame may lie between the allocation function and the container that wanted
/// the memory.
fn is_library_code(function: &str) -> bool {
    crate::naming::site::is_allocator(function)
        || crate::naming::site::is_library(function)
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
            // The caller is not the allocated type.
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
