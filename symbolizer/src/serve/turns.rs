//! Turns: so many pieces of work at once, and threads that wait for one to end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a thread that waits asks whether the server ends.
const STEP: Duration = Duration::from_millis(200);

/// See the module's text.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    taken: Mutex<usize>,
    ended: Condvar,
}

/// One of so many at once.
#[derive(Debug)]
pub(super) struct Turn(Arc<Shared>);

impl Turns {
    pub(super) fn of(most: usize) -> Turns {
        Turns(Arc::new(Shared {
            most,
            taken: Mutex::new(0),
            ended: Condvar::new(),
        }))
    }

    /// The number of turns that are taken.
    pub(super) fn taken(&self) -> usize {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn, if one is free now.
    pub(super) fn take(&self) -> Option<Turn> {
        self.wait(Duration::ZERO, || false)
    }

    /// A turn, once one is free; `None`: none is for so long, or the server ends.
    pub(super) fn wait(&self, patience: Duration, is_over: impl Fn() -> bool) -> Option<Turn> {
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
        Some(Turn(Arc::clone(&self.0)))
    }
}

impl Drop for Turn {
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
        let turns = Turns::of(2);
        let (first, second) = (turns.take().unwrap(), turns.take().unwrap());
        assert!(turns.take().is_none() && turns.taken() == 2);
        assert!(turns.wait(Duration::from_secs(3600), || true).is_none());
        let waiting = turns.clone();
        let waits = std::thread::spawn(move || {
            let turn = waiting.wait(Duration::from_secs(3600), || false);
            turn.is_some()
        });
        drop(first);
        assert!(waits.join().unwrap());
        assert_eq!(turns.taken(), 1);
        drop(second);
        assert_eq!(turns.taken(), 0);
    }
}
