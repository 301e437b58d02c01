//! Bundle: a profile with the binaries and debug files that name its addresses, in one tar file.
//!
//! ```text
//! run.heaplog                     first, under its own name: what the bundle is about
//! 3f2a…/server                    a binary, by build-id     ┐ as in PPROF_BINARY_PATH
//! 3f/2a….debug                    its debug information     ┘
//! usr/lib/libold.so               a binary without a build-id, by its path
//! .build-id/77/01….debug          what several debug files share (dwz)
//! build/obj/a.dwo                 split debug information, by its path
//! tmp/perf-77.map                 names of code made at run time
//! run.heaplog.names               names that were kept beside the log, if its files lack any
//! ```
//!
//! It holds only files that names were taken from. The same profile and files make the same bytes:
//! members are sorted, and times and owners are zero. When a bundle is read, names come from it
//! alone.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heapprof_format::FileStamp;

use crate::model::profile::Profile;
use crate::naming::symbols::Symbols;
use crate::resolve::{BuildId, KeptNames, ModuleReport, Outcome, Role, Usable, perf_map};

/// Why a bundle could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file that names were taken from is not there any more.
    #[error("cannot read {} again: {why}", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The output.
    #[error("cannot write the bundle")]
    Write(#[source] io::Error),
}

/// The content of a bundle.
#[derive(Debug, Default)]
pub struct Bundled {
    /// Names and sizes of its members.
    pub members: Vec<(String, u64)>,
    /// Files without a build-id that gave names, but are not known to be the files that ran. They
    /// are not in the bundle: an input can name any file of the machine, a private one, too.
    pub left_out: Vec<PathBuf>,
}

/// Writes the bundle of an input's bytes, called `name` in it, whose profile and names are these.
///
/// # Errors
/// When a file is gone since names were taken from it, and those of `out`.
pub fn write_bundle(
    name: &str,
    input: &[u8],
    profile: &Profile,
    symbols: &Symbols,
    out: &mut impl Write,
) -> Result<Bundled, BundleError> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut bundled = Bundled::default();
    for (&module, report) in symbols.reports() {
        let stamp = profile.modules.get(module as usize).and_then(|it| it.stamp);
        if let Some(path) = unknown_binary(report, stamp, symbols)? {
            bundled.left_out.push(path);
            continue;
        }
        for (path, member) in members(report, symbols)? {
            files.entry(member).or_insert(path);
        }
    }
    let contents = &mut bundled.members;
    let mut builder = tar::Builder::new(out);
    // With it, `name` cannot be taken for a binary's.
    let name = name.rsplit('/').next().unwrap_or(name);
    append(&mut builder, name, input).map_err(BundleError::Write)?;
    contents.push((name.to_owned(), input.len() as u64));
    for (member, path) in &files {
        let file = open(path)?;
        append(&mut builder, member, file.data()).map_err(BundleError::Write)?;
        contents.push((member.clone(), file.data().len() as u64));
    }
    let maps = symbols.perf_map().map(|report| &report.used);
    for (pid, path) in maps.into_iter().flatten() {
        let map = perf_map::read_again(path).map_err(|why| BundleError::Gone {
            path: path.into(),
            why,
        })?;
        let member = format!("tmp/perf-{pid}.map");
        append(&mut builder, &member, &map).map_err(BundleError::Write)?;
        contents.push((member, map.len() as u64));
    }
    let are_kept = (symbols.reports().values())
        .any(|report| report.opened().any(|(_, role)| role == Role::KeptNames));
    if are_kept {
        let mut names = KeptNames::default();
        symbols.keep_in(profile, &mut names);
        let (member, bytes) = (KeptNames::file_of(name), names.encode());
        append(&mut builder, &member, &bytes).map_err(BundleError::Write)?;
        contents.push((member, bytes.len() as u64));
    }
    builder.finish().map_err(BundleError::Write)?;
    Ok(bundled)
}

