//! Process context: the attributes that OpenTelemetry's library publishes in the program's memory
//! (OTEP 4719), read by the writer.
//!
//! They are in a mapping of a known name, which begins with a header:
//!
//! ```text
//!   "OTEL_CTX" │ version: 4 │ length: 4 │ time of publication: 8 │ address of the message: 8
//! ```
//!
//! The program may change them at any time. It sets the time to 0 meanwhile, and to another time
//! afterwards.
//!
//! Danger: the memory is the program's. It is only read by the kernel (`checked_read`).

use heapprof_format::ProcessContext;

use crate::os::{clock, procfs};
use crate::unwind::checked_read::Memory;

/// Names of the mapping, with and without a file in memory.
const NAMES: [&str; 3] = [
    "[anon_shmem:OTEL_CTX]",
    "[anon:OTEL_CTX]",
    "/memfd:OTEL_CTX",
];
const SIGNATURE: u64 = u64::from_le_bytes(*b"OTEL_CTX");
const VERSION: u32 = 2;
/// Bytes of the header.
const HEADER: usize = 32;
/// Longest message that is read, in bytes.
const LONGEST: usize = 64 << 10;
/// Most of the list of mappings that is read, in bytes.
const LONGEST_LIST: usize = 4 << 20;
/// Least time between two readings for a name that is missing.
const WAIT_NS: u64 = 1_000_000_000;

/// The context as it was read last.
#[derive(Default)]
pub(crate) struct ReadContext {
    context: ProcessContext,
    next_ns: u64,
}

impl ReadContext {
    /// Reads the context anew, but not too often. Returns the attributes of its resource if these
    /// are others than before.
    pub(crate) fn refresh(&mut self) -> Option<&[(String, String)]> {
        let now_ns = clock::now_ns();
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns + WAIT_NS;
        let context = read()?;
        let is_other = context.resource != self.context.resource;
        self.context = context;
        is_other.then_some(&self.context.resource)
    }

    /// Returns true if it was never read.
    pub(crate) fn is_unread(&self) -> bool {
        self.next_ns == 0
    }

    /// Returns the name of a thread context's attribute.
    pub(crate) fn key(&self, index: u8) -> Option<&str> {
        let key = self.context.thread_keys.get(usize::from(index))?;
        Some(key)
    }
}

/// Finds and reads the context. `None`: there is none, or it is being changed.
fn read() -> Option<ProcessContext> {
    let list = procfs::mappings()?
        .read_up_to(LONGEST_LIST, 64 << 10)
        .ok()?;
    let begins = list.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        // A memory file's name is followed by " (deleted)".
        let has_name = NAMES.iter().any(|name| line.contains(name));
        let (begin, _) = line.split_once('-')?;
        has_name.then(|| u64::from_str_radix(begin, 16).ok())?
    });
    let memory = Memory::open();
    begins
        .take(MOST_TRIED)
        .find_map(|begin| read_at(&memory, begin))
}

/// Most mappings of the name that are tried.
const MOST_TRIED: usize = 8;

fn read_at(memory: &Memory, begin: u64) -> Option<ProcessContext> {
    let header = memory.bytes(begin, HEADER)?;
    let word = |at: usize| {
        let bytes = header.get(8 * at..8 * at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (signature, kind, published, message) = (word(0)?, word(1)?, word(2)?, word(3)?);
    let (version, length) = (kind as u32, (kind >> 32) as usize);
    if signature != SIGNATURE || version != VERSION || published == 0 || length > LONGEST {
        return None;
    }
    let message = memory.bytes(message, length)?;
    let is_unchanged = memory.bytes(begin, HEADER)? == header;
    is_unchanged.then(|| ProcessContext::read(&message))?
}
