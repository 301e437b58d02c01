//! Rust types: containers and smart pointers.

use super::arguments::{arguments, as_people_write, split};

/// A container or smart pointer of Rust with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RustType {
    name: &'static str,
    arguments: Vec<String>,
}

impl RustType {
    fn of(name: &'static str, arguments: Vec<String>) -> RustType {
        RustType { name, arguments }.into_known()
    }

    /// Returns true if what this one allocates is an inner one.
    pub(super) fn is_made_of(&self, inner: &RustType) -> bool {
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

    pub(super) fn shown(&self) -> String {
        if self.arguments.is_empty() {
            return self.name.into();
        }
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        format!("{}<{}>", self.name, as_people_write(&arguments.join(", ")))
    }
}

/// A path, then generics, then a method: `alloc::vec::Vec<T,A>::push`,
/// `<alloc::vec::Vec<T>>::push`, `<alloc::vec::Vec<T> as core::clone::Clone>::clone`.
pub(super) fn rust_container(function: &str, generic: Option<&str>) -> Option<RustType> {
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
    // A name without its turbofish, `alloc::vec::Vec<T>::push`, and legacy mangling's `Vec<T,A>`
    // alike; `Vec::<T>::push` is what v0 mangling says.
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

/// The arguments with what the instance has for their parameters, which are numbered in the order
/// in which they come: of `Vec<T,A>` and `u8, Global`, `T` is `u8`. The standard library declares
/// its own so.
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

/// `<T as Trait>::method` and `<T>::method` are about `T`.
fn rust_subject(function: &str) -> &str {
    function
        .trim_start_matches(['<', '&'])
        .trim_start_matches("mut ")
}
