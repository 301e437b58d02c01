//! Borrowing: a thread of the process makes a few system calls for us, and creates a thread.
//!
//! The first code that it executes is the gate (`borrowed_code`), in bytes behind the code of a
//! module that nothing uses: the rest of its last page. The gate maps the region for everything
//! else. Each step leaves the process able to go on without this program.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use heapprof_format::{ATTACH_DESCRIPTORS, ATTACH_LIBRARY, AttachInput};

use super::all_threads::threads_of;
use super::arch::borrowed_code::{self, CODE, GATE, PATH, REGION, Slot, gate};
use super::arch::registers::{Registers, SYSTEM_CALL_LEN};
use super::memory::Memory;
use super::modules::Module;
use super::safe_point::Judge;
use super::target::{Loaded, Target, why_not_permitted};
use super::tracee::{Stop, Tracee, release_all_late, release_late};

/// How long to look for a thread that may be borrowed.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
/// In the first part of that time, no thread is borrowed that the kernel must continue in a call.
const CHOOSY: Duration = Duration::from_millis(300);
/// How long a thread has to stop while there are others to look at.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the borrowed thread has to make a system call, and the main thread to stop. On a busy
/// system, they wait for a processor most of that time.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the end of the library's first thread.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(2);

/// Code and data of ours in the process, and the thread that has executed them first.
pub(super) struct Visit {
    memory: Memory,
    region: u64,
    /// How long the thread was stopped.
    pub(super) borrowed: Duration,
}

/// A stopped thread, and the gate for it.
struct Borrowed<'a> {
    thread: Tracee,
    resumed: Registers,
    gate: u64,
    memory: &'a Memory,
}

/// Returns unused bytes behind the code of a module, on its last page. Bytes that a killed program
/// has left there are not used again: a thread may still execute them.
fn unused_code(memory: &Memory, modules: &[Module]) -> Option<u64> {
    const PAGE: u64 = 4096;
    const STEP: usize = GATE.next_multiple_of(16);
    let places = modules
        .iter()
        .flat_map(|module| &module.code)
        .flat_map(|code| {
            let first = code.end.next_multiple_of(16);
            let end = code.end.next_multiple_of(PAGE);
            let last = end.saturating_sub(GATE as u64);
            (first..=last).step_by(STEP)
        });
    let is_unused = |place: u64| {
        let bytes = memory.bytes(place, GATE);
        bytes.is_ok_and(|bytes| bytes.iter().all(|&byte| byte == 0))
    };
    places.into_iter().find(|&place| is_unused(place))
}

