//! Seccomp filters: whether those of a process let the library work.
//!
//! A seccomp filter may end the process for a system call. The kernel shows the filters of a
//! stopped thread to a tracer that has CAP_SYS_ADMIN, and core evaluates them (`seccomp_bpf`) for
//! each call that borrowed code, the loader and the library make. A filter that refuses a call with
//! an error is harmless: then attaching or recording fails, and says so.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use heapprof_core::seccomp_bpf::{Instruction, SystemCall, survives};

use super::target::status_of;
use super::tracee::{Stop, Tracee};

/// How long a thread has to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A system call with the arguments that seccomp filters inspect.
struct Call {
    name: &'static str,
    call: SystemCall,
}

macro_rules! calls {
    ($($name:ident = $number:expr, [$($argument:expr),*];)*) => {
        &[$(call(stringify!($name), $number, &[$($argument as u64),*])),*]
    };
}

const fn call(name: &'static str, number: libc::c_long, first: &[u64]) -> Call {
    let mut arguments = [0; 6];
    let mut at = 0;
    while at < first.len() {
        arguments[at] = first[at];
        at += 1;
    }
    let number = number as u32;
    Call {
        name,
        call: SystemCall { number, arguments },
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const READ_EXECUTE: i32 = libc::PROT_READ | libc::PROT_EXEC;
const MEMORY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const UNRESERVED: i32 = MEMORY | libc::MAP_NORESERVE;
const OF_FILE: i32 = libc::MAP_PRIVATE | libc::MAP_DENYWRITE;
const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;
/// The flags by which libc creates a thread without `clone3`.
const THREAD: u64 = 0x3d_0f00;

/// The calls that are made in the process: the library's own
/// (`preload/src/host/seccomp_filters.rs`), and those of libc and its loader.
const CALLS: &[Call] = calls! {
    mmap = libc::SYS_mmap, [0, 0, READ_WRITE, MEMORY];
    mmap = libc::SYS_mmap, [0, 0, READ_WRITE, UNRESERVED];
    mmap = libc::SYS_mmap, [0, 0, libc::PROT_NONE, UNRESERVED];
    mmap = libc::SYS_mmap, [0, 0, libc::PROT_NONE, MEMORY | libc::MAP_STACK];
    mmap = libc::SYS_mmap, [0, 0, READ_WRITE, UNRESERVED | libc::MAP_FIXED];
    mmap = libc::SYS_mmap, [0, 0, libc::PROT_READ, OF_FILE];
    mmap = libc::SYS_mmap, [0, 0, READ_EXECUTE, OF_FILE | libc::MAP_FIXED];
    mmap = libc::SYS_mmap, [0, 0, READ_WRITE, OF_FILE | libc::MAP_FIXED];
    mprotect = libc::SYS_mprotect, [0, 0, READ_EXECUTE];
    mprotect = libc::SYS_mprotect, [0, 0, READ_WRITE];
    mprotect = libc::SYS_mprotect, [0, 0, libc::PROT_READ];
    mprotect = libc::SYS_mprotect, [0, 0, libc::PROT_NONE];
    munmap = libc::SYS_munmap, [];
    mremap = libc::SYS_mremap, [];
    madvise = libc::SYS_madvise, [0, 0, libc::MADV_DONTNEED];
    brk = libc::SYS_brk, [];
    memfd_create = libc::SYS_memfd_create, [0, libc::MFD_CLOEXEC];
    openat = libc::SYS_openat, [libc::AT_FDCWD];
    read = libc::SYS_read, [];
    pread64 = libc::SYS_pread64, [];
    write = libc::SYS_write, [];
    pwrite64 = libc::SYS_pwrite64, [];
    lseek = libc::SYS_lseek, [];
    close = libc::SYS_close, [];
    fstat = libc::SYS_fstat, [];
    newfstatat = libc::SYS_newfstatat, [libc::AT_FDCWD];
    readlinkat = libc::SYS_readlinkat, [];
    getdents64 = libc::SYS_getdents64, [];
    getcwd = libc::SYS_getcwd, [];
    fcntl = libc::SYS_fcntl, [0, libc::F_GETFL];
    fcntl = libc::SYS_fcntl, [0, libc::F_GETFD];
    ftruncate = libc::SYS_ftruncate, [];
    renameat2 = libc::SYS_renameat2, [];
    unlinkat = libc::SYS_unlinkat, [];
    linkat = libc::SYS_linkat, [];
    shmget = libc::SYS_shmget, [];
    shmat = libc::SYS_shmat, [];
    shmctl = libc::SYS_shmctl, [];
    shmdt = libc::SYS_shmdt, [];
    clone3 = libc::SYS_clone3, [];
    clone = libc::SYS_clone, [THREAD];
    set_robust_list = libc::SYS_set_robust_list, [];
    rseq = libc::SYS_rseq, [];
    exit = libc::SYS_exit, [];
    futex = libc::SYS_futex, [0, libc::FUTEX_WAIT];
    futex = libc::SYS_futex, [0, libc::FUTEX_WAIT | PRIVATE];
    futex = libc::SYS_futex, [0, libc::FUTEX_WAKE];
    futex = libc::SYS_futex, [0, libc::FUTEX_WAKE | PRIVATE];
    nanosleep = libc::SYS_nanosleep, [];
    sched_yield = libc::SYS_sched_yield, [];
    sched_getaffinity = libc::SYS_sched_getaffinity, [];
    sched_getattr = libc::SYS_sched_getattr, [];
    poll = libc::SYS_poll, [];
    rt_sigaction = libc::SYS_rt_sigaction, [];
    rt_sigprocmask = libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK];
    rt_sigprocmask = libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK];
    rt_sigtimedwait = libc::SYS_rt_sigtimedwait, [];
    sigaltstack = libc::SYS_sigaltstack, [];
    getpid = libc::SYS_getpid, [];
    gettid = libc::SYS_gettid, [];
    tgkill = libc::SYS_tgkill, [];
    getresuid = libc::SYS_getresuid, [];
    getresgid = libc::SYS_getresgid, [];
    capget = libc::SYS_capget, [];
    getrandom = libc::SYS_getrandom, [];
    prctl = libc::SYS_prctl, [libc::PR_GET_SECCOMP];
    prctl = libc::SYS_prctl, [libc::PR_GET_NAME];
    prctl = libc::SYS_prctl, [libc::PR_SET_NAME];
    prctl = libc::SYS_prctl, [libc::PR_GET_SECUREBITS];
    prctl = libc::SYS_prctl, [libc::PR_SET_VMA];
};

