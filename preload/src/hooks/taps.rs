//! Taps: allocators that are linked into the program or into a library, tapped at the entries of
//! their functions.
//!
//! Such an allocator is called directly, and not through a name that this library could define. So
//! the first instructions of its functions are moved into generated code nearby, and a jump to a
//! stub takes their place (`arch/tap_stubs`, core's `EntryPatch`):
//!
//! ```text
//!  program ──> mi_malloc ──jmp──> check ─┬─────────────> moved instructions ──> rest of mi_malloc
//!                                        └─> handler ─┬─> the same
//!                                                     └─> sample
//! ```
//!
//! The allocator stays the program's: it serves each call, with the same arguments. One block is
//! one event. While the allocator serves a call, its own calls of tapped functions, or of malloc,
//! are not recorded. Functions that are known to make no such calls have the check, by which most
//! calls pass without the handler. A frame of the function itself is the innermost frame of each
//! stack.
//!
//! Functions are found by the symbols of the program and of the libraries that it starts with. If a
//! function cannot be changed exactly, its whole allocator is left alone: a block that is recorded
//! when it is allocated must be seen when it is freed.
//!
//! Danger: code of the program is changed (`os/code`), at boot only, before other threads exist.

use std::ffi::{CStr, c_void};
use std::ops::Range;

use heapprof_core::{EntryPatch, Filter};

use crate::allocator::{self, Fit};
use crate::arch::tap_stubs::{Check, Exit, TAIL, tail, tap_entry_stub};
use crate::arch::thread_block::{thread_block, thread_pointer};
use crate::hooks::sample::{self, OldSample};
use crate::os::code::{self, GeneratedCode};
use crate::os::elf_symbols::{self, ElfSymbols};
use crate::os::executable;
use crate::os::link_map::{self, Module};
use crate::os::sys::{File, MappedFile};
use crate::recording::sampled_blocks;
use crate::state::thread::{self, Inside, Thread};
use crate::unwind::walk::WalkStart;

mod functions;

use functions::{Call, Family, is_usual, known_by};

/// A tapped function.
struct Tap {
    call: Call,
    /// The address of the function.
    entry: u64,
    /// The address of its moved instructions, which is that of the function as it was.
    moved: u64,
}

/// The arguments of a call. A function with fewer has whatever the registers hold.
type Arguments = [usize; 6];

/// The type of every tapped function.
type Original = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

impl Tap {
    /// Calls the function. Blocks that are allocated in the call are not recorded.
    fn call(&self, [a, b, c, d, e, f]: &Arguments) -> usize {
        let thread = thread::current();
        let _within = Within {
            thread,
            was_inside: thread.inside.replace(Inside::Ours),
        };
        // SAFETY: the moved instructions, which continue as the function does. The arguments are
        // those of the program's call.
        unsafe {
            let original = std::mem::transmute::<u64, Original>(self.moved);
            original(*a, *b, *c, *d, *e, *f)
        }
    }
}

/// The time of a call of the allocator. It ends by an exception, too (`bad_alloc`).
struct Within<'a> {
    thread: &'a Thread,
    was_inside: Inside,
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.thread.inside.set(self.was_inside);
    }
}

tap_entry_stub! {
    /// Where a call leads of which nothing is decided.
    fn undecided_stub => tapped
}

tap_entry_stub! {
    /// Where an allocation leads that has advanced the sampler, and expired its countdown.
    fn due_stub => allocation_is_due
}

/// Serves an allocation for which the countdown has expired.
unsafe extern "C-unwind" fn allocation_is_due(
    arguments: &Arguments,
    tap: &Tap,
    sp: *const u64,
    bp: u64,
) -> usize {
    // SAFETY: the registers at the function's entry, whose caller is the program.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let argument = |number: u8| arguments.get(usize::from(number)).copied().unwrap_or(0);
    let size = match tap.call {
        Call::AllocateArray { count, size } => argument(count).saturating_mul(argument(size)),
        Call::Allocate { size } => argument(size),
        _ => 0, // no other function has such a check
    };
    let block = tap.call(arguments);
    sample::on_allocation(tap.pc(), block as *mut c_void, size, Fit::Reported, here);
    block
}

