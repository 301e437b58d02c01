//! Waterfall: what `heapprof rss` shows of a log.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::{Finished, Json, Run};

/// Bytes of a mebibyte.
pub const MIB: f64 = (1 << 20) as f64;

/// Returns the lines of a log's waterfall at a moment, in bytes, and the whole document.
///
/// # Panics
///
/// If the lines do not add up to the resident bytes.
pub fn waterfall_of(log: &Path, at: &str) -> (BTreeMap<String, f64>, Value) {
    let shown = Run::heapprof()
        .args(["rss", "--json", "--at", at])
        .arg(log)
        .run()
        .well();
    let Json(document) = Json::parse(&shown.stdout);
    println!("{at}: {document:#}");
    let lines = document["lines"].as_array().unwrap().iter();
    let lines: BTreeMap<String, f64> = lines
        .map(|line| {
            let key = line["key"].as_str().unwrap().to_owned();
            (key, line["bytes"].as_f64().unwrap())
        })
        .collect();
    let resident = document["resident_bytes"].as_f64().unwrap();
    let sum = lines.values().sum::<f64>();
    assert_eq!(sum, resident, "{at}: the lines add up");
    (lines, document)
}

impl Finished {
    /// The waterfall at a moment: its lines, and the resident bytes. Pages that were never touched
    /// are all in one line, and the other lines are what the allocator counts.
    pub fn waterfall(&self, at: &str) -> (BTreeMap<String, f64>, f64) {
        let (mut lines, document) = waterfall_of(&self.log_path(), at);
        let resident = document["resident_bytes"].as_f64().unwrap();
        for (key, part) in [
            ("dirty", "dirty_untouched"),
            ("muzzy", "muzzy_untouched"),
            ("metadata", "metadata_untouched"),
            ("profiler", "own_untouched"),
        ] {
            // Unknown without the fast path (HEAPPROF_FAST_PATH=0).
            let untouched = document["reading"][part].as_f64().unwrap_or(0.0);
            if let Some(line) = lines.get_mut(key) {
                *line += untouched;
                *lines.get_mut("untouched").unwrap() -= untouched;
            }
        }
        (lines, resident)
    }
}

/// Checks that a number is within 2 % of another, or as near as tables and buffers of the C library
/// allow.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_near(what: &str, shown: f64, stated: f64) {
    let most = (0.02 * stated).max(0.5 * MIB);
    assert!(
        (shown - stated).abs() <= most,
        "{what}: {shown} is shown, {stated} is stated"
    );
}
