//! C++ operators: `operator new`, `operator delete` and all their replaceable forms.
//!
//! Danger: the C++ ABI, in assembly. libstdc++'s operators call `malloc` and `free`, and would be
//! recorded. But a program may be linked with another allocator (libjemalloc, libtcmalloc) that
//! defines the operators, too. Its `operator new` never calls our `malloc`, while its `operator
//! delete` may call our `free`. So we define them as well.
//!
//! The hard cases are the new-handler, `bad_alloc`, and a handler that throws in a form that must
//! not throw. They go to the next definition, which is the C++ library's, with the same arguments.
//! The C++ library calls our `malloc` again and continues as the standard says.
//!
//! In some programs every call goes to the next definition (`decide`). Such a program replaces some
//! operators, and the others must lead to its own; or its `malloc` is not ours. We change nothing
//! for such a program.
//!
//! An exception passes through these frames: they are `C-unwind`, drop nothing, and have unwind
//! tables.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::allocator::{self, Fit};
use crate::arch::entry_stubs::with_caller;
use crate::hooks::malloc_fast::free;
use crate::hooks::{aligned, early_heap, malloc, sample};
use crate::os::{diagnostics, dl, link_map};
use crate::state::thread::{self, RunningCode};
use crate::unwind::walk::WalkStart;

/// The definition that handles calls: one of the constants below.
static OWNER: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const OURS: u8 = 1;
const NEXT: u8 = 2;

/// One of the operators.
struct Operator {
    name: &'static CStr,
    /// The address of our definition.
    address: *const c_void,
    /// The next definition, once it is known.
    next: AtomicPtr<c_void>,
}

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Operator {}

/// The type of every operator. No form has more arguments; for a form with fewer, the others are
/// whatever the registers hold.
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
            next: AtomicPtr::new(null_mut()),
        }),*];
        $($kind! { $index $function $name })*
    };
}

/// Defines `operator new` of a size.
macro_rules! new {
    ($index:literal $function:ident $name:literal) => {
        with_caller! {
            /// Returns a block of that many bytes, or handles the failure as the C++ library does.
            ///
            /// # Safety
            /// As the operator of that name, which holds for all functions here.
            #[unsafe(export_name = $name)]
            $function(size: usize, tag: usize) -> *mut c_void;
                number = $index => new_called_from
        }
    };
}

/// Defines `operator new` of a size and an alignment.
macro_rules! new_aligned {
    ($index:literal $function:ident $name:literal) => {
        with_caller! {
            /// Returns an aligned block.
            #[unsafe(export_name = $name)]
            $function(size: usize, alignment: usize, tag: usize) -> *mut c_void;
                number = $index => new_aligned_called_from
        }
    };
}

