//! The walk: from a sampled malloc out to the thread's first function.
//!
//! framehop, or a cached rule that it has derived, turns the registers of one frame into those of
//! the next. This file does the work that framehop leaves to its caller. That is readable memory
//! (`stack_bounds`), loaded modules (`modules`), our own frames, signal frames, and the decision to
//! stop.
//!
//! A walk never faults and never loops: reads are bounded, the stack pointer must rise, and the
//! number of frames has a limit. It ends with a reason.

use std::ops::Range;

use framehop::{CacheNative, Error, FrameAddress, UnwindRegsNative, Unwinder};
use heapprof_core::{Cursor, Frame, MemoHit, Rule};
use heapprof_format::WalkEnd;

use crate::arch::signal_frame;
use crate::state::thread::Entered;
use crate::unwind::cfi_storage::CfiStorage;
use crate::unwind::jit_ranges;
use crate::unwind::known_code;
use crate::unwind::modules::{self, Hazard};
#[cfg(target_env = "musl")]
use crate::unwind::musl_code;
use crate::unwind::stack_bounds::ReadableStack;
use crate::unwind::walker::{self, Walked, Walker};

#[cfg(target_env = "musl")]
mod musl;
#[cfg(feature = "verify")]
mod verify;

#[cfg(feature = "verify")]
pub(crate) use verify::verify;

/// The start of a walk: the registers at one instruction.
#[derive(Clone, Copy)]
pub(crate) struct WalkStart(Cursor);

impl WalkStart {
    /// Returns the start at the caller of a function. `sp` and `bp` are the stack and frame
    /// pointers at the function's first instruction, where the return address is on top of the
    /// stack.
    ///
    /// # Safety
    /// `sp` was the stack pointer at the first instruction of a function that has not returned.
    #[inline(always)]
    pub(crate) unsafe fn caller(sp: *const u64, bp: u64) -> WalkStart {
        WalkStart(Cursor {
            // SAFETY: the caller's promise.
            address: unsafe { *sp },
            returns: true,
            sp: sp as u64 + 8,
            bp,
        })
    }

    /// Returns the address of the instruction, or of the one that the function returns to.
    pub(crate) fn address(&self) -> u64 {
        self.0.address
    }

    /// Returns the start at an instruction that is being executed.
    #[inline(always)]
    pub(crate) fn running(pc: u64, sp: u64, bp: u64) -> WalkStart {
        WalkStart(Cursor {
            address: pc,
            returns: false,
            sp,
            bp,
        })
    }
}

/// Returns the registers at this point of the calling function, as the start of a walk.
macro_rules! current_registers {
    () => {{
        let (pc, sp, bp) = $crate::arch::registers::current_registers!();
        $crate::unwind::walk::WalkStart::running(pc, sp, bp)
    }};
}
pub(crate) use current_registers;

/// At boot: learns the addresses that walks need. `depth` is in frames of the program.
pub(crate) fn prepare(depth: u32) {
    walker::set_depth(depth);
    known_code::prepare();
    #[cfg(target_env = "musl")]
    musl_code::prepare();
}

/// Returns true if `dl_iterate_phdr` is among this thread's callers. It holds a lock that a thread
/// in dlopen may wait for, which in turn holds a lock that pthread_create needs. So a thread that
/// is created here might wait for ever.
#[cold]
pub(crate) fn is_in_dl_iterate_phdr(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    start: WalkStart,
) -> bool {
    walk(entered, walker, hazard, 0, start);
    let code = known_code::dl_iterate_phdr();
    let mut frames = walker.memos.chosen().innermost_first();
    frames.any(|frame| code.contains(&frame.address))
}

/// Walks the stack of this thread from `start`. `entry`, a PC inside the called allocation
/// function, is recorded as the first frame. Afterwards the frames are in the walker's memo.
#[inline(always)]
pub(crate) fn walk(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    entry: u64,
    start: WalkStart,
) -> Walked {
    let WalkStart(place) = start;
    let stack = ReadableStack::around(entered.thread, place.sp);
    // The snapshot is not needed: while no module is unloaded, each address belongs to the same
    // code.
    let era = modules::era();
    let at = Frame::new(place.address, place.returns, place.sp, place.bp, 0);
    let memos = &mut walker.memos;
    memos.choose(&at);
    match memos.find_unchanged(era, &at, |words| stack.match_all(words)) {
        Some((of_entry, walked)) if of_entry == entry => walked,
        _ => walk_without_echo(entered, walker, hazard, entry, place, stack, era),
    }
}

