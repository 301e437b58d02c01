//! Filter options: filters on the command line, with pprof's names.

use std::collections::BTreeSet;

use heapprof_format::ANY_LABEL;
use heapprof_symbolizer::{
    CallStack, Differences, Filter, LogPart, NO_LABEL, Printable, Profile, Symbols,
};
use regex::Regex;

use crate::cli::options::suppressions::SuppressionArgs;
use crate::cli::output::failure::Failure;
use crate::cli::output::say;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// Keep only stacks with a frame whose function, file or module matches
    #[arg(long, value_name = "REGEX", value_parser = regex, help_heading = "Filters")]
    focus: Option<Regex>,

    /// Drop stacks with a frame that matches
    #[arg(long, value_name = "REGEX", value_parser = regex, help_heading = "Filters")]
    ignore: Option<Regex>,

    /// Remove matching frames from stacks
    #[arg(long, value_name = "REGEX", value_parser = regex, help_heading = "Filters")]
    hide: Option<Regex>,

    #[command(flatten)]
    suppressions: SuppressionArgs,

    #[command(flatten)]
    labels: LabelArgs,
}

/// The filter by labels, which needs no names.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LabelArgs {
    /// Keep only what was allocated under that label of the program: tenant=acme. Several must all
    /// hold; "(none)" is the value of what has no such label
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = label, help_heading = "Filters")]
    labels: Vec<(String, String)>,
}

impl LabelArgs {
    /// Leaves of the differences what is under the labels, and says so.
    pub(crate) fn apply(&self, differences: &mut Differences<'_>) {
        if self.labels.is_empty() {
            return;
        }
        let keys = label_keys(differences.profiles().iter().flat_map(|it| &it.stacks));
        differences.retain_labels(&self.labels);
        let filter = self.filter();
        match differences.is_empty() {
            true => say::note(&format_args!("note: {}", why_nothing(&filter, &keys))),
            false => say::note(&format_args!("note: filtered ({filter})")),
        }
    }

    /// The part of a log that is under the labels.
    pub(crate) fn part<'a>(&'a self, log: &'a [u8]) -> LogPart<'a> {
        LogPart::under(log, &self.labels)
    }

    /// States the labels in a profile of that part. `whole` is the profile of the log, which is
    /// asked for if the part has nothing.
    pub(crate) fn name(&self, profile: &mut Profile, whole: impl FnOnce() -> Option<Profile>) {
        if self.labels.is_empty() {
            return;
        }
        let filter = self.filter();
        profile.filtered = filter.to_string();
        if profile.rows.is_empty()
            && let Some(whole) = whole().filter(|whole| !whole.rows.is_empty())
        {
            let keys = label_keys(&whole.stacks);
            say::note(&format_args!("note: {}", why_nothing(&filter, &keys)));
        }
    }

    fn filter(&self) -> Filter {
        Filter {
            labels: self.labels.clone(),
            ..Filter::default()
        }
    }
}

/// The keys of all labels.
fn label_keys<'a>(stacks: impl IntoIterator<Item = &'a CallStack>) -> BTreeSet<&'a str> {
    let labels = stacks.into_iter().flat_map(|stack| stack.labels.iter());
    labels.map(|(key, _)| key).collect()
}

/// Why a filter leaves nothing of stacks that have labels of these keys.
fn why_nothing(filter: &Filter, keys: &BTreeSet<&str>) -> String {
    let is_missing = |(key, value): &&(String, String)| {
        value != NO_LABEL && !keys.contains(key.as_str()) && !keys.contains(ANY_LABEL)
    };
    match filter.labels.iter().find(is_missing) {
        Some(_) if keys.is_empty() => {
            format!("nothing has a label, so the filter ({filter}) leaves nothing")
        }
        Some((key, _)) => {
            let there: Vec<&str> = keys.iter().copied().collect();
            format!(
                "no label has the key {}; there are: {}",
                Printable(key),
                Printable(&there.join(", "))
            )
        }
        None => format!("the filter ({filter}) leaves nothing"),
    }
}

impl FilterArgs {
    /// Leaves in the profile what matches. That nothing does is said.
    pub(crate) fn apply(
        &self,
        profile: &mut Profile,
        symbols: &mut Symbols,
    ) -> Result<(), Failure> {
        self.suppressions.apply(profile, symbols)?;
        let filter = Filter {
            focus: self.focus.clone(),
            ignore: self.ignore.clone(),
            hide: self.hide.clone(),
            labels: self.labels.labels.clone(),
        };
        let had_rows = !profile.rows.is_empty();
        let keys = label_keys(&profile.stacks);
        let why = why_nothing(&filter, &keys);
        if !filter.is_empty() {
            filter.apply(profile, symbols);
        }
        if had_rows && profile.rows.is_empty() {
            say::note(&format_args!("note: {why}"));
        }
        Ok(())
    }
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "too large".into(),
        error => error
            .to_string()
            .lines()
            .last()
            .unwrap_or("not a regular expression")
            .into(),
    })
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("not of the form KEY=VALUE".into()),
    }
}
