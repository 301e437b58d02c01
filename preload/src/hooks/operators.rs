//! C++'s replaceable operators: `operator new`, `operator delete` and their forms, twenty names.
//!
//! Danger: the C++ ABI, in assembly. libstdc++'s own would do: they call `malloc` and `free`. But another allocator
//! that a program is linked with (libjemalloc, libtcmalloc) defines them as well, and its `operator new` never comes to
//! our `malloc` while its `operator delete` may come to our `free`. So they are defined here, as they are there.
//!
//! What is hard in them is left to the C++ library's own (`elsewhere`), with the arguments as they came: the
//! new-handler, `bad_alloc`, what a handler throws in a form that must not throw. It asks our `malloc` once more, and
//! goes on as the standard says. That is also what happens, with every call, in a program whose operators
//! are not ours to serve (`decide`): it replaces some of them, and the others must lead to those; or its `malloc` is not
//! ours. For such a program nothing is different from what it is without us.
//!
//! An exception passes through here on its way: `C-unwind`, nothing to drop, and tables that say where the caller is.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::allocator::{self, Fit};
use crate::arch::entry_stubs::with_caller;
use crate::hooks::malloc_fast::free;
use crate::hooks::{aligned, early_heap, malloc, sample};
use crate::os::{diagnostics, dl, link_map};
use crate::state::thread::{self, Inside};
use crate::unwind::walk::Here;

/// Whether the operators are ours to serve: one of these.
static SERVING: AtomicU8 = AtomicU8::new(NOT_DECIDED);
const NOT_DECIDED: u8 = 0;
const OURS: u8 = 1;
const ELSEWHERE: u8 = 2;

/// One of the operators.
struct Operator {
    name: &'static CStr,
    /// Ours.
    address: *const c_void,
    /// The definition that serves when ours does not, once it is known.
    elsewhere: AtomicPtr<c_void>,
}

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Operator {}

/// Three arguments are the most that any form has; those of a form that has fewer are whatever the registers held.
type Form = unsafe extern "C-unwind" fn(usize, usize, usize) -> *mut c_void;

macro_rules! operators {
    ($($index:literal $kind:ident $function:ident $name:literal;)*) => {
        static OPERATORS: [Operator; 20] = [$(Operator {
            name: {
                match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    // While compiling: this initialises a static.
                    Err(_) => panic!("a name without zeros"),
                }
            },
            address: $function as *const c_void,
            elsewhere: AtomicPtr::new(null_mut()),
        }),*];
        $($kind! { $index $function $name })*
    };
}

/// `operator new` of a size.
macro_rules! new {
    ($index:literal $function:ident $name:literal) => {
        with_caller! {
            /// A block of that many bytes, or what the C++ library makes of there being none.
            ///
            /// # Safety
            /// As the operator of that name; so for all functions here.
            #[unsafe(export_name = $name)]
            $function(size: usize, tag: usize) -> *mut c_void;
            "rdx", "rcx", "r8d" = $index => new_called_from
        }
    };
}

/// `operator new` of a size and an alignment.
macro_rules! new_aligned {
    ($index:literal $function:ident $name:literal) => {
        with_caller! {
            /// An aligned block.
            #[unsafe(export_name = $name)]
            $function(size: usize, alignment: usize, tag: usize) -> *mut c_void;
            "rcx", "r8", "r9d" = $index => new_aligned_called_from
        }
    };
}

/// `operator delete`, whatever else it is told: free, if the operators are ours to serve. Sizes are not
/// trusted: a wrong one must not become ours.
macro_rules! delete {
    ($index:literal $function:ident $name:literal) => {
        /// Frees a block.
        #[unsafe(export_name = $name)]
        unsafe extern "C-unwind" fn $function(ptr: *mut c_void, second: usize, third: usize) {
            if SERVING.load(Ordering::Relaxed) == OURS {
                // SAFETY: the caller's promise.
                return unsafe { free(ptr) };
            }
            // SAFETY: the caller's promise.
            unsafe { delete_of_whom(ptr, second, third, $index) }
        }
    };
}

