//! System calls, made directly.
//!
//! Danger: inline `syscall`. libc's wrappers are not used because a program may export functions of
//! those names (a `write` that logs, an `open` that allocates), because they are cancellation
//! points (malloc must not become one), and because they set errno.
//!
//! Every function returns the kernel's answer: a value, or an [`Errno`].

use std::arch::asm;
use std::ffi::CStr;
use std::fmt;

/// An error number of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            libc::ENOENT => "no such file or directory",
            libc::EACCES => "permission denied",
            libc::EPERM => "operation not permitted",
            libc::ENOTDIR => "a component of the path is not a directory",
            libc::EISDIR => "is a directory",
            libc::EROFS => "read-only file system",
            libc::ENOSPC => "no space left on device",
            libc::EDQUOT => "disk quota exceeded",
            libc::EFBIG => "file size limit reached",
            libc::EMFILE | libc::ENFILE => "too many open files",
            libc::ELOOP => "is a symbolic link",
            libc::EEXIST => "file exists",
            libc::ENAMETOOLONG => "file name too long",
            libc::ENOMEM => "out of memory",
            n => return write!(f, "error {n}"),
        };
        f.write_str(words)
    }
}

/// # Safety
/// The arguments must be what the call of that number expects: pointers valid for what it reads and
/// writes.
#[inline]
pub(crate) unsafe fn syscall(number: i64, args: [u64; 6]) -> Result<u64, Errno> {
    let answer: i64;
    // SAFETY: the caller's promise; rcx and r11 are what the instruction clobbers, and memory is not
    // declared untouched.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&answer) {
        Err(Errno(-answer as i32))
    } else {
        Ok(answer as u64)
    }
}

/// An open file, closed when dropped. Held for the length of one operation only (Law 9).
pub(crate) struct File(u64);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: close takes a number. That it is still our file is what "one operation only" is
        // for: the program could close it meanwhile and open its own under the number.
        let _ = unsafe { syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// What tells one file from another, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) mode: u32,
}

impl File {
    /// Opens `path`; `O_CLOEXEC` is added.
    pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> Result<File, Errno> {
        let flags = (flags | libc::O_CLOEXEC) as u64;
        // SAFETY: the path is a C string; openat reads it and nothing else.
        let fd = unsafe {
            syscall(
                libc::SYS_openat,
                [
                    libc::AT_FDCWD as i64 as u64,
                    path.as_ptr() as u64,
                    flags,
                    u64::from(mode),
                    0,
                    0,
                ],
            )?
        };
        Ok(File(fd))
    }

    /// The same file under a number that programs rarely come to: one that closes all that it does not know, and opens
    /// its own, gets the lowest.
    pub(crate) fn aside(self) -> Result<File, Errno> {
        const ASIDE: u64 = 1000;
        // SAFETY: numbers only.
        let answer = unsafe {
            syscall(
                libc::SYS_fcntl,
                [self.0, libc::F_DUPFD_CLOEXEC as u64, ASIDE, 0, 0, 0],
            )
        };
        match answer {
            Ok(fd) => Ok(File(fd)),
            Err(Errno(libc::EBADF)) => {
                std::mem::forget(self); // closed by the program, and perhaps another's by now
                Err(Errno(libc::EBADF))
            }
            Err(_) => Ok(self), // there is no such number, or none free
        }
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: fstat writes one `struct stat`, which on x86-64 is the kernel's own layout.
        unsafe {
            syscall(
                libc::SYS_fstat,
                [self.0, stat.as_mut_ptr() as u64, 0, 0, 0, 0],
            )?;
        }
        // SAFETY: zeroed, then filled by the kernel; integers only.
        let stat = unsafe { stat.assume_init() };
        Ok(Stat {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            mode: stat.st_mode,
        })
    }

