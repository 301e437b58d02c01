//! The files we write: where they may go, how they are made, how they grow.
//!
//! Law 9: no descriptor is kept in the program's table. A file is made once, exclusively, readable by its owner only, never through
//! a symbolic link; to append, it is opened again, and written to only if it is still the same file. Our thread, in a table of its
//! own, holds the log open, for when it may no longer be opened: the program has given up its rights, or its root.
//! Nothing of others' is ever overwritten or deleted; of ours, the oldest segments of a log that rotates are.

use std::ffi::{CStr, CString, NulError};

use crate::os::seccomp::{self, Spared};
use crate::os::sys::{self, Errno, File, Stat};

/// Flags for every opening: no link is followed, and a FIFO that took the file's place does not block.
const SAFELY: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// How often a descriptor is opened that turns out not to be ours.
const TRIES: u32 = 10;

/// A file that we made and append to.
pub(crate) struct Appended {
    path: CString,
    /// Which file it was when we made it.
    identity: Stat,
    /// Bytes in it that are known to be whole.
    len: u64,
    /// Open to append, in a thread that has a table of descriptors of its own. Dropped there, too.
    held: Option<File>,
}

/// Why nothing was appended.
pub(crate) enum AppendError {
    /// The kernel said no.
    Kernel(Errno),
    /// Another file is at our path now.
    Replaced,
}

impl std::fmt::Display for AppendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AppendError::Kernel(errno) => errno.fmt(f),
            AppendError::Replaced => {
                f.write_str("another file has taken its place, or it was changed")
            }
        }
    }
}

/// The path as a C string; a path with a zero byte names nothing.
fn c_path(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_: NulError| Errno(libc::ENOENT))
}

/// [`File::aside`], where that is not a call too many.
fn out_of_the_way(file: File) -> Result<File, Errno> {
    match seccomp::has_filtered_itself() {
        true => Ok(file), // with a filter that may not know it
        false => file.aside(),
    }
}

impl Appended {
    /// Makes the file, which must not exist.
    pub(crate) fn create(path: &[u8]) -> Result<Appended, Errno> {
        let path = c_path(path)?;
        let made = File::open(
            &path,
            SAFELY | libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL,
            0o600,
        )?;
        let mut tries = 1;
        let mut identity = out_of_the_way(made).and_then(|file| file.stat());
        // The program closed our descriptor, and perhaps opened its own: the file is there by now, and empty.
        while !identity.as_ref().is_ok_and(|it| it.size == 0) && tries < TRIES {
            tries += 1;
            let again = File::open(&path, SAFELY | libc::O_WRONLY, 0);
            identity = again.and_then(out_of_the_way).and_then(|file| file.stat());
        }
        Ok(Appended {
            path,
            identity: identity?,
            len: 0,
            held: None,
        })
    }

