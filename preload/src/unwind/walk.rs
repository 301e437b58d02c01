//! The walk: from a sampled malloc out to the thread's first function.
//!
//! framehop, or a rule that it was asked for before, turns one frame's registers into the next's; here is what it leaves to its caller: which
//! memory may be read (`unwind/stack_bounds.rs`), which modules there are (`unwind/modules.rs`), our own frames, signal
//! frames, and when to stop. A walk never faults and never loops: reads are bounded, the stack
//! pointer must rise, and the number of frames has a limit. It ends with a reason.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use framehop::{CacheNative, Error, FrameAddress, UnwindRegsNative, Unwinder};
use heapprof_core::{Cursor, Frame, MemoHit, Rule};
use heapprof_format::WalkEnd;

use crate::arch::signal_frame;
use crate::os::{libc_trampolines, link_map, sys};
use crate::state::thread::Entered;
use crate::unwind::cfi_storage::Room;
use crate::unwind::jit_ranges;
use crate::unwind::modules::{self, Hazard};
#[cfg(target_env = "musl")]
use crate::unwind::musl_code;
use crate::unwind::stack_bounds::Readable;
use crate::unwind::walker::{self, Walked, Walker};

#[cfg(target_env = "musl")]
mod musl;
#[cfg(feature = "verify")]
mod verify;

#[cfg(feature = "verify")]
pub(crate) use verify::verify;

/// Where a walk begins: the registers at one instruction.
#[derive(Clone, Copy)]
pub(crate) struct Here(Cursor);

impl Here {
    /// Of the caller of a function whose first instruction had the stack pointer `sp` and the frame
    /// pointer `bp`: the return address is on top of the stack.
    ///
    /// # Safety
    /// `sp` was the stack pointer at the first instruction of a function that has not returned.
    #[inline(always)]
    pub(crate) unsafe fn caller(sp: *const u64, bp: u64) -> Here {
        Here(Cursor {
            // SAFETY: the caller's promise.
            address: unsafe { *sp },
            returns: true,
            sp: sp as u64 + 8,
            bp,
        })
    }

    /// At an instruction that is running.
    #[inline(always)]
    pub(crate) fn running(pc: u64, sp: u64, bp: u64) -> Here {
        Here(Cursor {
            address: pc,
            returns: false,
            sp,
            bp,
        })
    }
}

/// The registers at this point of the calling function, to begin a walk there.
macro_rules! current_registers {
    () => {{
        let (pc, sp, bp) = $crate::arch::registers::current_registers!();
        $crate::unwind::walk::Here::running(pc, sp, bp)
    }};
}
pub(crate) use current_registers;

/// Address of libc's signal return trampoline, to which handlers return.
static SIGNAL_RETURN: AtomicU64 = AtomicU64::new(0);
/// Where functions of `makecontext` return to, if they do: the root of a stack that it made. The address is a function's first, so
/// that no unwind table speaks of the place before it.
static CONTEXT_ROOT: AtomicU64 = AtomicU64::new(0);
/// The loader's code. Its entry has no unwind table: a walk that ends there has come to the root, in a thread
/// that is still running the constructors.
static LOADER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The code of libc's `dl_iterate_phdr`, which calls the program's with a lock of the loader's held.
static ITERATES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Our own code, whose frames are not recorded.
static OWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// At boot: learns what walks need to know. `depth` is in frames of the program.
pub(crate) fn prepare(depth: u32) {
    walker::set_depth(depth);
    // SAFETY: a snapshot in force at boot is replaced by nobody yet.
    let snapshot = unsafe { modules::current().as_ref() };
    if let Some(own) = snapshot.and_then(|s| s.find(prepare as *const () as u64)) {
        OWN[0].store(own.range.start, Ordering::Relaxed);
        OWN[1].store(own.range.end, Ordering::Relaxed);
    }
    // SAFETY: asks for one number of the auxiliary vector.
    let loader = match unsafe { libc::getauxval(libc::AT_BASE) } {
        0 => link_map::start_of_loader(), // it was told to run the program
        base => base,
    };
    if let Some(loader) = snapshot.and_then(|s| s.find(loader)) {
        LOADER[0].store(loader.range.start, Ordering::Relaxed);
        LOADER[1].store(loader.range.end, Ordering::Relaxed);
    }
    if let Some(code) = libc_trampolines::code_in_libc(c"dl_iterate_phdr") {
        ITERATES[0].store(code.start as u64, Ordering::Relaxed);
        ITERATES[1].store(code.end as u64, Ordering::Relaxed);
    }
    SIGNAL_RETURN.store(signal_return().unwrap_or(0), Ordering::Relaxed);
    CONTEXT_ROOT.store(context_root().unwrap_or(0), Ordering::Relaxed);
    #[cfg(target_env = "musl")]
    musl_code::prepare();
}