/// Slow path of [`walk`], if no echo matches.
#[inline(never)]
fn walk_without_echo(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    entry: u64,
    place: Cursor,
    mut stack: ReadableStack,
    era: u32,
) -> Walked {
    let depth = walker::depth();
    walker.set_era(era);
    let at = Frame::new(place.address, place.returns, place.sp, place.bp, 0);
    let (memo, rules) = (walker.memos.chosen_mut(), &walker.rules);
    if memo.is_repeated(era, &at, depth, rules, stack.words()) {
        let walked = result_of_last(walker, entry);
        if stack.is_own() {
            walker.memos.echo(era, (entry, walked));
        }
        return walked;
    }
    walk_frames(entered, walker, hazard, entry, place, stack)
}

/// Returns the result of the walk that has just ended.
#[inline(always)]
fn result_of_last(walker: &mut Walker, entry: u64) -> Walked {
    let memo = walker.memos.chosen();
    let (end, frames) = (memo.why_ended(), memo.hash());
    let last = (entry, frames, end);
    if walker.last.0 != last {
        walker.last = (last, frames.finish(entry, end as u64));
    }
    Walked {
        hash: walker.last.1,
        end,
    }
}

#[inline(never)]
fn walk_frames(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    entry: u64,
    place: Cursor,
    stack: ReadableStack,
) -> Walked {
    let own = known_code::own();
    let mut walk = Walk {
        place,
        stack,
        module: own.clone(),
        module_number: 0,
        own,
        depth: walker::depth(),
        signal_return: known_code::signal_return(),
        context_root: known_code::context_root(),
    };
    let (mut has_revalidated, mut has_begun) = (false, false);
    loop {
        let Some(snapshot) = hazard.protect() else {
            return Walked {
                hash: 1,
                end: WalkEnd::Busy,
            };
        };
        if modules::is_stale(snapshot) && !has_revalidated && !has_begun {
            has_revalidated = true;
            modules::revalidate(entered);
            continue; // uses the snapshot in force now
        }
        if !has_begun {
            has_begun = true;
            // Cached results belong to the era of this snapshot, because another thread may have
            // prevented its revalidation.
            let era = snapshot.era();
            walker.new_frames.clear();
            walker.memos.chosen_mut().begin(era);
            walker.set_era(era);
        }
        let end = match walk.run(entered, walker, snapshot) {
            Pause::Reused => None,
            Pause::End(end) => Some(end),
            // The snapshot lacks a module: add it, and continue with the next snapshot.
            Pause::Unknown(address) => {
                if modules::discover(entered, address) {
                    continue;
                }
                match walk.cross_unknown(walker, snapshot) {
                    None => continue,
                    end => end,
                }
            }
        };
        if let Some(end) = end {
            let is_whole = end != WalkEnd::TooDeep;
            let memo = walker.memos.chosen_mut();
            memo.end(&mut walker.new_frames, end, is_whole);
        }
        return result_of_last(walker, entry);
    }
}

/// The state of a walk.
struct Walk {
    /// The frame whose caller comes next.
    place: Cursor,
    stack: ReadableStack,
    /// The module of the last frame; the next frame is mostly in the same one.
    module: Range<u64>,
    /// The module's number plus one; 0: the frame is in no module.
    module_number: u32,
    own: Range<u64>,
    depth: usize,
    signal_return: u64,
    context_root: u64,
}

/// The reason why a run over the frames pauses.
enum Pause {
    /// The memo has the rest of the frames, and the end.
    Reused,
    End(WalkEnd),
    /// The current frame is in no module of the snapshot.
    Unknown(u64),
}

