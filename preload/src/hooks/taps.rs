//! Taps: allocators that are linked into the program or into a library, tapped at the entries of
//! their functions.
//!
//! Such an allocator is called directly, and not through a name that this library could define. So
//! the first instructions of its functions are moved into generated code nearby, and a jump to a
//! stub takes their place (`arch/tap_stubs`, core's `EntryPatch`):
//!
//! ```text
//!  program ──> mi_malloc ──jmp──> check ─┬─────────────> moved instructions ──> rest of mi_malloc
//!                                        └─> handler ─┬─> moved instructions ──> …
//!                                                     └─> sample
//! ```
//!
//! The allocator stays the program's: it serves each call, with the same arguments. One block is
//! one event. While the allocator serves a call, its own calls of tapped functions, or of malloc,
//! are not recorded. Functions that are known to make no such calls have the check, by which most
//! calls pass without the handler. A frame of the function itself is the innermost frame of each
//! stack.
//!
//! Functions are found by the symbols of the program and of its libraries. If a function cannot be
//! changed exactly, its whole allocator is left alone: a block that is recorded when it is
//! allocated must be seen when it is freed.
//!
//! Danger: code of the program is changed (`os/code`), at boot, before other threads exist, and
//! when a library has been opened ([`opened`]).

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Display;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_core::{EntryPatch, Filter, Refusal, Sampler, Suspended};

use crate::allocator::{self, Fit};
use crate::arch::tap_stubs::{Check, Exit, Registers, TAIL, call_moved, tail, tap_entry_stub};
use crate::arch::thread_block::{thread_block, thread_pointer};
use crate::hooks::sample::{self, OldSample};
use crate::os::code::{self, GeneratedCode};
use crate::os::diagnostics::{self, say};
use crate::os::elf_symbols::{self, ElfSymbols};
use crate::os::executable;
use crate::os::link_map::{self, Module};
use crate::os::sys::{File, MappedFile};
use crate::recording::sampled_blocks;
use crate::state::thread::{self, Inside, Thread};
use crate::unwind::modules;
use crate::unwind::walk::WalkStart;

mod functions;
#[cfg(feature = "attach")]
pub(crate) mod later;
mod named;
#[cfg(not(feature = "attach"))]
pub(crate) mod opened;

use functions::{Call, Family, has_flat_malloc, is_usual, known_by};
use named::Named;

/// A tapped function.
struct Tap {
    call: Call,
    /// The address of the function.
    entry: u64,
    /// The address of its moved instructions, which is that of the function as it was.
    moved: u64,
}

impl Tap {
    /// Calls the function. Blocks that are allocated in the call are not recorded, and lay nothing
    /// on the thread's line: by their checks they would lay the caller's bytes once more.
    fn call(&self, registers: &Registers) -> usize {
        let thread = thread::current();
        let _within = Within {
            thread,
            was_inside: thread.inside.replace(Inside::Ours),
            suspended: Some(thread.with_sampler(Sampler::suspend)),
        };
        // SAFETY: the moved instructions, which continue as the function does. The registers are
        // those of the program's call.
        unsafe { call_moved(registers, self.moved) }
    }
}

/// The time of a call of the allocator. It ends by an exception, too (`bad_alloc`).
struct Within<'a> {
    thread: &'a Thread,
    was_inside: Inside,
    suspended: Option<Suspended>,
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        if let Some(suspended) = self.suspended.take() {
            self.thread.with_sampler(|line| line.resume(suspended));
        }
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
    registers: &Registers,
    tap: &Tap,
    sp: *const u64,
    bp: u64,
) -> usize {
    // SAFETY: the registers at the function's entry, whose caller is the program.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let argument = |number: u8| {
        registers
            .arguments
            .get(usize::from(number))
            .copied()
            .unwrap_or(0)
    };
    let size = match tap.call {
        Call::AllocateArray { count, size } => argument(count).saturating_mul(argument(size)),
        Call::Allocate { size } => argument(size),
        _ => 0, // no other function has such a check
    };
    let block = tap.call(registers);
    sample::on_allocation(tap.pc(), block as *mut c_void, size, Fit::Reported, here);
    block
}

