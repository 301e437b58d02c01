//! Candidates: paths at which the files of a module may be, the most likely first.
//!
//! Only paths are computed here, and no file is opened (links below a sysroot are followed).
//! [`files`](super::files) opens and verifies.

use super::debuginfod::Debuginfod;
use super::kept::KeptFile;
use super::known_modules::KnownModules;
use super::report::BuildId;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A module as it was recorded in the profiled process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleRef<'a> {
    /// The path as `/proc/PID/maps` had it: it may be `[vdso]`, or end in ` (deleted)`.
    pub path: &'a Path,
    /// The build-id read from the loaded module's notes; `None` if it had none.
    pub build_id: Option<&'a [u8]>,
}

/// Where to look for files, beside the places that the files themselves name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPath {
    /// Roots of detached debug information (`--debug-dir`).
    pub debug_dirs: Vec<PathBuf>,
    /// The root of the file system that the process saw (`--sysroot`). With one, a module is not
    /// looked for outside of it: this machine's own libc is not that machine's.
    pub sysroot: Option<PathBuf>,
    /// Folders laid out as pprof's `PPROF_BINARY_PATH`: `<build-id>/<name>`, `ab/cdef….debug`,
    /// `<name>` or the full path below the folder.
    pub binary_dirs: Vec<PathBuf>,
    /// The perf map of the process (`--perf-map`), in place of `/tmp/perf-PID.map`.
    pub perf_map: Option<PathBuf>,
    /// Servers to ask for what no place has (`--debuginfod`).
    pub debuginfod: Option<Debuginfod>,
    /// Names that were kept when the files were there: of the logs that are read.
    pub kept: Vec<Arc<KeptFile>>,
    /// Modules whose names were found for another log.
    pub known: Option<Arc<KnownModules>>,
}

impl Default for SearchPath {
    /// The places of a Linux system: `/usr/lib/debug`.
    fn default() -> Self {
        SearchPath {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            sysroot: None,
            binary_dirs: Vec::new(),
            perf_map: None,
            debuginfod: None,
            kept: Vec::new(),
            known: None,
        }
    }
}

/// The kind of a recorded path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recorded {
    /// A file, its path without ` (deleted)`.
    File { path: PathBuf, deleted: bool },
    /// The code that the kernel maps into each process.
    Vdso,
    /// Memory without a file: `[heap]`, `//anon`, a JIT's pages.
    NoFile,
}

pub(super) fn recorded(path: &Path) -> Recorded {
    let bytes = path.as_os_str().as_bytes();
    if matches!(bytes, b"[vdso]" | b"linux-vdso.so.1" | b"linux-gate.so.1") {
        return Recorded::Vdso;
    }
    if bytes.is_empty()
        || bytes.starts_with(b"[")
        || bytes.starts_with(b"//anon")
        || bytes.starts_with(b"/memfd:")
    {
        return Recorded::NoFile;
    }
    match bytes.strip_suffix(b" (deleted)") {
        Some(path) => Recorded::File {
            path: PathBuf::from(OsStr::from_bytes(path)),
            deleted: true,
        },
        None => Recorded::File {
            path: path.to_owned(),
            deleted: false,
        },
    }
}

/// Paths at which the module's own file may be. If the file is known to be deleted, the file at its
/// path on this machine is another one. That path is a candidate only if a build-id can verify it.
pub(super) fn binary(
    path: &Path,
    deleted: bool,
    build_id: Option<&BuildId>,
    search: &SearchPath,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    match &search.sysroot {
        Some(root) => found.push(followed_below(root, path)),
        None if deleted && build_id.is_none() => {}
        None => found.push(path.to_owned()),
    }
    let name = path.file_name();
    for dir in &search.binary_dirs {
        if let (Some(id), Some(name)) = (build_id, name) {
            found.push(dir.join(id.to_string()).join(name));
        }
        found.extend(name.map(|name| dir.join(name)));
        found.push(below(dir, path));
    }
    // Fedora and others link each binary from here, without `.debug`.
    found.extend(debug_dirs(search).filter_map(|dir| by_build_id(&dir, build_id?, "")));
    unique(found)
}

