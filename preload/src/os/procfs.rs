//! What the kernel tells of this process and of its threads, under `/proc`, and under which of its names it is asked.
//!
//! The kernel keeps an entry for each file that was looked at there, and takes it away with the thread or the process
//! that it tells of. What lies below `/proc/<process>/task/<thread>` (and so below `/proc/thread-self`) is taken away from
//! both sides at once at the end of a process: by the thread as it ends, and by whoever waits for the process. Each then
//! spins, in the kernel, until the other has got on (Linux 6.18: `shrink_dcache_parent`), which took a second and more for each
//! child of a process that forks and whose threads keep the processors busy. So what tells of the process is asked of
//! `/proc/self`, and what tells of a thread of `/proc/<thread>`, which is found there although it is not listed.

use heapprof_format::thread_name_in;

use crate::os::files;
use crate::os::seccomp::Spared;
use crate::os::sys::{self, File};

/// A file below the process's, whole, or empty.
///
/// A main thread that has ended (`host/main_thread.rs`) leaves the files of the process's memory empty; that of this thread is
/// then the same.
pub(crate) fn of_process(file: &str) -> Vec<u8> {
    let read = |path: String| files::read(path.as_bytes()).unwrap_or_default();
    let told = read(format!("/proc/self/{file}"));
    if told.is_empty() {
        return read(format!("/proc/{}/{file}", sys::gettid()));
    }
    told
}

/// This process's memory as a file, to be read; the same of the main thread, and of this one, as in [`of_process`].
pub(crate) fn memory() -> Option<File> {
    static HERE: u8 = 1;
    let here = &raw const HERE as u64;
    let of_process = File::open(c"/proc/self/mem", libc::O_RDONLY, 0).ok();
    of_process
        .filter(|file| matches!(file.read_at(here, &mut [0]), Ok(1)))
        .or_else(|| files::open_to_read(format!("/proc/{}/mem", sys::gettid()).as_bytes()).ok())
}

/// The list of this process's mappings, to be read; in the same way.
pub(crate) fn mappings() -> Option<File> {
    let of_process = File::open(c"/proc/self/maps", libc::O_RDONLY, 0).ok();
    of_process
        .filter(|file| matches!(file.read_at(0, &mut [0]), Ok(1)))
        .or_else(|| files::open_to_read(format!("/proc/{}/maps", sys::gettid()).as_bytes()).ok())
}

/// The name of a thread of this process, if it still lives.
pub(crate) fn thread_name(tid: u32) -> Option<String> {
    let told = files::read(format!("/proc/{tid}/status").as_bytes()).ok()?;
    thread_name_in(&told, sys::getpid())
}

/// Whether a thread of this process lives.
pub(crate) fn lives(tid: u32) -> bool {
    // One call, and no matter whose `/proc` there is; a file there is many, and checkpoints ask for each thread.
    if Spared::ThreadAsked.is_allowed() {
        return sys::has_thread(tid);
    }
    thread_name(tid).is_some()
}
