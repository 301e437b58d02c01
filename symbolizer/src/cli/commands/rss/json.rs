//! `heapprof rss --json`: the waterfall in JSON, described in `docs/json.md`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heapprof_symbolizer::{Json, Profile, ResidentMemory};
use serde::Serialize;

use crate::cli::commands::rss::pinning::Pinning;
use crate::cli::output::document::Head;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    time_ns: u64,
    reading_ns: u64,
    resident_bytes: u64,
    lines: Vec<JsonLine<'a>>,
    mappings: Vec<Named<'a>>,
    pinning: Vec<Site<'a>>,
    reading: BTreeMap<&'static str, u64>,
    limits: Vec<String>,
    caveats: Vec<String>,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    key: &'a str,
    bytes: i64,
    error_bytes: f64,
    share: f64,
    remedy: &'a str,
}

/// The mappings of one name.
#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    mapped_bytes: u64,
    resident_bytes: u64,
}

/// A site whose blocks pin slabs, at a reading of pages.
#[derive(Serialize)]
struct Site<'a> {
    function: &'a str,
    module: &'a str,
    read_ns: u64,
    older_than_ns: u64,
    blocks: u64,
    pinned_bytes: f64,
    error_bytes: f64,
}

/// Writes the document.
pub(super) fn write(
    profile: &Profile,
    memory: &ResidentMemory,
    pinning: Option<&Pinning>,
    asked_ns: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let whole = memory.resident.max(1) as f64;
    let lines = memory.lines.iter().map(|line| JsonLine {
        key: line.key,
        bytes: line.bytes,
        error_bytes: line.error,
        share: line.bytes as f64 / whole,
        remedy: &line.remedy,
    });
    let names = profile.mappings.by_name().into_iter();
    let named = |(name, sums): (_, [u64; 2])| Named {
        name,
        mapped_bytes: sums[0],
        resident_bytes: sums[1],
    };
    let pinned = |pinning| {
        let Pinning {
            sites,
            read_ns,
            age_ns,
            ..
        }: &Pinning = pinning;
        sites.iter().map(|site| Site {
            function: &site.key.function,
            module: &site.key.module,
            read_ns: *read_ns,
            older_than_ns: *age_ns,
            blocks: site.blocks.objects(),
            pinned_bytes: site.pinned,
            error_bytes: site.error,
        })
    };
    let known = memory.reading.known();
    let mut caveats: Vec<_> = memory.remarks().map(str::to_owned).collect();
    caveats.extend(profile.conditions());
    let mut head = Head::of(profile);
    head.complete &= memory.caveats.is_empty();
    let document = Document {
        head,
        time_ns: asked_ns,
        reading_ns: memory.reading.time_ns,
        resident_bytes: memory.resident,
        lines: lines.collect(),
        mappings: names.map(named).collect(),
        pinning: pinning.into_iter().flat_map(pinned).collect(),
        reading: known.map(|(field, value)| (field.key(), value)).collect(),
        limits: memory.limits(),
        caveats,
    };
    Json::Compact.write(&document, out)
}