/// Asks libc: a context is made that nobody enters.
#[cold]
#[inline(never)]
fn context_root() -> Option<u64> {
    extern "C" fn nobody() {}
    let code = libc_trampolines::code_in_libc(c"makecontext")?;
    // SAFETY: libc's own, which has this type.
    let makecontext: unsafe extern "C" fn(*mut libc::ucontext_t, extern "C" fn(), i32, ...) =
        unsafe { std::mem::transmute(code.start) };
    let mut stack = [0_u64; 32];
    // SAFETY: numbers and null pointers; it is not entered.
    let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
    context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
    context.uc_stack.ss_size = size_of_val(&stack);
    // SAFETY: a context and its stack of ours. It writes to the stack's last three words.
    unsafe { makecontext(&raw mut context, nobody, 0) };
    let top = signal_frame::stack_pointer_of(&context) as usize;
    let word = top.checked_sub(stack.as_ptr() as usize)? / 8;
    std::hint::black_box(&stack).get(word).copied()
}

/// Whether this thread is called by `dl_iterate_phdr`. It holds a lock then that a thread in dlopen may wait for, which itself holds
/// one that pthread_create wants: whoever makes a thread here may wait for ever.
#[cold]
pub(crate) fn is_in_iteration(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    here: Here,
) -> bool {
    walk(entered, walker, hazard, 0, here);
    let [start, end] = ITERATES.each_ref().map(|it| it.load(Ordering::Relaxed));
    let mut frames = walker.memos.chosen().innermost_first();
    frames.any(|frame| (start..end).contains(&frame.address))
}

/// glibc tells the kernel its trampoline with every sigaction, also one that changes nothing. So: give a
/// signal the disposition it has, and ask the kernel what it was told. Nothing else names the
/// trampoline: it is no symbol, and its unwind table needs what framehop cannot do. Then it is as it was (programs
/// would see a flag more).
fn signal_return() -> Option<u64> {
    let signal = libc::SIGRTMAX();
    let before = sys::sigaction_of(signal)?;
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: at boot, before the program's first thread: reads the disposition of an unused signal
    // into a struct of ours and sets it to the same.
    unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return None;
        }
        libc::sigaction(signal, action.as_ptr(), std::ptr::null_mut());
    }
    let told = sys::sigaction_of(signal);
    // SAFETY: asked for above, at boot, with no other thread.
    unsafe { sys::restore_sigaction(signal, &before) };
    told.map(|action| action.restorer)
        .filter(|&restorer| restorer != 0)
}

/// Walks the stack of this thread from `here`. `entry` is recorded as the first frame: a PC inside
/// the allocation function that was called. The frames are then in the walker's memo.
#[inline(always)]
pub(crate) fn walk(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    entry: u64,
    here: Here,
) -> Walked {
    let Here(place) = here;
    let stack = Readable::around(entered.thread, place.sp);
    // No snapshot is looked at: as long as nothing was unloaded, whatever code the addresses are in is the same.
    let era = modules::era();
    let at = Frame::new(place.address, place.returns, place.sp, place.bp, 0);
    let memos = &mut walker.memos;
    memos.choose(&at);
    match memos.find_unchanged(era, &at, |words| stack.hold(words)) {
        Some((of_entry, walked)) if of_entry == entry => walked,
        _ => walk_unheard(entered, walker, hazard, entry, place, stack, era),
    }
}

