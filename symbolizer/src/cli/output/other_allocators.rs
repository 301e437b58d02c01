//! Other allocators: modules of the profile that bring one of their own, by their symbol tables.

use heapprof_symbolizer::{Profile, Symbols};

/// The modules, by path, each with a function of its allocator. Only those whose symbol tables were
/// read for names.
pub(crate) fn other_allocators<'a>(
    profile: &'a Profile,
    symbols: &'a Symbols,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    symbols.reports().iter().filter_map(|(&index, report)| {
        let module = profile.modules.get(index as usize)?;
        let function = report.allocator.as_deref()?;
        let is_tapped = profile.run.tapped_in(&module.path).next().is_some();
        let is_recorded = module.is_allocator() || is_tapped;
        (!is_recorded).then_some((&*module.path, function))
    })
}