fn append(builder: &mut tar::Builder<impl Write>, name: &str, data: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    // A log is its owner's; unpacked, too.
    header.set_mode(0o600);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(tar::EntryType::Regular);
    builder.append_data(&mut header, name, data)
}

/// Returns the module's own file if it gave names, but nothing shows that it is the file that ran:
/// no build-id, no stamp, no folder that the user named.
fn unknown_binary(
    report: &ModuleReport,
    stamp: Option<FileStamp>,
    symbols: &Symbols,
) -> Result<Option<PathBuf>, BundleError> {
    let binary = report.tried.iter().find_map(|(path, outcome)| {
        (*outcome == Outcome::Used(Role::Binary)).then_some(path.as_path())
    });
    let Some(path) = binary.filter(|_| report.build_id.is_none()) else {
        return Ok(None);
    };
    if symbols.is_given(path) {
        return Ok(None);
    }
    let file = open(path)?;
    let is_known = stamp.is_some_and(|stamp| file.has_stamp(&stamp));
    Ok((!is_known).then(|| path.to_owned()))
}

/// The files that a module's names came from, and what they are called in the bundle.
fn members(
    report: &ModuleReport,
    symbols: &Symbols,
) -> Result<Vec<(PathBuf, String)>, BundleError> {
    let used = |wanted: Role| {
        report.tried.iter().filter_map(move |(path, outcome)| {
            (*outcome == Outcome::Used(wanted)).then_some(path.as_path())
        })
    };
    let mut members = Vec::new();
    let binary = used(Role::Binary).next();
    let binary_member = binary_member(report);
    if let Some(path) = binary {
        let member = match &report.build_id {
            Some(id) if path == Path::new(Usable::OWN_VDSO) || is_debug_name(path, id) => {
                debug_member(id)
            }
            _ => binary_member.clone(),
        };
        members.push((path.to_owned(), member));
    }
    let folder = |member: &str| match member.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/"),
        None => String::new(),
    };
    let file_name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    for path in used(Role::DebugFile) {
        let member = match open(path)?.build_id() {
            Some(id) => debug_member(&id),
            None => format!("{}{}", folder(&binary_member), file_name(path)),
        };
        members.push((path.to_owned(), member));
    }
    for path in used(Role::Supplementary) {
        if let Some(id) = open(path)?.build_id() {
            members.push((path.to_owned(), format!(".build-id/{}", debug_member(&id))));
        }
    }
    for path in used(Role::Package) {
        members.push((path.to_owned(), format!("{binary_member}.dwp")));
    }
    for path in used(Role::SplitUnit) {
        members.push((path.to_owned(), without_root(symbols.as_seen(path))));
        let beside = binary.and_then(Path::parent);
        if let Some(below) = beside.and_then(|folder| path.strip_prefix(folder).ok()) {
            let member = format!("{}{}", folder(&binary_member), below.display());
            members.push((path.to_owned(), member));
        }
    }
    Ok(members)
}

/// `<build-id>/<name>`, or the whole path without its root.
fn binary_member(report: &ModuleReport) -> String {
    let path = report.path.to_string_lossy();
    let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
    match &report.build_id {
        Some(id) => format!("{id}/{}", path.rsplit('/').next().unwrap_or(path)),
        None => without_root(Path::new(path)),
    }
}

fn debug_member(id: &BuildId) -> String {
    let id = id.to_string();
    let (head, tail) = id.split_at_checked(2).unwrap_or((&id, ""));
    format!("{head}/{tail}.debug")
}

fn is_debug_name(path: &Path, id: &BuildId) -> bool {
    path.ends_with(debug_member(id))
}

/// Returns a name without its root, so that no name leads out of the archive, or to a folder.
fn without_root(path: &Path) -> String {
    let names = path.components().filter_map(|part| match part {
        std::path::Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    names.collect::<Vec<_>>().join("/")
}

fn open(path: &Path) -> Result<Usable, BundleError> {
    Usable::open(path).map_err(|why| BundleError::Gone {
        path: path.into(),
        why,
    })
}