/// Serves a call of a tapped function. `sp` and `bp` are the registers at its entry.
unsafe extern "C-unwind" fn tapped(
    arguments: &Arguments,
    tap: &Tap,
    sp: *const u64,
    bp: u64,
) -> usize {
    // SAFETY: the registers at the function's entry, whose caller is the program.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let argument = |number: u8| arguments.get(usize::from(number)).copied().unwrap_or(0);
    let product = |count, size| argument(count).saturating_mul(argument(size));
    match tap.call {
        Call::Allocate { size } => {
            let block = tap.call(arguments);
            tap.record(block, argument(size), here);
            block
        }
        Call::AllocateArray { count, size } => {
            let block = tap.call(arguments);
            tap.record(block, product(count, size), here);
            block
        }
        Call::AllocateInto { place, size } => {
            let answer = tap.call(arguments);
            if answer as u32 == 0 {
                let place = argument(place) as *const usize;
                // SAFETY: the function has just stored a block there.
                tap.record(unsafe { place.read() }, argument(size), here);
            }
            answer
        }
        Call::Resize { ptr, size } => tap.resize(arguments, argument(ptr), argument(size), here),
        Call::ResizeArray { ptr, count, size } => {
            tap.resize(arguments, argument(ptr), product(count, size), here)
        }
        Call::ResizeInPlace { ptr, size } => {
            let usable = tap.call(arguments);
            if usable >= argument(size) {
                end_sample(argument(ptr));
                tap.record(argument(ptr), argument(size), here);
            }
            usable
        }
        Call::Free { ptr } => {
            end_sample(argument(ptr));
            tap.call(arguments)
        }
    }
}

/// Records the end of the sample at that address, if there is one.
fn end_sample(address: usize) {
    let ptr = address as *mut c_void;
    if sampled_blocks::may_be_sampled(ptr) {
        sample::on_free(ptr);
    }
}

impl Tap {
    /// Returns a PC in the function.
    fn pc(&self) -> u64 {
        self.entry + 1
    }

    /// Records a new block, if it is sampled.
    #[inline(always)]
    fn record(&self, block: usize, size: usize, here: WalkStart) {
        if block == 0 || is_nested() || sample::passes(size) {
            return;
        }
        let ptr = block as *mut c_void;
        sample::on_allocation(self.pc(), ptr, size, Fit::Reported, here);
    }

    /// Resizes a block. Law 3: take the old sample, call, and on failure put it back.
    fn resize(&self, arguments: &Arguments, old: usize, size: usize, here: WalkStart) -> usize {
        let old = old as *mut c_void;
        let taken = match sampled_blocks::may_be_sampled(old) {
            true => sampled_blocks::take(old),
            false => None,
        };
        let new = self.call(arguments);
        if new == 0 && size != 0 {
            if let Some(taken) = taken {
                taken.put_back();
            }
            return new;
        }
        let old = taken.map_or(OldSample::None, OldSample::Taken);
        let ptr = new as *mut c_void;
        if new == 0 || is_nested() || sample::passes(size) {
            old.end(ptr);
        } else {
            sample::on_reallocation(self.pc(), ptr, size, Fit::Reported, here, old);
        }
        new
    }
}

/// Returns true if this call is part of another one, which is recorded, or is this library's own. A
/// signal handler inside of a hook is neither: its allocation is counted as lost.
fn is_nested() -> bool {
    thread::current().inside.get() == Inside::Ours
}

/// The result for one allocator, in words.
pub(crate) enum Outcome {
    /// It is tapped.
    Tapped(String),
    /// It is left alone.
    Refused(String),
    /// It is the program's own malloc, and is left alone.
    RefusedMalloc(String),
}