operators! {
    0 new op_new "_Znwm";
    1 new op_new_array "_Znam";
    2 new op_new_nothrow "_ZnwmRKSt9nothrow_t";
    3 new op_new_array_nothrow "_ZnamRKSt9nothrow_t";
    4 new_aligned op_new_aligned "_ZnwmSt11align_val_t";
    5 new_aligned op_new_array_aligned "_ZnamSt11align_val_t";
    6 new_aligned op_new_aligned_nothrow "_ZnwmSt11align_val_tRKSt9nothrow_t";
    7 new_aligned op_new_array_aligned_nothrow "_ZnamSt11align_val_tRKSt9nothrow_t";
    8 delete op_delete "_ZdlPv";
    9 delete op_delete_array "_ZdaPv";
    10 delete op_delete_sized "_ZdlPvm";
    11 delete op_delete_array_sized "_ZdaPvm";
    12 delete op_delete_nothrow "_ZdlPvRKSt9nothrow_t";
    13 delete op_delete_array_nothrow "_ZdaPvRKSt9nothrow_t";
    14 delete op_delete_aligned "_ZdlPvSt11align_val_t";
    15 delete op_delete_array_aligned "_ZdaPvSt11align_val_t";
    16 delete op_delete_sized_aligned "_ZdlPvmSt11align_val_t";
    17 delete op_delete_array_sized_aligned "_ZdaPvmSt11align_val_t";
    18 delete op_delete_aligned_nothrow "_ZdlPvSt11align_val_tRKSt9nothrow_t";
    19 delete op_delete_array_aligned_nothrow "_ZdaPvSt11align_val_tRKSt9nothrow_t";
}

/// What every operator of a size does; `sp` and `bp` are those of the program's call.
extern "C-unwind" fn new_called_from(
    size: usize,
    tag: usize,
    sp: *const u64,
    bp: u64,
    index: usize,
) -> *mut c_void {
    if SERVING.load(Ordering::Relaxed) == OURS && sample::passes(size) {
        let ptr = allocator::malloc(size);
        if !ptr.is_null() {
            return ptr;
        }
        return elsewhere(size, tag, 0, index);
    }
    new_slowly(size, tag, sp, bp, index)
}

/// The rest of it: the block is sampled, or the operators are not known to be ours.
#[cold]
#[inline(never)]
extern "C-unwind" fn new_slowly(
    size: usize,
    tag: usize,
    sp: *const u64,
    bp: u64,
    index: usize,
) -> *mut c_void {
    if early_heap::is_now() {
        return early_heap::allocate(1, size);
    }
    let known = SERVING.load(Ordering::Relaxed) != NOT_DECIDED;
    if who_serves() != OURS {
        return elsewhere(size, tag, 0, index);
    }
    // An operator that does not know who serves has not laid the bytes on the line.
    let sampled = known || !sample::passes(size);
    let ptr = allocator::malloc(size);
    if sampled {
        // SAFETY: the operator passed its own registers.
        let here = unsafe { Here::caller(sp, bp) };
        sample::allocated(entry(index), ptr, size, Fit::Plain, here);
    }
    if ptr.is_null() {
        return elsewhere(size, tag, 0, index);
    }
    ptr
}

extern "C-unwind" fn new_aligned_called_from(
    size: usize,
    alignment: usize,
    tag: usize,
    sp: *const u64,
    bp: u64,
    index: usize,
) -> *mut c_void {
    if early_heap::is_now() {
        return early_heap::allocate(alignment, size);
    }
    if !alignment.is_power_of_two() || who_serves() != OURS {
        return elsewhere(size, alignment, tag, index);
    }
    let passes = sample::passes(size);
    let ptr = allocator::aligned(alignment.max(aligned::MIN_ALIGN), size);
    if !passes {
        // SAFETY: the operator passed its own registers.
        let here = unsafe { Here::caller(sp, bp) };
        sample::allocated(entry(index), ptr, size, Fit::Aligned, here);
    }
    if ptr.is_null() {
        return elsewhere(size, alignment, tag, index);
    }
    ptr
}

/// What [`delete`] jumps to while the operators are not known to be ours.
///
/// # Safety
/// As `operator delete`.
unsafe extern "C-unwind" fn delete_of_whom(
    ptr: *mut c_void,
    second: usize,
    third: usize,
    index: usize,
) {
    // What was allocated before it could be known who serves.
    if ptr.is_null() || early_heap::owns(ptr) {
        return;
    }
    if who_serves() == OURS {
        // SAFETY: the caller's promise.
        return unsafe { free(ptr) };
    }
    elsewhere(ptr as usize, second, third, index);
}

/// A PC inside the operator.
fn entry(index: usize) -> u64 {
    OPERATORS[index].address as u64 + 1
}

#[inline]
fn who_serves() -> u8 {
    match SERVING.load(Ordering::Relaxed) {
        NOT_DECIDED => decide(),
        known => known,
    }
}

/// At boot: decides who serves, and finds whom failures will need, while there is memory.
pub(crate) fn prepare() {
    if decide() == ELSEWHERE || next(&OPERATORS[0]).is_null() {
        return; // no C++ here, or not yet
    }
    // Those of a library that the program begins with, which is never unloaded; see `link_map::in_library`.
    for operator in &OPERATORS {
        if let Some(found) = link_map::in_library(&CXX_FILES, operator.name) {
            operator
                .elsewhere
                .store(found as *mut c_void, Ordering::Release);
        }
    }
}

