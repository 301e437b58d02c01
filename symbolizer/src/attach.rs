//! Attach: heapprof's library in a process that runs already, and out of it again.
//!
//! ```text
//!  heapprof attach                                   the process
//!  borrows a thread at a safe point ───────────────> creates a thread, goes on
//!                                                    the new one loads the library, which prepares
//!  stops all threads, writes jumps, lets them go ──> allocations pass the library
//!  heapprof detach: stops all threads, writes the
//!  old bytes back ─────────────────────────────────> the log is completed
//! ```
//!
//! If this program is killed, the process runs on: code that a borrowed thread executes brings the
//! thread back by itself, and the kernel lets stopped threads go on.
//!
//! | danger | file |
//! | --- | --- |
//! | `ptrace`: a thread is held | `tracee.rs` |
//! | the memory of the process is written | `memory.rs` |
//! | a borrowed thread executes code of ours | `arch/borrowed_code.rs`, `borrowing.rs` |
//! | a thread holds a lock | `safe_point.rs` |
//! | a filter ends the process for a system call | `filters.rs` |
//! | a thread is in the middle of a changed instruction | `all_threads.rs` |
//!
//! Not here: the words on the terminal (`cli`), and the recording (the library).

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heapprof_format::{
    AttachBlock, AttachBlockView, AttachInput, AttachPatch, COUNTDOWN_LEN, attach_state,
};

mod all_threads;
mod arch;
mod borrowing;
mod filters;
mod memory;
mod modules;
mod priority;
mod quiet;
mod safe_point;
mod stack;
mod target;
mod tracee;

use all_threads::{AllThreads, has_thread, threads_of};
use arch::borrowed_code;
use memory::Memory;
use priority::Priority;
use stack::Mapped;
use target::{Loaded, Presence, Target};
use tracee::{release_all_late, release_late};

/// The process of a block whose library has forgotten that it is a copy.
const FORGOTTEN: u32 = 0;
/// How long the library has to prepare.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for a moment when no thread is in the middle of a changed instruction.
const PATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the library has to complete the log.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// The wishes of a user: the samples, and the place of the log.
#[derive(Debug, Clone)]
pub struct Wishes {
    /// Mean sampling interval in bytes.
    pub interval: u64,
    /// Most frames of a stack.
    pub depth: u32,
    /// The folder of the log, as the process sees it.
    pub folder: PathBuf,
    /// The log's path without its ending, from that folder on; empty: a name of the program's.
    pub name: Vec<u8>,
    /// The library's file.
    pub library: PathBuf,
}

/// A recording that has begun.
#[derive(Debug)]
pub struct Begun {
    /// The log, as the process sees it.
    pub log: String,
    /// How many threads the process had.
    pub threads: usize,
    /// How many functions were changed.
    pub functions: usize,
    /// How long all threads were stopped.
    pub stopped: Duration,
    /// How long the thread was stopped that created the library's thread.
    pub borrowed: Duration,
    memory: Memory,
    loaded: Loaded,
}

/// The present state of a recording, as this program sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// It goes on.
    GoesOn,
    /// It has ended, and the process goes on: somebody has detached it, or the library gave up.
    Ended,
    /// The program has ended, or has executed another one.
    Gone,
}

impl Begun {
    /// Returns what has become of the recording.
    pub fn course(&self) -> Course {
        let Ok(view) = read_block(&self.memory, &self.loaded) else {
            return Course::Gone;
        };
        let is_ending = [attach_state::ENDING, attach_state::ENDING_QUIET].contains(&view.state);
        let is_under_way = is_ending || attach_state::is_recording(view.state);
        // The message of another recording, which has begun since the last look, is another log.
        match is_under_way && view.message == self.log {
            true => Course::GoesOn,
            false => Course::Ended,
        }
    }

    /// Lets threads go that were in a part of the kernel that nothing interrupts. To be called now
    /// and then.
    pub fn look_after(&self) {
        release_late();
    }
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The log, as the process sees it.
    pub log: String,
    /// How long all threads were stopped.
    pub stopped: Duration,
    /// True if a thread is still in code of the library.
    pub is_code_in_use: bool,
}

