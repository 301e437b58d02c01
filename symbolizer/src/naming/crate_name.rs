//! Crate name: the part of the source that a function belongs to, read off the function's name.
//!
//! ```text
//! Rust    <server::Table as core::clone::Clone>::clone  server  where the type or trait is
//!         _RNvMs_Cs1234_5alloc3strNtB2_…                alloc   v0: the crate of the impl itself
//! C++     void std::vector<ns::T>::push_back(ns::T&&)   std     the outermost namespace or class
//! C       parse_line                                    None    its module stands for it
//! ```
//!
//! A name cannot tell a C++ class from a namespace, so `Parser::run()` belongs to `Parser`.

use crate::resolve::Name;

/// The crate, or the outermost namespace. `None` for names without a path: C, and C++ outside any.
pub(crate) fn crate_of(name: &Name) -> Option<&str> {
    crate_of_v0(name.raw()).or_else(|| crate_of_path(name.demangled()))
}

/// Returns the crate of a v0 mangled name of Rust: the first crate root in it. It belongs to the
/// function, or to the `impl` around it, which the demangled form does not show
/// (`<str>::to_uppercase` is alloc's).
fn crate_of_v0(mangled: &str) -> Option<&str> {
    let mut rest = mangled.strip_prefix("_R")?.as_bytes();
    let from_number =
        |text: &'static str, rest: &[u8]| rest.first().is_some_and(|c| text.as_bytes().contains(c));
    loop {
        rest = match rest.split_first()? {
            (b'N', rest) => rest.get(1..)?,
            (b'M' | b'X', rest) => without_disambiguator(rest),
            // A trait's own method, for a type: of the type's crate, or of the trait's for a
            // primitive type.
            (b'I' | b'Y' | b'R' | b'Q' | b'S' | b'O' | b'P', rest) => rest,
            (b'C', rest) => return identifier(without_disambiguator(rest)),
            (c, rest) if c.is_ascii_lowercase() && from_number("NMXIYCB", rest) => rest,
            _ => return None,
        };
    }
}

/// `s1a_` says which of several; crates are told apart by it, people do not read it.
fn without_disambiguator(rest: &[u8]) -> &[u8] {
    match rest.strip_prefix(b"s") {
        Some(number) => match number.iter().position(|&c| c == b'_') {
            Some(end) => &number[end + 1..],
            None => rest,
        },
        None => rest,
    }
}

/// `5alloc`.
fn identifier(rest: &[u8]) -> Option<&str> {
    let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(digits);
    let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let rest = rest.strip_prefix(b"_").unwrap_or(rest);
    std::str::from_utf8(rest.get(..length)?).ok()
}

/// Returns the crate of a demangled name.
fn crate_of_path(name: &str) -> Option<&str> {
    if let Some(inner) = name.strip_prefix('<') {
        let subject = inner.trim_start_matches(['<', '&', '*', '[', '(']);
        let subject = ["mut ", "const ", "dyn ", "impl "]
            .iter()
            .fold(subject, |text, word| {
                text.strip_prefix(word).unwrap_or(text)
            });
        return first_segment(subject).or_else(|| first_segment(inner.split_once(" as ")?.1));
    }
    first_segment(without_return_type(name))
}

/// `server` of `server::Table as …`.
fn first_segment(path: &str) -> Option<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let end = path.find(|c| !is_word(c))?;
    let is_path = path[end..].starts_with("::")
        // `ns[abi:v2]::function`
        || path[end..].starts_with("[abi:");
    (end > 0 && is_path).then(|| &path[..end])
}

/// A template's name begins with what it returns: the name itself is the last word before its
/// arguments, spaces inside of brackets aside.
pub(crate) fn without_return_type(name: &str) -> &str {
    let (mut depth, mut begins) = (0u32, 0);
    for (at, c) in name.char_indices() {
        match c {
            _ if name[begins..].starts_with("operator") => break,
            '(' if depth == 0 && !name[at..].starts_with("(anonymous") => break,
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => begins = at + 1,
            _ => {}
        }
    }
    name[begins..].trim_start_matches(['*', '&'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_off_mangled_and_demangled_names() {
        let cases = [
            // Rust, v0: inherent, of a trait, of a primitive type, a closure, a trait's own method.
            ("_RNvCs1234_7mycrate3foo", Some("mycrate")),
            ("_RNvMNtCsbmNqQUJIY6D_4core5sliceSh4iter", Some("core")),
            (
                "_RNvMNtCs6ROZpPk4ujN_5alloc3stre12to_uppercase",
                Some("alloc"),
            ),
            (
                "_RNvXs_Cs1234_6serverNtB4_5TableNtNtCs5_4core5clone5Clone5clone",
                Some("server"),
            ),
            ("_RNCNvCs1234_6server4main0B3_", Some("server")),
            ("_RNvYhNtCs1234_6server5Frame4size", Some("server")),
            (
                "_RNvYNtCs1234_6server5TableNtNtCs5_4core5clone5Clone10clone_from",
                Some("server"),
            ),
            ("_RINvCs1234_6server4loadhE", Some("server")),
            // Rust, legacy.
            (
                "_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$8grow_one17h0123456789abcdefE",
                Some("alloc"),
            ),
            (
                "_ZN60_$LT$alloc..string..String$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE",
                Some("alloc"),
            ),
            (
                "_ZN36_$LT$u8$u20$as$u20$server..Frame$GT$4size17h0123456789abcdefE",
                Some("server"),
            ),
            (
                "<&mut server::Table as core::iter::Iterator>::next",
                Some("server"),
            ),
            (
                "<[server::Node] as alloc::slice::Concat<T>>::concat",
                Some("server"),
            ),
            ("alloc::slice::<impl [T]>::to_vec", Some("alloc")),
            // C++.
            ("_ZN2ns4demo4initEi", Some("ns")),
            (
                "void std::vector<ns::T, std::allocator<ns::T> >::_M_realloc_insert<ns::T>(ns::T&&)",
                Some("std"),
            ),
            (
                "std::vector<int, std::allocator<int> > ns::make<int>(int)",
                Some("ns"),
            ),
            (
                "ns::Stream& ns::operator<< <int>(ns::Stream&, int)",
                Some("ns"),
            ),
            ("ns::(anonymous namespace)::hidden(int)", Some("ns")),
            ("(anonymous namespace)::hidden(int)", None),
            ("operator new(unsigned long)", None),
            ("load(std::string)", None),
            // C, and names that are none.
            ("parse_line", None),
            ("_R", None),
            ("_RC999999999999999999999x", None),
            ("_RNvC5all", None),
            ("<", None),
            ("::", None),
            ("", None),
            ("<<<<&mut >>>", None),
        ];
        for (name, expected) in cases {
            assert_eq!(crate_of(&Name::new(name)), expected, "{name}");
        }
    }
}
