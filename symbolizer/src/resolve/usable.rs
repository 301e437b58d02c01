//! Usable file: a file that names can be taken from, for callers outside `resolve` that need its
//! bytes.

use super::elf::ElfFile;
use super::error_text::with_causes;
use super::locate::{self, Recorded, SearchPath};
use super::report::BuildId;
use super::vdso;
use heapprof_format::FileStamp;
use std::path::Path;

/// An ELF file, opened.
pub(crate) struct Usable(ElfFile);

impl Usable {
    /// The path in reports of the vDSO that the kernel mapped into this process, which no file
    /// system has.
    pub(crate) const OWN_VDSO: &str = "[vdso] of this process";

    /// Opens a path as it stands in a report.
    pub(crate) fn open(path: &Path) -> Result<Usable, String> {
        if path == Path::new(Self::OWN_VDSO) {
            return vdso::own()
                .map(Usable)
                .ok_or_else(|| "it cannot be read".into());
        }
        ElfFile::open(path)
            .map(Usable)
            .map_err(|error| with_causes(&error))
    }

    /// The module's own file, where it is found; with a build-id, only that build.
    pub(crate) fn binary(
        path: &Path,
        build_id: Option<&[u8]>,
        search: &SearchPath,
    ) -> Option<Usable> {
        let Recorded::File { path, deleted } = locate::recorded(path) else {
            return None;
        };
        let id = build_id.map(|id| BuildId(id.into()));
        let places = locate::binary(&path, deleted, id.as_ref(), search);
        places.iter().find_map(|path| {
            let file = ElfFile::open(path).ok()?;
            (id.is_none() || file.build_id() == id).then_some(Usable(file))
        })
    }

    /// Its bytes.
    pub(crate) fn data(&self) -> &[u8] {
        self.0.data()
    }

    /// Returns true if it is the file that has that stamp, as far as the stamp says.
    pub(crate) fn has_stamp(&self, wanted: &FileStamp) -> bool {
        let is_it = |wanted: u64, found: u64| wanted == 0 || wanted == found;
        self.0.stamp().is_some_and(|found| {
            wanted.inode == found.inode
                && is_it(wanted.size, found.size)
                && is_it(wanted.modified_ns, found.modified_ns)
        })
    }

    /// Its headers, parsed.
    pub(crate) fn object(&self) -> Option<object::File<'_>> {
        self.0.object().ok()
    }

    /// The build-id that it states.
    pub(crate) fn build_id(&self) -> Option<BuildId> {
        self.0.build_id()
    }
}
