//! Coarse growth: how much a run's bytes in use have changed since before its log's oldest segment.

use std::io::{self, Write};

use heapprof_symbolizer::{
    Bytes, CoarsePast, CoarseSpan, Confidence, Measure, Pace, Printable, Profile, SiteMap, Symbols,
};
use serde::Serialize;

use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// Where a line goes on that is too wide.
const INDENT: usize = 4;
/// So many sites are shown.
const SITES: usize = 5;

/// See the module's text.
pub(super) struct CoarseGrowth {
    whole: CoarseSpan,
    /// Sites that were among the largest at some moment, those that grew most first.
    sites: Vec<(String, CoarseSpan)>,
    confidence: Confidence,
}

/// A coarse growth in JSON.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    #[serde(flatten)]
    whole: Span,
    /// The standard error of the growth is at most this.
    most_error: f64,
    sites: Vec<Site<'a>>,
}

#[derive(Serialize)]
struct Site<'a> {
    name: &'a str,
    /// "Before" is the least that it was, and so the growth the most.
    #[serde(flatten)]
    span: Span,
}

#[derive(Serialize)]
struct Span {
    since_ns: u64,
    before_bytes: f64,
    after_bytes: f64,
    bytes_per_second: f64,
}

impl From<&CoarseSpan> for Span {
    fn from(span: &CoarseSpan) -> Span {
        Span {
            since_ns: span.from_ns,
            before_bytes: span.before,
            after_bytes: span.after,
            bytes_per_second: span.bytes_per_second(),
        }
    }
}

impl CoarseGrowth {
    /// The coarse growth of a run, if its log has it, and if `measure` is the growth of bytes.
    pub(super) fn of(
        profile: &Profile,
        symbols: &Symbols,
        measure: Measure,
        confidence: Confidence,
    ) -> Option<CoarseGrowth> {
        if measure != Measure::GrowthBytes || profile.coarse.is_empty() {
            return None;
        }
        let map = SiteMap::of(profile, symbols);
        let past = CoarsePast::of(profile, &map);
        let whole = past.whole_span(profile)?;
        let mut after = vec![0.0; map.keys().len()];
        for row in &profile.rows {
            if let Some(site) = map.own(row.stack) {
                after[site] += row.totals.in_use.bytes_f64();
            }
        }
        let span = |(site, &after): (usize, &f64)| {
            let span = past.span_of_site(profile, site, after)?;
            Some((map.keys()[site].function.clone(), span))
        };
        let mut sites: Vec<(String, CoarseSpan)> =
            after.iter().enumerate().filter_map(span).collect();
        let growth = |span: &CoarseSpan| span.after - span.before;
        sites.sort_by(|(_, a), (_, b)| growth(b).total_cmp(&growth(a)));
        sites.truncate(SITES);
        Some(CoarseGrowth {
            whole,
            sites,
            confidence,
        })
    }

    pub(super) fn document(&self) -> Document<'_> {
        Document {
            whole: (&self.whole).into(),
            most_error: self.whole.error / self.whole.seconds,
            sites: (self.sites.iter())
                .map(|(name, span)| Site {
                    name,
                    span: span.into(),
                })
                .collect(),
        }
    }

    /// Writes it below a table.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let rate = |span: &CoarseSpan, pace| {
            let sign = if span.after < span.before { "" } else { "+" };
            let rate = Measure::GrowthBytes.quantity_at(span.bytes_per_second(), pace);
            format!("{sign}{rate}")
        };
        let whole = &self.whole;
        let pace = Pace::of(whole.bytes_per_second());
        let error = whole.error / whole.seconds * self.confidence.standard_errors();
        let plus_minus = match error > 0.0 {
            true => format!(
                " ± {} at most",
                Measure::GrowthBytes.quantity_at(error, pace)
            ),
            false => String::new(),
        };
        let line = format!(
            "  since before the oldest segment, coarsely: {} in use at {:.3} s, {} at the end, {}{plus_minus} \
             (`heapprof timeline` has the time between)",
            Bytes(whole.before),
            whole.from_ns as f64 / 1e9,
            Bytes(whole.after),
            rate(whole, pace),
        );
        write_wrapped(&line, INDENT, stdout_width(), out)?;
        let grown = self.sites.iter().filter(|(_, it)| it.after > it.before);
        for (name, span) in grown {
            let line = format!(
                "    {}: at least {} at {:.3} s, {} at the end, at most {}",
                Printable(name),
                Bytes(span.before),
                span.from_ns as f64 / 1e9,
                Bytes(span.after),
                rate(span, pace),
            );
            write_wrapped(&line, INDENT + 2, stdout_width(), out)?;
        }
        Ok(())
    }
}
