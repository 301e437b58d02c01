//! Frame: one function at one place in the source.
//!
//! An address has several frames if functions are inlined into each other. They are kept innermost
//! first. The last is the function that physically contains the instruction.

use std::borrow::Cow;
use std::sync::Arc;

use super::length::{LEFT_OUT, LONGEST_LINKAGE, shortened};

/// Most inlined functions of one address that are kept. Compilers stay well below.
pub(crate) const MOST_INLINED: usize = 100;

/// One function at one place in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function, when any source of names knew it. Shared: equal names of a module are one
    /// allocation.
    pub function: Option<Arc<Name>>,
    /// The source file as the compiler recorded it (compilation directory, directory and name
    /// joined).
    pub file: Option<Arc<str>>,
    /// The line, from 1. `None` also where the compiler says "no line" (0).
    pub line: Option<u32>,
    /// The column, from 1. `None` where the compiler gives none.
    pub column: Option<u32>,
    /// True if this function was inlined into the next frame. False for the last frame of an
    /// address.
    pub inlined: bool,
}

impl Frame {
    /// The frame that stands for inlined functions that are left out.
    pub(crate) fn left_out() -> Frame {
        Frame {
            function: Some(Arc::new(Name::new(LEFT_OUT))),
            file: None,
            line: None,
            column: None,
            inlined: true,
        }
    }
}

/// The name of a function, as the linker knows it and as people read it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    raw: Box<str>,
    /// `None`: the same as `raw`, the usual case in C.
    demangled: Option<Box<str>>,
    /// See [`Name::generic_arguments`].
    generic_arguments: Option<Box<str>>,
}

impl Name {
    /// A name from its raw form; demangled here, once. A long name is cut where it is shown.
    pub fn new(raw: &str) -> Self {
        let raw = match raw.len() {
            ..=LONGEST_LINKAGE => Cow::Borrowed(raw),
            _ => shortened(raw),
        };
        let demangled = super::demangle(&raw).or_else(|| match shortened(&raw) {
            Cow::Owned(cut) => Some(cut),
            Cow::Borrowed(_) => None,
        });
        Name {
            raw: raw.into(),
            demangled: demangled.map(String::into_boxed_str),
            generic_arguments: None,
        }
    }

    /// The same, of a function whose name in the source (`push<u8, Global>`) says what its raw form
    /// does not.
    pub fn with_source_name(raw: &str, source_name: &str) -> Self {
        let arguments = source_name
            .split_once('<')
            .and_then(|(_, rest)| rest.strip_suffix('>'));
        Name {
            generic_arguments: arguments.map(|arguments| shortened(arguments).into()),
            ..Name::new(raw)
        }
    }

    /// A name that is in no linker's form: it is shown as it is, or cut if it is long.
    pub(crate) fn of_source(name: &str) -> Self {
        Name {
            raw: shortened(name).into(),
            demangled: None,
            generic_arguments: None,
        }
    }

    /// The same, of a function whose [`generic_arguments`](Self::generic_arguments) are known.
    pub(super) fn with_generic_arguments(raw: &str, arguments: &str) -> Self {
        Name {
            generic_arguments: Some(arguments.into()),
            ..Name::new(raw)
        }
    }

    /// Returns the arguments of a generic function's instance, `u8, Global`, where its raw form has
    /// only `T, A`. Rust's legacy mangling omits them, and debug information has them.
    pub fn generic_arguments(&self) -> Option<&str> {
        self.generic_arguments.as_deref()
    }

    /// The linkage name (`_ZN3fooEv`) where there is one, else the name in the source.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// The name people read; `raw` where demangling is not needed or not possible.
    pub fn demangled(&self) -> &str {
        self.demangled.as_deref().unwrap_or(&self.raw)
    }

    /// Returns true if `raw` is a mangled name that could be read.
    pub fn is_mangled(&self) -> bool {
        self.demangled.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::length::LONGEST_SHOWN;

    #[test]
    fn a_long_name_is_cut_and_says_so() {
        for (raw, begin) in [
            ("x".repeat(1 << 20), "xxx"),
            ("é".repeat(1 << 20), "éé"),
            (format!("_ZN{}E", "3foo".repeat(3000)), "foo::foo"),
            (format!("_ZN{}E", "3foo".repeat(1 << 20)), "_ZN3foo"),
        ] {
            let name = Name::new(&raw);
            let shown = name.demangled();
            assert!(shown.starts_with(begin) && shown.ends_with("…"), "{shown}");
            assert!(shown.len() <= LONGEST_SHOWN + LEFT_OUT.len());
            assert!(name.raw().len() <= LONGEST_LINKAGE);
        }
        let whole = "x".repeat(LONGEST_SHOWN);
        assert_eq!(Name::new(&whole).demangled(), whole);
    }
}
