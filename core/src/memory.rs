//! Resident memory: texts of the kernel about it, the pace of readings, alarms near a limit, and
//! the waterfall from the resident memory down to the blocks in use.
//!
//! | concept | file |
//! | --- | --- |
//! | causes of changes since the last costly reading | `detail_baseline.rs` |
//! | numbers in texts of `/proc` and of cgroups | `kernel_text.rs` |
//! | ranges of addresses and their owners | `address_map.rs` |
//! | the pages that blocks lie on | `block_pages.rs` |
//! | the cgroup of a process, in the file system | `cgroup.rs` |
//! | the time until costly work may be done again | `cpu_share.rs` |
//! | shares of a limit, each told once | `limit_alarm.rs` |
//! | lines that add up to the resident memory | `waterfall.rs` |
//!
//! Not here: the files, and what a reading is on disk (format's `memory_reading`).

pub(crate) mod address_map;
pub(crate) mod block_pages;
pub(crate) mod cgroup;
pub(crate) mod cpu_share;
pub(crate) mod detail_baseline;
pub(crate) mod kernel_text;
pub(crate) mod limit_alarm;
pub(crate) mod waterfall;
