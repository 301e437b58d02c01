//! Rows: the rows of a profile that groups are made of.

use heapprof_core::Ledger;

use crate::model::extras::WantedExtras;
use crate::read::fold::Fold;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rows {
    /// [`Profile::rows`](crate::Profile::rows).
    #[default]
    Whole,
    /// [`Extras::threads`](crate::Extras::threads): the same, divided by thread.
    ByThread,
}

impl Rows {
    pub(super) fn ledger(self, fold: &Fold) -> &Ledger {
        match self {
            Rows::Whole => fold.ledger(),
            Rows::ByThread => fold.ledger_by_thread(),
        }
    }

    /// Returns the bytes in use of each row. Rows come in the order of the log, so those that are
    /// not there yet are the last ones of the whole.
    pub(super) fn in_use(self, fold: &Fold) -> Vec<f64> {
        let rows = self.ledger(fold).rows();
        rows.map(|row| row.totals.in_use.bytes_f64()).collect()
    }

    /// Returns what a fold has to keep for these rows.
    pub fn extras(self) -> WantedExtras {
        WantedExtras {
            threads: self == Rows::ByThread,
            ..WantedExtras::default()
        }
    }
}
