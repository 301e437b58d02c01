//! Report: a page for a browser, with the heap at every moment of a run.
//!
//! The page holds all that it shows and loads nothing: it can be opened from a disk, sent by mail,
//! kept beside a release. It has a curve of bytes in use, on which the user chooses one or two
//! moments. It shows the sites and the flame graph of what was in use then, of what grew between,
//! or of what was allocated.
//!
//! ```text
//!   log ──> Timeline ──> numbers of each group at each moment ──┐
//!   log ──> Profile ──> Kept: which stacks are a group each     ├──> page.html
//!   Symbols ──> names of their frames ──────────────────────────┘
//! ```
//!
//! A number of a group is written only where it changes. So the size of the page follows what
//! happened, not the product of stacks and moments. In `report/script`, the first files read the
//! page's data and add up; those from `element.js` on draw.
//!
//! Imports: `resolve`, `history`, `model`, `naming`, `analysis`.
//!
//! Not here: which log and which file (`cli`).

mod block_type;
mod coarse;
mod dimension;
mod document;
mod findings;
mod kept;
mod memory;
mod number;
pub(crate) mod runs;
mod site_past;
mod tables;

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::analysis::explain::Explanation;
use crate::analysis::timeline::{Surroundings, Timeline};
use crate::history::spikes::Spike;
use crate::model::confidence::Confidence;
use crate::model::printable::Json;
use crate::model::profile::Profile;
use crate::naming::site::SiteMap;
use crate::naming::symbols::Symbols;

pub use block_type::BlockTypes;
pub use dimension::Dimensions;
use document::Document;
pub use kept::Kept;
pub use number::Moment;
pub use site_past::SitePasts;

const PAGE: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/page.css");
/// The parts of the script, each of which uses those before it.
const SCRIPTS: [&str; 22] = [
    include_str!("report/script/quantity.js"),
    include_str!("report/script/time.js"),
    include_str!("report/script/series.js"),
    include_str!("report/script/frame.js"),
    include_str!("report/script/search.js"),
    include_str!("report/script/line.js"),
    include_str!("report/script/tree.js"),
    include_str!("report/script/peak.js"),
    include_str!("report/script/memory.js"),
    include_str!("report/script/link.js"),
    include_str!("report/script/state.js"),
    include_str!("report/script/element.js"),
    include_str!("report/script/head.js"),
    include_str!("report/script/scale.js"),
    include_str!("report/script/curve.js"),
    include_str!("report/script/legend.js"),
    include_str!("report/script/timeline.js"),
    include_str!("report/script/pointer.js"),
    include_str!("report/script/waterfall.js"),
    include_str!("report/script/table.js"),
    include_str!("report/script/flames.js"),
    include_str!("report/script/page.js"),
];

/// The parts of a page.
#[derive(Debug)]
pub struct Report<'a> {
    /// The whole of the log.
    pub profile: &'a Profile,
    /// Its names.
    pub symbols: &'a Symbols,
    /// The sites of its stacks.
    pub sites: &'a SiteMap,
    /// The stacks that have numbers of their own.
    pub kept: &'a Kept,
    /// The types of their blocks.
    pub types: &'a BlockTypes,
    /// The properties that divide the blocks of a stack.
    pub dimensions: &'a Dimensions,
    /// The numbers of the stacks, and behind them those of the dimensions.
    pub timeline: &'a Timeline<Moment>,
    /// The spikes at which the timeline has looked at its groups.
    pub spikes: &'a [Spike],
    /// The memory around the heap.
    pub surroundings: &'a Surroundings,
    /// The findings at the head of the page.
    pub explanation: &'a Explanation,
    /// The end of what is explained, if the program frees its memory behind it.
    pub until_ns: Option<u64>,
    /// Slack and ages.
    pub pasts: &'a SitePasts,
    /// The log, as a shell takes it.
    pub log: &'a str,
    /// The recordings that it is of ([`runs_of`](crate::runs_of)).
    pub runs: &'a str,
    /// The confidence of the intervals.
    pub confidence: Confidence,
    /// Empty for the program's name.
    pub title: &'a str,
    /// How exact the numbers are, in words.
    pub precision: &'a str,
}

impl Report<'_> {
    /// Writes the page.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut data = Vec::new();
        Json::Compact.write(&Document::of(self), &mut data)?;
        let data = String::from_utf8(data).map_err(io::Error::other)?;
        // In JSON they stand within strings only. As they are, they could end the script.
        let data = data.replace('<', "\\u003c");
        let page = page()?;
        let (head, rest) = divided(&page, "/* runs */")?;
        let (before, after) = divided(rest, "/* data */")?;
        for part in [head, self.runs, before, &data, after] {
            out.write_all(part.as_bytes())?;
        }
        Ok(())
    }
}

/// Returns the page without its data. Its policy names the script and the style sheet by their
/// hashes. A browser runs no other script, so no name in the data can become one.
fn page() -> io::Result<String> {
    let mut page = PAGE.to_owned();
    for (mark, part) in [("/* style */", STYLE), ("/* script */", &SCRIPTS.concat())] {
        let (before, after) = divided(&page, mark)?;
        page = [before, part, after].concat();
    }
    for (mark, open, close) in [
        ("/* script hash */", "<script>", "</script>"),
        ("/* style hash */", "<style>", "</style>"),
    ] {
        let (_, content) = divided(&page, open)?;
        let (content, _) = divided(content, close)?;
        let source = format!("'sha256-{}'", base64(&Sha256::digest(content)));
        let (before, after) = divided(&page, mark)?;
        page = [before, &source, after].concat();
    }
    Ok(page)
}

/// Returns the text before a mark and the text behind it.
fn divided<'a>(page: &'a str, mark: &str) -> io::Result<(&'a str, &'a str)> {
    let missing = || io::Error::other(format!("the page's frame has no place for {mark}"));
    page.split_once(mark).ok_or_else(missing)
}

/// Bytes in base 64, as policies have hashes.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            text.push(match digit <= three.len() {
                true => char::from(DIGITS[(word >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn bytes_are_written_in_base_64() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob\xff\xff", "Zm9vYv//"),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }
}
