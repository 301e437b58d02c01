//! Suppression option: known stacks that are left out, by a file in LeakSanitizer's syntax.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    Bytes, Count, Differences, Numbers, Printable, Profile, RegularFile, Suppressions, Symbols,
    retain_stacks,
};

use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// The longest file that is read, in bytes.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct SuppressionArgs {
    /// Leave out known stacks: those with a frame that a line leak:PATTERN of FILE matches, as in
    /// LeakSanitizer's suppression files
    #[arg(long, value_name = "FILE", help_heading = "Filters")]
    suppressions: Option<PathBuf>,
}

impl SuppressionArgs {
    /// Returns these, or those of another file if none is named.
    pub(crate) fn or(&self, file: Option<PathBuf>) -> SuppressionArgs {
        SuppressionArgs {
            suppressions: self.suppressions.clone().or(file),
        }
    }

    /// Leaves out of the profile what is suppressed, and says what was.
    pub(crate) fn apply(&self, profile: &mut Profile, symbols: &Symbols) -> Result<(), Failure> {
        let Some((path, suppressions)) = self.read()? else {
            return Ok(());
        };
        let of_stacks = suppressions.of_stacks(profile, symbols);
        let mut sums = vec![Numbers::default(); suppressions.all().len()];
        let mut is_used = vec![false; suppressions.all().len()];
        for row in &profile.rows {
            if let Some(&Some(index)) = of_stacks.get(row.stack as usize) {
                sums[index] += Numbers::of(&row.totals);
                is_used[index] = true;
            }
        }
        for (it, (numbers, is_used)) in suppressions.all().iter().zip(sums.iter().zip(is_used)) {
            let pattern = Printable(it.pattern.text());
            match is_used {
                true => say::note(&format_args!(
                    "suppressed: leak:{pattern}: {} in use in {} blocks, {} allocated",
                    Bytes(numbers.in_use_bytes as f64),
                    Count(numbers.in_use_objects),
                    Bytes(numbers.allocated_bytes as f64),
                )),
                false => say_unused(path, it.line, &format!("leak:{}", it.pattern.text())),
            }
        }
        let kept: Vec<bool> = of_stacks.iter().map(Option::is_none).collect();
        if kept.contains(&false) {
            retain_stacks(
                profile,
                &kept,
                &format!("suppressions of {}", path.display()),
            );
        }
        Ok(())
    }

    /// Leaves out of the differences what is suppressed, and says how many stacks were. Returns why
    /// that may be too few.
    pub(crate) fn apply_to_differences(
        &self,
        differences: &mut Differences<'_>,
    ) -> Result<Vec<String>, Failure> {
        let Some((path, suppressions)) = self.read()? else {
            return Ok(Vec::new());
        };
        let stacks = differences.retain_unsuppressed(&suppressions);
        for (it, of_sides) in suppressions.all().iter().zip(&stacks) {
            let pattern = it.pattern.text();
            match of_sides.iter().sum() {
                0 => say_unused(path, it.line, &format!("leak:{pattern}")),
                n => say::note(&format_args!(
                    "suppressed: leak:{}: {} stacks",
                    Printable(pattern),
                    Count(n as u64)
                )),
            }
        }
        match stacks.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(differences.doubts_of_suppressions(&stacks)),
        }
    }

    /// Returns the frames of the stacks that are suppressed.
    pub(crate) fn frames(
        &self,
        profile: &Profile,
        symbols: &Symbols,
    ) -> Result<HashSet<Vec<u64>>, Failure> {
        let Some((_, suppressions)) = self.read()? else {
            return Ok(HashSet::new());
        };
        let of_stacks = suppressions.of_stacks(profile, symbols);
        let stacks = profile.stacks.iter().zip(of_stacks);
        let suppressed = stacks.filter(|(_, of)| of.is_some());
        Ok(suppressed.map(|(stack, _)| stack.frames.clone()).collect())
    }

    fn read(&self) -> Result<Option<(&Path, Suppressions)>, Failure> {
        let Some(path) = &self.suppressions else {
            return Ok(None);
        };
        let text = text_of(path)?;
        let parsed = Suppressions::parse(&text);
        let suppressions = parsed.map_err(|(line, why)| {
            Failure::Unfulfilled(format!("{}, line {line}: {why}", path.display()))
        })?;
        Ok(Some((path, suppressions)))
    }
}

/// Returns the text of a file that a person wrote.
pub(crate) fn text_of(path: &Path) -> Result<String, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::Unfulfilled(format!("cannot read {}: {why}", path.display()))
    };
    let file = RegularFile::open(path).map_err(|error| failed(&error))?;
    let map = file.map().map_err(|error| failed(&error))?;
    if map.len() > LONGEST {
        return Err(failed(&"it is longer than 1 MiB"));
    }
    let text = std::str::from_utf8(&map).map_err(|_| failed(&"it is no text in UTF-8"))?;
    Ok(text.to_owned())
}

pub(crate) fn say_unused(path: &Path, line: usize, pattern: &str) {
    say::note(&format_args!(
        "note: {} ({}, line {line}) matches nothing",
        Printable(pattern),
        path.display()
    ));
}