/// Stops one thread after the other until one `suits`.
fn search(
    pid: u32,
    timeout: Duration,
    mut suits: impl FnMut(&Tracee, &Registers, Duration) -> bool,
) -> Result<(Tracee, Registers), String> {
    let begun = Instant::now();
    loop {
        for tid in threads_of(pid) {
            let mut thread = match Tracee::interrupt(tid) {
                Ok(thread) => thread,
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    return Err(why_not_permitted(pid));
                }
                Err(_) => continue,
            };
            if let Ok(Some(Stop::Interrupted)) = thread.wait(Instant::now() + STOP_TIMEOUT)
                && let Ok(registers) = thread.registers()
                && suits(&thread, &registers, begun.elapsed())
            {
                return Ok((thread, registers));
            }
        }
        release_all_late(begun + timeout);
        if begun.elapsed() > timeout {
            return Err(
                "no thread of it is at a point where it can be borrowed: each one is inside \
                        of the allocator or the loader, or its stack cannot be proved; try again. \
                        If the program has a malloc of its own, a thread of it must wait for events \
                        (poll, epoll_wait, select) at the time"
                    .into(),
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Borrowed<'_> {
    fn new<'a>(
        thread: Tracee,
        registers: &Registers,
        memory: &'a Memory,
        modules: &[Module],
    ) -> Result<Borrowed<'a>, String> {
        let resumed = registers
            .resumed()
            .ok_or("a thread is in an unknown state")?;
        let place = unused_code(memory, modules)
            .ok_or("there are no unused bytes behind the code of its libraries")?;
        memory
            .write(place, &gate(&resumed))
            .map_err(|error| format!("its code cannot be changed: {error}"))?;
        Ok(Borrowed {
            thread,
            resumed,
            gate: place,
            memory,
        })
    }

    /// Makes a system call in the thread.
    fn call(&mut self, number: i64, arguments: [u64; 6]) -> Result<u64, String> {
        let gone = |error: std::io::Error| format!("a thread of it cannot be controlled: {error}");
        let registers = self.resumed.with_call(self.gate, number, arguments);
        self.thread.set_registers(&registers).map_err(gone)?;
        let mut is_inside = false;
        let until = Instant::now() + CALL_TIMEOUT;
        loop {
            self.thread.run_to_call().map_err(gone)?;
            match self.thread.wait(until).map_err(gone)? {
                Some(Stop::Call) => {
                    let now = self.thread.registers().map_err(gone)?;
                    // A handler of the program's may make calls of its own.
                    if now.pc() != self.gate + SYSTEM_CALL_LEN || !self.has_same_stack(&now) {
                        continue;
                    }
                    if is_inside {
                        return now
                            .call_result()
                            .map_err(|error| std::io::Error::from_raw_os_error(error).to_string());
                    }
                    is_inside = true;
                }
                Some(Stop::Gone) => return Err("it has ended".into()),
                Some(_) => {}
                None => {
                    return Err(
                        "a thread of it does not make a system call; is the system very busy? Try again"
                            .into(),
                    );
                }
            }
        }
    }

    /// Lets the thread go on, with other registers than its own if `registers` are given. A thread
    /// that does not stop for this, or that is in a signal handler, goes on by the gate.
    fn release(mut self, registers: Option<&Registers>) -> Result<(), String> {
        if self.thread.stop_again(Instant::now() + STOP_TIMEOUT) && !self.is_at_gate() {
            self.thread.release();
            return Err("a signal handler of it took the place of a system call; try again".into());
        }
        let set = self
            .thread
            .set_registers(registers.unwrap_or(&self.resumed));
        if set.is_ok() {
            let _ = self.memory.write(self.gate, &[0; GATE]);
        }
        self.thread.release();
        set.map_err(|error| format!("a thread of it cannot be controlled: {error}"))
    }

    /// Returns true if the stopped thread executes the gate.
    fn is_at_gate(&self) -> bool {
        self.thread.registers().is_ok_and(|now| {
            (self.gate..self.gate + GATE as u64).contains(&now.pc()) && self.has_same_stack(&now)
        })
    }

    /// Returns true if the stack is as deep as it was when the thread was borrowed.
    fn has_same_stack(&self, now: &Registers) -> bool {
        now.stack_pointer() == self.resumed.stack_pointer()
    }
}

