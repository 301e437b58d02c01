//! Files of `/proc` about this process and its threads, and the paths by which they are read.
//!
//! The kernel caches an entry for each file that is looked up there, and removes it with its thread
//! or process. At the end of a process, entries below `/proc/<process>/task/<thread>` (and
//! `/proc/thread-self`) are removed from two sides. One is the ending thread, the other the
//! process's parent in wait. Each side spins in the kernel until the other has progressed
//! (`shrink_dcache_parent`). If a process forks often and its threads keep the processors busy,
//! this delays each child's end by seconds.
//!
//! So files about the process are read below `/proc/self`, and files about a thread below
//! `/proc/<thread>`, which exists although it is not listed.

use std::ffi::CStr;
use std::io::Write;
use std::ops::Range;

use heapprof_format::thread_name_in;

use crate::os::files;
use crate::os::seccomp::AvoidableCall;
use crate::os::sys::{self, File, PAGE};

/// Returns a file below the process's folder, or nothing if there is none.
///
/// If the main thread has ended, the files about the process's memory are empty. Then the file of
/// the calling thread has the content.
pub(crate) fn of_process(file: &str) -> Vec<u8> {
    let read = |path: String| files::read(path.as_bytes()).unwrap_or_default();
    let told = read(format!("/proc/self/{file}"));
    if told.is_empty() {
        return read(format!("/proc/{}/{file}", sys::gettid()));
    }
    told
}

/// Opens the memory of this process for reading. If the main thread has ended, opens it through the
/// calling thread, as [`of_process`] does.
pub(crate) fn memory() -> Option<File> {
    static HERE: u8 = 1;
    let here = &raw const HERE as u64;
    let of_process = File::open(c"/proc/self/mem", libc::O_RDONLY, 0).ok();
    of_process
        .filter(|file| matches!(file.read_at(here, &mut [0]), Ok(1)))
        .or_else(|| files::open_to_read(format!("/proc/{}/mem", sys::gettid()).as_bytes()).ok())
}

/// Opens the list of this process's mappings for reading, in the same way as [`memory`].
pub(crate) fn mappings() -> Option<File> {
    let of_process = File::open(c"/proc/self/maps", libc::O_RDONLY, 0).ok();
    of_process
        .filter(|file| matches!(file.read_at(0, &mut [0]), Ok(1)))
        .or_else(|| files::open_to_read(format!("/proc/{}/maps", sys::gettid()).as_bytes()).ok())
}

/// Passes a file below the process's folder to `read`, and then the calling thread's file, as
/// [`of_process`] does, until `read` finds something there. Takes no memory.
pub(crate) fn in_file_of_process<T>(
    file: &str,
    read: &mut dyn FnMut(File) -> Option<T>,
) -> Option<T> {
    let mut open = |folder: &dyn std::fmt::Display| {
        let mut path = [0u8; 64];
        write!(&mut path[..63], "/proc/{folder}/{file}").ok()?;
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        read(File::open(path, libc::O_RDONLY, 0).ok()?)
    };
    open(&"self").or_else(|| open(&sys::gettid()))
}

/// Returns the beginning of a file below the process's folder, as much as `place` holds. Empty if
/// there is none. Takes no memory.
pub(crate) fn text_of_process<'a>(file: &str, place: &'a mut [u8]) -> &'a [u8] {
    let mut read = |file: File| Some(file.read_into(place)).filter(|&len| len > 0);
    let len = in_file_of_process(file, &mut read).unwrap_or(0);
    &place[..len]
}

/// Returns the name of a thread of this process, if it still lives.
pub(crate) fn thread_name(tid: u32) -> Option<String> {
    let told = files::read(format!("/proc/{tid}/status").as_bytes()).ok()?;
    thread_name_in(&told, sys::getpid())
}

/// Returns true if the thread of this process lives.
pub(crate) fn lives(tid: u32) -> bool {
    // One system call, which works with any `/proc`. A file takes several, and a checkpoint asks
    // for each thread.
    if AvoidableCall::ThreadCheck.is_allowed() {
        return sys::has_thread(tid);
    }
    thread_name(tid).is_some()
}

/// Returns the progress of a thread of this process that has that name: its time on a processor in
/// nanoseconds, and whether it is runnable. `None`: there is no such thread. Takes no memory.
pub(crate) fn progress(tid: u32, name: &[u8]) -> Option<(u64, bool)> {
    let mut place = [0; 512];
    let stat = small(tid, "stat", &mut place)?;
    // `TID (NAME) STATE …`
    let (opens, closes) = (
        stat.iter().position(|&byte| byte == b'(')?,
        stat.iter().rposition(|&byte| byte == b')')?,
    );
    if stat.get(opens + 1..closes)? != name {
        return None; // `/proc` is of another process namespace
    }
    let is_runnable = *stat.get(closes + 2)? == b'R';
    let mut place = [0; 128];
    let of_scheduler = small(tid, "schedstat", &mut place)?;
    let ran = of_scheduler.split(|&byte| byte == b' ').next()?;
    Some((std::str::from_utf8(ran).ok()?.parse().ok()?, is_runnable))
}

/// Returns true if every thread of this process, but for the calling one, waits in the kernel, and
/// continues outside of `code`. False if a thread runs, or if the kernel does not tell.
pub(crate) fn other_threads_wait_outside(code: &Range<u64>) -> bool {
    let mut all_wait = true;
    let listed = sys::list_threads(&mut |tid| all_wait &= waits_outside(tid, code).is_some());
    listed.is_some() && all_wait
}

/// Returns `None` unless the thread waits in the kernel and continues outside of `code`. The
/// calling thread waits in the system call that reads this file.
fn waits_outside(tid: &[u8], code: &Range<u64>) -> Option<()> {
    let tid = std::str::from_utf8(tid).ok()?;
    let told = files::read(format!("/proc/self/task/{tid}/syscall").as_bytes()).ok()?;
    // `running`, or numbers, of which the last is the program counter.
    let last = std::str::from_utf8(&told).ok()?.split_whitespace().last()?;
    let pc = u64::from_str_radix(last.strip_prefix("0x")?, 16).ok()?;
    (!code.contains(&pc)).then_some(())
}

/// Returns the first bytes of a file about that thread.
fn small<'a>(tid: u32, file: &str, place: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0u8; 48];
    write!(&mut path[..47], "/proc/{tid}/{file}").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let len = File::open(path, libc::O_RDONLY, 0)
        .ok()?
        .read_at(0, place)
        .ok()?;
    place.get(..len)
}

/// Returns how many bytes of this process are resident.
pub(crate) fn resident_bytes() -> Option<u64> {
    bytes_of_statm(1)
}

/// Returns the bytes of the address space that are mapped.
pub(crate) fn virtual_bytes() -> Option<u64> {
    bytes_of_statm(0)
}

/// Returns a number of `/proc/self/statm`, which counts pages.
fn bytes_of_statm(number: usize) -> Option<u64> {
    let mut place = [0; 256];
    let sizes = text_of_process("statm", &mut place);
    let pages = std::str::from_utf8(sizes).ok()?.split(' ').nth(number)?;
    pages.trim_end().parse::<u64>().ok()?.checked_mul(PAGE)
}
