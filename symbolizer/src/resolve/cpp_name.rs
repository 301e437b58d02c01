//! Short names of C++: `std::string` for its long form, and no default arguments of the standard
//! library's templates.
//!
//! ```text
//! std::map<int, std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >,
//!     std::less<int>, std::allocator<std::pair<int const, std::__cxx11::basic_string<…> > > >
//! std::map<int, std::string>
//! ```
//!
//! An argument is left out only if the template has it by default, so two types keep two names.

use std::ops::Range;

/// Returns the short form of a demangled name. A name that is no sequence of balanced brackets
/// comes back as it is.
pub(super) fn short(name: &str) -> String {
    if !name.contains(['<', '[']) && !name.contains("::__") {
        return name.to_owned();
    }
    let plain = INLINE_NAMESPACES
        .iter()
        .fold(name.replace("[abi:cxx11]", ""), |name, (long, short)| {
            name.replace(long, short)
        });
    Rewriting::of(&plain).unwrap_or_else(|| name.to_owned())
}

/// Inline namespaces, which a program's text does not name: those of libstdc++'s and libc++'s ABIs.
const INLINE_NAMESPACES: [(&str, &str); 3] = [
    ("::__cxx11::", "::"),
    ("std::__1::", "std::"),
    ("std::__ndk1::", "std::"),
];

/// An open bracket.
enum Open {
    /// `(`, `[`, `{`, with what closes it; or a `<` that begins no template's arguments.
    Other(char),
    Template(Template),
}

/// A template whose arguments are being written.
struct Template {
    /// Where its name begins in the output.
    name: usize,
    /// Where its `<` is.
    bracket: usize,
    /// Where its arguments begin.
    arguments: Vec<usize>,
}

/// A name while it is rewritten: what is written already, and the brackets that are open there.
struct Rewriting {
    out: String,
    open: Vec<Open>,
}

impl Rewriting {
    fn of(name: &str) -> Option<String> {
        let mut it = Rewriting {
            out: String::with_capacity(name.len()),
            open: Vec::new(),
        };
        let mut rest = name;
        while let Some(c) = rest.chars().next() {
            let mut len = c.len_utf8();
            match c {
                '<' | '>' | '-' if it.is_behind_operator() => {
                    len = operator_len(rest);
                    it.out.push_str(&rest[..len]);
                }
                '-' if rest.starts_with("->") => {
                    len = 2;
                    it.out.push_str("->");
                }
                '<' => it.begin(),
                '(' => it.push_other(c, ')'),
                '[' => it.push_other(c, ']'),
                '{' => it.push_other(c, '}'),
                '>' => match it.open.last() {
                    Some(Open::Other('>')) => {
                        it.trim();
                        it.pop_other('>')?;
                    }
                    Some(Open::Other(_)) => it.out.push('>'), // greater than
                    _ => {
                        rest = &rest[len..];
                        len = it.end(rest)?;
                    }
                },
                ')' | ']' | '}' => it.pop_other(c)?,
                ',' => {
                    it.out.push(',');
                    let at = it.out.len();
                    if let Some(Open::Template(template)) = it.open.last_mut() {
                        template.arguments.push(at);
                    }
                }
                _ => it.out.push(c),
            }
            rest = &rest[len..];
        }
        it.open.is_empty().then_some(it.out)
    }

    /// Takes the blank of `> >` off the output.
    fn trim(&mut self) {
        self.out.truncate(self.out.trim_end_matches(' ').len());
    }

    fn push_other(&mut self, open: char, close: char) {
        self.out.push(open);
        self.open.push(Open::Other(close));
    }

    /// Closes a bracket. `None`: it is not the one that is open.
    fn pop_other(&mut self, close: char) -> Option<()> {
        self.out.push(close);
        matches!(self.open.pop()?, Open::Other(expected) if expected == close).then_some(())
    }

    /// Returns true if the word `operator` has just been written.
    fn is_behind_operator(&self) -> bool {
        let before = self.out.strip_suffix("operator");
        before.is_some_and(|before| !before.ends_with(is_of_identifier))
    }

    /// Writes a `<`.
    fn begin(&mut self) {
        let is_named = self
            .out
            .ends_with(|c| is_of_identifier(c) || matches!(c, ')' | ']' | '>' | '=' | '"'));
        self.out.push('<');
        if !is_named {
            return self.open.push(Open::Other('>'));
        }
        let bracket = self.out.len() - 1;
        let is_inside = |c| is_of_identifier(c) || c == ':';
        let name = self.out[..bracket].trim_end_matches(is_inside).len();
        self.open.push(Open::Template(Template {
            name,
            bracket,
            arguments: vec![bracket + 1],
        }));
    }

