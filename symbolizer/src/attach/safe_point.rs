//! Safe point: whether a stopped thread may be borrowed.
//!
//! Glossary: safe point.
//!
//! A borrowed thread creates another one. That takes locks of libc's allocator and of its threads,
//! so the thread must not be inside of these. The proof is its whole stack. Each frame is known by
//! its unwind table, and the last one is a thread's first. libc's frames belong to functions that
//! hold no lock while they wait. A thread without this proof is let go.
//!
//! Frames in a module that brings the process's allocator count only below a call that no allocator
//! makes, such as a wait for events.

use std::ops::Range;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Unwinder as _,
    UnwinderNative,
};

use super::arch::registers::Registers;
use super::memory::Memory;
use super::modules::{Function, Module};
use super::stack::{Stack, is_in};
use super::tracee::Tracee;

/// Functions of libc that hold no lock of libc while they wait, and that no allocator calls.
const IDLE: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "accept",
    "accept4",
    "recv",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "wait4",
    "waitpid",
    "wait",
    "waitid",
    "pause",
    "sigwait",
    "sigwaitinfo",
    "sigtimedwait",
    "sigsuspend",
];
/// Functions of libc that hold no lock of libc while they wait, or while they call the program.
const WAITING: &[&str] = &[
    "read",
    "pread64",
    "pread",
    "readv",
    "write",
    "writev",
    "connect",
    "send",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_barrier_wait",
    "sched_yield",
    "syscall",
    "msgrcv",
    "semop",
    "semtimedop",
    "flock",
    "fcntl64",
    "fcntl",
    "fsync",
    "fdatasync",
    "eventfd_read",
    "clock_gettime",
    "time",
];
/// Functions of libc that call a thread's first function, and have no name for the loader.
const OUTER: &[&str] = &[
    "clone",
    "__clone",
    "__libc_start_main",
    "clone3",
    "__clone3",
];
/// Most frames of a stack.
const MOST_FRAMES: usize = 1000;