/// Defines `operator delete`: free, if our definition handles calls. Sizes and alignments are
/// ignored, because a wrong one must do no harm.
macro_rules! delete {
    ($index:literal $function:ident $name:literal) => {
        /// Frees a block.
        #[unsafe(export_name = $name)]
        unsafe extern "C-unwind" fn $function(ptr: *mut c_void, second: usize, third: usize) {
            if OWNER.load(Ordering::Relaxed) == OURS {
                // SAFETY: the caller's promise.
                return unsafe { free(ptr) };
            }
            // SAFETY: the caller's promise.
            unsafe { delete_slow_path(ptr, second, third, $index) }
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

/// Implements every `operator new` of a size. `sp` and `bp` are the registers of the program's
/// call.
pub(super) extern "C-unwind" fn new_called_from(
    size: usize,
    tag: usize,
    sp: *const u64,
    bp: u64,
    index: usize,
) -> *mut c_void {
    if OWNER.load(Ordering::Relaxed) == OURS && sample::passes(size) {
        let ptr = allocator::malloc(size);
        if !ptr.is_null() {
            return ptr;
        }
        return call_next(size, tag, 0, index);
    }
    new_slow_path(size, tag, sp, bp, index)
}

/// Slow path of `operator new`: the block is sampled, or it is not known yet which definition
/// handles calls.
#[cold]
#[inline(never)]
pub(super) extern "C-unwind" fn new_slow_path(
    size: usize,
    tag: usize,
    sp: *const u64,
    bp: u64,
    index: usize,
) -> *mut c_void {
    if early_heap::is_active() {
        return early_heap::allocate(1, size);
    }
    let known = OWNER.load(Ordering::Relaxed) != UNDECIDED;
    if owner() != OURS {
        return call_next(size, tag, 0, index);
    }
    // Before the decision, the operator did not advance the sampler.
    let sampled = known || !sample::passes(size);
    let ptr = allocator::malloc(size);
    if sampled {
        // SAFETY: the operator passed its own registers.
        let here = unsafe { WalkStart::caller(sp, bp) };
        sample::on_allocation(entry(index), ptr, size, Fit::PLAIN, here);
    }
    if ptr.is_null() {
        return call_next(size, tag, 0, index);
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
    if early_heap::is_active() {
        return early_heap::allocate(alignment, size);
    }
    if !alignment.is_power_of_two() || owner() != OURS {
        return call_next(size, alignment, tag, index);
    }
    let passes = sample::passes(size);
    let ptr = allocator::aligned(alignment.max(aligned::MIN_ALIGN), size);
    if !passes {
        // SAFETY: the operator passed its own registers.
        let here = unsafe { WalkStart::caller(sp, bp) };
        sample::on_allocation(entry(index), ptr, size, Fit::ALIGNED, here);
    }
    if ptr.is_null() {
        return call_next(size, alignment, tag, index);
    }
    ptr
}

/// Slow path of `operator delete`, unless our definition handles calls.
///
/// # Safety
/// As `operator delete`.
unsafe extern "C-unwind" fn delete_slow_path(
    ptr: *mut c_void,
    second: usize,
    third: usize,
    index: usize,
) {
    // Null, or a block from before the decision was possible.
    if ptr.is_null() || early_heap::owns(ptr) {
        return;
    }
    if owner() == OURS {
        // SAFETY: the caller's promise.
        return unsafe { free(ptr) };
    }
    call_next(ptr as usize, second, third, index);
}

/// Returns true if our definitions handle calls.
pub(super) fn are_ours() -> bool {
    owner() == OURS
}

/// Returns the address of our definition of an operator.
pub(super) fn address(index: usize) -> *const () {
    OPERATORS[index].address.cast()
}

/// Returns the addresses of our definitions of `operator delete`.
pub(super) fn deletes() -> impl Iterator<Item = *const ()> {
    OPERATORS
        .iter()
        .filter(|operator| operator.name.to_bytes().starts_with(b"_Zd"))
        .map(|operator| operator.address.cast())
}

/// Returns a PC inside the operator.
fn entry(index: usize) -> u64 {
    OPERATORS[index].address as u64 + 1
}

#[inline]
fn owner() -> u8 {
    match OWNER.load(Ordering::Relaxed) {
        UNDECIDED => decide(),
        known => known,
    }
}

/// Decides which definition handles calls, at boot, and finds the next definitions while there is
/// memory.
pub(crate) fn prepare() {
    if decide() == NEXT || definition_after_ours(&OPERATORS[0]).is_null() {
        return; // no C++ here, or not yet
    }
    // Only definitions of a library that is loaded at the start and never unloaded.
    for operator in &OPERATORS {
        if let Some(found) = link_map::in_library(&CXX_FILES, operator.name) {
            operator.next.store(found as *mut c_void, Ordering::Release);
        }
    }
}

/// Decides which definition handles calls. Ours does if the program calls our definition of each
/// operator and our `malloc`. The next definition must also be a C++ library's or another
/// allocator's. Any other library defines operators for a purpose.
#[cold]
#[inline(never)]
fn decide() -> u8 {
    // A sanitizer has operators of its own, and the libc functions that it intercepts cannot be
    // called yet.
    if dl::sanitizer().is_some() {
        OWNER.store(NEXT, Ordering::Relaxed);
        return NEXT;
    }
    let is_first = |name: &CStr, ours: *const c_void| {
        dl::default_definition(name).cast_const() == ours || !link_map::is_defined_before_us(name)
    };
    let none_but_ours = is_first(c"malloc", malloc::malloc_address() as *const c_void)
        && OPERATORS
            .iter()
            .all(|operator| is_first(operator.name, operator.address));
    let next = definition_after_ours(&OPERATORS[0]);
    let ours =
        none_but_ours && (next.is_null() || is_of_cxx_library(next) || is_of_allocator(next));
    let owner = if ours { OURS } else { NEXT };
    OWNER.store(owner, Ordering::Relaxed);
    owner
}

/// Calls the next definition. It may throw.
#[cold]
#[inline(never)]
extern "C-unwind" fn call_next(
    first: usize,
    second: usize,
    third: usize,
    index: usize,
) -> *mut c_void {
    let operator = &OPERATORS[index];
    let mut found = operator.next.load(Ordering::Acquire);
    if found.is_null() {
        found = find_next(operator);
    }
    if !found.is_null() {
        // SAFETY: a definition of the operator; registers that are no arguments of it are not read.
        let form = unsafe { std::mem::transmute::<*mut c_void, Form>(found) };
        // SAFETY: the caller's promise.
        return unsafe { form(first, second, third) };
    }
    // Without a C++ library there is no new-handler, and no code that could catch an exception.
    if [2, 3, 6, 7].contains(&index) {
        return null_mut();
    }
    diagnostics::bytes(
        b"heapprof: operator new failed, and no C++ library is loaded that could throw bad_alloc\n",
    );
    std::process::abort();
}

/// Finds the next definition that can handle our blocks: not one of another allocator. Null if
/// there is none. The library of the definition is never unloaded.
#[cold]
#[inline(never)]
fn find_next(operator: &Operator) -> *mut c_void {
    // The loader's allocations are not the program's.
    let entered = thread::current().enter();
    if let Some(entered) = &entered {
        entered.thread.running_code.set(RunningCode::Ours);
    }
    let next = definition_after_ours(operator);
    if !next.is_null() && dl::sanitizer().is_some() {
        operator.next.store(next, Ordering::Release);
        return next;
    }
    let found = if next.is_null() || is_of_allocator(next) {
        in_cxx_library(operator)
    } else {
        next
    };
    if !found.is_null() {
        dl::pin_library_of(found);
        operator.next.store(found, Ordering::Release);
    }
    found
}

/// Returns the definition after ours in the order of the loader; null if there is none.
fn definition_after_ours(operator: &Operator) -> *mut c_void {
    // SAFETY: a C string, and the handle that means "after this library".
    dl::clear_error_if_null(unsafe { libc::dlsym(libc::RTLD_NEXT, operator.name.as_ptr()) })
}

/// The C++ libraries, by the names that programs are linked with.
const CXX_LIBRARIES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// How the names of their files begin.
const CXX_FILES: [&[u8]; 3] = [b"libstdc++.so", b"libc++.so", b"libc++abi.so"];

/// Returns the definition of a loaded C++ library, even of one in the scope of a plug-in only. Null
/// if there is none.
fn in_cxx_library(operator: &Operator) -> *mut c_void {
    for library in CXX_LIBRARIES {
        let found = dl::in_loaded_library(library, operator.name);
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

/// Returns true if the function belongs to a library that defines `malloc`, too.
fn is_of_allocator(function: *mut c_void) -> bool {
    // SAFETY: as in `definition_after_ours`.
    let malloc =
        dl::clear_error_if_null(unsafe { libc::dlsym(libc::RTLD_NEXT, c"malloc".as_ptr()) });
    match (dl::module_of(function), dl::module_of(malloc)) {
        (Some((operator, _)), Some((malloc, _))) => operator == malloc,
        _ => false,
    }
}
