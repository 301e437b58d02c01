//! Split DWARF: the unit of a skeleton, from a package (`.dwp`) or a file of its own (`.dwo`).
//!
//! Skeleton and unit have the same 64-bit id, which the compiler puts into both.

use super::{Dwarf, Problems, Slice};
use crate::resolve::elf::{ElfError, ElfFile};
use crate::resolve::error_text::with_causes;
use crate::resolve::locate::{self, SearchPath};
use crate::resolve::report::{ModuleReport, Outcome, Reason, Role};
use gimli::UnitRef;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

// Not `UnitRef`, which is invariant: a skeleton must be usable together with a shorter-lived split
// file.
type Unit<'d> = gimli::Unit<Slice<'d>>;

/// Outcomes that are told one by one; a build folder that is gone would fill the report otherwise.
const TOLD: usize = 16;

pub(super) struct Split<'m> {
    binary: Option<&'m Path>,
    package: Option<gimli::DwarfPackage<Slice<'m>>>,
    search: &'m SearchPath,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// The units that were read, by their ids.
    read: HashSet<u64>,
    tried: Vec<(PathBuf, Outcome)>,
    missing: u64,
    first_missing: Option<PathBuf>,
}

impl<'m> Split<'m> {
    pub(super) fn new(
        binary: Option<&'m Path>,
        package: Option<gimli::DwarfPackage<Slice<'m>>>,
        search: &'m SearchPath,
    ) -> Self {
        Split {
            binary,
            package,
            search,
            found: Mutex::default(),
        }
    }

    /// Returns true if the split unit of a skeleton is read for the first time: a hostile binary
    /// has many skeletons of one.
    pub(super) fn is_first(&self, skeleton: &Unit<'_>) -> bool {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        skeleton.dwo_id.is_some_and(|id| found.read.insert(id.0))
    }

    /// Calls `read` with the split unit of a skeleton; false if there is none to be found.
    pub(super) fn with_unit(
        &self,
        main: &Dwarf<'_>,
        skeleton: &Unit<'_>,
        problems: &Problems,
        mut read: impl FnMut(UnitRef<'_, Slice<'_>>),
    ) -> bool {
        let Some(id) = skeleton.dwo_id else {
            return false;
        };
        if let Some(package) = &self.package {
            match package.find_cu(id, main) {
                Ok(Some(dwarf)) => return read_unit(&dwarf, skeleton, &mut read),
                Ok(None) => {}
                Err(error) => problems.add(Path::new("the .dwp package"), &error),
            }
        }
        let name = skeleton
            .dwo_name()
            .ok()
            .flatten()
            .and_then(|name| main.attr_string(skeleton, name).ok());
        let Some(name) = name else { return false };
        let comp_dir = skeleton.comp_dir.map(|dir| dir.slice());
        let binary = self.binary.unwrap_or(Path::new(""));
        let places = locate::split_unit(binary, comp_dir, name.slice(), self.search);
        let mut outcomes = Vec::new();
        let done = places.iter().any(|path| {
            let (outcome, done) = match ElfFile::open(path) {
                Err(ElfError::Missing) => (Outcome::Missing, false),
                Err(error) => (Outcome::Unusable(with_causes(&error)), false),
                Ok(file) => match read_file(&file, main, skeleton, problems, &mut read) {
                    true => (Outcome::Used(Role::SplitUnit), true),
                    false => (Outcome::DwoIdDiffers, false),
                },
            };
            outcomes.push((path.clone(), outcome));
            done
        });
        self.note(outcomes, done, || OsStr::from_bytes(name.slice()).into());
        done
    }

    fn note(&self, outcomes: Vec<(PathBuf, Outcome)>, done: bool, name: impl FnOnce() -> PathBuf) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.tried.len() < TOLD {
            found.tried.extend(outcomes);
        }
        if !done {
            found.missing += 1;
            found.first_missing.get_or_insert_with(name);
        }
    }

    /// Adds what was found to the report.
    pub(super) fn report(self, report: &mut ModuleReport) {
        let found = self
            .found
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        report.tried.extend(found.tried);
        if let Some(example) = found.first_missing {
            report.reasons.push(Reason::SplitUnitsMissing {
                units: found.missing,
                example,
            });
        }
    }
}

fn read_file(
    file: &ElfFile,
    main: &Dwarf<'_>,
    skeleton: &Unit<'_>,
    problems: &Problems,
    read: &mut impl FnMut(UnitRef<'_, Slice<'_>>),
) -> bool {
    let endian = file.endian();
    let sections =
        match file.dwarf_sections(|id| id.dwo_name(), |error| problems.add(&file.path, &error)) {
            Ok(sections) => sections,
            Err(error) => {
                problems.add(&file.path, &error);
                return false;
            }
        };
    let mut dwarf = sections.borrow(|bytes| super::slice(bytes, endian));
    dwarf.make_dwo(main);
    read_unit(&dwarf, skeleton, read)
}

/// The unit with the skeleton's id: the first of a `.dwo`, but after type units before DWARF 5.
fn read_unit<'d>(
    dwarf: &Dwarf<'d>,
    skeleton: &Unit<'d>,
    read: &mut impl FnMut(UnitRef<'_, Slice<'_>>),
) -> bool {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(mut unit) = dwarf.unit(header) else {
            continue;
        };
        if unit.dwo_id == skeleton.dwo_id {
            unit.copy_relocated_attributes(skeleton);
            read(UnitRef::new(dwarf, &unit));
            return true;
        }
    }
    false
}
