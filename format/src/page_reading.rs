//! Page reading: which pages of the live sampled blocks are resident or swapped out, at one moment.
//!
//! The writer takes a reading on request, at dumps and markers, and at regular times if the setting
//! `HEAPPROF_PAGES` says so. The record names each block by its id, as allocations and frees do. It
//! has numbers of the samples alone: a reader adds them up by stack, thread or age, with the
//! weights of the samples.
//!
//! ```text
//!   time │ part │ flags │ time on a processor │ pages read │ blocks left out │ number of blocks
//!   of each block: state │ difference of ids │ resident, swapped │ free, live
//!   of the addresses: unit │ the first │ differences
//!
//!   flags   1: the last part   2: slabs are known   4: cut   8: addresses are behind the blocks
//!   state   0: resident   1: swapped   2: untouched   3: mixed, the numbers follow
//!           + 4: the block is in a slab, the numbers follow   + 8: in one like the block before
//!   unit    binary logarithm of the bytes that addresses are counted in: 4, as blocks are aligned
//! ```
//!
//! Addresses are there if the setting `HEAPPROF_ADDRESSES` or the request says so. A reader that
//! does not know them has read the record when it comes to them.
//!
//! A large reading is several records, its parts. Events may come between two parts: a part tells
//! the pages of blocks that are in use where the part stands. The time is that of the beginning in
//! all parts, and the sums are those up to the part.

use crate::field::{put_time, take_byte, take_time, take_u32};
use crate::varint::{put, take, unzigzag, zigzag};

/// A part of a reading of pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageReading {
    /// Time at which the reading began.
    pub time_ns: u64,
    /// Number of the part, from 0.
    pub part: u32,
    /// True if no part follows.
    pub is_last: bool,
    /// True if a block without [`slab`](PagesOfBlock::slab) is in no slab. False: slabs are not
    /// known, because the program has an allocator of its own.
    pub knows_slabs: bool,
    /// True if the reading ended early, because it took too long, or there were too many blocks.
    pub is_cut: bool,
    /// Time on a processor so far.
    pub ran_ns: u64,
    /// Pages that were read so far.
    pub pages: u64,
    /// Live sampled blocks that the reading leaves out, so far: those of the process before the
    /// fork, and those behind a cut.
    pub left_out: u64,
    /// The blocks of this part, in ascending order of their addresses.
    pub blocks: Vec<PagesOfBlock>,
    /// The first address of each of the blocks, in their order. `None`: they are not recorded.
    pub addresses: Option<Vec<u64>>,
}

/// The pages of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagesOfBlock {
    /// Id of the sample.
    pub id: u64,
    /// The state of the requested bytes.
    pub touch: Touch,
    /// The slab that the block is in. `None`: none, or not known.
    pub slab: Option<Slab>,
}

/// The state of a block's requested bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// All are on resident pages.
    Resident,
    /// All are swapped out.
    Swapped,
    /// None is resident or swapped out.
    Untouched,
    /// Numbers of bytes. The rest is untouched.
    Mixed {
        /// Bytes on resident pages.
        resident: u64,
        /// Bytes on pages that are swapped out.
        swapped: u64,
    },
}

/// Slab: the pages that the allocator divides into blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slab {
    /// Free blocks.
    pub free: u32,
    /// Blocks in use, sampled or not, with the free ones in thread caches.
    pub live: u32,
}

impl Touch {
    /// Returns the state of a block of `size` bytes with these numbers.
    pub fn of(size: u64, resident: u64, swapped: u64) -> Touch {
        match (resident, swapped) {
            (0, 0) if size > 0 => Touch::Untouched,
            (_, 0) if resident == size => Touch::Resident,
            (0, _) if swapped == size => Touch::Swapped,
            _ => Touch::Mixed { resident, swapped },
        }
    }

    /// Returns the resident and the swapped bytes of a block of `size` bytes.
    pub fn bytes(self, size: u64) -> [u64; 2] {
        match self {
            Touch::Resident => [size, 0],
            Touch::Swapped => [0, size],
            Touch::Untouched => [0, 0],
            Touch::Mixed { resident, swapped } => {
                let resident = resident.min(size);
                [resident, swapped.min(size - resident)]
            }
        }
    }
}

const LAST: u8 = 1;
const SLABS_ARE_KNOWN: u8 = 2;
const CUT: u8 = 4;
const ADDRESSES: u8 = 8;

const STATE: u8 = 3;
const IN_SLAB: u8 = 4;
const LIKE_BEFORE: u8 = 8;

