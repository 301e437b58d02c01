//! A block in words: where it is, who allocated and freed it, and its stack.

use std::io::{self, Write};

use heapprof_symbolizer::{
    AddressBlock, Count, Ending, Printable, Profile, Symbols, cut_front, cut_function,
};

use crate::cli::output::colour::{self, TextStyle};
use crate::cli::output::wrapped::write_wrapped;

/// How blocks are written.
pub(super) struct BlockText<'a> {
    pub(super) profile: &'a Profile,
    pub(super) symbols: &'a Symbols,
    pub(super) width: Option<usize>,
}

impl BlockText<'_> {
    /// Writes a block below a line that says what it is to the address.
    pub(super) fn write(
        &self,
        head: &str,
        block: &AddressBlock,
        out: &mut impl Write,
    ) -> io::Result<()> {
        for line in [
            head.to_owned(),
            place(block),
            self.birth(block),
            self.end(block),
        ] {
            let line = format!("  {}", Printable(&line));
            write_wrapped(&line, INDENT, self.width, out)?;
        }
        self.stack(block, out)
    }

    fn birth(&self, block: &AddressBlock) -> String {
        match block.is_inherited {
            true => "allocated before the fork, by the parent".into(),
            false => format!(
                "allocated at {} by {}",
                seconds(block.time_ns),
                self.profile.thread_name(block.thread)
            ),
        }
    }

    fn end(&self, block: &AddressBlock) -> String {
        let end_ns = self.profile.run.duration_ns;
        let age = match block.is_inherited {
            true => String::new(),
            false => format!(", {} old", seconds(block.age_ns(end_ns))),
        };
        let up_to = match self.profile.run.ending {
            Ending::Said(_) => "the end",
            _ => "the last record",
        };
        match block.freed {
            Some((time_ns, thread)) => format!(
                "freed at {} by {}{age}",
                seconds(time_ns),
                self.profile.thread_name(thread)
            ),
            None => format!("in use up to {up_to}, {}{age}", seconds(end_ns)),
        }
    }

    fn stack(&self, block: &AddressBlock, out: &mut impl Write) -> io::Result<()> {
        let frames = frames(self.profile, self.symbols, block);
        if frames.is_empty() {
            return writeln!(out, "    (no stack)");
        }
        for frame in frames {
            let room = self.width.unwrap_or(usize::MAX).saturating_sub(INDENT + 2);
            let place = Printable(&frame.place()).to_string();
            let function = Printable(&frame.function).to_string();
            let for_place = place.chars().count().min(LEAST_OF_PLACE);
            let function = cut_function(&function, room.saturating_sub(for_place));
            let place = cut_front(&place, room.saturating_sub(function.chars().count()));
            let name = TextStyle::Name.paint(&function, colour::is_on());
            let place = TextStyle::Aside.paint(&place, colour::is_on());
            writeln!(out, "{}", format!("    {name}  {place}").trim_end())?;
        }
        Ok(())
    }
}

/// Columns that the place of a frame keeps, beside a long function.
const LEAST_OF_PLACE: usize = 24;

fn place(block: &AddressBlock) -> String {
    let (first_ns, last_ns) = block.seen_ns;
    let read = match first_ns == last_ns {
        true => format!("in the reading at {}", seconds(first_ns)),
        false => format!(
            "in the readings from {} to {}",
            seconds(first_ns),
            seconds(last_ns)
        ),
    };
    format!(
        "{:#x} to {:#x}, {} bytes requested and {} usable, {read}",
        block.address,
        block.end(),
        Count(block.size),
        Count(block.size.saturating_add(block.slack))
    )
}

/// A frame of a block's stack.
pub(super) struct NamedFrame {
    pub(super) function: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) module: Option<String>,
}

impl NamedFrame {
    /// File and line, or else the module.
    fn place(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.clone(),
            _ => self.module.clone().unwrap_or_default(),
        }
    }
}

/// The frames of a block's stack, innermost first.
pub(super) fn frames(
    profile: &Profile,
    symbols: &Symbols,
    block: &AddressBlock,
) -> Vec<NamedFrame> {
    let stack = block.stack.and_then(|it| profile.stacks.get(it as usize));
    let places = stack.into_iter().flat_map(|stack| profile.places(stack));
    let named = places.flat_map(|place| {
        let module = profile.module_of(place).map(|module| module.path.clone());
        symbols.frames(place).iter().map(move |frame| NamedFrame {
            function: symbols.function(profile, place, frame),
            file: frame.file.as_deref().map(str::to_owned),
            line: frame.line,
            module: module.clone(),
        })
    });
    named.collect()
}

/// Where a line goes on that is too wide.
pub(super) const INDENT: usize = 4;

/// A time since the start.
pub(super) fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}
