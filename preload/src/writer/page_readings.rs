//! Page readings: which pages of the live sampled blocks are resident or swapped out, for the log.
//!
//! ```text
//!   table of sampled blocks: address, id ─┐
//!   ledger: id, size ─────────────────────┴─> blocks by address ──> page map ──> parts
//! ```
//!
//! The page map is read for the pages of these blocks alone. So the cost is that of the samples,
//! and not that of the whole heap. The writer takes events between two parts, so no lane fills up.
//! A reading that takes too long on a processor ends early, and says so.
//!
//! With `HEAPPROF_ADDRESSES`, or if the request says so, the parts have the addresses as well,
//! which `heapprof at` looks for.
//!
//! A reading needs the ledger. It takes no memory of the program, waits for no lock of the program,
//! and reads no block. The ledger of a forked child does not have the blocks from before the fork.
//! Their usable sizes stand for the requested ones, and the reader has the latter.

use heapprof_core::{BlockPages, CpuShare, Ledger, PageState, PlacedBlock};
use heapprof_format::{PageReading, PagesOfBlock, Record, Slab, Touch};

use super::{FLUSH_BYTES, Writer};
use crate::allocator;
use crate::os::pagemap::Pagemap;
use crate::os::{clock, sys};
use crate::recording::request_word::{self, FINISH};
use crate::recording::sampled_blocks;
use crate::recording::session::{self, Session};
use crate::state::settings::Settings;
use crate::state::shutdown;
use crate::writer::memory_readings::Cause;

/// Most blocks of a reading. They take memory while it goes on.
const MOST_BLOCKS: usize = 4 << 20;
/// Most blocks of a reading that nobody asks for: at a marker, a dump, or the program's end. It
/// takes no more time and memory than these can have.
const MOST_UNASKED: usize = 64 << 10;
/// Blocks of a part.
const PART: usize = 4096;
/// Most parts of events that are taken before a reading. Busy threads add some meanwhile.
const MOST_PARTS_BEFORE: usize = 64;
/// Most time of a reading on a processor.
const MOST_NS: u64 = 1_000_000_000;
/// Windows of the page map between two looks at the clock.
const WINDOWS: u64 = 64;
/// Part of a processor's time that readings take which nobody asks for.
const SHARE: u64 = 500;

/// The state between readings.
pub(super) struct PageReadings {
    /// Time between two regular readings; 0: there are none.
    interval_ns: u64,
    /// When the last reading began.
    last_ns: u64,
    share: CpuShare,
    /// True if a marker, a dump or the time asks for a reading.
    is_wanted: bool,
    /// True if all readings have the addresses of the blocks.
    with_addresses: bool,
    current: Option<CurrentReading>,
}

/// A reading that goes on.
struct CurrentReading {
    /// The blocks, in ascending order of their addresses, and the number of those that are done.
    blocks: Vec<PlacedBlock>,
    done: usize,
    pages: BlockPages,
    /// The last part, without its blocks.
    head: PageReading,
}

impl PageReadings {
    pub(super) fn new(settings: &Settings, now_ns: u64) -> PageReadings {
        PageReadings {
            interval_ns: settings.pages_interval_s.saturating_mul(1_000_000_000),
            with_addresses: settings.addresses,
            last_ns: now_ns,
            share: CpuShare::one_in(SHARE),
            is_wanted: false,
            current: None,
        }
    }

