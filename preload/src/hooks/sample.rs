//! The hooks: what happens at each allocation and free besides allocating and freeing.
//!
//! The fast questions are inline: did a mark fall on these bytes (one subtraction), may a sample live at
//! this address (one load)? The slow answers are cold functions, which nearly no call reaches.
//!
//! Laws 2, 3 and 4 are kept here, by the order of the steps.

use std::ffi::c_void;

use heapprof_core::{By, Ended, Lane, Regime, Sampled, Sampler, Vacant};

use crate::allocator;
use crate::arch::registers::stack_pointer;
use crate::os::cancellation::Deferred;
use crate::os::clock::{self, Ticks};
use crate::os::sys;
use crate::recording::sampled_blocks::{self, Spot, Taken};
use crate::recording::seats::{self, Seat};
use crate::recording::session::{self, FreeEvent, SeatLanes, Session};
use crate::recording::{byte_count, pending_frees, regime};
use crate::state::phase::{self, Phase};
use crate::state::thread::{self, Entered, Inside, Thread};
use crate::state::{counters, interval, process, shutdown};
use crate::unwind::walk::{self, Here};
use crate::unwind::walker::{Walked, Walker};
use crate::writer::session_start;

/// True when no mark fell on a block of `size` bytes, and no stride or piece ended in it. Otherwise [`allocated`] must be called.
#[inline(always)]
pub(crate) fn passes(size: usize) -> bool {
    thread::passes(size)
}

/// The same of a size that [`is_some`], asked before.
#[inline(always)]
pub(crate) fn passes_some(size: usize) -> bool {
    thread::passes_some(size)
}

/// Whether that many bytes are neither none nor more than can be had.
#[inline(always)]
pub(crate) fn is_some(size: usize) -> bool {
    size as isize > 0
}

/// Whether the block that [`passes`] was last asked about in this thread did not pass.
pub(crate) fn is_due() -> bool {
    thread::current().with_sampler(|sampler| sampler.is_due())
}

/// The sample that a block was before it was resized.
pub(crate) enum Before {
    /// It was none, or is none any more.
    Nothing,
    /// This one.
    Taken(Taken),
    /// If there is one, it is still in the table: the block is where it was.
    Here,
}

impl Before {
    /// Records its end, if there was one. `ptr` is where the block is now.
    #[inline(always)]
    pub(crate) fn end(self, ptr: *mut c_void) {
        if !matches!(self, Before::Nothing) {
            self.end_something(ptr);
        }
    }

    /// The same, apart: after a realloc that was recorded there is mostly nothing left to end.
    #[inline(never)]
    fn end_something(self, ptr: *mut c_void) {
        match self {
            Before::Nothing => {}
            Before::Taken(taken) => ended(taken),
            Before::Here if sampled_blocks::may_be_sampled(ptr) => freed(ptr),
            Before::Here => {}
        }
    }
}

/// Records that the block at `ptr` is about to be freed, if it is a sample, as [`sampled_blocks::may_be_sampled`] has said that it may be.
#[inline(always)]
pub(crate) fn freed(ptr: *mut c_void) {
    if let Some(taken) = sampled_blocks::take(ptr) {
        ended(taken);
    }
}

/// Records the end of a sample.
#[inline(always)]
fn ended(taken: Taken) {
    if !phase::is_recording() {
        return give_back(taken.id, taken.vacant);
    }
    let _deferred = Deferred::begin();
    let thread = thread::current();
    // A free inside one of our own pieces of code (a signal handler interrupted it) is recorded too:
    // nothing on this way allocates or locks. Only the flag must be left as it was.
    // Whoever interrupts us and finds us inside finds where, too.
    let was_at = thread.entered_at.replace(stack_pointer());
    let was_inside = thread.inside.replace(Inside::Hook);
    ended_deferred(thread, taken.id, taken.vacant);
    thread.inside.set(was_inside);
    thread.entered_at.set(was_at);
}

