//! Folded stacks: `root;child;leaf 4096`, one line each, for flame graph tools of every kind.
//!
//! The form has no escapes: `;` in a name becomes `:`, what is not printable is escaped, and equal
//! stacks are one line. Lines of zero are left out. Nor has it comments; but every reader that was tried
//! passes over a line that does not end in a number, and so ours say in such lines how exact the numbers are.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::export::Options;
use crate::export::facts::{estimator, intervals};
use crate::printable::Printable;
use crate::profile::{CallStack, Precision, Profile};
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
    for remark in remarks(profile, options) {
        writeln!(out, "# {}", Printable(&remark))?;
    }
    for (stack, number) in stacks(profile, symbols, options) {
        writeln!(out, "{stack} {number}")?;
    }
    Ok(())
}

/// What the numbers are and how exact, if that is not plain. None of it ends in a number, which readers would take for a stack's.
fn remarks(profile: &Profile, options: &Options) -> Vec<String> {
    let circumstances = profile.circumstances();
    let is_plain = profile.precision() == Precision::Exact && !options.metric.needs_pasts();
    if is_plain && circumstances.is_empty() {
        return Vec::new();
    }
    let mut remarks = vec![format!(
        "heapprof: {} in {}, {}",
        options.metric,
        options.metric.sample_type().1,
        estimator(profile)
    )];
    remarks.extend(circumstances);
    remarks.extend(intervals(profile, options));
    if options.metric.is_growth() {
        remarks.push("stacks that shrank are left out: this form has no place below zero".into());
    }
    remarks
}

/// The folded stacks and their numbers, those above zero.
pub(super) fn stacks(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
) -> BTreeMap<String, u64> {
    let mut by_stack = vec![0i64; profile.stacks.len()];
    let numbers = options.metric.whole_numbers(profile);
    for (row, number) in profile.rows.iter().zip(numbers) {
        if let Some(sum) = by_stack.get_mut(row.stack as usize) {
            *sum = sum.saturating_add(number);
        }
    }
    let mut folded: BTreeMap<String, i64> = BTreeMap::new();
    for (stack, number) in profile.stacks.iter().zip(by_stack) {
        if number != 0 {
            let sum = folded.entry(fold(profile, symbols, stack)).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    let above = folded.into_iter().filter(|(_, number)| *number > 0);
    above
        .map(|(stack, number)| (stack, number as u64))
        .collect()
}

/// A stack as a line, without its number.
pub(crate) fn fold(profile: &Profile, symbols: &Symbols, stack: &CallStack) -> String {
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
