//! Folded stacks: `root;child;leaf 4096`, one line each, for flame graph tools of every kind.
//!
//! The form has no escapes: `;` in a name becomes `:`, what is not printable is escaped, and equal
//! stacks are one line. Lines of zero are left out. Nor has it comments; but every reader that was tried
//! passes over a line that does not end in a number, and so ours say in such lines how exact the numbers are.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use crate::export::Options;
use crate::export::facts::{estimator, intervals};
use crate::printable::Printable;
use crate::profile::{CallStack, Place, Precision, Profile};
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
    let mut names = Names::default();
    for (stack, number) in profile.stacks.iter().zip(by_stack) {
        if number != 0 {
            let sum = folded
                .entry(names.fold(profile, symbols, stack))
                .or_default();
            *sum = sum.saturating_add(number);
        }
    }
    let above = folded.into_iter().filter(|(_, number)| *number > 0);
    above
        .map(|(stack, number)| (stack, number as u64))
        .collect()
}

/// What places are in a line: looked at once, for thousands of stacks pass each.
#[derive(Default)]
pub(crate) struct Names(HashMap<Place, String>);

impl Names {
    /// A stack as a line, without its number.
    pub(crate) fn fold(
        &mut self,
        profile: &Profile,
        symbols: &Symbols,
        stack: &CallStack,
    ) -> String {
        let places: Vec<Place> = profile.places(stack).collect();
        let mut line = String::new();
        for &place in places.iter().rev() {
            let text = self.0.entry(place).or_insert_with(|| {
                let frames = symbols.frames(place).iter().rev();
                let names = frames.map(|frame| name(&symbols.function(profile, place, frame)));
                names.collect::<Vec<_>>().join(";")
            });
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(text);
        }
        if line.is_empty() {
            line.push_str("(no stack)");
        }
        line
    }
}

fn name(function: &str) -> String {
    let name = Printable(function).to_string().replace(';', ":");
    // An empty frame, or one at whose end a reader would look for the number, would be misread.
    match name.trim() {
        "" => "??".into(),
        name => name.into(),
    }
}