/// A function by itself, as [`unless_it_panics`] asks. Of the sample `id`, which was there.
#[inline(never)]
extern "C" fn ended_deferred(thread: &'static Thread, id: u64, vacant: Vacant) {
    unless_it_panics(|| {
        let spot = Spot::of(vacant);
        let at = clock::ticks();
        let session = session::current().filter(|_| !process::is_unprepared_child(thread));
        let Some(session) = session else {
            return pending_frees::push(at, id);
        };
        if thread.session.get() != session.number {
            session.register_thread(thread);
        }
        let free = FreeEvent {
            at,
            id,
            thread: thread.number.get(),
        };
        if let Some(mut seat) = seats::take(thread)
            && let Some(lanes) = session.lanes_of(&seat)
        {
            // The lane last, as in `record`.
            keep_spot(&mut seat, spot);
            session.send_free_in(&lanes.events, free);
        } else {
            session.send_through_overflow(free);
        }
    });
}

/// Nobody wants to know that it ended.
#[cold]
#[inline(never)]
extern "C" fn give_back(_id: u64, vacant: Vacant) {
    drop(Spot::of(vacant));
}

/// Keeps the spot where a sample was for the next one at that address, if there will be one: when everything is recorded. Otherwise
/// each free in its neighbourhood would find the filter say "perhaps".
#[inline(always)]
fn keep_spot(seat: &mut Seat, spot: Spot) {
    if interval::is_exact() {
        seat.keep_spot(spot);
    }
}

/// What the program was given.
#[derive(Clone, Copy)]
struct Block {
    /// Null: nothing.
    ptr: *mut c_void,
    /// Bytes that it asked for.
    size: usize,
    fit: allocator::Fit,
}

/// Where the program called us.
#[derive(Clone, Copy)]
struct Call {
    /// A PC inside the function that it called.
    entry: u64,
    /// Where to begin the walk: there, or at its caller.
    here: Here,
}

/// A mark fell on this block, or a stride or a piece ended in it, which jemalloc was asked for as `fit` says. `entry` is a PC inside the function that the
/// program called, `here` where to begin the walk: there or at its caller. Law 3: a null result is no event.
#[inline(always)]
pub(crate) fn allocated(
    entry: u64,
    ptr: *mut c_void,
    size: usize,
    fit: allocator::Fit,
    here: Here,
) {
    let block = Block { ptr, size, fit };
    sampled(entry, &block, &here, &mut Before::Nothing);
}

/// The same of a block that was resized: a realloc is a free and an allocation, and if both are recorded, then with one seat
/// and at one time.
#[inline(always)]
pub(crate) fn reallocated(
    entry: u64,
    ptr: *mut c_void,
    size: usize,
    here: Here,
    mut before: Before,
) {
    let fit = allocator::Fit::Resized;
    let block = Block { ptr, size, fit };
    sampled(entry, &block, &here, &mut before);
    before.end(ptr);
}

#[inline(always)]
fn sampled(entry: u64, block: &Block, here: &Here, before: &mut Before) {
    let thread = thread::current();
    let _deferred = Deferred::begin(); // first made, last dropped
    if !thread.with_sampler(Sampler::goes_on) {
        match thread.enter() {
            Some(entered) => sampled_deferred(&entered, entry, block, here, before),
            None => lost_inside(thread, block),
        }
    }
    if block.ptr.is_null() {
        thread.with_sampler(|sampler| sampler.take_back(block.size));
    }
    allocator::collect_cache_garbage_if_due(thread);
}

/// A mark fell on a block that is allocated while this thread is in one of our pieces of code.
#[cold]
#[inline(never)]
extern "C" fn lost_inside(thread: &Thread, block: &Block) {
    let is_lost =
        thread.inside.get() == Inside::Hook && phase::is_recording() && !is_stopped(thread);
    if is_lost && !block.ptr.is_null() {
        counters::LOST_REENTRANT.add(1);
    }
}

/// Whether recording is stopped, in all threads or in this.
fn is_stopped(thread: &Thread) -> bool {
    regime::of(thread).interval == 0 && !session_start::is_awaited()
}

/// A function by itself, as [`unless_it_panics`] asks.
#[inline(never)]
extern "C" fn sampled_deferred(
    entered: &Entered,
    entry: u64,
    block: &Block,
    here: &Here,
    before: &mut Before,
) {
    let thread = entered.thread;
    unless_it_panics(|| {
        let verdict = judge(thread, block.size);
        if let Verdict::Sampled { interval } = verdict
            && !block.ptr.is_null()
            && let Some(session) = ready(entered, *here)
        {
            let call = Call { entry, here: *here };
            record(entered, session, call, *block, interval, before);
        }
        if session_start::is_awaited() {
            begin(entered, *here);
        }
        if verdict != Verdict::NotAsked {
            thread.with_sampler(|sampler| sampler.draw_under(regime::of(thread)));
        }
    });
}

