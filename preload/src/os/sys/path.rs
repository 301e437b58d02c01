//! Names of files.

use std::ffi::CStr;

use super::{Errno, syscall};

/// Gives the file `from` the second name `to`. Fails if `to` exists.
pub(crate) fn link(from: &CStr, to: &CStr) -> Result<(), Errno> {
    let here = libc::AT_FDCWD as i64 as u64;
    // SAFETY: two C strings.
    unsafe {
        syscall(
            libc::SYS_linkat,
            [here, from.as_ptr() as u64, here, to.as_ptr() as u64, 0, 0],
        )
    }
    .map(drop)
}

/// Renames `from` to `to`. Fails if `to` exists.
pub(crate) fn rename_new(from: &CStr, to: &CStr) -> Result<(), Errno> {
    rename(from, to, libc::RENAME_NOREPLACE)
}

/// Exchanges the names of two files, in one step.
pub(crate) fn rename_exchange(one: &CStr, other: &CStr) -> Result<(), Errno> {
    rename(one, other, libc::RENAME_EXCHANGE)
}

/// Renames `from` to `to`. Without flags, an existing file `to` is replaced.
pub(crate) fn rename(from: &CStr, to: &CStr, flags: u32) -> Result<(), Errno> {
    let here = libc::AT_FDCWD as i64 as u64;
    // SAFETY: two C strings.
    unsafe {
        syscall(
            libc::SYS_renameat2,
            [
                here,
                from.as_ptr() as u64,
                here,
                to.as_ptr() as u64,
                u64::from(flags),
                0,
            ],
        )
    }
    .map(drop)
}

/// Removes the name `path`.
pub(crate) fn unlink(path: &CStr) -> Result<(), Errno> {
    // SAFETY: a C string.
    unsafe {
        syscall(
            libc::SYS_unlinkat,
            [
                libc::AT_FDCWD as i64 as u64,
                path.as_ptr() as u64,
                0,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Returns the target of a symbolic link.
pub(crate) fn readlink(path: &CStr) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: reads a C string, writes at most the buffer's length.
    let n = unsafe {
        syscall(
            libc::SYS_readlinkat,
            [
                libc::AT_FDCWD as i64 as u64,
                path.as_ptr() as u64,
                buffer.as_mut_ptr() as u64,
                buffer.len() as u64,
                0,
                0,
            ],
        )?
    };
    buffer.truncate(n as usize);
    Ok(buffer)
}

/// Writes the path of the program's executable and a zero byte. Returns false if the path does not
/// fit or does not exist. Allocates nothing, and calls no function of libc.
pub(crate) fn read_own_path(path: &mut [u8]) -> bool {
    // SAFETY: reads a C string, and writes at most `path.len()` bytes.
    let read = unsafe {
        syscall(
            libc::SYS_readlinkat,
            [
                libc::AT_FDCWD as i64 as u64,
                c"/proc/self/exe".as_ptr() as u64,
                path.as_mut_ptr() as u64,
                path.len() as u64,
                0,
                0,
            ],
        )
    };
    match read {
        Ok(len) if (len as usize) < path.len() => {
            path[len as usize] = 0;
            true
        }
        _ => false,
    }
}

/// Returns the working directory.
pub(crate) fn getcwd() -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: writes at most the buffer's length.
    let n = unsafe {
        syscall(
            libc::SYS_getcwd,
            [buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0, 0],
        )?
    };
    buffer.truncate((n as usize).saturating_sub(1)); // the length includes the terminator
    Ok(buffer)
}
