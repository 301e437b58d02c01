//! Folding option: stacks without the frames inside standard libraries.

use heapprof_symbolizer::{Profile, Symbols, fold_library};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct FoldArgs {
    /// Fold the frames inside standard libraries and allocators, as `heapprof tree` does: the
    /// function that the program calls stays
    #[arg(long, help_heading = "Filters")]
    fold_library: bool,
}

impl FoldArgs {
    /// Returns true if stacks are folded.
    pub(crate) fn is_set(&self) -> bool {
        self.fold_library
    }

    /// Folds the stacks, if that was asked for.
    pub(crate) fn apply(&self, profile: &mut Profile, symbols: &mut Symbols) {
        if self.fold_library {
            fold_library(profile, symbols);
        }
    }
}