/// Serves a call of a tapped function. `sp` and `bp` are the registers at its entry.
unsafe extern "C-unwind" fn tapped(
    registers: &Registers,
    tap: &Tap,
    sp: *const u64,
    bp: u64,
) -> usize {
    // SAFETY: the registers at the function's entry, whose caller is the program.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let argument = |number: u8| {
        registers
            .arguments
            .get(usize::from(number))
            .copied()
            .unwrap_or(0)
    };
    let product = |count, size| argument(count).saturating_mul(argument(size));
    match tap.call {
        Call::Allocate { size } => {
            let block = tap.call(registers);
            tap.record(block, argument(size), here);
            block
        }
        Call::AllocateArray { count, size } => {
            let block = tap.call(registers);
            tap.record(block, product(count, size), here);
            block
        }
        Call::AllocateInto { place, size } => {
            let answer = tap.call(registers);
            if answer as u32 == 0 {
                let place = argument(place) as *const usize;
                // SAFETY: the function has just stored a block there.
                tap.record(unsafe { place.read() }, argument(size), here);
            }
            answer
        }
        Call::Resize { ptr, size } => tap.resize(registers, argument(ptr), argument(size), here),
        Call::ResizeArray { ptr, count, size } => {
            tap.resize(registers, argument(ptr), product(count, size), here)
        }
        Call::ResizeInPlace { ptr, size } => {
            let usable = tap.call(registers);
            if usable >= argument(size) {
                end_sample(argument(ptr));
                tap.record(argument(ptr), argument(size), here);
            }
            usable
        }
        Call::Free { ptr } => {
            end_sample(argument(ptr));
            tap.call(registers)
        }
        Call::Unload => {
            // Blocks that destructors of the library allocate are the program's.
            // SAFETY: as in `Tap::call`.
            let answer = unsafe { call_moved(registers, tap.moved) };
            modules::note_dlclose();
            answer
        }
        Call::FreeUnseen => {
            note_unseen_frees(c"mi_heap_destroy");
            tap.call(registers)
        }
        Call::Control { name } => {
            let name = argument(name) as *const c_char;
            if !name.is_null() {
                // SAFETY: a C string, as the function requires.
                let name = unsafe { CStr::from_ptr(name) };
                let is_of_arena = name.to_bytes().starts_with(b"arena.");
                let ends = [&b".destroy"[..], b".reset"];
                if is_of_arena && ends.iter().any(|end| name.to_bytes().ends_with(end)) {
                    note_unseen_frees(name);
                }
            }
            tap.call(registers)
        }
    }
}

/// Tells once that blocks are freed which no table knows by their allocator.
#[cold]
fn note_unseen_frees(function: &CStr) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        diagnostics::note(format_args!(
            "{} frees blocks at once, which are not known here: they are shown as in use",
            function.to_string_lossy()
        ));
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
    fn resize(&self, registers: &Registers, old: usize, size: usize, here: WalkStart) -> usize {
        let old = old as *mut c_void;
        let taken = match sampled_blocks::may_be_sampled(old) {
            true => sampled_blocks::take(old),
            false => None,
        };
        let new = self.call(registers);
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

/// The functions that the user names.
static NAMED: OnceLock<Vec<Named>> = OnceLock::new();

/// At boot: reads the functions that the user names in `HEAPPROF_TAP`. Prints a line if the value
/// is wrong.
pub(crate) fn read_named(value: &str) {
    match named::parse(value) {
        Ok(named) => drop(NAMED.set(named)),
        Err(why) => say!("HEAPPROF_TAP={value}: {why}; only known allocators are recorded"),
    }
}

/// At boot: taps the allocators of the program and of its libraries. `owns_malloc`: the program's
/// own `malloc` stands before this library's, and is tapped, too.
///
/// The caller is the only thread, inside of our code.
#[cfg(not(feature = "attach"))]
pub(crate) fn install(owns_malloc: bool) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for module in link_map::modules().filter(|module| !module.is_ours()) {
        install_in(module, owns_malloc, &|_| true, &mut outcomes);
    }
    outcomes
}

/// In a running process: prepares the taps of all allocators, those of the library that serves the
/// program among them. Nothing is changed yet. `is_known` is true for the address of a module that
/// was prepared before. `take` gets the changes of each allocator's entries, and the module's
/// address.
///
/// The loader's list does not change meanwhile.
#[cfg(feature = "attach")]
pub(crate) fn prepare(
    is_known: impl Fn(u64) -> bool,
    mut take: impl FnMut(&[Jump], u64) -> Result<(), String>,
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for module in link_map::modules().filter(|module| !module.is_ours()) {
        let start = module.address(0);
        if !is_known(start) {
            let take = &mut |planned: &Planned, _: &Range<u64>| take(&planned.jumps, start);
            for_each_allocator(module, false, Some(take), &mut outcomes);
        }
    }
    later::remember_modules();
    outcomes
}

