//! Delivery account: the messages that arrived, and those that were lost, by cause.

use std::fmt;
use std::ops::AddAssign;

/// The allocations that messages carry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageTotals {
    /// Messages: one for a process and a time.
    pub messages: u64,
    /// Blocks allocated.
    pub allocated_objects: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
}

impl AddAssign for MessageTotals {
    fn add_assign(&mut self, other: MessageTotals) {
        self.messages += other.messages;
        self.allocated_objects = self
            .allocated_objects
            .saturating_add(other.allocated_objects);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
    }
}

/// Why a message did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The queue was full, and newer messages took its place.
    QueueFull,
    /// The receiver refused it, and a repetition would not help.
    Refused,
    /// The receiver said that it took the message, but not all of its profiles.
    PartlyRejected,
    /// The answer means nothing in the protocol: what became of the message is not known.
    NotUnderstood,
    /// The time for the end was over.
    OutOfTime,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 5] = [
        Cause::QueueFull,
        Cause::Refused,
        Cause::PartlyRejected,
        Cause::NotUnderstood,
        Cause::OutOfTime,
    ];

    /// In words, behind a number of messages.
    pub fn describe(self) -> &'static str {
        match self {
            Cause::QueueFull => "pushed out of the full queue",
            Cause::Refused => "refused by the receiver",
            Cause::PartlyRejected => "taken only in part by the receiver",
            Cause::NotUnderstood => "answered with something that is no answer of the protocol",
            Cause::OutOfTime => "left when the time was over",
        }
    }
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryAccount {
    /// The messages that arrived.
    pub sent: MessageTotals,
    /// The lost messages, in the order of [`Cause::ALL`].
    pub lost: [MessageTotals; Cause::ALL.len()],
    /// Requests that failed and were made again.
    pub retries: u64,
    /// The newest failure, in words.
    pub newest_failure: Option<String>,
}

impl DeliveryAccount {
    /// Counts a loss.
    pub(super) fn lose(&mut self, cause: Cause, totals: MessageTotals) {
        self.lost[cause as usize] += totals;
    }

    /// The losses of one cause.
    pub fn lost_to(&self, cause: Cause) -> MessageTotals {
        self.lost[cause as usize]
    }

    /// All losses.
    pub fn all_lost(&self) -> MessageTotals {
        let mut sum = MessageTotals::default();
        for totals in self.lost {
            sum += totals;
        }
        sum
    }
}

impl fmt::Display for MessageTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = match self.messages {
            1 => "1 message".into(),
            n => format!("{n} messages"),
        };
        write!(
            f,
            "{messages} ({} blocks and {} bytes allocated)",
            self.allocated_objects, self.allocated_bytes
        )
    }
}
