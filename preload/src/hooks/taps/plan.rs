//! Plan: the changes at the entries of one allocator's functions, and the code that they lead to.
//!
//! Danger: code of the program is changed (`os/code`).

use std::fmt::Display;
use std::ops::Range;

use heapprof_core::{BloomFilter, EntryPatch, Refusal};

use super::functions::{Call, Family, MappingCall, is_usual};
use super::tapped_function::{FunctionTap, UsableSize, due_stub, undecided_stub};
use super::user_functions::NamedFunctions;
#[cfg(feature = "attach")]
use crate::allocator;
use crate::arch::tap_stubs::{BloomFilterPlace, Check, Exit, TAIL, tail};
use crate::arch::thread_block::{thread_block, thread_pointer};
use crate::os::code::{self, GeneratedCode};
use crate::os::elf_symbols::{self, ElfSymbols};
use crate::os::link_map::Module;
#[cfg(feature = "attach")]
use crate::os::{mapping_shims, sys};
use crate::recording::sampled_blocks;
use crate::state::thread;

/// The functions of an allocator.
#[derive(Clone, Copy)]
pub(super) enum Functions<'a> {
    /// Those of a known allocator, with the prefix of their names.
    Known(Family, &'a [u8]),
    Named(&'a NamedFunctions),
}

impl Functions<'_> {
    pub(super) fn name(&self, is_another: bool) -> &'static str {
        match self {
            Functions::Known(family, _) => family.name(is_another),
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
    fn is_flat(&self, call: Call, name: &[u8]) -> bool {
        match self {
            Functions::Known(family, _) => family.is_flat(call, name),
            Functions::Named(_) => matches!(call, Call::Free { .. }),
        }
    }
}

/// An allocator that is to be tapped.
pub(super) struct TapRequest<'a> {
    pub(super) module: &'a Module,
    /// The module's code.
    pub(super) code: Range<u64>,
    pub(super) functions: Functions<'a>,
    /// True if functions of the usual names are called by these names.
    pub(super) has_usual_names: bool,
    /// Functions of these names never call a tapped one.
    pub(super) flat_names: &'static [&'static [u8]],
    pub(super) usable: Option<UsableSize>,
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
pub(super) struct PatchPlan {
    pub(super) jumps: Vec<Jump>,
    /// The addresses of the functions; none if all are known by other names.
    pub(super) entries: Vec<u64>,
    #[cfg(feature = "attach")]
    pub(super) generated: StubCode,
}

/// The pages and the taps that the jumps of an allocator lead to. They live until they are freed.
#[cfg(feature = "attach")]
#[derive(Clone)]
pub(super) struct StubCode {
    pages: Range<u64>,
    taps: Vec<*mut FunctionTap>,
}

// SAFETY: a tap is only read, by any thread, until it is freed by its owner.
#[cfg(feature = "attach")]
unsafe impl Send for StubCode {}

#[cfg(feature = "attach")]
impl StubCode {
    /// Frees the pages and the taps.
    ///
    /// # Safety
    /// No jump leads to the pages, no thread is in them or in a call behind them, and no other copy
    /// of this value is freed.
    pub(super) unsafe fn free(self) {
        sys::unmap_at(
            self.pages.start,
            (self.pages.end - self.pages.start) as usize,
        );
        for tap in self.taps {
            // SAFETY: from `Box::into_raw` in `plan`; by the caller's promise no thread uses it.
            drop(unsafe { Box::from_raw(tap) });
        }
    }
}

/// Takes the changes of an allocator, and the range of the module's code.
pub(super) type Take<'a> = dyn FnMut(&PatchPlan, &Range<u64>) -> Result<(), String> + 'a;

/// Writes the jumps of an allocator, all or none. `is_at_rest` returns true if no other thread runs
/// code in that range.
#[cfg(not(feature = "attach"))]
pub(super) fn apply(
    planned: &PatchPlan,
    code: &Range<u64>,
    is_at_rest: &dyn Fn(&Range<u64>) -> bool,
) -> Result<(), String> {
    if !is_at_rest(code) {
        return Err("threads that it has started do not come to rest".into());
    }
    // SAFETY: no other thread runs functions of the module, by the check above, and this one runs
    // none. The module is not this library.
    unsafe { write_jumps(planned) }
}

