//! Attached taps: the allocators of a running process that are tapped, by module.
//!
//! The entries are listed in the attach block, by which `heapprof` changes and restores them from
//! outside. The allocators of libraries that come later are changed by a thread of the program
//! ([`super::library_changes`]), which lists them first. So the list has every entry that may be
//! changed.
//!
//! A module may go, and another one may come to its place. During a recording the loader tells. At
//! the start of the next recording, a module is known by its place and by its first page, which has
//! the headers and the build-id.
//!
//! Danger: generated code is unmapped when its module has gone. The loader unmaps a module when
//! nobody may call it any more, and a call through a tap is a call of the module.

use std::hash::Hasher as _;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use heapprof_core::NumberHasher;
use heapprof_format::AttachPatch;

use super::plan::{PatchPlan, StubCode};
use super::user_functions::{self, NamedFunctions};
use super::{TapOutcome, for_each_allocator, note_absent_modules};
use crate::os::diagnostics;
use crate::os::link_map::{self, Module};
use crate::recording::attach_block::{Changes, heapprof_attach_block as BLOCK};
use crate::unwind::checked_read::Memory;

/// Bytes of a module that tell it from others: those of the first page.
const HEAD: usize = 4096;

/// Returns a hash of a module's first page. No entry is changed at the time: code may be there.
fn head_of(module: &Module, memory: &Memory) -> u64 {
    let mut hasher = NumberHasher::default();
    if let Some(head) = memory.bytes(module.address(0), HEAD) {
        hasher.write(&head);
    }
    hasher.finish()
}

/// Changes the listed entries of an allocator, or says why none is changed.
type Change<'a> = &'a dyn Fn(&PatchPlan) -> Result<(), String>;

/// A module with tapped allocators.
struct TappedModule {
    /// The address from which its own addresses count.
    bias: u64,
    /// The address of its dynamic section.
    identity: usize,
    /// See [`head_of`].
    head: u64,
    /// The functions that the user named in it.
    named: Vec<&'static NamedFunctions>,
    /// The numbers of the allocators in the attach block, each with its code.
    groups: Vec<(u16, StubCode)>,
    /// The allocators in words.
    allocators: Vec<String>,
    /// True if the module's functions for mappings are tapped.
    maps: bool,
}

/// The tapped modules of this process.
pub(super) struct Attached {
    modules: Vec<TappedModule>,
}

/// The functions that are tapped for a recording.
pub(crate) struct Tapped {
    /// The allocators, in words.
    pub(crate) allocators: Vec<String>,
    /// True if libc's functions for mappings are.
    pub(crate) maps: bool,
}

/// A thread that finds it locked leaves it alone.
static ATTACHED: Mutex<Attached> = Mutex::new(Attached {
    modules: Vec::new(),
});

/// Returns the tapped modules. `None`: another thread works with them, or did so in the parent when
/// this process was forked.
pub(super) fn lock() -> Option<MutexGuard<'static, Attached>> {
    ATTACHED.try_lock().ok()
}

/// Before a recording: prepares the taps of all allocators, those of the library that serves the
/// program among them. No entry is changed yet. Taps of an earlier recording stay valid.
/// `is_quiet`: no thread is in code of an earlier recording. `named`: functions that the user
/// names. Calls `begin` while the loader's list is that of the result.
///
/// # Errors
/// Why the process cannot be recorded.
pub(crate) fn prepare(is_quiet: bool, named: &str, begin: fn()) -> Result<Tapped, String> {
    user_functions::set(named)?;
    // A process that was forked while another thread had the lock cannot be attached to.
    let mut attached = lock().ok_or("another thread was opening a library when it was forked")?;
    let mut refused = None;
    link_map::while_unchanged(&mut || {
        let gone = attached.take_replaced();
        if is_quiet {
            // SAFETY: all entries are restored before a recording begins, and no thread is in the
            // code, as `heapprof attach` has seen.
            gone.into_iter().for_each(|each| unsafe { each.free() });
        }
        for module in link_map::modules().filter(|module| !module.is_ours()) {
            if attached.knows(module) {
                continue;
            }
            for outcome in attached.tap(module, None) {
                match outcome {
                    TapOutcome::Tapped(_)
                    | TapOutcome::TappedNext(_)
                    | TapOutcome::TappedMappings => {}
                    TapOutcome::RefusedMalloc(why) => refused = Some(why),
                    TapOutcome::Refused(why) => diagnostics::put_notice_for_next_log(format_args!(
                        "blocks of {why}; they are not recorded"
                    )),
                    TapOutcome::RefusedLoader(why) => {
                        diagnostics::put_notice_for_next_log(format_args!(
                            "allocators in libraries that the program opens from here on are not \
                         recorded: {why}"
                        ))
                    }
                    TapOutcome::RefusedMappings(why) => diagnostics::put_notice_for_next_log(
                        format_args!("mappings are recorded without stacks: {why}"),
                    ),
                }
            }
        }
        note_absent_modules();
        begin();
    });
    let modules = attached.modules.iter();
    let allocators: Vec<_> = modules
        .flat_map(|module| module.allocators.clone())
        .collect();
    match refused {
        Some(why) => Err(format!("its malloc cannot be tapped: {why}")),
        None if allocators.is_empty() => Err("its malloc was not found".into()),
        None => Ok(Tapped {
            allocators,
            maps: attached.modules.iter().any(|module| module.maps),
        }),
    }
}

