//! Queue: messages that wait for the receiver, bounded in number and bytes.
//!
//! When it is full, the oldest messages make room and are counted: the newest state of the heap is
//! worth the most.

use std::collections::VecDeque;

use crate::push::account::{Cause, DeliveryAccount};
use crate::push::message::Message;

/// Most messages that wait.
const MOST_MESSAGES: usize = 10_000;

/// See the module's text.
pub(super) struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    most_bytes: usize,
}

impl Queue {
    pub(super) fn of(most_bytes: usize) -> Queue {
        Queue {
            messages: VecDeque::new(),
            bytes: 0,
            most_bytes,
        }
    }

    /// Adds a message behind all others. One that alone exceeds the bound is lost itself.
    pub(super) fn push(&mut self, message: Message, account: &mut DeliveryAccount) {
        self.bytes += message.body.len();
        self.messages.push_back(message);
        while self.bytes > self.most_bytes || self.messages.len() > MOST_MESSAGES {
            let Some(oldest) = self.pop() else { break };
            account.lose(Cause::QueueFull, oldest.totals);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.body.len();
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::account::MessageTotals;

    fn message(bytes: usize, allocated_bytes: u64) -> Message {
        Message {
            query: String::new(),
            content_type: "",
            is_gzip: false,
            body: vec![0; bytes],
            totals: MessageTotals {
                messages: 1,
                allocated_objects: 1,
                allocated_bytes,
            },
        }
    }

    #[test]
    fn the_oldest_make_room_and_are_counted() {
        let (mut queue, mut account) = (Queue::of(100), DeliveryAccount::default());
        for n in 1..=4 {
            queue.push(message(40, n), &mut account);
        }
        let lost = account.lost_to(Cause::QueueFull);
        assert_eq!((lost.messages, lost.allocated_bytes), (2, 1 + 2));
        let left: Vec<u64> = std::iter::from_fn(|| queue.pop())
            .map(|message| message.totals.allocated_bytes)
            .collect();
        assert_eq!(left, [3, 4]);
        queue.push(message(101, 9), &mut account);
        assert!(queue.pop().is_none());
        assert_eq!(account.lost_to(Cause::QueueFull).allocated_bytes, 12);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn the_number_of_messages_is_bounded_too() {
        let (mut queue, mut account) = (Queue::of(usize::MAX), DeliveryAccount::default());
        for _ in 0..MOST_MESSAGES + 3 {
            queue.push(message(0, 1), &mut account);
        }
        assert_eq!(account.all_lost().messages, 3);
    }
}
