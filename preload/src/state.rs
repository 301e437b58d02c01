//! State: what is true of the process or of the calling thread right now.
//!
//! May import: os.
//!
//! Not here: how a value comes about; a folder above decides and stores it here.

pub(crate) mod counters;
pub(crate) mod interval;
pub(crate) mod phase;
pub(crate) mod process;
pub(crate) mod settings;
pub(crate) mod shutdown;
pub(crate) mod thread;
pub(crate) mod wakeup;
