//! The loader's functions that concern us: `dlclose`, `dlopen` and `dlmopen`.
//!
//! `dlclose` is exported to learn that code was unmapped, before other code can appear at the same place
//! and be taken for it.
//!
//! `dlopen` and `dlmopen` are exported for one flag. `RTLD_DEEPBIND` binds a plug-in's `malloc` to libc's own, past
//! every replaced allocator; a block that then crosses the border is freed by the wrong one, which is a
//! crash. So the flag is taken away. The loader searches by the RUNPATH and `$ORIGIN` of its caller,
//! which it knows by the return address: so libc's function is reached by a jump, not by a call, and the
//! caller stays the program. In a name space that dlmopen makes there is another libc, and nothing of ours; there
//! the flag changes nothing. What a dlopen loaded is found when a walk first meets it.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::os::link_map;
use crate::os::next_symbol::Next;
use crate::state::thread::Entered;
use crate::unwind::module_lookup;
use crate::unwind::modules;

static REAL_CLOSE: Next = Next::new(c"dlclose");
static REAL_OPEN: Next = Next::new(c"dlopen");
#[cfg(target_env = "gnu")]
static REAL_OPEN_IN: Next = Next::new(c"dlmopen");

/// The flag. musl's loader has neither it nor `dlmopen`.
#[cfg(target_env = "gnu")]
const DEEPBIND: c_int = libc::RTLD_DEEPBIND;
#[cfg(target_env = "musl")]
const DEEPBIND: c_int = 0;

/// As dlclose(3).
///
/// # Safety
/// `handle` is one that dlopen returned.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = REAL_CLOSE.address() else {
        return -1;
    };
    // SAFETY: the address of libc's dlclose.
    let real: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    let answer = unsafe { real(handle) };
    modules::something_was_closed();
    answer
}

/// As dlopen(3), without `RTLD_DEEPBIND`.
///
/// # Safety
/// As there: `path` is null or a C string.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    // The two arguments are kept over the look-up; three pushes align the stack for the call.
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        // The look-up may allocate, and be sampled: a walk must find its way through here.
        ".cfi_adjust_cfa_offset 24",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -24",
        "and esi, {without_deepbind}",
        "jmp rax",
        ".cfi_endproc",
        real = sym real_dlopen,
        without_deepbind = const !DEEPBIND,
    )
}

/// libc's dlopen, or one that fails, if there is none.
extern "C" fn real_dlopen() -> *mut c_void {
    extern "C" fn none(_: *const c_char, _: c_int) -> *mut c_void {
        std::ptr::null_mut()
    }
    module_lookup::something_opens();
    REAL_OPEN
        .address()
        .unwrap_or(none as extern "C" fn(*const c_char, c_int) -> *mut c_void as *mut c_void)
}

/// As dlmopen(3), without `RTLD_DEEPBIND`.
///
/// # Safety
/// As there: `path` is a C string.
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlmopen(
    name_space: libc::Lmid_t,
    path: *const c_char,
    flags: c_int,
) -> *mut c_void {
    // As dlopen, with three arguments, whose pushes align the stack.
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        ".cfi_adjust_cfa_offset 24",
        "call {real}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -24",
        "and edx, {without_deepbind}",
        "jmp rax",
        ".cfi_endproc",
        real = sym real_dlmopen,
        without_deepbind = const !DEEPBIND,
    )
}

/// libc's dlmopen, or one that fails, if there is none.
#[cfg(target_env = "gnu")]
extern "C" fn real_dlmopen() -> *mut c_void {
    extern "C" fn none(_: libc::Lmid_t, _: *const c_char, _: c_int) -> *mut c_void {
        std::ptr::null_mut()
    }
    module_lookup::something_opens(); // there may be one of the program's own name space
    REAL_OPEN_IN.address().unwrap_or(
        none as extern "C" fn(libc::Lmid_t, *const c_char, c_int) -> *mut c_void as *mut c_void,
    )
}

/// Who serves the program's allocations.
pub(crate) enum Malloc {
    /// We do: at once, or behind a library that stands before us and hands on what it is asked.
    Ours,
    /// Its own; or that of the library of that path, which stands before us.
    Others(Option<String>),
}

/// At boot. `ours` is the address of our malloc.
pub(crate) fn malloc_of_program(entered: &Entered, ours: u64) -> Malloc {
    let found = default_definition(c"malloc");
    if found as u64 == ours {
        return Malloc::Ours;
    }
    let free = default_definition(c"free");
    if !found.is_null() && !free.is_null() {
        // SAFETY: the program's malloc, which the loader has been calling since it relocated it.
        let malloc: unsafe extern "C" fn(usize) -> *mut c_void =
            unsafe { std::mem::transmute(found) };
        // SAFETY: its free.
        let free: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(free) };
        // At this interval every block that comes to us is due.
        entered.thread.with_sampler(|sampler| sampler.draw(1));
        // SAFETY: as malloc(3).
        let block = unsafe { malloc(64) };
        let reached = entered.thread.with_sampler(|sampler| sampler.is_due());
        // SAFETY: from its malloc.
        unsafe { free(block) };
        if reached {
            return Malloc::Ours;
        }
    }
    Malloc::Others(file_of(found).filter(|path| path.contains(".so")))
}