/// Paths at which debug information for a build-id may be.
pub(super) fn debug_by_build_id(id: &BuildId, search: &SearchPath) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in debug_dirs(search) {
        found.extend(by_build_id(&dir, id, ".debug"));
    }
    for dir in &search.binary_dirs {
        if let Some((head, tail)) = split_id(id) {
            found.push(dir.join(head).join(format!("{tail}.debug")));
        }
    }
    unique(found)
}

/// Paths that a `.gnu_debuglink` in `binary` may mean.
pub(super) fn debug_by_link(binary: &Path, link: &[u8], search: &SearchPath) -> Vec<PathBuf> {
    let link = OsStr::from_bytes(link);
    // It is a file name. One with a folder in it would make a hostile binary choose what we read.
    if Path::new(link).components().count() != 1 || Path::new(link).file_name() != Some(link) {
        return Vec::new();
    }
    let Some(folder) = binary.parent() else {
        return Vec::new();
    };
    let mut found = vec![folder.join(link), folder.join(".debug").join(link)];
    // The folder as the process saw it: /usr/lib, not /sysroot/usr/lib.
    let seen = search
        .sysroot
        .as_deref()
        .and_then(|root| folder.strip_prefix(root).ok())
        .unwrap_or(folder);
    found.extend(debug_dirs(search).map(|dir| below(&dir, seen).join(link)));
    found.retain(|path| path != binary);
    unique(found)
}

/// Paths that a `.gnu_debugaltlink` in `debug_file` may mean.
pub(super) fn supplementary(
    debug_file: &Path,
    link: &[u8],
    id: &BuildId,
    search: &SearchPath,
) -> Vec<PathBuf> {
    let link = Path::new(OsStr::from_bytes(link));
    let mut found = Vec::new();
    if link.is_absolute() {
        if let Some(root) = &search.sysroot {
            found.push(below(root, link));
        }
        found.push(link.to_owned());
    } else {
        // Relative to where the file really is: Debian's are reached over links in .build-id/.
        let real = debug_file
            .canonicalize()
            .unwrap_or_else(|_| debug_file.to_owned());
        found.extend(real.parent().map(|folder| folder.join(link)));
    }
    for dir in debug_dirs(search) {
        found.extend(link.file_name().map(|name| dir.join(".dwz").join(name)));
        found.extend(by_build_id(&dir, id, ".debug"));
    }
    unique(found)
}

/// Paths at which the split DWARF package of a binary may be.
pub(super) fn package<'a>(files: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in files {
        found.push(with_suffix(file, ".dwp"));
        if file
            .extension()
            .is_some_and(|extension| extension == "debug")
        {
            found.push(file.with_extension("dwp"));
        }
    }
    unique(found)
}

/// Paths at which the `.dwo` of one compilation unit may be.
pub(super) fn split_unit(
    binary: &Path,
    comp_dir: Option<&[u8]>,
    dwo: &[u8],
    search: &SearchPath,
) -> Vec<PathBuf> {
    let dwo = Path::new(OsStr::from_bytes(dwo));
    let stated = match comp_dir {
        Some(dir) => Path::new(OsStr::from_bytes(dir)).join(dwo),
        None => dwo.to_owned(),
    };
    let mut found = Vec::new();
    if let Some(root) = &search.sysroot {
        found.push(below(root, &stated));
    }
    found.push(stated);
    // A build folder that was moved as a whole.
    if let Some(folder) = binary.parent() {
        if dwo.is_relative() {
            found.push(folder.join(dwo));
        }
        found.extend(dwo.file_name().map(|name| folder.join(name)));
    }
    unique(found)
}

/// Each debug folder, first below the sysroot, then as given.
fn debug_dirs(search: &SearchPath) -> impl Iterator<Item = PathBuf> + '_ {
    let in_root = search
        .sysroot
        .iter()
        .flat_map(|root| search.debug_dirs.iter().map(|dir| below(root, dir)));
    in_root.chain(search.debug_dirs.iter().cloned())
}

/// `root` with `path` below it, and never beside it: `..` cannot climb out.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    let mut joined = root.to_owned();
    for component in path.components() {
        match component {
            Component::Normal(name) => joined.push(name),
            Component::ParentDir if joined.as_path() != root => {
                joined.pop();
            }
            _ => {}
        }
    }
    joined
}

