//! Thread creation: the function by which the program makes threads.
//!
//! libc maps the stack of a new thread by a call of its own, which no export sees. So the call of
//! this function stands for that mapping: its stack is recorded with the thread's descriptor. The
//! writer finds in the descriptor where the thread's stack lies. If the program provides the memory
//! of a stack, that memory is among its mappings already.
//!
//! Danger: the C boundary. The new thread may free the memory that holds its own number, before
//! this function returns. So the number is loaded only from the caller's own stack, and read by the
//! kernel from anywhere else.

use std::ffi::{c_int, c_void};

use crate::arch::entry_stubs::with_caller;
use crate::hooks::entry::wrapped_entry;
use crate::hooks::mapping_changes;
use crate::os::errno;
use crate::os::next_symbol::NextSymbol;
use crate::os::thread_shims;
use crate::state::thread::{self, RunningCode};
use crate::unwind::checked_read::Memory;
use crate::unwind::walk::WalkStart;

static NEXT: NextSymbol = NextSymbol::new(c"pthread_create");

/// Finds the next definition, at boot.
pub(crate) fn prepare() {
    let _ = NEXT.address();
}

with_caller! {
    /// Makes a thread, as pthread_create(3).
    ///
    /// # Safety
    /// As pthread_create(3).
    #[unsafe(no_mangle)]
    pthread_create(
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t,
        start: *mut c_void, argument: *mut c_void
    ) -> c_int => pthread_create_called_from
}

unsafe extern "C-unwind" fn pthread_create_called_from(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: *mut c_void,
    argument: *mut c_void,
    sp: *const u64,
    bp: u64,
) -> c_int {
    type Create = unsafe extern "C-unwind" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    let is_ours = thread::current().running_code.get() == RunningCode::Ours;
    let real = match is_ours {
        true => thread_shims::PTHREAD_CREATE.address(),
        false => NEXT.address().map(|address| address as usize),
    };
    let Some(real) = real else {
        return libc::EAGAIN;
    };
    // SAFETY: the function of that name, which has this type.
    let create: Create = unsafe { std::mem::transmute(real) };
    // The caller may destroy them, or the new thread may.
    // SAFETY: the caller's promise.
    let is_of_program = mapping_changes::are_recorded() && unsafe { has_own_stack(attributes) };
    // SAFETY: the caller's promise.
    let error = unsafe { create(thread, attributes, start, argument) };
    if error == 0 && mapping_changes::are_recorded() && !is_of_program && !is_ours {
        let descriptor = errno::preserve(|| descriptor_at(thread));
        if let Some(descriptor) = descriptor {
            // SAFETY: the first half passed its own registers.
            let here = unsafe { WalkStart::caller(sp, bp) };
            let entry = wrapped_entry!("__real_pthread_create");
            mapping_changes::on_thread_made(entry, descriptor, here);
        }
    }
    error
}

/// Returns true if the attributes name the memory of the stack.
///
/// # Safety
/// `attributes` is null or initialized.
unsafe fn has_own_stack(attributes: *const libc::pthread_attr_t) -> bool {
    let (mut low, mut bytes) = (std::ptr::null_mut::<c_void>(), 0);
    if attributes.is_null() {
        return false;
    }
    // SAFETY: the caller's promise, and two places.
    let error = unsafe { libc::pthread_attr_getstack(attributes, &raw mut low, &raw mut bytes) };
    // Without a stack, musl refuses, and glibc tells one that ends at null.
    error == 0 && low.addr().wrapping_add(bytes) != 0
}

/// Returns the descriptor of the thread whose number (in musl, a pointer) lies there.
fn descriptor_at(thread: *const libc::pthread_t) -> Option<u64> {
    let known = thread::current();
    if (known.stack_low.get()..known.stack_high.get()).contains(&(thread.addr() as u64)) {
        // SAFETY: the memory is a part of the stack in use of this thread, which is never unmapped.
        // libc has stored the number there.
        return Some(unsafe { thread.cast::<u64>().read() });
    }
    let mut word = [0; size_of::<u64>()];
    let is_read = Memory::open().fill_without_load(thread.addr() as u64, &mut word);
    is_read.then(|| u64::from_ne_bytes(word))
}