/// At boot: taps the allocators of the program and of its libraries. `owns_malloc`: the program's
/// own `malloc` stands before this library's, and is tapped, too.
///
/// The caller is the only thread, inside of our code.
pub(crate) fn install(owns_malloc: bool) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for module in link_map::modules().filter(|module| !module.is_ours()) {
        let is_program = module.path().is_empty();
        let path = if is_program {
            EXECUTABLE
        } else {
            module.path()
        };
        let path_bytes = path.to_bytes();
        if !path_bytes.starts_with(b"/") {
            continue; // the kernel's own, which has no file
        }
        // Libraries of the distribution have dynamic symbols only, and there are many. The loader's
        // hash table answers faster than a look at every symbol.
        let is_system = SYSTEM.iter().any(|folder| path_bytes.starts_with(folder));
        let is_marked = MARKS.iter().any(|mark| module.function(mark).is_some());
        if is_system && !is_marked {
            continue;
        }
        let file = File::open(path, libc::O_RDONLY, 0).ok();
        let Some(file) = file.and_then(|file| MappedFile::of(&file)) else {
            continue;
        };
        let is_wanted = is_marked || is_program && owns_malloc;
        let dynamic = || ElfSymbols::dynamic(file.bytes()).filter(|_| is_wanted);
        let Some(symbols) = ElfSymbols::full(file.bytes()).or_else(dynamic) else {
            continue;
        };
        let Some(code) = elf_symbols::code_range(file.bytes()) else {
            continue;
        };
        let code = module.address(code.start)..module.address(code.end);
        let mut tapped = Vec::new();
        let is_next = allocator::next_library().is_some_and(|library| library == module.path());
        for (family, prefix) in allocators(&symbols, is_program && owns_malloc) {
            if is_next && family != Family::Usual {
                continue; // its functions have the usual names, too, and are called from our hooks
            }
            let name = match is_program {
                true => String::from_utf8_lossy(&executable::path()).into_owned(),
                false => path.to_string_lossy().into_owned(),
            };
            let name = format!("{} in {name}", family.name(is_program));
            let wanted = Wanted {
                module,
                code: code.clone(),
                family,
                prefix,
                is_program,
            };
            outcomes.push(match tap(&wanted, &symbols, &mut tapped) {
                Ok(0) => continue,
                Ok(number) => Outcome::Tapped(format!("{name} ({number} functions)")),
                Err(why) if family == Family::Usual => Outcome::RefusedMalloc(why),
                Err(why) => Outcome::Refused(format!("{name}: {why}")),
            });
        }
    }
    outcomes
}

/// Returns the allocators that the symbols tell of, with the prefixes of their functions.
fn allocators<'a>(symbols: &ElfSymbols<'a>, owns_malloc: bool) -> Vec<(Family, &'a [u8])> {
    let mut found = Vec::new();
    if owns_malloc {
        found.push((Family::Usual, &b""[..]));
    }
    for function in symbols.functions() {
        let known = known_by(function.name);
        found.extend(known.filter(|known| !found.contains(known)));
    }
    // One name may be a coincidence.
    found.retain(|&(family, prefix)| {
        let mut functions = symbols.functions();
        functions.any(|function| family.is_confirmed_by(function.name, prefix))
    });
    found
}

/// Folders of the distribution's libraries.
const SYSTEM: [&[u8]; 3] = [b"/lib/", b"/lib64/", b"/usr/lib/"];
/// Functions by which allocators in such libraries are known.
const MARKS: [&CStr; 4] = [c"mallocx", c"mi_malloc", c"tc_malloc", c"sn_rust_alloc"];

/// The program's file.
const EXECUTABLE: &CStr = c"/proc/self/exe";

/// An allocator that is to be tapped.
struct Wanted<'a> {
    module: &'a Module,
    /// The module's code.
    code: Range<u64>,
    family: Family,
    prefix: &'a [u8],
    is_program: bool,
}

/// Returns the check for a call. `None`: the handler serves each call.
fn check_of(call: Call) -> Option<Check> {
    let block = thread_block().addr().wrapping_sub(thread_pointer().addr());
    let left = block.wrapping_add(thread::LEFT) as i32; // static thread-local memory is near
    match call {
        Call::Allocate { size } => Check::allocation(size, left),
        Call::AllocateArray { count, size } => Check::array(count, size, left),
        Call::Free { ptr } => Check::free(
            ptr,
            &raw const sampled_blocks::FILTER as u64,
            Filter::MULTIPLIER_AT as i32,
            Filter::SHIFT as u8,
            Filter::COUNTERS_AT as i32,
        ),
        _ => None,
    }
}

