//! Seccomp filters: restrictions of system calls that a program installs on itself while it runs.
//!
//! A filter may end the process for one of our system calls. So the functions that install filters
//! are exported, and `heapprof_core::seccomp_bpf` first evaluates the filter for our calls. If it
//! would end the process for one of them, recording ends before: our thread flushes the log and
//! ends, and hooks make no further calls. The program runs on. A filter that allows or refuses our
//! calls is accepted, and the session begins before it. If it would end the process only for calls
//! that recording can do without, recording goes on without these (`os/seccomp`). A filter that is
//! installed past libc is not seen.
//!
//! There is a similar restriction on the processor's time stamp counter, which hooks and the vDSO
//! read. On request, the kernel ends a process that reads it by SIGSEGV. Recording ends before
//! that, too.

use std::ffi::c_long;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_core::seccomp_bpf::{Instruction, LONGEST, SystemCall, survives};
use heapprof_format::EndReason;

use crate::host::privilege_drop;
use crate::os::cancellation::DeferredCancellation;
use crate::os::diagnostics::{self, notice};
use crate::os::seccomp::AvoidableCall;
use crate::os::{clock, credentials, errno, sys};
use crate::recording::{seats, session};
use crate::state::thread::{self, RunningCode};
use crate::state::{phase, process};
use crate::writer::{self, session_start};

/// Our system calls while we record, with the arguments that filters inspect. docs/hosts.md lists
/// them.
const RECORDING_CALLS: &[SystemCall] = &[
    call(libc::SYS_openat, [libc::AT_FDCWD as u64, 0, 0, 0]),
    call(libc::SYS_fstat, [0; 4]),
    call(libc::SYS_pread64, [0; 4]),
    call(libc::SYS_write, [0; 4]),
    call(libc::SYS_close, [0; 4]),
    call(libc::SYS_futex, [0, FUTEX_WAIT, 0, 0]),
    call(libc::SYS_futex, [0, FUTEX_WAIT | FUTEX_PRIVATE, 0, 0]),
    call(libc::SYS_futex, [0, FUTEX_WAKE, 0, 0]),
    call(libc::SYS_futex, [0, FUTEX_WAKE | FUTEX_PRIVATE, 0, 0]),
    call(libc::SYS_nanosleep, [0; 4]),
    call(libc::SYS_sched_yield, [0; 4]),
    call(libc::SYS_mmap, [0, 0, PROTECTION, MAPPING]), // jemalloc's
    call(libc::SYS_mmap, [0, 0, PROTECTION, UNRESERVED]),
    call(libc::SYS_mmap, [0, 0, NO_PROTECTION, UNRESERVED]),
    call(libc::SYS_mmap, [0, 0, PROTECTION, UNRESERVED | FIXED]),
    call(libc::SYS_munmap, [0; 4]),
    call(libc::SYS_madvise, [0, 0, libc::MADV_DONTNEED as u64, 0]),
    call(libc::SYS_getrandom, [0; 4]),
    call(libc::SYS_getpid, [0; 4]),
    call(libc::SYS_gettid, [0; 4]),
    call(libc::SYS_prctl, [libc::PR_GET_SECCOMP as u64, 0, 0, 0]),
    call(libc::SYS_prctl, [libc::PR_GET_NAME as u64, 0, 0, 0]),
    call(libc::SYS_rt_sigprocmask, [0; 4]),
    call(libc::SYS_exit, [0; 4]),
    call(libc::SYS_renameat2, [0; 4]),
    call(libc::SYS_unlinkat, [0; 4]),
    call(libc::SYS_linkat, [0; 4]),
    call(libc::SYS_ftruncate, [0; 4]),
    call(libc::SYS_rt_sigtimedwait, [0; 4]),
    call(libc::SYS_rt_sigaction, [0; 4]),
    call(libc::SYS_poll, [0; 4]),
    call(libc::SYS_getdents64, [0; 4]),
];
/// Further calls that start a session, with libc's part: a forked process starts its own session,
/// behind the filter.
const SESSION_START_CALLS: &[SystemCall] = &[
    call(libc::SYS_readlinkat, [0; 4]),
    call(libc::SYS_getcwd, [0; 4]),
    call(libc::SYS_shmget, [0; 4]),
    call(libc::SYS_shmat, [0; 4]),
    call(libc::SYS_shmctl, [0; 4]),
    call(libc::SYS_mprotect, [0, 0, PROTECTION, 0]),
    call(libc::SYS_clone3, [0; 4]),
    call(libc::SYS_clone, [CLONE_THREAD_FLAGS, 0, 0, 0]),
    call(libc::SYS_set_robust_list, [0; 4]),
    call(libc::SYS_rseq, [0; 4]),
    call(libc::SYS_prctl, [libc::PR_SET_NAME as u64, 0, 0, 0]),
    call(libc::SYS_prctl, [libc::PR_GET_SECUREBITS as u64, 0, 0, 0]),
    call(libc::SYS_capget, [0; 4]),
    call(libc::SYS_getresuid, [0; 4]),
    call(libc::SYS_getresgid, [0; 4]),
];
/// The clock of a thread's time on a processor.
const THREAD_CLOCK: u64 = libc::CLOCK_THREAD_CPUTIME_ID as u64;
/// Calls of a memory reading.
const MEMORY_QUERIES: [SystemCall; 3] = [
    call(libc::SYS_prlimit64, [0, libc::RLIMIT_AS as u64, 0, 0]),
    call(libc::SYS_get_robust_list, [0; 4]),
    call(libc::SYS_clock_gettime, [THREAD_CLOCK, 0, 0, 0]),
];
/// The flags of libc's `pthread_create`, where there is no `clone3`.
const CLONE_THREAD_FLAGS: u64 = if cfg!(target_env = "musl") {
    0x7d_0f00
} else {
    0x3d_0f00
};
const FUTEX_WAIT: u64 = libc::FUTEX_WAIT as u64;
const FUTEX_WAKE: u64 = libc::FUTEX_WAKE as u64;
const FUTEX_PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;
const PROTECTION: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const NO_PROTECTION: u64 = libc::PROT_NONE as u64;
const MAPPING: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
/// The flags of our own mappings.
const UNRESERVED: u64 = MAPPING | libc::MAP_NORESERVE as u64;
const FIXED: u64 = libc::MAP_FIXED as u64;

