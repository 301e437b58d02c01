//! Tapped function: one whose calls come here first, and what is recorded of a call.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_core::{Sampler, Suspended};

use super::functions::Call;
use super::mapping_call;
use crate::allocator::Fit;
use crate::arch::tap_stubs::{Registers, call_moved, tap_entry_stub};
use crate::hooks::sample::{self, OldSample};
use crate::os::diagnostics;
use crate::recording::sampled_blocks::{self, TakenSample};
use crate::state::thread::{self, RunningCode, Thread};
use crate::unwind::modules;
use crate::unwind::walk::WalkStart;

/// The function that is called behind an announcement of the loader.
static WATCHER: OnceLock<fn()> = OnceLock::new();

/// Sets the function that is called when the loader announces a change of its list. The loader has
/// its lock.
#[cfg(feature = "attach")]
pub(super) fn watch_loader(watcher: fn()) {
    let _ = WATCHER.set(watcher);
}

/// A function that returns the usable bytes of a block.
pub(super) type UsableSize = unsafe extern "C" fn(*const c_void) -> usize;

/// A tapped function.
pub(super) struct FunctionTap {
    pub(super) call: Call,
    /// The allocator's own. `None`: none was found.
    pub(super) usable: Option<UsableSize>,
    /// The address of the function.
    pub(super) entry: u64,
    /// The address of its moved instructions, which is that of the function as it was.
    pub(super) moved: u64,
    /// The code of the function's module.
    pub(super) code: Range<u64>,
}

impl FunctionTap {
    /// Calls the function. Blocks that are allocated in the call are not recorded, and lay nothing
    /// on the thread's allocation axis: by their checks they would lay the caller's bytes once
    /// more.
    fn call(&self, registers: &Registers) -> usize {
        let _within = CallScope::enter();
        // SAFETY: the moved instructions, which continue as the function does. The registers are
        // those of the program's call.
        unsafe { call_moved(registers, self.moved) }
    }
}

/// The time of a call of the allocator. It ends by an exception, too (`bad_alloc`).
pub(super) struct CallScope<'a> {
    thread: &'a Thread,
    outer_code: RunningCode,
    suspended: Option<Suspended>,
}

impl CallScope<'_> {
    pub(super) fn enter() -> Self {
        let thread = thread::current();
        CallScope {
            thread,
            outer_code: thread.running_code.replace(RunningCode::Ours),
            suspended: Some(thread.with_sampler(Sampler::suspend)),
        }
    }
}

impl Drop for CallScope<'_> {
    fn drop(&mut self) {
        if let Some(suspended) = self.suspended.take() {
            self.thread.with_sampler(|line| line.resume(suspended));
        }
        self.thread.running_code.set(self.outer_code);
    }
}

tap_entry_stub! {
    /// Where a call leads of which nothing is decided.
    pub(super) fn undecided_stub => tapped
}

tap_entry_stub! {
    /// Where an allocation leads that has advanced the sampler, and expired its countdown.
    pub(super) fn due_stub => allocation_is_due
}

/// A call for which the countdown has expired. If it ends by an exception, its bytes are taken from
/// the thread's allocation axis again.
struct UnfinishedCall<'a> {
    tap: &'a FunctionTap,
    size: usize,
    here: WalkStart,
}

impl Drop for UnfinishedCall<'_> {
    fn drop(&mut self) {
        let nothing = std::ptr::null_mut();
        sample::on_allocation(
            self.tap.pc(),
            nothing,
            self.size,
            Fit::reported(0),
            self.here,
        );
    }
}

/// Serves an allocation for which the countdown has expired.
unsafe extern "C-unwind" fn allocation_is_due(
    registers: &Registers,
    tap: &FunctionTap,
    sp: *const u64,
    bp: u64,
) -> usize {
    // SAFETY: the registers at the function's entry, whose caller is the program.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let argument = |number| registers.argument(number);
    let (size, place) = match tap.call {
        Call::AllocateArray { count, size } => {
            (argument(count).saturating_mul(argument(size)), None)
        }
        Call::Allocate { size } | Call::Resize { size, .. } => (argument(size), None),
        Call::AllocateInto { place, size } => (argument(size), Some(argument(place))),
        _ => (0, None), // no other function has such a check
    };
    let unfinished = UnfinishedCall { tap, size, here };
    let answer = tap.call(registers);
    std::mem::forget(unfinished);
    let block = match place {
        None => answer,
        // SAFETY: the function has just stored a block there.
        Some(place) if answer as u32 == 0 => unsafe { (place as *const usize).read() },
        Some(_) => 0,
    };
    // The old block of a resize is not sampled: the check has asked the Bloom filter.
    let fit = tap.fit(block, size);
    end_unseen(block);
    sample::on_allocation(tap.pc(), block as *mut c_void, size, fit, here);
    answer
}

