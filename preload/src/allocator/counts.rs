//! Counts of an allocator's memory, for the log's memory readings.

/// Bytes of pages that were never touched, by what the allocator uses them for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UntouchedPages {
    /// For blocks and slabs.
    pub(crate) active: u64,
    /// For nothing: free, and not returned to the kernel.
    pub(crate) dirty: u64,
    /// For nothing: the kernel may take them.
    pub(crate) muzzy: u64,
    /// For this library's arena.
    pub(crate) own: u64,
}

/// Counts in bytes: see the fields of the same names in the log's memory reading.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Census {
    /// Usable bytes of small and of large blocks of the program, with those in thread caches.
    pub(crate) small: u64,
    pub(crate) large: u64,
    /// The page behind each large block.
    pub(crate) padding: u64,
    /// Usable bytes in thread caches. `None`: unknown this time.
    pub(crate) cached: Option<u64>,
    /// Pages in use for the program's blocks, and free pages by their state.
    pub(crate) active: u64,
    pub(crate) dirty: u64,
    pub(crate) muzzy: u64,
    pub(crate) retained: u64,
    /// Resident pages of jemalloc's own data for the program's arenas.
    pub(crate) metadata: u64,
    /// Pages of this library's arena, with jemalloc's data for it.
    pub(crate) own: u64,
}
