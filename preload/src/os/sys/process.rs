//! This process and its threads.

use std::ffi::CStr;

use super::file::File;
use super::{Errno, syscall};

/// Replaces the process by the program at `path`, which ends with a zero byte. Returns only on an
/// error.
///
/// # Safety
/// `arguments` and `environment` are arrays of C strings that end with a null.
pub(crate) unsafe fn execve(
    path: &[u8],
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) -> Errno {
    // SAFETY: the caller's promise; the call returns only with an error.
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

/// Returns the process id from the kernel, which is correct in a vfork child, too.
pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

/// Returns the kernel's id of this thread.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Returns true if this process has a thread with that id.
pub(crate) fn has_thread(tid: u32) -> bool {
    let pid = u64::from(getpid());
    // SAFETY: numbers only. Signal 0 is not sent; the kernel only checks that the thread exists.
    let answer = unsafe { syscall(libc::SYS_tgkill, [pid, tid.into(), 0, 0, 0, 0]) };
    answer != Err(Errno(libc::ESRCH))
}

/// Returns the address of a thread's list of robust mutexes (get_robust_list(2)), which libc keeps
/// in the thread's descriptor. 0: this thread. `None`: there is no such thread, or it has no list.
pub(crate) fn robust_list(tid: u32) -> Option<u64> {
    let (mut head, mut len) = (0u64, 0u64);
    let places = [&raw mut head as u64, &raw mut len as u64];
    // SAFETY: writes a word to each of both places.
    let answer = unsafe {
        syscall(
            libc::SYS_get_robust_list,
            [tid.into(), places[0], places[1], 0, 0, 0],
        )
    };
    answer.ok().map(|_| head).filter(|&head| head != 0)
}

/// Returns the number of threads of this process, or `None` if they cannot be counted. The listed
/// ids are not used, because they may differ from the ids known here: `/proc` may belong to an
/// outer PID namespace.
pub(crate) fn threads() -> Option<usize> {
    let mut count = 0;
    list_threads(&mut |_| count += 1)?;
    Some(count)
}

/// Passes the name of each entry of `/proc/self/task` to `visit`: the ids of the threads of this
/// process, as that `/proc` numbers them. `None`: they cannot be listed.
pub(crate) fn list_threads(visit: &mut dyn FnMut(&[u8])) -> Option<()> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let folder = File::open(c"/proc/self/task", flags, 0).ok()?;
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
            return Some(());
        }
        // struct linux_dirent64: inode 8, offset 8, record length 2, type 1, name
        let mut rest = &buffer[..len];
        while let Some(&[a, b]) = rest.get(16..18) {
            let record = usize::from(u16::from_le_bytes([a, b]));
            let name = rest.get(19..record)?;
            let name = name.split(|&byte| byte == 0).next()?;
            if name.iter().all(u8::is_ascii_digit) {
                visit(name); // neither `.` nor `..`
            }
            rest = rest.get(record..)?;
        }
    }
}

/// Ends the process at once with `status`.
pub(crate) fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { syscall(libc::SYS_exit_group, [status as u64, 0, 0, 0, 0, 0]) };
    }
}

/// Returns the name of this thread.
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

/// Sets the name of this thread.
pub(crate) fn name_thread(name: &CStr) {
    // SAFETY: reads a C string of at most 16 bytes.
    let _ = unsafe {
        syscall(
            libc::SYS_prctl,
            [libc::PR_SET_NAME as u64, name.as_ptr() as u64, 0, 0, 0, 0],
        )
    };
}

/// The processors that a thread may run on, one bit each, and its scheduling policy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scheduling {
    processors: [u64; 128],
    /// Number of bytes of `processors` that the kernel knows.
    len: usize,
    policy: u32,
    niceness: u32,
}

/// The head of the kernel's `struct sched_attr`: the attributes of threads that are not real-time
/// threads.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    niceness: u32,
    priority: u32,
    deadline: [u64; 3],
}

impl Scheduling {
    /// Returns the scheduling of this thread.
    pub(crate) fn of_this_thread() -> Option<Scheduling> {
        let (mut processors, mut it) = ([0u64; 128], Attributes::default());
        let (place, size) = (processors.as_mut_ptr() as u64, size_of_val(&processors));
        // SAFETY: writes at most `size` bytes, and returns their number.
        let len = unsafe {
            syscall(
                libc::SYS_sched_getaffinity,
                [0, size as u64, place, 0, 0, 0],
            )
        };
        let (place, size) = (std::ptr::from_mut(&mut it) as u64, size_of::<Attributes>());
        // SAFETY: writes a structure of that size.
        unsafe { syscall(libc::SYS_sched_getattr, [0, place, size as u64, 0, 0, 0]) }.ok()?;
        Some(Scheduling {
            processors,
            len: len.ok()? as usize,
            policy: it.policy,
            niceness: it.niceness,
        })
    }

    /// Applies it to this thread as far as the kernel allows: niceness cannot decrease. Never makes
    /// a real-time thread.
    pub(crate) fn apply(&self) {
        let Some(now) = Scheduling::of_this_thread() else {
            return;
        };
        if now.processors != self.processors {
            let place = self.processors.as_ptr() as u64;
            // SAFETY: reads `len` bytes.
            let _ = unsafe {
                syscall(
                    libc::SYS_sched_setaffinity,
                    [0, self.len as u64, place, 0, 0, 0],
                )
            };
        }
        let is_real_time = ![libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE]
            .contains(&(self.policy as i32));
        if is_real_time || (now.policy, now.niceness) == (self.policy, self.niceness) {
            return;
        }
        for niceness in [self.niceness, now.niceness] {
            let wanted = Attributes {
                size: size_of::<Attributes>() as u32,
                policy: self.policy,
                niceness,
                ..Attributes::default()
            };
            let place = std::ptr::from_ref(&wanted) as u64;
            // SAFETY: reads a structure that contains its own length.
            if unsafe { syscall(libc::SYS_sched_setattr, [0, place, 0, 0, 0, 0]) }.is_ok() {
                return;
            }
        }
    }
}
