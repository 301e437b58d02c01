//! Coarse rows: the time before what a log has in detail, for the text and for JSON.

use std::io::{self, Write};

use heapprof_symbolizer::{
    Bytes, CoarsePast, CoarseRow, Confidence, Printable, Profile, SiteMap, Symbols,
};
use serde::Serialize;

use super::{INDENT, axis, begins_at, curve_line, site_name};
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// So many rows are shown in the text.
const SHOWN: usize = 8;
/// So many sites of a row are shown in the text.
const SITES: usize = 3;

/// The coarse past with the names of its sites.
#[derive(Default)]
pub(super) struct Coarse {
    past: CoarsePast,
    names: Vec<String>,
}

/// The coarse past in JSON.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    until_ns: u64,
    /// True if the moments are without what a forked process has from its parent.
    without_inherited: bool,
    /// True if the moments are of several processes, which had the highest bytes at most.
    joined: bool,
    moments: Vec<MomentDocument<'a>>,
}

#[derive(Serialize)]
struct MomentDocument<'a> {
    time_ns: u64,
    in_use_bytes: f64,
    in_use_error: f64,
    in_use_objects: f64,
    highest_in_use_bytes: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    /// Sites of the largest stacks.
    largest: Vec<SiteDocument<'a>>,
}

#[derive(Serialize)]
struct SiteDocument<'a> {
    name: &'a str,
    least_in_use_bytes: f64,
}

impl Coarse {
    pub(super) fn of(profile: &Profile, symbols: &Symbols) -> Coarse {
        let map = SiteMap::of(profile, symbols);
        Coarse {
            past: CoarsePast::of(profile, &map),
            names: map.keys().iter().map(site_name).collect(),
        }
    }

    /// The moments, in order of time.
    pub(super) fn rows(&self) -> &[CoarseRow] {
        &self.past.rows
    }

    fn sites<'a>(&'a self, row: &'a CoarseRow) -> impl Iterator<Item = (&'a str, f64)> {
        let sites = row.sites.iter();
        sites.map(|it| (self.names[it.site].as_str(), it.least_bytes))
    }

    /// As in JSON; `None` if there is no coarse past.
    pub(super) fn document(&self, profile: &Profile) -> Option<Document<'_>> {
        let rows = &self.past.rows;
        let site = |(name, least_in_use_bytes)| SiteDocument {
            name,
            least_in_use_bytes,
        };
        let moment = |row| {
            let row: &CoarseRow = row;
            MomentDocument {
                time_ns: row.time_ns,
                in_use_bytes: row.bytes,
                in_use_error: row.bytes_error,
                in_use_objects: row.objects,
                highest_in_use_bytes: row.highest,
                resident_bytes: row.resident,
                largest: self.sites(row).map(site).collect(),
            }
        };
        (!rows.is_empty()).then(|| Document {
            until_ns: begins_at(profile),
            without_inherited: self.past.without_inherited,
            joined: self.past.is_joined,
            moments: rows.iter().map(moment).collect(),
        })
    }

    /// Writes the curve, and rows of it with their largest sites.
    pub(super) fn write(
        &self,
        profile: &Profile,
        steps: usize,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if self.past.rows.is_empty() {
            return Ok(());
        }
        let until_ns = begins_at(profile);
        let (of, parent) = match self.past.is_joined {
            true => ("all logs have detail", "processes have from their parents"),
            false => (
                "the log's oldest kept segment",
                "the process has from its parent",
            ),
        };
        let mut head = format!("coarse, from before {of}: moments {} apart", self.spacing());
        if self.past.without_inherited {
            head.push_str(&format!(", without what {parent}"));
        }
        write_wrapped(&head, INDENT, stdout_width(), out)?;
        if let Some(resident) = self.past.resident_curve(until_ns, steps) {
            curve_line("resident", &resident, "", out)?;
        }
        curve_line("in use", &self.past.curve(until_ns, steps), "", out)?;
        axis(0, until_ns, steps, out)?;
        for row in self.past.thinned(SHOWN) {
            write_wrapped(&self.line(&row), INDENT + 2, stdout_width(), out)?;
        }
        let head = "in detail, since then:";
        write_wrapped(head, INDENT, stdout_width(), out)
    }

    /// How far apart the moments are, in words.
    fn spacing(&self) -> String {
        let times = self.past.rows.iter().map(|row| row.time_ns);
        let later = times.clone().skip(1);
        let gaps = || times.clone().zip(later.clone()).map(|(a, b)| b - a);
        // The last moment is that of the segment's beginning, which may come soon.
        let regular = gaps().count().saturating_sub(1);
        let least = gaps().take(regular).min();
        // The first moment stands for all the time before it.
        let most = gaps().chain(times.clone().next()).max();
        match (least, most) {
            (Some(least), Some(most)) if time(least) != time(most) => {
                format!("{} to {}", time(least), time(most))
            }
            (_, most) => time(most.unwrap_or(0)),
        }
    }

    fn line(&self, row: &CoarseRow) -> String {
        let error = row.bytes_error * Confidence::default().standard_errors();
        let plus_minus = match row.bytes_error > 0.0 {
            true => format!(" ± {}", Bytes(error)),
            false => String::new(),
        };
        let site = |(name, least)| format!("{} {}", Printable(name), Bytes(least));
        let resident = match row.resident {
            Some(bytes) => format!(", {} resident", Bytes(bytes as f64)),
            None => String::new(),
        };
        let sites: Vec<String> = self.sites(row).take(SITES).map(site).collect();
        let sites = match sites.is_empty() {
            true => String::new(),
            false => format!("; at least: {}", sites.join(", ")),
        };
        let up_to = match self.past.is_joined {
            true => "at most",
            false => "up to",
        };
        format!(
            "  {:.3} s: {}{plus_minus} in use, {up_to} {} before{resident}{sites}",
            row.time_ns as f64 / 1e9,
            Bytes(row.bytes),
            Bytes(row.highest),
        )
    }
}

/// `90 s`, `8 min`, `2 h`.
fn time(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}
