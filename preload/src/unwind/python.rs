//! Python frames: the functions of CPython that this thread is in, read in a hook.
//!
//! The interpreter is found by its symbols: at boot, and after the program has opened a library by
//! a path. A library that is opened by its name alone is found at the next such call, as when the
//! interpreter opens an extension. core's `python` knows the structures of each version.
//!
//! `PyGILState_GetThisThreadState` returns the state of this very thread, whether it has the
//! interpreter's lock or not. The function reads a thread-local word, and neither locks nor
//! allocates. From 3.14 on, that word is in the interpreter's thread-local block, which the loader
//! may have to make first. So from then on, only an interpreter that the program starts with is
//! read.
//!
//! Only this thread changes its frames, and a frame keeps its code object alive. So what is read
//! here stays as it is, if it is what it seems to be.
//!
//! Danger: the structures are the interpreter's, and may not be what is expected. So each page is
//! checked before it is read. While the program unmaps nothing, a page stays checked. A program
//! whose allocator is its own unmaps memory past our hooks, so each walk checks its pages anew. A
//! fault remains possible if a pointer leads into memory that is none of these structures, and
//! another thread unmaps it between check and load. If nothing that is read makes sense, reading
//! ends for good.
//!
//! Not here: interpreters without the lock (free-threaded builds), and subinterpreters.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapprof_core::{
    DEBUG_OFFSETS_WORDS, MOST_CODE_WORDS, MOST_PYTHON_FRAMES, Memory, PythonFault, PythonFrame,
    PythonLayout, python_frames, read_code,
};

use crate::os::link_map::{self, Module};
use crate::os::sys::{self, PAGE};
use crate::state::counters;
use crate::state::thread::{self, RunningCode};

/// Reads in a row that fail before reading ends for good.
const MOST_FAULTS: u32 = 64;

/// The first version whose states are in the interpreter's thread-local block.
const THREAD_LOCAL_STATES: u8 = 14;

/// True if the settings want Python frames.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// The interpreter; null: none is loaded. Never freed, because a thread may be reading it.
static INTERPRETER: AtomicPtr<Interpreter> = AtomicPtr::new(std::ptr::null_mut());
/// The interpreter that was found last, so that one is made only for another interpreter.
static FOUND: AtomicPtr<Interpreter> = AtomicPtr::new(std::ptr::null_mut());
/// True if all that the program unmaps passes our hooks.
static SEES_UNMAPS: AtomicBool = AtomicBool::new(false);
/// How often the program has unmapped memory.
static UNMAPS: AtomicU32 = AtomicU32::new(0);
/// Reads that failed, in a row.
static FAULTS: AtomicU32 = AtomicU32::new(0);

/// An interpreter that is loaded.
#[derive(PartialEq)]
struct Interpreter {
    layout: PythonLayout,
    /// Address of the type of code objects.
    code_type: u64,
    /// Address of `PyGILState_GetThisThreadState`.
    state_of_thread: usize,
    /// The code of the interpreter's loop.
    eval: Range<u64>,
}

/// At boot: looks for an interpreter, if the settings want Python frames. `sees_unmaps`: the
/// program has no allocator that unmaps memory past our hooks.
pub(crate) fn prepare(is_wanted: bool, sees_unmaps: bool) {
    IS_WANTED.store(is_wanted, Ordering::Relaxed);
    SEES_UNMAPS.store(sees_unmaps, Ordering::Relaxed);
    if is_wanted {
        look(true);
    }
}

/// After the program has opened a library: looks for an interpreter, if none is known.
pub(crate) fn after_open() {
    if !IS_WANTED.load(Ordering::Relaxed) || is_loaded() {
        return;
    }
    let Some(entered) = thread::current().enter() else {
        return;
    };
    entered.thread.running_code.set(RunningCode::Ours);
    link_map::while_unchanged(&mut || look(false));
}

/// Closes a library by `close`. The interpreter may go with it, so it is not called meanwhile.
pub(crate) fn around_close<R>(close: impl FnOnce() -> R) -> R {
    let before = INTERPRETER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    let result = close();
    if !before.is_null() {
        after_open();
    }
    result
}