impl PageReading {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_time(out, self.time_ns);
        put(out, u64::from(self.part));
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(
            flag(self.is_last, LAST)
                | flag(self.knows_slabs, SLABS_ARE_KNOWN)
                | flag(self.is_cut, CUT)
                | flag(self.addresses.is_some(), ADDRESSES),
        );
        put(out, self.ran_ns);
        put(out, self.pages);
        put(out, self.left_out);
        put(out, self.blocks.len() as u64);
        let (mut id, mut slab) = (0u64, None);
        for block in &self.blocks {
            let in_slab = match block.slab {
                None => 0,
                it if it == slab => LIKE_BEFORE,
                _ => IN_SLAB,
            };
            out.push(block.touch.number() | in_slab);
            put(out, zigzag(block.id.wrapping_sub(id).cast_signed()));
            if let Touch::Mixed { resident, swapped } = block.touch {
                put(out, resident);
                put(out, swapped);
            }
            if let Some(it) = block.slab.filter(|_| in_slab == IN_SLAB) {
                put(out, u64::from(it.free));
                put(out, u64::from(it.live));
            }
            id = block.id;
            slab = block.slab.or(slab);
        }
        if let Some(addresses) = &self.addresses {
            put_addresses(out, addresses);
        }
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (time_ns, part) = (take_time(bytes)?, take_u32(bytes)?);
        let flags = take_byte(bytes)?;
        let mut reading = PageReading {
            time_ns,
            part,
            is_last: flags & LAST != 0,
            knows_slabs: flags & SLABS_ARE_KNOWN != 0,
            is_cut: flags & CUT != 0,
            ran_ns: take(bytes)?,
            pages: take(bytes)?,
            left_out: take(bytes)?,
            ..PageReading::default()
        };
        let count = take(bytes)?;
        let (mut id, mut slab) = (0u64, None);
        for _ in 0..count {
            let state = take_byte(bytes)?;
            id = id.wrapping_add(unzigzag(take(bytes)?).cast_unsigned());
            let touch = match state & STATE {
                0 => Touch::Resident,
                1 => Touch::Swapped,
                2 => Touch::Untouched,
                _ => Touch::Mixed {
                    resident: take(bytes)?,
                    swapped: take(bytes)?,
                },
            };
            if state & IN_SLAB != 0 {
                slab = Some(Slab {
                    free: take_u32(bytes)?,
                    live: take_u32(bytes)?,
                });
            }
            let is_in_slab = state & (IN_SLAB | LIKE_BEFORE) != 0;
            reading.blocks.push(PagesOfBlock {
                id,
                touch,
                slab: slab.filter(|_| is_in_slab),
            });
        }
        if flags & ADDRESSES != 0 {
            reading.addresses = Some(take_addresses(bytes, reading.blocks.len())?);
        }
        Some(reading)
    }
}

/// Writes ascending addresses: in units as large as all of them allow, each as the difference from
/// the one before.
fn put_addresses(out: &mut Vec<u8>, addresses: &[u64]) {
    let bits = addresses
        .iter()
        .fold(1 << LARGEST_UNIT, |bits, it| bits | it);
    let unit = bits.trailing_zeros();
    out.push(unit as u8);
    let mut before = 0u64;
    for address in addresses {
        put(out, address.wrapping_sub(before) >> unit);
        before = *address;
    }
}

/// Reads that many addresses. There must be a byte for each.
fn take_addresses(bytes: &mut &[u8], count: usize) -> Option<Vec<u64>> {
    let unit = u32::from(take_byte(bytes)?);
    if unit > LARGEST_UNIT || count > bytes.len() {
        return None;
    }
    let mut address = 0u64;
    let next = |_| {
        let step = take(bytes)?;
        let step = step.checked_mul(1 << unit)?;
        address = address.wrapping_add(step);
        Some(address)
    };
    (0..count).map(next).collect()
}

/// Largest unit of addresses: that of most blocks, and no larger one, so that all readings are
/// alike.
const LARGEST_UNIT: u32 = 4;

