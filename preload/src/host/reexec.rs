//! Re-execution: restarts a program without us, if it crashes under any allocator but its own.
//!
//! Danger: the program is executed again, before any of its own code has run. ThreadSanitizer's
//! runtime must be the allocator. Under a preloaded allocator it deadlocks or crashes during its
//! start. So our name is removed from `LD_PRELOAD`, and the same file is executed with the same
//! arguments. The process stays the same, and inherited descriptors stay open.
//!
//! Nothing here calls a function of libc: the runtime intercepts libc's functions, and is not
//! ready. So bytes are read one by one, and as volatile ones, or the compiler would turn the loops
//! into calls.

use std::ffi::c_char;

use crate::os::sys;

/// The name of our file.
const OUR_NAME: &[u8] = b"libheapprof.so";
const VARIABLE: &[u8] = b"LD_PRELOAD=";

/// Executes the program again if the environment preloaded us; otherwise returns.
///
/// # Safety
/// The arrays of arguments and variables that the kernel gave the program, before its first thread.
pub(crate) unsafe fn exec_without_us(
    arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // SAFETY: the caller's promise: an array that ends with a null, of C strings that are the
    // process's to change.
    unsafe {
        let mut entry = environment;
        while !entry.is_null() && !entry.read_volatile().is_null() {
            let value = value_of_variable(entry.read_volatile().cast_mut().cast());
            if !value.is_null() && remove_name(value) {
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

/// Returns where the value begins, if `entry` is the variable; otherwise null.
///
/// # Safety
/// A C string.
unsafe fn value_of_variable(entry: *mut u8) -> *mut u8 {
    for (i, &byte) in VARIABLE.iter().enumerate() {
        // SAFETY: all bytes before this one were those of the name, so the string has not ended.
        if unsafe { entry.add(i).read_volatile() } != byte {
            return std::ptr::null_mut();
        }
    }
    // SAFETY: as above.
    unsafe { entry.add(VARIABLE.len()) }
}

/// Removes every file of our name from a list (separated by colons or spaces, ld.so(8)). False:
/// there is none.
///
/// # Safety
/// A C string that may be changed.
unsafe fn remove_name(list: *mut u8) -> bool {
    let (mut from, mut to, mut begin, mut found) = (0, 0, 0, false);
    loop {
        // SAFETY: up to the closing zero, behind which nothing is read; `to` is never ahead of
        // `from`.
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

/// Returns true if the bytes from `begin` to `end` are a path whose last part is our name.
///
/// # Safety
/// Bytes that may be read.
unsafe fn ends_with_name(list: *const u8, begin: usize, end: usize) -> bool {
    if end - begin < OUR_NAME.len() {
        return false;
    }
    let start = end - OUR_NAME.len();
    for (i, &byte) in OUR_NAME.iter().enumerate() {
        // SAFETY: the caller's promise.
        if unsafe { list.add(start + i).read_volatile() } != byte {
            return false;
        }
    }
    // SAFETY: as above.
    start == begin || unsafe { list.add(start - 1).read_volatile() } == b'/'
}
