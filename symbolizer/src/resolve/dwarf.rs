//! DWARF frames: functions, what is inlined into them, files and lines.
//!
//! The addresses are known beforehand and sorted. So one thread reads each compilation unit that
//! has some of them once, from front to back, and keeps only what concerns these addresses:
//!
//! ```text
//!  svmas ──units──> (unit, its svmas) ──┬─ functions: chains of inlines ─┬─> Answer
//!          by range                     └─ lines: rows ──────────────────┘
//!
//!  functions: one walk over the unit's entries    lines: one run of its line program
//! ```
//!
//! Hostile input: every loop is over bytes of the file, and the depth of recursion is bounded.
//! Repeated reads (range lists, line programs, names) are paid from a budget in proportion to the
//! size of the file ([`Budget`]).

mod budget;
mod entry_names;
mod functions;
mod line_program;
mod pcs;
mod scopes;
mod split;
mod units;

use super::elf::ElfFile;
use super::error_text::with_causes;
use super::files::Files;
use super::frame::{Frame, Name};
use super::locate::SearchPath;
use super::names::Names;
use super::report::{ModuleReport, Reason};
use budget::Budget;
use entry_names::{OtherEntries, RawName};
use functions::Chains;
use gimli::{EndianSlice, RunTimeEndian, Section, UnitRef};
use rayon::prelude::*;
use split::Split;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use units::Units;

/// A function's name, shared by all frames that have it.
type Shared = Arc<Name>;
/// Bytes of a DWARF section. Borrowed and without reference counts: copying one is free, on any
/// thread.
type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;

/// DWARF's frames of one address.
#[derive(Default)]
pub(super) struct Answer {
    /// Innermost inlined function first, the physical function last.
    pub(super) frames: Vec<Frame>,
    /// The physical function has no linkage name in a language where names are mangled: what it is
    /// called in the source (`foo`). Its name is at best that with the scopes around it
    /// (`ns::foo`), and without arguments.
    pub(super) partial: Option<Shared>,
}

/// Errors in files that were otherwise useful. Equal errors are counted: a damaged file has
/// thousands.
#[derive(Default)]
struct Problems(Mutex<BTreeMap<PathBuf, (u64, String)>>);

impl Problems {
    fn add(&self, path: &Path, error: &dyn Error) {
        // Poisoning is harmless: the list is whole between any two statements.
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match list.get_mut(path) {
            Some((times, _)) => *times += 1,
            None => _ = list.insert(path.to_owned(), (1, with_causes(error))),
        }
    }

    fn into_reasons(self) -> impl Iterator<Item = Reason> {
        let list = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        list.into_iter()
            .map(|(path, (times, example))| Reason::Damaged {
                path,
                times,
                example,
            })
    }
}

/// An address may lie in the ranges of several units (one that covers more than its own code); this
/// many are asked before it counts as unknown.
const MOST_UNITS_AN_ADDRESS: usize = 16;

/// Returns DWARF's frames of each of the sorted `svmas`; none if there is no DWARF.
pub(super) fn resolve(
    files: &Files,
    svmas: &[u64],
    names: &Names,
    search: &SearchPath,
    report: &mut ModuleReport,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    answers.resize_with(svmas.len(), Answer::default);
    let Some(file) = files.dwarf_file().filter(|_| !svmas.is_empty()) else {
        return answers;
    };

    let problems = Problems::default();
    let sections = match file.dwarf_sections(
        |id| Some(id.name()),
        |error| problems.add(&file.path, &error),
    ) {
        Ok(sections) => sections,
        Err(error) => {
            problems.add(&file.path, &error);
            report.reasons.extend(problems.into_reasons());
            return answers;
        }
    };
    let sup_sections = files.supplementary.as_ref().and_then(|sup| {
        let loaded = sup.dwarf_sections(
            |id| Some(id.name()),
            |error| problems.add(&sup.path, &error),
        );
        loaded.map_err(|error| problems.add(&sup.path, &error)).ok()
    });
    let endian = file.endian();
    let mut dwarf = sections.borrow_with_sup(sup_sections.as_ref(), |bytes| slice(bytes, endian));
    // dwz and LTO let many units share one table; parse such a table once.
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);

    let package_sections = files.package.as_ref().and_then(|package| {
        let loaded = package.package_sections(|error| problems.add(&package.path, &error));
        loaded
            .map_err(|error| problems.add(&package.path, &error))
            .ok()
    });
    let package = package_sections.as_ref().and_then(|sections| {
        let parsed = sections.borrow(|bytes| slice(bytes, endian), Slice::new(&[], endian));
        let path = files
            .package
            .as_ref()
            .map_or(Path::new(""), |package| &package.path);
        parsed.map_err(|error| problems.add(path, &error)).ok()
    });
    let split = Split::new(
        files.binary.as_ref().map(|file| file.path.as_path()),
        package,
        search,
    );

    let budget = Budget::for_sections(&dwarf);
    let units = Units::read(&dwarf, &budget, |error| problems.add(&file.path, &error));
    let module = Module {
        file,
        path: &file.path,
        dwarf: &dwarf,
        units: &units,
        supplementary: dwarf.sup().map(|sup| (sup, Units::headers_only(sup))),
        split: &split,
        names,
        budget: &budget,
        problems: &problems,
    };
    module.answer_all(svmas, &mut answers);

    split.report(report);
    report.reasons.extend(problems.into_reasons());
    answers
}

fn slice(bytes: &[u8], endian: RunTimeEndian) -> Slice<'_> {
    Slice::new(bytes, endian)
}