/// The same, with links followed as the process saw them: one that is absolute
/// (`/etc/alternatives`) leads to a place below `root`, and not to this machine's own.
fn followed_below(root: &Path, path: &Path) -> PathBuf {
    /// As many as the kernel follows.
    const MOST_LINKS: u32 = 40;
    let names = |path: &Path| -> Vec<OsString> {
        let parts = path.components().rev();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut joined, mut rest, mut links) = (root.to_owned(), names(path), 0);
    while let Some(name) = rest.pop() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(name)) => joined.push(name),
            Some(Component::ParentDir) if joined.as_path() != root => {
                joined.pop();
                continue;
            }
            _ => continue,
        }
        let Ok(target) = std::fs::read_link(&joined) else {
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return below(root, path);
        }
        joined.pop();
        if target.is_absolute() {
            joined = root.to_owned();
        }
        rest.extend(names(&target));
    }
    joined
}

fn by_build_id(debug_dir: &Path, id: &BuildId, suffix: &str) -> Option<PathBuf> {
    let (head, tail) = split_id(id)?;
    Some(
        debug_dir
            .join(".build-id")
            .join(head)
            .join(format!("{tail}{suffix}")),
    )
}

/// `ab`, `cdef…`
fn split_id(id: &BuildId) -> Option<(String, String)> {
    let hex = id.to_string();
    (hex.len() > 2).then(|| (hex[..2].to_owned(), hex[2..].to_owned()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn unique(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut known = HashSet::with_capacity(paths.len());
    paths.retain(|path| known.insert(path.clone()));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> BuildId {
        BuildId([0xab, 0xcd, 0xef].into())
    }

    #[test]
    fn a_debug_link_is_sought_beside_the_binary_then_in_the_debug_folders() {
        let found = debug_by_link(
            Path::new("/usr/lib/libx.so"),
            b"libx.debug",
            &SearchPath::default(),
        );
        let expected = [
            "/usr/lib/libx.debug",
            "/usr/lib/.debug/libx.debug",
            "/usr/lib/debug/usr/lib/libx.debug",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn a_debug_link_cannot_name_a_folder() {
        for link in [&b"../../etc/passwd"[..], b"/etc/passwd", b"..", b"", b"a/b"] {
            assert!(
                debug_by_link(Path::new("/usr/lib/libx.so"), link, &SearchPath::default())
                    .is_empty()
            );
        }
    }

    #[test]
    fn with_a_sysroot_this_machines_own_file_is_never_taken() {
        let search = SearchPath {
            sysroot: Some("/root-of-arm".into()),
            ..SearchPath::default()
        };
        let found = binary(
            Path::new("/usr/lib/../lib/libx.so"),
            false,
            Some(&id()),
            &search,
        );
        assert_eq!(found[0], Path::new("/root-of-arm/usr/lib/libx.so"));
        assert!(!found.contains(&PathBuf::from("/usr/lib/libx.so")));
        let climbing = binary(Path::new("/../../etc/passwd"), false, None, &search);
        assert_eq!(climbing[0], Path::new("/root-of-arm/etc/passwd"));
    }

    #[test]
    fn recorded_paths_are_told_apart() {
        let file = |path: &str, deleted| Recorded::File {
            path: path.into(),
            deleted,
        };
        assert_eq!(
            recorded(Path::new("/bin/x (deleted)")),
            file("/bin/x", true)
        );
        assert_eq!(recorded(Path::new("/bin/x")), file("/bin/x", false));
        assert_eq!(recorded(Path::new("[vdso]")), Recorded::Vdso);
        assert_eq!(recorded(Path::new("[heap]")), Recorded::NoFile);
        assert_eq!(recorded(Path::new("")), Recorded::NoFile);
    }

    #[test]
    fn pprofs_layouts_are_known() {
        let search = SearchPath {
            binary_dirs: vec!["/p".into()],
            ..SearchPath::default()
        };
        let found = binary(Path::new("/usr/bin/x"), false, Some(&id()), &search);
        for expected in [
            "/p/abcdef/x",
            "/p/x",
            "/p/usr/bin/x",
            "/usr/lib/debug/.build-id/ab/cdef",
        ] {
            assert!(
                found.contains(&PathBuf::from(expected)),
                "{expected} in {found:?}"
            );
        }
        assert!(debug_by_build_id(&id(), &search).contains(&PathBuf::from("/p/ab/cdef.debug")));
    }
}
