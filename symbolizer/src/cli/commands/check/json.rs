//! `heapprof check --json`: the verdicts in JSON, described in `docs/json.md`.

use std::io::{self, Write};

use heapprof_symbolizer::{Json, Profile};
use serde::Serialize;

use super::Judged;
use crate::cli::options::limit::LimitVerdict;
use crate::cli::output::document::Head;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    verdict: &'static str,
    limits: Vec<JsonLimit<'a>>,
    caveats: Vec<String>,
}

#[derive(Serialize)]
struct JsonLimit<'a> {
    name: Option<&'a str>,
    metric: &'a str,
    /// `site`, `function` or `module`.
    of: Option<&'a str>,
    pattern: Option<&'a str>,
    /// The line of the budget file that has the pattern.
    line: Option<usize>,
    /// Whether the pattern matches anything.
    matches: Option<bool>,
    at_most: f64,
    verdict: &'static str,
    reason: &'a str,
}

/// Writes the document.
pub(super) fn write(
    profile: &Profile,
    judged: &[Judged<'_>],
    verdict: LimitVerdict,
    out: &mut impl Write,
) -> io::Result<()> {
    let limits = judged.iter().map(|it| JsonLimit {
        name: it.limit.name.as_deref(),
        metric: it.limit.measure.name(),
        of: it.limit.of.as_ref().map(|of| of.subject.name()),
        pattern: it.limit.of.as_ref().map(|of| of.pattern.text()),
        line: it.limit.of.as_ref().map(|of| of.line),
        matches: it.limit.of.as_ref().map(|_| it.matches),
        at_most: it.limit.limit.allows(0.0),
        verdict: it.judgement.verdict.key(),
        reason: &it.judgement.words,
    });
    let document = Document {
        head: Head::of(profile),
        verdict: verdict.key(),
        limits: limits.collect(),
        caveats: profile.conditions(),
    };
    Json::Compact.write(&document, out)
}
