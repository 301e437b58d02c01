//! Pinning: the sites whose blocks keep the most free memory from being given back.

use heapprof_core::Estimate;

use crate::model::measure::Measure;
use crate::model::profile::Profile;
use crate::naming::site::{SiteKey, SiteMap};
use crate::naming::symbols::Symbols;

/// A site whose blocks pin memory.
#[derive(Debug, Clone, PartialEq)]
pub struct PinningSite {
    /// The site.
    pub key: SiteKey,
    /// The blocks in use.
    pub blocks: Estimate,
    /// Free bytes in their slabs: the estimate.
    pub pinned: f64,
    /// Standard error of these.
    pub error: f64,
}

impl Profile {
    /// Returns the `most` sites that pin the most, those with more first. The profile has pages.
    pub fn pinning_sites(&self, symbols: &Symbols, most: usize) -> Vec<PinningSite> {
        let map = SiteMap::of(self, symbols);
        let mut variances = vec![0.0; map.keys().len()];
        let site = |key: &SiteKey| PinningSite {
            key: key.clone(),
            blocks: Estimate::default(),
            pinned: 0.0,
            error: 0.0,
        };
        let mut sites: Vec<PinningSite> = map.keys().iter().map(site).collect();
        for (index, row) in self.rows.iter().enumerate() {
            if let Some(own) = map.own(row.stack) {
                let amount = Measure::Pinned.of_row(self, index);
                sites[own].blocks.merge(&row.totals.in_use);
                sites[own].pinned += amount.value;
                variances[own] += amount.variance;
            }
        }
        for (site, variance) in sites.iter_mut().zip(variances) {
            site.error = variance.sqrt();
        }
        sites.retain(|site| site.pinned >= 0.5);
        sites.sort_by(|a, b| {
            let by_size = b.pinned.total_cmp(&a.pinned);
            by_size.then_with(|| a.key.cmp(&b.key))
        });
        sites.truncate(most);
        sites
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::{Row, SizeClass, Totals, Weight};

    use super::*;
    use crate::history::Past;
    use crate::history::pages::Pages;
    use crate::model::profile::CallStack;

    #[test]
    fn sites_are_added_up_and_the_largest_come_first() {
        let mut profile = Profile::default();
        for (stack, pinned) in [(0, 10), (1, 500), (0, 30), (2, 0)] {
            let weight = Weight::of(100, 1);
            let mut row = Row {
                stack,
                class: SizeClass::of(100),
                totals: Totals::default(),
            };
            row.totals.in_use.add(&weight);
            profile.rows.push(row);
            let mut pages = Pages::default();
            pages.pinned.add(&weight.carrying(pinned));
            profile.pasts.push(Past {
                pages,
                ..Past::default()
            });
        }
        profile.stacks = (0..3)
            .map(|number| CallStack {
                frames: vec![0x1000 * (number + 1)],
                ..CallStack::default()
            })
            .collect();
        let symbols = Symbols::default();
        let shown = |most| {
            let sites = profile.pinning_sites(&symbols, most);
            let numbers = sites
                .iter()
                .map(|site| (site.blocks.objects(), site.pinned));
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(shown(9), [(1, 500.0), (2, 40.0)]);
        assert_eq!(shown(1), [(1, 500.0)]);
    }
}