    /// Opens it to append, if it is still the same. The program may close our descriptor at any moment, and open its own under the
    /// number: what is not our file is looked at some more times, and then it is another.
    fn open(&self) -> Result<File, AppendError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let file = File::open(&self.path, SAFELY | libc::O_WRONLY | libc::O_APPEND, 0)
                .and_then(out_of_the_way);
            let found = file.and_then(|file| Ok((file.stat()?, file)));
            match found {
                Ok((now, file)) if self.is(&now) => return Ok(file),
                Ok(_) if tries == TRIES => return Err(AppendError::Replaced),
                Err(Errno(libc::EBADF)) if tries < TRIES => {}
                Err(errno) => return Err(AppendError::Kernel(errno)),
                Ok(_) => {}
            }
        }
    }

    /// Whether a file is this one, as we left it. The length too: a file system may give a deleted file's number to the next one at
    /// once.
    fn is(&self, file: &Stat) -> bool {
        (file.device, file.inode, file.size)
            == (self.identity.device, self.identity.inode, self.len)
    }

    /// Holds it open from here on. For a thread that has a table of descriptors of its own, which must let it go before it ends.
    pub(crate) fn hold(&mut self) {
        self.held = self.open().ok();
    }

    /// See [`hold`](Self::hold).
    pub(crate) fn let_go(&mut self) {
        self.held = None;
    }

    /// What is held, if the file is only out of our reach, or no second descriptor is to be had: it still has a name somewhere. Whoever
    /// deletes it ends it.
    fn out_of_reach(&self, error: &AppendError) -> Option<&File> {
        let AppendError::Kernel(Errno(
            libc::EACCES | libc::EPERM | libc::ENOENT | libc::ENOTDIR | libc::EMFILE | libc::ENFILE,
        )) = error
        else {
            return None;
        };
        let file = self.held.as_ref()?;
        let is_there = file.stat().is_ok_and(|now| self.is(&now) && now.links > 0);
        is_there.then_some(file)
    }

    /// Appends all of `bytes`, or nothing.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        let opened = self.open();
        let file = match &opened {
            Ok(file) => file,
            Err(error) => match self.out_of_reach(error) {
                Some(file) => file,
                None => return opened.map(drop),
            },
        };
        match file.write_all(bytes) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                Ok(())
            }
            Err((done, errno)) => {
                if done > 0 {
                    // Half a frame helps nobody. If even this fails, the reader finds a torn tail.
                    let _ = file.truncate(self.len);
                }
                Err(AppendError::Kernel(errno))
            }
        }
    }

    pub(crate) fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Bytes in it.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file at that path is this one, as we left it.
    fn is_at(&self, path: &CStr) -> bool {
        let file = File::open(path, libc::O_PATH | libc::O_NOFOLLOW, 0);
        let now = match file.and_then(|file| file.stat()) {
            // No descriptor is to be had: it is looked at without one.
            Err(Errno(libc::EMFILE | libc::ENFILE)) if Spared::StatAt.is_allowed() => {
                sys::stat_at(path)
            }
            now => now,
        };
        now.is_ok_and(|now| self.is(&now))
    }

    /// Whether its name is still its own.
    pub(crate) fn is_there(&self) -> bool {
        self.is_at(&self.path)
    }

    /// Deletes it, if it is still ours. False: something else has its name, which stays.
    pub(crate) fn remove(&self) -> bool {
        self.is_at(&self.path) && sys::unlink(&self.path).is_ok()
    }

    /// This file, written under another name, takes the name of `old`, and `old` gets this one's: at no instant
    /// does the name name nothing. On failure nothing has changed.
    pub(crate) fn take_name_of(&mut self, old: &mut Appended) -> Result<(), AppendError> {
        if !self.is_at(&self.path) {
            return Err(AppendError::Replaced);
        }
        if !old.is_there() {
            return self.take_name_that_is_free(old);
        }
        match sys::rename_exchange(&self.path, &old.path) {
            Ok(()) => {
                if !old.is_at(&self.path) {
                    // Somebody was between our look and our step: it gets its name back.
                    let _ = sys::rename_exchange(&self.path, &old.path);
                    return Err(AppendError::Replaced);
                }
                std::mem::swap(&mut self.path, &mut old.path);
                Ok(())
            }
            // A file system without that kind of rename.
            Err(Errno(libc::EINVAL | libc::ENOSYS)) => self.take_name_in_two_steps(old),
            // It was moved away between our look and our step.
            Err(Errno(libc::ENOENT)) => self.take_name_that_is_free(old),
            Err(errno) => Err(AppendError::Kernel(errno)),
        }
    }

    /// Somebody has moved `old` away, as people do who put logs aside: it is theirs from now on, and its name is to be had. If
    /// something else is there it is not.
    fn take_name_that_is_free(&mut self, old: &Appended) -> Result<(), AppendError> {
        match put_where_nothing_is(&self.path, &old.path) {
            Ok(()) => {
                self.path = old.path.clone();
                Ok(())
            }
            Err(Errno(libc::EEXIST)) => Err(AppendError::Replaced),
            Err(errno) => Err(AppendError::Kernel(errno)),
        }
    }

    /// `old` gets a second name, and then the first is taken from it.
    fn take_name_in_two_steps(&mut self, old: &mut Appended) -> Result<(), AppendError> {
        let mut second = self.path.to_bytes().to_vec();
        second.extend_from_slice(OLD);
        let second = c_path(&second).map_err(AppendError::Kernel)?;
        sys::link(&old.path, &second).map_err(AppendError::Kernel)?;
        if let Err(errno) = sys::rename(&self.path, &old.path, 0) {
            let _ = sys::unlink(&second);
            return Err(AppendError::Kernel(errno));
        }
        std::mem::swap(&mut self.path, &mut old.path);
        // If this fails the second name stays, and it is known by that.
        if sys::rename_new(&second, &old.path).is_err()
            && sys::link(&second, &old.path)
                .and_then(|()| sys::unlink(&second))
                .is_err()
        {
            old.path = second;
        }
        Ok(())
    }
}