/// A seccomp filter, as the kernel shows it.
type SeccompFilter = Vec<[u8; 8]>;

/// Refuses a process with a seccomp filter that would end it for one of the calls.
///
/// # Errors
/// In words: which call, or why the seccomp filters cannot be read.
pub(super) fn check(pid: u32) -> Result<(), String> {
    let mut filters = BTreeSet::new();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let names = tasks.flatten().flatten().map(|entry| entry.file_name());
    for tid in names.filter_map(|name| name.to_str()?.parse::<u32>().ok()) {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
        match status_of(&status.unwrap_or_default(), "Seccomp:").as_str() {
            "0" | "" => {}
            "2" => filters.extend(seccomp_filters_of(tid)?),
            _ => {
                return Err("it is in seccomp's strict mode, so it can make no system call".into());
            }
        }
    }
    for filter in filters {
        let filter: Vec<Instruction> = filter.into_iter().map(instruction).collect();
        let mut calls = CALLS.iter();
        if let Some(call) = calls.find(|it| !survives(&filter, &[it.call])) {
            return Err(format!(
                "its seccomp filter would end it for the system call {}, which heapprof makes in it; \
                 permit that call, or start it by heapprof run",
                call.name
            ));
        }
    }
    Ok(())
}

/// Reads the seccomp filters of one thread, which stops for it.
fn seccomp_filters_of(tid: u32) -> Result<Vec<SeccompFilter>, String> {
    let Ok(mut thread) = Tracee::interrupt(tid) else {
        return Ok(Vec::new()); // it has ended, or why it cannot be stopped is told later
    };
    match thread.wait(Instant::now() + STOP_TIMEOUT) {
        Ok(Some(Stop::Interrupted)) => {}
        Ok(Some(Stop::Gone)) | Err(_) => return Ok(Vec::new()),
        _ => return Err("a thread of it does not stop; try again later".into()),
    }
    let mut filters = Vec::new();
    loop {
        match thread.seccomp_filter(filters.len()) {
            Ok(Some(filter)) => filters.push(filter),
            Ok(None) => return Ok(filters),
            Err(error) => return Err(why_not_shown(&error)),
        }
    }
}

fn why_not_shown(error: &io::Error) -> String {
    let why = "it is under a seccomp filter, which might end it for a system call of heapprof";
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "{why}; the kernel shows filters to root alone, outside of containers: sudo heapprof \
             attach from the host, or start it by heapprof run"
        ),
        _ => format!(
            "{why}; this kernel does not show the filter ({error}); start it by heapprof run"
        ),
    }
}

fn instruction(bytes: [u8; 8]) -> Instruction {
    let [a, b, met, unmet, operand @ ..] = bytes;
    Instruction {
        code: u16::from_le_bytes([a, b]),
        met,
        unmet,
        operand: u32::from_le_bytes(operand),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `if (number == wanted) return first; return second;`
    fn filter(wanted: u32, first: u32, second: u32) -> Vec<Instruction> {
        let step = |code: u16, met, unmet, operand: u32| {
            let [a, b] = code.to_le_bytes();
            let [c, d, e, f] = operand.to_le_bytes();
            instruction([a, b, met, unmet, c, d, e, f])
        };
        vec![
            step(0x20, 0, 0, 0),
            step(0x15, 0, 1, wanted),
            step(0x06, 0, 0, first),
            step(0x06, 0, 0, second),
        ]
    }

    #[test]
    fn a_seccomp_filter_that_ends_the_process_is_told_by_the_call() {
        const ALLOW: u32 = 0x7fff_0000;
        let kills = filter(libc::SYS_memfd_create as u32, 0, ALLOW);
        let bad: Vec<_> = (CALLS.iter())
            .filter(|it| !survives(&kills, &[it.call]))
            .map(|it| it.name)
            .collect();
        assert_eq!(bad, ["memfd_create"]);
        let refuses = filter(libc::SYS_memfd_create as u32, 0x0005_0001, ALLOW);
        assert!(CALLS.iter().all(|it| survives(&refuses, &[it.call])));
    }
}