/// Why heapprof was not attached.
#[derive(Debug)]
pub enum Refusal {
    /// It runs under the preloaded library, which is controlled in another way.
    Preloaded,
    /// In words.
    Because(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Because(why)
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Refusal {
        Refusal::Because(why.into())
    }
}

/// Begins to record a process.
///
/// # Errors
/// Why not. The process goes on as before.
pub fn attach(pid: u32, wishes: &Wishes) -> Result<Begun, Refusal> {
    let _lock = lock(pid)?;
    let target = Target::of(pid)?;
    let mut input = AttachInput::new(
        wishes.interval,
        wishes.depth,
        wishes.folder.as_os_str().as_encoded_bytes(),
        &wishes.name,
    )
    .ok_or("the path of the log is too long")?;
    wait_for_carrier(pid)?;
    let before = match target.presence() {
        Presence::Preloaded => return Err(Refusal::Preloaded),
        Presence::Nothing => None,
        Presence::Loaded(all) => {
            for loaded in &all {
                let is_quiet = prepare_again(pid, &target, loaded)?;
                input.is_quiet = u32::from(is_quiet);
            }
            all.into_iter().next_back()
        }
    };
    filters::check(pid)?;
    let library = fs::read(&wishes.library)
        .map_err(|error| format!("cannot read {}: {error}", wishes.library.display()))?;
    let mut visit = borrowing::Visit::begin(pid, &target, before.as_ref(), input, &library)?;
    let planned = wait_until_planned(pid, &mut visit, before);
    let (loaded, view) = match planned {
        Ok(planned) => planned,
        Err(why) => {
            let _ = visit.finish(pid, &target);
            return Err(why.into());
        }
    };
    let outcome = patch(pid, &target.memory, &loaded, &view, &visit);
    let done = match outcome {
        Ok(done) => done,
        Err(why) => {
            // The library stops to wait for the changes.
            let _ = set_state(&target.memory, &loaded, attach_state::ENDED);
            let _ = visit.finish(pid, &target);
            return Err(why.into());
        }
    };
    visit.finish(pid, &target)?;
    Ok(Begun {
        log: view.message,
        threads: done.threads,
        functions: done.functions,
        stopped: done.stopped,
        borrowed: visit.borrowed,
        memory: target.memory,
        loaded,
    })
}

/// A name that one program has at a time, and loses when it ends: who attaches and who detaches
/// must not do so at once.
struct Lock(#[expect(dead_code, reason = "held, and closed when dropped")] UnixDatagram);

fn lock(pid: u32) -> Result<Lock, String> {
    let name = format!("heapprof-attach-{pid}");
    let socket =
        SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
    socket.map(Lock).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another heapprof is attaching to it or detaching from it; try again".to_owned()
        }
        _ => format!("cannot tell whether another heapprof is at work with it: {error}"),
    })
}