/// Writes the jumps of an allocator, all or none.
///
/// # Safety
/// No thread runs code of the module, which is not this library.
pub(super) unsafe fn write_jumps(planned: &PatchPlan) -> Result<(), String> {
    let replace = |at: u64, bytes: &[u8]| {
        // SAFETY: the caller's promise. Sealing has made changed pages executable.
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
    let filter = BloomFilterPlace {
        address: &raw const sampled_blocks::BLOOM_FILTER as u64,
        multiplier: BloomFilter::MULTIPLIER_AT as i32,
        shift: BloomFilter::SHIFT as u8,
        counters: BloomFilter::COUNTERS_AT as i32,
    };
    match call {
        Call::Allocate { size } | Call::AllocateInto { size, .. } => Check::allocation(size, left),
        Call::AllocateArray { count, size } => Check::array(count, size, left),
        Call::Resize { ptr, size } => Check::resize(ptr, size, &filter, left),
        Call::Free { ptr } => Check::free(ptr, &filter),
        _ => None,
    }
}

/// Returns the code of a function. `None`: its symbol has no size, or leads out of the module.
fn code_of<'a>(wanted: &TapRequest<'_>, function: &elf_symbols::Function<'_>) -> Option<&'a [u8]> {
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
fn with_padding<'a>(wanted: &TapRequest<'_>, code: &'a [u8]) -> &'a [u8] {
    let start = code.as_ptr() as u64;
    let end = (start + code.len() as u64).next_multiple_of(EntryPatch::ALIGNMENT);
    let len = end.min(wanted.code.end) - start;
    // SAFETY: within the code of the module.
    unsafe { std::slice::from_raw_parts(code.as_ptr(), len as usize) }
}

/// Checks the parts of these functions that the compiler has put elsewhere (`name.cold`).
fn check_parts(
    wanted: &TapRequest<'_>,
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
pub(super) fn plan(
    wanted: &TapRequest<'_>,
    symbols: &ElfSymbols<'_>,
    tapped: &[u64],
) -> Result<PatchPlan, String> {
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
        let plan = match plan {
            // A notice is missing then, and no number is wrong.
            Err(_) if matches!(call, Call::Control { .. } | Call::AllocateWithin { .. }) => {
                continue;
            }
            Err(_) if call == Call::Mapping(MappingCall::Sbrk) => continue,
            plan => plan.map_err(|why| refused(&why))?,
        };
        planned.push((call, entry, plan));
        planned_names.push(function.name);
    }
    if let Functions::Named(named) = wanted.functions {
        let is_missing = |name: &&str| !planned_names.contains(&name.as_bytes());
        let usable_size = || named.usable_size().filter(|_| wanted.usable.is_none());
        if let Some(missing) = named.names().find(is_missing).or_else(usable_size) {
            return Err(format!("it has no function {missing}"));
        }
    }
    check_parts(wanted, symbols, &planned, &planned_names)?;
    if planned.is_empty() {
        return Ok(PatchPlan {
            jumps: Vec::new(),
            entries: Vec::new(),
            #[cfg(feature = "attach")]
            generated: StubCode {
                pages: 0..0,
                taps: Vec::new(),
            },
        });
    }
    let each = Check::MOST + EntryPatch::MOST_MOVED + 2 * TAIL + 16;
    let mut generated = GeneratedCode::near(wanted.code.clone(), planned.len() * each)
        .ok_or("there is no room for generated code near it")?;
    let mut jumps = Vec::new();
    #[cfg(feature = "attach")]
    let (mut moves, mut taps) = (Vec::new(), Vec::new());
    for ((call, entry, plan), name) in planned.iter().zip(&planned_names) {
        let is_flat = wanted.functions.is_flat(*call, name) || wanted.flat_names.contains(name);
        let check = match is_flat {
            true => check_of(*call).unwrap_or(Check::NONE),
            false => Check::NONE,
        };
        // Without a check, a tail comes first.
        let first = if check.len() == 0 { TAIL } else { check.len() };
        let start = generated.address();
        let moved_at = start + first as u64;
        let tap = Box::into_raw(Box::new(FunctionTap {
            call: *call,
            usable: wanted.usable,
            entry: *entry,
            moved: moved_at,
            code: wanted.code.clone(),
        }));
        #[cfg(feature = "attach")]
        taps.push(tap);
        let mut moved = [0; EntryPatch::MOST_MOVED];
        let len = plan
            .write_moved(moved_at, &mut moved)
            .map_err(|why| why.to_string())?;
        let number = tap as u64;
        let undecided = tail(number, undecided_stub as *const () as u64);
        let due = tail(number, due_stub as *const () as u64);
        let tails = moved_at + len as u64;
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
        moves.push((*entry, moved_at));
    }
    let seal = |why| format!("generated code cannot be made executable: {why}");
    #[cfg_attr(not(feature = "attach"), expect(unused, reason = "they stay for good"))]
    let pages = generated.seal().map_err(seal)?;
    #[cfg(feature = "attach")]
    for (entry, moved) in moves {
        allocator::redirect(entry, moved);
        mapping_shims::redirect(entry, moved);
    }
    let entries = planned.iter().map(|&(_, entry, _)| entry).collect();
    Ok(PatchPlan {
        jumps,
        entries,
        #[cfg(feature = "attach")]
        generated: StubCode { pages, taps },
    })
}