/// The knowledge about the process by which stacks are judged.
pub(super) struct Judge<'a> {
    memory: &'a Memory,
    modules: &'a [Module],
    libc: usize,
    /// Modules with an allocator that takes the place of libc's.
    allocators: Vec<usize>,
    functions: Vec<Function>,
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// By number of the module: whether its tables are known.
    known: Vec<Option<bool>>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        memory: &'a Memory,
        modules: &'a [Module],
        libc: usize,
        allocators: Vec<usize>,
    ) -> Judge<'a> {
        Judge {
            memory,
            modules,
            libc,
            allocators,
            functions: modules[libc].symbols(memory, false),
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            known: modules.iter().map(|_| None).collect(),
        }
    }

    /// Returns true if the stopped thread may be borrowed.
    pub(super) fn may_borrow(&mut self, thread: &Tracee, registers: &Registers) -> bool {
        registers.is_64_bit()
            && !Self::is_in_restartable_sequence(self.memory, thread, registers)
            && self.is_harmless(registers)
    }

    /// Returns true if the thread may be in a sequence that the kernel restarts when the thread is
    /// interrupted. Another address in its registers would end the sequence unnoticed.
    pub(super) fn is_in_restartable_sequence(
        memory: &Memory,
        thread: &Tracee,
        registers: &Registers,
    ) -> bool {
        const SEQUENCE_AT: u64 = 8;
        match thread.restartable_area() {
            Some(area) => memory.word(area + SEQUENCE_AT).unwrap_or(1) != 0,
            None => registers.system_call().is_none(), // no sequence contains a system call
        }
    }

    /// Returns true if the thread's whole stack is known, and no frame is in these ranges.
    /// The thread may run meanwhile: its stack is a copy.
    pub(super) fn is_known_outside(
        &mut self,
        registers: &Registers,
        stack: &Stack,
        ranges: &[Range<u64>],
    ) -> bool {
        let frames = self.frames(registers, |address| stack.word(address));
        let frames = frames.unwrap_or_default();
        !frames.is_empty() && !frames.iter().any(|&address| is_in(ranges, address))
    }

    fn is_harmless(&mut self, registers: &Registers) -> bool {
        let memory = self.memory;
        let Some(frames) = self.frames(registers, |address| memory.word(address).ok()) else {
            return false;
        };
        let mut places = Vec::new();
        for pc in frames {
            match self.place(pc) {
                Some(place) => places.push(place),
                None => return false,
            }
        }
        are_harmless(&places)
    }

    /// Returns the place of an address of code. `None`: a thread there cannot be borrowed.
    fn place(&self, pc: u64) -> Option<Place> {
        let number = self.modules.iter().position(|module| module.is_code(pc))?;
        if number != self.libc {
            let file = self.modules[number].file();
            if file.starts_with("ld-linux") || file.starts_with("libheapprof") {
                return None;
            }
            return Some(match self.allocators.contains(&number) {
                true => Place::Allocator,
                false => Place::Program,
            });
        }
        let around = self.functions.iter().filter(|it| it.code.contains(&pc));
        let names: Vec<&str> = around.map(|function| &function.name[..]).collect();
        let is_one_of = |known: &[&str]| names.iter().any(|name| known.contains(name));
        if names.is_empty() {
            return Some(Place::Nameless);
        }
        let kinds = [
            (OUTER, Place::Outer),
            (IDLE, Place::Idle),
            (WAITING, Place::Waiting),
        ];
        let mut kinds = kinds.into_iter().filter(|(known, _)| is_one_of(known));
        kinds.next().map(|(_, place)| place)
    }

    /// Returns the addresses of the stack's frames, up to a thread's first function. `None`: the
    /// stack is not known up to there. `read` returns words of the stack.
    fn frames(
        &mut self,
        registers: &Registers,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<Vec<u64>> {
        let (pc, start) = (registers.pc(), registers.unwind_start());
        self.learn(pc)?;
        loop {
            let mut frames = Vec::new();
            let mut unknown = None;
            let mut read = |address| read(address).ok_or(());
            let mut walk = self
                .unwinder
                .iter_frames(pc, start, &mut self.cache, &mut read);
            loop {
                let frame = walk.next().ok()?;
                let Some(frame) = frame else {
                    break;
                };
                let address = match frame {
                    FrameAddress::InstructionPointer(address) => address,
                    FrameAddress::ReturnAddress(address) => u64::from(address) - 1,
                };
                let number = self.modules.iter().position(|it| it.is_code(address))?;
                if self.known[number].is_none() {
                    unknown = Some(address);
                    break;
                }
                frames.push(address);
                if frames.len() > MOST_FRAMES {
                    return None;
                }
            }
            match unknown {
                Some(address) => self.learn(address)?,
                None => return Some(frames),
            }
        }
    }

    /// Reads the tables of the module around an address. `None`: it has none.
    fn learn(&mut self, address: u64) -> Option<()> {
        let number = self.modules.iter().position(|it| it.is_code(address))?;
        if let Some(is_known) = self.known[number] {
            return is_known.then_some(());
        }
        let module = &self.modules[number];
        let sections = module.unwind_sections(self.memory);
        self.known[number] = Some(sections.is_some());
        let sections = sections?;
        let base = module.range.start;
        let relative = |range: &Range<u64>| range.start - base..range.end - base;
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            eh_frame_hdr_svma: Some(relative(&sections.header)),
            eh_frame_hdr: Some(sections.header_bytes),
            eh_frame_svma: Some(relative(&sections.frames)),
            eh_frame: Some(sections.frames_bytes),
            ..Default::default()
        };
        let range = module.range.clone();
        let module = framehop::Module::new(String::new(), range, base, info);
        self.unwinder.add_module(module);
        self.cache = CacheNative::new();
        Some(())
    }
}

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the program or in a library that is not libc.
    Program,
    /// In a module that has an allocator, and perhaps other code.
    Allocator,
    /// In a function of libc that holds no lock, and that no allocator calls.
    Idle,
    /// In a function of libc that holds no lock.
    Waiting,
    /// In a function of libc without a name.
    Nameless,
    /// In a function of libc that calls a thread's first function.
    Outer,
}

