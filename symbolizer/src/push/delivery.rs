//! Delivery: the thread that sends what is in the queue, and tries again what did not arrive.
//!
//! ```text
//!  queue ─> message ─> request ─┬─ taken ──────────────────────> counted as sent
//!                        ^      ├─ refused, not understood ─────> counted as lost
//!                        │      └─ later (429, 503, no answer) ─> wait
//!                        └──────────────────────────────────────── longer each time, at random
//! ```
//!
//! One message is under way at a time, so they arrive in order. A receiver that takes a message and
//! loses the answer gets it twice, under the same id.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::push::account::{Cause, DeliveryAccount};
use crate::push::message::Message;
use crate::push::queue::Queue;
use crate::push::receiver::{Answer, Receiver};

/// The wait after the first failure. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait that is not the receiver's wish.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest wait that a receiver may wish for.
const LONGEST_WISH: Duration = Duration::from_secs(600);

/// See the module's text.
pub struct Delivery {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: Queue,
    account: DeliveryAccount,
    /// When everything must be over, once no more messages come.
    deadline: Option<Instant>,
    is_over: bool,
}

impl Delivery {
    /// Starts the thread. `most_bytes` is the bound of the queue.
    pub fn to(receiver: Receiver, most_bytes: usize) -> Delivery {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: Queue::of(most_bytes),
                account: DeliveryAccount::default(),
                deadline: None,
                is_over: false,
            }),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || of_thread.deliver(&receiver));
        Delivery {
            shared,
            thread: Some(thread),
        }
    }

    /// Puts a message into the queue; does not wait.
    pub fn add(&self, message: Message) {
        let mut state = self.shared.lock();
        let state = &mut *state;
        state.queue.push(message, &mut state.account);
        self.shared.changed.notify_all();
    }

    /// The account so far.
    pub fn account(&self) -> DeliveryAccount {
        self.shared.lock().account.clone()
    }

    /// Sends what is left, within that time, and returns the account of all.
    pub fn finish(mut self, within: Duration) -> DeliveryAccount {
        let deadline = Instant::now() + within;
        self.shared.lock().deadline = Some(deadline);
        self.shared.changed.notify_all();
        let mut state = self.shared.lock();
        while !state.is_over {
            state = (self.shared.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.account()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Counters and a queue: there is no half-made state that a panic could leave.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, receiver: &Receiver) {
        while let Some(message) = self.next() {
            self.deliver_one(receiver, &message);
        }
        let mut state = self.lock();
        state.is_over = true;
        drop(state);
        self.changed.notify_all();
    }

    /// The next message, when there is one; `None` at the end.
    fn next(&self) -> Option<Message> {
        let mut state = self.lock();
        loop {
            if let Some(message) = state.queue.pop() {
                return Some(message);
            }
            if state.deadline.is_some() {
                return None;
            }
            state = (self.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn deliver_one(&self, receiver: &Receiver, message: &Message) {
        let mut failures = 0;
        loop {
            let left = self.time_left();
            let answer = match left {
                Some(left) if left.is_zero() => {
                    return self.lose(Cause::OutOfTime, message, None);
                }
                left => receiver.send(message, left.unwrap_or(Duration::MAX)),
            };
            match answer {
                Answer::Taken => {
                    self.lock().account.sent += message.totals;
                    return;
                }
                Answer::PartlyRejected(why) => {
                    return self.lose(Cause::PartlyRejected, message, Some(why));
                }
                Answer::NotUnderstood(why) => {
                    return self.lose(Cause::NotUnderstood, message, Some(why));
                }
                Answer::Refused(why) => return self.lose(Cause::Refused, message, Some(why)),
                Answer::Later(why, wish) => {
                    let mut state = self.lock();
                    state.account.retries += 1;
                    state.account.newest_failure = Some(why);
                    drop(state);
                    let random = RandomState::new().hash_one(failures);
                    self.wait(wait_of(failures, wish, random));
                    failures += 1;
                }
            }
        }
    }

    fn lose(&self, cause: Cause, message: &Message, why: Option<String>) {
        let mut state = self.lock();
        state.account.lose(cause, message.totals);
        if why.is_some() {
            state.account.newest_failure = why;
        }
    }

    /// Until the deadline; `None`: there is none yet.
    fn time_left(&self) -> Option<Duration> {
        let deadline = self.lock().deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits so long, or until the deadline.
    fn wait(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        loop {
            let until = state.deadline.map_or(until, |deadline| deadline.min(until));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The wait after that many failures before: between half and all of the doubled time, so that
/// senders whose receiver restarts do not come back at once; and as long as the receiver wishes.
fn wait_of(failures: u32, wish: Option<Duration>, random: u64) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1u32.checked_shl(failures.min(20)).unwrap_or(1));
    let longest = doubled.min(LONGEST_WAIT);
    let share = 0.5 + 0.5 * (random >> 11) as f64 / (1u64 << 53) as f64;
    let wait = longest.mul_f64(share);
    match wish {
        // Not at the same instant as all others that were told so.
        Some(wish) => wish.min(LONGEST_WISH) + FIRST_WAIT.mul_f64(share),
        None => wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_differ_at_random() {
        for (failures, longest) in [(0, 500), (1, 1000), (4, 8000), (7, 60_000), (4000, 60_000)] {
            let longest = Duration::from_millis(longest);
            assert_eq!(wait_of(failures, None, 0), longest / 2);
            let most = wait_of(failures, None, u64::MAX);
            assert!(most > longest.mul_f64(0.99) && most <= longest);
        }
    }

    #[test]
    fn a_wish_is_kept_within_a_bound() {
        let wish = |seconds| wait_of(5, Some(Duration::from_secs(seconds)), 0);
        assert!(wish(7) >= Duration::from_secs(7) && wish(7) < Duration::from_secs(8));
        assert!(wish(u64::MAX) < LONGEST_WISH + FIRST_WAIT);
        assert!(wish(0) > Duration::ZERO);
    }
}
