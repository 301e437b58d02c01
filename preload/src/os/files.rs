//! The files that this library writes: how they are created, appended to, renamed and deleted.
//!
//! Law 9: no descriptor is kept in the program's table. A file is created once, exclusively,
//! readable by its owner only, never through a symbolic link. To append, it is opened again, and
//! written to only if it is still the same file.
//!
//! Our thread has a descriptor table of its own and holds the log open there. So it can append
//! after the log can no longer be opened, because the program has dropped its rights or changed its
//! root.
//!
//! Files of others are never overwritten or deleted. Our own files are kept, too, except the oldest
//! segments of a log that rotates.

use std::ffi::{CStr, CString, NulError};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::seccomp::{self, AvoidableCall};
use crate::os::sys::{self, Errno, File, Stat};

/// Flags for every open: follow no link, and do not block on a FIFO that has taken the file's
/// place.
const SAFELY: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Most attempts to open a file whose descriptor turns out not to be ours.
const TRIES: u32 = 10;

/// Device and inode of the root directory at boot; 0: not known.
static ROOT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn root() -> Option<[u64; 2]> {
    let root = File::open(c"/", libc::O_PATH | libc::O_DIRECTORY, 0).ok()?;
    let root = root.stat().ok()?;
    Some([root.device, root.inode])
}

/// At boot: remembers the root directory, from which paths are resolved.
pub(crate) fn remember_root() {
    for (place, value) in ROOT.iter().zip(root().into_iter().flatten()) {
        place.store(value, Ordering::Relaxed);
    }
}

/// Returns true if the root directory is another one than at boot: a path now leads to a place that
/// nobody named (Law 9).
fn is_in_another_root() -> bool {
    let at_boot = ROOT.each_ref().map(|part| part.load(Ordering::Relaxed));
    at_boot != [0; 2] && root().is_some_and(|root| root != at_boot)
}

/// A file that this library has created and appends to.
pub(crate) struct AppendFile {
    path: CString,
    /// The file's identity at its creation.
    identity: Stat,
    /// Number of bytes that are completely written.
    len: u64,
    /// The file, held open to append by a thread that has a descriptor table of its own. That
    /// thread drops it, too.
    held: Option<File>,
}

/// The reason why nothing is appended.
pub(crate) enum AppendError {
    /// The kernel refused.
    Kernel(Errno),
    /// Another file has our path now.
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

/// Returns the path as a C string. A path with a zero byte names no file.
fn c_path(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_: NulError| Errno(libc::ENOENT))
}

/// Moves the file to a high descriptor number, unless a seccomp filter may forbid the call.
fn move_if_allowed(file: File) -> Result<File, Errno> {
    match seccomp::has_installed_filter() {
        true => Ok(file), // the filter may not expect the call
        false => file.move_to_high_number(),
    }
}

impl AppendFile {
    /// Creates the file, which must not exist.
    pub(crate) fn create(path: &[u8]) -> Result<AppendFile, Errno> {
        if is_in_another_root() {
            return Err(Errno(libc::EXDEV));
        }
        let path = c_path(path)?;
        let made = File::open(
            &path,
            SAFELY | libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL,
            0o600,
        )?;
        let mut tries = 1;
        let mut identity = move_if_allowed(made).and_then(|file| file.stat());
        // The program has closed our descriptor, and perhaps opened its own. The file exists
        // already, and is empty.
        while !identity.as_ref().is_ok_and(|it| it.size == 0) && tries < TRIES {
            tries += 1;
            let again = File::open(&path, SAFELY | libc::O_WRONLY, 0);
            identity = again.and_then(move_if_allowed).and_then(|file| file.stat());
        }
        Ok(AppendFile {
            path,
            identity: identity?,
            len: 0,
            held: None,
        })
    }

    /// Returns what identifies the file: device, inode, length.
    pub(crate) fn identity(&self) -> [u64; 3] {
        [self.identity.device, self.identity.inode, self.len]
    }

    /// Returns the path as a C string.
    pub(crate) fn c_path(&self) -> &CStr {
        &self.path
    }

