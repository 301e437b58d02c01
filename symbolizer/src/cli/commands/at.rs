//! `heapprof at`: says which block held an address.

mod block;
mod json;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::control::Attached;
use heapprof_symbolizer::{
    Count, HeldAddress, HeldAddresses, Input, Printable, Profile, Symbols, ViewError, note_life,
    search_addresses,
};

use crate::cli::commands::at::block::BlockText;
use crate::cli::inputs::process::{READ_ADDRESSES, log_of_named};
use crate::cli::options::address::{self, Addresses};
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::colour::{self, Look};
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::how_exact;
use crate::cli::output::notes::{note_what_is_kept, note_what_is_wrong};
use crate::cli::output::progress::Progress;
use crate::cli::output::say;
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// Say which block held an address, and who allocated and freed it
///
/// The address is one that a crash, a sanitizer or a debugger names. The log must be made with
/// HEAPPROF_ADDRESSES=1, and knows the blocks that were in use at a reading: HEAPPROF_PAGES=1 takes
/// one a second. A process that runs takes a reading at once. If no sampled block held the address,
/// the nearest ones are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Addresses in hexadecimal, with commas between them: 0x7f12a4c01040
    #[arg(value_name = "ADDRESS", value_parser = address::addresses, allow_hyphen_values = true)]
    addresses: Addresses,

    /// A record log (.heaplog), or the process id of a program that runs under heapprof
    #[arg(value_name = "LOG|PID")]
    source: PathBuf,

    /// JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    places: SymbolArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(word) = &args.addresses.assumed {
        say::note(&format_args!(
            "note: {word} is taken for hexadecimal, 0x{word}"
        ));
    }
    let file = match log_of_named(&args.source)? {
        Some((log, pid)) => {
            let answer = Attached::to(pid).and_then(|process| process.ask(READ_ADDRESSES));
            answer.map_err(|why| Failure::Refused { pid, why })?;
            log
        }
        None => args.source.clone(),
    };
    let input = Input::open(&file)?;
    let progress = Progress::bytes("reading", input.len());
    let found = search_addresses(input.log()?, &args.addresses.all, |at| progress.at(at));
    progress.finish();
    let (mut profile, found) = found.map_err(|error| input.view_error(ViewError::Read(error)))?;
    note_life(&mut profile.run);
    note_what_is_kept(&file, &profile);
    note_what_is_wrong(&file, &profile.account);
    if !found.are_known() {
        return Err(Failure::Asked(why_none(&file, &profile, &found)));
    }
    keep_stacks_of(&mut profile, &found);
    let symbols = args.places.symbols(&file, &profile)?;
    let answer = Answer {
        profile: &profile,
        symbols: &symbols,
        found: &found,
        wanted: &args.addresses.all,
        has_all: found.have_all_blocks(&profile),
    };
    Destination::Stdout.write(|out| match args.json {
        true => json::write(&answer, out),
        false => answer.write(out),
    })
}

/// Why a log cannot tell blocks by their addresses, and the way out.
fn why_none(file: &Path, profile: &Profile, found: &HeldAddresses) -> String {
    let settings = &profile.run.settings;
    let is_set = settings
        .iter()
        .any(|(name, _)| name == "HEAPPROF_ADDRESSES");
    let way_out = "record with HEAPPROF_ADDRESSES=1 and HEAPPROF_PAGES=1, which takes a reading each \
                   second, or ask a process that runs: heapprof at ADDRESS PID";
    let why = match (profile.run.is_joined, is_set, found.without) {
        (true, ..) => {
            return format!(
                "{}: it joins several processes, each with addresses of its own; give the log of one process",
                file.display()
            );
        }
        (_, true, _) => {
            "it has no complete reading of pages, because the process ended too soon or \
             /proc/self/pagemap could not be read"
        }
        (_, _, 0) => "it has no addresses, and no reading of pages that could have them",
        _ => "it has no addresses: its readings of pages were taken without",
    };
    format!("{}: {why}; {way_out}", file.display())
}

/// Takes the frames of all stacks but those of the answer, whose names alone are looked up.
fn keep_stacks_of(profile: &mut Profile, found: &HeldAddresses) {
    let mut is_kept = vec![false; profile.stacks.len()];
    for address in &found.addresses {
        let near = address.below.iter().chain(&address.above);
        for block in address.blocks.iter().chain(near) {
            if let Some(kept) = block.stack.and_then(|it| is_kept.get_mut(it as usize)) {
                *kept = true;
            }
        }
    }
    for (stack, is_kept) in profile.stacks.iter_mut().zip(is_kept) {
        if !is_kept {
            stack.frames.clear();
            stack.interrupted.clear();
        }
    }
}

/// What is written.
struct Answer<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    found: &'a HeldAddresses,
    /// The addresses, in the order in which they were given.
    wanted: &'a [u64],
    /// True if an address that is in no block of a reading was in no block at that time.
    has_all: bool,
}

