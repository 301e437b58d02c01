//! Pinning in `heapprof rss`: the sites whose old blocks keep slabs from being given back.

use std::io::{self, Write};
use std::path::Path;

use heapprof_symbolizer::{
    Bytes, Confidence, Count, Input, InputError, Measure, Moment, PinningSite, Printable,
    ReadRequest, Temporary, View, cut_function,
};

use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::failure::Failure;
use crate::cli::output::wrapped::write_wrapped;

/// Least age of the blocks. Younger ones may be freed soon by themselves.
const AGE_NS: u64 = 10_000_000_000;
/// Most sites that are listed.
const MOST: usize = 5;

/// Where a line goes on that is too wide.
const INDENT: usize = 4;

/// Asks for the blocks of at least an age, at the reading of pages that is nearest to a time.
pub(super) fn at_pages(at_ns: u64, age_ns: u64) -> ReadRequest {
    ReadRequest {
        view: View::Survivors {
            age_ns,
            at: Moment::After(at_ns),
        },
        pasts: Some(Temporary::default()),
        pages: true,
        ..ReadRequest::default()
    }
}

/// The sites, at a reading of pages.
pub(super) struct Pinning {
    /// The time of the reading.
    pub(super) read_ns: u64,
    /// Least age of the blocks; 0 if the reading is too early for any other.
    pub(super) age_ns: u64,
    pub(super) sites: Vec<PinningSite>,
    is_sampled: bool,
}

impl Pinning {
    /// Finds the sites at the reading that is nearest to a time. `None`: the log has no reading, or
    /// does not tell slabs.
    pub(super) fn find(
        file: &Path,
        input: &Input,
        at_ns: u64,
        places: &SymbolArgs,
    ) -> Result<Option<Pinning>, Failure> {
        let age_ns = if at_ns > 2 * AGE_NS { AGE_NS } else { 0 };
        let profile = match input.read_part(&at_pages(at_ns, age_ns), |_| {}) {
            Err(InputError::NoPages { .. }) => return Ok(None),
            profile => profile?,
        };
        let Some(pages) = profile.pages.filter(|pages| pages.knows_slabs) else {
            return Ok(None);
        };
        let symbols = places.symbols(file, &profile)?;
        Ok(Some(Pinning {
            read_ns: pages.time_ns,
            age_ns,
            sites: profile.pinning_sites(&symbols, MOST),
            is_sampled: Measure::Pinned.of_all(&profile).error() > 0.0,
        }))
    }

    /// Writes a line for each site.
    pub(super) fn write(&self, width: usize, out: &mut impl Write) -> io::Result<()> {
        if self.sites.is_empty() {
            return Ok(());
        }
        let read = self.read_ns as f64 / 1e9;
        writeln!(out)?;
        let heading =
            format!("partly empty slabs, by the blocks that pin them, as of {read:.3} s:");
        write_wrapped(&heading, INDENT, Some(width), out)?;
        for site in &self.sites {
            let line = self.line(site, width / 2);
            write_wrapped(&line, INDENT, Some(width), out)?;
        }
        Ok(())
    }

    /// The function has so many columns at most.
    fn line(&self, site: &PinningSite, for_function: usize) -> String {
        let blocks = match site.blocks.objects() {
            1 => "1 block".to_owned(),
            many => format!("{} blocks", Count(many)),
        };
        let age = match self.age_ns {
            0 => String::new(),
            age_ns => format!(", older than {} s,", age_ns / 1_000_000_000),
        };
        let half = Confidence::default().standard_errors() * site.error;
        let error = match self.is_sampled {
            true => format!(" ± {}", Bytes(half)),
            false => String::new(),
        };
        let pinned = Bytes(site.pinned);
        let function = Printable(&site.key.function).to_string();
        let function = cut_function(&function, for_function);
        format!("  {blocks} of {function}{age} pin {pinned}{error} of slabs")
    }
}