    /// Returns true if a regular reading is due.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.interval_ns > 0 && now_ns.saturating_sub(self.last_ns) >= self.interval_ns
    }

    /// Asks for a reading, unless readings take their share already.
    pub(super) fn want_within_share(&mut self, now_ns: u64) {
        self.is_wanted |= self.share.allows(now_ns);
    }

    /// Returns true if a reading goes on.
    pub(super) fn is_reading(&self) -> bool {
        self.current.is_some()
    }

    /// Begins a reading of `most` blocks. Returns the reason if there is none.
    fn begin(
        &mut self,
        ledger: &Ledger,
        start_ns: u64,
        most: usize,
        with_addresses: bool,
    ) -> Result<(), &'static str> {
        let (now_ns, began_ns) = (clock::now_ns(), clock::thread_ns());
        (self.is_wanted, self.last_ns) = (false, now_ns);
        // Without a block it is a reading all the same: it says that there is none.
        let room = (ledger.live() + inherited()).clamp(1, most);
        if allocator::is_short() || !sys::can_map(room * size_of::<PlacedBlock>()) {
            return Err("there is no memory for it");
        }
        let mut head = PageReading {
            time_ns: now_ns.saturating_sub(start_ns),
            knows_slabs: allocator::slabs::are_known(),
            addresses: (with_addresses || self.with_addresses).then(Vec::new),
            ..PageReading::default()
        };
        let mut blocks = Vec::with_capacity(room);
        sampled_blocks::each(&mut |address, is_of_pool, id| {
            let size = match ledger.block(id) {
                Some(block) => block.size,
                None if id <= session::inherited_ids() => {
                    let known = || allocator::block_sizes::of_block(address);
                    let Some(usable) = (!is_of_pool).then(known).flatten() else {
                        head.left_out += 1;
                        return true;
                    };
                    usable
                }
                // A block that came after the last event of the ledger.
                None => return true,
            };
            if blocks.len() >= room {
                head.is_cut = true;
                head.left_out += 1;
                return true;
            }
            blocks.push(PlacedBlock {
                address,
                size,
                id,
                is_of_pool,
            });
            true
        });
        blocks.sort_unstable();
        head.ran_ns = clock::thread_ns().saturating_sub(began_ns);
        self.current = Some(CurrentReading {
            blocks,
            done: 0,
            pages: BlockPages::default(),
            head,
        });
        Ok(())
    }

    /// Reads the next part. `None`: no reading goes on, or the page map cannot be read.
    fn next_part(&mut self) -> Option<PageReading> {
        let current = self.current.as_mut()?;
        let part = current.next_part();
        match &part {
            Some(part) if part.is_last => {
                self.share.ran(part.ran_ns, clock::now_ns());
                self.current = None;
            }
            Some(_) => {}
            None => self.current = None,
        }
        part
    }
}

impl CurrentReading {
    fn next_part(&mut self) -> Option<PageReading> {
        let began_ns = clock::thread_ns();
        let map = Pagemap::open()?;
        let (ran_ns, mut windows) = (self.head.ran_ns, 0u64);
        let mut read = |page: u64, states: &mut [PageState]| {
            map.states(page, states);
            windows += 1;
            // The end of the process waits for the log, and not for a reading.
            let is_late = || {
                ran_ns + clock::thread_ns().saturating_sub(began_ns) > MOST_NS
                    || shutdown::is_too_late_for(MOST_NS / 100)
            };
            !windows.is_multiple_of(WINDOWS) || !is_late()
        };
        let begin = self.done;
        let end = self.blocks.len().min(begin + PART);
        let mut blocks = Vec::with_capacity(end - begin);
        while self.done < end {
            let rest = &self.blocks[self.done..];
            let Some([resident, swapped]) = self.pages.touched(rest, &mut read) else {
                self.head.is_cut = true;
                self.head.left_out += rest.len() as u64;
                self.done = self.blocks.len();
                break;
            };
            let block = rest[0];
            blocks.push(PagesOfBlock {
                id: block.id,
                touch: Touch::of(block.size, resident, swapped),
                slab: (!block.is_of_pool)
                    .then(|| allocator::slabs::of_block(block.address))
                    .flatten()
                    .map(|(free, live)| Slab { free, live }),
            });
            self.done += 1;
        }
        self.head.ran_ns += clock::thread_ns().saturating_sub(began_ns);
        self.head.pages = self.pages.pages_read();
        let read = &self.blocks[begin..begin + blocks.len()];
        let addresses = || read.iter().map(|block| block.address).collect();
        let part = PageReading {
            is_last: self.done == self.blocks.len(),
            addresses: self.head.addresses.is_some().then(addresses),
            blocks,
            ..self.head.clone()
        };
        self.head.part += 1;
        Some(part)
    }
}

impl Writer {
    /// Takes up the wanted reading, or goes on with the current one. Returns true if there is more
    /// to do.
    pub(super) fn read_pages(&mut self, session: &Session) -> bool {
        if self.pages.is_wanted && !self.pages.is_reading() {
            self.drain_before_reading(session);
            let _ = self.begin_page_reading(MOST_BLOCKS, false); // nobody waits for it
        }
        if self.pages.is_reading() {
            self.write_page_part();
            return true;
        }
        false
    }

