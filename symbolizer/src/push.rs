//! Push: the heap profiles of logs that grow, sent to a store of profiles every few seconds.
//!
//! ```text
//!  logs ─> baseline ─> message ─> queue ─> delivery ─> receiver
//!  what    what was    one body   bounded  retries     one HTTP request
//!  grew    allocated   for one             and their
//!          since       process             waits
//! ```
//!
//! A message has what a process allocated since its message before, and what it has in use now. So
//! all messages of a process add up to the totals of its log. The [`DeliveryAccount`] counts each
//! message that does not arrive (Law 10). The profiled process does nothing for it.
//!
//! Imports: `memory`, `presence`, `model`, `read`, `naming`, `analysis`, `export`, `input`.
//!
//! Not here: what the user is told, and when to look (`cli`).

mod account;
mod baseline;
mod delivery;
mod logs;
mod message;
mod queue;
mod receiver;

pub use account::{Cause, DeliveryAccount, MessageTotals};
pub use delivery::Delivery;
pub use logs::{Grown, Logs};
pub use message::{Message, Protocol, Subject, message_of};
pub use receiver::{Credentials, Receiver, ReceiverError};
