//! Choice: a value parser for clap that takes one of the library's values by its name.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use heapprof_symbolizer::export::Format;
use heapprof_symbolizer::push::Protocol;
use heapprof_symbolizer::{By, Metric};

/// A value with a name that can be asked for.
pub(crate) trait Choice: Copy + Send + Sync + 'static {
    /// All there are, in the order in which help lists them.
    const ALL: &'static [Self];

    fn name(self) -> &'static str;

    /// Returns its text in the help.
    fn help(self) -> &'static str;
}

/// The parser of such an argument: `#[arg(value_parser = choice::<By>())]`.
pub(crate) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let possible = T::ALL
        .iter()
        .map(|value| PossibleValue::new(value.name()).help(value.help()));
    PossibleValuesParser::new(possible).try_map(|name| {
        let found = T::ALL.iter().find(|value| value.name() == name);
        found.copied().ok_or("none of the possible values")
    })
}

/// The parser of a grouping: one of the possible ones, or that by a label.
pub(crate) fn by() -> impl TypedValueParser<Value = By> {
    let possible = By::ALL
        .iter()
        .map(|by| PossibleValue::new(by.name()).help(by.help()));
    let label = PossibleValue::new(BY_LABEL).help("value of the label KEY of the program");
    ByParser(PossibleValuesParser::new(possible.chain([label])))
}

/// Stands for all groupings by label in the help.
const BY_LABEL: &str = "label:KEY";

#[derive(Clone)]
struct ByParser(PossibleValuesParser);

impl TypedValueParser for ByParser {
    type Value = By;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<By, clap::Error> {
        if let Some(by) = value.to_str().and_then(By::label) {
            return Ok(by);
        }
        let name = self.0.parse_ref(command, argument, value)?;
        let found = By::ALL.iter().find(|by| by.name() == name);
        Ok(found.copied().unwrap_or_default())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

impl Choice for By {
    const ALL: &'static [By] = &By::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        match self {
            By::Function => "function",
            By::Line => "function and line",
            By::File => "source file",
            By::Module => "program or library",
            By::Crate => "Rust crate, or outermost namespace of C++; else the module",
            By::Thread => "the thread that allocated (needs a .heaplog)",
            By::Process => "of several processes, the one that allocated (needs a .heaplog)",
            By::Size => "size class of the request",
            By::Type => "type, where functions of C++ or Rust tell it",
            By::Allocator => "the allocator that gave out the block",
            By::Mapping => "name of a mapping, with -m mapped or mapped-resident",
            By::Label(_) => "value of a label of the program",
        }
    }
}

impl Choice for Format {
    const ALL: &'static [Format] = &Format::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        match self {
            Format::Gperftools => {
                "gperftools text with addresses, for google-pprof, jeprof, go tool pprof"
            }
            Format::Symbolized => {
                "the same with names in it, for google-pprof and jeprof; see also symbolize"
            }
            Format::Pprof => {
                "gzipped profile.proto, for go tool pprof, Parca, Pyroscope, speedscope"
            }
            Format::Folded => "one line a stack, for flame graph tools",
            Format::Flamegraph => "a flame graph (SVG), for a browser",
            Format::Json => "everything, for programs",
            Format::Csv => "allocation sites, for spreadsheets",
            Format::Speedscope => "for https://www.speedscope.app",
            Format::Jemalloc => "jemalloc's text with numbers by thread, for jeprof --thread=N",
            Format::Dhat => "DHAT's JSON, for valgrind's dh_view.html",
            Format::Callgrind => "for KCachegrind and callgrind_annotate",
            Format::Firefox => {
                "for https://profiler.firefox.com, with allocations and frees in time"
            }
            Format::Otlp => "OpenTelemetry's ProfilesData (protobuf), for a collector",
        }
    }
}

impl Choice for Protocol {
    const ALL: &'static [Protocol] = &Protocol::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        match self {
            Protocol::Ingest => "Pyroscope's /ingest, which Grafana Alloy has, too",
            Protocol::Push => "Pyroscope's push.v1.PusherService/Push",
            Protocol::Otlp => "OpenTelemetry's /v1development/profiles, as of a collector",
        }
    }
}

impl Choice for Metric {
    const ALL: &'static [Metric] = &[
        Metric::InUseBytes,
        Metric::InUseObjects,
        Metric::AllocatedBytes,
        Metric::AllocatedObjects,
    ];

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        match self {
            Metric::InUseBytes => "bytes allocated and not freed",
            Metric::InUseObjects => "blocks allocated and not freed",
            Metric::AllocatedBytes => "bytes ever allocated",
            Metric::AllocatedObjects => "blocks ever allocated",
        }
    }
}
