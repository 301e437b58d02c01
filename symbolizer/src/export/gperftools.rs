//! gperftools format: the text that `google-pprof`, `jeprof` and `go tool pprof` open.
//!
//! With names in front, `google-pprof` and `jeprof` show it without the program at hand. In the
//! `--- symbol` section `google-pprof` looks up the address of a line, and `jeprof` the address
//! before it (the call). So each return address has two entries.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heapprof_format::{Dump, DumpLine, Sampling, Symbols as SymbolSection};

use crate::export::Options;
use crate::export::facts::facts;
use crate::model::metric::Numbers;
use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::symbols::Symbols;

/// Writes the profile as a dump with addresses. The metric does not matter: all four are in it.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    _symbols: &Symbols,
    _options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    write_dump(&dump(profile), out)
}

/// Writes the profile as a dump with names.
///
/// # Errors
/// Those of `out`.
pub fn write_symbolized(
    profile: &Profile,
    symbols: &Symbols,
    _options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let dump = Dump {
        symbols: Some(names(profile, symbols)),
        ..dump(profile)
    };
    write_dump(&dump, out)
}

fn write_dump(dump: &Dump, out: &mut impl Write) -> io::Result<()> {
    let mut bytes = Vec::new();
    dump.write(&mut bytes);
    out.write_all(&bytes)
}

fn dump(profile: &Profile) -> Dump {
    let line = |row: &heapprof_core::Row| {
        let numbers = Numbers::of(&row.totals);
        (!numbers.is_zero()).then(|| DumpLine {
            in_use_objects: numbers.in_use_objects,
            in_use_bytes: numbers.in_use_bytes,
            allocated_objects: numbers.allocated_objects,
            allocated_bytes: numbers.allocated_bytes,
            frames: frames(profile.stack_of(row)),
        })
    };
    Dump {
        sampling: Sampling::Unsampled,
        comments: facts(profile),
        lines: profile.rows.iter().filter_map(line).collect(),
        mappings: profile
            .modules
            .iter()
            .flat_map(|module| module.mappings())
            .collect(),
        ..Dump::default()
    }
}

/// The address that stands for a stack without any.
const NO_STACK: u64 = 0;

/// The addresses of a line. The perl readers pass over a line without one, and go shows it nowhere:
/// what a damaged log has no stack of would be missing from the totals of the first, and from the
/// tables of the other.
pub(super) fn frames(stack: &CallStack) -> Vec<u64> {
    match stack.frames.is_empty() {
        true => vec![NO_STACK],
        false => stack.as_dumped().collect(),
    }
}

fn names(profile: &Profile, symbols: &Symbols) -> SymbolSection {
    // An address that is a return address in one stack and an exact one in another can have one
    // name only: the return address is the usual case, and comes last.
    let mut keys: BTreeMap<u64, Place> = BTreeMap::new();
    for exact in [true, false] {
        for stack in &profile.stacks {
            let both = profile.places(stack).zip(stack.as_dumped()).enumerate();
            for (i, (place, dumped)) in both {
                if (i == 0) == exact {
                    keys.insert(dumped, place);
                    keys.insert(place.avma, place);
                }
            }
        }
    }
    let names = keys.into_iter().map(|(key, place)| {
        let outermost_first = symbols.frames(place).iter().rev();
        (
            key,
            outermost_first
                .map(|frame| symbols.function(profile, place, frame))
                .collect(),
        )
    });
    SymbolSection {
        binary: profile.run.program.clone(),
        names: names.collect(),
    }
}
