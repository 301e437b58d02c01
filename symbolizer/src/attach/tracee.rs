//! Tracee: one thread of another process, as the kernel lets a tracer hold it.
//!
//! Danger: `ptrace`. A thread is seized, which does not stop it, and interrupted, which sends no
//! signal. If this program ends, the kernel lets every thread go on by itself: no option asks for
//! anything else.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::arch::registers::Registers;

/// The type of a request, which differs between the libraries.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// A thread that is seized. Dropping it lets it go. If it has not stopped yet, it is let go later
/// ([`release_late`]).
#[derive(Debug)]
pub(super) struct Tracee {
    pub(super) tid: u32,
    state: State,
    /// How it was let run.
    mode: Request,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It runs, or it is about to stop.
    Running,
    /// It is stopped, and gets this signal when it goes on; 0: none.
    Stopped(i32),
    Gone,
}

/// The kinds of stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// By our interruption.
    Interrupted,
    /// At the entry or the exit of a system call.
    Call,
    /// The process is stopped by a signal for job control.
    JobControl,
    /// The thread has ended.
    Gone,
}

/// Threads that were asked to stop, are not needed any more, and have not stopped yet. A thread
/// cannot be let go before. If it stops and nobody looks, it stays.
static LATE: Mutex<Vec<Tracee>> = Mutex::new(Vec::new());

/// Lets threads go that have stopped only now. Returns true if none is left. To be called now and
/// then.
pub(super) fn release_late() -> bool {
    let mut late = std::mem::take(&mut *lock_late());
    late.retain_mut(|tracee| match tracee.wait(Instant::now()) {
        Ok(None) => true,
        _ => {
            tracee.release();
            false
        }
    });
    let is_empty = late.is_empty();
    lock_late().append(&mut late);
    is_empty
}

/// Waits until no such thread is left, or until then.
pub(super) fn release_all_late(until: Instant) {
    while !release_late() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn lock_late() -> MutexGuard<'static, Vec<Tracee>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

const EVENT_STOP: i32 = 128;
const PTRACE_SECCOMP_GET_FILTER: Request = 0x420c;
const PTRACE_GET_RSEQ_CONFIGURATION: Request = 0x420f;

/// System calls that the kernel ends when a thread is stopped, and that have had no effect then
/// (signal(7)). One with a limit of time waits for the whole time again.
const ENDED_BY_STOPS: [i64; 16] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    441, // epoll_pwait2, for which one library has no name
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// Returns true if a signal waits for the thread that it does not block, or if that is not known.
fn has_signal(tid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
    };
    match (set("SigPnd:"), set("ShdPnd:"), set("SigBlk:")) {
        (Some(own), Some(shared), Some(blocked)) => (own | shared) & !blocked != 0,
        _ => true,
    }
}

