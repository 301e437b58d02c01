//! Exporters: a profile and its names in the formats of other programs. One file for each format.
//!
//! All have the same shape, `write(profile, symbols, options, out)`. None opens a file or speaks to
//! the user. The totals of each format are [`Profile::numbers`].
//!
//! A new format needs these parts:
//!
//! | part | place |
//! | --- | --- |
//! | the exporter | a file in this folder |
//! | its name, and what it can show | [`Format`]: a variant, `ALL`, and each function |
//! | refusals and messages | `cli/commands/export.rs`, where formats are named |
//! | a row for users | `docs/formats.md` |
//! | tests | `symbolizer/tests/exporters.rs`: a golden file and the totals, read back |
//!
//! Tests that go over `Format::ALL` then cover it, too. Bundles and graphs of differences have
//! commands of their own, and are no [`Format`].
//!
//! Imports: `resolve`, `model`, `read`, `naming`, `analysis`.
//!
//! Not here: choosing a format and a file (`cli`).

use std::io::{self, Write};

use crate::model::confidence::Confidence;
use crate::model::extras::WantedExtras;
use crate::model::measure::Measure;
use crate::model::profile::Profile;
use crate::naming::symbols::Symbols;

pub mod callgrind;
pub mod csv;
pub mod dhat;
pub mod firefox;
pub mod flamegraph;
pub mod folded;
pub mod gperftools;
pub mod jemalloc;
pub mod json;
pub mod otlp;
pub mod pprof;
pub mod speedscope;

mod facts;
pub(crate) mod samples;

pub(crate) mod bundle;
pub(crate) mod diff_graph;

pub use samples::Increment;

/// The choices of a caller.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// For formats that hold one number a stack. One of the past needs a profile read with pasts.
    pub metric: Measure,
    /// The confidence of the intervals, where they are stated.
    pub confidence: Confidence,
    /// For formats with a title; empty for one made from the profile.
    pub title: String,
}

/// A format that profiles are exported to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// gperftools' text, with addresses.
    Gperftools,
    /// gperftools' text, with names in front.
    Symbolized,
    /// pprof's protobuf, gzipped.
    Pprof,
    /// One line a stack, for flame graph tools.
    Folded,
    /// A flame graph as an SVG picture.
    Flamegraph,
    /// Everything, as JSON.
    Json,
    /// Allocation sites, as CSV.
    Csv,
    /// For <https://www.speedscope.app>.
    Speedscope,
    /// jemalloc's own text, with numbers by thread.
    Jemalloc,
    /// DHAT's JSON.
    Dhat,
    /// callgrind's text.
    Callgrind,
    /// The Firefox profiler's JSON.
    Firefox,
    /// OpenTelemetry's protobuf.
    Otlp,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 13] = [
        Format::Gperftools,
        Format::Symbolized,
        Format::Pprof,
        Format::Folded,
        Format::Flamegraph,
        Format::Json,
        Format::Csv,
        Format::Speedscope,
        Format::Jemalloc,
        Format::Dhat,
        Format::Callgrind,
        Format::Firefox,
        Format::Otlp,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Gperftools => "gperftools",
            Format::Symbolized => "symbolized",
            Format::Pprof => "pprof",
            Format::Folded => "folded",
            Format::Flamegraph => "flamegraph",
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Speedscope => "speedscope",
            Format::Jemalloc => "jemalloc",
            Format::Dhat => "dhat",
            Format::Callgrind => "callgrind",
            Format::Firefox => "firefox",
            Format::Otlp => "otlp",
        }
    }

    /// Returns true if a terminal would choke on it.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Pprof | Format::Otlp)
    }

    /// Returns true if it has names beside the addresses.
    pub fn has_names(self) -> bool {
        !matches!(self, Format::Gperftools | Format::Jemalloc)
    }

    /// Returns true if it has a place for numbers other than the four.
    pub fn shows_pasts(self) -> bool {
        matches!(
            self,
            Format::Pprof
                | Format::Folded
                | Format::Flamegraph
                | Format::Json
                | Format::Csv
                | Format::Speedscope
                | Format::Callgrind
                | Format::Otlp
        )
    }

    /// Returns what it can show beyond the rows, if the profile was read with it.
    pub fn wants(self) -> WantedExtras {
        WantedExtras {
            threads: self == Format::Jemalloc,
            events: matches!(self, Format::Dhat | Format::Firefox),
            ..WantedExtras::default()
        }
    }

    /// Writes the profile in this format.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(
        self,
        profile: &Profile,
        symbols: &Symbols,
        options: &Options,
        out: &mut impl Write,
    ) -> io::Result<()> {
        match self {
            Format::Gperftools => gperftools::write(profile, symbols, options, out),
            Format::Symbolized => gperftools::write_symbolized(profile, symbols, options, out),
            Format::Pprof => pprof::write(profile, symbols, options, out),
            Format::Folded => folded::write(profile, symbols, options, out),
            Format::Flamegraph => flamegraph::write(profile, symbols, options, out),
            Format::Json => json::write(profile, symbols, options, out),
            Format::Csv => csv::write(profile, symbols, options, out),
            Format::Speedscope => speedscope::write(profile, symbols, options, out),
            Format::Jemalloc => jemalloc::write(profile, symbols, options, out),
            Format::Dhat => dhat::write(profile, symbols, options, out),
            Format::Callgrind => callgrind::write(profile, symbols, options, out),
            Format::Firefox => firefox::write(profile, symbols, options, out),
            Format::Otlp => otlp::write(profile, symbols, options, out),
        }
    }
}
