//! Samples: what a hook does besides allocating and freeing.
//!
//! The checks of the fast paths are inline. One subtraction tells whether a mark falls on these
//! bytes, and one load tells whether a sample may live at this address. The slow paths are separate
//! functions, which few calls reach.
//!
//! A sampled allocation: the allocator is called, a seat is taken, the stack is walked. A new stack
//! goes to the writer, the address into the table, the sample into the lane. Then the next mark is
//! drawn. Laws 2, 3 and 4 hold by this order.

use std::ffi::c_void;

use heapprof_core::{EndedSample, Origin, Regime, Sampled, Sampler};

use crate::allocator;
use crate::hooks::probes;
use crate::os::cancellation::DeferredCancellation;
use crate::os::clock;
use crate::os::sys;
use crate::recording::sampled_blocks::{self, Spot, TakenSample};
use crate::recording::seats;
use crate::recording::session::{self, Session};
use crate::recording::{byte_count, regime};
use crate::state::phase::{self, Phase};
use crate::state::thread::{self, Entered, RunningCode, Thread};
use crate::state::{counters, interval, process, shutdown};
use crate::unwind::walk::{self, WalkStart};
use crate::writer::session_start;

mod end;
mod stack;

pub(crate) use end::{OldSample, on_free};
use end::{keep_spot, send_end};
pub(crate) use stack::stack_of;
use stack::walk_stack;

/// Advances the sampler by `size` bytes. Returns true on the common path: no mark falls on this
/// block, and the countdown did not expire. If false, the caller must call [`on_allocation`].
#[inline(always)]
pub(crate) fn passes(size: usize) -> bool {
    thread::passes(size)
}

/// Like [`passes`], for a size that [`is_valid_size`] accepts.
#[inline(always)]
pub(crate) fn passes_valid(size: usize) -> bool {
    thread::passes_nonzero(size)
}

/// Returns true if `size` is neither 0 nor more than can be allocated.
#[inline(always)]
pub(crate) fn is_valid_size(size: usize) -> bool {
    size as isize > 0
}

/// Returns true if [`passes`] returned false in its last call in this thread.
pub(crate) fn is_due() -> bool {
    thread::current().with_sampler(|sampler| sampler.is_due())
}

/// The block that the program gets.
#[derive(Clone, Copy)]
struct Block {
    /// Null if the allocation failed.
    ptr: *mut c_void,
    /// The bytes that the program asked for.
    size: usize,
    /// The kind of request to the allocator, which determines the usable size.
    fit: allocator::Fit,
}

/// The program's call of an exported function.
#[derive(Clone, Copy)]
struct CallSite {
    /// A PC inside that function.
    entry: u64,
    /// Where the walk begins: in that function, or at its caller.
    here: WalkStart,
}

/// Slow path of every allocation that [`passes`] rejected. `entry` is a PC inside the exported
/// function, and `fit` the kind of request to the allocator. The walk begins at `here`: in that
/// function or at its caller. A null `ptr` records nothing (Law 3).
#[inline(always)]
pub(crate) fn on_allocation(
    entry: u64,
    ptr: *mut c_void,
    size: usize,
    fit: allocator::Fit,
    here: WalkStart,
) {
    let block = Block { ptr, size, fit };
    on_countdown_expired(entry, &block, &here, &mut OldSample::None);
}

/// Slow path of every realloc that [`passes`] rejected. A realloc is a free and an allocation; if
/// both are recorded, one record with one time has both.
#[inline(always)]
pub(crate) fn on_reallocation(
    entry: u64,
    ptr: *mut c_void,
    size: usize,
    fit: allocator::Fit,
    here: WalkStart,
    mut old: OldSample,
) {
    let block = Block { ptr, size, fit };
    on_countdown_expired(entry, &block, &here, &mut old);
    old.end(ptr);
}

#[inline(always)]
fn on_countdown_expired(entry: u64, block: &Block, here: &WalkStart, old: &mut OldSample) {
    let thread = thread::current();
    let _deferred = DeferredCancellation::begin(); // first made, last dropped
    if !thread.with_sampler(Sampler::continue_countdown) {
        if !interval::is_exact() {
            // Samples are rare, so their cache lines are not cached. If everything is recorded,
            // those of the last sample are.
            sampled_blocks::prefetch(block.ptr);
        }
        match thread.enter() {
            Some(entered) => sample_deferred(&entered, entry, block, here, old),
            None => count_reentrant_loss(thread, block),
        }
    }
    if block.ptr.is_null() {
        thread.with_sampler(|sampler| sampler.retract(block.size));
    }
    allocator::collect_cache_garbage_if_due(thread);
}

