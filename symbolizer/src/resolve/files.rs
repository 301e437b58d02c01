//! Files: the files of one module, found, opened, and proven to be the ones that ran.
//!
//! A file with another build-id than the recorded one is never kept: a wrong name is worse than
//! none.

use super::debuginfod::Kind;
use super::elf::{ElfError, ElfFile};
use super::error_text::with_causes;
use super::locate::{self, Recorded, SearchPath};
use super::report::{BuildId, Identity, ModuleReport, Outcome, Reason, Role};
use super::vdso;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The files of one module, all verified, any of them possibly absent.
#[derive(Default)]
pub(super) struct Files {
    /// The module itself.
    pub(super) binary: Option<ElfFile>,
    /// Its detached debug information; of a program that was compiled without, what it has of
    /// symbols.
    pub(super) debug: Option<ElfFile>,
    /// The part that dwz moved out of the debug information.
    pub(super) supplementary: Option<ElfFile>,
    /// The package of split DWARF.
    pub(super) package: Option<ElfFile>,
    /// The content of `.gnu_debugdata`.
    pub(super) mini: Option<ElfFile>,
}

impl Files {
    /// Finds and opens what there is for the module that `report` is about, and writes down there
    /// how it went.
    pub(super) fn open(report: &mut ModuleReport, search: &SearchPath) -> Files {
        let mut files = Files::default();
        match locate::recorded(&report.path) {
            Recorded::NoFile => report.reasons.push(Reason::NoFile {
                recorded: report.path.clone(),
            }),
            Recorded::Vdso => files.open_vdso(report, search),
            Recorded::File { path, deleted } => {
                files.open_binary(&path, deleted, report, search);
                files.open_debug(report, search);
                files.fetch_binary(report, search);
                if files.dwarf_file().is_none() {
                    let build_id = files.build_id(report);
                    report.reasons.push(Reason::NoDebugInfo { path, build_id });
                }
                files.open_supplementary(report, search);
                files.open_package(report);
                files.open_mini(report);
            }
        }
        files
    }

    /// The file that has `.debug_info`.
    pub(super) fn dwarf_file(&self) -> Option<&ElfFile> {
        let mut files = [&self.debug, &self.binary].into_iter().flatten();
        files.find(|file| file.has_debug_info())
    }

    /// The files with symbol tables.
    pub(super) fn with_symbols(&self) -> impl Iterator<Item = &ElfFile> {
        [&self.mini, &self.debug, &self.binary]
            .into_iter()
            .flatten()
    }

    /// The recorded build-id; of an unverified module, what the file itself states.
    fn build_id(&self, report: &ModuleReport) -> Option<BuildId> {
        report
            .build_id
            .clone()
            .or_else(|| self.binary.as_ref()?.build_id())
    }

    fn open_vdso(&mut self, report: &mut ModuleReport, search: &SearchPath) {
        // Only an equal build-id can tell the running kernel's vDSO from another's.
        let Some(recorded) = report.build_id.clone() else {
            return report.reasons.push(Reason::Vdso);
        };
        if let Some(own) = vdso::own() {
            self.binary = accept(
                Ok(own),
                Path::new("[vdso] of this process"),
                Role::Binary,
                Some(&recorded),
                report,
            );
        }
        if self.binary.is_none() {
            let places = locate::debug_by_build_id(&recorded, search);
            self.binary = first_accepted(&places, Role::Binary, Some(&recorded), report)
                .or_else(|| fetched(&recorded, Kind::Debuginfo, Role::Binary, report, search));
        }
        match self.binary {
            Some(_) => report.identity = Identity::Verified,
            None => report.reasons.push(Reason::Vdso),
        }
    }

