//! Plain file: a file with the bytes that were written, unpacked if it is compressed.
//!
//! The content of a compressed file lies in a temporary file without a name, which is mapped or
//! read by position as any other. A command opens a log several times, for its events and for its
//! names. So the last few are kept, and unpacked once.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memmap2::Mmap;

use crate::compressed::unpack::{Damaged, UnpackError, head, most_of, stated_length, unpack};
use crate::compressed::zstd_frames::is_compressed;
use crate::memory;
use crate::regular_file::RegularFile;

/// Unpacked files that are kept.
const KEPT: usize = 16;
/// How many times its own size a compressed file counts for the bound on memory, at most.
const COUNTED: u64 = 32;

/// Why a file's bytes cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is compressed, and cannot be unpacked.
    #[error(transparent)]
    Unpack(UnpackError),
    /// There is no place for what is in it.
    #[error("it is compressed, and cannot be unpacked into {}, where {free} bytes are free and {needed} are needed; TMPDIR names another folder, and `heapprof compress -d` unpacks it in its own", folder.display())]
    NoRoom {
        /// The folder of temporary files.
        folder: PathBuf,
        /// Bytes that are free there.
        free: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// The temporary file cannot be written.
    #[error("it is compressed, and cannot be unpacked into {}, the folder of temporary files ({source}); TMPDIR names another folder, and `heapprof compress -d` unpacks it in its own", folder.display())]
    Temporary {
        /// The folder of temporary files.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl From<PlainError> for io::Error {
    fn from(error: PlainError) -> io::Error {
        match error {
            PlainError::Read(error) => error,
            other => io::Error::other(other.to_string()),
        }
    }
}

/// Shows that a long file is unpacked: makes, of its length, what is told the offset that was
/// reached.
type Show = fn(u64) -> Box<dyn FnMut(u64)>;

static SHOW: OnceLock<Show> = OnceLock::new();

/// Lets the unpacking of a file be shown. The first call counts.
pub fn on_unpacking(show: Show) {
    let _ = SHOW.set(show);
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct PlainFile {
    file: RegularFile,
    /// The content, if it is compressed.
    content: Option<Arc<Content>>,
}

/// The bytes in a compressed file.
#[derive(Debug)]
struct Content {
    file: File,
    length: u64,
    damage: Option<Damaged>,
}

/// The identity of a file with a content: it is another one after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Stamp {
        Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            length: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

impl PlainFile {
    /// The bytes of a file that was opened.
    ///
    /// # Errors
    /// If it cannot be read, or is compressed and cannot be unpacked.
    pub(crate) fn of(file: RegularFile) -> Result<PlainFile, PlainError> {
        let content = match begins_compressed(file.file())? {
            true => Some(content(&file)?),
            false => None,
        };
        Ok(PlainFile { file, content })
    }

    /// The first bytes of a file that was opened, at most so many. A compressed one is unpacked as
    /// far as that.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn head(file: &RegularFile, most: usize) -> io::Result<Vec<u8>> {
        if begins_compressed(file.file())? {
            return Ok(head(&file.map()?, most));
        }
        let length = file.meta().len().min(most as u64) as usize;
        let mut bytes = vec![0; length];
        let read = read_at(file.file(), &mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The metadata of the file itself, as of its opening.
    pub(crate) fn meta(&self) -> &Metadata {
        self.file.meta()
    }

    /// Returns true if the file itself is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.content.is_some()
    }

    /// The first damage of a compressed file.
    pub(crate) fn damage(&self) -> Option<Damaged> {
        self.content.as_ref()?.damage
    }

    /// A descriptor to the bytes.
    pub(crate) fn file(&self) -> &File {
        match &self.content {
            Some(content) => &content.file,
            None => self.file.file(),
        }
    }

    /// A descriptor of its own to the bytes.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn into_file(self) -> io::Result<File> {
        match &self.content {
            Some(content) => content.file.try_clone(),
            None => Ok(self.file.into_file()),
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Some(content) => content.length,
            None => self.file.meta().len(),
        }
    }

    /// The bytes, mapped.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn map(&self) -> io::Result<Mmap> {
        match &self.content {
            // SAFETY: as in `RegularFile::map`; the file has no name, and nothing writes to it any
            // more, so its bytes do not change.
            Some(content) => unsafe { Mmap::map(&content.file) },
            None => self.file.map(),
        }
    }
}

