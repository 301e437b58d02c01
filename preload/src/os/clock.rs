//! The clock: monotonic nanoseconds, and the processor's own ticks, which the writer converts.
//!
//! libc's vDSO entry reads the monotonic clock without a system call, but with a call, a barrier
//! and arithmetic. A hook reads the time stamp counter instead, which is faster. It does so only if
//! the kernel itself keeps its time by that counter. The kernel's clock source `tsc` means that the
//! counter is synchronous on all processors, has a constant rate, and is monitored. Otherwise ticks
//! are nanoseconds.
//!
//! The writer reads both clocks after each look at the lanes, and interpolates the time of each
//! event between such readings. Ticks also order the events of different threads; core's merge of
//! lanes handles their inexactness.
//!
//! A program that replaces `clock_gettime` (libfaketime) does not change our times, because our
//! calls go to libc's own function.

use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_core::{ClockReading, Scale, Timeline};

use crate::arch::counter;
use crate::os::files;
use crate::os::seccomp::AvoidableCall;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000) + time.tv_nsec as u64
}

/// Returns nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the monotonic clock with a resolution of some milliseconds. It does not read the time
/// stamp counter, so it works in a process that must not read it.
pub(crate) fn coarse_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns this thread's time on a processor, in nanoseconds, or the monotonic clock if the
/// program's seccomp filter forbids to ask. Only differences have a meaning.
pub(crate) fn thread_ns() -> u64 {
    match AvoidableCall::MemoryQuery.is_allowed() {
        true => read(libc::CLOCK_THREAD_CPUTIME_ID),
        false => now_ns(),
    }
}

/// Returns nanoseconds since 1970.
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// A time on the processor's own scale; a [`Clock`] converts it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks(u64);

impl Ticks {
    /// Returns the ticks of [`raw`](Self::raw).
    pub(crate) fn from_raw(raw: u64) -> Ticks {
        Ticks(raw)
    }

    /// Returns the ticks as a number, which orders them.
    #[inline(always)]
    pub(crate) fn raw(self) -> u64 {
        self.0
    }
}

/// True if ticks are those of the time stamp counter. Set at boot, before the first use of ticks.
static COUNTER: AtomicBool = AtomicBool::new(false);

/// At boot: decides whether ticks are the time stamp counter or nanoseconds.
pub(crate) fn choose() {
    let source = files::read(b"/sys/devices/system/clocksource/clocksource0/current_clocksource");
    COUNTER.store(source.is_ok_and(|name| name == b"tsc\n"), Ordering::Relaxed);
}

/// Returns the present ticks.
#[inline(always)]
pub(crate) fn ticks() -> Ticks {
    Ticks(match COUNTER.load(Ordering::Relaxed) {
        true => counter::read(),
        false => ticks_of_monotonic_clock(),
    })
}

#[cold]
#[inline(never)]
fn ticks_of_monotonic_clock() -> u64 {
    now_ns()
}

/// Returns the present ticks, read after all earlier memory reads and before all later ones.
pub(crate) fn fenced_ticks() -> Ticks {
    counter::barrier();
    let now = ticks();
    counter::barrier();
    now
}

/// Reads both clocks at one time. An interruption between the two readings of the counter makes a
/// pair inexact, so the closest of a few tries is returned.
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
        if width < CLOSE_TICKS {
            break;
        }
    }
    best.1
}

/// Distance in ticks at which a pair of readings is close enough: a tenth of a microsecond at 3
/// GHz. Without an interruption a pair takes a third of it.
const CLOSE_TICKS: u64 = 300;

/// The conversion of ticks to nanoseconds.
#[derive(Debug)]
pub(crate) struct Clock(Timeline);

impl Clock {
    /// Returns a clock that begins now.
    pub(crate) fn new() -> Clock {
        Clock(match COUNTER.load(Ordering::Relaxed) {
            true => Timeline::new(reading()),
            false => Timeline::of_nanoseconds(),
        })
    }

    /// Takes a new reading of both clocks. Ticks that are converted next should be older than it.
    pub(crate) fn advance(&mut self) {
        if COUNTER.load(Ordering::Relaxed) {
            self.0.advance(reading());
        }
    }

    /// Returns the ticks in a microsecond, once they are known. Readings that lie close together
    /// give an inexact number, so it is limited: no counter has more than ten ticks in a
    /// nanosecond.
    pub(crate) fn ticks_in_a_microsecond(&self) -> u64 {
        self.0.ticks_in(1000).min(10_000)
    }

    /// Returns a conversion for many times, to units of `unit_ns` since `zero_ns`, as of the last
    /// reading.
    pub(crate) fn scale(&self, unit_ns: u64, zero_ns: u64) -> Scale {
        self.0.scale(unit_ns, zero_ns)
    }

    /// Returns the nanoseconds of the monotonic clock at `ticks`.
    #[inline(always)]
    pub(crate) fn ns(&self, ticks: Ticks) -> u64 {
        self.0.ns(ticks.0)
    }
}
