//! Recording: the records that a sampled malloc or free leaves for the writer.
//!
//! ```text
//!  hooks ─> seats ─┬> sampled_blocks
//!                  └> lanes of the session ═> writer
//! ```
//!
//! | concept | file |
//! | --- | --- |
//! | the connection between hooks and writer | `session.rs` |
//! | what hooks send beside samples | `events.rs` |
//! | a walker and two lanes, used by one hook at a time | `seats.rs`, `seats/`, `seat_lanes.rs` |
//! | the live sampled blocks, and their Bloom filter | `sampled_blocks.rs`, `mapped_levels.rs` |
//! | the sampling parameters of a thread | `regime.rs` |
//! | bytes that threads request, sampled or not | `byte_count.rs` |
//! | the labels of a thread | `labels.rs`, `labels/`, `thread_context.rs` |
//! | frees before there is a session | `pending_frees.rs` |
//! | mappings before there is a session | `pending_mappings.rs` |
//! | requests to the writer | `request_word.rs`, `requests.rs` |
//! | the words that `heapprof attach` reads and writes | `attach_block.rs` |
//! | a hook that a signal handler jumped out of | `abandoned_hook.rs` |
//!
//! May import: arch, os, state, allocator, unwind.
//!
//! Not here: the writer, and the decision that a block is sampled.

pub(crate) mod abandoned_hook;
#[cfg(feature = "attach")]
pub(crate) mod attach_block;
pub(crate) mod byte_count;
pub(crate) mod events;
pub(crate) mod labels;
pub(crate) mod mapped_levels;
pub(crate) mod pending_frees;
pub(crate) mod pending_mappings;
pub(crate) mod regime;
pub(crate) mod request_word;
pub(crate) mod requests;
pub(crate) mod sampled_blocks;
pub(crate) mod seat_lanes;
pub(crate) mod seats;
pub(crate) mod session;
pub(crate) mod thread_context;
