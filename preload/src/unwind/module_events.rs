//! Module events: loads and unloads of modules for the log, in a list that hooks extend and the
//! writer reads.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use heapprof_format::Segment;

use crate::os::clock;
use crate::state::counters;

/// One load or unload.
pub(crate) enum ModuleEvent {
    Loaded {
        number: u32,
        path: Vec<u8>,
        build_id: Vec<u8>,
        bias: u64,
        segments: Vec<Segment>,
    },
    Unloaded {
        number: u32,
    },
}

/// A node in the list of all events, which only grows.
pub(crate) struct ModuleEventNode {
    pub(crate) event: ModuleEvent,
    pub(crate) time_ns: u64,
    pub(crate) older: *const ModuleEventNode,
}

/// The limit on events at which loads are refused: some megabytes of nodes. A program that loads
/// ever new modules reaches it. Later loads are counted and not recorded, and the frames of later
/// modules have no module. The unload of a recorded load is always recorded: without it, a module
/// that is gone would have the frames of its successors.
const MAX_EVENTS: u32 = 32_768;

/// The number of events.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Newest event. Nodes are never freed: modules are few, and a forked child reads them again.
static EVENTS: AtomicPtr<ModuleEventNode> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the newest event. The writer follows `older` down to the event that it knows.
pub(crate) fn newest() -> *const ModuleEventNode {
    EVENTS.load(Ordering::Acquire)
}

/// Records a load, or returns false if there are too many. Only one thread at a time calls this:
/// the constructor, or the thread that changes the list of modules.
pub(crate) fn announce_load(load: ModuleEvent) -> bool {
    if COUNT.load(Ordering::Relaxed) >= MAX_EVENTS {
        counters::LOST_MODULES.add(1);
        return false;
    }
    add(load);
    true
}

/// Records the unload of a module whose load is recorded. Called as [`announce_load`] is.
pub(crate) fn announce_unload(number: u32) {
    add(ModuleEvent::Unloaded { number });
}

fn add(event: ModuleEvent) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let node = Box::into_raw(Box::new(ModuleEventNode {
        event,
        time_ns: clock::now_ns(),
        older: EVENTS.load(Ordering::Relaxed),
    }));
    EVENTS.store(node, Ordering::Release);
}
