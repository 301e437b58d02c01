//! Module report: which files gave a module's names, which were refused and why, and what the user
//! can do about missing names.
//!
//! It also counts how many addresses got a name from which source.

use super::frame::Frame;
use std::fmt;
use std::path::{Path, PathBuf};

/// A build-id: the bytes that the linker put into a binary to tell it from every other build.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildId(
    /// The bytes of the note, usually 20.
    pub Box<[u8]>,
);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The module's own file.
    Binary,
    /// Detached debug information (`.gnu_debuglink` or build-id).
    DebugFile,
    /// A detached file in which there are symbols alone: what was stripped off a program compiled
    /// without `-g`.
    SymbolFile,
    /// The dwz file that several debug files share (`.gnu_debugaltlink`).
    Supplementary,
    /// All split DWARF of a binary (`.dwp`).
    Package,
    /// The split DWARF of one compilation unit (`.dwo`).
    SplitUnit,
    /// The symbols inside `.gnu_debugdata`.
    MiniDebugInfo,
    /// The names of code made at run time.
    PerfMap,
    /// Names that were kept beside the log.
    KeptNames,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Binary => "the module itself",
            Role::DebugFile => "debug information",
            Role::SymbolFile => "symbols: it has no debug information",
            Role::Supplementary => "supplementary debug information (dwz)",
            Role::Package => "split debug information (.dwp)",
            Role::SplitUnit => "split debug information (.dwo)",
            Role::MiniDebugInfo => "symbols in .gnu_debugdata",
            Role::PerfMap => "names of code made at run time",
            Role::KeptNames => "names kept beside the log",
        })
    }
}

/// The result of trying a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is used.
    Used(Role),
    /// There is no such file.
    Missing,
    /// It is there and cannot be read: the error, with its causes.
    Unusable(String),
    /// It is another build: refused.
    BuildIdDiffers {
        /// The build-id in the file; `None` if it has none.
        found: Option<BuildId>,
    },
    /// It is not the file that `.gnu_debuglink` was made for: refused.
    CrcDiffers {
        /// The checksum in the link.
        expected: u32,
        /// The checksum of the file.
        found: u32,
    },
    /// It is the split DWARF of another compilation: refused.
    DwoIdDiffers,
    /// The right file, but without debug information.
    NoDebugInfo,
    /// A server was asked and sent it.
    Fetched {
        /// How many.
        bytes: u64,
    },
    /// A server was asked and does not have it.
    NotServed,
    /// No server had it when it was last asked, and so none was asked again.
    NotServedBefore {
        /// How long ago.
        seconds: u64,
    },
    /// A server was to be asked, and did not answer the question: why.
    NotFetched(String),
    /// In a folder where anybody may write, and another user's: refused.
    Foreign {
        /// The owner.
        uid: u32,
    },
    /// Written before the profiled process began, so by another one: refused.
    OlderThanRun,
}

impl Outcome {
    /// Returns true if a server said, now or before, that it does not have the file.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Outcome::NotServed | Outcome::NotServedBefore { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Used(role) => write!(f, "used as {role}"),
            Outcome::Missing => f.write_str("not there"),
            Outcome::Unusable(why) => f.write_str(why),
            Outcome::BuildIdDiffers { found: Some(found) } => {
                write!(f, "refused: another build ({found})")
            }
            Outcome::BuildIdDiffers { found: None } => {
                f.write_str("refused: has no build-id, the recorded module has")
            }
            Outcome::CrcDiffers { expected, found } => {
                write!(
                    f,
                    "refused: checksum {found:08x}, the link says {expected:08x}"
                )
            }
            Outcome::DwoIdDiffers => f.write_str("refused: belongs to another compilation"),
            Outcome::NoDebugInfo => f.write_str("has no debug information"),
            Outcome::Fetched { bytes } => write!(f, "fetched, {bytes} bytes"),
            Outcome::NotServed => f.write_str("the server does not have it (404)"),
            Outcome::NotServedBefore { seconds } => {
                write!(f, "no server had it {seconds} s ago; not asked again")
            }
            Outcome::NotFetched(why) => f.write_str(why),
            Outcome::Foreign { uid } => write!(
                f,
                "refused: belongs to user {uid}, neither to root nor to you (--perf-map insists)"
            ),
            Outcome::OlderThanRun => f.write_str(
                "refused: older than the process, so another one's (--perf-map insists)",
            ),
        }
    }
}

/// How sure it is that the files are those that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The build-id in the file is the one that was recorded.
    Verified,
    /// No build-id was recorded; the file at the recorded path was believed.
    Unverified,
    /// No file was used.
    NoFile,
}

