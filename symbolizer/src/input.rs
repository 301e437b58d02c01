//! Input: a file of the profiled process, its form known by its first bytes, read into a profile.
//!
//! Imports: `memory`, `access`, `presence`, `regular_file`, `compressed`, `resolve`, `model`,
//! `read`, `analysis`, `join`.
//!
//! Not here: several files at once (`join`, `analysis::merge`).

pub(crate) mod growing;
mod names;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heapprof_format::{
    Dump, DumpError, DumpErrorKind, FILE_HEADER, FILE_HEADER_LEN, ReadError, Start,
};
use memmap2::Mmap;

use crate::access::Access;
use crate::analysis::moment::MomentError;
use crate::analysis::view::{ReadRequest, View, ViewError, profile_of_view};
use crate::compressed::{Damaged, PlainError, PlainFile};
use crate::join;
use crate::memory;
use crate::model::extras::WantedExtras;
use crate::model::profile::{LogAccount, Profile};
use crate::read::dump::profile_of_dump;
use crate::read::jemalloc::{JemallocError, is_jemalloc, profile_of_jemalloc};
use crate::read::life::note_life;
use crate::read::parent_log;
use crate::read::pprof::{PprofError, profile_of_pprof};
use crate::read::segments::{self, without_zst};
use crate::regular_file::{OpenError, RegularFile};
use crate::resolve::archive::{self, Loss};

/// A file that was opened and whose kind is known.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    map: Mmap,
    /// The first damage of a compressed file.
    damage: Option<Damaged>,
    /// The user whose file it is.
    owner: u32,
    /// The profile in a bundle: its name and where it lies.
    member: Option<(String, Range<usize>)>,
    /// Why members of the bundle are missing.
    loss: Option<Loss>,
    /// All segments of a log that rotates.
    segments: Option<segments::Joined>,
    /// The log of a forked process with what it had from its parent.
    joined: Option<Vec<u8>>,
}

/// Why a file gives no profile. The text names file, offset, cause, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be opened or mapped.
    #[error("cannot read {path}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is compressed, and cannot be unpacked.
    #[error("cannot read {path}: {source}", path = .path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PlainError,
    },
    /// It is a folder.
    #[error("cannot read {path}: it is a folder; name the files in it", path = .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// It is a pipe, a device.
    #[error("cannot read {path}: not a regular file; save what comes of it in one first", path = .path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// `-`, and no file of that name.
    #[error(
        "cannot read -: no file is called so, and standard input is not read; save it in a file first"
    )]
    StandardInput,
    /// It is empty.
    #[error("{path}: offset 0: the file is empty: its process was killed before the first record, or could not write it (a full disk?)", path = .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A log of which not even the first bytes are all there.
    #[error("{path}: offset 0: the log is cut off in its first {FILE_HEADER_LEN} bytes, {length} are there; nothing of it can be read", path = .path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// How many there are.
        length: u64,
    },
    /// It is none of ours.
    #[error("{path}: offset 0: neither a heapprof log or bundle nor a heap profile of gperftools, jemalloc or pprof", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is compressed, and no heap profile of pprof's.
    #[error("{path}: offset 0: {source}", path = .path.display())]
    Pprof {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: PprofError,
    },
    /// A profile of jemalloc's that cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Jemalloc {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: JemallocError,
    },
    /// A tar file without a profile in front.
    #[error("{path}: offset 0: a tar file, but no bundle of heapprof's{loss}", path = .path.display())]
    NoBundle {
        /// The file.
        path: PathBuf,
        /// Fault of the tar file, behind a comma; empty if there is none.
        loss: String,
    },
    /// A log that cannot be read.
    #[error("{path}: offset {offset}: {source}", path = .path.display(), offset = .source.offset)]
    Log {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: ReadError,
    },
    /// A moment that is not in the log.
    #[error("{path}: {source}", path = .path.display())]
    Moment {
        /// The file.
        path: PathBuf,
        /// The moment, and the cause.
        source: MomentError,
    },
    /// A question about pages, and a log without a reading of pages.
    #[error("{path}: it has no reading of the pages of blocks, which resident, swapped, untouched and pinned are of; `heapprof ctl PID pages` takes one, and a run with HEAPPROF_PAGES=SECONDS takes them regularly", path = .path.display())]
    NoPages {
        /// The file.
        path: PathBuf,
    },
    /// A question about time, and a dump.
    #[error("{path}: a dump holds the heap at one moment and no times; --at, --from, --to and what is computed from times need a .heaplog", path = .path.display())]
    NoTimes {
        /// The file.
        path: PathBuf,
    },
    /// A dump that cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: DumpError,
    },
}

impl Input {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, or is of no kind that we know.
    pub fn open(path: &Path) -> Result<Input, InputError> {
        let mut input = Input::open_alone(path)?;
        input.join(path);
        Ok(input)
    }

