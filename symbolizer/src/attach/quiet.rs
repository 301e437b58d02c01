//! Quiet: no thread of a process is in the library any more, so its memory can be freed.
//!
//! The entries are restored before. So a thread that is outside stays outside, and each thread is
//! looked at by itself, until it has been seen outside once. The others run meanwhile. Outside
//! means: neither the thread's address nor a return address on its stack is in the library's code
//! or in the taps.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use heapprof_format::AttachPatch;

use super::all_threads::threads_of;
use super::arch::jump::target_of;
use super::arch::registers::Registers;
use super::memory::Memory;
use super::safe_point::Judge;
use super::stack::{Mapped, Stack, is_in};
use super::target::{Loaded, Target};
use super::tracee::{Stop, Tracee, release_late};

/// How long to wait for threads to leave the library. They need a processor for that.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two looks: a thread that has stopped waits so long.
const LOOK: Duration = Duration::from_micros(200);
/// How long a thread that was inside runs before the next look at it.
const AGAIN: Duration = Duration::from_millis(2);

/// Waits until all threads but the library's own have left the library. Returns false if one has
/// not.
pub(super) fn wait(
    pid: u32,
    target: &Target,
    loaded: &Loaded,
    patches: &[AttachPatch],
    own: Option<u32>,
) -> bool {
    let memory = &target.memory;
    let mut mapped = Mapped::of(pid);
    let mut code = loaded.code.clone();
    // The taps' code is in the mappings that the jumps lead to.
    let taps = patches.iter().map(|it| target_of(it.at, it.new));
    code.extend(taps.filter_map(|tap| mapped.around(tap)));
    let mut judge = Judge::new(memory, &target.modules, target.libc, Vec::new());
    let mut outside: HashSet<u32> = own.into_iter().collect();
    let until = Instant::now() + TIMEOUT;
    loop {
        let threads = threads_of(pid);
        let unknown: Vec<u32> = (threads.into_iter())
            .filter(|tid| !outside.contains(tid))
            .collect();
        if unknown.is_empty() {
            return true;
        }
        for (tid, copy) in copies_of(memory, &mut mapped, unknown, until) {
            let is_outside = copy.is_none_or(|(registers, stack)| {
                let has_no_address = !is_in(&code, registers.pc()) && !stack.names(&code);
                // A word that is left over on a stack looks like a return address.
                has_no_address || judge.is_known_outside(&registers, &stack, &code)
            });
            if is_outside {
                outside.insert(tid);
            }
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(AGAIN);
    }
}

/// Asks the threads to stop, and lets each one go on as soon as its registers and its stack are
/// copied. A thread that has ended has no copy. Threads that do not stop by `until` are left out.
fn copies_of(
    memory: &Memory,
    mapped: &mut Mapped,
    threads: Vec<u32>,
    until: Instant,
) -> Vec<(u32, Option<(Registers, Stack)>)> {
    let mut asked: Vec<Tracee> = Vec::new();
    let mut copies = Vec::new();
    for tid in threads {
        match Tracee::interrupt(tid) {
            Ok(thread) => asked.push(thread),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => copies.push((tid, None)),
            Err(_) => {}
        }
    }
    while !asked.is_empty() && Instant::now() < until {
        asked.retain_mut(|thread| {
            match thread.wait(Instant::now()) {
                Ok(None) => return true,
                Ok(Some(Stop::Interrupted)) => {
                    if let Ok(registers) = thread.registers() {
                        let stack = Stack::copy(memory, mapped, registers.stack_pointer());
                        copies.push((thread.tid, Some((registers, stack))));
                    }
                }
                Ok(Some(Stop::Gone)) => copies.push((thread.tid, None)),
                _ => {}
            }
            thread.release();
            false
        });
        release_late();
        std::thread::sleep(LOOK);
    }
    copies
}