/// The DWARF of one module, ready to be asked by many threads.
struct Module<'m, 'd> {
    file: &'m ElfFile,
    path: &'m Path,
    dwarf: &'m Dwarf<'d>,
    units: &'m Units<'d>,
    supplementary: Option<(&'m Dwarf<'d>, Units<'d>)>,
    split: &'m Split<'m>,
    names: &'m Names,
    budget: &'m Budget,
    problems: &'m Problems,
}

impl Module<'_, '_> {
    fn answer_all(&self, svmas: &[u64], answers: &mut [Answer]) {
        let mut unanswered: Vec<usize> = (0..svmas.len()).collect();
        for turn in 0..MOST_UNITS_AN_ADDRESS {
            // Each address with the next unit whose ranges have it, grouped by unit.
            let mut asked: Vec<(usize, usize)> = unanswered
                .iter()
                .filter_map(|&i| Some((self.units.covering(svmas[i]).nth(turn)?, i)))
                .collect();
            if asked.is_empty() {
                return;
            }
            asked.sort_unstable();
            let groups: Vec<&[(usize, usize)]> = asked.chunk_by(|a, b| a.0 == b.0).collect();
            let found: Vec<Vec<(usize, Answer)>> = groups
                .par_iter()
                .with_max_len(1)
                .map(|group| self.answer_unit(group[0].0, group.iter().map(|&(_, i)| i), svmas))
                .collect();
            for (i, answer) in found.into_iter().flatten() {
                answers[i] = answer;
            }
            unanswered.retain(|&i| answers[i].frames.is_empty());
        }
    }

    /// Reads one unit for the addresses (by their place in `svmas`) that may be its own.
    fn answer_unit(
        &self,
        unit: usize,
        asked: impl Iterator<Item = usize> + Clone,
        svmas: &[u64],
    ) -> Vec<(usize, Answer)> {
        let wanted: Vec<u64> = asked.clone().map(|i| svmas[i]).collect();
        let unit = match self.units.parse(unit, self.dwarf) {
            Ok(unit) => unit,
            Err(error) => {
                self.problems.add(self.path, &error);
                return Vec::new();
            }
        };
        let unit = UnitRef::new(self.dwarf, &unit);
        let rows = line_program::rows_of(unit, &wanted, self.budget).unwrap_or_else(|error| {
            self.problems.add(self.path, &error);
            vec![None; wanted.len()]
        });
        let chains = self.chains(unit, &wanted);
        let files = line_program::FileNames::new(unit, self.names);
        let answers = asked
            .zip(chains.into_answers(&rows, files))
            .filter(|(_, answer)| !answer.frames.is_empty())
            .collect();
        self.forget(unit);
        answers
    }

    /// Lets go of the pages of a unit that was read: its entries and its line program are most of
    /// what we touch.
    fn forget(&self, unit: UnitRef<'_, Slice<'_>>) {
        let Some(begin) = unit.header.debug_info_offset() else {
            return;
        };
        let info = self.dwarf.debug_info.reader().slice();
        let end = begin.0.saturating_add(unit.header.length_including_self());
        self.file.forget(info.get(begin.0..end).unwrap_or(&[]));
        if let Some(program) = &unit.line_program {
            self.file.forget(program.header().raw_program_buf().slice());
        }
    }

    fn chains(&self, unit: UnitRef<'_, Slice<'_>>, wanted: &[u64]) -> Chains {
        let mut chains = Chains::new(wanted.len());
        if unit.dwo_id.is_some() {
            let walked = self
                .split
                .with_unit(unit.dwarf, unit.unit, self.problems, |split_unit| {
                    // The budget was made without it: it is in another file.
                    if self.split.is_first(unit.unit) {
                        self.budget.add(split_unit.header.unit_length() as u64);
                    }
                    // Nothing in a .dwo refers to entries outside of it.
                    let walked = functions::walk(
                        split_unit,
                        wanted,
                        None,
                        self.names,
                        self.budget,
                        &mut chains,
                    );
                    walked.unwrap_or_else(|error| self.problems.add(self.path, &error));
                });
            if walked {
                return chains;
            }
            // The skeleton that stays in the binary may still know inlined functions
            // (-fsplit-dwarf-inlining).
        }
        let walked = functions::walk(
            unit,
            wanted,
            Some(self),
            self.names,
            self.budget,
            &mut chains,
        );
        walked.unwrap_or_else(|error| self.problems.add(self.path, &error));
        chains
    }
}

impl OtherEntries for Module<'_, '_> {
    fn name(&self, at: gimli::DebugInfoOffset, hops: u32) -> Option<RawName> {
        self.units
            .name_at(self.dwarf, at, self, self.names, self.budget, hops)
    }

    fn supplementary_name(&self, at: gimli::DebugInfoOffset, hops: u32) -> Option<RawName> {
        let (dwarf, units) = self.supplementary.as_ref()?;
        units.name_at(
            dwarf,
            at,
            &WithinSupplementary(self),
            self.names,
            self.budget,
            hops,
        )
    }
}

/// The view from inside the supplementary file: its references to "this file" mean itself.
struct WithinSupplementary<'a, 'm, 'd>(&'a Module<'m, 'd>);

impl OtherEntries for WithinSupplementary<'_, '_, '_> {
    fn name(&self, at: gimli::DebugInfoOffset, hops: u32) -> Option<RawName> {
        self.0.supplementary_name(at, hops)
    }

    fn supplementary_name(&self, _: gimli::DebugInfoOffset, _: u32) -> Option<RawName> {
        None
    }
}