    /// Appends all of `bytes` to the file of that [identity](Self::identity), if it is at that
    /// path. Takes no memory.
    pub(crate) fn append_to(path: &CStr, identity: [u64; 3], bytes: &[u8]) -> Result<(), Errno> {
        let file = File::open(path, SAFELY | libc::O_WRONLY | libc::O_APPEND, 0)?;
        let now = file.stat()?;
        if [now.device, now.inode, now.size] != identity {
            return Err(Errno(libc::ENOENT));
        }
        file.write_all(bytes).map_err(|(_, errno)| errno)
    }

    /// Opens the file to append, if it is still the same file. The program may close our descriptor
    /// at any time and open its own under the number. So a file that is not ours is checked some
    /// more times before it counts as replaced.
    fn open(&self) -> Result<File, AppendError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let file = File::open(&self.path, SAFELY | libc::O_WRONLY | libc::O_APPEND, 0)
                .and_then(move_if_allowed);
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

    /// Returns true if `file` is this file as last written. The length is compared because a file
    /// system may give a deleted file's inode number to the next file at once.
    fn is(&self, file: &Stat) -> bool {
        (file.device, file.inode, file.size)
            == (self.identity.device, self.identity.inode, self.len)
    }

    /// Holds the file open from now on. Only for a thread with a descriptor table of its own, which
    /// must release the file before it ends.
    pub(crate) fn hold(&mut self) {
        self.held = self.open().ok();
    }

    /// Ends [`hold`](Self::hold).
    pub(crate) fn let_go(&mut self) {
        self.held = None;
    }

    /// Returns the held file if `error` only means that the path is out of reach, or that no second
    /// descriptor is available. The file must still have a name: deleting it ends the log.
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
                    // Removes a partial frame. If this fails, the reader finds a torn tail.
                    let _ = file.truncate(self.len);
                }
                Err(AppendError::Kernel(errno))
            }
        }
    }

    pub(crate) fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Returns the number of bytes in the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the file at `path` is this file as last written.
    fn is_at(&self, path: &CStr) -> bool {
        let file = File::open(path, libc::O_PATH | libc::O_NOFOLLOW, 0);
        let now = match file.and_then(|file| file.stat()) {
            // If no descriptor is available, checks the path without one.
            Err(Errno(libc::EMFILE | libc::ENFILE)) if AvoidableCall::StatAt.is_allowed() => {
                sys::stat_at(path)
            }
            now => now,
        };
        now.is_ok_and(|now| self.is(&now))
    }

    /// Returns true if the file's name still names this file.
    pub(crate) fn is_there(&self) -> bool {
        self.is_at(&self.path)
    }

    /// Deletes the file if it is still ours. Returns false if another file has its name; that file
    /// stays.
    pub(crate) fn remove(&self) -> bool {
        self.is_at(&self.path) && sys::unlink(&self.path).is_ok()
    }

    /// Gives this file, which has another name so far, the name of `old`, and gives `old` this
    /// file's name. The name exists at every instant. On failure nothing has changed.
    pub(crate) fn take_name_of(&mut self, old: &mut AppendFile) -> Result<(), AppendError> {
        if !self.is_at(&self.path) {
            return Err(AppendError::Replaced);
        }
        if !old.is_there() {
            return self.claim_free_name(old);
        }
        match sys::rename_exchange(&self.path, &old.path) {
            Ok(()) => {
                if !old.is_at(&self.path) {
                    // Another process replaced `old` after the check: undo the exchange.
                    let _ = sys::rename_exchange(&self.path, &old.path);
                    return Err(AppendError::Replaced);
                }
                std::mem::swap(&mut self.path, &mut old.path);
                Ok(())
            }
            // The file system has no exchange of names.
            Err(Errno(libc::EINVAL | libc::ENOSYS)) => self.take_name_in_two_steps(old),
            // `old` was moved away after the check.
            Err(Errno(libc::ENOENT)) => self.claim_free_name(old),
            Err(errno) => Err(AppendError::Kernel(errno)),
        }
    }

    /// Takes the name of `old`, which another process has moved away, as log rotation tools do. The
    /// moved file is left to that process. Fails if another file has the name.
    fn claim_free_name(&mut self, old: &AppendFile) -> Result<(), AppendError> {
        match rename_exclusively(&self.path, &old.path) {
            Ok(()) => {
                self.path = old.path.clone();
                Ok(())
            }
            Err(Errno(libc::EEXIST)) => Err(AppendError::Replaced),
            Err(errno) => Err(AppendError::Kernel(errno)),
        }
    }

    /// Gives `old` a second name, and then replaces its first name.
    fn take_name_in_two_steps(&mut self, old: &mut AppendFile) -> Result<(), AppendError> {
        let mut second = self.path.to_bytes().to_vec();
        second.extend_from_slice(OLD);
        let second = c_path(&second).map_err(AppendError::Kernel)?;
        sys::link(&old.path, &second).map_err(AppendError::Kernel)?;
        if let Err(errno) = sys::rename(&self.path, &old.path, 0) {
            let _ = sys::unlink(&second);
            return Err(AppendError::Kernel(errno));
        }
        std::mem::swap(&mut self.path, &mut old.path);
        // If this fails, the second name remains, and `old` keeps it.
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

/// Ending of a segment's temporary second name, on a file system without an exchange of names.
const OLD: &[u8] = b".old";

/// A file that gets its name once it is complete. If it is dropped earlier, it is deleted.
pub(crate) struct UnpublishedFile {
    /// `None` once it has its name.
    file: Option<AppendFile>,
}

impl UnpublishedFile {
    /// Creates a file that will be published as `path`.
    pub(crate) fn create(path: &[u8]) -> Result<UnpublishedFile, Errno> {
        let mut unfinished = path.to_vec();
        unfinished.extend_from_slice(format!(".{}.unfinished", sys::getpid()).as_bytes());
        AppendFile::create(&unfinished).map(|file| UnpublishedFile { file: Some(file) })
    }

    /// Appends all of `bytes`, or nothing.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        match &mut self.file {
            Some(file) => file.append(bytes),
            None => Err(AppendError::Replaced),
        }
    }

    /// Gives the file its name. Fails with EEXIST if a file of that name exists, so the caller may
    /// try another name.
    pub(crate) fn publish(&mut self, path: &[u8]) -> Result<(), Errno> {
        let Some(file) = &self.file else {
            return Err(Errno(libc::ENOENT));
        };
        let to = c_path(path)?;
        rename_exclusively(&file.path, &to)?;
        self.file = None;
        Ok(())
    }
}

