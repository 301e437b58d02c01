//! Past numbers: the choice of what a past has. A number that nobody asks for stays empty, and
//! costs no time.

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastNumbers {
    /// [`Past::peak`](crate::Past::peak).
    pub peak: bool,
    /// [`Past::temporary`](crate::Past::temporary).
    pub temporary: bool,
    /// [`Past::heaptime`](crate::Past::heaptime).
    pub heaptime: bool,
    /// [`Past::slack`](crate::Past::slack).
    pub slack: bool,
    /// [`Past::growth`](crate::Past::growth).
    pub growth: bool,
    /// [`Profile::lifetimes`](crate::Profile::lifetimes).
    pub lifetimes: bool,
}

impl PastNumbers {
    /// None of them.
    pub const NONE: PastNumbers = PastNumbers {
        peak: false,
        temporary: false,
        heaptime: false,
        slack: false,
        growth: false,
        lifetimes: false,
    };
    /// Those that are sums.
    pub const SUMS: PastNumbers = PastNumbers {
        peak: true,
        temporary: true,
        heaptime: true,
        slack: true,
        growth: true,
        lifetimes: false,
    };
}

impl Default for PastNumbers {
    /// All of them.
    fn default() -> PastNumbers {
        PastNumbers {
            lifetimes: true,
            ..PastNumbers::SUMS
        }
    }
}
