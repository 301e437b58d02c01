//! A regular file: one that was opened by a name that an input, a folder or a default gave us.
//!
//! Such a name may lead to a FIFO, where opening waits for a writer; to a device, where opening may
//! do anything; or over another user's link. So the kind is checked before the file is opened, and
//! again on the open file, because the name may lead elsewhere by then. Every file that this crate
//! maps or reads whole is opened here, and counts for the bound on memory
//! ([`memory`](crate::memory)).

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use heapprof_format::FileStamp;
use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::memory;

/// Why a name leads to no file that can be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A folder.
    #[error("it is a folder")]
    Folder,
    /// A pipe, a device, a socket; a link, where links are refused.
    #[error("it is not a regular file")]
    NotRegular,
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> io::Error {
        match error {
            OpenError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidInput, other.to_string()),
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    meta: Metadata,
}

impl RegularFile {
    /// The file that a path leads to, over links as well.
    ///
    /// # Errors
    /// If it leads to none, or to no regular one.
    pub fn open(path: &Path) -> Result<RegularFile, OpenError> {
        Self::checked(std::fs::metadata(path)?, path, 0)
    }

    /// The file of that name itself: a link is not followed.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if it is a link.
    pub fn open_itself(path: &Path) -> Result<RegularFile, OpenError> {
        Self::checked(std::fs::symlink_metadata(path)?, path, libc::O_NOFOLLOW)
    }

    fn checked(before: Metadata, path: &Path, flags: i32) -> Result<RegularFile, OpenError> {
        let check = |meta: &Metadata| match meta {
            meta if meta.is_file() => Ok(()),
            meta if meta.is_dir() => Err(OpenError::Folder),
            _ => Err(OpenError::NotRegular),
        };
        check(&before)?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(path)?;
        let meta = file.metadata()?;
        check(&meta)?;
        memory::read(&meta);
        Ok(RegularFile { file, meta })
    }

    /// Its metadata, as of its opening.
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// The stamp that distinguishes it from others that have its path at other times.
    pub(crate) fn stamp(&self) -> FileStamp {
        let seconds = (self.meta.mtime() as u64).wrapping_mul(1_000_000_000);
        FileStamp {
            inode: self.meta.ino(),
            size: self.meta.len(),
            modified_ns: seconds.wrapping_add(self.meta.mtime_nsec() as u64),
        }
    }

    /// The descriptor.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The descriptor alone.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// Whether anybody has it open to write. `None`: that cannot be told, because the file is
    /// another user's, or the file system has no leases.
    pub fn is_open_to_write(&self) -> Option<bool> {
        let fd = self.file.as_raw_fd();
        // SAFETY: a call with numbers only. A lease to read is granted if nobody has the file open
        // to write; it is given back at once.
        let leased = unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) };
        if leased == 0 {
            // SAFETY: as above.
            unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
            return Some(false);
        }
        let why = io::Error::last_os_error();
        (why.raw_os_error() == Some(libc::EAGAIN)).then_some(true)
    }

    /// Its bytes, mapped.
    ///
    /// # Errors
    /// Those of the system.
    pub fn map(&self) -> io::Result<Mmap> {
        // SAFETY: the map is private and read-only. Decoders see it as bytes only: they check every
        // length and offset at each access, and no unsafe code relies on a value that was checked
        // earlier. If another process changes the bytes, we misread. If it truncates the file, an
        // access to the lost pages kills this process by SIGBUS. An offline tool takes that risk:
        // logs are append-only, and every run would pay for a copy of a gigabyte of debug
        // information.
        unsafe { Mmap::map(&self.file) }
    }

    /// Its bytes, mapped, to be changed here and nowhere else.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn map_to_change(&self) -> io::Result<MmapMut> {
        // SAFETY: as in `map`; a private map's changes are copies of its pages, which only this
        // process has.
        unsafe { MmapOptions::new().map_copy(&self.file) }
    }

    /// Its bytes, copied: at most so many.
    ///
    /// # Errors
    /// If there are more, and those of the system.
    pub fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // Bounded again: somebody may still write.
        (&self.file)
            .take(most.saturating_add(1))
            .read_to_end(&mut bytes)?;
        match bytes.len() as u64 > most {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "abc").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("fifo"), at("link to fifo")).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(at("fifo"))
                .status()
                .unwrap()
                .success()
        );

        let opened = RegularFile::open(&at("link")).unwrap();
        assert_eq!(&opened.map().unwrap()[..], b"abc");
        assert_eq!(opened.read(3).unwrap(), b"abc");
        for name in ["fifo", "link to fifo"] {
            let refused = RegularFile::open(&at(name)).unwrap_err();
            assert!(
                matches!(refused, OpenError::NotRegular),
                "{name}: {refused}"
            );
        }
        assert!(matches!(
            RegularFile::open_itself(&at("link")).unwrap_err(),
            OpenError::NotRegular
        ));
        assert!(matches!(
            RegularFile::open(folder.path()).unwrap_err(),
            OpenError::Folder
        ));
        assert!(matches!(
            RegularFile::open(&at("none")).unwrap_err(),
            OpenError::Io(_)
        ));
    }

    #[test]
    fn a_file_that_is_open_to_write_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "abc").unwrap();
        let file = RegularFile::open(&path).unwrap();
        if file.is_open_to_write().is_none() {
            return; // no leases here
        }
        assert_eq!(file.is_open_to_write(), Some(false));
        let writer = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(file.is_open_to_write(), Some(true));
        drop(writer);
        assert_eq!(file.is_open_to_write(), Some(false));
    }

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "abc").unwrap();
        let refused = RegularFile::open(&path).unwrap().read(2).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }
}