/// Ending of a segment's second name while it changes names, on a file system that cannot do that in one step.
const OLD: &[u8] = b".old";

/// A file that gets its name when it is whole. Dropped before, it is deleted.
pub(crate) struct Unfinished {
    /// `None` when it has its name.
    file: Option<Appended>,
}

impl Unfinished {
    /// Makes one that is to become `path`.
    pub(crate) fn create(path: &[u8]) -> Result<Unfinished, Errno> {
        let mut unfinished = path.to_vec();
        unfinished.extend_from_slice(format!(".{}.unfinished", sys::getpid()).as_bytes());
        Appended::create(&unfinished).map(|file| Unfinished { file: Some(file) })
    }

    /// Appends all of `bytes`, or nothing.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        match &mut self.file {
            Some(file) => file.append(bytes),
            None => Err(AppendError::Replaced),
        }
    }

    /// Gives it its name. EEXIST when there is such a file already: then another name may be tried.
    pub(crate) fn publish(&mut self, path: &[u8]) -> Result<(), Errno> {
        let Some(file) = &self.file else {
            return Err(Errno(libc::ENOENT));
        };
        let to = c_path(path)?;
        put_where_nothing_is(&file.path, &to)?;
        self.file = None;
        Ok(())
    }
}

/// EEXIST when something is there.
fn put_where_nothing_is(from: &CStr, to: &CStr) -> Result<(), Errno> {
    match sys::rename_new(from, to) {
        // A file system without that kind of rename: give it a second name, which fails just as well if the name
        // exists, and take away the first.
        Err(Errno(libc::EINVAL | libc::ENOSYS)) => {
            sys::link(from, to)?;
            let _ = sys::unlink(from);
            Ok(())
        }
        result => result,
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            file.remove();
        }
    }
}

/// Whether something is seen to have that name.
pub(crate) fn exists(path: &[u8]) -> bool {
    c_path(path)
        .and_then(|path| File::open(&path, libc::O_PATH | libc::O_NOFOLLOW, 0))
        .is_ok()
}

/// The first bytes of a file that somebody put where ours would be: at most `most` of them, and none if it
/// is not a regular file.
pub(crate) fn head(path: &[u8], most: usize) -> Option<Vec<u8>> {
    let file = File::open(&c_path(path).ok()?, SAFELY | libc::O_RDONLY, 0).ok()?;
    let stat = file.stat().ok()?;
    if stat.mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    file.read_up_to(most, stat.size as usize).ok()
}

/// A small file of the kernel's, whole.
pub(crate) fn read(path: &[u8]) -> Result<Vec<u8>, Errno> {
    open_to_read(path)?.read_to_end()
}

/// A file of the kernel's.
pub(crate) fn open_to_read(path: &[u8]) -> Result<File, Errno> {
    File::open(&c_path(path)?, libc::O_RDONLY, 0)
}
