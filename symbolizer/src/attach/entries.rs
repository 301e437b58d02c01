//! Entries: the first instructions of the allocation functions, changed to jumps and changed back.
//!
//! All threads are stopped for each change. So no thread executes an instruction that is half
//! written.

use std::time::{Duration, Instant};

use heapprof_format::{AttachBlockView, AttachPatch, COUNTDOWN_LEN, attach_state};

use super::all_threads::AllThreads;
use super::arch::thread_descriptor;
use super::block::{FORGOTTEN, own_pid, read_block, set_state};
use super::borrowing::Visit;
use super::memory::Memory;
use super::priority::Priority;
use super::stack::Mapped;
use super::target::Loaded;
use super::tracee::release_all_late;

/// How long to wait for a moment when no thread is in the middle of a changed instruction.
const PATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// The changes of the entries, which are done.
pub(super) struct Patched {
    pub(super) functions: usize,
    /// How long all threads were stopped.
    pub(super) stopped: Duration,
}

/// Stops all threads, changes the entries, and lets the threads go on.
pub(super) fn patch(
    pid: u32,
    memory: &Memory,
    loaded: &Loaded,
    view: &AttachBlockView,
    visit: &Visit,
) -> Result<Patched, String> {
    let until = Instant::now() + PATCH_TIMEOUT;
    // The first byte of the jump is an instruction's before and afterwards.
    let mut ranges: Vec<_> = (view.patches.iter())
        .map(|patch| patch.at + 1..patch.at + u64::from(patch.moved))
        .collect();
    let middles = ranges.len();
    loop {
        let mut mapped = Mapped::of(pid);
        let _priority = Priority::raise();
        let all = AllThreads::stop(pid)?;
        ranges.truncate(middles);
        ranges.push(visit.code_of_borrowed());
        if all.are_outside(memory, &mut mapped, &ranges) {
            // A library may be closed, and other memory may be at its place.
            let known = known_patches(memory, &view.patches)?;
            restart_countdowns(memory, &all, view.countdown_at);
            write_patches(memory, &known)?;
            set_state(memory, loaded, attach_state::PATCHED)?;
            return Ok(Patched {
                functions: known.len(),
                stopped: all.release(),
            });
        }
        all.release();
        if Instant::now() > until {
            return Err("a thread is in the middle of an allocation function all the time".into());
        }
        release_all_late(until);
        std::thread::sleep(LOOK);
    }
}

/// Makes the allocation axis of each thread begin anew, also of one whose sampler was stopped. All
/// is zero in a thread that never allocated.
fn restart_countdowns(memory: &Memory, all: &AllThreads, distance: i64) {
    for (_, registers) in all.threads() {
        let pointer = registers.thread_pointer();
        let head = memory.bytes(pointer, thread_descriptor::HEAD);
        let is_glibcs = head.is_ok_and(|head| thread_descriptor::is_glibcs(pointer, &head));
        let place = pointer.wrapping_add_signed(distance);
        let anew = [0; COUNTDOWN_LEN];
        let is_other = || memory.bytes(place, anew.len()).is_ok_and(|now| now != anew);
        if is_glibcs && is_other() {
            let _ = memory.write(place, &anew);
        }
    }
}

/// Returns the jumps of all allocators whose code is as it was found.
fn known_patches<'a>(
    memory: &Memory,
    patches: &'a [AttachPatch],
) -> Result<Vec<&'a AttachPatch>, String> {
    let is_known = |patch: &AttachPatch| {
        let now = memory.bytes(patch.at, patch.old.len());
        now.is_ok_and(|now| now == patch.old || now == patch.new)
    };
    let bad: Vec<u16> = (patches.iter())
        .filter(|patch| !is_known(patch))
        .map(|patch| patch.group)
        .collect();
    let known: Vec<_> = (patches.iter())
        .filter(|patch| !bad.contains(&patch.group))
        .collect();
    match known.is_empty() {
        true => Err("its code is not as it was found".into()),
        false => Ok(known),
    }
}

/// Writes the jumps, all or none.
fn write_patches(memory: &Memory, patches: &[&AttachPatch]) -> Result<(), String> {
    for (number, patch) in patches.iter().enumerate() {
        if let Err(error) = memory.write(patch.at, &patch.new) {
            for patch in &patches[..number] {
                let _ = memory.write(patch.at, &patch.old);
            }
            return Err(format!("its code cannot be changed: {error}"));
        }
    }
    Ok(())
}

/// Restores the entries that are changed. From then on, the library changes none. Returns how long
/// all threads were stopped, and the block as it was then.
///
/// The threads' addresses do not matter: a jump is one instruction, so each thread is before it or
/// behind it. A thread behind it is in a tap, whose code stays while the tapped module does. A
/// library may be closed at any time, so the entries are compared while all threads are stopped.
pub(super) fn restore(
    pid: u32,
    memory: &Memory,
    loaded: &Loaded,
) -> Result<(Duration, AttachBlockView), String> {
    let is_changed = |patch: &&AttachPatch| {
        let now = memory.bytes(patch.at, patch.new.len());
        now.is_ok_and(|now| now == patch.new)
    };
    let view = read_block(memory, loaded)?;
    if !attach_state::is_recording(view.state) && !view.patches.iter().any(|it| is_changed(&it)) {
        return Ok((Duration::ZERO, view));
    }
    // A copy of the process lacks the thread that was changing entries.
    let is_own = [own_pid(pid), FORGOTTEN].contains(&view.pid);
    let until = Instant::now() + PATCH_TIMEOUT;
    loop {
        let _priority = Priority::raise();
        let all = AllThreads::stop(pid)?;
        let view = read_block(memory, loaded)?;
        if view.state != attach_state::CHANGING || !is_own {
            if view.state == attach_state::PATCHED {
                set_state(memory, loaded, attach_state::RESTORED)?;
            }
            for patch in view.patches.iter().filter(is_changed) {
                memory
                    .write(patch.at, &patch.old)
                    .map_err(|error| format!("its code cannot be restored: {error}"))?;
            }
            return Ok((all.release(), view));
        }
        all.release();
        if Instant::now() > until {
            return Err("it opens or closes a library all the time. Try again".into());
        }
        std::thread::sleep(LOOK);
    }
}
