//! Other allocators: modules of the profile that bring one of their own, by their symbol tables.

use std::fmt;

use heapprof_symbolizer::{Profile, Symbols};

/// An allocator in a module, of which no block is in the profile.
pub(crate) struct OtherAllocator<'a> {
    /// The module's path.
    module: &'a str,
    /// A function of the allocator.
    function: &'a str,
    /// Its functions are tapped.
    is_tapped: bool,
}

impl fmt::Display for OtherAllocator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OtherAllocator {
            module, function, ..
        } = self;
        write!(f, "{module} brings an allocator of its own ({function}): ")?;
        f.write_str(match self.is_tapped {
            true => "no block of it is recorded; calls that the compiler has inlined cannot be",
            false => "what is taken from that is not recorded",
        })
    }
}

/// The modules with such an allocator. Only those whose symbol tables were read for names.
pub(crate) fn other_allocators<'a>(
    profile: &'a Profile,
    symbols: &'a Symbols,
) -> impl Iterator<Item = OtherAllocator<'a>> {
    symbols.reports().iter().filter_map(|(&index, report)| {
        let module = profile.modules.get(index as usize)?;
        let function = report.allocator.as_deref()?;
        let is_tapped = profile.run.tapped_in(&module.path).next().is_some();
        let is_recorded = module.is_allocator() || is_tapped && gives_blocks(profile, index);
        (!is_recorded).then_some(OtherAllocator {
            module: &module.path,
            function,
            is_tapped,
        })
    })
}

/// Returns true if a block of an allocator in that module is recorded.
fn gives_blocks(profile: &Profile, module: u32) -> bool {
    let stacks = profile.stacks.iter().filter(|it| it.begins_with_ours);
    let mut first = stacks.filter_map(|stack| profile.places(stack).next());
    first.any(|place| place.module == Some(module))
}