impl Touch {
    /// Returns the number of the state.
    fn number(self) -> u8 {
        match self {
            Touch::Resident => 0,
            Touch::Swapped => 1,
            Touch::Untouched => 2,
            Touch::Mixed { .. } => STATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> PageReading {
        let slab = |free, live| Some(Slab { free, live });
        let block = |id, touch, slab| PagesOfBlock { id, touch, slab };
        let mixed = Touch::Mixed {
            resident: 4096,
            swapped: 1 << 40,
        };
        PageReading {
            time_ns: 7_000,
            part: 3,
            is_last: true,
            knows_slabs: true,
            is_cut: true,
            ran_ns: 1_234_567,
            pages: 1 << 20,
            left_out: 5,
            blocks: vec![
                block(700, Touch::Resident, None),
                block(3, Touch::Swapped, slab(9, 1)),
                block(u64::MAX, Touch::Untouched, slab(9, 1)),
                block(0, mixed, None),
                block(1, Touch::Resident, slab(9, 1)),
                block(2, mixed, slab(0, 512)),
            ],
            addresses: None,
        }
    }

    fn with_addresses(addresses: &[u64]) -> PageReading {
        let block = PagesOfBlock {
            id: 1,
            touch: Touch::Resident,
            slab: None,
        };
        PageReading {
            blocks: vec![block; addresses.len()],
            addresses: Some(addresses.to_vec()),
            ..PageReading::default()
        }
    }

    fn bytes_of(reading: &PageReading) -> Vec<u8> {
        let mut bytes = Vec::new();
        reading.put(&mut bytes);
        bytes
    }

    #[test]
    fn a_reading_comes_back_and_a_cut_one_is_damage() {
        let all = (0..6).map(|i| 0x7f12_3456_0000 + 96 * i).collect();
        let readings = [
            reading(),
            PageReading::default(),
            PageReading {
                addresses: Some(all),
                ..reading()
            },
            with_addresses(&[]),
            with_addresses(&[0]),
            with_addresses(&[8, 16, 0x7fff_ffff_fff0]), // blocks of a pool are aligned to less
            with_addresses(&[1, u64::MAX, 0, 1 << 63]), // in no order
            with_addresses(&[!15]),
        ];
        for reading in readings {
            let bytes = bytes_of(&reading);
            assert_eq!(PageReading::take(&mut &bytes[..]), Some(reading));
            for end in 0..bytes.len() {
                assert_eq!(PageReading::take(&mut &bytes[..end]), None);
            }
        }
    }

    #[test]
    fn neighbours_in_a_slab_take_two_bytes_each() {
        let block = |id| PagesOfBlock {
            id,
            touch: Touch::Resident,
            slab: Some(Slab { free: 3, live: 61 }),
        };
        let bytes_of = |blocks: u64| {
            let reading = PageReading {
                blocks: (0..blocks).map(block).collect(),
                ..PageReading::default()
            };
            let mut bytes = Vec::new();
            reading.put(&mut bytes);
            bytes.len()
        };
        assert_eq!(bytes_of(101) - bytes_of(1), 200);
    }

    /// A reader from before there were addresses ends with the blocks.
    #[test]
    fn addresses_change_a_flag_and_stand_behind_all_else() {
        let without = reading();
        let addresses = Some((0..6).map(|i| 4096 + 48 * i).collect());
        let with = PageReading {
            addresses,
            ..without.clone()
        };
        let (mut before, with) = (bytes_of(&without), bytes_of(&with));
        let flags = 2; // behind the time and the part, of a byte each
        before[flags] |= ADDRESSES;
        assert_eq!(with[..before.len()], before);
        // 4096 is 256 units, in two bytes; 48 are three.
        assert_eq!(with[before.len()..], [4, 0x80, 2, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn damaged_addresses_are_no_addresses() {
        let place = bytes_of(&with_addresses(&[64])).len() - 2;
        for (bytes, is_damage) in [(&[4, 1][..], false), (&[5, 1], true), (&[255, 1], true)] {
            let mut all = bytes_of(&with_addresses(&[64]));
            all[place..].copy_from_slice(bytes);
            assert_eq!(PageReading::take(&mut &all[..]).is_none(), is_damage);
        }
        // Beyond the last address there is.
        let mut all = bytes_of(&with_addresses(&[64]));
        all.pop();
        put(&mut all, 1 << 60);
        assert_eq!(PageReading::take(&mut &all[..]), None);
    }

    #[test]
    fn a_number_of_blocks_beyond_the_bytes_takes_no_memory() {
        let mut bytes = Vec::new();
        PageReading::default().put(&mut bytes);
        bytes.pop();
        put(&mut bytes, u64::MAX);
        assert_eq!(PageReading::take(&mut &bytes[..]), None);
    }

    #[test]
    fn a_state_is_whole_or_has_its_numbers() {
        for (size, numbers, touch) in [
            (100, [100, 0], Touch::Resident),
            (100, [0, 100], Touch::Swapped),
            (100, [0, 0], Touch::Untouched),
            (0, [0, 0], Touch::Resident),
            (
                100,
                [40, 60],
                Touch::Mixed {
                    resident: 40,
                    swapped: 60,
                },
            ),
        ] {
            assert_eq!(Touch::of(size, numbers[0], numbers[1]), touch);
            assert_eq!(touch.bytes(size), numbers);
        }
        // A block is never more than its size, whatever a log says.
        let absurd = Touch::Mixed {
            resident: 70,
            swapped: u64::MAX,
        };
        assert_eq!(absurd.bytes(100), [70, 30]);
        assert_eq!(absurd.bytes(60), [60, 0]);
    }
}
