//! Constructor template: a constructor with template arguments of its own, in a linkage name.
//!
//! A function template's linkage name has the type that is returned before the parameters. That of
//! a constructor template has none, and cpp_demangle 0.5 skips the first type of both:
//!
//! ```text
//!   _ZN3BoxC2IfEEmT_      Box::Box<float>(float)
//!   _ZN3BoxC2IfEEgmT_     Box::Box<float>(unsigned long, float)
//!                ^ a type to skip: no substitution counts it
//! ```
//!
//! At any other place of a name the type is shown, or the name cannot be read.

use std::borrow::Cow;

/// A type that hardly any name has, in a linkage name and in a readable one.
const SKIPPED: (&str, &str) = ("g", "__float128");

/// So many ends of templates are tried.
const MOST_TRIES: usize = 64;

/// Returns a linkage name of which cpp_demangle shows the first parameters of constructor
/// templates, too. `cpp` is cpp_demangle.
pub(super) fn with_first_parameters(raw: &str, cpp: fn(&str) -> Option<String>) -> Cow<'_, str> {
    let mut name = Cow::Borrowed(raw);
    let shown = |name: &str| Some(cpp(name)?.matches(SKIPPED.1).count());
    if begins(raw).next().is_none() {
        return name;
    }
    let Some(expected) = shown(raw) else {
        return name;
    };
    let mut tries = 0..MOST_TRIES;
    let begins: Vec<usize> = begins(raw).collect();
    for begin in begins.into_iter().rev() {
        // The arguments of the template end, and the name with its scopes.
        let ends = name[begin..].match_indices('E').map(|(at, _)| begin + at);
        let ends: Vec<usize> = ends.filter(|&at| name[..at].ends_with('E')).collect();
        let with_skipped = ends.into_iter().zip(tries.by_ref()).find_map(|(end, _)| {
            let (before, after) = name.split_at(end + 1);
            let longer = format!("{before}{}{after}", SKIPPED.0);
            (shown(&longer) == Some(expected)).then_some(longer)
        });
        if let Some(longer) = with_skipped {
            name = Cow::Owned(longer);
        }
    }
    name
}

/// Returns where letters are that may be a constructor with template arguments, maybe with a tag
/// between.
fn begins(name: &str) -> impl Iterator<Item = usize> + '_ {
    let letters = name.as_bytes().windows(3).enumerate();
    letters.filter_map(|(at, letters)| {
        matches!(letters, [b'C', b'1'..=b'5', b'I' | b'B']).then_some(at)
    })
}
