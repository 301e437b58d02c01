//! A fence: a filter of system calls that the program puts up around itself, after it has begun.
//!
//! It may end the process for a call that is ours. So what would put one up is exported, and the filter is asked first what it
//! answers for the calls that we make (`heapprof_core::seccomp_bpf`). If it would end the process for one of them, recording ends before:
//! our thread writes what there is and ends, hooks make no calls any more, and the program runs on, as behind the fence it
//! must. A filter that allows or refuses them is let be, and so is one that is put up past libc.
//!
//! Another fence is around the processor's time stamp counter, which hooks read, and the vDSO for us: the kernel, asked to, ends a process that
//! reads it by SIGSEGV. There recording ends as well.

use std::ffi::c_long;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_core::seccomp_bpf::{Instruction, LONGEST, SystemCall, spares};
use heapprof_format::EndReason;

use crate::host::privilege_drop;
use crate::os::cancellation::Deferred;
use crate::os::diagnostics::say;
use crate::os::seccomp::Spared;
use crate::os::{clock, credentials, errno, sys};
use crate::recording::{seats, session};
use crate::state::thread::{self, Inside};
use crate::state::{phase, process};
use crate::writer::{self, session_start};

/// What we call while we record, with the arguments that filters look at. docs/hosts.md has the list for people.
const OURS: &[SystemCall] = &[
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
/// What it takes to begin a session besides, with libc's part of it: a forked process begins one of its own, behind the fence.
const TO_BEGIN: &[SystemCall] = &[
    call(libc::SYS_readlinkat, [0; 4]),
    call(libc::SYS_getcwd, [0; 4]),
    call(libc::SYS_shmget, [0; 4]),
    call(libc::SYS_shmat, [0; 4]),
    call(libc::SYS_shmctl, [0; 4]),
    call(libc::SYS_mprotect, [0, 0, PROTECTION, 0]),
    call(libc::SYS_clone3, [0; 4]),
    call(libc::SYS_clone, [THREAD, 0, 0, 0]),
    call(libc::SYS_set_robust_list, [0; 4]),
    call(libc::SYS_rseq, [0; 4]),
    call(libc::SYS_prctl, [libc::PR_SET_NAME as u64, 0, 0, 0]),
    call(libc::SYS_prctl, [libc::PR_GET_SECUREBITS as u64, 0, 0, 0]),
    call(libc::SYS_capget, [0; 4]),
    call(libc::SYS_getresuid, [0; 4]),
    call(libc::SYS_getresgid, [0; 4]),
];
/// What libc's `pthread_create` says, where there is no `clone3`.
const THREAD: u64 = if cfg!(target_env = "musl") {
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
/// As `os/sys/memory.rs` has it.
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
struct Program {
    len: u16,
    filter: *const Instruction,
}

/// The filter that a program hands to the kernel, which it may do with any address.
///
/// # Safety
/// Nobody writes there meanwhile; to the kernel, too, that would be a race.
unsafe fn read<'a>(program: *const Program) -> Option<&'a [Instruction]> {
    let at = program as u64;
    if !at.is_multiple_of(align_of::<Program>() as u64)
        || !sys::readable(at)
        || !sys::readable(at + 8)
    {
        return None;
    }
    // SAFETY: aligned, and both words can be read.
    let Program { len, filter } = unsafe { program.read() };
    let (len, from) = (usize::from(len), filter as u64);
    if !(1..=LONGEST).contains(&len) || !from.is_multiple_of(align_of::<Instruction>() as u64) {
        return None;
    }
    let last = from.wrapping_add(((len - 1) * size_of::<Instruction>()) as u64);
    let is_there = sys::readable(last) && (from..last).step_by(4096).all(sys::readable);
    // SAFETY: aligned, and every page that it lies in can be read.
    is_there.then(|| unsafe { std::slice::from_raw_parts(filter, len) })
}

/// Before the call that puts it up, with `SECCOMP_MODE_STRICT` or `SECCOMP_MODE_FILTER` and the address of a filter. errno is left alone.
pub(crate) fn before_filter(mode: u64, program: u64) {
    if !phase::is_recording() || !process::is_own() {
        return;
    }
    let is_harmless = match mode as u32 {
        libc::SECCOMP_MODE_FILTER => {
            // SAFETY: the program is about to have the kernel read it.
            let filter = unsafe { read(program as *const Program) };
            let Some(filter) = filter else {
                return; // the kernel does not take it either: somebody asks what it would take
            };
            let spares_us = spares(filter, OURS);
            if spares_us {
                note(filter);
            }
            spares_us
        }
        libc::SECCOMP_MODE_STRICT => false,
        _ => return,
    };
    if is_harmless {
        privilege_drop::begin_before_a_fence();
    } else {
        end("puts up a filter of system calls that would end it for ours");
    }
}

/// Before this thread, and those that it starts, may read the time stamp counter no more. errno is left alone.
pub(crate) fn before_loss_of_counter() {
    if phase::is_recording() && process::is_own() {
        end("gives up the processor's time stamp counter, which we read");
    }
}

/// Whether a filter was put up that spares us.
static IS_UP: AtomicBool = AtomicBool::new(false);

/// Notes what a filter that is put up now would end us for.
fn note(filter: &[Instruction]) {
    let (process, thread) = (sys::getpid().into(), sys::gettid().into());
    let working_folder = call(libc::SYS_getcwd, [0; 4]);
    let signal_stack_asked = call(libc::SYS_sigaltstack, [0; 4]);
    let stat_at = call(libc::SYS_newfstatat, [libc::AT_FDCWD as u64, 0, 0, 0]);
    // Of these two filters do look at who is asked.
    let thread_asked = call(libc::SYS_tgkill, [process, thread, 0, 0]);
    for (what, calls) in [
        (Spared::Beginning, TO_BEGIN),
        (Spared::StatAt, &[stat_at]),
        (Spared::WorkingFolder, &[working_folder]),
        (Spared::SignalStackAsked, &[signal_stack_asked]),
        (Spared::ThreadAsked, &[thread_asked]),
    ] {
        if !spares(filter, calls) {
            what.forbid();
        }
    }
    IS_UP.store(true, Ordering::Relaxed);
}

static SAID: AtomicBool = AtomicBool::new(false);

/// In a process about to fork: says once that its children are not recorded, if so it is.
pub(crate) fn before_fork() {
    if !Spared::Beginning.is_allowed()
        && phase::is_recording()
        && !SAID.swap(true, Ordering::Relaxed)
    {
        say!(
            "the program's filter of system calls would end forked processes for ours; they are not recorded"
        );
    }
}

/// In a forked child.
pub(crate) fn after_fork() {
    if !Spared::Beginning.is_allowed() && credentials::is_filtered() {
        phase::end();
    }
    if IS_UP.load(Ordering::Relaxed) {
        // Its process's id is another one.
        Spared::ThreadAsked.forbid();
    }
}

/// How long hooks of other threads are waited for that are at it, each a matter of microseconds. In a forked child there may be seats
/// that nobody will ever leave.
const PATIENCE_NS: u64 = 10_000_000;

/// Ends the recording, as the program does what is said.
#[cold]
fn end(what: &str) {
    let _deferred = Deferred::begin(); // first made, last dropped
    errno::left_alone(|| end_now(what));
}

fn end_now(what: &str) {
    let entered = thread::current().enter();
    if let Some(entered) = &entered {
        entered.thread.inside.set(Inside::Ours);
    }
    phase::end();
    let deadline = clock::now_ns() + PATIENCE_NS;
    while !seats::are_idle() && clock::now_ns() < deadline {
        sys::sleep_ns(20_000);
    }
    let say = || say!("the program {what}; recording ends here, the program runs on");
    if let Some(session) = session::current() {
        say();
        writer::end(session);
    } else if let Some(mut writer) = session_start::take_pending() {
        say();
        let mask = sys::block_signals();
        writer.finish(None, EndReason::GaveUp);
        sys::restore_signals(mask);
    }
}
