//! Work slots: so many tasks at once, and threads that wait for one to end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a thread that waits asks whether the server ends.
const STEP: Duration = Duration::from_millis(200);

/// See the module's text.
#[derive(Debug, Clone)]
pub(super) struct WorkSlots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    taken: Mutex<usize>,
    ended: Condvar,
}

/// One of so many at once.
#[derive(Debug)]
pub(super) struct WorkSlot(Arc<Shared>);

impl WorkSlots {
    pub(super) fn of(most: usize) -> WorkSlots {
        WorkSlots(Arc::new(Shared {
            most,
            taken: Mutex::new(0),
            ended: Condvar::new(),
        }))
    }

    /// The number of slots that are taken.
    pub(super) fn taken(&self) -> usize {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, if one is free now.
    pub(super) fn take(&self) -> Option<WorkSlot> {
        self.wait(Duration::ZERO, || false)
    }

    /// A slot, once one is free; `None`: none is for so long, or the server ends.
    pub(super) fn wait(&self, patience: Duration, is_over: impl Fn() -> bool) -> Option<WorkSlot> {
        let until = Instant::now() + patience;
        let Shared { most, taken, ended } = &*self.0;
        let mut count = taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *count >= *most {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over() {
                return None;
            }
            let waited = ended.wait_timeout(count, left.min(STEP));
            (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *count += 1;
        Some(WorkSlot(Arc::clone(&self.0)))
    }
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_free_once_another_ends() {
        let slots = WorkSlots::of(2);
        let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
        assert!(slots.take().is_none() && slots.taken() == 2);
        assert!(slots.wait(Duration::from_secs(3600), || true).is_none());
        let waiting = slots.clone();
        let waits = std::thread::spawn(move || {
            let slot = waiting.wait(Duration::from_secs(3600), || false);
            slot.is_some()
        });
        drop(first);
        assert!(waits.join().unwrap());
        assert_eq!(slots.taken(), 1);
        drop(second);
        assert_eq!(slots.taken(), 0);
    }
}
