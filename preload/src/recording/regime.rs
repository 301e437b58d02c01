//! Regime: the sampling parameters that this thread draws its next mark under.
//!
//! Not here: the interval in force for the process, and the arithmetic (`heapprof_core::Sampler`).

use heapprof_core::Regime;

use crate::os::sys;
use crate::recording::byte_count;
use crate::state::thread::{RunningCode, Thread};
use crate::state::{interval, phase, process};

/// Returns the regime in force for this thread.
pub(crate) fn of(thread: &Thread) -> Regime {
    if thread.pauses.get() > 0 {
        return Regime::STOPPED;
    }
    Regime {
        interval: interval::of_hooks(),
        record_over: interval::record_over(),
    }
}

/// Makes this thread draw at once under the regime in force.
pub(crate) fn redraw(thread: &Thread) {
    if !phase::is_recording() || thread.running_code.get() != RunningCode::Program {
        return;
    }
    let process = process::generation();
    let regime = of(thread);
    let recorded_so_far = has_recorded(thread);
    if !recorded_so_far || regime.interval == 0 {
        byte_count::exclude(thread, recorded_so_far);
    }
    if thread.axis_generation.replace(process) == process {
        thread.with_sampler(|sampler| sampler.draw_under(regime));
    } else {
        let seed = sys::random_u64();
        thread.with_sampler(|sampler| sampler.start_under(seed, regime));
    }
}

/// Returns true if the thread's sampler was last drawn with an interval, in this process.
pub(crate) fn has_recorded(thread: &Thread) -> bool {
    thread.axis_generation.get() == process::generation()
        && thread.with_sampler(|sampler| sampler.interval() > 0)
}
