//! State: the present state of the process and of the calling thread.
//!
//! May import: arch, os.
//!
//! Not here: the decisions that change a value. A folder above decides, and stores the value here.

pub(crate) mod counters;
pub(crate) mod interval;
pub(crate) mod phase;
pub(crate) mod process;
pub(crate) mod settings;
pub(crate) mod shutdown;
pub(crate) mod thread;
pub(crate) mod wakeup;
