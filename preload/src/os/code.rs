//! Code: memory for generated code near a module, and changes of a module's own code.
//!
//! Danger: running code is changed. At boot, in our constructor, this thread is the only one. It
//! runs none of the changed functions, and no frame of its stack is in a changed function. Later,
//! the caller makes sure that no other thread runs the code (`hooks/taps/opened_libraries`,
//! `hooks/taps/library_changes`). A page is writable or executable, never both.

use crate::os::sys::{self, Errno, File, PAGE};

/// Distance between two attempts to map memory near a module.
const STEP: u64 = 1 << 20;
/// Number of attempts in each direction: jumps reach 2 GiB.
const STEPS: u64 = 1024;

/// Pages for generated code, which is written first and sealed then. Pages that are not sealed are
/// unmapped when dropped.
pub(crate) struct GeneratedCode {
    start: u64,
    len: usize,
    used: usize,
}

impl GeneratedCode {
    /// Maps `len` bytes, rounded up to pages, as near to `module` as there is room. `None`: there
    /// is none within the reach of a jump.
    pub(crate) fn near(module: std::ops::Range<u64>, len: usize) -> Option<GeneratedCode> {
        let len = len.next_multiple_of(PAGE as usize);
        let above = module.end.next_multiple_of(STEP);
        let below = (module.start & !(STEP - 1)).saturating_sub(len as u64) & !(STEP - 1);
        let places = (0..STEPS).flat_map(|step| {
            let distance = step * STEP;
            [above.checked_add(distance), below.checked_sub(distance)]
        });
        let mut mapped = places
            .flatten()
            .filter(|&place| place >= STEP)
            .filter_map(|place| sys::map_at(place, len));
        mapped.next().map(|start| GeneratedCode {
            start,
            len,
            used: 0,
        })
    }

    /// Returns the address of the next byte that [`push`](Self::push) writes.
    pub(crate) fn address(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Appends code. False: there is no room.
    pub(crate) fn push(&mut self, code: &[u8]) -> bool {
        if self.len - self.used < code.len() {
            return false;
        }
        // SAFETY: within the pages, which are writable and not used by other code.
        unsafe {
            let place = std::ptr::with_exposed_provenance_mut::<u8>(self.address() as usize);
            place.copy_from_nonoverlapping(code.as_ptr(), code.len());
        }
        self.used += code.len();
        true
    }

    /// Aligns the address of the next byte to 16 bytes.
    pub(crate) fn align(&mut self) {
        self.used = self.used.next_multiple_of(16).min(self.len);
    }

    /// Makes the pages executable and no longer writable. Returns their range.
    pub(crate) fn seal(self) -> Result<std::ops::Range<u64>, Errno> {
        sys::protect(self.start, self.len, libc::PROT_READ | libc::PROT_EXEC)?;
        let pages = self.start..self.start + self.len as u64;
        std::mem::forget(self);
        Ok(pages)
    }
}

impl Drop for GeneratedCode {
    fn drop(&mut self) {
        sys::unmap_at(self.start, self.len);
    }
}

/// Replaces code of a module by `bytes`. The kernel writes them, as it does for a debugger. The
/// protection of the pages stays as it is.
///
/// # Safety
/// No thread runs the replaced instructions. The bytes at `at` are code of a module, which `bytes`
/// may replace.
pub(crate) unsafe fn replace(at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let memory = File::open(c"/proc/self/mem", libc::O_RDWR, 0)?;
    match memory.write_at(at, bytes)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(Errno(libc::EIO)),
    }
}

/// As [`replace`], where the kernel does not write (a hardened one, no `/proc`). The pages lose the
/// right of execution for a moment.
///
/// # Safety
/// That of [`replace`], for all code in the pages. The pages do not contain code of this library.
/// The process has made changed pages executable before, so no rule forbids it now.
pub(crate) unsafe fn replace_by_protection(at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let first = at & !(PAGE - 1);
    let len = (at + bytes.len() as u64).next_multiple_of(PAGE) - first;
    sys::protect(first, len as usize, libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: the caller's promise; the pages are writable now.
    unsafe {
        let place = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
        place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    sys::protect(first, len as usize, libc::PROT_READ | libc::PROT_EXEC)
}