impl Walk {
    /// Walks until the walk ends or must pause. It is a separate function because unwinding and
    /// learning a module (`walk_frames`) both need much of the program's stack. Their stack frames
    /// must not add up.
    #[inline(never)]
    fn run(
        &mut self,
        entered: &Entered,
        walker: &mut Walker,
        snapshot: &modules::ModuleSnapshot,
    ) -> Pause {
        loop {
            let place = self.place;
            if place.returns && place.address == self.context_root {
                return Pause::End(WalkEnd::Root);
            }
            let lookup = place.address.wrapping_sub(u64::from(place.returns));
            let own = self.own.contains(&lookup);
            let mut rule = None;
            if !own {
                let (memo, rules) = (walker.memos.chosen_mut(), &walker.rules);
                let new_frames = &mut walker.new_frames;
                if memo.depth(new_frames) + 1 >= self.depth {
                    return Pause::End(WalkEnd::TooDeep);
                }
                // If the memo contains this frame, it also has the frame's module.
                let frame = self.frame();
                let (never, words) = (self.signal_return, self.stack.words());
                match memo.look_up(&frame, new_frames, self.depth, never, rules, words) {
                    MemoHit::None => {}
                    MemoHit::Full => return Pause::Reused,
                    MemoHit::Partial(place) => {
                        self.place = place;
                        continue;
                    }
                }
                // If the rule cache contains a rule for the address, the rule has the module, too.
                if place.returns {
                    rule = rules.get(place.address);
                }
                if let Some(rule) = rule
                    && let Some(caller) = self.unwind(rule, new_frames)
                {
                    self.place = caller;
                    continue;
                }
            }
            // The module of the current frame may have just been found.
            if !self.module.contains(&lookup) {
                match snapshot.find(lookup) {
                    Some(entry) => {
                        self.module = entry.range.clone();
                        self.module_number = entry.number + 1;
                    }
                    None => return Pause::Unknown(lookup),
                }
            }
            let Some(at) = place_of_code(place) else {
                return Pause::End(WalkEnd::Root);
            };
            #[cfg(target_env = "musl")]
            if musl_code::contains(lookup) {
                match self.leave_libc(entered, walker) {
                    None => continue,
                    Some(end) => return Pause::End(end),
                }
            }
            // The frame is written in its place, and read again only after the walk. A copy made
            // now would wait for the stores before it.
            walker.new_frames.push(self.frame());
            let Some(frame) = walker.new_frames.last_mut() else {
                return Pause::End(WalkEnd::TooDeep); // unreachable: it was pushed
            };
            let (cache, stack) = (&mut walker.cache, &mut self.stack);
            let mut regs = UnwindRegsNative::new(place.address, place.sp, place.bp);
            entered.thread.rule_wanted_for.set(lookup as u32);
            let next = snapshot
                .unwinder
                .unwind_frame(at, &mut regs, cache, &mut |address| {
                    let word = stack.word(address)?;
                    frame.note(address, word);
                    Ok(word)
                });
            let crossing = matches!(next, Ok(Some(address)) if address == self.signal_return);
            if crossing {
                frame.note_more(); // the words of the trampoline's frame are not all noted
            }
            if own {
                walker.new_frames.pop();
            } else if rule.is_none() && place.returns && matches!(next, Ok(Some(_))) {
                let rule = rule_of(snapshot, cache, at, self.module_number);
                walker.rules.insert(place.address, rule);
            }
            match next {
                Ok(Some(0)) | Ok(None) | Err(Error::ReturnAddressIsNull) => {
                    return Pause::End(WalkEnd::Root);
                }
                Ok(Some(_)) if crossing => {
                    if let Err(end) = self.cross_signal(entered, walker, regs.sp()) {
                        return Pause::End(end);
                    }
                }
                Ok(Some(address)) => {
                    if regs.sp() <= place.sp {
                        return Pause::End(WalkEnd::NotAdvancing);
                    }
                    self.place = Cursor {
                        address,
                        returns: true,
                        sp: regs.sp(),
                        bp: regs.bp(),
                    };
                }
                Err(Error::CouldNotReadStack(_)) => {
                    return Pause::End(WalkEnd::StackUnreadable);
                }
                Err(Error::DidNotAdvance) => return Pause::End(WalkEnd::NotAdvancing),
                // framehop falls back to frame pointers if a table has no entry.
                Err(Error::FramepointerUnwindingMovedBackwards | Error::IntegerOverflow) => {
                    return Pause::End(match known_code::loader().contains(&lookup) {
                        true => WalkEnd::Root,
                        false => WalkEnd::NoRule,
                    });
                }
            }
        }
    }

    /// Unwinds the current frame by a rule, and adds it to `new_frames`. `None`: framehop must
    /// unwind it.
    #[inline(always)]
    fn unwind(&mut self, rule: Rule, new_frames: &mut Vec<Frame>) -> Option<Cursor> {
        new_frames.push(self.frame());
        let words = self.stack.words();
        let caller = new_frames.last_mut()?.unwind(rule, words);
        // The signal trampoline is not a caller: `cross_signal` finds the interrupted frame behind
        // it.
        let caller = caller.filter(|caller| caller.address != self.signal_return);
        if caller.is_none() {
            new_frames.pop();
        }
        caller
    }