/// Law 1 and Law 6: a fault of ours ends the recording, not the program.
///
/// For a function that is not inlined and does nothing else, all of which runs while cancellation is deferred. What is caught is a range of
/// addresses in that function, and compilers put instructions into it that belong before that or after: a thread that is cancelled at one
/// of these is caught as if it had panicked, and libc ends the program ("exception not rethrown"). `extern "C"`: nothing leaves that function by unwinding, so that the functions around it, which run before cancellation is deferred and after, have nothing to say
/// to whoever unwinds them, and may be inlined. Inlined in turn: its caller's words stay in registers, where those of a closure that is
/// passed on are in memory.
#[inline(always)]
fn unless_it_panics(work: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        phase::give_up_after_panic("a hook");
    }
}

/// What becomes of a block that did not pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// This is not the phase for samples, or no time for them.
    NotAsked,
    /// It is not sampled.
    Passed,
    /// It is, under that mean interval in bytes.
    Sampled { interval: u64 },
}

/// The phase must be right, and in a thread's first call the line has yet to begin.
fn judge(thread: &Thread, size: usize) -> Verdict {
    match phase::current() {
        Phase::Recording => {}
        Phase::Boot => {
            // Every malloc comes here until the constructor has run; there are few.
            counters::LOST_NOT_READY.add(1);
            return Verdict::NotAsked;
        }
        other => {
            thread.with_sampler(Sampler::stop);
            if other == Phase::Ending {
                shutdown::wait();
            }
            return Verdict::NotAsked;
        }
    }
    let regime = regime::of(thread);
    if regime.interval == 0 && !session_start::is_awaited() {
        // Stopped: this is all that it costs, and that once in 16 KiB. What is allocated now is nobody's loss.
        byte_count::exclude(thread, regime::has_recorded(thread));
        thread.with_sampler(|sampler| sampler.draw_under(Regime::STOPPED));
        return Verdict::NotAsked;
    }
    let process = process::generation();
    let seed = (thread.line.replace(process) != process).then(sys::random_u64);
    let decided = thread.with_sampler(|sampler| {
        if let Some(seed) = seed {
            sampler.start_under(seed, regime);
            sampler.take_back(size); // it was laid before there was a line
            if sampler.passes(size) {
                return None;
            }
        }
        sampler.decide(size, regime)
    });
    match decided {
        Some(interval) => Verdict::Sampled { interval },
        None => Verdict::Passed,
    }
}

/// Begins the session. `None`: it could not be begun, or another thread takes long to begin it, or this is no place to
/// make a thread.
#[cold]
fn begin(entered: &Entered, here: Here) -> Option<&'static Session> {
    let mut seat = seats::take(entered.thread)?;
    let (walker, hazard) = seat.parts();
    if walk::is_in_iteration(entered, walker, hazard, here) {
        return None;
    }
    drop(seat);
    session_start::begin(entered)
}

/// The session to record into, begun if need be by a thread that is `here`, and this thread known there. `None` as in [`begin`].
pub(crate) fn ready(entered: &Entered, here: Here) -> Option<&'static Session> {
    if process::is_unprepared_child(entered.thread) {
        return None;
    }
    let session = session::current().or_else(|| begin(entered, here));
    let Some(session) = session else {
        counters::LOST_NOT_READY.add(1);
        return None;
    };
    if entered.thread.session.get() != session.number {
        session.register_and_replay_frees(entered.thread);
    }
    Some(session)
}