impl<'a> Answer<'a> {
    /// The answers, in the order in which they were asked for.
    fn addresses(&self) -> impl Iterator<Item = &'a HeldAddress> {
        let all = &self.found.addresses;
        let of = |wanted: &u64| all.binary_search_by_key(wanted, |it| it.address).ok();
        self.wanted.iter().filter_map(move |it| all.get(of(it)?))
    }

    /// The time of the last reading.
    fn read_ns(&self) -> u64 {
        self.found.last.map_or(0, |last| last.time_ns)
    }

    /// The name of the module that has the address, at the last reading.
    fn module(&self, address: u64) -> Option<&'a str> {
        let place = self.profile.place(address, self.read_ns());
        let module = self.profile.module_of(place)?;
        Some(&module.path)
    }

    /// What the answer cannot say.
    fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if !self.has_all {
            limits.push(match self.found.is_partial {
                true => "readings leave blocks out: another block may have held an address".into(),
                false => format!(
                    "not every block is recorded ({}): another block may have held an address",
                    how_exact(self.profile)
                ),
            });
        }
        limits.push("a block that came and went between two readings is not found".to_owned());
        limits
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let line = format!(
            "{}: {}; {}",
            Printable(&self.profile.run.titled_name()),
            how_exact(self.profile),
            self.readings()
        );
        write_wrapped(&line, INDENT, stdout_width(), out)?;
        for address in self.addresses() {
            writeln!(out)?;
            self.address(address, out)?;
        }
        writeln!(out)?;
        let mut notes = self.limits();
        notes.extend(self.profile.conditions());
        for note in notes {
            write_wrapped(&Printable(&note).to_string(), INDENT, stdout_width(), out)?;
        }
        Ok(())
    }

    fn readings(&self) -> String {
        let (first, last) = (seconds(self.found.first_ns), seconds(self.read_ns()));
        match self.found.readings {
            0 => "part of a reading with addresses".to_owned(),
            1 => format!("one reading with addresses, at {last}"),
            many => format!("{} readings with addresses, {first} to {last}", Count(many)),
        }
    }

    fn address(&self, held: &HeldAddress, out: &mut impl Write) -> io::Result<()> {
        let what = match (held.blocks.len(), self.has_all) {
            (0, true) => "no block at a reading".to_owned(),
            (0, false) => "no sampled block at a reading".to_owned(),
            (1, _) => "a block held it".to_owned(),
            (many, _) => format!("{} blocks held it, the last one first", Count(many as u64)),
        };
        let head = format!("{:#x}: {what}", held.address);
        writeln!(out, "{}", Look::Heading.paint(&head, colour::is_on()))?;
        let text = BlockText {
            profile: self.profile,
            symbols: self.symbols,
            width: stdout_width(),
        };
        for (number, block) in held.blocks.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            text.write(&block_head(held.address, block), block, out)?;
        }
        if held.blocks.is_empty() {
            self.around(held, &text, out)?;
        }
        Ok(())
    }

    /// What is known of an address that no block held.
    fn around(
        &self,
        held: &HeldAddress,
        text: &BlockText<'_>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if let Some(module) = self.module(held.address) {
            let line = format!("  it is in {}, which is no heap", Printable(module));
            return write_wrapped(&line, INDENT, stdout_width(), out);
        }
        if let Some(place) = held.slab_place() {
            let line = format!(
                "  at {} it was in a slab of blocks of {} bytes, in the place from {:#x} on; {} places of the slab were \
                 free, and {} in use or in caches of threads",
                seconds(self.read_ns()),
                Count(place.size),
                place.address,
                Count(place.free.into()),
                Count(place.live.into()),
            );
            write_wrapped(&line, INDENT, stdout_width(), out)?;
        }
        if self.found.last.is_none() {
            let line = "  the nearest blocks are not known, because no reading is complete";
            return write_wrapped(line, INDENT, stdout_width(), out);
        }
        let none = |side: &str| {
            format!(
                "  no sampled block {side} it at {}",
                seconds(self.read_ns())
            )
        };
        match &held.below {
            Some(block) => {
                let bytes = held.address.saturating_sub(block.end());
                let head = format!("{} bytes behind the nearest block below", Count(bytes));
                text.write(&head, block, out)?;
            }
            None => writeln!(out, "{}", none("below"))?,
        }
        match &held.above {
            Some(block) => {
                let bytes = block.address.saturating_sub(held.address);
                let head = format!("{} bytes before the nearest block above", Count(bytes));
                text.write(&head, block, out)
            }
            None => writeln!(out, "{}", none("above")),
        }
    }
}

/// Where an address is in a block.
fn block_head(address: u64, block: &heapprof_symbolizer::AddressBlock) -> String {
    let offset = address.saturating_sub(block.address);
    let size = Count(block.size);
    match offset < block.size {
        true => format!("offset {} in a block of {size} bytes", Count(offset)),
        false => format!(
            "offset {} in a block of {size} bytes, behind these, in its {} bytes of slack",
            Count(offset),
            Count(block.slack)
        ),
    }
}

/// Where a line goes on that is too wide.
const INDENT: usize = 4;

/// A time since the start.
fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}