/// They are ours if each of them is what the program calls, if its `malloc` is ours, and if what stands behind them
/// is a C++ library's or another allocator's. Any other library that defines them means something by it.
#[cold]
#[inline(never)]
fn decide() -> u8 {
    // Its own operators are part of it, and libc's functions, which it intercepts, are not to be called yet.
    if dl::sanitizer().is_some() {
        SERVING.store(ELSEWHERE, Ordering::Relaxed);
        return ELSEWHERE;
    }
    let is_first = |name: &CStr, ours: *const c_void| {
        dl::default_definition(name).cast_const() == ours || !link_map::is_defined_before_us(name)
    };
    let none_but_ours = is_first(c"malloc", malloc::malloc_address() as *const c_void)
        && OPERATORS
            .iter()
            .all(|operator| is_first(operator.name, operator.address));
    let next = next(&OPERATORS[0]);
    let ours =
        none_but_ours && (next.is_null() || is_of_cxx_library(next) || is_of_allocator(next));
    let serving = if ours { OURS } else { ELSEWHERE };
    SERVING.store(serving, Ordering::Relaxed);
    serving
}

/// Serves a call by the definition behind ours. It may throw.
#[cold]
#[inline(never)]
extern "C-unwind" fn elsewhere(
    first: usize,
    second: usize,
    third: usize,
    index: usize,
) -> *mut c_void {
    let operator = &OPERATORS[index];
    let mut found = operator.elsewhere.load(Ordering::Acquire);
    if found.is_null() {
        found = find_elsewhere(operator);
    }
    if !found.is_null() {
        // SAFETY: a definition of the operator; registers that are no arguments of it are not read.
        let form = unsafe { std::mem::transmute::<*mut c_void, Form>(found) };
        // SAFETY: the caller's promise.
        return unsafe { form(first, second, third) };
    }
    // No C++ library, so no new-handler either, and nobody who could catch.
    if [2, 3, 6, 7].contains(&index) {
        return null_mut();
    }
    diagnostics::bytes(
        b"heapprof: operator new failed, and no C++ library is loaded that could throw bad_alloc\n",
    );
    std::process::abort();
}

/// The definition behind ours that serves when ours does not: not another allocator's, which
/// knows nothing of our blocks. Null if there is none. What is found is never unloaded.
#[cold]
#[inline(never)]
fn find_elsewhere(operator: &Operator) -> *mut c_void {
    // What the loader allocates is not the program's.
    let entered = thread::current().enter();
    if let Some(entered) = &entered {
        entered.thread.inside.set(Inside::Ours);
    }
    let next = next(operator);
    if !next.is_null() && dl::sanitizer().is_some() {
        operator.elsewhere.store(next, Ordering::Release);
        return next;
    }
    let found = if next.is_null() || is_of_allocator(next) {
        in_cxx_library(operator)
    } else {
        next
    };
    if !found.is_null() {
        dl::keep(found);
        operator.elsewhere.store(found, Ordering::Release);
    }
    found
}

/// The definition after ours in the order of the loader; null if there is none.
fn next(operator: &Operator) -> *mut c_void {
    // SAFETY: a C string, and the handle that means "after this library".
    dl::or_forget(unsafe { libc::dlsym(libc::RTLD_NEXT, operator.name.as_ptr()) })
}

/// The C++ libraries, by the names that programs are linked with.
const CXX_LIBRARIES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// How the names of their files begin.
const CXX_FILES: [&[u8]; 3] = [b"libstdc++.so", b"libc++.so", b"libc++abi.so"];

/// A loaded C++ library's own definition, also of one that only a plug-in sees; null if there is none.
fn in_cxx_library(operator: &Operator) -> *mut c_void {
    for library in CXX_LIBRARIES {
        let found = dl::in_loaded(library, operator.name);
        if !found.is_null() {
            return found;
        }
    }
    null_mut()
}

fn is_of_cxx_library(function: *mut c_void) -> bool {
    dl::module_of(function).is_some_and(|(_, path)| {
        let file = path.to_bytes().rsplit(|&byte| byte == b'/').next();
        let begins = |name: &&[u8]| file.is_some_and(|file| file.starts_with(name));
        CXX_FILES.iter().any(begins)
    })
}

/// Whether it belongs to a library that defines `malloc` as well.
fn is_of_allocator(function: *mut c_void) -> bool {
    // SAFETY: as in `next`.
    let malloc = dl::or_forget(unsafe { libc::dlsym(libc::RTLD_NEXT, c"malloc".as_ptr()) });
    match (dl::module_of(function), dl::module_of(malloc)) {
        (Some((operator, _)), Some((malloc, _))) => operator == malloc,
        _ => false,
    }
}