/// The same of a walk that is not known to be the last one again.
#[inline(never)]
fn walk_unheard(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    entry: u64,
    place: Cursor,
    mut stack: Readable,
    era: u32,
) -> Walked {
    let depth = walker::depth();
    walker.set_era(era);
    let at = Frame::new(place.address, place.returns, place.sp, place.bp, 0);
    let (memo, rules) = (walker.memos.chosen_mut(), &walker.rules);
    if memo.is_again(era, &at, depth, rules, stack.words()) {
        let walked = found(walker, entry);
        if stack.is_own() {
            walker.memos.echo(era, (entry, walked));
        }
        return walked;
    }
    walk_anew(entered, walker, hazard, entry, place, stack)
}

/// What the walk that has just ended found.
#[inline(always)]
fn found(walker: &mut Walker, entry: u64) -> Walked {
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
fn walk_anew(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    entry: u64,
    place: Cursor,
    stack: Readable,
) -> Walked {
    let own = OWN[0].load(Ordering::Relaxed)..OWN[1].load(Ordering::Relaxed);
    let mut step = Step {
        place,
        stack,
        module: own.clone(),
        module_number: 0,
        own,
        depth: walker::depth(),
        signal_return: SIGNAL_RETURN.load(Ordering::Relaxed),
        context_root: CONTEXT_ROOT.load(Ordering::Relaxed),
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
            continue; // with the snapshot that is in force now
        }
        if !has_begun {
            has_begun = true;
            // What is learnt now is of the time of this snapshot, which another thread may have kept us from looking through.
            let era = snapshot.era();
            walker.fresh.clear();
            walker.memos.chosen_mut().begin(era);
            walker.set_era(era);
        }
        let end = match step.run(entered, walker, snapshot) {
            Pause::Rest => None,
            Pause::End(end) => Some(end),
            // A module that the snapshot does not know: learn it, go on with the next snapshot.
            Pause::Unknown(address) => {
                if modules::discover(entered, address) {
                    continue;
                }
                match step.cross_unknown(walker, snapshot) {
                    None => continue,
                    end => end,
                }
            }
        };
        if let Some(end) = end {
            let is_whole = end != WalkEnd::TooDeep;
            let memo = walker.memos.chosen_mut();
            memo.end(&mut walker.fresh, end, is_whole);
        }
        return found(walker, entry);
    }
}

/// A walk under way.
struct Step {
    /// The frame whose caller comes next.
    place: Cursor,
    stack: Readable,
    /// The module of the last frame: its neighbour is mostly in the same one.
    module: Range<u64>,
    /// Its number plus one; 0: the frame is in none.
    module_number: u32,
    own: Range<u64>,
    depth: usize,
    signal_return: u64,
    context_root: u64,
}

/// Why a run over the frames paused.
enum Pause {
    /// The rest is that of the last walk, its end too.
    Rest,
    End(WalkEnd),
    /// The current frame lies in no module of the snapshot.
    Unknown(u64),
}