/// Taps all functions of an allocator, or none. Returns their number. `tapped` are the addresses of
/// all functions of the module that are tapped: allocators have several names for one function.
fn tap(
    wanted: &Wanted<'_>,
    symbols: &ElfSymbols<'_>,
    tapped: &mut Vec<u64>,
) -> Result<usize, String> {
    let mut planned: Vec<(Call, u64, EntryPatch)> = Vec::new();
    for function in symbols.functions() {
        let Some(call) = wanted.family.call(function.name, wanted.prefix) else {
            continue;
        };
        if !wanted.is_program && is_usual(function.name) {
            continue; // the program calls this library's function of that name
        }
        let entry = wanted.module.address(function.value);
        let is_planned = planned.iter().any(|&(_, known, _)| known == entry);
        if is_planned || tapped.contains(&entry) {
            continue;
        }
        let len = function.size as usize;
        let end = entry.saturating_add(function.size);
        if len == 0 || entry < wanted.code.start || end > wanted.code.end {
            return Err(format!("{}: no code", function.name.escape_ascii()));
        }
        // SAFETY: the code of a function in a loaded module.
        let code = unsafe { std::slice::from_raw_parts(entry as *const u8, len) };
        let plan = EntryPatch::plan(code, entry)
            .map_err(|why| format!("{}: {why}", function.name.escape_ascii()))?;
        planned.push((call, entry, plan));
    }
    if planned.is_empty() {
        return Ok(0); // all of them are known by other names
    }
    let each = Check::MOST + EntryPatch::MOST_MOVED + 2 * TAIL + 16;
    let mut generated = GeneratedCode::near(wanted.code.clone(), planned.len() * each)
        .ok_or("there is no room for generated code near it")?;
    let mut jumps = Vec::new();
    for (call, entry, plan) in &planned {
        let check = match wanted.family.is_flat(*call) {
            true => check_of(*call).unwrap_or(Check::NONE),
            false => Check::NONE,
        };
        // Without a check, a tail comes first.
        let first = if check.len() == 0 { TAIL } else { check.len() };
        let start = generated.address();
        let tap = Box::leak(Box::new(Tap {
            call: *call,
            entry: *entry,
            moved: start + first as u64,
        }));
        let mut moved = [0; EntryPatch::MOST_MOVED];
        let len = plan
            .write_moved(tap.moved, &mut moved)
            .map_err(|why| why.to_string())?;
        let number = std::ptr::from_ref(tap) as u64;
        let undecided = tail(number, undecided_stub as *const () as u64);
        let due = tail(number, due_stub as *const () as u64);
        let tails = tap.moved + len as u64;
        let (code, code_len) = check.code(start, |exit| match exit {
            Exit::Undecided => tails,
            Exit::Due => tails + TAIL as u64,
        });
        let is_written = if check.len() == 0 {
            generated.push(&undecided) && generated.push(&moved[..len])
        } else {
            generated.push(&code[..code_len])
                && generated.push(&moved[..len])
                && generated.push(&undecided)
                && generated.push(&due)
        };
        generated.align();
        if !is_written {
            return Err("there is no room for generated code".into());
        }
        jumps.push((plan.at(), plan.jump(start).map_err(|why| why.to_string())?));
    }
    let seal = |why| format!("generated code cannot be made executable: {why}");
    generated.seal().map_err(seal)?;
    let replace = |at: u64, bytes: &[u8]| {
        // SAFETY: at boot there is one thread, which runs no function of the module. The module is
        // not this library, and sealing has made changed pages executable.
        unsafe { code::replace(at, bytes).or_else(|_| code::replace_by_protection(at, bytes)) }
    };
    for (number, (at, jump)) in jumps.iter().enumerate() {
        if let Err(why) = replace(*at, jump) {
            for (done, (_, _, plan)) in planned.iter().enumerate().take(number) {
                let _ = replace(jumps[done].0, &plan.replaced()[..5]);
            }
            return Err(format!("its code cannot be changed: {why}"));
        }
    }
    tapped.extend(planned.iter().map(|&(_, entry, _)| entry));
    Ok(planned.len())
}