    fn open_binary(
        &mut self,
        path: &Path,
        deleted: bool,
        report: &mut ModuleReport,
        search: &SearchPath,
    ) {
        let recorded = report.build_id.clone();
        let places = locate::binary(path, deleted, recorded.as_ref(), search);
        self.binary = first_accepted(&places, Role::Binary, recorded.as_ref(), report);
        match (&self.binary, recorded) {
            (Some(_), Some(_)) => report.identity = Identity::Verified,
            (Some(binary), None) => {
                report.identity = Identity::Unverified;
                report.reasons.push(Reason::Unverified {
                    path: binary.path.clone(),
                });
            }
            (None, recorded) => {
                let replaced = report
                    .tried
                    .iter()
                    .find_map(|(path, outcome)| match outcome {
                        Outcome::BuildIdDiffers { found } => Some((path.clone(), found.clone())),
                        _ => None,
                    });
                report.reasons.push(match (replaced, recorded) {
                    (Some((path, found)), Some(recorded)) => Reason::BinaryReplaced {
                        path,
                        recorded,
                        found,
                    },
                    (_, build_id) => Reason::BinaryMissing {
                        path: path.to_owned(),
                        build_id,
                        deleted,
                    },
                });
            }
        }
    }

    /// Detached debug information, when the module has none in itself. Where there is none, a
    /// detached file with nothing but symbols is taken: what was stripped off a program that was
    /// compiled without `-g`.
    fn open_debug(&mut self, report: &mut ModuleReport, search: &SearchPath) {
        if self.binary.as_ref().is_some_and(ElfFile::has_debug_info) {
            return;
        }
        let build_id = self.build_id(report);
        let mut symbols = None;
        if let Some(binary) = &self.binary
            && let Some((link, crc)) = binary.debug_link()
        {
            let id = build_id.as_ref();
            self.debug = open_by_link(binary, &link, crc, id, report, search, &mut symbols);
        }
        if self.debug.is_none()
            && let Some(id) = &build_id
        {
            let places = locate::debug_by_build_id(id, search);
            self.debug = places.iter().find_map(|path| {
                let file = accept(ElfFile::open(path), path, Role::DebugFile, Some(id), report)?;
                with_debug_info(file, report, &mut symbols)
            });
        }
        if self.debug.is_none()
            && let Some(id) = &build_id
        {
            self.debug = fetched(id, Kind::Debuginfo, Role::DebugFile, report, search)
                .and_then(|file| with_debug_info(file, report, &mut symbols));
        }
        if self.debug.is_none()
            && let Some(file) = symbols
        {
            let tried = report.tried.iter_mut().rev();
            for (_, outcome) in tried.filter(|(path, _)| *path == file.path).take(1) {
                *outcome = Outcome::Used(Role::SymbolFile);
            }
            self.debug = Some(file);
        }
        if self.debug.is_some() && report.build_id.is_some() {
            report.identity = Identity::Verified;
        }
    }

    /// The module itself from a server, when neither it nor its debug information is anywhere: it
    /// may have symbols.
    fn fetch_binary(&mut self, report: &mut ModuleReport, search: &SearchPath) {
        if self.binary.is_some() || self.debug.is_some() {
            return;
        }
        let Some(id) = report.build_id.clone() else {
            return;
        };
        self.binary = fetched(&id, Kind::Executable, Role::Binary, report, search);
        if self.binary.is_some() {
            report.identity = Identity::Verified;
            let is_missing = |reason: &Reason| matches!(reason, Reason::BinaryMissing { .. });
            report.reasons.retain(|reason| !is_missing(reason));
        }
    }

    fn open_supplementary(&mut self, report: &mut ModuleReport, search: &SearchPath) {
        let Some(debug_file) = self.dwarf_file() else {
            return;
        };
        let Some((link, id)) = debug_file.debug_alt_link() else {
            return;
        };
        let places = locate::supplementary(&debug_file.path, &link, &id, search);
        let role = Role::Supplementary;
        self.supplementary = first_accepted(&places, role, Some(&id), report)
            .or_else(|| fetched(&id, Kind::Debuginfo, role, report, search));
        if self.supplementary.is_none() {
            let link = PathBuf::from(OsStr::from_bytes(&link));
            report
                .reasons
                .push(Reason::SupplementaryMissing { link, build_id: id });
        }
    }