/// Allocators whose own functions nobody can stand in for, since they know more than a size: how their files' names begin, and
/// the function without which none of them is of use.
const BESIDE_US: [(&[u8], &CStr); 3] = [
    (b"libjemalloc", c"mallocx"),
    (b"libmimalloc", c"mi_malloc"),
    (b"libtcmalloc", c"tc_malloc"),
];

/// At boot: a file that takes memory by another allocator's own functions, and such a function. Empty for the program itself.
pub(crate) fn allocates_beside_us() -> Option<(&'static CStr, &'static CStr)> {
    BESIDE_US.iter().find_map(|&(library, function)| {
        link_map::in_library(&[library], function)?;
        Some((link_map::caller_of(function)?, function))
    })
}

/// The first definition of a function, which the program calls.
pub(crate) fn default_definition(name: &CStr) -> *mut c_void {
    // Not RTLD_DEFAULT: for a library that is linked with -Bsymbolic, as we are, its own definitions are the default.
    // SAFETY: a null path is the program itself; its handle need not be given back.
    let found = unsafe {
        let program = dlopen(std::ptr::null(), libc::RTLD_LAZY);
        libc::dlsym(program, name.as_ptr())
    };
    or_forget(found)
}

/// What a look-up found. If that is nothing, `dlerror` forgets it: it is nothing that the program should read of. Not by a call of
/// `dlerror`, which makes its text with `asprintf`: in a program that has a `malloc` and no `realloc` of its own, that brings a
/// block of the one to the other. A look-up that succeeds makes libc forget what came before.
pub(crate) fn or_forget(found: *mut c_void) -> *mut c_void {
    if found.is_null() {
        // SAFETY: a C string, and the handle that means "after this library".
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"abort".as_ptr()) };
    }
    found
}

/// A library's definition of a function, if the library is loaded; else null. Its handle is kept.
pub(crate) fn in_loaded(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: a C string; nothing is loaded, so nothing runs.
    let handle = unsafe { dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if or_forget(handle).is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a handle, and a C string.
    or_forget(unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// Keeps the library of a function from being unloaded.
pub(crate) fn keep(function: *mut c_void) {
    if let Some((_, path)) = module_of(function) {
        // SAFETY: a C string; nothing is loaded, so nothing runs. The handle is never given back.
        or_forget(unsafe { dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) });
    }
}

/// Where the module of an address begins, and its path, for as long as it is loaded. Needs no memory.
pub(crate) fn module_of(address: *mut c_void) -> Option<(usize, &'static CStr)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: writes one Dl_info when it returns other than 0.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled; the name is the loader's C string.
    unsafe {
        let info = info.assume_init();
        Some((info.dli_fbase as usize, CStr::from_ptr(info.dli_fname)))
    }
}

/// The path of the file that an address belongs to.
fn file_of(address: *mut c_void) -> Option<String> {
    let (_, path) = module_of(address)?;
    Some(path.to_string_lossy().into_owned())
}

/// The one that does not run under another allocator at all: see `host/reexec.rs`.
pub(crate) const THREAD_SANITIZER: &str = "ThreadSanitizer";

/// The sanitizer that the program is built with. Each needs to be the allocator itself: at best it sees
/// nothing, at worst (ThreadSanitizer) it crashes under any other.
pub(crate) fn sanitizer() -> Option<&'static str> {
    // ThreadSanitizer first: a name that is not found costs the loader an allocation, and the first one of all would
    // lead from jemalloc's beginning into its interceptors and back to us.
    let all = [
        (c"__tsan_init", THREAD_SANITIZER),
        (c"__asan_init", "AddressSanitizer"),
        (c"__msan_init", "MemorySanitizer"),
        (c"__lsan_init", "LeakSanitizer"),
    ];
    let found = |name: &CStr| {
        // SAFETY: RTLD_DEFAULT and a C string.
        !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
    };
    let one = all.iter().find(|(name, _)| found(name));
    one.map(|&(_, what)| what)
}

/// Whether a tool of valgrind's that is the allocator itself (memcheck, dhat, …) runs the program, going by
/// what is preloaded: `vgpreload_<tool>`. Every tool brings `vgpreload_core`; cachegrind and its like
/// bring nothing else, and leave malloc alone.
pub(crate) fn valgrind_allocates(preloaded: &[u8]) -> bool {
    let mark = b"vgpreload_";
    let tools = preloaded.windows(mark.len() + 4);
    tools
        .filter(|part| part.starts_with(mark))
        .any(|part| !part.ends_with(b"core"))
}