/// Before the program unmaps memory: no page stays checked.
#[inline]
pub(crate) fn before_unmap() {
    if is_loaded() {
        UNMAPS.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns true if an interpreter is loaded whose frames can be read.
#[inline(always)]
pub(crate) fn is_loaded() -> bool {
    !INTERPRETER.load(Ordering::Relaxed).is_null()
}

fn look(at_start: bool) {
    let found = find().filter(|it| at_start || it.layout.minor() < THREAD_LOCAL_STATES);
    let Some(found) = found else {
        return;
    };
    let mut place = FOUND.load(Ordering::Acquire);
    // SAFETY: null, or an interpreter that is never freed.
    if unsafe { place.as_ref() } != Some(&found) {
        place = Box::into_raw(Box::new(found));
        FOUND.store(place, Ordering::Release);
    }
    INTERPRETER.store(place, Ordering::Release);
}

/// Returns the interpreter among the loaded modules. The program's own copy of a variable comes
/// before that of a library.
fn find() -> Option<Interpreter> {
    let object = |name: &CStr| link_map::modules().find_map(|it| it.object(name));
    let runtime = object(c"_PyRuntime")?;
    let module =
        link_map::modules().find(|it| it.function(c"PyGILState_GetThisThreadState").is_some())?;
    let code = |name: &CStr| module.function(name);
    let eval = code(c"_PyEval_EvalFrameDefault")?;
    let layout = match minor_version(module)? {
        minor @ ..=12 => PythonLayout::of_version(minor)?,
        _ => {
            // SAFETY: the variable is a structure of the interpreter that is longer than that. Its
            // first words are constants.
            let words = unsafe { *(runtime as *const [u64; DEBUG_OFFSETS_WORDS]) };
            PythonLayout::of_table(&words)?
        }
    };
    Some(Interpreter {
        layout,
        code_type: object(c"PyCode_Type")? as u64,
        state_of_thread: code(c"PyGILState_GetThisThreadState")?.start,
        eval: eval.start as u64..eval.end as u64,
    })
}

/// Returns the minor number of an interpreter's version. Before 3.11 no variable has the version,
/// and functions tell which were new in one.
fn minor_version(module: &Module) -> Option<u8> {
    if let Some(version) = module.object(c"Py_Version") {
        // SAFETY: the variable is a constant of that type.
        let version = unsafe { *(version as *const u64) };
        return (version >> 24 == 3).then_some((version >> 16) as u8);
    }
    let has = |name: &CStr| module.function(name).is_some();
    if has(c"PyModule_AddObjectRef") {
        Some(10)
    } else if has(c"PyFrame_GetCode") {
        Some(9)
    } else {
        has(c"PyCode_NewWithPosOnlyArgs").then_some(8)
    }
}

/// The memory for the Python frames of one walk at a time. It is mapped at the first walk.
pub(crate) struct PythonWalk(*mut Buffers);

/// See [`PythonWalk`]. Zeros are a valid value.
struct Buffers {
    frames: [PythonFrame; MOST_PYTHON_FRAMES],
    words: [u64; MOST_CODE_WORDS],
    memory: CheckedMemory,
}

/// The Python frames of this thread, innermost first.
pub(crate) struct ThreadFrames<'a> {
    pub(crate) frames: &'a [PythonFrame],
    words: &'a mut [u64; MOST_CODE_WORDS],
    memory: &'a mut CheckedMemory,
    interpreter: &'static Interpreter,
}

impl PythonWalk {
    pub(crate) const fn new() -> PythonWalk {
        PythonWalk(std::ptr::null_mut())
    }

    /// Reads the innermost frames of this thread, at most so many. `None`: it is in no Python
    /// function, or they cannot be read, which is counted.
    #[cold]
    #[inline(never)]
    pub(crate) fn read(&mut self, most: usize) -> Option<ThreadFrames<'_>> {
        // SAFETY: null, or an interpreter that is never freed.
        let interpreter = unsafe { INTERPRETER.load(Ordering::Acquire).as_ref() }?;
        // SAFETY: the function of the interpreter, which takes nothing and returns a pointer. The
        // interpreter is loaded: before it is closed, it is forgotten.
        let state: extern "C" fn() -> *mut c_void =
            unsafe { std::mem::transmute(interpreter.state_of_thread) };
        let state = state() as u64;
        if state == 0 {
            return None;
        }
        let Buffers {
            frames,
            words,
            memory,
        } = self.buffers()?;
        memory.begin();
        let most = most.min(frames.len());
        #[allow(clippy::unnecessary_cast, reason = "a pointer in musl")]
        // SAFETY: returns this thread's number.
        let thread = unsafe { libc::pthread_self() } as u64;
        let read = python_frames(
            &interpreter.layout,
            memory,
            interpreter.code_type,
            state,
            thread,
            &mut frames[..most],
        );
        match read {
            Ok(0) | Err(PythonFault::OtherThread) => None,
            Ok(count) => {
                if FAULTS.load(Ordering::Relaxed) != 0 {
                    FAULTS.store(0, Ordering::Relaxed);
                }
                Some(ThreadFrames {
                    frames: &frames[..count],
                    words,
                    memory,
                    interpreter,
                })
            }
            Err(PythonFault::Unreadable | PythonFault::Odd) => {
                note_fault();
                None
            }
        }
    }

    fn buffers(&mut self) -> Option<&mut Buffers> {
        if self.0.is_null() {
            self.0 = sys::map_zeroed(size_of::<Buffers>())?.cast();
        }
        // SAFETY: a mapping of that size, page-aligned and zeroed, which only this value has. Zeros
        // are a valid value.
        unsafe { self.0.as_mut() }
    }
}