    /// Writes all of `bytes`, or as much as could be.
    ///
    /// # Errors
    /// With the number of bytes that were written before the error.
    ///
    /// A file size limit answers with an error only: the signal that comes with it is not the program's.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> Result<(), (usize, Errno)> {
        let _fence = Fence::new();
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            // SAFETY: reads `rest`, which is borrowed for the call.
            let answer = unsafe {
                syscall(
                    libc::SYS_write,
                    [self.0, rest.as_ptr() as u64, rest.len() as u64, 0, 0, 0],
                )
            };
            match answer {
                Ok(0) => return Err((done, Errno(libc::ENOSPC))),
                Ok(n) => done += n as usize,
                Err(Errno(libc::EINTR)) => {}
                Err(error) => {
                    swallow_signal_of(error);
                    return Err((done, error));
                }
            }
        }
        Ok(())
    }

    /// Cuts the file to `len` bytes.
    pub(crate) fn truncate(&self, len: u64) -> Result<(), Errno> {
        // SAFETY: numbers only.
        unsafe { syscall(libc::SYS_ftruncate, [self.0, len, 0, 0, 0, 0]) }.map(drop)
    }

    /// Reads up to `buffer.len()` bytes from `offset` on. Returns how many there were.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: writes at most `buffer.len()` bytes into `buffer`.
        let answer = unsafe {
            syscall(
                libc::SYS_pread64,
                [
                    self.0,
                    buffer.as_mut_ptr() as u64,
                    buffer.len() as u64,
                    offset,
                    0,
                    0,
                ],
            )
        };
        answer.map(|read| read as usize)
    }

    /// Reads all there is, in pieces.
    pub(crate) fn read_to_end(&self) -> Result<Vec<u8>, Errno> {
        self.read_up_to(usize::MAX)
    }

    /// Reads to the end, or until there are at least `most` bytes.
    pub(crate) fn read_up_to(&self, most: usize) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        let mut piece = [0u8; 2048];
        loop {
            if all.len() >= most {
                return Ok(all);
            }
            // SAFETY: writes at most `piece.len()` bytes into `piece`.
            let answer = unsafe {
                syscall(
                    libc::SYS_read,
                    [
                        self.0,
                        piece.as_mut_ptr() as u64,
                        piece.len() as u64,
                        0,
                        0,
                        0,
                    ],
                )
            };
            match answer {
                Ok(0) => return Ok(all),
                Ok(n) => all.extend_from_slice(&piece[..n as usize]),
                Err(Errno(libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Gives `from` the name `to` as well, failing if that exists.
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

/// Renames `from` to `to`, failing if that exists.
pub(crate) fn rename_new(from: &CStr, to: &CStr) -> Result<(), Errno> {
    rename(from, to, libc::RENAME_NOREPLACE)
}

/// Gives two files each other's names, in one step.
pub(crate) fn rename_exchange(one: &CStr, other: &CStr) -> Result<(), Errno> {
    rename(one, other, libc::RENAME_EXCHANGE)
}

/// Renames `from` to `to`; with no flags, what has that name loses it.
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

/// The target of a symbolic link.
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

/// Writes the path of the program's executable, and a zero behind it. False: it has none that fits. Nothing is allocated,
/// and no function of libc's is called.
pub(crate) fn read_own_path(path: &mut [u8]) -> bool {
    // SAFETY: reads a C string, writes at most that many bytes.
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

/// The working directory.
pub(crate) fn getcwd() -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: writes at most the buffer's length.
    let n = unsafe {
        syscall(
            libc::SYS_getcwd,
            [buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0, 0],
        )?
    };
    buffer.truncate((n as usize).saturating_sub(1)); // it counts the closing zero
    Ok(buffer)
}

/// Which file descriptor 2 is: device and inode.
pub(crate) fn stderr_identity() -> Option<(u64, u64)> {
    // Not to be closed: it is the program's.
    let stderr = std::mem::ManuallyDrop::new(File(2));
    stderr.stat().ok().map(|stat| (stat.device, stat.inode))
}

/// Writes to standard error what fits into one write. Nothing is written when nobody reads: the line
/// is not worth a SIGPIPE, nor waiting for room in a pipe that is full.
pub(crate) fn write_stderr(bytes: &[u8]) {
    let mut stderr = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: reads and writes one pollfd; a timeout of 0 does not wait.
    let ready = unsafe {
        syscall(
            libc::SYS_poll,
            [std::ptr::from_mut(&mut stderr) as u64, 1, 0, 0, 0, 0],
        )
    };
    if ready == Ok(0) {
        return;
    }
    let _fence = Fence::new();
    // SAFETY: reads `bytes`. Descriptor 2 is by convention the program's standard error.
    let answer = unsafe {
        syscall(
            libc::SYS_write,
            [2, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0],
        )
    };
    if let Err(error) = answer {
        swallow_signal_of(error);
    }
}

/// While it lives, this thread takes no signal: what our own writing raises must not reach the program.
struct Fence(u64);

impl Fence {
    fn new() -> Fence {
        Fence(block_signals())
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        restore_signals(self.0);
    }
}

/// Takes back the signal that the kernel sent this thread along with that answer to a write, while it
/// is blocked: SIGXFSZ beyond a file size limit, SIGPIPE without a reader. Both end a program by default.
fn swallow_signal_of(error: Errno) {
    let signal = match error.0 {
        libc::EFBIG => libc::SIGXFSZ,
        libc::EPIPE => libc::SIGPIPE,
        _ => return,
    };
    let set = 1u64 << (signal - 1);
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: reads a word of the kernel's sigset size and a timespec of zero, which does not wait.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigtimedwait,
            [
                std::ptr::from_ref(&set) as u64,
                0,
                std::ptr::from_ref(&now) as u64,
                8,
                0,
                0,
            ],
        )
    };
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

/// Ends this thread at once.
pub(crate) fn exit_thread() -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { syscall(libc::SYS_exit, [0; 6]) };
    }
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
                    folder.0,
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

/// Waits until `word` is no longer `expected`, or a wake, or `timeout_ns` (`None`: no limit).
pub(crate) fn futex_wait(
    word: &std::sync::atomic::AtomicU32,
    expected: u32,
    timeout_ns: Option<u64>,
) {
    let time = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let time = time.as_ref().map_or(0, |t| std::ptr::from_ref(t) as u64);
    // SAFETY: the word is valid and aligned, the timespec lives until the call is over.
    let _ = unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as u64,
                (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64,
                u64::from(expected),
                time,
                0,
                0,
            ],
        )
    };
}

