//! The regime of a thread: at which interval its sampler draws now.
//!
//! Not here: which interval is in force (`interval`), and the arithmetic (`heapprof_core::Sampler`).

use heapprof_core::Regime;

use crate::os::sys;
use crate::recording::byte_count;
use crate::state::thread::{Inside, Thread};
use crate::state::{interval, phase, process};

/// Returns what is in force for this thread.
pub(crate) fn of(thread: &Thread) -> Regime {
    if thread.pauses.get() > 0 {
        return Regime::STOPPED;
    }
    Regime {
        interval: interval::of_hooks(),
        record_over: interval::record_over(),
    }
}

/// Lets this thread go over at once to what is in force.
pub(crate) fn redraw(thread: &Thread) {
    if !phase::is_recording() || thread.inside.get() != Inside::No {
        return;
    }
    let process = process::generation();
    let regime = of(thread);
    let recorded_so_far = has_recorded(thread);
    if !recorded_so_far || regime.interval == 0 {
        byte_count::leave_out(thread, recorded_so_far);
    }
    if thread.line.replace(process) == process {
        thread.with_sampler(|sampler| sampler.draw_under(regime));
    } else {
        let seed = sys::random_u64();
        thread.with_sampler(|sampler| sampler.start_under(seed, regime));
    }
}

/// Returns true if the thread's sampler was last drawn with an interval, in this process.
pub(crate) fn has_recorded(thread: &Thread) -> bool {
    thread.line.get() == process::generation()
        && thread.with_sampler(|sampler| sampler.interval() > 0)
}
