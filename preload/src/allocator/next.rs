//! The next allocator: the functions that would serve the program without this library. They are
//! libc's, or those of an allocator that is linked or preloaded behind this library.
//!
//! With `HEAPPROF_ALLOCATOR=program` every block of the program comes from the next allocator, and
//! jemalloc has this library's own memory only. So it is, too, if the variable is not set and the
//! program calls the next allocator's [own functions](super::own_functions). The choice is made
//! once, in the first call of an allocation function. If the libraries behind this one lack one of
//! the functions, jemalloc serves the program. The fast path of jemalloc stays disabled if the next
//! allocator is chosen, and each function of `heap` ends here.
//!
//! Danger: functions are found in symbol tables and called by their documented types.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::own_functions::{self, OwnCall};
use crate::os::environment;
use crate::os::link_map::{self, Module};
use crate::state::settings::{self, AllocatorChoice};
use crate::state::thread::{self, RunningCode};

/// The functions of the next allocator.
pub(crate) struct Next {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(*mut c_void),
    pub(crate) posix_memalign: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int,
    /// `None`: the library that defines `malloc` does not tell the size of a block. Another
    /// library's function must not be asked about it.
    usable: Option<unsafe extern "C" fn(*mut c_void) -> usize>,
    /// The library that defines `malloc`.
    library: &'static Module,
}

/// The next allocator if it serves the program, null if jemalloc does, [`UNDECIDED`] at first.
static CHOSEN: AtomicPtr<Next> = AtomicPtr::new(UNDECIDED);
const UNDECIDED: *mut Next = std::ptr::without_provenance_mut(1);
/// True if the next allocator is wanted, and no library has a whole one.
static IS_MISSED: AtomicBool = AtomicBool::new(false);
/// True if the next allocator is chosen because the program calls its own functions.
static IS_CHOSEN_FOR_CALLS: AtomicBool = AtomicBool::new(false);

struct NextCell(UnsafeCell<MaybeUninit<Next>>);
// SAFETY: written once, before CHOSEN points to it; only read afterwards.
unsafe impl Sync for NextCell {}
/// The functions of the next allocator.
static ITSELF: NextCell = NextCell(UnsafeCell::new(MaybeUninit::uninit()));
/// The same with the functions of [`enclose`].
static ENCLOSED: NextCell = NextCell(UnsafeCell::new(MaybeUninit::uninit()));

/// Returns the next allocator if it serves the program. Decides at the first call.
#[inline(always)]
pub(crate) fn chosen() -> Option<&'static Next> {
    let mut chosen = CHOSEN.load(Ordering::Acquire);
    if chosen.is_null() {
        return None;
    }
    if chosen == UNDECIDED {
        chosen = decide();
    }
    // SAFETY: null, or the static place, which was filled before.
    unsafe { chosen.as_ref() }
}

/// Returns true if the next allocator serves the program.
pub(crate) fn is_chosen() -> bool {
    chosen().is_some()
}

/// Returns true if the next allocator is wanted, and no library behind this one has a whole one.
pub(crate) fn is_missed() -> bool {
    IS_MISSED.load(Ordering::Relaxed)
}

/// Returns the path of the library whose allocator serves the program, if it is not this one.
pub(crate) fn library() -> Option<&'static CStr> {
    chosen().map(|next| next.library.path())
}

/// At boot: returns a call of an own function of the allocator that serves the program, if that is
/// the next one.
pub(crate) fn own_call() -> Option<OwnCall> {
    chosen().and_then(|_| own_functions::call_into_next())
}

/// Returns true if the next allocator serves the program because the program calls its own
/// functions, and not because the user wants it.
pub(crate) fn is_chosen_for_calls() -> bool {
    IS_CHOSEN_FOR_CALLS.load(Ordering::Relaxed)
}

/// Functions that take the place of the next allocator's, and call them.
pub(crate) struct Enclosure {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(*mut c_void),
    pub(crate) posix_memalign: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int,
}

/// At boot: calls of the next allocator go through the enclosure from here on.
pub(super) fn enclose(by: Enclosure) {
    let Some(itself) = chosen() else {
        return;
    };
    let enclosed = Next {
        malloc: by.malloc,
        calloc: by.calloc,
        realloc: by.realloc,
        free: by.free,
        posix_memalign: by.posix_memalign,
        usable: itself.usable,
        library: itself.library,
    };
    // SAFETY: boot comes here once, while no other thread runs, and nobody reads the place before
    // the store below.
    let chosen = std::ptr::from_mut(unsafe { (*ENCLOSED.0.get()).write(enclosed) });
    CHOSEN.store(chosen, Ordering::Release);
}