    /// Writes the `>` that ends a template's arguments. Returns how many bytes of `rest`, which
    /// stands behind it, are written, too. `None`: no template is open.
    fn end(&mut self, rest: &str) -> Option<usize> {
        let Some(Open::Template(template)) = self.open.pop() else {
            return None;
        };
        self.trim();
        let ends = template.arguments[1..].iter().map(|&next| next - 1);
        let ends = ends.chain([self.out.len()]);
        let arguments: Vec<_> = template.arguments.iter().copied().zip(ends).collect();
        let argument = |&(from, to): &(usize, usize)| self.out[from..to].trim();
        let name = &self.out[template.name..template.bracket];
        let mut wanted = arguments.len();
        if let Some(class) = name.strip_prefix("std::") {
            while wanted > 1 {
                let kept = arguments[..wanted - 1].iter().map(argument);
                if !is_default(
                    class,
                    &kept.collect::<Vec<_>>(),
                    argument(&arguments[wanted - 1]),
                ) {
                    break;
                }
                wanted -= 1;
            }
            if wanted == 1
                && let Some(alias) = alias(class, argument(&arguments[0]))
            {
                return Some(self.write_alias(template.name..self.out.len(), &alias, rest));
            }
        }
        self.out.truncate(arguments[wanted - 1].1);
        self.trim();
        self.out.push('>');
        Some(0)
    }

    /// Writes an alias in the place of a template, and the names of its constructor and destructor
    /// accordingly. Returns how many bytes of `rest` these take.
    fn write_alias(&mut self, place: Range<usize>, alias: &str, rest: &str) -> usize {
        let class = self.out[place.clone()]
            .split('<')
            .next()
            .unwrap_or_default();
        let class = class.trim_start_matches("std::").to_owned();
        self.out.truncate(place.start);
        self.out.push_str("std::");
        self.out.push_str(alias);
        for sign in ["::", "::~"] {
            let behind = rest
                .strip_prefix(sign)
                .and_then(|rest| rest.strip_prefix(&*class));
            if behind.is_some_and(|behind| !behind.starts_with(is_of_identifier)) {
                self.out.push_str(sign);
                self.out.push_str(alias);
                return sign.len() + class.len();
            }
        }
        0
    }
}

