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
//! | a borrowed thread executes code of ours | `arch/x86_64/borrowed_code.rs`, `borrowing.rs` |
//! | a thread holds a lock | `safe_point.rs` |
//! | a seccomp filter ends the process for a system call | `seccomp_filters.rs` |
//! | a thread is in the middle of a changed instruction | `entries.rs`, `all_threads.rs` |
//!
//! Not here: the words on the terminal (`cli`), and the recording (the library).

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heapprof_format::{AttachBlockView, AttachInput, attach_state};

mod all_threads;
mod arch;
mod block;
mod borrowing;
mod entries;
mod memory;
mod modules;
mod priority;
mod quiet;
mod safe_point;
mod seccomp_filters;
mod stack;
mod target;
mod tracee;

use all_threads::{has_thread, threads_of};
use arch::borrowed_code;
use block::{FORGOTTEN, own_pid, read_block, set_state};
use memory::Memory;
use target::{Loaded, Presence, Target};
use tracee::release_late;

/// How long the library has to prepare.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the library has to complete the log.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a child that has just been forked has to begin its own life.
const FORK: Duration = Duration::from_secs(1);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// The request of a user: the samples, and the place of the log.
#[derive(Debug, Clone)]
pub struct AttachRequest {
    /// Mean sampling interval in bytes.
    pub interval: u64,
    /// Most frames of a stack.
    pub depth: u32,
    /// The folder of the log, as the process sees it.
    pub folder: PathBuf,
    /// The log's path without its ending, from that folder on; empty: a name of the program's.
    pub name: Vec<u8>,
    /// Functions of allocators, as `HEAPPROF_TAP` names them; empty: none.
    pub taps: String,
    /// The library's file.
    pub library: PathBuf,
}

/// A recording that has begun.
#[derive(Debug)]
pub struct AttachedRecording {
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
pub enum RecordingState {
    /// It goes on.
    Active,
    /// It has ended, and the process goes on: somebody has detached it, or the library gave up.
    Ended,
    /// The program has ended, or has executed another one.
    Gone,
}

impl AttachedRecording {
    /// Returns what has become of the recording.
    pub fn state(&self) -> RecordingState {
        let Ok(view) = read_block(&self.memory, &self.loaded) else {
            return RecordingState::Gone;
        };
        let is_ending = [attach_state::ENDING, attach_state::ENDING_QUIET].contains(&view.state);
        let is_under_way = is_ending || attach_state::is_recording(view.state);
        // The message of another recording, which has begun since the last look, is another log.
        match is_under_way && view.message == self.log {
            true => RecordingState::Active,
            false => RecordingState::Ended,
        }
    }

    /// Lets threads go that were in a part of the kernel that nothing interrupts. To be called now
    /// and then.
    pub fn release_late_threads(&self) {
        release_late();
    }
}

/// A recording that has ended.
#[derive(Debug)]
pub struct DetachedRecording {
    /// The log, as the process sees it. `None`: nothing was recorded of the process, a forked copy
    /// of one that heapprof was attached to.
    pub log: Option<String>,
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
pub fn attach(pid: u32, request: &AttachRequest) -> Result<AttachedRecording, Refusal> {
    let _lock = lock(pid)?;
    let target = Target::of(pid)?;
    let mut input = AttachInput::new(
        request.interval,
        request.depth,
        request.folder.as_os_str().as_encoded_bytes(),
        &request.name,
    )
    .ok_or("the path of the log is too long")?
    .with_taps(request.taps.as_bytes())
    .ok_or("the names of functions to be tapped are too long")?;
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
    seccomp_filters::check(pid)?;
    let library = fs::read(&request.library)
        .map_err(|error| format!("cannot read {}: {error}", request.library.display()))?;
    let threads = threads_of(pid).len(); // those of the library come later
    let mut visit = borrowing::Visit::begin(pid, &target, before.as_ref(), input, &library)?;
    let planned = wait_until_planned(pid, &mut visit, before);
    let (loaded, view) = match planned {
        Ok(planned) => planned,
        Err(why) => {
            let _ = visit.finish(pid, &target);
            return Err(why.into());
        }
    };
    let outcome = entries::patch(pid, &target.memory, &loaded, &view, &visit);
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
    Ok(AttachedRecording {
        log: view.message,
        threads,
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
    let until = Instant::now() + FORK;
    let view = loop {
        let view = read_block(&target.memory, loaded)?;
        if [own_pid(pid), FORGOTTEN].contains(&view.pid) || Instant::now() > until {
            break view;
        }
        // A child that libc has just forked still has to forget its parent's recording.
        std::thread::sleep(LOOK);
    };
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
    let (_, view) = entries::restore(pid, &target.memory, loaded)?;
    let is_quiet = quiet::wait(pid, target, loaded, &view.patches, None);
    // The state of the last recording must not be taken for that of the next one.
    set_state(&target.memory, loaded, attach_state::IDLE)?;
    Ok(is_quiet)
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
pub fn detach(pid: u32) -> Result<DetachedRecording, Refusal> {
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
    let (stopped, view) = entries::restore(pid, &target.memory, &loaded)?;
    let own = writer_of(pid);
    let is_quiet = quiet::wait(pid, &target, &loaded, &view.patches, own);
    let is_copy = view.pid != own_pid(pid);
    let ended = DetachedRecording {
        log: (!is_copy).then(|| view.message.clone()),
        stopped,
        is_code_in_use: !is_quiet,
    };
    if is_copy {
        return Ok(ended); // only its entries were changed
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
