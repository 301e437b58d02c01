//! What the log must say about modules: a list that hooks lengthen and the writer reads.

use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_format::Segment;

use crate::os::clock;

/// One such thing.
pub(crate) enum Notice {
    Loaded {
        number: u32,
        path: Vec<u8>,
        build_id: Vec<u8>,
        bias: u64,
        segments: Vec<Segment>,
    },
    Gone {
        number: u32,
    },
}

/// A notice in the list of all notices, which only grows.
pub(crate) struct NoticeNode {
    pub(crate) notice: Notice,
    pub(crate) time_ns: u64,
    pub(crate) older: *const NoticeNode,
}

/// Newest notice. Nodes are never freed: modules are few, and a fork's child reads them anew.
static NOTICES: AtomicPtr<NoticeNode> = AtomicPtr::new(std::ptr::null_mut());

/// The notice last given; the writer follows `older` down to the one it knows.
pub(crate) fn newest() -> *const NoticeNode {
    NOTICES.load(Ordering::Acquire)
}

/// Adds one. By one thread at a time: the constructor, or whoever changes the list of modules (`unwind/modules.rs`).
pub(crate) fn announce(notice: Notice) {
    let node = Box::into_raw(Box::new(NoticeNode {
        notice,
        time_ns: clock::now_ns(),
        older: NOTICES.load(Ordering::Relaxed),
    }));
    NOTICES.store(node, Ordering::Release);
}
