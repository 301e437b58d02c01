//! Thread stacks: where the stacks of all threads of this process lie.
//!
//! Danger: the memory of other threads, which may end meanwhile. It is read by the kernel
//! (`checked_read`), and what is found there is checked.
//!
//! The kernel tells for each thread the address of its list of robust mutexes. glibc keeps the list
//! in the thread's descriptor, at the same place in all threads, and the descriptor has the words
//! of the stack's memory (`stack_bounds`). A thread that libc has not made has no such list. musl
//! sets the list of a thread when it is first needed, so only the main thread's stack is known.
//!
//! The main thread's stack ends behind the path of the program, which the kernel puts there.

use std::ffi::CStr;
use std::ops::Range;

use crate::arch::registers::thread_pointer;
use crate::os::seccomp::AvoidableCall;
use crate::os::sys::{self, PAGE};
use crate::unwind::checked_read::Memory;
use crate::unwind::stack_bounds;

/// Most threads whose stacks are looked up.
const MOST_THREADS: usize = 512;

/// Passes the stack of each thread but the main one to `visit`, with the kernel's id of the thread,
/// as far as they are known. Returns true if all are known.
pub(crate) fn each(visit: &mut dyn FnMut(u32, Range<u64>)) -> bool {
    if !AvoidableCall::MemoryQuery.is_allowed() {
        return false;
    }
    let Some(list_at) = sys::robust_list(0).map(|list| list.wrapping_sub(thread_pointer())) else {
        return false;
    };
    let Some(block_at) = stack_bounds::block_of_descriptor() else {
        return false;
    };
    let memory = Memory::open();
    let (mut left, mut all_are_known) = (MOST_THREADS, true);
    let look_at = |tid: u32| {
        let descriptor = sys::robust_list(tid)?.wrapping_sub(list_at);
        in_descriptor(&memory, descriptor, block_at)
    };
    sys::list_threads(&mut |name| {
        let tid = std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse().ok());
        if let Some(tid) = tid.filter(|&tid| tid != sys::getpid()) {
            let stack = (left > 0).then(|| look_at(tid)).flatten();
            left = left.saturating_sub(1);
            match stack {
                Some(stack) => visit(tid, stack),
                // A thread that has not run yet has no list either.
                None => all_are_known = false,
            }
        }
    });
    all_are_known
}

/// Returns the stack of the thread with that descriptor. The thread may have ended: libc keeps the
/// descriptor with the stack for another thread, or unmaps both.
pub(crate) fn of_descriptor(descriptor: u64) -> Option<Range<u64>> {
    in_descriptor(
        &Memory::open(),
        descriptor,
        stack_bounds::block_of_descriptor()?,
    )
}

fn in_descriptor(memory: &Memory, descriptor: u64, block_at: u64) -> Option<Range<u64>> {
    let mut words = [0; 16];
    // Without a load: the thread may end at any time.
    if !memory.fill_without_load(descriptor.wrapping_add(block_at), &mut words) {
        return None;
    }
    let (start, len) = words.split_first_chunk::<8>()?;
    let (start, len) = (
        u64::from_ne_bytes(*start),
        u64::from_ne_bytes(len.try_into().ok()?),
    );
    let end = start.checked_add(len)?;
    let is_whole_pages = start % PAGE == 0 && len % PAGE == 0;
    (is_whole_pages && (start..end).contains(&descriptor)).then_some(start..end)
}

/// Returns the main thread's stack, which has that many bytes now.
pub(crate) fn of_main(bytes: u64) -> Option<Range<u64>> {
    // SAFETY: reads a number of the auxiliary vector.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) };
    if path == 0 {
        return None;
    }
    // SAFETY: the kernel puts the path there, a C string that is never unmapped. A program may
    // write there, but the zero word at the stack's end stays.
    let path_len = unsafe { CStr::from_ptr(path as *const libc::c_char) }.count_bytes() as u64;
    let end = (path + path_len + 1).next_multiple_of(PAGE);
    Some(end.checked_sub(bytes)?..end)
}