const fn call(number: c_long, first: [u64; 4]) -> SystemCall {
    let [a, b, c, d] = first;
    SystemCall {
        number: number as u32,
        arguments: [a, b, c, d, 0, 0],
    }
}

/// `struct sock_fprog`.
#[repr(C)]
struct SockFprog {
    len: u16,
    filter: *const Instruction,
}

/// Reads the filter that the program hands to the kernel. Its address may be invalid.
///
/// # Safety
/// No other thread writes there meanwhile; that would race with the kernel, too.
unsafe fn read_filter<'a>(program: *const SockFprog) -> Option<&'a [Instruction]> {
    let at = program as u64;
    if !at.is_multiple_of(align_of::<SockFprog>() as u64)
        || !sys::is_readable(at)
        || !sys::is_readable(at + 8)
    {
        return None;
    }
    // SAFETY: aligned, and both words can be read.
    let SockFprog { len, filter } = unsafe { program.read() };
    let (len, from) = (usize::from(len), filter as u64);
    if !(1..=LONGEST).contains(&len) || !from.is_multiple_of(align_of::<Instruction>() as u64) {
        return None;
    }
    let last = from.wrapping_add(((len - 1) * size_of::<Instruction>()) as u64);
    let mut pages = (from..last).step_by(sys::PAGE as usize);
    let is_there = sys::is_readable(last) && pages.all(sys::is_readable);
    // SAFETY: aligned, and every page that it lies in can be read.
    is_there.then(|| unsafe { std::slice::from_raw_parts(filter, len) })
}

/// Handles the call that installs a filter before it is made. `mode` is `SECCOMP_MODE_STRICT` or
/// `SECCOMP_MODE_FILTER`, and `program` the address of the filter. errno is preserved.
pub(crate) fn before_filter(mode: u64, program: u64) {
    if !phase::is_recording() || !process::is_own() {
        return;
    }
    let is_harmless = match mode as u32 {
        libc::SECCOMP_MODE_FILTER => {
            // SAFETY: the program is about to have the kernel read it.
            let filter = unsafe { read_filter(program as *const SockFprog) };
            let Some(filter) = filter else {
                // The kernel refuses it, too: the program probes which filters the kernel accepts.
                return;
            };
            let spares_us = survives(filter, RECORDING_CALLS);
            if spares_us {
                note_forbidden_calls(filter);
            }
            spares_us
        }
        libc::SECCOMP_MODE_STRICT => false,
        _ => return,
    };
    if is_harmless {
        privilege_drop::begin_session_before_seccomp_filter();
    } else {
        end_recording("installs a seccomp filter that would kill it for a system call of ours");
    }
}

