//! Lanes: the queues from the threads of a program to the writer, and the order of their events.
//!
//! Imports: `primitive`.
//!
//! Circle: `lane`, `consumer`: the tests of a lane take its events out by a consumer.
//!
//! Not here: what the writer does with an event (`ledger`, `heapprof_format`).

pub(crate) mod consumer;
pub(crate) mod event;
pub(crate) mod lane;
pub(crate) mod merge;
#[cfg(test)]
pub(crate) mod model_all;
pub(crate) mod stack_lane;
pub(crate) mod timeline;
