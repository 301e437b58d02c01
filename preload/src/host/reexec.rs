//! Again, without us: a program that dies under any other allocator than its own is started anew.
//!
//! Danger: the program becomes itself once more, before anything of its own has run. ThreadSanitizer's runtime wants to be the
//! allocator; under a preloaded one it deadlocks or crashes in its own beginning, whatever that one does. So our name is
//! taken out of `LD_PRELOAD`, and the same file is executed with the same arguments: the process stays the same, and what it
//! inherited stays open.
//!
//! Nothing here calls a function of libc's: the runtime has its own in their places, which are not ready. That is why bytes
//! are read one by one, and as volatile ones, lest the compiler make calls of the loops.

use std::ffi::c_char;

use crate::os::sys;

/// How the file is called.
const NAME: &[u8] = b"libheapprof.so";
const VARIABLE: &[u8] = b"LD_PRELOAD=";

/// Executes the program anew, if it was we who were preloaded by the environment; otherwise returns.
///
/// # Safety
/// The arrays of arguments and variables that the kernel gave the program, before its first thread.
pub(crate) unsafe fn without_us(
    arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // SAFETY: the caller's promise: an array that ends with a null, of C strings that are the process's to change.
    unsafe {
        let mut entry = environment;
        while !entry.is_null() && !entry.read_volatile().is_null() {
            let value = after_name(entry.read_volatile().cast_mut().cast());
            if !value.is_null() && take_out(value) {
                let mut path = [0u8; libc::PATH_MAX as usize];
                if sys::read_own_path(&mut path) {
                    let _ = sys::execve(&path, arguments, environment);
                }
                return;
            }
            entry = entry.add(1);
        }
    }
}

/// Where the value begins, if that is the variable; otherwise null.
///
/// # Safety
/// A C string.
unsafe fn after_name(entry: *mut u8) -> *mut u8 {
    for (i, &byte) in VARIABLE.iter().enumerate() {
        // SAFETY: all bytes before this one were those of the name, so the string has not ended.
        if unsafe { entry.add(i).read_volatile() } != byte {
            return std::ptr::null_mut();
        }
    }
    // SAFETY: as above.
    unsafe { entry.add(VARIABLE.len()) }
}

/// Takes every file of our name out of a list (separated by colons or spaces, ld.so(8)). False: there is none.
///
/// # Safety
/// A C string that may be changed.
unsafe fn take_out(list: *mut u8) -> bool {
    let (mut from, mut to, mut begin, mut found) = (0, 0, 0, false);
    loop {
        // SAFETY: up to the closing zero, behind which nothing is read; `to` is never ahead of `from`.
        unsafe {
            let byte = list.add(from).read_volatile();
            list.add(to).write_volatile(byte);
            from += 1;
            to += 1;
            if matches!(byte, b':' | b' ' | 0) {
                if ends_with_name(list, begin, to - 1) {
                    found = true;
                    to = begin;
                    list.add(to).write_volatile(0);
                }
                begin = to;
            }
            if byte == 0 {
                return found;
            }
        }
    }
}

/// Whether the bytes from `begin` to `end` are a path whose last part is our name.
///
/// # Safety
/// Bytes that may be read.
unsafe fn ends_with_name(list: *const u8, begin: usize, end: usize) -> bool {
    if end - begin < NAME.len() {
        return false;
    }
    let start = end - NAME.len();
    for (i, &byte) in NAME.iter().enumerate() {
        // SAFETY: the caller's promise.
        if unsafe { list.add(start + i).read_volatile() } != byte {
            return false;
        }
    }
    // SAFETY: as above.
    start == begin || unsafe { list.add(start - 1).read_volatile() } == b'/'
}