/// Serves a call of a tapped function. `sp` and `bp` are the registers at its entry.
unsafe extern "C-unwind" fn tapped(
    registers: &Registers,
    tap: &FunctionTap,
    sp: *const u64,
    bp: u64,
) -> usize {
    // SAFETY: the registers at the function's entry, whose caller is the program.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let argument = |number| registers.argument(number);
    let product = |count, size| argument(count).saturating_mul(argument(size));
    match tap.call {
        Call::Allocate { size } => {
            let block = tap.call(registers);
            tap.record(block, argument(size), here);
            block
        }
        Call::AllocateArray { count, size } => {
            let block = tap.call(registers);
            tap.record(block, product(count, size), here);
            block
        }
        Call::AllocateInto { place, size } => {
            let answer = tap.call(registers);
            if answer as u32 == 0 {
                let place = argument(place) as *const usize;
                // SAFETY: the function has just stored a block there.
                tap.record(unsafe { place.read() }, argument(size), here);
            }
            answer
        }
        Call::AllocateString => {
            let block = tap.call(registers);
            tap.record_string(block, here);
            block
        }
        Call::AllocateStringUnless { buffer } => {
            let block = tap.call(registers);
            if argument(buffer) == 0 {
                tap.record_string(block, here);
            }
            block
        }
        Call::Resize { ptr, size } => tap.resize(registers, argument(ptr), argument(size), here),
        Call::ResizeArray { ptr, count, size } => {
            tap.resize(registers, argument(ptr), product(count, size), here)
        }
        Call::ResizeStored { place, count, size } => {
            let place = argument(place) as *const usize;
            if place.is_null() {
                return tap.call(registers);
            }
            // SAFETY: the address of a block, or null, as the function requires.
            let old = unsafe { place.read() };
            let taken = taken(old);
            let answer = tap.call(registers);
            let new = match answer as u32 {
                // SAFETY: as above.
                0 => unsafe { place.read() },
                _ => 0,
            };
            tap.resized(taken, new, product(count, size), here);
            answer
        }
        Call::ResizeInPlace { ptr, size } => {
            let usable = tap.call(registers);
            if usable >= argument(size) {
                end_sample(argument(ptr));
                tap.record(argument(ptr), argument(size), here);
            }
            usable
        }
        Call::Free { ptr } => {
            end_sample(argument(ptr));
            tap.call(registers)
        }
        Call::Unload => {
            // Blocks that destructors of the library allocate are the program's.
            // SAFETY: as in `FunctionTap::call`.
            let answer = unsafe { call_moved(registers, tap.moved) };
            modules::note_dlclose();
            answer
        }
        Call::Mapping(call) => {
            // SAFETY: as in `FunctionTap::call`.
            let proceed = || unsafe { call_moved(registers, tap.moved) };
            match tap.code.contains(&here.address()) {
                true => proceed(),
                false => mapping_call::serve(call, tap.pc(), registers, here, proceed),
            }
        }
        Call::Announce => {
            // SAFETY: as in `FunctionTap::call`. The function does nothing.
            let answer = unsafe { call_moved(registers, tap.moved) };
            if let Some(watcher) = WATCHER.get() {
                watcher();
            }
            answer
        }
        Call::AllocateStringInto { place } => {
            let answer = tap.call(registers);
            if answer as u32 == 0 {
                let place = argument(place) as *const usize;
                // SAFETY: the function has just stored null or a block there.
                tap.record_string(unsafe { place.read() }, here);
            }
            answer
        }
        Call::AllocateWithin { function, buffer } => {
            let position = || thread::current().with_sampler(|line| line.position());
            let before = position();
            // SAFETY: as in `FunctionTap::call`. The function's own calls are recorded.
            let block = unsafe { call_moved(registers, tap.moved) };
            let is_new = block != 0 && buffer.is_none_or(|buffer| argument(buffer) == 0);
            if is_new && !is_nested() && position() == before {
                note_unseen_blocks(function);
            }
            block
        }
        Call::FreeUnseen { function } => {
            note_unseen_frees(function);
            tap.call(registers)
        }
        Call::Control { name } => {
            let name = argument(name) as *const c_char;
            if !name.is_null() {
                // SAFETY: a C string, as the function requires.
                let name = unsafe { CStr::from_ptr(name) };
                let is_of_arena = name.to_bytes().starts_with(b"arena.");
                let ends = [&b".destroy"[..], b".reset"];
                if is_of_arena && ends.iter().any(|end| name.to_bytes().ends_with(end)) {
                    note_unseen_frees(name);
                }
            }
            tap.call(registers)
        }
    }
}