/// Wakes all that wait on `word`.
pub(crate) fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: the word is valid; the kernel uses its address only.
    let _ = unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as u64,
                (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64,
                i32::MAX as u64,
                0,
                0,
                0,
            ],
        )
    };
}

/// As [`futex_wait`], for a word that another process may wake.
pub(crate) fn futex_wait_shared(
    word: &std::sync::atomic::AtomicU32,
    expected: u32,
    timeout_ns: Option<u64>,
) {
    let time = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let time = time.as_ref().map_or(0, |t| std::ptr::from_ref(t) as u64);
    // SAFETY: as in `futex_wait`.
    let _ = unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as u64,
                libc::FUTEX_WAIT as u64,
                u64::from(expected),
                time,
                0,
                0,
            ],
        )
    };
}

/// As [`futex_wake`], also of waiters in another process.
pub(crate) fn futex_wake_shared(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: as in `futex_wake`.
    let _ = unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as u64,
                libc::FUTEX_WAKE as u64,
                i32::MAX as u64,
                0,
                0,
                0,
            ],
        )
    };
}

/// Sleeps, or returns early on a signal.
pub(crate) fn sleep_ns(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    // SAFETY: reads the timespec, writes nothing.
    let _ = unsafe {
        syscall(
            libc::SYS_nanosleep,
            [std::ptr::from_ref(&time) as u64, 0, 0, 0, 0, 0],
        )
    };
}

/// Whether the process may map only so much.
pub(crate) fn address_space_is_limited() -> bool {
    let mut limit = [u64::MAX; 2];
    // SAFETY: writes one `struct rlimit`, two words; asks about this process and changes nothing.
    let answer = unsafe {
        syscall(
            libc::SYS_prlimit64,
            [
                0,
                u64::from(libc::RLIMIT_AS),
                0,
                limit.as_mut_ptr() as u64,
                0,
                0,
            ],
        )
    };
    answer.is_ok() && limit[0] != u64::MAX
}

/// Lets another thread run.
pub(crate) fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// Eight random bytes of the kernel's, or the clock's where it has none to give.
pub(crate) fn random_u64() -> u64 {
    let mut word = 0u64;
    // SAFETY: writes at most eight bytes into `word`. GRND_NONBLOCK: early in boot it fails at once.
    let answer = unsafe {
        syscall(
            libc::SYS_getrandom,
            [
                std::ptr::from_mut(&mut word) as u64,
                8,
                u64::from(libc::GRND_NONBLOCK),
                0,
                0,
                0,
            ],
        )
    };
    match answer {
        Ok(8) => word,
        _ => crate::clock::now_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

/// Whether the eight bytes at `address` can be read.
///
/// `rt_sigprocmask` with an operation that does not exist copies the set in first: it answers EFAULT
/// when that fails and EINVAL when it does not, and changes nothing either way. Every seccomp
/// policy under which a program can run allows it.
pub(crate) fn readable(address: u64) -> bool {
    // SAFETY: the kernel reads the address with its own fault handling; no such operation as -1.
    let answer = unsafe { syscall(libc::SYS_rt_sigprocmask, [u64::MAX, address, 0, 8, 0, 0]) };
    answer == Err(Errno(libc::EINVAL))
}

/// The two signals by which libc's threads reach each other: to cancel one, and to have all change their ids, which waits
/// for an answer. Linux's first real-time signals, not for programs to use.
const LIBCS_OWN: u64 = 0b11 << (32 - 1);

/// Blocks every signal but libc's own in this thread and returns the mask before.
pub(crate) fn block_signals() -> u64 {
    let (all, mut before) = (!LIBCS_OWN, 0u64);
    // SAFETY: two words of the kernel's sigset size.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as u64,
                std::ptr::from_ref(&all) as u64,
                std::ptr::from_mut(&mut before) as u64,
                8,
                0,
                0,
            ],
        )
    };
    before
}

