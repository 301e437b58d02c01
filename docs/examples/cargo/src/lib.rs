//! A cache whose memory has a limit.

/// Pages of 64 KiB.
pub struct Cache {
    pages: Vec<Vec<u8>>,
}

impl Cache {
    /// A cache of so many pages.
    pub fn of(pages: usize) -> Cache {
        Cache {
            pages: (0..pages).map(|_| vec![1; 64 << 10]).collect(),
        }
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.pages.iter().map(Vec::len).sum()
    }

    /// Returns true if it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
