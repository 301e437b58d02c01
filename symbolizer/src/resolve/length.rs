//! Length: how much of a name is kept, and how much is shown. Names come from files that nobody
//! vouches for.

use std::borrow::Cow;

/// The longest name that is shown, in bytes. Templates may have longer names, which nobody reads.
pub(super) const LONGEST_SHOWN: usize = 4 << 10;

/// The longest linkage name that is kept whole, in bytes: a longer one is not demangled.
pub(crate) const LONGEST_LINKAGE: usize = 16 << 10;

/// The sign that a part is left out: of a name, or of the inlined functions of an address.
pub(crate) const LEFT_OUT: &str = "…";

/// Returns a text as it is shown: a long one is cut, and ends in `…`.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_SHOWN {
        return Cow::Borrowed(text);
    }
    Cow::Owned(within(text, LONGEST_SHOWN).to_owned() + LEFT_OUT)
}

/// Returns the longest beginning of a text that has at most so many bytes.
pub(crate) fn within(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