/// Counts a sample that is lost because this thread is inside our own code already.
#[cold]
#[inline(never)]
extern "C" fn count_reentrant_loss(thread: &Thread, block: &Block) {
    let is_lost = thread.running_code.get() == RunningCode::Hook
        && phase::is_recording()
        && !is_stopped(thread);
    if is_lost && !block.ptr.is_null() {
        counters::LOST_REENTRANT.add(1);
    }
}

/// Returns true if recording is stopped, in all threads or in this one.
fn is_stopped(thread: &Thread) -> bool {
    regime::of(thread).interval == 0 && !session_start::is_awaited()
}

/// Decides about the block, and records it if it is sampled. Out of line, as [`unless_it_panics`]
/// requires.
#[inline(never)]
extern "C" fn sample_deferred(
    entered: &Entered,
    entry: u64,
    block: &Block,
    here: &WalkStart,
    old: &mut OldSample,
) {
    let thread = entered.thread;
    unless_it_panics(|| {
        let verdict = decide(thread, block.size);
        if let Verdict::Sampled { interval } = verdict
            && !block.ptr.is_null()
            && let Some(session) = ready_session(entered, *here)
        {
            let site = CallSite { entry, here: *here };
            record(entered, session, site, *block, interval, old);
        }
        if session_start::is_awaited() && phase::is_recording() {
            begin_session(entered, *here);
        }
        if verdict != Verdict::Undecided {
            thread.with_sampler(|sampler| sampler.draw_under(regime::of(thread)));
        }
    });
}

/// Runs `work`. A panic in it ends the recording, not the program (Laws 1 and 6).
///
/// The caller must be `#[inline(never)] extern "C"`, do nothing else, and run entirely with
/// cancellation deferred. A `catch_unwind` region is a range of instruction addresses, and the
/// compiler may schedule neighbouring instructions into it. If a thread is cancelled asynchronously
/// at one of those, the forced unwind is caught like a panic, and glibc aborts ("exception not
/// rethrown"). `extern "C"` keeps unwinds from leaving the caller, so the functions around it need
/// no landing pads and can be inlined. This wrapper is inlined so that arguments stay in registers
/// rather than in a closure on the stack.
#[inline(always)]
pub(super) fn unless_it_panics(work: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        phase::give_up_after_panic("a hook");
    }
}

/// The decision about a block that did not pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// This is not the phase for samples.
    Undecided,
    /// It is not sampled.
    Unsampled,
    /// It is sampled, under that mean interval in bytes.
    Sampled { interval: u64 },
}

/// Decides about a block of `size` bytes. The first call in a thread also begins the thread's
/// allocation axis.
fn decide(thread: &Thread, size: usize) -> Verdict {
    match phase::current() {
        Phase::Recording => {}
        Phase::Boot => {
            // Every malloc comes here until the constructor has run. There are few.
            counters::LOST_NOT_READY.add(1);
            return Verdict::Undecided;
        }
        other => {
            thread.with_sampler(Sampler::stop);
            if other == Phase::Ending {
                shutdown::wait();
            }
            return Verdict::Undecided;
        }
    }
    let regime = regime::of(thread);
    if regime.interval == 0 && !session_start::is_awaited() {
        // Recording is stopped: a thread comes here once a stride. Bytes that are allocated while
        // recording is stopped are not counted as lost.
        byte_count::exclude(thread, regime::has_recorded(thread));
        thread.with_sampler(|sampler| sampler.draw_under(Regime::STOPPED));
        return Verdict::Undecided;
    }
    let process = process::generation();
    let seed = (thread.axis_generation.replace(process) != process).then(sys::random_u64);
    let decided = thread.with_sampler(|sampler| {
        if let Some(seed) = seed {
            sampler.start_under(seed, regime);
            sampler.retract(size); // it was laid before there was an axis
            #[cfg(feature = "attach")]
            byte_count::begin_at(thread, sampler.position());
            if sampler.passes(size) {
                return None;
            }
        }
        sampler.decide(size, regime)
    });
    match decided {
        Some(interval) => Verdict::Sampled { interval },
        None => Verdict::Unsampled,
    }
}

