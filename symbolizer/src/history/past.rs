//! Past of a row: what totals cannot say of it.

use heapprof_core::Estimate;

use crate::history::over_time::OverTime;
use crate::history::pages::Pages;
use crate::history::slope::Slope;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Past {
    /// In use when all rows together were at their first global maximum of bytes.
    pub peak: Estimate,
    /// Freed so soon that it was [`Temporary`](crate::Temporary).
    pub temporary: Estimate,
    /// In use, integrated over time.
    pub heaptime: OverTime,
    /// Usable bytes beyond those requested, of blocks in use.
    pub slack: Estimate,
    /// How fast it grew: of all blocks, those from before the window included.
    pub growth: Slope,
    /// The pages of blocks in use, at the reading that was asked for.
    pub pages: Pages,
    /// Mapped bytes, if the row is of mappings.
    pub mapped: u64,
    /// Resident bytes of these.
    pub mapped_resident: u64,
}

impl Past {
    /// Adds the past of other samples: another process's. Peaks are each at its own moment.
    pub fn merge(&mut self, other: &Past) {
        self.peak.merge(&other.peak);
        self.temporary.merge(&other.temporary);
        self.heaptime.merge(&other.heaptime);
        self.slack.merge(&other.slack);
        self.growth.merge(&other.growth);
        self.pages.merge(&other.pages);
        self.mapped = self.mapped.saturating_add(other.mapped);
        self.mapped_resident = self.mapped_resident.saturating_add(other.mapped_resident);
    }
}