/// Why names are missing or uncertain, each with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Memory that no file backs.
    NoFile {
        /// The path in the process's map.
        recorded: PathBuf,
    },
    /// The kernel's vDSO, and not the one that runs here.
    Vdso,
    /// The module's file is not there.
    BinaryMissing {
        /// The recorded path.
        path: PathBuf,
        /// The recorded build-id.
        build_id: Option<BuildId>,
        /// True if it was already deleted while the process ran.
        deleted: bool,
    },
    /// The file at the recorded path is another build.
    BinaryReplaced {
        /// Where it was looked for.
        path: PathBuf,
        /// The build-id of the file that ran.
        recorded: BuildId,
        /// The build-id of the file that is there now.
        found: Option<BuildId>,
    },
    /// The module has no build-id, so nothing shows that the file is the one that ran.
    Unverified {
        /// The file that was believed.
        path: PathBuf,
    },
    /// No debug information: names at best from the symbol table, no lines, no inlined functions.
    NoDebugInfo {
        /// The recorded path.
        path: PathBuf,
        /// The build-id to look for.
        build_id: Option<BuildId>,
    },
    /// Debug information refers to a dwz file that was not found.
    SupplementaryMissing {
        /// As the link has it.
        link: PathBuf,
        /// The build-id that file must have.
        build_id: BuildId,
    },
    /// Compilation units whose split DWARF was not found.
    SplitUnitsMissing {
        /// How many.
        units: u64,
        /// One of them.
        example: PathBuf,
    },
    /// Something in a file is damaged or not understood; what could be read was used.
    Damaged {
        /// The file.
        path: PathBuf,
        /// How many times.
        times: u64,
        /// The first, in words.
        example: String,
    },
}

impl Reason {
    fn is_about_missing_files(&self) -> bool {
        matches!(
            self,
            Reason::BinaryMissing { .. }
                | Reason::NoDebugInfo { .. }
                | Reason::SupplementaryMissing { .. }
                | Reason::SplitUnitsMissing { .. }
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoFile { recorded } if recorded.as_os_str().is_empty() => {
                f.write_str("anonymous memory (code made at run time?): no file holds its names")
            }
            Reason::NoFile { recorded } => {
                write!(f, "{}: no file holds its names", recorded.display())
            }
            Reason::Vdso => {
                f.write_str("the kernel's vDSO: named only on a machine that runs the same kernel")
            }
            Reason::BinaryMissing {
                path,
                build_id,
                deleted,
            } => {
                write!(f, "{} ", path.display())?;
                f.write_str(if *deleted {
                    "was deleted while the process ran and"
                } else {
                    ""
                })?;
                f.write_str(if *deleted {
                    " was not found"
                } else {
                    "was not found"
                })?;
                with_id(f, build_id.as_ref())?;
                f.write_str(": set --sysroot, or put a copy into a folder of PPROF_BINARY_PATH")
            }
            Reason::BinaryReplaced {
                path,
                recorded,
                found,
            } => {
                write!(
                    f,
                    "{} is another build than the one that ran (",
                    path.display()
                )?;
                match found {
                    Some(found) => write!(f, "build-id {found}, ran {recorded}")?,
                    None => write!(f, "no build-id, ran {recorded}")?,
                }
                f.write_str("): not used; put the old file into a folder of PPROF_BINARY_PATH, or its debug file into --debug-dir")
            }
            Reason::Unverified { path } => {
                write!(
                    f,
                    "{}: unverified, no build-id was recorded (link with -Wl,--build-id)",
                    path.display()
                )
            }
            Reason::NoDebugInfo { path, build_id } => {
                write!(f, "no debug information for {}", file_name(path).display())?;
                with_id(f, build_id.as_ref())?;
                write!(f, ": {}", how_to_get(path, build_id.as_ref()))
            }
            Reason::SupplementaryMissing { link, build_id } => {
                write!(
                    f,
                    "the debug information shares {} (build-id {build_id}), which was not found: \
                     install the rest of the debug package, or set --debug-dir",
                    link.display()
                )
            }
            Reason::SplitUnitsMissing { units, example } => {
                write!(
                    f,
                    "split debug information of {units} compilation units was not found (one: {}): \
                     keep the build folder, or make a .dwp beside the binary (dwp -e BINARY)",
                    example.display()
                )
            }
            Reason::Damaged {
                path,
                times,
                example,
            } => {
                write!(f, "{}: {example}", path.display())?;
                if *times > 1 {
                    write!(f, " (and {} more)", times - 1)
                } else {
                    Ok(())
                }
            }
        }
    }
}

fn with_id(f: &mut fmt::Formatter<'_>, id: Option<&BuildId>) -> fmt::Result {
    id.map_or(Ok(()), |id| write!(f, " (build-id {id})"))
}

fn file_name(path: &Path) -> &Path {
    path.file_name().map_or(path, Path::new)
}

