//! C++ types: containers, smart pointers and allocators.

use super::arguments::{arguments, shown_arguments};
use crate::naming::crate_name::without_return_type;

/// A container, smart pointer or maker of C++; the return type may come first.
pub(super) fn cpp_container(function: &str) -> Option<String> {
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
pub(super) fn cpp_allocated(function: &str) -> Option<String> {
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

/// Returns the text behind `path` in `name`, for any inline namespace (`std::__cxx11::`,
/// `std::__1::`).
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