impl Attached {
    fn knows(&self, module: &Module) -> bool {
        let bias = module.address(0);
        self.modules.iter().any(|known| known.bias == bias)
    }

    /// Prepares the taps of a module's allocators, none of which is tapped, and lists their
    /// entries. During a recording, `change` changes the listed entries of each allocator, or none.
    /// If it fails, the allocator is taken from the list again.
    pub(super) fn tap(&mut self, module: &Module, change: Option<Change<'_>>) -> Vec<TapOutcome> {
        let head = head_of(module, &Memory::open());
        let mut groups: Vec<(u16, StubCode)> = Vec::new();
        let mut outcomes = Vec::new();
        let take = &mut |planned: &PatchPlan, _: &Range<u64>| {
            let known = self.modules.iter().flat_map(|module| &module.groups);
            let used: Vec<u16> = known.chain(&groups).map(|&(number, _)| number).collect();
            let free = (0..=u16::MAX).find(|number| !used.contains(number));
            let number = free.ok_or("there are too many allocators")?;
            let done = list_and_change(planned, number, change);
            match done {
                Ok(()) => groups.push((number, planned.generated.clone())),
                // SAFETY: no entry is changed after a failure, so no jump has led to the code.
                Err(_) => unsafe { planned.generated.clone().free() },
            }
            done
        };
        for_each_allocator(module, false, Some(take), &mut outcomes);
        if !groups.is_empty() {
            let tapped = outcomes.iter().filter_map(|outcome| match outcome {
                TapOutcome::Tapped(what) | TapOutcome::TappedNext(what) => Some(what.clone()),
                _ => None,
            });
            self.modules.push(TappedModule {
                bias: module.address(0),
                identity: module.identity(),
                head,
                named: user_functions::in_module(module).collect(),
                groups,
                allocators: tapped.collect(),
                maps: (outcomes.iter())
                    .any(|outcome| matches!(outcome, TapOutcome::TappedMappings)),
            });
        }
        outcomes
    }

    /// While no entry is changed: removes the modules that are gone, or have another one at their
    /// place, and those in which the user names other functions than before. Returns their code.
    /// The loader's list does not change meanwhile.
    fn take_replaced(&mut self) -> Vec<StubCode> {
        let memory = Memory::open();
        self.take_unless(|known, module| {
            head_of(module, &memory) == known.head
                && user_functions::in_module(module).eq(known.named.iter().copied())
        })
    }

    /// During a recording: removes the modules that are gone, or have one of these at their place,
    /// which have just come. Returns their code. The loader's list does not change meanwhile.
    pub(super) fn take_gone(&mut self, come: &[&Module]) -> Vec<StubCode> {
        let is_new = |module: &Module| come.iter().any(|it| it.identity() == module.identity());
        self.take_unless(|_, module| !is_new(module))
    }

    /// Removes each module that the loader does not list, or that `stays` is false for with the
    /// module at its place. Takes their entries from the list, and returns their code.
    fn take_unless(&mut self, stays: impl Fn(&TappedModule, &Module) -> bool) -> Vec<StubCode> {
        let is_gone = |known: &mut TappedModule| {
            let mut modules = link_map::modules();
            let is_at =
                |it: &&Module| it.identity() == known.identity && it.address(0) == known.bias;
            modules
                .find(is_at)
                .is_none_or(|module| !stays(known, module))
        };
        let gone: Vec<_> = self.modules.extract_if(.., is_gone).collect();
        let groups = gone.into_iter().flat_map(|module| module.groups);
        groups
            .map(|(number, generated)| {
                BLOCK.remove(number);
                generated
            })
            .collect()
    }
}

/// Lists the entries of an allocator, and changes them. None is listed and none is changed after a
/// failure.
fn list_and_change(
    planned: &PatchPlan,
    group: u16,
    change: Option<Change<'_>>,
) -> Result<(), String> {
    let Some(change) = change else {
        return list(planned, group);
    };
    let _changes = Changes::begin().ok_or("the recording was about to end")?;
    list(planned, group)?;
    let changed = change(planned);
    if changed.is_err() {
        BLOCK.remove(group);
    }
    changed
}

/// Lists the entries of an allocator, all or none.
fn list(planned: &PatchPlan, group: u16) -> Result<(), String> {
    if BLOCK.room() < planned.jumps.len() {
        return Err("there are too many functions".into());
    }
    for jump in &planned.jumps {
        BLOCK.push(&AttachPatch {
            at: jump.at,
            old: jump.old,
            new: jump.new,
            moved: jump.moved as u8,
            group,
        });
    }
    Ok(())
}