impl Visit {
    /// Borrows a thread, which creates another one. That loads the library, if `loaded` is `None`,
    /// and enters it with `input`.
    pub(super) fn begin(
        pid: u32,
        target: &Target,
        loaded: Option<&Loaded>,
        mut input: AttachInput,
        library: &[u8],
    ) -> Result<Visit, String> {
        let memory = Memory::open(pid).map_err(|error| error.to_string())?;
        let mut judge = Judge::new(
            &memory,
            &target.modules,
            target.libc,
            target.allocators.clone(),
        );
        input.main_thread = main_thread(pid)?;
        let (thread, registers) = search(pid, SEARCH_TIMEOUT, |thread, registers, since| {
            (since > CHOOSY || !registers.is_to_be_continued())
                && registers.resumed().is_some()
                && judge.may_borrow(thread, registers)
        })?;
        let since = Instant::now();
        let mut borrowed = Borrowed::new(thread, &registers, &memory, &target.modules)?;
        let prepared = prepare(pid, &mut borrowed, target, loaded, &input, library);
        let region = match prepared {
            Ok(region) => region,
            Err(why) => {
                borrowed.release(None)?;
                return Err(why);
            }
        };
        let registers = borrowed.resumed.with_pc(region);
        borrowed.release(Some(&registers))?;
        Ok(Visit {
            memory,
            region,
            borrowed: since.elapsed(),
        })
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    fn slot(&self, slot: Slot) -> u64 {
        self.memory.word(self.region + slot.at()).unwrap_or(0)
    }

    fn has_failed_to_create(&self) -> bool {
        self.slot(Slot::IsReturning) != 0 && self.slot(Slot::CreateError) != 0
    }

    /// Looks whether something has failed.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.has_failed_to_create() {
            let error = self.slot(Slot::CreateError) as i32;
            let error = std::io::Error::from_raw_os_error(error);
            return Err(format!(
                "it cannot create a thread: {error}; is there a limit (ulimit -u, ulimit -v, pids.max of its cgroup)?"
            ));
        }
        if self.slot(Slot::IsDone) & 0xffff_ffff == 2 {
            let message = self.memory.some_bytes(self.slot(Slot::Message), 400);
            let message = message.split(|&byte| byte == 0).next().unwrap_or_default();
            let message = match message {
                [] => "no reason is given; it needs /proc in the process's root, and a few free descriptors and mappings (ulimit -n, ulimit -v)".into(),
                message => String::from_utf8_lossy(message),
            };
            return Err(format!("its loader does not load the library: {message}"));
        }
        Ok(())
    }

    /// Returns the address of the library's function, once the library is loaded.
    pub(super) fn entered(&self) -> Option<u64> {
        Some(self.slot(Slot::Enter)).filter(|&address| address != 0)
    }

    /// Returns the range that the borrowed thread has left when it is back. To be asked while all
    /// threads are stopped.
    ///
    /// As soon as the thread is on its way back, that is the range: stacks are full of old
    /// addresses, and one of memory that was at the place of the region names its first bytes
    /// (large blocks of malloc begin 16 bytes behind a page's start).
    pub(super) fn code_of_borrowed(&self) -> Range<u64> {
        let code = match self.slot(Slot::IsReturning) {
            0 => 0..borrowed_code::carrier(),
            _ => borrowed_code::way_back(),
        };
        self.region + code.start..self.region + code.end
    }

    /// Waits for the end of the library's first thread, and unmaps the region. If that fails, the
    /// region stays.
    pub(super) fn finish(&self, pid: u32, target: &Target) -> Result<(), String> {
        let until = Instant::now() + CARRIER_TIMEOUT;
        let carrier = self.slot(Slot::Carrier);
        let has_created = !self.has_failed_to_create();
        while has_created && (self.slot(Slot::IsDone) == 0 || has_own_thread(pid, carrier)) {
            release_late();
            if Instant::now() > until {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let memory = &self.memory;
        let found = search(pid, CHOOSY * 2, |thread, registers, since| {
            (since > CHOOSY || !registers.is_to_be_continued())
                && registers.is_64_bit()
                && registers.resumed().is_some()
                && !Judge::is_in_restartable_sequence(memory, thread, registers)
        });
        if let Ok((thread, registers)) = found {
            let mut borrowed = Borrowed::new(thread, &registers, memory, &target.modules)?;
            let file = self.slot(Slot::Descriptor);
            if !has_created && file != 0 {
                let _ = borrowed.call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
            }
            let _ = borrowed.call(libc::SYS_munmap, [self.region, REGION, 0, 0, 0, 0]);
            borrowed.release(None)?;
        }
        Ok(())
    }
}

/// Returns true if the process has that thread, by the number that it has for itself.
fn has_own_thread(pid: u32, own: u64) -> bool {
    threads_of(pid).into_iter().any(|tid| {
        let status =
            fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let last = line.and_then(|line| line.split_ascii_whitespace().last());
        last.and_then(|last| last.parse().ok()) == Some(own)
    })
}

/// Returns the thread pointer of the main thread; 0 if that thread has ended.
fn main_thread(pid: u32) -> Result<u64, String> {
    let Ok(mut thread) = Tracee::interrupt(pid) else {
        return match super::has_thread(pid, pid.into()) {
            true => Ok(0),
            false => Err("it has ended".into()),
        };
    };
    match thread.wait(Instant::now() + CALL_TIMEOUT) {
        Ok(Some(Stop::Interrupted)) => Ok(thread.registers().map_or(0, |it| it.thread_pointer())),
        Ok(Some(Stop::JobControl)) => {
            Err("a signal has just stopped it; continue it first: kill -CONT".into())
        }
        Ok(Some(Stop::Gone)) => Ok(0),
        _ => Err("its main thread does not stop: it waits in the kernel; try again later".into()),
    }
}

/// Makes the region, with all that the new thread needs.
fn prepare(
    pid: u32,
    borrowed: &mut Borrowed<'_>,
    target: &Target,
    loaded: Option<&Loaded>,
    input: &AttachInput,
    library: &[u8],
) -> Result<u64, String> {
    let memory = borrowed.memory;
    let (read_write, private) = (
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64,
    );
    let map = [0, REGION, read_write, private, u64::MAX, 0];
    let refused = |what: &'static str| move |why: String| format!("it cannot {what}: {why}");
    let region = borrowed
        .call(libc::SYS_mmap, map)
        .map_err(refused("map memory"))?;
    let outcome = (|| {
        let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        borrowed
            .call(libc::SYS_mprotect, [region, CODE, executable, 0, 0, 0])
            .map_err(refused("map code"))?;
        let mut words = vec![
            (Slot::PthreadCreate, target.functions.pthread_create),
            (Slot::PthreadSelf, target.functions.pthread_self),
            (Slot::PthreadDetach, target.functions.pthread_detach),
            (Slot::ErrnoLocation, target.functions.errno_location),
            (Slot::Dlopen, target.functions.dlopen),
            (Slot::Dlsym, target.functions.dlsym),
            (Slot::Dlerror, target.functions.dlerror),
            (Slot::Enter, loaded.map_or(0, |loaded| loaded.enter)),
        ];
        let mut path = String::new();
        if loaded.is_none() {
            // The name is written before the call that reads it.
            let write = |bytes: &[u8]| {
                let place = memory.write(region + PATH, bytes);
                place.map_err(|error| format!("its memory cannot be written: {error}"))
            };
            write(ATTACH_LIBRARY.as_bytes())?;
            let name = region + PATH;
            let descriptor = borrowed
                .call(
                    libc::SYS_memfd_create,
                    [name, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0],
                )
                .map_err(refused("make a file in memory"))
                .map_err(with_limit_of_files)?;
            words.push((Slot::Descriptor, descriptor));
            if let Err(why) = copy(pid, descriptor, library) {
                let _ = borrowed.call(libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]);
                return Err(why);
            }
            path = format!("{ATTACH_DESCRIPTORS}{descriptor}");
        }
        let data = borrowed_code::data(
            &borrowed.resumed,
            &words,
            path.as_bytes(),
            &input.to_bytes(),
        );
        let write = |at: u64, bytes: &[u8]| {
            let written = memory.write(at, bytes);
            written.map_err(|error| format!("its memory cannot be written: {error}"))
        };
        write(region + CODE, &data)?;
        write(region, &borrowed_code::code())
    })();
    if let Err(why) = outcome {
        let _ = borrowed.call(libc::SYS_munmap, [region, REGION, 0, 0, 0, 0]);
        return Err(why);
    }
    Ok(region)
}

/// Adds the way out if the process has no descriptor left.
fn with_limit_of_files(why: String) -> String {
    let is_limit = why.contains("(os error 24)");
    match is_limit {
        true => format!("{why}; raise its limit: prlimit --nofile"),
        false => why,
    }
}

/// Writes the library to a file of the process.
fn copy(pid: u32, descriptor: u64, library: &[u8]) -> Result<(), String> {
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| file.write_all(library))
        .map_err(|error| format!("the library cannot be copied to it: {error}"))
}
