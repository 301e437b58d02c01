//! Merged addresses: where code that lies outside all files is in the profile of several processes.
//!
//! Such code of the process with index `n` lies from `(n + 1) << ADDRESS_BITS` on, so that no two
//! processes share an address of it.

/// Bits of an address within one process.
pub(crate) const ADDRESS_BITS: u32 = 48;

/// Where code of a process that lies outside all files is in the merged profile.
pub(crate) fn merged_address(part: usize, avma: u64) -> u64 {
    let number = (part as u64 + 1).min(0x7fff);
    avma & ((1 << ADDRESS_BITS) - 1) | number << ADDRESS_BITS
}

/// The process, by its place in [`Profile::parts`], and the address there of code outside all
/// files.
pub(crate) fn process_and_address(avma: u64) -> Option<(usize, u64)> {
    let part = (avma >> ADDRESS_BITS).checked_sub(1)?;
    Some((
        usize::try_from(part).ok()?,
        avma & ((1 << ADDRESS_BITS) - 1),
    ))
}
