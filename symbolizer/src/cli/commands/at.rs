//! `heapprof at`: says which block held an address.

mod answer;
mod block;
mod json;

use std::path::{Path, PathBuf};

use heapprof_symbolizer::control::Attached;
use heapprof_symbolizer::{HeldAddresses, Input, Profile, ViewError, note_life, search_addresses};

use crate::cli::commands::at::answer::Answer;
use crate::cli::inputs::process::{READ_ADDRESSES, log_of_named};
use crate::cli::options::address::{self, Addresses};
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::notes::{note_what_is_kept, note_what_is_wrong};
use crate::cli::output::progress::Progress;
use crate::cli::output::say;

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

    /// Print JSON
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
    input.note_damage(&mut profile.account);
    note_what_is_kept(&file, &profile);
    note_what_is_wrong(&file, &profile.account);
    if !found.are_known() {
        return Err(Failure::Unfulfilled(why_none(&file, &profile, &found)));
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
            "it has no complete reading of pages, because the process had no sample, ended too soon, \
             or could not read /proc/self/pagemap"
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