    /// The log in a file that may have no name; errors name it so.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn of_log(file: &File, path: PathBuf) -> io::Result<Input> {
        memory::reading(&path);
        // SAFETY: as in `RegularFile::map`; the file has no name, so nobody else changes it.
        let map = unsafe { Mmap::map(file) }?;
        Ok(Input {
            path,
            map,
            damage: None,
            owner: file.metadata()?.uid(),
            member: None,
            loss: None,
            segments: None,
            joined: None,
        })
    }

    /// Returns true if it is a log that was joined from several.
    pub fn is_join(&self) -> bool {
        join::is_join(self.bytes())
    }

    /// Looks for what a forked process had from its parent, in the log of that one.
    pub fn join(&mut self, path: &Path) {
        if self.is_log() {
            self.joined = self.with_inherited(path);
        }
    }

    /// Returns the log at that path with the blocks that its process has from its parent.
    fn with_inherited(&self, path: &Path) -> Option<Vec<u8>> {
        parent_log::joined(self.bytes(), path, |place, child| {
            Input::parent(place, child, self.owner)
        })
    }

    /// Opens the log of the process that `child` was forked from. `child_owner` owns the log that
    /// is read, of `child` or of a descendant. `None`: it cannot be opened, or is another's.
    fn parent(path: &Path, child: &Start, child_owner: u32) -> Option<Input> {
        let file = RegularFile::open(path).ok()?;
        if !Access::is_believed(file.meta().uid(), child_owner) {
            return None;
        }
        let (input, file) = Input::of_file(path, file).ok()?;
        if !input.is_log() || !parent_log::is_parent(input.bytes(), child) {
            return None;
        }
        Access::note(file.meta());
        Some(input)
    }

    /// Opens a file, and does not look for what a forked process inherited ([`Input::join`]).
    ///
    /// # Errors
    /// As [`Input::open`].
    pub fn open_alone(path: &Path) -> Result<Input, InputError> {
        memory::reading(path);
        let (input, file) = Input::of_file(path, Input::file(path)?)?;
        Access::note(file.meta());
        Ok(input)
    }

    fn file(path: &Path) -> Result<RegularFile, InputError> {
        let open = |source| InputError::Open {
            path: path.into(),
            source,
        };
        RegularFile::open(path).map_err(|error| match error {
            OpenError::Folder => InputError::Folder { path: path.into() },
            OpenError::NotRegular => InputError::NotRegular { path: path.into() },
            OpenError::Io(_) if path == Path::new("-") => InputError::StandardInput,
            OpenError::Io(error) => open(error),
        })
    }

    /// A file that was opened and may turn out to be another's: it is not taken into account yet.
    fn of_file(path: &Path, file: RegularFile) -> Result<(Input, PlainFile), InputError> {
        let open = |source| InputError::Open {
            path: path.into(),
            source,
        };
        let file = PlainFile::of(file).map_err(|error| match error {
            PlainError::Read(source) => open(source),
            source => InputError::Compressed {
                path: path.into(),
                source,
            },
        })?;
        let map = file.map().map_err(open)?;
        let mut input = Input {
            path: path.into(),
            map,
            damage: file.damage(),
            owner: file.meta().uid(),
            member: None,
            loss: None,
            segments: None,
            joined: None,
        };
        if archive::is_archive(&input.map) {
            let members = archive::members(&input.map);
            let no_bundle = || InputError::NoBundle {
                path: path.into(),
                loss: match members.loss {
                    Some(loss) => format!(", {loss}"),
                    None => String::new(),
                },
            };
            let (name, range) = members.all.first().ok_or_else(no_bundle)?;
            let name = String::from_utf8_lossy(name).into_owned();
            input.member = Some((name, range.clone()));
            input.loss = members.loss;
            let is_profile = input.is_log()
                || input.is_gzip()
                || is_jemalloc(input.bytes())
                || Dump::parse(input.bytes()).is_ok();
            if !is_profile {
                return Err(no_bundle());
            }
        }
        if input.bytes().is_empty() {
            return Err(InputError::Empty { path: path.into() });
        }
        if input.is_log() && input.bytes().len() < FILE_HEADER_LEN {
            return Err(InputError::CutOff {
                path: path.into(),
                length: input.len(),
            });
        }
        if input.is_log() && input.member.is_none() {
            input.segments = segments::joined(path, input.owner, &input.map);
        }
        Ok((input, file))
    }

    /// The bytes of the profile.
    pub fn bytes(&self) -> &[u8] {
        if let Some(joined) = &self.joined {
            return joined;
        }
        if let Some(segments) = &self.segments {
            return segments.bytes();
        }
        match &self.member {
            Some((_, range)) => self.map.get(range.clone()).unwrap_or_default(),
            None => &self.map,
        }
    }

    /// The name of the profile's file, without folders.
    pub fn name(&self) -> String {
        match &self.member {
            Some((name, _)) => name.clone(),
            None => {
                let name = self.path.file_name().unwrap_or_default();
                let name = name.to_string_lossy();
                without_zst(&name).to_owned()
            }
        }
    }

    /// Returns true if it is a bundle, which holds the files that name it as well.
    pub fn is_bundle(&self) -> bool {
        self.member.is_some()
    }

    fn is_gzip(&self) -> bool {
        self.bytes().starts_with(&[0x1f, 0x8b])
    }

    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// Returns true if there is nothing in it; never true, an empty file is not opened.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Returns true if it is a log, and not a dump.
    pub fn is_log(&self) -> bool {
        // The version is the reader's business: a newer log is a log.
        let name = &FILE_HEADER[..FILE_HEADER_LEN - 1];
        self.bytes().starts_with(name) || name.starts_with(self.bytes())
    }

    /// Reads it. `progress` is told, now and then, the offset that was reached.
    ///
    /// # Errors
    /// When it is damaged beyond use.
    pub fn read(&self, progress: impl FnMut(u64)) -> Result<Profile, InputError> {
        self.read_with(WantedExtras::default(), progress)
    }

    /// The same, with extras.
    ///
    /// # Errors
    /// As [`Input::read`].
    pub fn read_with(
        &self,
        extras: WantedExtras,
        progress: impl FnMut(u64),
    ) -> Result<Profile, InputError> {
        let request = ReadRequest {
            extras,
            ..ReadRequest::default()
        };
        self.read_part(&request, progress)
    }

    /// Says that files of a bundle are missing, and with them names. `None`: none is.
    pub fn lost_names(&self) -> Option<String> {
        let loss = self.loss?;
        Some(format!(
            "the bundle is {loss}: the files behind that are missing, and the names that they give; copy the bundle \
             again, or make it anew"
        ))
    }

    /// Notes in an account that the file is compressed or a bundle, and damaged, which the bytes in
    /// it do not say.
    pub fn note_damage(&self, account: &mut LogAccount) {
        account.note_damaged_file(self.damage);
        account.lost_names.extend(self.lost_names());
    }

    /// Its bytes, when it is a log.
    ///
    /// # Errors
    /// When it is a dump, which has no times.
    pub fn log(&self) -> Result<&[u8], InputError> {
        if self.is_log() {
            return Ok(self.bytes());
        }
        let path = self.path.clone();
        if self.is_gzip() || is_jemalloc(self.bytes()) {
            return Err(InputError::NoTimes { path });
        }
        match Dump::parse(self.bytes()) {
            Err(DumpError {
                kind: DumpErrorKind::NotADump,
                line: 1,
                ..
            }) => Err(InputError::Foreign { path }),
            _ => Err(InputError::NoTimes { path }),
        }
    }

    /// Returns the first record of a log: its process, and when that began. `None` for a dump.
    pub fn start(&self) -> Option<Start> {
        parent_log::start_of(self.bytes())
    }

    /// An error of a view of it, with its name.
    pub fn view_error(&self, error: ViewError) -> InputError {
        let path = self.path.clone();
        match error {
            ViewError::Read(source) => InputError::Log { path, source },
            ViewError::Moment(source) => InputError::Moment { path, source },
            ViewError::NoPages => InputError::NoPages { path },
        }
    }

    /// Reads a part of it.
    ///
    /// # Errors
    /// When it is damaged beyond use, or that part is not in it.
    pub fn read_part(
        &self,
        request: &ReadRequest,
        progress: impl FnMut(u64),
    ) -> Result<Profile, InputError> {
        memory::reading(&self.path);
        let mut profile = self.part(request, progress)?;
        self.note_damage(&mut profile.account);
        Ok(profile)
    }

    fn part(
        &self,
        request: &ReadRequest,
        progress: impl FnMut(u64),
    ) -> Result<Profile, InputError> {
        let path = || self.path.clone();
        if self.is_log() || request.view != View::Whole {
            let profile = profile_of_view(self.log()?, request, progress);
            let mut profile = profile.map_err(|error| self.view_error(error))?;
            note_life(&mut profile.run);
            if request.mappings {
                profile.show_mappings();
            }
            return Ok(profile);
        }
        if self.is_gzip() {
            return profile_of_pprof(self.bytes()).map_err(|source| InputError::Pprof {
                path: path(),
                source,
            });
        }
        if is_jemalloc(self.bytes()) {
            return profile_of_jemalloc(self.bytes()).map_err(|source| InputError::Jemalloc {
                path: path(),
                source,
            });
        }
        match Dump::parse(self.bytes()) {
            Ok(dump) => Ok(profile_of_dump(dump)),
            Err(DumpError {
                kind: DumpErrorKind::NotADump,
                line: 1,
                ..
            }) => Err(InputError::Foreign { path: path() }),
            Err(source) => Err(InputError::Dump {
                path: path(),
                source,
            }),
        }
    }
}

/// The bytes of the profile.
impl AsRef<[u8]> for Input {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