    /// Takes the events before a reading, so that it has what was allocated before the marker.
    fn drain_before_reading(&mut self, session: &Session) {
        for _ in 0..MOST_PARTS_BEFORE {
            if self.drain(session, PART) < PART {
                break;
            }
            if self.output.encoder.pending() >= FLUSH_BYTES {
                self.flush();
            }
        }
    }

    /// Returns true if a reading may be taken that nobody asks for.
    fn may_read_unasked(&self) -> bool {
        let live = self.ledger.as_ref().map(Ledger::live);
        live.is_some_and(|live| live + inherited() <= MOST_UNASKED)
    }

    /// Asks for a reading at a marker, unless readings take their share already.
    pub(super) fn want_page_reading(&mut self) {
        if self.may_read_unasked() {
            self.pages.want_within_share(clock::now_ns());
        }
    }

    /// Asks for a reading at a dump, which costs more.
    pub(super) fn want_page_reading_of_dump(&mut self) {
        self.pages.is_wanted |= self.may_read_unasked();
    }

    /// Takes a reading on request. Returns a line about it, or why there is none.
    pub(super) fn take_page_reading(
        &mut self,
        session: &Session,
        with_addresses: bool,
    ) -> Result<String, String> {
        self.ensure_account(session)?;
        self.drain_all(session);
        self.pages.current = None; // this reading is a later one
        self.begin_page_reading(MOST_BLOCKS, with_addresses)?;
        let mut blocks = 0;
        while let Some(part) = self.write_page_part() {
            blocks += part.blocks.len();
            if part.is_last {
                // Slabs that are pinned are compared with the memory of the same time.
                let _ = self.log_memory(Cause::Request);
                self.flush();
                return Ok(in_words(&part, blocks));
            }
            if request_word::is_asked(FINISH) {
                break;
            }
            // Hooks wait for room in their lanes if no event is taken.
            self.drain(session, PART);
            if self.output.encoder.pending() >= FLUSH_BYTES {
                self.flush();
            }
        }
        match request_word::is_asked(FINISH) {
            true => Err("the program is ending".into()),
            false => Err("/proc/self/pagemap cannot be read".into()),
        }
    }

    /// At the program's end: completes the reading, or takes the last regular one if there is time.
    pub(super) fn finish_page_reading(&mut self) {
        let is_regular = self.pages.interval_ns > 0 || self.pages.with_addresses;
        let is_last_due = self.pages.is_wanted || is_regular;
        if !self.pages.is_reading() && is_last_due {
            if !self.may_read_unasked() || shutdown::is_too_late_for(MOST_NS / 100) {
                return;
            }
            let _ = self.begin_page_reading(MOST_UNASKED, false); // nobody waits for it
        }
        // A reading without its last part counts for nothing.
        while !shutdown::is_too_late_for(MOST_NS / 100) && self.write_page_part().is_some() {}
    }

    fn begin_page_reading(&mut self, most: usize, with_addresses: bool) -> Result<(), String> {
        let start_ns = self.output.start_ns;
        let ledger = self.ledger.as_ref().ok_or("there is no account")?;
        let begun = self.pages.begin(ledger, start_ns, most, with_addresses);
        begun.map_err(str::to_owned)
    }

    /// Reads and logs the next part of the reading. `None`: there is no more.
    fn write_page_part(&mut self) -> Option<PageReading> {
        let record = Record::Pages(self.pages.next_part()?);
        self.output.encoder.record(&record);
        match record {
            Record::Pages(part) => Some(part),
            _ => None,
        }
    }
}

/// Returns the number of live sampled blocks from before the fork.
fn inherited() -> usize {
    let (ids, mut count) = (session::inherited_ids(), 0);
    if ids > 0 {
        sampled_blocks::each(&mut |_, _, id| {
            count += usize::from(id <= ids);
            true
        });
    }
    count
}

/// Describes a reading by its last part.
fn in_words(last: &PageReading, blocks: usize) -> String {
    let addresses = match last.addresses {
        Some(_) => " with their addresses",
        None => "",
    };
    let cut = match (last.left_out, last.is_cut) {
        (0, _) => String::new(),
        (n, true) => format!("; cut short: {n} blocks are left out"),
        (n, false) => format!("; {n} blocks from before the fork are left out"),
    };
    format!(
        "read {} pages of {blocks} sampled blocks{addresses} in {:.1} ms, as of {:.3} s{cut}",
        last.pages,
        last.ran_ns as f64 / 1e6,
        last.time_ns as f64 / 1e9
    )
}
