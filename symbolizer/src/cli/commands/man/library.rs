//! Page of the library: libheapprof(7), its variables and files.

use clap::Command;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::{list_of_pages, text_of};
use crate::cli::options::variables;

/// The page.
pub(super) fn page(program: &Command) -> String {
    let version = program.get_version().unwrap_or_default();
    let mut page = Roff::new();
    page.control(
        "TH",
        ["libheapprof", "7", "", &format!("heapprof {version}")],
    );
    page.control("SH", ["NAME"]);
    page.text([roman(
        "libheapprof - library that records a program's heap, and its variables",
    )]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold("LD_PRELOAD=libheapprof.so"), roman(" [")]);
    page.text([
        italic("VARIABLE"),
        roman("="),
        italic("VALUE"),
        roman(" …] "),
    ]);
    page.text([
        italic("PROGRAM"),
        roman(" ["),
        italic("ARGUMENT"),
        roman(" …]"),
    ]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in DESCRIPTION {
        page.text([roman(*paragraph)]);
        page.control("PP", []);
    }
    page.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in variables::entries() {
        page.control("TP", []);
        page.text([bold(name)]);
        page.text([roman(meaning)]);
    }
    page.control("SH", ["FILES"]);
    for (name, meaning) in FILES {
        page.control("TP", []);
        page.text([italic(*name)]);
        page.text([roman(*meaning)]);
    }
    page.control("SH", ["EXAMPLES"]);
    for (line, meaning) in EXAMPLES {
        page.control("TP", []);
        page.text([bold(*line)]);
        page.text([roman(*meaning)]);
    }
    page.control("SH", ["VERSION"]);
    page.text([roman(version)]);
    let mut see_also = Roff::new();
    see_also.control("SH", ["SEE ALSO"]);
    see_also.text(list_of_pages(&["", "run", "ctl", "attach", "rss", "at"]));
    page.render() + &text_of(&see_also)
}

const DESCRIPTION: &[&str] = &[
    "The library is preloaded into a program, and becomes its allocator (jemalloc). It samples \
     allocations, and appends their sizes, times and stacks to a log, which the heapprof commands \
     read. \"heapprof run\" sets LD_PRELOAD; programs that the program starts are recorded as well.",
    "If the library lies where the loader looks, its name suffices. Otherwise, LD_PRELOAD needs its \
     path. A loader that does not find the library says so, and runs the program without it.",
    "A variable with a value that makes no sense, and a misspelt one, are told in a line on standard \
     error. They never stop the program.",
    "A program can control its recording by the functions of heapprof.h. They are weak symbols: \
     without the library they do nothing.",
];

const FILES: &[(&str, &str)] = &[
    (
        "heapprof.PROGRAM.PID.heaplog",
        "The log, in the folder where the program starts, if HEAPPROFILE is not set.",
    ),
    (
        "FOLDER/heapprof.PROGRAM.PID.heaplog",
        "The log, if HEAPPROFILE is a folder (/var/heap/, or .). Dumps are named like it.",
    ),
    (
        "PREFIX.heaplog",
        "The log, if HEAPPROFILE is PREFIX. Other programs and copies add their process id.",
    ),
    (
        "PREFIX.0001.heap",
        "A heap dump in the text form of gperftools. Dumps are written if HEAPPROFILE is set.",
    ),
    (
        "PREFIX.heaplog.names",
        "Names of functions and lines, which a heapprof command keeps beside the log.",
    ),
];

const EXAMPLES: &[(&str, &str)] = &[
    (
        "HEAPPROFILE=/var/heap/ HEAPPROF_MAX_LOG=200M LD_PRELOAD=libheapprof.so ./server",
        "Record a service for months, with a log of at most 200 MB for each process.",
    ),
    (
        "HEAPPROF_START=paused LD_PRELOAD=libheapprof.so ./server",
        "Record nothing until \"heapprof ctl PID start\".",
    ),
    (
        "HEAPPROF_SAMPLE_INTERVAL=1 LD_PRELOAD=libheapprof.so ./tests",
        "Record every allocation; all numbers are exact.",
    ),
];
