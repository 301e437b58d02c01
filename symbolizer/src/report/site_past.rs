//! Site past: the slack and the ages of blocks, by group and by site, at the end of what was
//! judged.

use serde::Serialize;

use super::kept::Kept;
use super::number::{Number, significant};
use super::tables::Tables;
use crate::history::lifetimes::Lifetimes;
use crate::model::profile::Profile;
use crate::naming::site::{SiteKey, SiteMap};

/// See the module's text.
#[derive(Debug, Default, PartialEq)]
pub struct SitePasts {
    /// When the blocks were in use.
    time_ns: u64,
    /// By group: bytes of slack, and their variance.
    slack: Vec<[f64; 2]>,
    /// By site.
    ages: Vec<(SiteKey, Lifetimes)>,
}

/// The ages of the blocks of a site, in seconds; `None`: not known.
#[derive(Serialize)]
pub(super) struct Ages {
    /// The number of the site's frame.
    site: usize,
    /// How long half of the blocks live at most; `None`: more than half outlive all that was seen.
    lifetime_s: Option<f64>,
    /// The age that half of the blocks in use have reached.
    age_s: Option<f64>,
    /// Samples that were freed, and samples in use.
    samples: [u64; 2],
}

impl SitePasts {
    /// Those of a profile with pasts. Its stacks are those of `kept` and `sites`.
    pub fn of(profile: &Profile, kept: &Kept, sites: &SiteMap) -> SitePasts {
        let mut slack = vec![[0.0; 2]; kept.groups()];
        for (row, past) in profile.rows.iter().zip(&profile.pasts) {
            if let Some(group) = kept.group_of(row.stack) {
                slack[group][0] += past.slack.bytes_f64();
                slack[group][1] += past.slack.bytes_error().powi(2);
            }
        }
        let mut ages: Vec<(SiteKey, Lifetimes)> = (sites.keys().iter())
            .map(|key| (key.clone(), Lifetimes::default()))
            .collect();
        for (stack, lifetimes) in profile.lifetimes.iter().enumerate() {
            if let Some(site) = sites.own(stack as u32) {
                ages[site].1.merge(lifetimes);
            }
        }
        ages.retain(|(_, lifetimes)| *lifetimes != Lifetimes::default());
        let span = profile.run.span;
        SitePasts {
            time_ns: span.map_or(profile.run.duration_ns, |span| span.to.time_ns()),
            slack,
            ages,
        }
    }

    pub(super) fn time_s(&self) -> f64 {
        self.time_ns as f64 / 1e9
    }

    /// The slack of a group and its error, if there is any.
    pub(super) fn slack(&self, group: usize) -> Vec<Number> {
        match self.slack.get(group) {
            Some(&[bytes, variance]) if bytes > 0.0 => {
                vec![Number(bytes.round()), Number(significant(variance.sqrt()))]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn ages(&self, tables: &mut Tables) -> Vec<Ages> {
        let all = self.ages.iter();
        all.map(|(key, lifetimes)| Ages {
            site: tables.site(key),
            lifetime_s: lifetimes.median().map(significant),
            age_s: lifetimes.median_age().map(significant),
            samples: [lifetimes.died_samples(), lifetimes.live_samples()],
        })
        .collect()
    }
}
