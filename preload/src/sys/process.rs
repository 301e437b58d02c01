//! This process and its threads.

use std::ffi::CStr;

use super::file::File;
use super::{Errno, syscall};

/// Becomes the program at that path, which ends with a zero.
///
/// # Safety
/// Arrays of C strings that end with a null.
pub(crate) unsafe fn execve(
    path: &[u8],
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) -> Errno {
    // SAFETY: the caller's promise; what comes back is an error.
    let answer = unsafe {
        syscall(
            libc::SYS_execve,
            [
                path.as_ptr() as u64,
                arguments as u64,
                environment as u64,
                0,
                0,
                0,
            ],
        )
    };
    answer.err().unwrap_or(Errno(0))
}

/// The process id, asked of the kernel: right in a vfork child as well.
pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

/// The kernel's id of this thread.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Whether this process has a thread of that number.
pub(crate) fn has_thread(tid: u32) -> bool {
    let pid = u64::from(getpid());
    // SAFETY: numbers only; signal 0 is none, it is only looked whether there is somebody.
    let answer = unsafe { syscall(libc::SYS_tgkill, [pid, tid.into(), 0, 0, 0, 0]) };
    answer != Err(Errno(libc::ESRCH))
}

/// The kernel's ids of the threads of this process; `None` when they cannot be listed.
pub(crate) fn threads() -> Option<Vec<u32>> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let path = std::ffi::CString::new(format!("/proc/{}/task", getpid())).ok()?;
    let folder = File::open(&path, flags, 0).ok()?;
    let mut ids = Vec::new();
    let mut buffer = [0u8; 2048];
    loop {
        // SAFETY: writes at most the buffer's length.
        let len = unsafe {
            syscall(
                libc::SYS_getdents64,
                [
                    folder.number,
                    buffer.as_mut_ptr() as u64,
                    buffer.len() as u64,
                    0,
                    0,
                    0,
                ],
            )
        }
        .ok()? as usize;
        if len == 0 {
            return Some(ids);
        }
        // struct linux_dirent64: inode 8, offset 8, record length 2, type 1, name
        let mut rest = &buffer[..len];
        while let Some(&[a, b]) = rest.get(16..18) {
            let record = usize::from(u16::from_le_bytes([a, b]));
            let name = rest.get(19..record)?;
            let name = name.split(|&byte| byte == 0).next()?;
            if let Ok(id) = std::str::from_utf8(name).ok()?.parse() {
                ids.push(id);
            }
            rest = rest.get(record..)?;
        }
    }
}

/// Ends the process at once with that status.
pub(crate) fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { syscall(libc::SYS_exit_group, [status as u64, 0, 0, 0, 0, 0]) };
    }
}

/// The name of this thread.
pub(crate) fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: writes at most 16 bytes.
    let _ = unsafe {
        syscall(
            libc::SYS_prctl,
            [
                libc::PR_GET_NAME as u64,
                name.as_mut_ptr() as u64,
                0,
                0,
                0,
                0,
            ],
        )
    };
    name
}

/// Names this thread.
pub(crate) fn name_thread(name: &CStr) {
    // SAFETY: reads a C string of at most 16 bytes.
    let _ = unsafe {
        syscall(
            libc::SYS_prctl,
            [libc::PR_SET_NAME as u64, name.as_ptr() as u64, 0, 0, 0, 0],
        )
    };
}
