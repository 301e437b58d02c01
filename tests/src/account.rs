//! Account: the four numbers of a site.
//!
//! A block belongs to the innermost function on its stack, inlined ones included, whose name begins
//! with `site_`.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use heapprof_symbolizer::{Metric, Numbers};

use crate::named::Named;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Allocated blocks.
    pub allocated_objects: u64,
    /// Requested bytes of allocated blocks.
    pub allocated_bytes: u64,
    /// Blocks in use.
    pub in_use_objects: u64,
    /// Requested bytes of blocks in use.
    pub in_use_bytes: u64,
}

impl Account {
    /// Returns one of the four numbers.
    pub fn get(&self, metric: Metric) -> u64 {
        match metric {
            Metric::AllocatedObjects => self.allocated_objects,
            Metric::AllocatedBytes => self.allocated_bytes,
            Metric::InUseObjects => self.in_use_objects,
            Metric::InUseBytes => self.in_use_bytes,
        }
    }

    /// Returns one of the four numbers for a change.
    pub fn get_mut(&mut self, metric: Metric) -> &mut u64 {
        match metric {
            Metric::AllocatedObjects => &mut self.allocated_objects,
            Metric::AllocatedBytes => &mut self.allocated_bytes,
            Metric::InUseObjects => &mut self.in_use_objects,
            Metric::InUseBytes => &mut self.in_use_bytes,
        }
    }
}

impl From<Numbers> for Account {
    fn from(numbers: Numbers) -> Self {
        Account {
            allocated_objects: numbers.allocated_objects,
            allocated_bytes: numbers.allocated_bytes,
            in_use_objects: numbers.in_use_objects,
            in_use_bytes: numbers.in_use_bytes,
        }
    }
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Account) {
        for metric in Metric::ALL {
            *self.get_mut(metric) += other.get(metric);
        }
    }
}

/// Returns the accounts of all sites of a profile.
pub fn by_site(named: &Named) -> BTreeMap<String, Account> {
    let mut sites: BTreeMap<String, Account> = BTreeMap::new();
    for row in &named.profile.rows {
        if let Some(site) = named.site_of(row.stack as usize) {
            *sites.entry(site.to_owned()).or_default() += Numbers::of(&row.totals).into();
        }
    }
    sites
}
