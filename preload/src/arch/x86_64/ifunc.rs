//! IFUNC: a function whose code its resolver selects for the processor (`STT_GNU_IFUNC`).

/// Returns the address of the function that a resolver selects.
///
/// # Safety
/// `resolver` is the address of a resolver, and the loader has relocated its module.
pub(crate) unsafe fn selected_by(resolver: usize) -> usize {
    // SAFETY: by the psABI a resolver takes no arguments and returns an address. It reads the
    // loader's knowledge of the processor.
    let resolver: extern "C" fn() -> usize = unsafe { std::mem::transmute(resolver) };
    resolver()
}
