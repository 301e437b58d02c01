//! Memory of the interpreter: a read that is checked, or fails.

/// Memory that is read with a check.
pub trait Memory {
    /// Fills the buffer with the bytes from `address` on. Returns false if any of them is not
    /// readable; the buffer is then in any state.
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool;

    /// Returns the word at an address.
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// Returns the half word at an address.
    fn half(&mut self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)
            .then(|| u32::from_le_bytes(bytes))
    }
}

/// Returns the word at a place of a structure that was read; 0 beyond its end.
pub(super) fn word_of(bytes: &[u8], at: u32) -> u64 {
    let rest = bytes.get(at as usize..).unwrap_or_default();
    rest.first_chunk()
        .map_or(0, |&word| u64::from_le_bytes(word))
}

/// Returns the half word at a place of a structure that was read; 0 beyond its end.
pub(super) fn half_of(bytes: &[u8], at: u32) -> u32 {
    let rest = bytes.get(at as usize..).unwrap_or_default();
    rest.first_chunk()
        .map_or(0, |&half| u32::from_le_bytes(half))
}
