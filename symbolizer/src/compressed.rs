//! Compressed: a file as zstd frames, written and read on all cores.
//!
//! ```text
//!   log          [header][frame][frame] … [frame][frame] … [frame] …
//!                 └───────── part ─────┘ └───── part ─────┘
//!   compressed   [zstd frame           ] [zstd frame      ] …
//! ```
//!
//! [`pack`] cuts a log into parts of some megabytes, at the beginnings of its own frames, and makes
//! each part a zstd frame that states its length and has a checksum. So `zstd -d` gives the log
//! back, parts need not wait for each other, and damage costs the rest of one part at most.
//!
//! [`unpack`] reads that, and any other file of zstd frames: one large frame, frames without a
//! length, skippable frames. It takes what can be read of a damaged log. A line of text stands for
//! the rest ([`unpack::DAMAGE`]). No frame of a log begins so, and the log's own reader reports it.
//! So every command says that the log is damaged, and none has to know that it was compressed.
//!
//! A file cannot decide how much it takes: it may unpack to [`unpack::MULTIPLE`] times its size and
//! [`unpack::CONSTANT`] bytes, and not to more than there is room for.
//!
//! | concept | file |
//! | --- | --- |
//! | where the frames of a zstd file lie | `zstd_frames.rs` |
//! | the compressed form of a log | `pack.rs` |
//! | the bytes in a compressed file | `unpack.rs` |
//! | a file with its bytes, unpacked if it is compressed | `plain_file.rs` |
//!
//! Imports: `regular_file`, `memory`.
//!
//! Not here: the exchange of a log for its compressed form (`cli`).

mod pack;
mod plain_file;
mod unpack;
mod zstd_frames;

pub use pack::pack;
pub use plain_file::{PlainError, on_unpacking};
pub(crate) use plain_file::{PlainFile, read_at};
pub use unpack::{Damaged, UnpackError, Unpacked, unpack};
pub use zstd_frames::is_compressed;
