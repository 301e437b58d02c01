//! Crate name: the part of the source that a function belongs to, read off the function's name, or
//! off its file if the name is bare.
//!
//! ```text
//! Rust    <server::Table as core::clone::Clone>::clone  server  where the type or trait is
//!         _RNvMs_Cs1234_5alloc3strNtB2_…                alloc   v0: the crate of the impl itself
//! C++     void std::vector<ns::T>::push_back(ns::T&&)   std     the outermost namespace or class
//! C       parse_line                                    None    its module stands for it
//! ```
//!
//! A name cannot tell a C++ class from a namespace, so `Parser::run()` belongs to `Parser`.

use std::borrow::Cow;

use crate::resolve::Name;

/// Returns the crate of a source file of Rust: of the standard library, or of one that cargo
/// fetched. Compilers leave the bare names of inlined functions with `line-tables-only`.
///
/// ```text
/// /rustc/59807616…/library/alloc/src/vec/mod.rs                  alloc
/// /rust/deps/hashbrown-0.15.2/src/raw/mod.rs                     hashbrown
/// …/registry/src/index.crates.io-1949…/serde_json-1.0.1/src/de.rs  serde_json
/// …/git/checkouts/tokio-4e05d63a9c/8b2f1ee/src/lib.rs            tokio
/// …/vendor/rayon-core/src/job.rs                                 rayon_core
/// ```
pub(crate) fn crate_of_file(file: &str) -> Option<Cow<'_, str>> {
    let after = |root: &str| file.split_once(root).map(|(_, rest)| rest);
    let folder = |path: &str| {
        path.split_once('/')
            .is_some_and(|(name, _)| !name.is_empty())
    };
    if !file.ends_with(".rs") {
        return None;
    }
    let of_rustc = after("/rustc/").and_then(|rest| rest.split_once("/library/"));
    let library = (of_rustc.map(|(_, rest)| rest)).or_else(|| after("/rustlib/src/rust/library/"));
    let fetched = (after("/registry/src/").and_then(|rest| rest.split_once('/')))
        .map(|(_, rest)| rest)
        .or_else(|| after("/rust/deps/"))
        .or_else(|| after("/vendor/"));
    let (path, ending) = match (library, fetched, after("/git/checkouts/")) {
        (Some(path), ..) => (path, Ending::Nothing),
        (_, Some(path), _) => (path, Ending::Version),
        (.., Some(path)) => (path, Ending::Hash),
        _ => return None,
    };
    let name = path.split('/').next().filter(|_| folder(path))?;
    let name = match ending {
        Ending::Nothing => name,
        Ending::Version => without_version(name),
        Ending::Hash => name.rsplit_once('-').map_or(name, |(name, _)| name),
    };
    Some(match name.contains('-') {
        // As names have it.
        true => name.replace('-', "_").into(),
        false => name.into(),
    })
}

/// The part of a folder's name behind the crate's name.
enum Ending {
    Nothing,
    Version,
    Hash,
}

/// `sha-1` of `sha-1-0.10.1`.
fn without_version(name: &str) -> &str {
    let is_version = |rest: &str| {
        let (major, rest) = rest.split_once('.').unwrap_or(("", ""));
        let is_number = !major.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit());
        is_number && rest.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut dashes = name.match_indices('-').map(|(at, _)| at);
    let end = dashes.find(|&at| is_version(&name[at + 1..]));
    end.map_or(name, |at| &name[..at])
}

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
    fn crates_are_read_off_files() {
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
        for (file, expected) in [
            (
                "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/alloc/src/vec/mod.rs",
                Some("alloc"),
            ),
            (
                "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/thread/mod.rs",
                Some("std"),
            ),
            (
                "/rust/deps/hashbrown-0.15.2/src/raw/mod.rs",
                Some("hashbrown"),
            ),
            (
                &format!("{registry}/serde_json-1.0.140/src/de.rs"),
                Some("serde_json"),
            ),
            (
                &format!("{registry}/rayon-core-1.12.1/src/job.rs"),
                Some("rayon_core"),
            ),
            (
                &format!("{registry}/sha-1-0.10.1/src/lib.rs"),
                Some("sha_1"),
            ),
            (
                &format!("{registry}/wasi-0.11.0+wasi-snapshot-preview1/src/lib.rs"),
                Some("wasi"),
            ),
            (
                "/home/me/.cargo/git/checkouts/tokio-util-4e05d63a9c/8b2f1ee/src/lib.rs",
                Some("tokio_util"),
            ),
            ("/src/app/vendor/regex/src/lib.rs", Some("regex")),
            ("/src/app/src/main.rs", None),
            ("/src/app/vendor/lib.rs", None),
            ("/src/app/vendor/zlib/inflate.c", None),
            ("/registry/src/x.rs", None),
            ("", None),
        ] {
            assert_eq!(crate_of_file(file).as_deref(), expected, "{file}");
        }
    }

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
