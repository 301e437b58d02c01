//! heapprof.rs: labels and markers for a Rust program that may run under the heap profiler.
//!
//! A copy of this file is a module of the program; it needs no crate. Without `libheapprof.so` all
//! calls do nothing. `heapprof.h` describes what the functions do.
//!
//! ```ignore
//! mod heapprof;
//!
//! fn serve(request: &Request) {
//!     let _label = heapprof::label(c"path", request.route());
//!     // what this thread allocates here is under the label
//! }
//! ```
//!
//! In asynchronous code a task may go on in another thread, and a thread may run another task. So a
//! label is set whenever a task is polled, and not around an `await`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A function of the library, found by its name at the first call.
struct Function {
    name: &'static CStr,
    /// Null: not looked for yet. [`MISSING`]: the library is not there.
    address: AtomicPtr<c_void>,
}

const MISSING: *mut c_void = std::ptr::dangling_mut::<u8>().cast();

impl Function {
    const fn new(name: &'static CStr) -> Function {
        Function {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn address(&self) -> Option<*mut c_void> {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            // SAFETY: a null handle is `RTLD_DEFAULT`: all libraries of the program.
            address = unsafe { dlsym(std::ptr::null_mut(), self.name.as_ptr()) };
            if address.is_null() {
                address = MISSING;
            }
            self.address.store(address, Ordering::Relaxed);
        }
        (address != MISSING).then_some(address)
    }
}

static PUSH: Function = Function::new(c"heapprof_label_push");
static POP: Function = Function::new(c"heapprof_label_pop");
static MARK: Function = Function::new(c"heapprof_mark");

/// A label of this thread. It ends when this value is dropped; later labels must end before.
#[must_use = "the label ends when this value is dropped"]
pub struct Label {
    is_pushed: bool,
    /// It belongs to one thread.
    _thread: PhantomData<*const ()>,
}

/// Puts a label on what this thread does until the returned value is dropped.
pub fn label(key: &CStr, value: &CStr) -> Label {
    let push = PUSH.address();
    if let Some(push) = push {
        type Push = unsafe extern "C-unwind" fn(*const c_char, *const c_char);
        // SAFETY: the library's function of that name has this type, and copies the texts.
        unsafe { std::mem::transmute::<*mut c_void, Push>(push)(key.as_ptr(), value.as_ptr()) };
    }
    Label {
        is_pushed: push.is_some(),
        _thread: PhantomData,
    }
}

impl Drop for Label {
    fn drop(&mut self) {
        if let Some(pop) = POP.address().filter(|_| self.is_pushed) {
            // SAFETY: the library's function of that name has this type.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn()>(pop)() };
        }
    }
}

/// Names this moment in the log. Returns false without the library, or if it could not be recorded.
#[allow(dead_code)]
pub fn mark(name: &CStr) -> bool {
    MARK.address().is_some_and(|mark| {
        type Mark = unsafe extern "C-unwind" fn(*const c_char) -> c_int;
        // SAFETY: the library's function of that name has this type, and copies the text.
        unsafe { std::mem::transmute::<*mut c_void, Mark>(mark)(name.as_ptr()) == 0 }
    })
}
