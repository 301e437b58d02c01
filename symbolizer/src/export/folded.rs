//! Folded stacks: `root;child;leaf 4096`, one line for each stack, for flame graph tools.
//!
//! The format has no escapes: `;` in a name becomes `:`, unprintable characters are escaped, and
//! equal stacks are one line. Lines of zero are left out. The format has no comments, but its
//! readers skip a line that does not end in a number: such lines say how exact the numbers are.

use std::io::{self, Write};

use crate::export::Options;
use crate::export::facts::{estimator, intervals};
use crate::model::precision::Precision;
use crate::model::printable::Printable;
use crate::model::profile::Profile;
use crate::naming::paths::{Namer, Paths};
use crate::naming::symbols::Symbols;

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
    for (stack, number) in paths(profile, symbols, options).lines() {
        writeln!(out, "{stack} {number}")?;
    }
    Ok(())
}

/// Says what the numbers are and how exact, if that is not obvious. No remark ends in a number,
/// because readers would take it for a stack's.
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

/// The stacks by name and their numbers, those above zero.
pub(super) fn paths(profile: &Profile, symbols: &Symbols, options: &Options) -> Paths<u64> {
    let mut by_stack = vec![0i64; profile.stacks.len()];
    let numbers = options.metric.whole_numbers(profile);
    for (row, number) in profile.rows.iter().zip(numbers) {
        if let Some(sum) = by_stack.get_mut(row.stack as usize) {
            *sum = sum.saturating_add(number);
        }
    }
    let mut namer = Namer::default();
    let all = profile.stacks.iter().zip(by_stack);
    let all: Vec<(Box<[u32]>, i64)> = all
        .filter(|(_, number)| *number != 0)
        .map(|(stack, number)| (namer.path(0, profile, symbols, stack), number))
        .collect();
    let paths = Paths::of(namer, all, |sum, number| *sum = sum.saturating_add(number));
    paths.above_zero()
}
