//! Budget: limits of a program's memory, in a TOML file that is kept with the code.
//!
//! ```toml
//! suppressions = "known.supp"     # beside this file; left out of what is judged
//!
//! [[limit]]
//! metric = "peak"                 # in-use-bytes if there is none
//! at-most = "200MiB"
//!
//! [[limit]]
//! name = "the parser's cache"
//! site = "parse_*"                # or function = …, or module = …
//! at-most = "10MiB"
//! must-match = true               # else the limit passes if nothing matches
//! ```

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use heapprof_symbolizer::{Limit, Measure, Pattern, Subject};
use serde::Deserialize;
use toml::Spanned;

use crate::cli::options::limit::amount;
use crate::cli::options::measure::SumArg;
use crate::cli::options::suppressions::text_of;
use crate::cli::output::failure::Failure;

/// A budget file.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) limits: Vec<BudgetLimit>,
    /// The file of suppressions.
    pub(super) suppressions: Option<PathBuf>,
}

/// One of its limits.
#[derive(Debug)]
pub(super) struct BudgetLimit {
    pub(super) name: Option<String>,
    pub(super) measure: Measure,
    pub(super) limit: Limit,
    /// The stacks that are limited; `None`: all.
    pub(super) of: Option<Part>,
}

/// The stacks that a limit is about.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) subject: Subject,
    pub(super) pattern: Pattern,
    /// The line of the file that has the pattern, from 1.
    pub(super) line: usize,
    /// True if the limit cannot be judged where nothing matches.
    pub(super) must_match: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    suppressions: Option<PathBuf>,
    #[serde(default)]
    limit: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: Option<String>,
    metric: Option<String>,
    at_most: Amount,
    site: Option<Spanned<String>>,
    function: Option<Spanned<String>>,
    module: Option<Spanned<String>>,
    must_match: Option<bool>,
}

/// `"200MiB"`, or a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Whole(u64),
    Other(f64),
    Text(String),
}

impl Budget {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Budget, Failure> {
        let text = text_of(path)?;
        let failed = |why: String| Failure::Unfulfilled(format!("{}: {why}", path.display()));
        let mut budget = Budget::parse(&text).map_err(failed)?;
        if let (Some(file), Some(folder)) = (&mut budget.suppressions, path.parent()) {
            *file = folder.join(&file);
        }
        Ok(budget)
    }

    fn parse(text: &str) -> Result<Budget, String> {
        let file: File = toml::from_str(text).map_err(|error| in_one_line(&error, text))?;
        if file.limit.is_empty() {
            return Err("it has no [[limit]]".into());
        }
        let limits = file.limit.into_iter().enumerate();
        let limits = limits.map(|(index, entry)| {
            BudgetLimit::of(entry, text).map_err(|why| format!("limit {}: {why}", index + 1))
        });
        Ok(Budget {
            limits: limits.collect::<Result<_, _>>()?,
            suppressions: file.suppressions,
        })
    }
}

impl BudgetLimit {
    /// Returns the limit of an entry of a file with that text.
    fn of(entry: Entry, file: &str) -> Result<BudgetLimit, String> {
        let metric = entry.metric.as_deref().unwrap_or("in-use-bytes");
        let measure = SumArg::from_str(metric, false).map_err(|_| {
            format!("no limit can be set on the metric {metric:?}: it is no sum, or no metric at all; `heapprof top --help` lists them")
        })?;
        let subjects = [
            (Subject::Site, entry.site),
            (Subject::Function, entry.function),
            (Subject::Module, entry.module),
        ];
        let mut given = subjects
            .into_iter()
            .filter_map(|(subject, pattern)| Some((subject, pattern?)));
        let of = match (given.next(), given.next()) {
            (_, Some(_)) => {
                return Err("wanted is one of site, function and module".into());
            }
            (Some((subject, text)), None) => Some(Part {
                subject,
                pattern: Pattern::new(text.get_ref()).ok_or("the pattern is empty or too long")?,
                line: line_of(text.span().start, file),
                must_match: entry.must_match.unwrap_or(false),
            }),
            (None, None) if entry.must_match.is_some() => {
                return Err("must-match is about a pattern: site, function or module".into());
            }
            (None, None) => None,
        };
        if of.is_some() && measure.0.is_mapped() {
            return Err(format!("{metric} has no sites here; leave the pattern out"));
        }
        let limit = match entry.at_most {
            Amount::Whole(number) => Limit::Amount(number as f64),
            Amount::Other(number) => {
                return Err(format!(
                    "at-most: {number} is no whole number, 0 or more; with a unit it is in quotes, \
                     such as \"5.5MiB\""
                ));
            }
            Amount::Text(text) => amount(&text).map_err(|why| format!("at-most: {why}"))?,
        };
        Ok(BudgetLimit {
            name: entry.name,
            measure: measure.0,
            limit,
            of,
        })
    }
}

/// Returns the line of the file and what is wrong there.
fn in_one_line(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map(|span| line_of(span.start, text));
    let what = error
        .message()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    match line {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    }
}

/// Returns the number of the line that has this byte of a text.
fn line_of(offset: usize, text: &str) -> usize {
    let before = text.get(..offset).unwrap_or_default();
    before.matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_of_all_or_of_what_a_pattern_matches() {
        let text = "suppressions = \"a.supp\"\n[[limit]]\nmetric = \"peak\"\nat-most = \"2.5KiB\"\n\
                    [[limit]]\nname = \"x\"\nfunction = \"^parse*\"\nat-most = 0\n";
        let budget = Budget::parse(text).unwrap();
        assert_eq!(budget.suppressions, Some("a.supp".into()));
        let [all, part] = &budget.limits[..] else {
            panic!("{budget:?}");
        };
        assert_eq!(
            (all.measure, all.limit),
            (Measure::PeakBytes, Limit::Amount(2560.0))
        );
        assert!(all.of.is_none() && all.name.is_none());
        assert_eq!(
            (part.measure, part.limit),
            (Measure::default(), Limit::Amount(0.0))
        );
        let of = part.of.as_ref().unwrap();
        assert_eq!(
            (of.subject, of.pattern.text(), of.line),
            (Subject::Function, "^parse*", 7)
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, words) in [
            ("", "no [[limit]]"),
            ("[[limit]]\n", "at-most"),
            ("[[limit]]\nat-most = \"much\"\n", "limit 1: at-most"),
            ("[[limit]]\nat-most = 5.5\n", "at-most: 5.5 is no whole"),
            ("[[limit]]\nat-most = -1\n", "at-most: -1 is no whole"),
            ("[[limit]]\nat-most = nan\n", "at-most: NaN is no whole"),
            ("[[limit]]\nat-most = \"-1MiB\"\n", "at-most: negative"),
            ("[[limit]]\nat-most = 1\nmetrik = \"peak\"\n", "line 3"),
            (
                "[[limit]]\nat-most = 1\nmetric = \"pique\"\n",
                "the metric \"pique\": it is no sum",
            ),
            (
                "[[limit]]\nat-most = 1\nmetric = \"lifetime\"\n",
                "the metric \"lifetime\": it is no sum",
            ),
            (
                "[[limit]]\nat-most = 1\nsite = \"a\"\nmodule = \"b\"\n",
                "one of",
            ),
            ("[[limit]]\nat-most = 1\nsite = \"\"\n", "empty"),
            ("[[limit]\nat-most = 1\n", "line 1"),
            ("at-most = 1\n", "line 1"),
        ] {
            let error = Budget::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