/// Taps the allocators of a module. `is_at_rest` returns true if no other thread runs code in that
/// range.
#[cfg(not(feature = "attach"))]
fn install_in(
    module: &Module,
    owns_malloc: bool,
    is_at_rest: &dyn Fn(&Range<u64>) -> bool,
    outcomes: &mut Vec<Outcome>,
) {
    let take = &mut |planned: &Planned, code: &Range<u64>| apply(planned, code, is_at_rest);
    for_each_allocator(module, owns_malloc, Some(take), outcomes);
}

/// Prepares the taps of each allocator of a module, and hands them to `take`, with the range of the
/// module's code. Without `take`, each allocator counts as refused, and its outcome is its name.
fn for_each_allocator(
    module: &Module,
    owns_malloc: bool,
    mut take: Option<&mut Take<'_>>,
    outcomes: &mut Vec<Outcome>,
) {
    let is_program = module.is_program();
    let path = if is_program {
        EXECUTABLE
    } else {
        module.path()
    };
    let path_bytes = path.to_bytes();
    if !path_bytes.contains(&b'/') {
        return; // the kernel's own, which has no file
    }
    // Libraries of the distribution have dynamic symbols only, and there are many. The loader's
    // hash table answers faster than a look at every symbol.
    let is_system = SYSTEM.iter().any(|folder| path_bytes.starts_with(folder));
    let is_marked = MARKS.iter().any(|mark| module.function(mark).is_some());
    let name = match is_program {
        true => String::from_utf8_lossy(&executable::path()).into_owned(),
        false => path.to_string_lossy().into_owned(),
    };
    let named = NAMED.get().map_or(&[][..], Vec::as_slice).iter();
    let named: Vec<_> = named.filter(|it| it.is_in(name.as_bytes())).collect();
    // In a running process, the functions behind `malloc` are tapped as all others.
    let serves = cfg!(feature = "attach")
        && allocator::next_library().is_some_and(|library| library == module.path());
    let closes = cfg!(feature = "attach") && module.function(c"dlclose").is_some();
    if is_system && !is_marked && named.is_empty() && !serves && !closes {
        return;
    }
    let owns_malloc = owns_malloc && is_program || serves;
    let file = File::open(path, libc::O_RDONLY, 0).ok();
    let Some(file) = file.and_then(|file| MappedFile::of(&file)) else {
        return;
    };
    let is_wanted = is_marked || owns_malloc || closes || !named.is_empty();
    let debug_file = match ElfSymbols::full(file.bytes()) {
        Some(_) => None,
        None => elf_symbols::debug_file(file.bytes()),
    };
    let debug_file = debug_file.as_ref().map_or(&[][..], MappedFile::bytes);
    let dynamic = || ElfSymbols::dynamic(file.bytes()).filter(|_| is_wanted);
    let full = ElfSymbols::full(file.bytes()).or_else(|| ElfSymbols::full(debug_file));
    let Some(symbols) = full.or_else(dynamic) else {
        return;
    };
    let Some(code) = elf_symbols::code_range(file.bytes()) else {
        return;
    };
    let code = module.address(code.start)..module.address(code.end);
    let mut tapped: Vec<u64> = Vec::new();
    let is_next = allocator::next_library().is_some_and(|library| library == module.path());
    let named = named.into_iter().map(Functions::Named);
    let mut known = allocators(&symbols, owns_malloc);
    if closes {
        known.push((Family::Loader, b""));
    }
    let known = known
        .into_iter()
        .map(|(family, prefix)| Functions::Known(family, prefix));
    for functions in named.chain(known) {
        let is_usual = matches!(functions, Functions::Known(Family::Usual, _));
        if is_next && !is_usual && !serves {
            continue; // its functions have the usual names, too, and are called from our hooks
        }
        let name = format!("{} in {name}", functions.name(is_program || owns_malloc));
        let Some(take) = &mut take else {
            if !matches!(functions, Functions::Known(Family::Loader, _)) {
                outcomes.push(Outcome::Refused(name));
            }
            continue;
        };
        let wanted = Wanted {
            module,
            code: code.clone(),
            functions,
            has_usual_names: owns_malloc || is_program,
            is_malloc_flat: module.file() == b"libc.so.6" || has_flat_malloc(&symbols),
        };
        let planned = plan(&wanted, &symbols, &tapped).and_then(|planned| {
            if !planned.entries.is_empty() {
                take(&planned, &code)?;
            }
            Ok(planned.entries)
        });
        outcomes.push(match planned {
            Ok(entries) if entries.is_empty() => continue,
            Ok(entries) => {
                let number = entries.len();
                tapped.extend(entries);
                if matches!(functions, Functions::Known(Family::Loader, _)) {
                    continue;
                }
                Outcome::Tapped(format!("{name} ({number} functions)"))
            }
            Err(why) if is_usual => Outcome::RefusedMalloc(why),
            Err(why) => Outcome::Refused(format!("{name}: {why}")),
        });
    }
}