/// Tells once that blocks are allocated whose sizes only the allocator knows.
#[cold]
fn note_unseen_blocks(function: &CStr) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        diagnostics::put_notice(format_args!(
            "blocks of {} are not recorded: their sizes are not known here",
            function.to_string_lossy()
        ));
    }
}

/// True after blocks were freed which no table knows by their allocator.
static HAS_UNSEEN_FREES: AtomicBool = AtomicBool::new(false);

/// Tells once that blocks are freed which no table knows by their allocator.
#[cold]
fn note_unseen_frees(function: &CStr) {
    if !HAS_UNSEEN_FREES.swap(true, Ordering::Relaxed) {
        diagnostics::put_notice(format_args!(
            "{} frees blocks at once, which are not known here: they are shown as in use, until a sampled block has the same address",
            function.to_string_lossy()
        ));
    }
}

/// Before a new block is recorded: records the end of an earlier one at that address, whose end was
/// not seen.
fn end_unseen(block: usize) {
    if HAS_UNSEEN_FREES.load(Ordering::Relaxed) {
        end_sample(block);
    }
}

/// Records the end of the sample at that address, if there is one.
fn end_sample(address: usize) {
    let ptr = address as *mut c_void;
    if sampled_blocks::may_be_sampled(ptr) {
        sample::on_free(ptr);
    }
}

impl FunctionTap {
    /// Returns a PC in the function.
    fn pc(&self) -> u64 {
        self.entry + 1
    }

    /// Returns the usable bytes of a new block, or its size if they are not known. An allocator may
    /// allocate for that (tcmalloc does).
    fn fit(&self, block: usize, size: usize) -> Fit {
        let usable = match self.usable {
            Some(usable) if block != 0 => {
                let _within = CallScope::enter();
                // SAFETY: a block that this allocator has just returned, which nobody else has yet.
                unsafe { usable(block as *const c_void) }
            }
            _ => size,
        };
        Fit::reported(usable)
    }

    /// Records a new block, if it is sampled.
    #[inline(always)]
    fn record(&self, block: usize, size: usize, here: WalkStart) {
        if block == 0 || is_nested() || sample::passes(size) {
            return;
        }
        let (ptr, fit) = (block as *mut c_void, self.fit(block, size));
        end_unseen(block);
        sample::on_allocation(self.pc(), ptr, size, fit, here);
    }

    /// Records a new block with a C string that fills it, if it is sampled.
    fn record_string(&self, block: usize, here: WalkStart) {
        if block != 0 {
            // SAFETY: the string that the function has returned.
            let text = unsafe { CStr::from_ptr(block as *const c_char) };
            self.record(block, text.count_bytes() + 1, here);
        }
    }

    /// Resizes a block. Law 3: take the old sample, call, and on failure put it back.
    fn resize(&self, registers: &Registers, old: usize, size: usize, here: WalkStart) -> usize {
        let taken = taken(old);
        let new = self.call(registers);
        self.resized(taken, new, size, here);
        new
    }

    /// Records the result of a call that has resized a block. `taken` is the old block's sample,
    /// and `new` is 0 after a failure.
    fn resized(&self, taken: Option<TakenSample>, new: usize, size: usize, here: WalkStart) {
        if new == 0 && size != 0 {
            if let Some(taken) = taken {
                taken.put_back();
            }
            return;
        }
        let old = taken.map_or(OldSample::None, OldSample::Taken);
        let ptr = new as *mut c_void;
        if new == 0 || is_nested() || sample::passes(size) {
            old.end(ptr);
        } else {
            let fit = self.fit(new, size);
            sample::on_reallocation(self.pc(), ptr, size, fit, here, old);
        }
    }
}

/// Takes the sample at that address out of the table, if there is one.
fn taken(address: usize) -> Option<TakenSample> {
    let ptr = address as *mut c_void;
    match sampled_blocks::may_be_sampled(ptr) {
        true => sampled_blocks::take(ptr),
        false => None,
    }
}

/// Returns true if this call is part of another one, which is recorded, or is this library's own. A
/// signal handler inside of a hook is neither: its allocation is counted as lost.
fn is_nested() -> bool {
    thread::current().running_code.get() == RunningCode::Ours
}
