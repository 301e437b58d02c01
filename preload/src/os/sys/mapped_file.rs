//! Mapped files: a file of which a part is read, such as that of a loaded module.

use super::memory::map_private;
use super::{File, return_place, syscall};

/// A file that is mapped for reading, whole. Unmapped when dropped.
pub(crate) struct MappedFile {
    address: u64,
    len: usize,
}

impl MappedFile {
    /// Maps the file. `None`: it is empty, or cannot be mapped.
    pub(crate) fn of(file: &File) -> Option<MappedFile> {
        let len = usize::try_from(file.stat().ok()?.size).ok()?;
        let address = map_private(len, libc::PROT_READ, 0, file.number()).ok()?;
        Some(MappedFile { address, len })
    }

    /// The bytes of the file. If another process shortens the file while it is read, this process
    /// ends, as with any mapped program.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for reading while this lives. The file is that of a loaded module.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`; nobody has a reference into it any more.
        let _ = unsafe {
            syscall(
                libc::SYS_munmap,
                [self.address, self.len as u64, 0, 0, 0, 0],
            )
        };
        return_place(self.address, self.len);
    }
}