/// The functions of an allocator.
#[derive(Clone, Copy)]
enum Functions<'a> {
    /// Those of a known allocator, with the prefix of their names.
    Known(Family, &'a [u8]),
    Named(&'a Named),
}

impl Functions<'_> {
    fn name(&self, is_program: bool) -> &'static str {
        match self {
            Functions::Known(family, _) => family.name(is_program),
            Functions::Named(_) => "functions of HEAPPROF_TAP",
        }
    }

    /// Returns what a call of the function does. `None`: it is none of these.
    fn call(&self, name: &[u8]) -> Option<Call> {
        match self {
            Functions::Known(family, prefix) => family.call(name, prefix),
            Functions::Named(named) => named.call(name),
        }
    }

    /// Returns true if such a function never calls another one that is tapped.
    fn is_flat(&self, call: Call) -> bool {
        match self {
            Functions::Known(family, _) => family.is_flat(call),
            Functions::Named(_) => matches!(call, Call::Free { .. }),
        }
    }
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
    functions: Functions<'a>,
    /// True if functions of the usual names are called by these names.
    has_usual_names: bool,
    /// True if functions of the names `malloc` and `calloc` never call a tapped one.
    is_malloc_flat: bool,
}

/// The change of one entry.
pub(crate) struct Jump {
    /// Where the jump is written.
    pub(crate) at: u64,
    /// The bytes that it replaces.
    pub(crate) old: [u8; 5],
    pub(crate) new: [u8; 5],
    /// Bytes of the instructions that have moved.
    #[cfg(feature = "attach")]
    pub(crate) moved: usize,
}

/// An allocator whose functions can be tapped: the code is ready, and no entry is changed yet.
struct Planned {
    jumps: Vec<Jump>,
    /// The addresses of the functions; none if all are known by other names.
    entries: Vec<u64>,
}

/// Takes the changes of an allocator, and the range of the module's code.
type Take<'a> = dyn FnMut(&Planned, &Range<u64>) -> Result<(), String> + 'a;

