//! Label: the subject of a line in a table, a site or a group, in text and in JSON.

use heapprof_symbolizer::export::csv::cell;
use heapprof_symbolizer::{By, SiteKey};
use serde::Serialize;

use crate::cli::output::colour::TextStyle;
use crate::cli::output::table::Align;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Label {
    Site(SiteKey),
    Group(String),
}

impl Label {
    /// The columns that [`Label::cells`] fills.
    pub(crate) fn columns(by: Option<By>) -> Vec<(&'static str, Align)> {
        match by {
            None => vec![("function", Align::Function), ("where", Align::Path)],
            // The ends of paths differ.
            Some(by @ (By::File | By::Module)) => vec![(by.name(), Align::Path)],
            Some(By::Line) => vec![("line", Align::Both)],
            Some(By::Function) => vec![(By::Function.name(), Align::Function)],
            Some(by) => vec![(by.name(), Align::Left)],
        }
    }

    pub(crate) fn cells(&self) -> Vec<(String, TextStyle)> {
        match self {
            Label::Site(key) => vec![
                (key.function.clone(), TextStyle::Name),
                (key.place(), TextStyle::Aside),
            ],
            Label::Group(name) => vec![(name.clone(), TextStyle::Name)],
        }
    }

    /// The columns of CSV that [`Label::csv`] fills.
    pub(crate) fn csv_columns(by: Option<By>) -> &'static str {
        by.map_or("function,file,line,module", By::name)
    }

    pub(crate) fn csv(&self) -> String {
        match self {
            Label::Site(key) => format!(
                "{},{},{},{}",
                cell(&key.function),
                cell(key.file.as_deref().unwrap_or_default()),
                key.line.map(|line| line.to_string()).unwrap_or_default(),
                cell(&key.module)
            ),
            Label::Group(name) => cell(name),
        }
    }
}

/// The same in JSON, flattened into the line's object.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum JsonLabel<'a> {
    Site {
        function: &'a str,
        file: Option<&'a str>,
        line: Option<u32>,
        module: &'a str,
    },
    Group {
        name: &'a str,
    },
}

impl<'a> From<&'a Label> for JsonLabel<'a> {
    fn from(label: &'a Label) -> Self {
        match label {
            Label::Site(key) => JsonLabel::Site {
                function: &key.function,
                file: key.file.as_deref(),
                line: key.line,
                module: &key.module,
            },
            Label::Group(name) => JsonLabel::Group { name },
        }
    }
}

/// Lines by what they are about: `"sites": […]`, or `"by": "file", "groups": […]`.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum JsonLines<T> {
    Sites { sites: Vec<T> },
    Groups { by: &'static str, groups: Vec<T> },
}

impl<T> JsonLines<T> {
    pub(crate) fn of(by: Option<By>, lines: impl Iterator<Item = T>) -> Self {
        match by {
            None => JsonLines::Sites {
                sites: lines.collect(),
            },
            Some(by) => JsonLines::Groups {
                by: by.name(),
                groups: lines.collect(),
            },
        }
    }
}
