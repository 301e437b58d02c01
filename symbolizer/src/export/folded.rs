//! Folded stacks: `root;child;leaf 4096`, one line each, for flame graph tools of every kind.
//!
//! The form has no escapes: `;` in a name becomes `:`, what is not printable is escaped, and equal
//! stacks are one line. Lines of zero are left out.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::export::Options;
use crate::metric::Numbers;
use crate::printable::Printable;
use crate::profile::{CallStack, Profile};
use crate::symbols::Symbols;

/// Writes the stacks with the number of the metric that was chosen.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    for (stack, number) in stacks(profile, symbols, options) {
        writeln!(out, "{stack} {number}")?;
    }
    Ok(())
}

/// The folded stacks and their numbers.
pub(super) fn stacks(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
) -> BTreeMap<String, u64> {
    let mut by_stack = vec![0u64; profile.stacks.len()];
    for row in &profile.rows {
        if let Some(sum) = by_stack.get_mut(row.stack as usize) {
            *sum = sum.saturating_add(Numbers::of(&row.totals).get(options.metric));
        }
    }
    let mut folded = BTreeMap::new();
    for (stack, number) in profile.stacks.iter().zip(by_stack) {
        if number > 0 {
            let sum = folded.entry(fold(profile, symbols, stack)).or_insert(0u64);
            *sum = sum.saturating_add(number);
        }
    }
    folded
}

fn fold(profile: &Profile, symbols: &Symbols, stack: &CallStack) -> String {
    let mut names: Vec<String> = Vec::new();
    for place in profile.places(stack) {
        for frame in symbols.frames(place) {
            names.push(name(&symbols.function(profile, place, frame)));
        }
    }
    if names.is_empty() {
        return "(no stack)".into();
    }
    names.reverse();
    names.join(";")
}

fn name(function: &str) -> String {
    let name = Printable(function).to_string().replace(';', ":");
    // An empty frame, or one at whose end a reader would look for the number, would be misread.
    match name.trim() {
        "" => "??".into(),
        name => name.into(),
    }
}