/// Records a sample, and the end of the one that the block was before.
fn record(
    entered: &Entered,
    session: &Session,
    call: Call,
    Block { ptr, size, fit }: Block,
    interval: u64,
    before: &mut Before,
) {
    let thread = entered.thread;
    if interval > 1 {
        sampled_blocks::fetch(ptr); // where all are samples, these lines are those of the last
    }
    let Some(mut seat) = seats::take(thread) else {
        counters::LOST_QUEUE_FULL.add(1);
        return;
    };
    let Some(lanes) = session.lanes_of(&seat) else {
        counters::LOST_QUEUE_FULL.add(1);
        return;
    };
    let Some(stack) = stack_of(entered, session, lanes, &mut seat, call) else {
        counters::LOST_QUEUE_FULL.add(1);
        return;
    };
    let lane = &lanes.events;
    let at = clock::ticks();
    let id = lane.new_id();
    let (ended, left) = match std::mem::replace(before, Before::Nothing) {
        Before::Nothing => (None, None),
        Before::Taken(taken) => (Some(taken.id), Some(taken.spot())),
        Before::Here => (sampled_blocks::replace(ptr, id), None),
    };
    // The table before the queue: if the queue has no room, the entry can be taken back, while a
    // record whose block nobody can find again would be a phantom leak (Law 4). Both before the
    // pointer is returned (Law 2). And all locked instructions before the lane: they would wait for what was just written to it, whose lines
    // another processor has.
    let is_replaced = ended.is_some() && left.is_none(); // the block stayed, and so does its entry
    let is_findable = is_replaced
        || match seat.take_spot_at(ptr) {
            Some(spot) => {
                spot.fill(id);
                true
            }
            None => sampled_blocks::insert(ptr, id),
        };
    if let Some(spot) = left {
        keep_spot(&mut seat, spot);
    }
    if !is_findable {
        if let Some(id) = ended {
            send_end(session, lane, at, thread, id);
        }
        counters::LOST_TABLE_FULL.add(1);
        return;
    }
    // Mostly it is one of the last samples, and its end is told with this one.
    let mut told_with = Ended::NONE;
    if let Some(id) = ended {
        match lane.ended(id) {
            Some(ended) => told_with = ended,
            None => send_end(session, lane, at, thread, id),
        }
    }
    // SAFETY: `ptr` was allocated by jemalloc in this call and has not been returned.
    let usable = unsafe { allocator::usable_of_new(ptr, size, fit) };
    let counted = byte_count::unreported(thread);
    let by = By {
        thread: thread.number.get(),
        interval,
    };
    let sampled = Sampled {
        at: at.raw(),
        id,
        stack,
        size: size as u64,
        slack: usable.saturating_sub(size).min(u32::MAX as usize) as u32,
        counted,
    };
    if session.send_sampled(lane, by, &sampled, told_with) {
        byte_count::mark_reported(thread, counted);
    } else {
        if let Some(id) = ended.filter(|_| told_with != Ended::NONE) {
            send_end(session, lane, at, thread, id);
        }
        drop(sampled_blocks::take(ptr).map(Taken::spot));
        counters::LOST_QUEUE_FULL.add(1);
    }
}

/// Sends the end of a sample as a free.
#[inline(never)]
fn send_end(session: &Session, lane: &Lane, at: Ticks, thread: &Thread, id: u64) {
    let thread = thread.number.get();
    session.send_free_in(lane, FreeEvent { at, id, thread });
}

/// The hash of the current stack, whose frames the writer has or will have before the caller's
/// record. `None`: there was no room for them.
fn stack_of(
    entered: &Entered,
    session: &Session,
    lanes: &SeatLanes,
    seat: &mut Seat,
    Call { entry, here }: Call,
) -> Option<u64> {
    let (walker, hazard) = seat.parts();
    let walked = walk::walk(entered, walker, hazard, entry, here);
    #[cfg(feature = "verify")]
    walk::verify(entered, walker, hazard, here);
    let known = (session.number, walked.hash);
    if walker.known != known {
        if !make_known(session, lanes, walker, entry, &walked) {
            return None;
        }
        walker.known = known;
        // It is mostly a walk along frames that were not those of the last one: only these need rules.
        seat.request_rule_growth_if_crowded();
    }
    Some(walked.hash)
}

/// Sends the frames of that stack, if the writer has not got them. False: there was no room for them.
#[inline(never)]
fn make_known(
    session: &Session,
    lanes: &SeatLanes,
    walker: &mut Walker,
    entry: u64,
    walked: &Walked,
) -> bool {
    if session.stacks.contains(walked.hash) {
        return true;
    }
    let is_sent = session.send_stack(&lanes.stacks, walked, entry, walker.memos.chosen());
    if is_sent {
        session.stacks.insert(walked.hash);
    }
    is_sent
}