impl Step {
    /// Goes on until it ends or must pause. A function of its own: unwinding takes a kilobyte of the program's stack, learning a
    /// module (`walk_anew`) takes more, and they need not stand on each other.
    #[inline(never)]
    fn run(
        &mut self,
        entered: &Entered,
        walker: &mut Walker,
        snapshot: &modules::Snapshot,
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
                let fresh = &mut walker.fresh;
                if memo.depth(fresh) + 1 >= self.depth {
                    return Pause::End(WalkEnd::TooDeep);
                }
                // Which module it is in, the memo knows, if it is there.
                let frame = self.frame();
                let (never, words) = (self.signal_return, self.stack.words());
                match memo.look_up(&frame, fresh, self.depth, never, rules, words) {
                    MemoHit::None => {}
                    MemoHit::Full => return Pause::Rest,
                    MemoHit::Partial(place) => {
                        self.place = place;
                        continue;
                    }
                }
                // So do the rules.
                if place.returns {
                    rule = rules.get(place.address);
                }
                if let Some(rule) = rule
                    && let Some(caller) = self.unwind(rule, fresh)
                {
                    self.place = caller;
                    continue;
                }
            }
            // The current frame first: it may be one for which a module had to be found.
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
            if musl_code::holds(lookup) {
                match self.leave_libc(entered, walker) {
                    None => continue,
                    Some(end) => return Pause::End(end),
                }
            }
            // Written in its place, and read again only after the walk: a copy made now would wait for
            // the stores before it.
            walker.fresh.push(self.frame());
            let Some(frame) = walker.fresh.last_mut() else {
                return Pause::End(WalkEnd::TooDeep); // cannot be: it was pushed
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
                frame.note_more(); // the trampoline's frame: its words are not all noted
            }
            if own {
                walker.fresh.pop();
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
                // framehop falls back to frame pointers where a table says nothing.
                Err(Error::FramepointerUnwindingMovedBackwards | Error::IntegerOverflow) => {
                    let loader =
                        LOADER[0].load(Ordering::Relaxed)..LOADER[1].load(Ordering::Relaxed);
                    return Pause::End(match loader.contains(&lookup) {
                        true => WalkEnd::Root,
                        false => WalkEnd::NoRule,
                    });
                }
            }
        }
    }

    /// Unwinds the current frame by a rule, and adds it to the `fresh` ones. `None`: framehop is to be asked.
    #[inline(always)]
    fn unwind(&mut self, rule: Rule, fresh: &mut Vec<Frame>) -> Option<Cursor> {
        fresh.push(self.frame());
        let words = self.stack.words();
        let caller = fresh.last_mut()?.unwind(rule, words);
        // The signal trampoline is not the caller: what lies behind it is for `cross_signal` to find.
        let caller = caller.filter(|caller| caller.address != self.signal_return);
        if caller.is_none() {
            fresh.pop();
        }
        caller
    }

    #[inline(always)]
    fn frame(&self) -> Frame {
        let place = self.place;
        let module = self.module_number;
        Frame::new(place.address, place.returns, place.sp, place.bp, module)
    }

    /// The caller is the kernel's trampoline: go on at the instruction that the signal interrupted.
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
        // interrupted stack (it longjmps between signal stacks) could lead in circles: the depth
        // limit ends that.
        self.stack = Readable::around(entered.thread, sp);
        // Stack pointers are no longer in order: what the memo holds cannot be met by looking upwards.
        walker.memos.chosen_mut().look_up_no_more();
        Ok(())
    }

    /// The frame lies in no module at all: code made at run time, or the walk went astray. If it
    /// keeps a frame pointer that leads to code, go on there. The memo never holds such a frame: whether code of
    /// another kind has come to its address, nothing says.
    #[cold]
    fn cross_unknown(
        &mut self,
        walker: &mut Walker,
        snapshot: &modules::Snapshot,
    ) -> Option<WalkEnd> {
        if walker.memos.chosen().depth(&walker.fresh) + 1 >= self.depth {
            return Some(WalkEnd::TooDeep);
        }
        // The next frame's is looked for, though it may be that of the last: rules remember it.
        (self.module, self.module_number) = (0..0, 0);
        let mut frame = self.frame();
        frame.note_more();
        walker.fresh.push(frame);
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
        // A stack may be executable, for the functions that gcc puts there, which are jumped through. What returns does not lie there.
        let is_made = || !self.stack.holds(lookup) && jit_ranges::holds(lookup);
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

/// As framehop has it. `None`: a return to nowhere.
#[inline]
fn place_of_code(place: Cursor) -> Option<FrameAddress> {
    match place.returns {
        true => FrameAddress::from_return_address(place.address),
        false => Some(FrameAddress::InstructionPointer(place.address)),
    }
}

/// The rule by which framehop has just unwound a frame at that address.
#[cold]
fn rule_of(
    snapshot: &modules::Snapshot,
    cache: &mut CacheNative<Room>,
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
    // What it keeps in its cache does no arithmetic on registers; of what it does not keep nothing is known.
    match cache.stats().hit_count == hits {
        true => Rule::other(module),
        false => rule,
    }
}