/// Waits for the end of a thread that loads the library for a program that was killed.
fn wait_for_carrier(pid: u32) -> Result<(), String> {
    let until = Instant::now() + END_TIMEOUT;
    while thread_named(pid, borrowed_code::CARRIER_NAME).is_some() {
        // If the library waits for changes of entries, it is told that there will be none.
        if let Ok(target) = Target::of(pid)
            && let Presence::Loaded(all) = target.presence()
        {
            for loaded in &all {
                if read_block(&target.memory, loaded)
                    .is_ok_and(|it| it.state == attach_state::PLANNED)
                {
                    set_state(&target.memory, loaded, attach_state::ENDED)?;
                }
            }
        }
        if Instant::now() > until {
            return Err(
                "a thread of an earlier heapprof attach is still loading its library".into(),
            );
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Checks the state of a library that is loaded already. Returns true if no thread is in its code.
fn prepare_again(pid: u32, target: &Target, loaded: &Loaded) -> Result<bool, String> {
    let view = read_block(&target.memory, loaded)?;
    if ![own_pid(pid), FORGOTTEN].contains(&view.pid) {
        return Err(
            "it is a copy (clone, without libc's fork) of a process that heapprof was attached to"
                .into(),
        );
    }
    match view.state {
        state if attach_state::is_recording(state) => {
            return Err(format!(
                "heapprof is attached already; it records to {}.heaplog (heapprof detach {pid} ends that)",
                view.message.trim_end_matches(".heaplog")
            ));
        }
        attach_state::PREPARING | attach_state::PLANNED => {
            // The program that attached was killed. Its library gives up.
            set_state(&target.memory, loaded, attach_state::ENDED)?;
        }
        _ => {}
    }
    let until = Instant::now() + END_TIMEOUT;
    while writer_of(pid).is_some() {
        if Instant::now() > until {
            return Err("the library in it does not end the last recording".into());
        }
        std::thread::sleep(LOOK);
    }
    // A killed program may have left some entries changed.
    let (_, view) = restore(pid, &target.memory, loaded)?;
    let is_quiet = quiet::wait(pid, target, loaded, &view.patches, None);
    // The state of the last recording must not be taken for that of the next one.
    set_state(&target.memory, loaded, attach_state::IDLE)?;
    Ok(is_quiet)
}

/// Returns the process's id as it sees it.
fn own_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = line.and_then(|line| line.split_ascii_whitespace().last());
    last.and_then(|last| last.parse().ok()).unwrap_or(pid)
}

fn read_block(memory: &Memory, loaded: &Loaded) -> Result<AttachBlockView, String> {
    let bytes = memory
        .bytes(loaded.block, AttachBlock::LEN)
        .map_err(|error| format!("cannot read its memory: {error}"))?;
    AttachBlock::read(&bytes).ok_or_else(|| {
        "the library in it is of another version of heapprof, or not ready".to_owned()
    })
}

fn set_state(memory: &Memory, loaded: &Loaded, state: u32) -> Result<(), String> {
    let at = loaded.block + AttachBlock::STATE_AT as u64;
    memory
        .write(at, &state.to_le_bytes())
        .map_err(|error| format!("cannot write its memory: {error}"))
}

/// Waits until the library has prepared everything.
fn wait_until_planned(
    pid: u32,
    visit: &mut borrowing::Visit,
    before: Option<Loaded>,
) -> Result<(Loaded, AttachBlockView), String> {
    let until = Instant::now() + PREPARE_TIMEOUT;
    let mut loaded = before;
    loop {
        visit.check()?;
        release_late();
        if loaded.is_none()
            && let Some(enter) = visit.entered()
        {
            let target = Target::of(pid)?;
            if let Presence::Loaded(all) = target.presence() {
                loaded = all.into_iter().find(|loaded| loaded.enter == enter);
            }
        }
        if let Some(loaded) = &loaded
            && let Ok(view) = read_block(visit.memory(), loaded)
        {
            match view.state {
                attach_state::PLANNED => return Ok((loaded.clone(), view)),
                attach_state::FAILED => return Err(view.message),
                _ => {}
            }
        }
        if !has_thread(pid, pid.into()) {
            return Err("it has ended".into());
        }
        if Instant::now() > until {
            return Err("the library does not answer".into());
        }
        std::thread::sleep(LOOK);
    }
}

/// The changes of the entries, which are done.
struct Patched {
    threads: usize,
    functions: usize,
    /// How long all threads were stopped.
    stopped: Duration,
}

/// Stops all threads, changes the entries, and lets the threads go on.
fn patch(
    pid: u32,
    memory: &Memory,
    loaded: &Loaded,
    view: &AttachBlockView,
    visit: &borrowing::Visit,
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
                threads: all.len(),
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

/// Makes the line of each thread begin anew, also of one whose sampler was stopped. All is zero in
/// a thread that never allocated.
fn restart_countdowns(memory: &Memory, all: &AllThreads, distance: i64) {
    for (_, registers) in all.threads() {
        let pointer = registers.fs_base;
        // glibc's descriptor of a thread names itself twice.
        let head = memory.bytes(pointer, 24).unwrap_or_default();
        let (words, _) = head.as_chunks::<8>();
        let is_glibcs = matches!(words, [first, _, third]
            if [first, third].iter().all(|&&word| u64::from_le_bytes(word) == pointer));
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
fn restore(
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

/// Returns the library's own thread.
fn writer_of(pid: u32) -> Option<u32> {
    thread_named(pid, "heapprof")
}

fn thread_named(pid: u32, wanted: &str) -> Option<u32> {
    threads_of(pid).into_iter().find(|tid| {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
        name.is_ok_and(|name| name.trim_end() == wanted)
    })
}

/// Ends the recording of a process, and restores its code.
///
/// # Errors
/// In words: why not.
pub fn detach(pid: u32) -> Result<Ended, Refusal> {
    let _lock = lock(pid)?;
    let target = Target::of(pid)?;
    let all = match target.presence() {
        Presence::Loaded(all) => all,
        Presence::Preloaded => return Err(Refusal::Preloaded),
        Presence::Nothing => return Err("heapprof is not attached to it".into()),
    };
    let mut chosen = None;
    for loaded in all {
        let view = read_block(&target.memory, &loaded)?;
        let is_recording = attach_state::is_recording(view.state);
        if chosen.is_none() || is_recording {
            chosen = Some((loaded, view));
        }
    }
    let (loaded, _) = chosen.ok_or("heapprof is not attached to it")?;
    let (stopped, view) = restore(pid, &target.memory, &loaded)?;
    let own = writer_of(pid);
    let is_quiet = quiet::wait(pid, &target, &loaded, &view.patches, own);
    let ended = Ended {
        log: view.message.clone(),
        stopped,
        is_code_in_use: !is_quiet,
    };
    if view.pid != own_pid(pid) {
        return Ok(ended); // a copy: only its entries were changed
    }
    if !attach_state::is_recording(view.state) {
        return match view.state {
            attach_state::PREPARING | attach_state::PLANNED => {
                Err("another heapprof is attaching to it; try again".into())
            }
            _ => Err("heapprof is not attached to it any more".into()),
        };
    }
    let ending = match is_quiet {
        true => attach_state::ENDING_QUIET,
        false => attach_state::ENDING,
    };
    set_state(&target.memory, &loaded, ending)?;
    let until = Instant::now() + END_TIMEOUT;
    while read_block(&target.memory, &loaded)?.state == ending {
        if Instant::now() > until {
            return Err("the library does not complete its log; its entries are restored".into());
        }
        std::thread::sleep(LOOK);
    }
    while writer_of(pid).is_some() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    Ok(ended)
}
