//! The clock: monotonic nanoseconds, and the processor's own ticks, which the writer turns into them.
//!
//! The monotonic clock is read through libc's vDSO entry: no system call, but a call, a barrier and arithmetic. A hook reads
//! the time stamp counter instead, in a third of the time, where the kernel itself keeps its time by that
//! counter (clock source `tsc`: synchronous on all processors, constant rate, watched). Elsewhere ticks are nanoseconds. The
//! writer reads both clocks before each look at the queue, and puts every event between two such readings.
//!
//! A program that replaces `clock_gettime` (libfaketime) does not change our times: it is not asked (`genuine.rs`).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::files;

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

/// Nanoseconds since 1970.
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// A moment on the processor's own scale; a [`Timeline`] knows when it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks(u64);

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
        // SAFETY: every x86-64 has the instruction, and the kernel's own vDSO executes it for the same question.
        // Without a barrier it may be read some instructions early or late, less than the microsecond that is kept.
        true => unsafe { std::arch::x86_64::_rdtsc() },
        false => now_ns(),
    })
}

/// Both scales at one moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    ticks: u64,
    ns: u64,
}

impl Reading {
    /// Between the two readings of the counter may lie an interruption; of a few tries the closest is taken.
    fn now() -> Reading {
        let mut best = (u64::MAX, Reading { ticks: 0, ns: 0 });
        for _ in 0..4 {
            let before = ticks().0;
            let ns = now_ns();
            let width = ticks().0.wrapping_sub(before);
            if width < best.0 {
                let ticks = before.wrapping_add(width / 2);
                best = (width, Reading { ticks, ns });
            }
            if width < CLOSE {
                break;
            }
        }
        best.1
    }
}

/// Ticks within which a reading of both is close enough: a third of a microsecond at 3 GHz.
const CLOSE: u64 = 1000;
/// The rate is taken over at least that long, so that the width of a reading does not count.
const BASE_NS: u64 = 10_000_000;

/// When ticks were: the line through two readings, of which the newer is of just now.
#[derive(Debug)]
pub(crate) struct Timeline {
    from: Reading,
    to: Reading,
    /// Nanoseconds in a tick, times 2^32. 0 while unknown, and when the counter was set back between
    /// the readings (the machine was suspended): then all is now.
    rate: i128,
}

impl Timeline {
    /// Begins now.
    pub(crate) fn new() -> Timeline {
        let now = Reading::now();
        Timeline {
            from: now,
            to: now,
            rate: 0,
        }
    }

    /// Takes a new reading. Ticks that are asked for next should be older than it, and not by more than some
    /// time between two calls.
    pub(crate) fn advance(&mut self) {
        if self.to.ns.saturating_sub(self.from.ns) >= BASE_NS {
            self.from = self.to;
        }
        self.to = Reading::now();
        self.rate = match self.to.ticks.checked_sub(self.from.ticks) {
            None | Some(0) => 0,
            Some(ticks) => {
                (i128::from(self.to.ns.saturating_sub(self.from.ns)) << 32) / i128::from(ticks)
            }
        };
    }

    /// Nanoseconds of the monotonic clock at that moment.
    #[inline]
    pub(crate) fn ns(&self, ticks: Ticks) -> u64 {
        if !COUNTER.load(Ordering::Relaxed) {
            return ticks.0;
        }
        let since = i128::from(ticks.0.wrapping_sub(self.to.ticks).cast_signed());
        self.to.ns.wrapping_add(((since * self.rate) >> 32) as u64)
    }
}
