//! Thread descriptor: glibc's structure at the thread pointer.

/// Bytes of the descriptor by which it is known.
pub(in crate::attach) const HEAD: usize = 24;

/// Returns true if these bytes at a thread pointer are a descriptor of glibc's, which contains its
/// own address twice.
pub(in crate::attach) fn is_glibcs(pointer: u64, head: &[u8]) -> bool {
    let (words, _) = head.as_chunks::<8>();
    matches!(words, [first, _, third]
        if [first, third].iter().all(|&&word| u64::from_le_bytes(word) == pointer))
}