/// Restores a mask that [`block_signals`] returned.
pub(crate) fn restore_signals(mask: u64) {
    // SAFETY: reads one word of the kernel's sigset size.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as u64,
                std::ptr::from_ref(&mask) as u64,
                0,
                8,
                0,
                0,
            ],
        )
    };
}

/// The kernel's `struct sigaction`, as far as we look at it.
#[repr(C)]
#[derive(Default)]
pub(crate) struct KernelSigaction {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    mask: u64,
}

/// What the kernel holds for a signal.
pub(crate) fn sigaction_of(signal: i32) -> Option<KernelSigaction> {
    let mut action = KernelSigaction::default();
    // SAFETY: writes one kernel sigaction with an 8-byte mask.
    unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [
                signal as u64,
                0,
                std::ptr::from_mut(&mut action) as u64,
                8,
                0,
                0,
            ],
        )
    }
    .ok()?;
    Some(action)
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

/// Whether `len` bytes can be mapped.
pub(crate) fn can_map(len: usize) -> bool {
    let Some(memory) = map_zeroed(len) else {
        return false;
    };
    // SAFETY: mapped just now, and nobody else knows of it.
    let _ = unsafe { syscall(libc::SYS_munmap, [memory as u64, len as u64, 0, 0, 0, 0]) };
    true
}

/// `len` bytes of zeroed memory of our own, never given back; `None` when there is none to be had.
pub(crate) fn map_zeroed(len: usize) -> Option<*mut u8> {
    // SAFETY: a new anonymous mapping touches nothing that exists.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [
                0,
                len as u64,
                (libc::PROT_READ | libc::PROT_WRITE) as u64,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64,
                u64::MAX,
                0,
            ],
        )
    }
    .ok()
    .map(|address| address as *mut u8)
}

/// `len` bytes of zeroed memory that another process of the same user can attach by an id that stands in this
/// one's `/proc/PID/maps`. It has no name, no descriptor and no file that somebody could cut short, and is
/// gone with the last process that has it.
pub(crate) fn map_attachable(len: usize) -> Result<*mut u8, Errno> {
    // SAFETY: numbers only. IPC_PRIVATE: always a new segment.
    let id = unsafe {
        syscall(
            libc::SYS_shmget,
            [
                libc::IPC_PRIVATE as u64,
                len as u64,
                (libc::IPC_CREAT | 0o600) as u64,
                0,
                0,
                0,
            ],
        )?
    };
    // SAFETY: a new mapping, where the kernel likes it; it touches nothing that exists.
    let address = unsafe { syscall(libc::SYS_shmat, [id, 0, 0, 0, 0, 0]) };
    // SAFETY: numbers only. From here on the last one to detach removes it; that may be the kernel, at our end.
    let _ = unsafe { syscall(libc::SYS_shmctl, [id, libc::IPC_RMID as u64, 0, 0, 0, 0]) };
    address.map(|address| address as *mut u8)
}

/// Puts zeroed memory of this process alone in the place of what [`map_attachable`] gave.
///
/// # Safety
/// `address` and `len` are what `map_attachable` gave, and all zero is valid to whoever still looks there.
pub(crate) unsafe fn unshare(address: *mut u8, len: usize) {
    // SAFETY: replaces, in one step, pages that are ours by the caller's promise.
    let _ = unsafe {
        syscall(
            libc::SYS_mmap,
            [
                address as u64,
                len as u64,
                (libc::PROT_READ | libc::PROT_WRITE) as u64,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64,
                u64::MAX,
                0,
            ],
        )
    };
}