/// Renames `from` to `to`. Fails with EEXIST if `to` exists.
fn rename_exclusively(from: &CStr, to: &CStr) -> Result<(), Errno> {
    match sys::rename_new(from, to) {
        // The file system has no exclusive rename. A second name fails in the same way if the name
        // exists; then the first name is removed.
        Err(Errno(libc::EINVAL | libc::ENOSYS)) => {
            sys::link(from, to)?;
            let _ = sys::unlink(from);
            Ok(())
        }
        result => result,
    }
}

impl Drop for UnpublishedFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            file.remove();
        }
    }
}

/// Returns true if a file with that name exists and is reachable.
pub(crate) fn exists(path: &[u8]) -> bool {
    c_path(path)
        .and_then(|path| File::open(&path, libc::O_PATH | libc::O_NOFOLLOW, 0))
        .is_ok()
}

/// Returns a prefix of files, with a slash appended if its last component is `.` or `..`.
pub(crate) fn folder_or_prefix(path: &[u8]) -> Vec<u8> {
    let last = path.rsplit(|&byte| byte == b'/').next();
    let slash: &[u8] = match last {
        Some(b"." | b"..") => b"/",
        _ => b"",
    };
    [path, slash].concat()
}

/// Returns the first bytes, at most `most`, of a foreign file that has our path. Returns `None` if
/// it is not a regular file.
pub(crate) fn head(path: &[u8], most: usize) -> Option<Vec<u8>> {
    let file = File::open(&c_path(path).ok()?, SAFELY | libc::O_RDONLY, 0).ok()?;
    let stat = file.stat().ok()?;
    if stat.mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    file.read_up_to(most, stat.size as usize).ok()
}

/// Returns the content of a small file of the kernel.
pub(crate) fn read(path: &[u8]) -> Result<Vec<u8>, Errno> {
    open_to_read(path)?.read_to_end()
}

/// Opens a file of the kernel.
pub(crate) fn open_to_read(path: &[u8]) -> Result<File, Errno> {
    File::open(&c_path(path)?, libc::O_RDONLY, 0)
}