    #[inline(always)]
    fn frame(&self) -> Frame {
        let place = self.place;
        let module = self.module_number;
        Frame::new(place.address, place.returns, place.sp, place.bp, module)
    }

    /// Continues at the instruction that the signal interrupted. The caller is the kernel's
    /// trampoline.
    #[cold]
    fn cross_signal(
        &mut self,
        entered: &Entered,
        walker: &mut Walker,
        context: u64,
    ) -> Result<(), WalkEnd> {
        let mut word = |offset: u64| {
            self.stack
                .word(context.wrapping_add(offset))
                .map_err(|()| WalkEnd::StackUnreadable)
        };
        let (bp, sp, pc) = (
            word(signal_frame::BP_AT)?,
            word(signal_frame::SP_AT)?,
            word(signal_frame::PC_AT)?,
        );
        self.place = Cursor {
            address: pc,
            returns: false,
            sp,
            bp,
        };
        // The handler may have run on a stack of its own. A program that never returns to the
        // interrupted stack (it longjmps between signal stacks) could lead the walk in circles. The
        // depth limit ends such a walk.
        self.stack = ReadableStack::around(entered.thread, sp);
        // Stack pointers are no longer in order, so a search upwards cannot find the memo's frames.
        walker.memos.chosen_mut().stop_reuse();
        Ok(())
    }

    /// Continues at the caller of a frame that lies in no module: it is code made at run time, or
    /// the walk follows wrong data. The caller is used if the frame pointer leads to code. The memo
    /// never contains such a frame, because no event tells when other code comes to its address.
    #[cold]
    fn cross_unknown(
        &mut self,
        walker: &mut Walker,
        snapshot: &modules::ModuleSnapshot,
    ) -> Option<WalkEnd> {
        if walker.memos.chosen().depth(&walker.new_frames) + 1 >= self.depth {
            return Some(WalkEnd::TooDeep);
        }
        // Forgets the current module. The next frame looks its own up, even if it is the same one;
        // the rule cache makes that rare.
        (self.module, self.module_number) = (0..0, 0);
        let mut frame = self.frame();
        frame.note_more();
        walker.new_frames.push(frame);
        let Cursor { sp, bp, .. } = self.place;
        if bp < sp || bp & 7 != 0 {
            return Some(WalkEnd::NoModule);
        }
        let (Ok(next_bp), Ok(address)) = (self.stack.word(bp), self.stack.word(bp.wrapping_add(8)))
        else {
            return Some(WalkEnd::NoModule);
        };
        let Some(at) = FrameAddress::from_return_address(address) else {
            return Some(WalkEnd::NoModule);
        };
        let lookup = at.address_for_lookup();
        // A stack may be executable, because gcc puts small functions there that jump to others.
        // They contain no return addresses.
        let is_made = || !self.stack.contains(lookup) && jit_ranges::contains(lookup);
        if !snapshot.is_code(lookup) && !is_made() {
            return Some(WalkEnd::NoModule);
        }
        self.place = Cursor {
            address,
            returns: true,
            sp: bp + 16,
            bp: next_bp,
        };
        None
    }
}

/// Converts a place to framehop's form. `None`: a return to address 0.
#[inline]
fn place_of_code(place: Cursor) -> Option<FrameAddress> {
    match place.returns {
        true => FrameAddress::from_return_address(place.address),
        false => Some(FrameAddress::InstructionPointer(place.address)),
    }
}

/// Returns the rule by which framehop has just unwound a frame at that address.
#[cold]
fn rule_of(
    snapshot: &modules::ModuleSnapshot,
    cache: &mut CacheNative<CfiStorage>,
    at: FrameAddress,
    module: u32,
) -> Rule {
    let hits = cache.stats().hit_count;
    let rule = Rule::ask(module, |sp, bp, word| {
        let mut regs = UnwindRegsNative::new(at.address(), sp, bp);
        let read = &mut |address| Ok(word(address));
        let address = snapshot
            .unwinder
            .unwind_frame(at, &mut regs, cache, read)
            .ok()??;
        Some(Cursor {
            address,
            returns: true,
            sp: regs.sp(),
            bp: regs.bp(),
        })
    });
    // The rules in framehop's cache do no arithmetic on registers. A rule that is not in the cache
    // is unknown.
    match cache.stats().hit_count == hits {
        true => Rule::other(module),
        false => rule,
    }
}
