//! Filter options: filters on the command line, with pprof's names.

use heapprof_symbolizer::{Differences, Filter, Profile, Symbols};
use regex::Regex;

use crate::cli::output::say;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// Only stacks with a frame whose function, file or module matches
    #[arg(long, value_name = "REGEX", value_parser = regex, help_heading = "Filters")]
    focus: Option<Regex>,

    /// Drop stacks with a frame that matches
    #[arg(long, value_name = "REGEX", value_parser = regex, help_heading = "Filters")]
    ignore: Option<Regex>,

    /// Remove matching frames from stacks
    #[arg(long, value_name = "REGEX", value_parser = regex, help_heading = "Filters")]
    hide: Option<Regex>,

    #[command(flatten)]
    labels: LabelArgs,
}

/// The filter by labels, which needs no names.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LabelArgs {
    /// Only what was allocated under that label of the program: tenant=acme. Several must all hold;
    /// "(none)" is the value of what has no such label
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = label, help_heading = "Filters")]
    labels: Vec<(String, String)>,
}

impl LabelArgs {
    /// Leaves of the differences what is under the labels, and says so.
    pub(crate) fn apply(&self, differences: &mut Differences<'_>) {
        let filter = Filter {
            labels: self.labels.clone(),
            ..Filter::default()
        };
        if !filter.is_empty() {
            differences.retain_labels(&filter.labels);
            say::note(&format_args!("note: filtered ({filter})"));
        }
    }
}

impl FilterArgs {
    /// Leaves in the profile what matches. That nothing does is said.
    pub(crate) fn apply(&self, profile: &mut Profile, symbols: &mut Symbols) {
        let filter = Filter {
            focus: self.focus.clone(),
            ignore: self.ignore.clone(),
            hide: self.hide.clone(),
            labels: self.labels.labels.clone(),
        };
        let had_rows = !profile.rows.is_empty();
        filter.apply(profile, symbols);
        if had_rows && profile.rows.is_empty() {
            say::note(&format_args!("note: the filter ({filter}) leaves nothing"));
        }
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