fn begins_compressed(file: &File) -> io::Result<bool> {
    let mut first = [0; 4];
    let read = read_at(file, &mut first, 0)?;
    Ok(is_compressed(&first[..read]))
}

/// Reads up to the length of the buffer, less at the end of the file.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The content of a compressed file, unpacked now or before.
fn content(file: &RegularFile) -> Result<Arc<Content>, PlainError> {
    static RECENT: Mutex<VecDeque<(Stamp, Arc<Content>)>> = Mutex::new(VecDeque::new());
    let recent = || RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    let stamp = Stamp::of(file.meta());
    if let Some((_, content)) = recent().iter().find(|(known, _)| *known == stamp) {
        return Ok(Arc::clone(content));
    }
    let content = Arc::new(unpacked(file)?);
    let mut recent = recent();
    if recent.len() == KEPT {
        recent.pop_front();
    }
    recent.push_back((stamp, Arc::clone(&content)));
    Ok(content)
}

fn unpacked(file: &RegularFile) -> Result<Content, PlainError> {
    let folder = std::env::temp_dir();
    let temporary = |source| PlainError::Temporary {
        folder: folder.clone(),
        source,
    };
    let bytes = file.map()?;
    let compressed = bytes.len() as u64;
    let mut out = tempfile::tempfile().map_err(temporary)?;
    let needed = stated_length(&bytes);
    if let Some(free) = free_bytes(&out).filter(|&free| free < needed)
        && needed <= most_of(compressed)
    {
        return Err(PlainError::NoRoom {
            folder,
            free,
            needed,
        });
    }
    let mut show = SHOW.get().map(|show| show(compressed));
    let unpacked = unpack(&bytes, &mut out, |done| {
        show.iter_mut().for_each(|show| show(done));
    });
    let unpacked = unpacked.map_err(|error| match error {
        UnpackError::Write(source) => temporary(source),
        other => PlainError::Unpack(other),
    })?;
    memory::appended(unpacked.length.min(compressed.saturating_mul(COUNTED)));
    Ok(Content {
        file: out,
        length: unpacked.length,
        damage: unpacked.damage,
    })
}

/// Bytes that are free where a file lies, for the user who asks.
fn free_bytes(file: &File) -> Option<u64> {
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a descriptor that is open, and room for the answer, which the call fills if it
    // succeeds.
    let failed = unsafe { libc::fstatvfs(file.as_raw_fd(), answer.as_mut_ptr()) };
    // SAFETY: the call succeeded.
    let answer = (failed == 0).then(|| unsafe { answer.assume_init() })?;
    Some(answer.f_bavail.saturating_mul(answer.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn opened(path: &Path) -> PlainFile {
        PlainFile::of(RegularFile::open(path).unwrap()).unwrap()
    }

    #[test]
    fn a_file_is_unpacked_once_and_another_in_its_place_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let put = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        put(b"plain bytes");
        let plain = opened(&path);
        assert!(!plain.is_compressed());
        assert_eq!(&plain.map().unwrap()[..], b"plain bytes");
        put(&zstd::bulk::compress(&[7; 5000], 1).unwrap());
        let (first, second) = (opened(&path), opened(&path));
        assert_eq!((first.len(), first.damage()), (5000, None));
        assert_eq!(&first.map().unwrap()[..], [7; 5000]);
        let content = |file: &PlainFile| file.content.clone().unwrap();
        assert!(Arc::ptr_eq(&content(&first), &content(&second)));
        put(&zstd::bulk::compress(&[8; 70_000], 1).unwrap());
        assert_eq!(&opened(&path).map().unwrap()[..], [8; 70_000]);
        let head = PlainFile::head(&RegularFile::open(&path).unwrap(), 5).unwrap();
        assert_eq!(head, [8; 5]);
        // Few are kept: their disk space is not given back before.
        for n in 0..KEPT {
            let other = folder.path().join(n.to_string());
            std::fs::write(&other, zstd::bulk::compress(&[9; 100], 1).unwrap()).unwrap();
            opened(&other);
        }
        assert!(!Arc::ptr_eq(&content(&first), &content(&opened(&path))));
    }
}
