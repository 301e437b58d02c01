//! Coarse: the time before what the log has in detail, at moments, for a page's curve.

use serde::Serialize;

use super::number::{Number, significant};
use super::tables::Tables;
use crate::analysis::coarse_past::{CoarsePast, CoarseRow};
use crate::model::profile::Profile;
use crate::naming::site::SiteMap;

/// Most moments: more than a screen has columns for, beside the time in detail.
const MOST: usize = 800;
/// Sites of a moment.
const SITES: usize = 3;

/// The bytes in use at a moment.
#[derive(Serialize)]
pub(super) struct Coarse {
    time_s: f64,
    bytes: f64,
    error: Number,
    /// The most since the moment before.
    highest: f64,
    /// Resident bytes; nothing: not read.
    resident: Option<u64>,
    /// The largest sites: their frames' numbers, and the least bytes that they had.
    sites: Vec<(usize, f64)>,
}

/// The moments of a run, in order of time. Empty: the log has all of its detail.
pub(super) fn moments(profile: &Profile, sites: &SiteMap, tables: &mut Tables) -> Vec<Coarse> {
    let rows = CoarsePast::of(profile, sites).thinned(MOST);
    let moment = |row: CoarseRow| Coarse {
        time_s: row.time_ns as f64 / 1e9,
        bytes: row.bytes,
        error: Number(significant(row.bytes_error)),
        highest: row.highest,
        resident: row.resident,
        sites: (row.sites.iter().take(SITES))
            .map(|it| (tables.site(&sites.keys()[it.site]), it.least_bytes))
            .collect(),
    };
    rows.into_iter().map(moment).collect()
}
