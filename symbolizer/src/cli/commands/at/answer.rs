//! The answer in words: for each address, the blocks that held it, or what is near it.

use std::io::{self, Write};

use heapprof_symbolizer::{
    AddressBlock, Count, HeldAddress, HeldAddresses, Printable, Profile, Symbols,
};

use crate::cli::commands::at::block::{BlockText, INDENT, seconds};
use crate::cli::output::colour::{self, TextStyle};
use crate::cli::output::heading::describe_precision;
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// The written answer.
pub(super) struct Answer<'a> {
    pub(super) profile: &'a Profile,
    pub(super) symbols: &'a Symbols,
    pub(super) found: &'a HeldAddresses,
    /// The addresses, in the order in which they were given.
    pub(super) wanted: &'a [u64],
    /// True if an address that is in no block of a reading was in no block at that time.
    pub(super) has_all: bool,
}

impl<'a> Answer<'a> {
    /// The answers, in the order in which they were asked for.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &'a HeldAddress> {
        let all = &self.found.addresses;
        let of = |wanted: &u64| all.binary_search_by_key(wanted, |it| it.address).ok();
        self.wanted.iter().filter_map(move |it| all.get(of(it)?))
    }

    /// The time of the last reading.
    pub(super) fn read_ns(&self) -> u64 {
        self.found.last.map_or(0, |last| last.time_ns)
    }

    /// The name of the module that has the address, at the last reading.
    pub(super) fn module(&self, address: u64) -> Option<&'a str> {
        let place = self.profile.place(address, self.read_ns());
        let module = self.profile.module_of(place)?;
        Some(&module.path)
    }

    /// The limits of the answer.
    pub(super) fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if !self.has_all {
            limits.push(match self.found.is_partial {
                true => {
                    "blocks are missing from the readings: another one may have held an address"
                        .into()
                }
                false => format!(
                    "not every block is recorded ({}): another block may have held an address",
                    describe_precision(self.profile)
                ),
            });
        }
        limits.push("a block that came and went between two readings is not found".to_owned());
        limits
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let line = format!(
            "{}: {}; {}",
            Printable(&self.profile.run.titled_name()),
            describe_precision(self.profile),
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
        writeln!(out, "{}", TextStyle::Heading.paint(&head, colour::is_on()))?;
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

    /// The neighbours of an address that no block held.
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
fn block_head(address: u64, block: &AddressBlock) -> String {
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