/// Begins the session. `None`: it could not be begun, another thread takes long to begin it, or no
/// thread can be created here.
#[cold]
fn begin_session(entered: &Entered, here: WalkStart) -> Option<&'static Session> {
    let mut seat = seats::take(entered.thread)?;
    let (walker, hazard) = seat.parts();
    if walk::is_in_dl_iterate_phdr(entered, walker, hazard, here) {
        return None;
    }
    drop(seat);
    session_start::begin(entered)
}

/// Returns the session to record into, with this thread registered. Begins it if need be, in a
/// thread that is `here`. `None` as in [`begin_session`].
pub(crate) fn ready_session(entered: &Entered, here: WalkStart) -> Option<&'static Session> {
    if process::is_unprepared_child(entered.thread) {
        return None;
    }
    let session = session::current().or_else(|| begin_session(entered, here));
    let Some(session) = session else {
        counters::LOST_NOT_READY.add(1);
        return None;
    };
    if entered.thread.session.get() != session.number {
        session.register_and_replay_frees(entered.thread);
    }
    Some(session)
}

/// Records a sample, and the end of the sample that the block was before.
fn record(
    entered: &Entered,
    session: &Session,
    site: CallSite,
    Block { ptr, size, fit }: Block,
    interval: u64,
    old: &mut OldSample,
) {
    let thread = entered.thread;
    let Some(mut seat) = seats::take(thread) else {
        counters::LOST_QUEUE_FULL.add(1);
        return;
    };
    let Some(lanes) = session.lanes_of(&seat) else {
        counters::LOST_QUEUE_FULL.add(1);
        return;
    };
    let Some(stack) = walk_stack(entered, session, lanes, &mut seat, site) else {
        counters::LOST_QUEUE_FULL.add(1);
        return;
    };
    let lane = &lanes.events;
    let at = clock::ticks();
    let id = lane.new_id();
    let (ended, vacated) = match std::mem::replace(old, OldSample::None) {
        OldSample::None => (None, None),
        OldSample::Taken(taken) => (Some(taken.id), Some(taken.spot())),
        OldSample::InTable => (sampled_blocks::replace(ptr, id), None),
    };
    if ended.is_some() {
        probes::ended(vacated.as_ref().map_or(ptr as u64, Spot::address));
    }
    // The table comes before the queue: if the queue has no room, the entry can be taken back. A
    // record whose block no free can find would be a phantom leak (Law 4). Both come before the
    // pointer is returned (Law 2). All locked instructions come before the lane: they would wait
    // for the stores to the lane, whose cache lines another processor has. The block did not move,
    // and its entry stays in place.
    let is_replaced = ended.is_some() && vacated.is_none();
    let is_findable = is_replaced
        || match seat.take_spot_at(ptr) {
            Some(spot) => {
                spot.fill(id);
                true
            }
            None => sampled_blocks::insert(ptr, id),
        };
    if let Some(spot) = vacated {
        keep_spot(&mut seat, spot);
    }
    if !is_findable {
        if let Some(id) = ended {
            send_end(session, lane, at, thread, id);
        }
        counters::LOST_TABLE_FULL.add(1);
        return;
    }
    // Mostly the old sample is one of the last ones, and this record can also carry its end.
    let mut ended_with = EndedSample::NONE;
    if let Some(id) = ended {
        match lane.ended(id) {
            Some(ended) => ended_with = ended,
            None => send_end(session, lane, at, thread, id),
        }
    }
    // SAFETY: `ptr` was allocated in this call and has not been returned, or is a pool's.
    let usable = unsafe { allocator::usable_of_new(ptr, size, fit) };
    let counted = byte_count::unreported(thread);
    let by = Origin {
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
    if session.send_sampled(lane, by, &sampled, ended_with) {
        byte_count::mark_reported(thread, counted);
        probes::sampled(ptr, size, interval);
    } else {
        if let Some(id) = ended.filter(|_| ended_with != EndedSample::NONE) {
            send_end(session, lane, at, thread, id);
        }
        drop(sampled_blocks::take(ptr).map(TakenSample::spot));
        counters::LOST_QUEUE_FULL.add(1);
    }
}
