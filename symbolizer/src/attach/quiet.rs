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
use super::memory::Memory;
use super::safe_point::Judge;
use super::stack::{Mapped, Stack, is_in};
use super::target::{Loaded, Target};
use super::tracee::{Registers, Stop, Tracee, release_late};

/// How long to wait for threads to leave the library.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long one thread has to stop. A thread that is inside the kernel is looked at again.
const STOP_TIMEOUT: Duration = Duration::from_millis(50);
/// The time between two looks: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

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
    code.extend(patches.iter().filter_map(|it| mapped.around(target_of(it))));
    let mut judge = Judge::new(memory, &target.modules, target.libc, Vec::new());
    let mut outside: HashSet<u32> = own.into_iter().collect();
    let until = Instant::now() + TIMEOUT;
    let mut pause = PAUSES[0];
    loop {
        let mut is_quiet = true;
        for tid in threads_of(pid) {
            if outside.contains(&tid) {
                continue;
            }
            let is_outside = match look_at(memory, &mut mapped, tid) {
                Look::Stopped(registers, stack) => {
                    let has_no_address = !is_in(&code, registers.rip) && !stack.names(&code);
                    // A word that is left over on a stack looks like a return address.
                    has_no_address || judge.is_known_outside(&registers, &stack, &code)
                }
                Look::Gone => true,
                Look::Running => false,
            };
            match is_outside {
                true => drop(outside.insert(tid)),
                false => is_quiet = false,
            }
        }
        release_late();
        if is_quiet || Instant::now() > until {
            return is_quiet;
        }
        std::thread::sleep(pause);
        pause = PAUSES[1].min(pause * 2);
    }
}

/// The result of a look at one thread.
enum Look {
    /// Its registers and its stack, at a moment when it was stopped.
    Stopped(Box<Registers>, Stack),
    /// It has not stopped, or could not be looked at.
    Running,
    /// It has ended.
    Gone,
}

/// Stops a thread, copies its registers and its stack, and lets it go.
fn look_at(memory: &Memory, mapped: &mut Mapped, tid: u32) -> Look {
    let mut thread = match Tracee::interrupt(tid) {
        Ok(thread) => thread,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Look::Gone,
        Err(_) => return Look::Running,
    };
    match thread.wait(Instant::now() + STOP_TIMEOUT) {
        Ok(Some(Stop::Interrupted)) => match thread.registers() {
            Ok(registers) => {
                let stack = Stack::copy(memory, mapped, registers.rsp);
                Look::Stopped(Box::new(registers), stack)
            }
            Err(_) => Look::Running,
        },
        Ok(Some(Stop::Gone)) => Look::Gone,
        _ => Look::Running,
    }
}

/// Returns the address that a jump leads to, which is in the mapping of the tap's code.
fn target_of(patch: &AttachPatch) -> u64 {
    let [_, distance @ ..] = patch.new;
    let next = patch.at + patch.new.len() as u64;
    next.wrapping_add_signed(i32::from_le_bytes(distance).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_jump_is_relative_to_its_end() {
        let patch = AttachPatch {
            at: 0x1000,
            old: [0; 5],
            new: [0xe9, 0xfb, 0xff, 0xff, 0xff],
            moved: 5,
            group: 0,
        };
        assert_eq!(target_of(&patch), 0x1000);
    }
}