/// Calls `ptrace`.
///
/// # Safety
/// The request reads or writes through `data` only what is valid there.
unsafe fn ptrace(request: Request, tid: u32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::ptrace(request, tid as libc::pid_t, address, data) };
    match answer {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

impl Tracee {
    /// Seizes a thread and asks it to stop.
    pub(super) fn interrupt(tid: u32) -> io::Result<Tracee> {
        let mut late = lock_late();
        if let Some(known) = late.iter().position(|tracee| tracee.tid == tid) {
            return Ok(late.swap_remove(known)); // it was asked already
        }
        let options = libc::PTRACE_O_TRACESYSGOOD as usize;
        // SAFETY: numbers only.
        unsafe { ptrace(libc::PTRACE_SEIZE, tid, 0, options) }?;
        let tracee = Tracee {
            tid,
            state: State::Running,
            mode: libc::PTRACE_CONT,
        };
        // SAFETY: numbers only.
        unsafe { ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) }?;
        Ok(tracee)
    }

    /// Waits until the thread has stopped. `None`: it has not by then. Signals that come meanwhile
    /// reach the thread.
    pub(super) fn wait(&mut self, until: Instant) -> io::Result<Option<Stop>> {
        loop {
            let mut status = 0;
            // SAFETY: writes one number.
            let answer = unsafe {
                libc::waitpid(
                    self.tid as libc::pid_t,
                    &raw mut status,
                    libc::__WALL | libc::WNOHANG,
                )
            };
            if answer < 0 {
                self.state = State::Gone;
                return Err(io::Error::last_os_error());
            }
            if answer == 0 {
                if Instant::now() >= until {
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            if !libc::WIFSTOPPED(status) {
                self.state = State::Gone;
                return Ok(Some(Stop::Gone));
            }
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            self.state = State::Stopped(0);
            match (signal, event) {
                (libc::SIGTRAP, EVENT_STOP) => {
                    self.begin_call_again();
                    return Ok(Some(Stop::Interrupted));
                }
                (_, EVENT_STOP) => return Ok(Some(Stop::JobControl)),
                (signal, 0) if signal == libc::SIGTRAP | 0x80 => return Ok(Some(Stop::Call)),
                // A signal of the program's.
                (signal, 0) => self.resume(self.mode, signal)?,
                _ => self.resume(self.mode, 0)?,
            }
        }
    }

    /// Makes a system call begin again that our interruption has ended with an error, as none but a
    /// signal's handler should. A signal that waits for the thread ends the call rightly.
    fn begin_call_again(&self) {
        let Ok(registers) = self.registers() else {
            return;
        };
        let can_be_ended = |call| ENDED_BY_STOPS.contains(&call);
        let is_ended = registers.call_result() == Err(libc::EINTR)
            && registers.system_call().is_some_and(can_be_ended);
        if is_ended && !has_signal(self.tid) {
            let _ = self.set_registers(&registers.with_call_again());
        }
    }

    fn resume(&mut self, request: Request, signal: i32) -> io::Result<()> {
        // SAFETY: numbers only.
        unsafe { ptrace(request, self.tid, 0, signal as usize) }?;
        self.state = State::Running;
        self.mode = request;
        Ok(())
    }

    /// Stops the thread if it runs. Returns true if it ran.
    pub(super) fn stop_again(&mut self, until: Instant) -> bool {
        let has_run = self.state == State::Running;
        if has_run {
            // SAFETY: numbers only. A failure shows in the wait.
            let _ = unsafe { ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0) };
            let _ = self.wait(until);
        }
        has_run
    }

    /// Lets the thread run to the next entry or exit of a system call.
    pub(super) fn run_to_call(&mut self) -> io::Result<()> {
        self.resume(libc::PTRACE_SYSCALL, 0)
    }

    /// Lets the thread go.
    pub(super) fn release(&mut self) {
        if let State::Stopped(signal) = self.state {
            // SAFETY: numbers only.
            let _ = unsafe { ptrace(libc::PTRACE_DETACH, self.tid, 0, signal as usize) };
            self.state = State::Gone;
        }
    }

    /// Reads the registers of the stopped thread.
    pub(super) fn registers(&self) -> io::Result<Registers> {
        Registers::of(self.tid)
    }

    /// Sets the registers of the stopped thread, in one step.
    pub(super) fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        registers.set(self.tid)
    }

    /// Returns the thread's seccomp filter of that number, its instructions as the kernel has them.
    /// `None`: it has no more.
    pub(super) fn seccomp_filter(&self, number: usize) -> io::Result<Option<Vec<[u8; 8]>>> {
        let get = |data| {
            // SAFETY: writes as many instructions as the first call has told; null asks for that.
            unsafe { ptrace(PTRACE_SECCOMP_GET_FILTER, self.tid, number, data) }
        };
        let len = match get(0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            len => len?,
        };
        let mut filter = vec![[0; 8]; len as usize];
        get(filter.as_mut_ptr() as usize)?;
        Ok(Some(filter))
    }

    /// Returns the address of the thread's restartable sequence area; `None`: the thread has none,
    /// or the kernel does not tell.
    pub(super) fn restartable_area(&self) -> Option<u64> {
        // The kernel's structure: an address, and three words of 32 bits with padding.
        let mut words = [0u64; 3];
        // SAFETY: writes at most the bytes that are passed.
        let answer = unsafe {
            ptrace(
                PTRACE_GET_RSEQ_CONFIGURATION,
                self.tid,
                size_of_val(&words),
                words.as_mut_ptr() as usize,
            )
        };
        answer.is_ok().then_some(words[0]).filter(|&area| area != 0)
    }
}

impl Drop for Tracee {
    /// A thread that has not stopped yet cannot be let go.
    fn drop(&mut self) {
        if self.state == State::Running {
            let _ = self.wait(Instant::now());
        }
        self.release();
        if self.state == State::Running {
            lock_late().push(Tracee {
                tid: self.tid,
                state: std::mem::replace(&mut self.state, State::Gone),
                mode: self.mode,
            });
        }
    }
}
