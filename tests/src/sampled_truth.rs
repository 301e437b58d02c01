//! Sampled truth: the blocks of every site of the fixture `truth`, and the bounds of their
//! estimates.

use std::collections::BTreeMap;

use heapprof_core::Totals;
use heapprof_symbolizer::Metric;

use crate::{Finished, Named, Spread, assert_truth, by_site, worst_error};

/// How often a number may be outside of its bound by chance. For a crowded site, the bound is 6.5
/// standard deviations.
const FALSE_ALARM: f64 = 1e-9;

/// The numbers of allocated blocks and of blocks in use, by size.
pub type SizesOfSite = BTreeMap<u64, (u64, u64)>;

/// For each site, its blocks in one round of the fixture.
#[derive(Debug)]
pub struct Sizes(pub BTreeMap<String, SizesOfSite>);

impl Sizes {
    /// Returns the sizes of a run that has recorded everything, at scale 1.
    ///
    /// # Panics
    /// If a number is not the truth.
    pub fn of(what: &str, ran: &Finished) -> Sizes {
        let log = ran.log().whole();
        assert_truth(what, &by_site(log.named()), &ran.claims());
        let mut sizes: BTreeMap<String, SizesOfSite> = BTreeMap::new();
        for block in log.blocks() {
            if let Some(site) = log.named().site_of(block.stack) {
                let of_site = sizes.entry(site.to_owned()).or_default();
                let (allocated, in_use) = of_site.entry(block.size).or_default();
                *allocated += 1;
                *in_use += u64::from(block.in_use);
            }
        }
        // The sizes of the others depend on libc, and may differ between runs.
        sizes.retain(|site, _| ran.claims().truth.contains_key(site));
        Sizes(sizes)
    }

    /// Asserts that the estimates of each site and of the total are within Bernstein's bound of the
    /// truth. No normality is assumed.
    ///
    /// # Panics
    /// If one is not.
    pub fn assert_bounds(&self, what: &str, ran: &Finished, scale: u64, interval: u64) {
        let claims = ran.claims();
        let found = totals_by_site(ran.log().whole().named());
        for metric in Metric::ALL {
            let mut all = Spread::default();
            let mut all_found = 0.0;
            let mut errors = Vec::new();
            for (site, sizes) in &self.0 {
                let spread = spread(sizes, metric, scale, interval);
                let truth = claims.truth[site].get(metric) as f64;
                assert_eq!(spread.truth, truth, "{what}: {site}");
                let totals = found.get(site).copied().unwrap_or_default();
                let estimate = estimate(&totals, metric);
                errors.push((site.as_str(), estimate, spread));
                all = all.and(&spread);
                all_found += estimate;
            }
            errors.push(("total", all_found, all));
            let (part, whose) = worst_error(errors, FALSE_ALARM);
            let name = metric.name();
            println!("{what}, {name}: {part:.2} of the bound by {whose}");
            assert!(part <= 1.0, "{what}, {name}: {whose}");
        }
    }
}

/// Returns the distribution of an estimate of that number, for `scale` rounds of a site.
pub fn spread(sizes: &SizesOfSite, metric: Metric, scale: u64, interval: u64) -> Spread {
    let mut spread = Spread::default();
    for (&size, &(allocated, in_use)) in sizes {
        let times = if metric.is_in_use() {
            in_use
        } else {
            allocated
        };
        let x = if metric.is_bytes() { size as f64 } else { 1.0 };
        spread.add(times * scale, size, x, interval);
    }
    spread
}

/// Returns the totals of each site.
pub fn totals_by_site(named: &Named) -> BTreeMap<String, Totals> {
    let mut sites: BTreeMap<String, Totals> = BTreeMap::new();
    for row in &named.profile.rows {
        if let Some(site) = named.site_of(row.stack as usize) {
            sites.entry(site.to_owned()).or_default().merge(&row.totals);
        }
    }
    sites
}

/// Returns the estimate of that number.
pub fn estimate(totals: &Totals, metric: Metric) -> f64 {
    let estimate = if metric.is_in_use() {
        &totals.in_use
    } else {
        &totals.allocated
    };
    if metric.is_bytes() {
        estimate.bytes_f64()
    } else {
        estimate.objects_f64()
    }
}