/// Writes the jumps of an allocator, all or none. `is_at_rest` returns true if no other thread runs
/// code in that range.
#[cfg(not(feature = "attach"))]
fn apply(
    planned: &Planned,
    code: &Range<u64>,
    is_at_rest: &dyn Fn(&Range<u64>) -> bool,
) -> Result<(), String> {
    if !is_at_rest(code) {
        return Err("threads that it has started do not come to rest".into());
    }
    let replace = |at: u64, bytes: &[u8]| {
        // SAFETY: no other thread runs functions of the module, by the check above, and this one
        // runs none. The module is not this library, and sealing has made changed pages executable.
        unsafe { code::replace(at, bytes).or_else(|_| code::replace_by_protection(at, bytes)) }
    };
    for (number, jump) in planned.jumps.iter().enumerate() {
        if let Err(why) = replace(jump.at, &jump.new) {
            for done in &planned.jumps[..number] {
                let _ = replace(done.at, &done.old);
            }
            return Err(format!("its code cannot be changed: {why}"));
        }
    }
    Ok(())
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

/// Returns the code of a function. `None`: its symbol has no size, or leads out of the module.
fn code_of<'a>(wanted: &Wanted<'_>, function: &elf_symbols::Function<'_>) -> Option<&'a [u8]> {
    let entry = wanted.module.address(function.value);
    let end = entry.checked_add(function.size)?;
    if function.size == 0 || entry < wanted.code.start || end > wanted.code.end {
        return None;
    }
    // SAFETY: the code of a function in a loaded module.
    Some(unsafe { std::slice::from_raw_parts(entry as *const u8, function.size as usize) })
}

/// Returns the code of a function with what lies behind it, up to where the next function may
/// begin.
fn with_padding<'a>(wanted: &Wanted<'_>, code: &'a [u8]) -> &'a [u8] {
    let start = code.as_ptr() as u64;
    let end = (start + code.len() as u64).next_multiple_of(EntryPatch::ALIGNMENT);
    let len = end.min(wanted.code.end) - start;
    // SAFETY: within the code of the module.
    unsafe { std::slice::from_raw_parts(code.as_ptr(), len as usize) }
}

/// Checks the parts of these functions that the compiler has put elsewhere (`name.cold`).
fn check_parts(
    wanted: &Wanted<'_>,
    symbols: &ElfSymbols<'_>,
    planned: &[(Call, u64, EntryPatch)],
    names: &[&[u8]],
) -> Result<(), String> {
    for part in symbols.functions() {
        let Some(dot) = part.name.windows(5).position(|bytes| bytes == b".cold") else {
            continue;
        };
        let whole = names.iter().position(|&name| name == &part.name[..dot]);
        if let Some((_, _, plan)) = whole.map(|index| &planned[index])
            && let Some(code) = code_of(wanted, &part)
        {
            plan.check_part(code, wanted.module.address(part.value))
                .map_err(|why| format!("{}: {why}", part.name.escape_ascii()))?;
        }
    }
    Ok(())
}

/// Prepares the taps of all functions of an allocator, or of none. `tapped` are the addresses of
/// all functions of the module that are tapped: allocators have several names for one function.
fn plan(wanted: &Wanted<'_>, symbols: &ElfSymbols<'_>, tapped: &[u64]) -> Result<Planned, String> {
    let mut planned: Vec<(Call, u64, EntryPatch)> = Vec::new();
    let mut planned_names = Vec::new();
    for function in symbols.functions() {
        let Some(call) = wanted.functions.call(function.name) else {
            continue;
        };
        let is_known = matches!(wanted.functions, Functions::Known(..));
        if !wanted.has_usual_names && is_known && is_usual(function.name) {
            continue; // the program calls this library's function of that name
        }
        let entry = wanted.module.address(function.value);
        let is_planned = planned.iter().any(|&(_, known, _)| known == entry);
        if is_planned || tapped.contains(&entry) {
            continue;
        }
        let refused = |why: &dyn Display| format!("{}: {why}", function.name.escape_ascii());
        let code = code_of(wanted, &function).ok_or_else(|| refused(&"no code"))?;
        let plan = match EntryPatch::plan(code, entry) {
            Err(Refusal::TooShort { .. }) => EntryPatch::plan(with_padding(wanted, code), entry),
            plan => plan,
        };
        let plan = plan.map_err(|why| refused(&why))?;
        planned.push((call, entry, plan));
        planned_names.push(function.name);
    }
    if let Functions::Named(named) = wanted.functions {
        let is_missing = |name: &&str| !planned_names.contains(&name.as_bytes());
        if let Some(missing) = named.names().find(is_missing) {
            return Err(format!("it has no function {missing}"));
        }
    }
    check_parts(wanted, symbols, &planned, &planned_names)?;
    if planned.is_empty() {
        return Ok(Planned {
            jumps: Vec::new(),
            entries: Vec::new(),
        });
    }
    let each = Check::MOST + EntryPatch::MOST_MOVED + 2 * TAIL + 16;
    let mut generated = GeneratedCode::near(wanted.code.clone(), planned.len() * each)
        .ok_or("there is no room for generated code near it")?;
    let mut jumps = Vec::new();
    #[cfg(feature = "attach")]
    let mut moves = Vec::new();
    for ((call, entry, plan), name) in planned.iter().zip(&planned_names) {
        let is_flat = wanted.functions.is_flat(*call)
            || wanted.is_malloc_flat && [&b"malloc"[..], b"calloc"].contains(name);
        let check = match is_flat {
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
        let mut old = [0; 5];
        old.copy_from_slice(&plan.replaced()[..5]);
        jumps.push(Jump {
            at: plan.at(),
            old,
            new: plan.jump(start).map_err(|why| why.to_string())?,
            #[cfg(feature = "attach")]
            moved: plan.len(),
        });
        #[cfg(feature = "attach")]
        moves.push((*entry, tap.moved));
    }
    let seal = |why| format!("generated code cannot be made executable: {why}");
    generated.seal().map_err(seal)?;
    #[cfg(feature = "attach")]
    for (entry, moved) in moves {
        allocator::redirect(entry, moved);
    }
    let entries = planned.iter().map(|&(_, entry, _)| entry).collect();
    Ok(Planned { jumps, entries })
}
