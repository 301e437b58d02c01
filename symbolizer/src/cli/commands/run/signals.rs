//! Signals: what is sent to this process and meant for the program.
//!
//! No handler is installed. The signals are blocked in every thread, and one thread takes them off
//! the queue and sends them on. A signal from the kernel (Ctrl-C at a terminal) has reached the
//! program already, because it is in the same process group: such a signal is not sent again.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

const FORWARDED: [libc::c_int; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

pub(crate) struct Forwarder {
    /// The process to send to; 0 before it exists and once it is gone. Set to 0 before the process
    /// is reaped, so that its number cannot belong to another one when a signal is sent.
    target: Arc<AtomicI32>,
    /// The mask that we were started with, which is the program's to inherit.
    inherited: libc::sigset_t,
}

impl Forwarder {
    /// Blocks the signals. To be called while the process has one thread.
    pub(crate) fn block() -> Forwarder {
        let set = forwarded();
        let mut inherited = forwarded();
        // SAFETY: both sets are initialised.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut inherited) };
        Forwarder {
            target: Arc::new(AtomicI32::new(0)),
            inherited,
        }
    }

    /// Lets the program start with the mask that we were started with.
    pub(crate) fn unblock_in(&self, command: &mut Command) {
        let inherited = self.inherited;
        let restore = move || {
            // SAFETY: the set is initialised; a null pointer asks for no old mask.
            unsafe {
                libc::pthread_sigmask(
                    libc::SIG_SETMASK,
                    &raw const inherited,
                    std::ptr::null_mut(),
                )
            };
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed, and
        // pthread_sigmask is one; the closure owns what it reads and allocates nothing.
        unsafe { command.pre_exec(restore) };
    }

    /// From now on signals go to that process.
    pub(crate) fn forward_to(&self, pid: u32) {
        self.target.store(pid as i32, Ordering::Release);
        let target = Arc::clone(&self.target);
        std::thread::spawn(move || {
            let set = forwarded();
            loop {
                let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
                // SAFETY: `set` is initialised and `info` is room for what is asked.
                let signal = unsafe { libc::sigwaitinfo(&raw const set, info.as_mut_ptr()) };
                if signal <= 0 {
                    continue; // interrupted by something that is not ours
                }
                // SAFETY: zeroed is a valid siginfo_t, and the call above filled it.
                let code = unsafe { info.assume_init() }.si_code;
                let pid = target.load(Ordering::Acquire);
                if pid == 0 {
                    // The program is gone and we are at the summary: then it is us who is meant.
                    std::process::exit(128 + signal);
                }
                if code <= 0 {
                    // SAFETY: no memory is involved; `pid` is our child, not yet reaped, see
                    // `target`.
                    unsafe { libc::kill(pid, signal) };
                }
            }
        });
    }

    /// Waits until the process has ended, without reaping it.
    pub(crate) fn wait(&self, pid: u32) {
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let options = libc::WEXITED | libc::WNOWAIT;
            // SAFETY: `info` is room for what is asked.
            let result = unsafe { libc::waitid(libc::P_PID, pid, info.as_mut_ptr(), options) };
            let interrupted = result != 0
                && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
            if !interrupted {
                break;
            }
        }
        self.target.store(0, Ordering::Release);
    }
}

fn forwarded() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is room for a signal set; the call initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in FORWARDED {
        // SAFETY: `set` was initialised above, and the signals exist.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: initialised above.
    unsafe { set.assume_init() }
}

/// Dies of the signal that the program died of, so that our parent sees the same. If the signal
/// does not kill us, returns the status by which a shell reports it.
pub(crate) fn die_of(signal: i32) -> ExitCode {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a valid limit. The program may have dumped its core; ours is of no use.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // SAFETY: the default action is a valid disposition for any signal; an invalid number fails.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is room for a signal set; the call initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `set` was initialised above; an invalid number fails and leaves it.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: `set` is initialised; a null pointer asks for no old mask.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: no memory is involved.
    unsafe { libc::raise(signal) };
    ExitCode::from(128u8.wrapping_add(signal as u8))
}