/// The one thing to type. The packages named exist; for others the build-id finds the package.
fn how_to_get(path: &Path, build_id: Option<&BuildId>) -> String {
    let name = file_name(path).to_string_lossy();
    let is_system = ["/usr", "/lib", "/lib64", "/bin", "/sbin"]
        .iter()
        .any(|root| path.starts_with(root))
        && !path.starts_with("/usr/local");
    let is_glibc = [
        "libc.so.",
        "libc-",
        "libm.so.",
        "libmvec.so.",
        "libpthread.so.",
        "libpthread-",
        "libdl.so.",
        "librt.so.",
        "libresolv.so.",
        "ld-linux",
        "ld-2",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix));
    match (is_system, build_id) {
        (true, _) if is_glibc => {
            "apt install libc6-dbg (Debian, Ubuntu) or dnf debuginfo-install glibc (Fedora), or set --debug-dir".into()
        }
        (true, Some(id)) => format!(
            "install its -dbgsym or -debuginfo package (or --debuginfod: a server may have {id}), or set --debug-dir"
        ),
        (true, None) => "install its -dbgsym or -debuginfo package, or set --debug-dir".into(),
        (false, _) => "build it with -g (Rust: debug = 1 in the profile), keep the unstripped file, \
             or set --debug-dir to its detached debug information".into(),
    }
}

/// How many addresses got their names from what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quality {
    /// Different addresses asked for.
    pub asked: u64,
    /// With a function and, where the compiler recorded it, a file and a line, from DWARF.
    pub by_dwarf: u64,
    /// With a function name from a symbol table only.
    pub by_symbols: u64,
    /// Without any function name.
    pub unresolved: u64,
}

/// How much frames say of an address, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NamedParts {
    Nothing,
    Function,
    Line,
}

impl NamedParts {
    pub(super) fn of(frames: &[Frame]) -> NamedParts {
        match frames.last() {
            Some(physical) if physical.function.is_some() => {
                match frames.iter().any(|frame| frame.line.is_some()) {
                    true => NamedParts::Line,
                    false => NamedParts::Function,
                }
            }
            _ => NamedParts::Nothing,
        }
    }
}

impl Quality {
    /// Counts an address with other frames than it had.
    pub(super) fn replace(&mut self, before: &[Frame], after: &[Frame]) {
        let count = match NamedParts::of(before) {
            NamedParts::Nothing => &mut self.unresolved,
            NamedParts::Function if self.by_symbols > 0 => &mut self.by_symbols,
            _ => &mut self.by_dwarf,
        };
        *count = count.saturating_sub(1);
        *self.by(after) += 1;
    }

    /// Counts an address with these frames.
    pub(super) fn count(&mut self, frames: &[Frame]) {
        self.asked += 1;
        *self.by(frames) += 1;
    }

    /// The count that such frames belong to.
    fn by(&mut self, frames: &[Frame]) -> &mut u64 {
        match NamedParts::of(frames) {
            NamedParts::Nothing => &mut self.unresolved,
            NamedParts::Function => &mut self.by_symbols,
            NamedParts::Line => &mut self.by_dwarf,
        }
    }
}

/// The report on resolving one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleReport {
    /// The recorded path.
    pub path: PathBuf,
    /// The recorded build-id.
    pub build_id: Option<BuildId>,
    /// True if the files used are known to be those that ran.
    pub identity: Identity,
    /// Every file tried, in order, and what became of it. Split units: the first few of each
    /// outcome.
    pub tried: Vec<(PathBuf, Outcome)>,
    /// The quality of the names.
    pub quality: Quality,
    /// Why some are missing, and how to get them.
    pub reasons: Vec<Reason>,
    /// A function of an allocator that the module brings, if its symbols tell of one.
    pub allocator: Option<String>,
}

impl ModuleReport {
    pub(super) fn new(path: &Path, build_id: Option<BuildId>) -> Self {
        ModuleReport {
            path: path.to_owned(),
            build_id,
            identity: Identity::NoFile,
            tried: Vec::new(),
            quality: Quality::default(),
            reasons: Vec::new(),
            allocator: None,
        }
    }

    /// The files that were used.
    pub fn opened(&self) -> impl Iterator<Item = (&Path, Role)> {
        self.tried
            .iter()
            .filter_map(|(path, outcome)| match outcome {
                Outcome::Used(role) => Some((path.as_path(), *role)),
                _ => None,
            })
    }
}

impl fmt::Display for ModuleReport {
    /// A few lines for a person: the share of names, the files used or refused, the advice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quality {
            asked,
            by_dwarf,
            by_symbols,
            unresolved,
        } = self.quality;
        write!(f, "{}", self.path.display())?;
        with_id(f, self.build_id.as_ref())?;
        writeln!(
            f,
            ": {asked} addresses, {by_dwarf} by debug information, {by_symbols} by symbol table, {unresolved} unresolved"
        )?;
        for (path, outcome) in &self.tried {
            // Nothing being there is normal for most places: worth a line only when something is
            // missed.
            if *outcome != Outcome::Missing
                || self.reasons.iter().any(Reason::is_about_missing_files)
            {
                writeln!(f, "  {}: {outcome}", path.display())?;
            }
        }
        self.reasons
            .iter()
            .try_for_each(|reason| writeln!(f, "  {reason}"))
    }
}