/// Handles the loss of the time stamp counter, for this thread and those that it starts, before it
/// happens. errno is preserved.
pub(crate) fn before_loss_of_counter() {
    if phase::is_recording() && process::is_own() {
        end_recording("disables the time stamp counter, which heapprof reads");
    }
}

/// True if a filter was installed that lets us record.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Notes which of our optional calls the new filter would end us for.
fn note_forbidden_calls(filter: &[Instruction]) {
    let (process, thread) = (sys::getpid().into(), sys::gettid().into());
    let working_folder = call(libc::SYS_getcwd, [0; 4]);
    let signal_stack_asked = call(libc::SYS_sigaltstack, [0; 4]);
    let stat_at = call(libc::SYS_newfstatat, [libc::AT_FDCWD as u64, 0, 0, 0]);
    // Filters do inspect which process and thread these two calls are about.
    let thread_asked = call(libc::SYS_tgkill, [process, thread, 0, 0]);
    let page_scan = call(libc::SYS_ioctl, [0, sys::PAGEMAP_SCAN, 0, 0]);
    for (what, calls) in [
        (AvoidableCall::SessionStart, SESSION_START_CALLS),
        (AvoidableCall::StatAt, &[stat_at]),
        (AvoidableCall::WorkingDirectory, &[working_folder]),
        (AvoidableCall::SignalStackCheck, &[signal_stack_asked]),
        (AvoidableCall::ThreadCheck, &[thread_asked]),
        (AvoidableCall::MemoryQuery, &MEMORY_QUERIES),
        (AvoidableCall::PageScan, &[page_scan]),
    ] {
        if !survives(filter, calls) {
            what.forbid();
        }
    }
    IS_INSTALLED.store(true, Ordering::Relaxed);
}

static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Reports once, in a process about to fork, that its children are not recorded, if a filter
/// forbids it.
pub(crate) fn before_fork() {
    if !AvoidableCall::SessionStart.is_allowed()
        && phase::is_recording()
        && !IS_REPORTED.swap(true, Ordering::Relaxed)
    {
        notice!(
            "the program's seccomp filter would kill forked processes for system calls of ours; they are not recorded"
        );
    }
}

/// Ends the recording in a forked child, if a filter forbids a session of its own.
pub(crate) fn after_fork() {
    if !AvoidableCall::SessionStart.is_allowed() && credentials::has_seccomp_filter() {
        phase::end();
    }
    if IS_INSTALLED.load(Ordering::Relaxed) {
        // The child's process id is another one than the filter allows.
        AvoidableCall::ThreadCheck.forbid();
    }
}

/// How long to wait for hooks of other threads, which are brief. In a forked child there may be
/// seats that stay taken for ever.
const HOOKS_TIMEOUT_NS: u64 = 10_000_000;

/// Ends the recording. `what` says what the program does.
#[cold]
fn end_recording(what: &str) {
    let _deferred = DeferredCancellation::begin(); // first made, last dropped
    errno::preserve(|| end_recording_now(what));
}

fn end_recording_now(what: &str) {
    let entered = thread::current().enter();
    if let Some(entered) = &entered {
        entered.thread.running_code.set(RunningCode::Ours);
    }
    phase::end();
    let deadline = clock::now_ns() + HOOKS_TIMEOUT_NS;
    while !seats::are_idle() && clock::now_ns() < deadline {
        sys::sleep_ns(20_000);
    }
    let report = || notice!("the program {what}; recording ends here, the program runs on");
    if let Some(session) = session::current() {
        report();
        writer::end_recording(session);
    } else if let Some(mut writer) = session_start::take_pending() {
        report();
        let mask = sys::block_signals();
        writer.finish(None, EndReason::GaveUp);
        sys::restore_signals(mask);
    }
    diagnostics::print_notices(); // the filter may forbid it later
}
