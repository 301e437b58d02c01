//! Known code: the addresses at which a walk ends, or goes on in another way.
//!
//! They are found at boot, and do not change.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arch::signal_frame;
use crate::os::{libc_trampolines, link_map, sys};
use crate::unwind::modules;

/// Address of libc's signal return trampoline, to which handlers return.
static SIGNAL_RETURN: AtomicU64 = AtomicU64::new(0);
/// Return address of functions that run in a context of `makecontext`: the root of such a stack. It
/// is the first address of a function, so no unwind table covers the address before it.
static CONTEXT_ROOT: AtomicU64 = AtomicU64::new(0);
/// The loader's code. Its entry has no unwind table. A walk that ends there has reached the root,
/// in a thread that still runs constructors.
static LOADER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The code of libc's `dl_iterate_phdr`, which calls the program's code while it holds a lock of
/// the loader.
static DL_ITERATE_PHDR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Our own code, whose frames are not recorded.
static OWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Returns the range of our own code.
#[inline(always)]
pub(super) fn own() -> Range<u64> {
    range_of(&OWN)
}

/// Returns the range of the loader's code.
#[inline(always)]
pub(super) fn loader() -> Range<u64> {
    range_of(&LOADER)
}

/// Returns the range of `dl_iterate_phdr`.
#[inline(always)]
pub(super) fn dl_iterate_phdr() -> Range<u64> {
    range_of(&DL_ITERATE_PHDR)
}

/// Returns the address of the signal return trampoline; 0: it is not known.
#[inline(always)]
pub(super) fn signal_return() -> u64 {
    SIGNAL_RETURN.load(Ordering::Relaxed)
}

/// Returns the root of contexts; 0: it is not known.
#[inline(always)]
pub(super) fn context_root() -> u64 {
    CONTEXT_ROOT.load(Ordering::Relaxed)
}

#[inline(always)]
fn range_of(words: &[AtomicU64; 2]) -> Range<u64> {
    words[0].load(Ordering::Relaxed)..words[1].load(Ordering::Relaxed)
}

/// At boot: finds all of it.
pub(super) fn prepare() {
    // SAFETY: no thread replaces a snapshot at boot.
    let snapshot = unsafe { modules::current().as_ref() };
    if let Some(own) = snapshot.and_then(|s| s.find(prepare as *const () as u64)) {
        OWN[0].store(own.range.start, Ordering::Relaxed);
        OWN[1].store(own.range.end, Ordering::Relaxed);
    }
    // SAFETY: reads a number of the auxiliary vector.
    let loader = match unsafe { libc::getauxval(libc::AT_BASE) } {
        0 => link_map::start_of_loader(), // the loader was asked to run the program
        base => base,
    };
    if let Some(loader) = snapshot.and_then(|s| s.find(loader)) {
        LOADER[0].store(loader.range.start, Ordering::Relaxed);
        LOADER[1].store(loader.range.end, Ordering::Relaxed);
    }
    if let Some(code) = libc_trampolines::code_in_libc(c"dl_iterate_phdr") {
        DL_ITERATE_PHDR[0].store(code.start as u64, Ordering::Relaxed);
        DL_ITERATE_PHDR[1].store(code.end as u64, Ordering::Relaxed);
    }
    SIGNAL_RETURN.store(find_signal_return().unwrap_or(0), Ordering::Relaxed);
    CONTEXT_ROOT.store(find_context_root().unwrap_or(0), Ordering::Relaxed);
}

/// Returns the root of contexts, from a context that is made and never entered.
#[cold]
#[inline(never)]
fn find_context_root() -> Option<u64> {
    extern "C" fn nobody() {}
    let code = libc_trampolines::code_in_libc(c"makecontext")?;
    // SAFETY: libc's own function, which has this type.
    let makecontext: unsafe extern "C" fn(*mut libc::ucontext_t, extern "C" fn(), i32, ...) =
        unsafe { std::mem::transmute(code.start) };
    let mut stack = [0_u64; 32];
    // SAFETY: numbers and null pointers; the context is not entered.
    let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
    context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
    context.uc_stack.ss_size = size_of_val(&stack);
    // SAFETY: a context and a stack of our own. The call writes to the stack's last three words.
    unsafe { makecontext(&raw mut context, nobody, 0) };
    let top = signal_frame::stack_pointer_of(&context) as usize;
    let word = top.checked_sub(stack.as_ptr() as usize)? / 8;
    std::hint::black_box(&stack).get(word).copied()
}

/// Returns the signal return trampoline. glibc passes its address to the kernel with every
/// sigaction, even one that changes nothing. So this sets a signal's present disposition again, and
/// reads the kernel's copy. There is no other way to find the trampoline: it has no symbol, and
/// framehop cannot use its unwind table. Finally the kernel's copy is restored, because programs
/// would see an additional flag.
fn find_signal_return() -> Option<u64> {
    let signal = libc::SIGRTMAX();
    let before = sys::sigaction_of(signal)?;
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: at boot, before the program's first thread. Reads the disposition of an unused signal
    // into our own struct, and sets it to the same value.
    unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return None;
        }
        libc::sigaction(signal, action.as_ptr(), std::ptr::null_mut());
    }
    let told = sys::sigaction_of(signal);
    // SAFETY: the action was read above, at boot, when no other thread exists.
    unsafe { sys::restore_sigaction(signal, &before) };
    told.map(|action| action.restorer)
        .filter(|&restorer| restorer != 0)
}