/// Returns true if a thread with these frames, the innermost first, holds no lock of libc. A
/// nameless function counts as part of the named one that calls it. The first functions of threads
/// are nameless, too, and have no other callers.
fn are_harmless(places: &[Place]) -> bool {
    let Some(last) = places.iter().rposition(|place| *place != Place::Outer) else {
        return false;
    };
    // Behind the program's first function: nameless ones, and libc's outermost.
    let end = places[..=last]
        .iter()
        .rposition(|place| *place != Place::Nameless);
    let Some(end) = end else {
        return false;
    };
    // The program's own first instruction (`_start`) is behind libc's.
    let inner = match places[..=end]
        .iter()
        .position(|place| *place == Place::Outer)
    {
        Some(outer) => match places[..outer]
            .iter()
            .rposition(|place| *place != Place::Nameless)
        {
            Some(before) => &places[..=before],
            None => return false,
        },
        None => &places[..=end],
    };
    let first = inner.iter().find(|place| **place != Place::Nameless);
    if first != Some(&Place::Idle) && inner.contains(&Place::Allocator) {
        return false;
    }
    let mut named = inner.iter().rev();
    let mut caller = Place::Program;
    named.all(|&place| {
        let is_fine = place != Place::Nameless || matches!(caller, Place::Waiting | Place::Idle);
        if place != Place::Nameless {
            caller = place;
        }
        is_fine && place != Place::Outer
    })
}

#[cfg(test)]
mod tests {
    use super::Place::{Allocator, Idle, Nameless, Outer, Program, Waiting};
    use super::*;

    #[test]
    fn a_thread_that_waits_or_computes_may_be_borrowed() {
        // In `read`, called by main.
        assert!(are_harmless(&[
            Waiting, Program, Program, Nameless, Outer, Program
        ]));
        // In the function of a thread, and in a wait for a condition.
        assert!(are_harmless(&[Program, Nameless, Outer]));
        assert!(are_harmless(&[
            Nameless, Nameless, Waiting, Program, Nameless, Outer
        ]));
        assert!(are_harmless(&[Waiting, Program, Nameless]));
    }

    #[test]
    fn a_thread_in_a_module_with_an_allocator_may_be_borrowed_while_it_idles() {
        // A program that defines malloc, in `epoll_wait`.
        assert!(are_harmless(&[Idle, Allocator, Program, Nameless, Outer]));
        assert!(are_harmless(&[
            Nameless, Idle, Allocator, Nameless, Outer, Allocator
        ]));
        // As in its malloc, waiting for a lock or giving way to other threads.
        assert!(!are_harmless(&[
            Waiting, Allocator, Program, Nameless, Outer
        ]));
        assert!(!are_harmless(&[Allocator, Program, Nameless, Outer]));
        // In a signal handler that has interrupted it.
        assert!(!are_harmless(&[
            Idle, Program, Nameless, Allocator, Nameless, Outer
        ]));
    }

    #[test]
    fn a_thread_in_an_unknown_function_of_libc_may_not_be_borrowed() {
        // As in `memset`, called by the program, or in a signal handler's frame.
        assert!(!are_harmless(&[Nameless, Program, Nameless, Outer]));
        assert!(!are_harmless(&[
            Waiting, Program, Nameless, Program, Nameless, Outer
        ]));
        // Before the program's first function, or at its end.
        assert!(!are_harmless(&[Nameless, Outer]));
        assert!(!are_harmless(&[Outer]));
        assert!(!are_harmless(&[]));
    }
}