fn is_of_identifier(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// Returns the length of the operator that a text begins with, as it is written behind the word
/// `operator`.
fn operator_len(text: &str) -> usize {
    const OPERATORS: [&str; 13] = [
        "<=>", "<<=", ">>=", "->*", "<<", ">>", "->", "<=", ">=", "-=", "--", "<", ">",
    ];
    let found = OPERATORS
        .iter()
        .find(|operator| text.starts_with(**operator));
    found.map_or(1, |operator| operator.len())
}

/// Returns true if the class template `std::CLASS` has that argument by default behind the short
/// arguments `before`: see the synopses of the headers in the C++ standard.
fn is_default(class: &str, before: &[&str], argument: &str) -> bool {
    let Some(&first) = before.first() else {
        return false;
    };
    let of = |template: &str, inner: &str| {
        let rest = argument
            .strip_prefix("std::")
            .and_then(|it| it.strip_prefix(template));
        let rest = rest.and_then(|it| it.strip_prefix('<')?.strip_suffix('>'));
        rest.is_some_and(|it| it.trim_end() == inner)
    };
    let of_pair =
        |key: &str, value: &str| of("allocator", &format!("std::pair<{key} const, {value}>"));
    match (class, before.len()) {
        (
            "vector" | "deque" | "list" | "forward_list" | "_Vector_base" | "_Deque_base"
            | "_List_base" | "_Fwd_list_base",
            1,
        ) => of("allocator", first),
        ("set" | "multiset", 1) => of("less", first),
        ("set" | "multiset", 2) => of("allocator", first),
        ("map" | "multimap", 2) => of("less", first),
        ("map" | "multimap", 3) => of_pair(first, before[1]),
        ("unordered_set" | "unordered_multiset", 1) => of("hash", first),
        ("unordered_set" | "unordered_multiset", 2) => of("equal_to", first),
        ("unordered_set" | "unordered_multiset", 3) => of("allocator", first),
        ("unordered_map" | "unordered_multimap", 2) => of("hash", first),
        ("unordered_map" | "unordered_multimap", 3) => of("equal_to", first),
        ("unordered_map" | "unordered_multimap", 4) => of_pair(first, before[1]),
        ("unique_ptr", 1) => of("default_delete", first),
        ("queue" | "stack", 1) => of("deque", first),
        ("priority_queue", 1) => of("vector", first),
        ("priority_queue", 2) => before[1] == format!("std::vector<{first}>") && of("less", first),
        ("basic_regex", 1) => of("regex_traits", first),
        (
            "basic_string"
            | "basic_stringbuf"
            | "basic_stringstream"
            | "basic_ostringstream"
            | "basic_istringstream",
            2,
        ) => before[1] == format!("std::char_traits<{first}>") && of("allocator", first),
        (class, 1) if class.starts_with("basic_") => of("char_traits", first),
        ("istreambuf_iterator" | "ostreambuf_iterator", 1) => of("char_traits", first),
        _ => false,
    }
}

/// Returns the name of `std::CLASS<CHARACTER>` in the standard library, if it has one.
fn alias(class: &str, character: &str) -> Option<String> {
    let class = class.strip_prefix("basic_")?;
    let prefix = match character {
        "char" => "",
        "wchar_t" => "w",
        "char8_t" if class.starts_with("string") => "u8",
        "char16_t" if class.starts_with("string") => "u16",
        "char32_t" if class.starts_with("string") => "u32",
        _ => return None,
    };
    Some(format!("{prefix}{class}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_their_names() {
        for (long, expected) in [
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create(unsigned long&, unsigned long)",
                "std::string::_M_create(unsigned long&, unsigned long)",
            ),
            (
                "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char>>::basic_string(char const*)",
                "std::string::string(char const*)",
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string<std::allocator<char> >(char, std::allocator<char> const&)",
                "std::string::string<std::allocator<char>>(char, std::allocator<char> const&)",
            ),
            (
                "std::basic_string<wchar_t, std::char_traits<wchar_t>, std::allocator<wchar_t> >::~basic_string()",
                "std::wstring::~wstring()",
            ),
            (
                "f(std::basic_string_view<char16_t, std::char_traits<char16_t> >)",
                "f(std::u16string_view)",
            ),
            (
                "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <char, std::char_traits<char> >(std::basic_ostream<char, std::char_traits<char> >&, char)",
                "std::ostream& std::operator<< <char, std::char_traits<char>>(std::ostream&, char)",
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, Arena<char> >::size()",
                "std::basic_string<char, std::char_traits<char>, Arena<char>>::size()",
            ),
            ("name[abi:cxx11](int)", "name(int)"),
        ] {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn default_arguments_are_left_out() {
        for (long, expected) in [
            (
                "void std::vector<Widget, std::allocator<Widget> >::_M_realloc_insert<Widget>(Widget&&)",
                "void std::vector<Widget>::_M_realloc_insert<Widget>(Widget&&)",
            ),
            (
                "std::map<int, std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, std::less<int>, std::allocator<std::pair<int const, std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > > > >::operator[](int&&)",
                "std::map<int, std::string>::operator[](int&&)",
            ),
            (
                "std::map<int, long, std::greater<int>, std::allocator<std::pair<int const, long> > >::find(int const&)",
                "std::map<int, long, std::greater<int>>::find(int const&)",
            ),
            (
                "Cache<std::unordered_map<char const*, A, std::hash<char const*>, std::equal_to<char const*>, std::allocator<std::pair<char const* const, A> > >, 3>::get()",
                "Cache<std::unordered_map<char const*, A>, 3>::get()",
            ),
            (
                "std::unordered_set<A, AHash, std::equal_to<A>, std::allocator<A> >::insert(A const&)",
                "std::unordered_set<A, AHash>::insert(A const&)",
            ),
            (
                "std::unique_ptr<A, std::default_delete<A> >::reset(A*)",
                "std::unique_ptr<A>::reset(A*)",
            ),
            (
                "std::priority_queue<int, std::vector<int, std::allocator<int> >, std::less<int> >::push(int&&)",
                "std::priority_queue<int>::push(int&&)",
            ),
            // Another allocator, and templates that have no default there.
            (
                "std::vector<A, std::allocator<B> >::at()",
                "std::vector<A, std::allocator<B>>::at()",
            ),
            (
                "std::pair<int, std::less<int> >::pair()",
                "std::pair<int, std::less<int>>::pair()",
            ),
            (
                "mine::vector<A, std::allocator<A> >::at()",
                "mine::vector<A, std::allocator<A>>::at()",
            ),
        ] {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn what_only_looks_like_a_bracket_stays() {
        for name in [
            "operator<(A const&, A const&)",
            "bool operator<=(A<int> const&, A<int> const&)",
            "P::operator->() const",
            "A<int>::operator-><int>()",
            "A::operator<=>(A const&) const",
            "f<(3 > 2)>()",
            "decltype(a->b) f<int>(int)",
            "main::{lambda(std::vector<int>)#1}::operator()(std::vector<int>) const",
            "g<&A::operator> >()",
            "(anonymous namespace)::f<int>()",
            "cut<std::vector<int, std::allocator<int> >, std::ve…",
            "odd)>",
            "f<1 < 2>()",
            "malloc",
            "",
        ] {
            let name = name.replace("operator-><", "operator-> <");
            let once = short(&name);
            assert_eq!(
                once.replace("operator> >", "operator>>"),
                name.replace("operator> >", "operator>>")
            );
            assert_eq!(short(&once), once);
        }
    }
}
