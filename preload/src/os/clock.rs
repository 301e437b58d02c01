//! The clock: monotonic nanoseconds, and the processor's own ticks, which the writer turns into them.
//!
//! The monotonic clock is read through libc's vDSO entry: no system call, but a call, a barrier and arithmetic. A hook reads
//! the time stamp counter instead, in a third of the time, where the kernel itself keeps its time by that
//! counter (clock source `tsc`: synchronous on all processors, constant rate, watched). Elsewhere ticks are nanoseconds. The
//! writer reads both clocks after each look at the lanes, and puts every event on the line through such readings.
//!
//! Ticks also order the events of different threads; `heapprof_core::Merge` says what becomes of their being inexact.
//!
//! A program that replaces `clock_gettime` (libfaketime) does not change our times: it is not asked (`os/libc_trampolines.rs`).

use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_core::{ClockReading, Scale, Timeline};

use crate::arch::counter;
use crate::os::files;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000) + time.tv_nsec as u64
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The same, to some milliseconds, without a look at the time stamp counter: for a process that may not read it, and whose libc may not.
pub(crate) fn coarse_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds since 1970.
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// A moment on the processor's own scale; a [`Clock`] knows when it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks(u64);

impl Ticks {
    /// As a number, which orders them.
    #[inline(always)]
    pub(crate) fn raw(self) -> u64 {
        self.0
    }
}

/// Whether ticks are those of the time stamp counter. Set at boot, before there are any.
static COUNTER: AtomicBool = AtomicBool::new(false);

/// At boot: finds out what ticks are.
pub(crate) fn choose() {
    let source = files::read(b"/sys/devices/system/clocksource/clocksource0/current_clocksource");
    COUNTER.store(source.is_ok_and(|name| name == b"tsc\n"), Ordering::Relaxed);
}

/// Now.
#[inline(always)]
pub(crate) fn ticks() -> Ticks {
    Ticks(match COUNTER.load(Ordering::Relaxed) {
        true => counter::read(),
        false => ticks_of_the_clock(),
    })
}

#[cold]
#[inline(never)]
fn ticks_of_the_clock() -> u64 {
    now_ns()
}

/// Now, after all that was read from memory before and before all that is read next.
pub(crate) fn ticks_between() -> Ticks {
    counter::barrier();
    let now = ticks();
    counter::barrier();
    now
}

/// Both clocks at one moment. Between the two readings of the counter may lie an interruption; of a few tries
/// the closest is taken.
fn reading() -> ClockReading {
    let mut best = (u64::MAX, ClockReading { ticks: 0, ns: 0 });
    for _ in 0..8 {
        let before = ticks().0;
        let ns = now_ns();
        let width = ticks().0.wrapping_sub(before);
        if width < best.0 {
            let ticks = before.wrapping_add(width / 2);
            best = (width, ClockReading { ticks, ns });
        }
        if width < CLOSE {
            break;
        }
    }
    best.1
}

/// Ticks within which a reading of both is close enough: a tenth of a microsecond at 3 GHz, and three times what it
/// takes when nothing comes between.
const CLOSE: u64 = 300;

/// When ticks were.
#[derive(Debug)]
pub(crate) struct Clock(Timeline);

impl Clock {
    /// Begins now.
    pub(crate) fn new() -> Clock {
        Clock(match COUNTER.load(Ordering::Relaxed) {
            true => Timeline::new(reading()),
            false => Timeline::of_nanoseconds(),
        })
    }

    /// Takes a new reading of both clocks. Ticks that are asked for next should be older than it.
    pub(crate) fn advance(&mut self) {
        if COUNTER.load(Ordering::Relaxed) {
            self.0.advance(reading());
        }
    }

    /// Ticks in a microsecond, as soon as that is known; from readings that lie close together not well, but no counter has more than
    /// ten in a nanosecond.
    pub(crate) fn ticks_in_a_microsecond(&self) -> u64 {
        self.0.ticks_in(1000).min(10_000)
    }

    /// For many moments, in units of so many nanoseconds since then: as of the last reading.
    pub(crate) fn scale(&self, unit_ns: u64, zero_ns: u64) -> Scale {
        self.0.scale(unit_ns, zero_ns)
    }

    /// Nanoseconds of the monotonic clock at that moment.
    #[inline(always)]
    pub(crate) fn ns(&self, ticks: Ticks) -> u64 {
        self.0.ns(ticks.0)
    }
}