/// Returns the next allocator without the enclosure.
///
/// # Safety
/// The next allocator serves the program.
pub(crate) unsafe fn itself() -> &'static Next {
    // SAFETY: written when it was chosen, by the caller's promise; only read since.
    unsafe { (*ITSELF.0.get()).assume_init_ref() }
}

/// Decides which allocator serves the program, in the first call of an allocation function. That is
/// at boot, or before it: the loader and the constructor of another library may allocate.
#[cold]
#[inline(never)]
fn decide() -> *mut Next {
    // jemalloc registers its fork handlers in its first allocation. They must precede those of the
    // program, as they do if jemalloc serves this call.
    // SAFETY: a block that no other code has.
    unsafe { sys::free(sys::malloc(1)) };
    let choice = settings::allocator_choice(&environment::at_start());
    let next = match choice {
        AllocatorChoice::Program => find(),
        AllocatorChoice::Ours => None,
        AllocatorChoice::Automatic => {
            let call = own_functions::call_into_next();
            call.and_then(|_| find())
        }
    };
    let is_wanted = choice == AllocatorChoice::Program;
    IS_MISSED.store(is_wanted && next.is_none(), Ordering::Relaxed);
    IS_CHOSEN_FOR_CALLS.store(!is_wanted && next.is_some(), Ordering::Relaxed);
    let chosen = match next {
        // SAFETY: no other thread runs yet, and nobody reads the place before the store below.
        Some(next) => std::ptr::from_mut(unsafe { (*ITSELF.0.get()).write(next) }),
        None => std::ptr::null_mut(),
    };
    CHOSEN.store(chosen, Ordering::Release);
    chosen
}

/// Finds the functions as the loader does for a call from this library: each in the first module
/// behind this one that defines it.
fn find() -> Option<Next> {
    let (library, malloc) = find_function(c"malloc")?;
    let address = |name| find_function(name).map(|(_, address)| address);
    let usable = find_function(c"malloc_usable_size");
    let usable = usable.filter(|(module, _)| std::ptr::eq(*module, library));
    // SAFETY: functions of these names have these types in every C library, and a library that
    // replaces them must keep to that.
    unsafe {
        Some(Next {
            malloc: std::mem::transmute::<usize, unsafe extern "C" fn(usize) -> *mut c_void>(
                malloc,
            ),
            calloc: std::mem::transmute::<usize, unsafe extern "C" fn(usize, usize) -> *mut c_void>(
                address(c"calloc")?,
            ),
            realloc: std::mem::transmute::<
                usize,
                unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
            >(address(c"realloc")?),
            free: std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(address(
                c"free",
            )?),
            posix_memalign: std::mem::transmute::<
                usize,
                unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int,
            >(address(c"posix_memalign")?),
            usable: usable.map(|(_, address)| {
                std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> usize>(address)
            }),
            library,
        })
    }
}

/// Returns the first module behind this library that defines the function, and its address.
fn find_function(name: &CStr) -> Option<(&'static Module, usize)> {
    link_map::behind_us().find_map(|module| {
        let symbols = module.symbols()?;
        let code = symbols.function(name).map(|code| code.start);
        // SAFETY: the loader relocates modules from the last to the first, so each module behind
        // this one is relocated.
        let code = code.or_else(|| unsafe { symbols.resolved_function(name) });
        code.map(|address| (module, address))
    })
}

impl Next {
    /// Returns a block aligned to `alignment`, a power of two, or null.
    pub(crate) fn aligned(&self, alignment: usize, size: usize) -> *mut c_void {
        let mut block = std::ptr::null_mut();
        // SAFETY: a place for the block; the alignment is a power of two, and at least that of a
        // word (the callers' least is higher).
        match unsafe { (self.posix_memalign)(&raw mut block, alignment, size) } {
            0 => block,
            _ => std::ptr::null_mut(),
        }
    }

    /// Returns the usable bytes of a block, or 0 if the allocator does not tell. The allocator may
    /// allocate to find out (tcmalloc does once), inside of a hook, too. That is not recorded.
    ///
    /// # Safety
    /// `ptr` is null or a live block of this allocator.
    pub(crate) unsafe fn usable(&self, ptr: *mut c_void) -> usize {
        let Some(usable) = self.usable else {
            return 0;
        };
        let thread = thread::current();
        let outer_code = thread.running_code.replace(RunningCode::Ours);
        // SAFETY: the caller's promise.
        let bytes = unsafe { usable(ptr) };
        thread.running_code.set(outer_code);
        bytes
    }
}