#[cfg(feature = "attach")]
impl Drop for PythonWalk {
    fn drop(&mut self) {
        if !self.0.is_null() {
            sys::unmap(self.0 as u64, size_of::<Buffers>());
        }
    }
}

impl ThreadFrames<'_> {
    /// Returns what the code object of a frame says of itself, in words for the writer. `None`: it
    /// cannot be read, which is counted.
    pub(crate) fn code_words(&mut self, frame: &PythonFrame) -> Option<&[u64]> {
        let layout = &self.interpreter.layout;
        match read_code(layout, self.memory, frame.code, self.words) {
            Some(len) => Some(&self.words[..len]),
            None => {
                note_fault();
                None
            }
        }
    }

    /// Returns the code of the interpreter's loop.
    pub(crate) fn eval(&self) -> Range<u64> {
        self.interpreter.eval.clone()
    }
}

/// Counts a read that failed. After too many in a row, no other is tried.
fn note_fault() {
    counters::LOST_PYTHON_FRAMES.add(1);
    if FAULTS.fetch_add(1, Ordering::Relaxed) >= MOST_FAULTS {
        IS_WANTED.store(false, Ordering::Relaxed);
        INTERPRETER.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Memory of this process, with the pages that were found readable. Zeros are a valid value.
struct CheckedMemory {
    pages: [u64; CHECKED_PAGES],
    /// How often the program had unmapped memory when the pages were checked.
    unmaps: u32,
}

/// Pages that are remembered: about as many as a deep walk reads.
const CHECKED_PAGES: usize = 256;

impl CheckedMemory {
    /// Begins a walk: forgets pages that may be unmapped by now.
    fn begin(&mut self) {
        let unmaps = UNMAPS.load(Ordering::SeqCst);
        if unmaps != self.unmaps || !SEES_UNMAPS.load(Ordering::Relaxed) {
            self.pages = [0; CHECKED_PAGES];
            self.unmaps = unmaps;
        }
    }

    fn is_readable(&mut self, page: u64) -> bool {
        // The first page of the address space is never readable, so 0 stands for no page.
        let known = &mut self.pages[(page / PAGE) as usize % CHECKED_PAGES];
        if *known != page || page == 0 {
            if !sys::is_readable(page) {
                return false;
            }
            *known = page;
        }
        true
    }
}

impl Memory for CheckedMemory {
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(into.len() as u64) else {
            return false;
        };
        let mut pages = (address & !(PAGE - 1)..end).step_by(PAGE as usize);
        if !pages.all(|page| self.is_readable(page)) {
            return false;
        }
        // SAFETY: all pages of the bytes have been readable; the module's text
        // describes the remaining risk. `into` is memory of ours, which none of the structures is
        // in.
        unsafe {
            std::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_across_pages_and_not_beyond_what_is_mapped() {
        let mut memory = CheckedMemory {
            pages: [0; CHECKED_PAGES],
            unmaps: 0,
        };
        let len = 2 * PAGE as usize;
        let mapped = sys::map_zeroed(len).unwrap();
        // SAFETY: a mapping of two pages that nothing else has.
        unsafe {
            mapped
                .byte_add(PAGE as usize - 2)
                .cast::<u32>()
                .write_unaligned(7)
        };
        let mut bytes = [0; 4];
        assert!(memory.read(mapped as u64 + PAGE - 2, &mut bytes));
        assert_eq!(u32::from_le_bytes(bytes), 7);
        assert!(!memory.read(8, &mut bytes));
        assert!(!memory.read(u64::MAX - 1, &mut bytes));
        assert!(!memory.read(0xdead_0000_0000_0000, &mut bytes));
    }

    #[test]
    fn a_program_without_python_has_no_interpreter() {
        assert!(find().is_none());
    }
}
