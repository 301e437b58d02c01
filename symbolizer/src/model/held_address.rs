//! Held addresses: the sampled blocks that held an address, as readings of pages have them.

use heapprof_format::Slab;

use crate::model::page_reading::PagesRead;
use crate::model::profile::Profile;
use crate::model::special_threads::{name_of_thread, name_of_unknown_thread};

/// The addresses, as the readings of a log tell them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeldAddresses {
    /// Complete readings with addresses.
    pub readings: u64,
    /// Complete readings without addresses.
    pub without: u64,
    /// The time of the first reading with addresses.
    pub first_ns: u64,
    /// The last complete reading with addresses.
    pub last: Option<PagesRead>,
    /// True if blocks are missing: a reading leaves them out, no reading is complete, or the log
    /// does not have the allocation of a block.
    pub is_partial: bool,
    /// The addresses, ascending, each once.
    pub addresses: Vec<HeldAddress>,
}

/// One address, as the readings tell it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeldAddress {
    /// The address.
    pub address: u64,
    /// The blocks that held it: those in use at the end first, then the one that was freed last.
    /// A block inside of another one comes before it.
    pub blocks: Vec<AddressBlock>,
    /// At the last reading, the block that begins nearest at or below.
    pub below: Option<AddressBlock>,
    /// At the last reading, the block that begins nearest above.
    pub above: Option<AddressBlock>,
}

/// A sampled block with its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    /// Its sample.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes beyond them.
    pub slack: u64,
    /// Index of its stack. `None`: it is not in the log.
    pub stack: Option<u32>,
    /// Number of the thread that allocated it.
    pub thread: u32,
    /// When it was allocated.
    pub time_ns: u64,
    /// True if it came from before a fork: thread and time are those of the fork.
    pub is_inherited: bool,
    /// When and by which thread it was freed, if it was.
    pub freed: Option<(u64, u32)>,
    /// The slab that it is in, at the reading. `None`: none, or not known.
    pub slab: Option<Slab>,
    /// The times of the first and of the last reading that have it.
    pub seen_ns: (u64, u64),
}

impl HeldAddresses {
    /// Returns true if the log tells anything by addresses.
    pub fn are_known(&self) -> bool {
        self.readings > 0 || self.addresses.iter().any(|it| !it.blocks.is_empty())
    }
}

impl AddressBlock {
    /// Usable bytes. A block without a byte still has its address.
    pub fn usable(&self) -> u64 {
        self.size.saturating_add(self.slack).max(1)
    }

    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.usable())
    }

    /// How long it lived; one that is in use, up to that time.
    pub fn age_ns(&self, end_ns: u64) -> u64 {
        let (until_ns, _) = self.freed.unwrap_or((end_ns, 0));
        until_ns.saturating_sub(self.time_ns)
    }
}

impl Profile {
    /// Returns the name of the thread of a number in the log.
    pub fn thread_name(&self, number: u32) -> String {
        let thread = self.threads.iter().find(|thread| thread.number == number);
        thread.map_or_else(|| name_of_unknown_thread(number), name_of_thread)
    }
}
