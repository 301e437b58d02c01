//! Readers: one file for each form of input, from its bytes to a profile.
//!
//! Imports: `memory`, `access`, `presence`, `regular_file`, `compressed`, `resolve`, `history`,
//! `model`.
//!
//! Not here: which form a file has (`input`), names of addresses (`naming`).

pub(crate) mod address_search;
pub(crate) mod beginning;
pub(crate) mod dump;
pub(crate) mod ending;
pub(crate) mod fold;
pub(crate) mod follow;
pub(crate) mod jemalloc;
pub(crate) mod labelled;
pub(crate) mod life;
pub(crate) mod log;
pub(crate) mod midway;
pub(crate) mod paired_difference;
pub(crate) mod parent_log;
pub(crate) mod pprof;
pub(crate) mod segments;
pub(crate) mod tail;
