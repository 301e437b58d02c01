//! `heapprof at --json`: the blocks that held addresses in JSON, described in `docs/json.md`.

use std::io::{self, Write};

use heapprof_symbolizer::{AddressBlock, HeldAddress, Json};
use serde::Serialize;

use crate::cli::commands::at::answer::Answer;
use crate::cli::commands::at::block::frames;
use crate::cli::output::document::Head;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    duration_ns: u64,
    readings: u64,
    first_reading_ns: u64,
    last_reading_ns: u64,
    has_all_blocks: bool,
    addresses: Vec<Address<'a>>,
    limits: Vec<String>,
    caveats: Vec<String>,
}

#[derive(Serialize)]
struct Address<'a> {
    address: String,
    blocks: Vec<Block>,
    below: Option<Block>,
    above: Option<Block>,
    slab: Option<Slab>,
    module: Option<&'a str>,
}

#[derive(Serialize)]
struct Block {
    address: String,
    /// Offset of the wanted address in the block.
    offset: i128,
    size_bytes: u64,
    usable_bytes: u64,
    allocated_ns: u64,
    thread: String,
    inherited: bool,
    freed_ns: Option<u64>,
    freed_by: Option<String>,
    age_ns: u64,
    first_read_ns: u64,
    last_read_ns: u64,
    stack: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    function: String,
    file: Option<String>,
    line: Option<u32>,
    module: Option<String>,
}

#[derive(Serialize)]
struct Slab {
    address: String,
    block_bytes: u64,
    free: u32,
    live: u32,
}

/// Writes the document.
pub(super) fn write(answer: &Answer<'_>, out: &mut impl Write) -> io::Result<()> {
    let profile = answer.profile;
    let document = Document {
        head: Head::of(profile),
        duration_ns: profile.run.duration_ns,
        readings: answer.found.readings,
        first_reading_ns: answer.found.first_ns,
        last_reading_ns: answer.read_ns(),
        has_all_blocks: answer.has_all,
        addresses: answer.addresses().map(|it| address(answer, it)).collect(),
        limits: answer.limits(),
        caveats: profile.conditions(),
    };
    Json::Compact.write(&document, out)
}

fn address<'a>(answer: &Answer<'a>, held: &HeldAddress) -> Address<'a> {
    let block = |it: &AddressBlock| block(answer, held.address, it);
    // The nearest ones are asked for where no block held it.
    let is_free = held.blocks.is_empty();
    let slab = held.slab_place().filter(|_| is_free);
    Address {
        address: hex(held.address),
        blocks: held.blocks.iter().map(block).collect(),
        below: held.below.as_ref().filter(|_| is_free).map(block),
        above: held.above.as_ref().filter(|_| is_free).map(block),
        slab: slab.map(|place| Slab {
            address: hex(place.address),
            block_bytes: place.size,
            free: place.free,
            live: place.live,
        }),
        module: answer.module(held.address).filter(|_| is_free),
    }
}

fn block(answer: &Answer<'_>, address: u64, block: &AddressBlock) -> Block {
    let profile = answer.profile;
    let frames = frames(profile, answer.symbols, block).into_iter();
    let freed_by = block.freed.map(|(_, thread)| profile.thread_name(thread));
    Block {
        address: hex(block.address),
        offset: i128::from(address) - i128::from(block.address),
        size_bytes: block.size,
        usable_bytes: block.size.saturating_add(block.slack),
        allocated_ns: block.time_ns,
        thread: profile.thread_name(block.thread),
        inherited: block.is_inherited,
        freed_ns: block.freed.map(|(time_ns, _)| time_ns),
        freed_by,
        age_ns: block.age_ns(profile.run.duration_ns),
        first_read_ns: block.seen_ns.0,
        last_read_ns: block.seen_ns.1,
        stack: frames
            .map(|frame| Frame {
                function: frame.function,
                file: frame.file,
                line: frame.line,
                module: frame.module,
            })
            .collect(),
    }
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}