    fn open_package(&mut self, report: &mut ModuleReport) {
        let beside = self
            .binary
            .iter()
            .chain(&self.debug)
            .map(|file| file.path.as_path());
        // A package has no build-id; each unit in it is found by its own 64-bit id.
        let places = locate::package(beside);
        self.package = places.iter().find_map(|path| match ElfFile::open(path) {
            // Most binaries have none, and nobody wants to read so.
            Err(ElfError::Missing) => None,
            opened => accept(opened, path, Role::Package, None, report),
        });
    }

    fn open_mini(&mut self, report: &mut ModuleReport) {
        let Some(binary) = &self.binary else { return };
        let path = binary.path.clone();
        self.mini = binary
            .mini_debug_info()
            .and_then(|opened| accept(opened, &path, Role::MiniDebugInfo, None, report));
    }
}

fn open_by_link(
    binary: &ElfFile,
    link: &[u8],
    crc: u32,
    build_id: Option<&BuildId>,
    report: &mut ModuleReport,
    search: &SearchPath,
    symbols: &mut Option<ElfFile>,
) -> Option<ElfFile> {
    // Where the file really is: /lib/libx.so.1 may be a link to /usr/lib/libx.so.1.2.
    let real = binary
        .path
        .canonicalize()
        .unwrap_or_else(|_| binary.path.clone());
    let mut places = locate::debug_by_link(&real, link, search);
    if real != binary.path {
        places.extend(locate::debug_by_link(&binary.path, link, search));
    }
    for path in &places {
        let Some(file) = accept(ElfFile::open(path), path, Role::DebugFile, build_id, report)
        else {
            continue;
        };
        let found = file.debug_link_crc();
        if found != crc {
            replace_last(
                report,
                Outcome::CrcDiffers {
                    expected: crc,
                    found,
                },
            );
            continue;
        }
        if let Some(file) = with_debug_info(file, report, symbols) {
            return Some(file);
        }
    }
    None
}

/// The file, if it has what it is wanted for. The first that has symbols at least is put aside.
fn with_debug_info(
    file: ElfFile,
    report: &mut ModuleReport,
    symbols: &mut Option<ElfFile>,
) -> Option<ElfFile> {
    if file.has_debug_info() {
        return Some(file);
    }
    replace_last(report, Outcome::NoDebugInfo);
    if symbols.is_none() && file.has_symbols() {
        *symbols = Some(file);
    }
    None
}

fn first_accepted(
    places: &[PathBuf],
    role: Role,
    build_id: Option<&BuildId>,
    report: &mut ModuleReport,
) -> Option<ElfFile> {
    places
        .iter()
        .find_map(|path| accept(ElfFile::open(path), path, role, build_id, report))
}

/// The file, if it could be opened and is the build that is wanted; the outcome goes into the
/// report.
fn accept(
    opened: Result<ElfFile, ElfError>,
    path: &Path,
    role: Role,
    build_id: Option<&BuildId>,
    report: &mut ModuleReport,
) -> Option<ElfFile> {
    let (outcome, file) = match opened {
        Err(ElfError::Missing) => (Outcome::Missing, None),
        Err(error) => (Outcome::Unusable(with_causes(&error)), None),
        Ok(file) => match (build_id, file.build_id()) {
            (Some(wanted), found) if found.as_ref() != Some(wanted) => {
                (Outcome::BuildIdDiffers { found }, None)
            }
            _ => (Outcome::Used(role), Some(file)),
        },
    };
    if let Some(why) = file.as_ref().and_then(ElfFile::unreadable) {
        report.reasons.push(Reason::Damaged {
            path: path.to_owned(),
            times: 1,
            example: why.to_string(),
        });
    }
    report.tried.push((path.to_owned(), outcome));
    file
}

/// From a server, if the user wants any to be asked; the outcomes go into the report.
fn fetched(
    id: &BuildId,
    kind: Kind,
    role: Role,
    report: &mut ModuleReport,
    search: &SearchPath,
) -> Option<ElfFile> {
    let servers = search.debuginfod.as_ref()?;
    let name = report.path.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    servers.fetch(id, kind, role, &name, &mut report.tried)
}

fn replace_last(report: &mut ModuleReport, outcome: Outcome) {
    if let Some(last) = report.tried.last_mut() {
        last.1 = outcome;
    }
}
