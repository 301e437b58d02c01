//! All threads of a process, stopped at one time, and what they are in the middle of.

use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::arch::registers::Registers;
use super::memory::Memory;
use super::stack::{Mapped, Stack, is_in};
use super::target::why_not_permitted;
use super::tracee::{Stop, Tracee, release_all_late};

/// How long threads have to stop, in one attempt after the other. A thread that computes stops at
/// once if it has a processor. Between two attempts all threads go on.
const ATTEMPTS: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(3200),
];
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// A thread that has not stopped by then may be in a part of the kernel that nothing interrupts.
const BUSY: Duration = Duration::from_millis(20);

/// The threads. Dropping them lets all go on.
pub(super) struct AllThreads {
    stopped: Vec<(Tracee, Registers)>,
    /// Threads that are inside the kernel and stop later.
    pub(super) late: Vec<Tracee>,
    since: Instant,
}

/// Returns the ids of the threads.
pub(super) fn threads_of(pid: u32) -> Vec<u32> {
    let names = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    names
        .filter_map(|name| name.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns true if the thread exists.
pub(super) fn has_thread(pid: u32, tid: u64) -> bool {
    fs::metadata(format!("/proc/{pid}/task/{tid}")).is_ok()
}

impl AllThreads {
    /// Stops all threads: until no new one is there.
    ///
    /// # Errors
    /// In words: why a thread cannot be stopped. None stays stopped then.
    pub(super) fn stop(pid: u32) -> Result<AllThreads, String> {
        for timeout in ATTEMPTS {
            if let Some(all) = AllThreads::stop_within(pid, timeout)? {
                return Ok(all);
            }
            std::thread::sleep(PAUSE);
            release_all_late(Instant::now() + timeout);
        }
        Err("its threads do not stop; is the system very busy? Try again".into())
    }

    /// Like [`stop`](Self::stop), in one attempt. `None`: the time is over, and all threads go on.
    fn stop_within(pid: u32, timeout: Duration) -> Result<Option<AllThreads>, String> {
        let since = Instant::now();
        let until = since + timeout;
        let mut all = AllThreads {
            stopped: Vec::new(),
            late: Vec::new(),
            since,
        };
        let mut known = Vec::new();
        loop {
            let new: Vec<u32> = (threads_of(pid).into_iter())
                .filter(|tid| !known.contains(tid))
                .collect();
            if new.is_empty() {
                return match all.stopped.is_empty() {
                    true => Err("it has ended".into()),
                    false => Ok(Some(all)),
                };
            }
            let mut running = Vec::new();
            for &tid in &new {
                known.push(tid);
                match Tracee::interrupt(tid) {
                    Ok(tracee) => running.push(tracee),
                    Err(error) if is_gone(pid, tid, &error) => {}
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                        return Err(why_not_permitted(pid));
                    }
                    Err(error) => return Err(format!("cannot stop thread {tid}: {error}")),
                }
            }
            for mut tracee in running {
                let mut stop = tracee.wait(Instant::now() + BUSY);
                if matches!(stop, Ok(None)) && !is_uninterruptible(tracee.tid) {
                    stop = tracee.wait(until);
                }
                match stop {
                    Ok(Some(Stop::Gone)) | Err(_) => {}
                    Ok(Some(Stop::JobControl)) => {
                        tracee.release();
                        return Err("a signal has just stopped it; continue it first".into());
                    }
                    Ok(Some(_)) => match tracee.registers() {
                        Ok(registers) => all.stopped.push((tracee, registers)),
                        Err(error) => return Err(format!("cannot read registers: {error}")),
                    },
                    Ok(None) if is_uninterruptible(tracee.tid) => all.late.push(tracee),
                    Ok(None) => return Ok(None),
                }
            }
            if Instant::now() > until {
                return Ok(None);
            }
        }
    }

    /// Returns the stopped threads.
    pub(super) fn threads(&self) -> impl Iterator<Item = (&Tracee, &Registers)> {
        self.stopped
            .iter()
            .map(|(tracee, registers)| (tracee, registers))
    }

    /// Returns true if no thread executes code in these ranges, or returns there from a function or
    /// a signal handler.
    pub(super) fn are_outside(
        &self,
        memory: &Memory,
        mapped: &mut Mapped,
        ranges: &[Range<u64>],
    ) -> bool {
        let mut is_outside =
            |sp, pc| !is_in(ranges, pc) && !Stack::copy(memory, mapped, sp).names(ranges);
        let mut threads = self.threads();
        let are_outside = threads.all(|(_, it)| is_outside(it.stack_pointer(), it.pc()));
        let mut late = self.late.iter().map(|thread| kernel_registers(thread.tid));
        are_outside && late.all(|registers| registers.is_some_and(|(sp, pc)| is_outside(sp, pc)))
    }

    /// Lets all go on. Returns how long they were stopped.
    pub(super) fn release(mut self) -> Duration {
        for (tracee, _) in &mut self.stopped {
            tracee.release();
        }
        self.since.elapsed()
    }
}

/// Returns true if the thread has ended.
fn is_gone(pid: u32, tid: u32, error: &std::io::Error) -> bool {
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    error.raw_os_error() == Some(libc::ESRCH) || matches!(state(), None | Some('Z' | 'X'))
}

/// Returns true if the thread is in a part of the kernel that nothing interrupts.
fn is_uninterruptible(tid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.starts_with('D')
}

/// Returns the stack pointer and the address of a thread in the kernel. `None`: it executes.
fn kernel_registers(tid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace().rev();
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let pc = hex()?;
    Some((hex()?, pc))
}
